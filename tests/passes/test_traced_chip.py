"""Which chip a recording's device is, by what its tracer wrote of it."""

from dataclasses import replace

import pytest
from oracles.built_traces import H100, BuiltTrace

from hloscope.chips import CHIPS, ChipKind
from hloscope.passes.traced_chip import chip_of_device

MI300X = {
    "device_vendor": "AMD",
    "compute_cap_major": 9,
    "compute_cap_minor": 4,
    "core_count": 304,
    "memory_size": 206_141_652_992,
    "memory_bandwidth": 2_662_400_000_000,
}


@pytest.fixture
def device(tmp_path):
    def make(kind=ChipKind.GPU, **about):
        built = BuiltTrace(card=about)
        built.kernel("k", 0, 1)
        (found,) = built.read(tmp_path).devices
        return replace(found, kind=kind)

    return make


def test_a_name_of_the_table_decides(device):
    found = chip_of_device(device(**H100))
    assert found.chip is CHIPS["h100"]
    assert found.how == "the recording names it: NVIDIA H100 80GB HBM3"
    said = {"peak_teraflops_per_second": 197.0, "peak_hbm_bw_gigabytes_per_second": 819}
    tpu = chip_of_device(device(ChipKind.TPU, device_type_string="TPU v5 Lite", **said))
    assert tpu.chip is CHIPS["v5e"]
    assert tpu.how == "the recording names it: TPU v5 Lite, with 197 TFLOP/s and 819 GB/s"


def test_a_gpu_without_a_name_is_recognised_by_its_units_and_its_memory(device):
    found = chip_of_device(device(**MI300X))
    assert found.chip is CHIPS["mi300x"]
    assert found.how == "inferred from 304 compute units and the size of its memory"
    # As many units with more memory are an MI325X.
    other = chip_of_device(device(**MI300X | {"memory_size": 274_861_129_728}))
    assert not other.chip.peaks
    # The driver's bandwidth is half of what this memory does.
    assert other.chip.memory_bandwidth is None


def test_a_chip_that_is_not_in_the_table_has_the_recordings_own_figures(device):
    card = chip_of_device(
        device(
            device_vendor="Nvidia",
            gpu_device_name="NVIDIA H200",
            memory_bandwidth=4_890_000_000_000,
        )
    )
    assert (card.chip.memory_bandwidth, dict(card.chip.peaks)) == (4.89e12, {})
    assert "its figures are the recording's own" in card.how
    tpu = chip_of_device(
        device(
            ChipKind.TPU,
            device_type_string="TPU v9",
            peak_teraflops_per_second=1000.0,
            peak_hbm_bw_gigabytes_per_second=5000,
        )
    )
    assert dict(tpu.chip.peaks) == {"bf16": 1e15}
    assert tpu.chip.memory_bandwidth == 5e12


@pytest.mark.parametrize("figure", [0, -3, 1 << 62, "fast"])
def test_garbage_is_no_figure(device, figure):
    found = chip_of_device(device(device_vendor="Nvidia", memory_bandwidth=figure))
    assert found.chip.memory_bandwidth is None
    assert "no figures are known" in found.how


def test_of_a_processor_nothing_is_known(device):
    assert chip_of_device(device(ChipKind.CPU)).chip is CHIPS["cpu"]
