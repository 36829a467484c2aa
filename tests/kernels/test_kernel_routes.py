"""What compilers make of kernels, through the ordinary capture, and what they do not take."""

import pytest

import hloscope
from hloscope.answers import kernels
from hloscope.api import list_kernels
from hloscope.errors import UsageError
from hloscope.pipeline.findings import Basis, Quantity

SMALL = {"shape": "b1,s128,h1,d64"}


def rows_of(report, name):
    (table,) = [table for table in report.tables if table.name == name]
    return {row[0]: row for row in table.rows}


@pytest.mark.parametrize(
    ("target", "implementation", "word", "call", "other"),
    [
        ("h100", "flash_gpu", "Pallas kernel (Triton)", "__gpu$xla.gpu.triton", "flash_tpu"),
        ("v5e", "flash_tpu", "Pallas kernel (Mosaic)", "tpu_custom_call", "cudnn"),
    ],
)
def test_a_flash_kernel_is_one_custom_call_of_its_target(
    target, implementation, word, call, other, need_target
):
    need_target(target)
    report = hloscope.compare_kernels(
        "attention", **SMALL, implementations=(implementation, other), target=target
    )
    rows = rows_of(report, "routes")
    _, flops, temporaries, peak, launches, route = rows[implementation]
    assert word in route
    assert "scores" not in route
    assert launches.value >= 1
    # Three operands and the result, 16 KiB each.
    assert peak.value >= 4 * 16384
    assert temporaries.value is not None
    assert flops.basis is not Basis.EXACT
    assert rows_of(report, "calls")[implementation][1] == call
    *unknown, reason = rows[other][1:]
    assert all(cell.value is None for cell in unknown)
    assert reason.startswith("unsupported: it is written for")
    assert report.summary == f"1 implementation of 2 compiled for {target}."
    assert not report.failures


def test_written_out_attention_counts_both_products_on_cpu():
    report = hloscope.compare_kernels(
        "attention", **SMALL, implementations=("xla", "splash_tpu"), target="cpu"
    )
    rows = rows_of(report, "routes")
    assert rows["xla"][1] == Quantity("products", 2 * 2 * 128 * 128 * 64, rows["xla"][1].unit)
    assert "fused product x2" in rows["xla"][5]
    assert rows["splash_tpu"][5] == (
        "not compiled for cpu: it is written for TPUs; bench --interpret runs its numbers"
    )


def test_a_kernel_is_a_source_like_any_other():
    subject = hloscope.load("kernel:rms_norm/reference/s8,d64")
    assert subject.name == "kernel:rms_norm/reference/s8,d64"
    assert subject.artifact.name == "rms_norm_reference_forward"


@pytest.mark.parametrize("name", ["cudnn", "flash_tpu"])
def test_a_source_for_other_chips_is_refused_with_what_there_is(name):
    with pytest.raises(UsageError, match=f"attention/{name} is written for") as refused:
        hloscope.load(f"kernel:attention/{name}/b1,s128", target="cpu")
    assert refused.value.hint.endswith("another implementation: reference, xla.")


def test_a_kernel_that_is_none_is_refused():
    with pytest.raises(UsageError, match="softcap"):
        hloscope.load("kernel:attention/xla/s8,softcap=3")


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("it could not be traced: NotImplementedError: no such width", "no such width"),
        ("RuntimeError: No supported GPU devices found, please", "does not know the card"),
        (
            "RESOURCE_EXHAUSTED: Shared memory size limit exceeded: requested 262144, "
            "available: 232448, context: []",
            "it wants 262144 bytes of shared memory, and the chip has 232448",
        ),
        ("JaxRuntimeError: RESOURCE_EXHAUSTED: E1001: CompileTimeScopedVmemOom:", "VMEM"),
        ("the worker died of SIGABRT in the phase `compile`", None),
    ],
)
def test_what_a_kernel_does_not_take_is_told_from_what_fails(said, reason):
    refused = kernels._refused(said)
    assert refused is None if reason is None else reason in refused


def test_a_missing_plugin_is_a_reason_and_no_failure(tmp_path, monkeypatch):
    monkeypatch.setenv("HLOSCOPE_CACHE_DIR", str(tmp_path))
    report = hloscope.compare_kernels("swiglu", target="v5e")
    for row in rows_of(report, "routes").values():
        assert "hloscope targets install v5e" in row[-1]
    listed = list_kernels(["h100"]).tables[0]
    assert all(row[2] == "no" for row in listed.rows)
    assert listed.note.count("hloscope targets install h100") == 1


def test_the_list_fits_a_terminal_and_says_each_reason_once(monkeypatch, capsys):
    from hloscope.cli import main

    monkeypatch.setenv("COLUMNS", "80")
    assert main(["kernels", "--target", "cpu"]) == 0
    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines())) <= 80
    assert " ".join(shown.split()).count("no: it is written for GPUs (attention cudnn,") == 1
    assert "why not" not in shown
    assert "why not" in [column.title for column in list_kernels(["cpu"]).tables[0].columns]


def test_the_list_says_for_each_target_what_runs_compiles_or_does_not(need_target):
    need_target("h100")
    need_target("v5e")
    table = list_kernels().tables[0]
    assert [column.title for column in table.columns[2:5]] == ["cpu", "h100", "v5e"]
    said = {row[:2]: row[2:] for row in table.rows}
    assert said["attention", "xla"] == ("runs", "compiles", "compiles", "")
    assert said["attention", "flash_tpu"][:3] == ("interpreted", "no", "compiles")
    assert said["attention", "flash_tpu"][3] == "h100: it is written for TPUs"
    assert said["rms_norm", "pallas_gpu"][:3] == ("interpreted", "compiles", "no")
