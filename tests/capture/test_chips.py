"""The chip table and the language of targets."""

from __future__ import annotations

import math
import subprocess
import sys

import pytest

from hloscope.capture.plugins import components_of
from hloscope.chips import CHIPS, chip_of_device_kind, parse_target
from hloscope.errors import TargetError


@pytest.mark.parametrize(
    ("text", "normal", "devices", "topology"),
    [
        ("cpu", "cpu", 1, ()),
        ("cpu:8", "cpu:8", 8, ()),
        ("cpu:1", "cpu", 1, ()),
        ("h100", "h100", 1, ()),
        ("H100:8", "h100:8", 8, ()),
        (" rtx4080 ", "rtx4080", 1, ()),
        ("v5e", "v5e", 1, (1, 1)),
        ("v5e:1x1", "v5e", 1, (1, 1)),
        ("v5e:2x4", "v5e:2x4", 8, (2, 4)),
        ("v5p:2x2x1", "v5p:2x2x1", 4, (2, 2, 1)),
        ("v4:2x2x2", "v4:2x2x2", 8, (2, 2, 2)),
    ],
)
def test_a_target_says_how_many_devices(text, normal, devices, topology):
    target = parse_target(text)
    assert (target.text, target.devices, target.topology) == (normal, devices, topology)


def test_local_knows_neither_its_chip_nor_its_devices():
    target = parse_target("local")
    assert target.is_local
    assert (target.chip, target.devices) == (None, None)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("h10", "`h100`"),
        ("rtx4090", "`rtx4080`"),
        ("", "Known: cpu"),
        ("local:2", "Write `local`"),
        ("h100:0", "h100:8"),
        ("h100:eight", "h100:8"),
        ("h100:-1", "h100:8"),
        ("cpu:", "cpu:8"),
        ("v5e:4", "v5e:2x2"),
        ("v5e:2x2x1", "v5e:2x2"),
        ("v5e:0x2", "v5e:2x2"),
        ("v5p:2x2", "v5p:2x2x1"),
        ("v5e:x", "v5e:2x2"),
        ("v5e:9999x9999", "v5e:2x2"),
        ("h100:99999999999999999999", "h100:8"),
    ],
)
def test_a_target_that_cannot_be_meant_is_answered_with_one_that_can(text, said):
    with pytest.raises(TargetError) as caught:
        parse_target(text)
    assert said in str(caught.value.hint)


@pytest.mark.parametrize("chip", CHIPS.values(), ids=lambda chip: chip.name)
def test_every_chip_names_its_sources_and_no_figure_is_zero(chip):
    assert chip.sources
    figures = [*chip.peaks.values(), chip.memory_bandwidth, chip.memory_bytes, chip.link_bandwidth]
    assert all(figure is None or figure > 0 for figure in figures)


@pytest.mark.parametrize(
    "chip", [c for c in CHIPS.values() if c.gpu is not None], ids=lambda chip: chip.name
)
def test_float32_peak_follows_from_the_card(chip):
    # Two operations (multiply and add) a lane and clock; vendors round, and quote
    # the boost clock of another board than the one that XLA read (H100, A100).
    card = chip.gpu
    computed = 2 * card.core_count * card.fpus_per_core * card.clock_rate_ghz * 1e9
    assert math.isclose(chip.peaks["f32"], computed, rel_tol=0.03)


@pytest.mark.parametrize(
    "chip", [c for c in CHIPS.values() if c.gpu is not None], ids=lambda chip: chip.name
)
def test_a_target_config_repeats_the_card(chip):
    text = chip.gpu.target_config()
    assert f"core_count: {chip.gpu.core_count}\n" in text
    assert f"major: {chip.gpu.compute_capability[0]} " in text
    assert f'device_description_str: "{chip.gpu.description}"' in text
    assert text.count("{") == text.count("}")


@pytest.mark.parametrize(
    ("chip", "units", "clock_ghz", "per_clock"),
    [
        ("mi300x", 304, 2.1, {"bf16": 2048, "f8e4m3fnuz": 4096, "tf32": 1024, "f32": 256}),
        ("mi355x", 256, 2.4, {"bf16": 4096, "f8e4m3fn": 8192, "f4e2m1fn": 16384, "f32": 256}),
    ],
)
def test_peaks_of_matrix_units_follow_from_what_each_does_in_a_cycle(
    chip, units, clock_ghz, per_clock
):
    # FLOPs of a compute unit in a cycle: AMD CDNA 3 and CDNA 4 architecture white papers.
    for dtype, flops in per_clock.items():
        assert math.isclose(CHIPS[chip].peaks[dtype], units * clock_ghz * 1e9 * flops, rel_tol=1e-3)


def test_a_chip_that_nothing_compiles_for_is_refused_with_what_can_be_done():
    with pytest.raises(TargetError, match="nothing here compiles for Instinct MI300X") as caught:
        components_of(parse_target("mi300x:8"))
    assert "--chip mi300x" in caught.value.hint


def test_a_device_finds_its_chip():
    assert chip_of_device_kind("TPU v5 lite") is CHIPS["v5e"]
    assert chip_of_device_kind("a toaster") is None


def test_the_table_does_not_import_jax():
    code = "import sys, hloscope.chips; sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
