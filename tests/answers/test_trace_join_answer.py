"""The table of a trace's instructions and what its head says of utilisation."""

import pytest
from oracles.built_traces import BuiltTrace
from oracles.xspaces import PlaneWriter, space

import hloscope
from hloscope.pipeline.findings import Basis

DOT = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
STEP = f"""HloModule jit_step

ENTRY main {{
  a = bf16[1024,4096] parameter(0)
  b = bf16[4096,2048] parameter(1)
  gemm = bf16[1024,2048] dot(a, b), {DOT}
  ROOT sum = bf16[1024,2048] add(gemm, gemm)
}}
"""
GEMM = 2 * 1024 * 2048 * 4096


@pytest.fixture
def report_of(tmp_path):
    def report(built, **options):
        path = tmp_path / "host.xplane.pb"
        path.write_bytes(built.content() if isinstance(built, BuiltTrace) else built)
        found = hloscope.trace(path, **options)
        (table,) = [table for table in found.tables if table.name == "instructions"]
        titles = [column.title for column in table.columns]
        rows = {row[0]: dict(zip(titles, row, strict=True)) for row in table.rows}
        return found, table, rows

    return report


def steps(*kernels, **options):
    built = BuiltTrace({3: STEP}, **options)
    for _ in range(3):
        built.run(3, *kernels)
    return built


def test_rates_and_shares_of_the_chip_stand_beside_the_time(report_of):
    _, table, rows = report_of(steps(("gemm", "nvjet", 30), ("sum", "add", 10)))
    gemm, add = rows["gemm"], rows["sum"]
    assert gemm["time"].value == pytest.approx(90e-6)
    assert gemm["share"].value == 0.75
    assert gemm["TFLOP/s"].value == pytest.approx(GEMM / 30e-6 / 1e12)
    assert (gemm["TFLOP/s"].basis, gemm["TFLOP/s"].model) == (Basis.MODELLED, "runs inferred")
    assert gemm["FLOP/s"].value == pytest.approx(GEMM / 30e-6)
    assert gemm["of roof"].value == pytest.approx(GEMM / 30e-6 / 989.4e12)
    assert (gemm["bound"], add["bound"]) == ("compute", "memory")
    assert (add["TFLOP/s"], add["of peak"]) == ("-", "-")
    assert gemm["FLOPs each"].value == GEMM
    assert gemm["FLOPs each"].basis is Basis.EXACT
    assert "above" not in table.note


def test_the_head_says_utilisation_with_the_peak_that_it_is_of(report_of):
    report, _, _ = report_of(steps(("gemm", "nvjet", 30), ("sum", "add", 10)))
    window = (3 * 40 + 5) * 1e-6
    found = report.header["utilisation (MFU)"]
    assert found.value == pytest.approx(3 * GEMM / 989.4e12 / window)
    assert found.basis is Basis.MODELLED
    assert "of 989 TFLOP/s bf16 dense (H100 SXM5 80 GB)" in report.summary
    assert report.header["time joined to instructions"].value == 1
    assert "with recomputed work (HFU)" not in report.header


def test_what_is_above_the_peak_is_flagged_with_what_may_be_wrong(report_of):
    report, table, rows = report_of(steps(("gemm", "nvjet", 10), ("sum", "add", 1)))
    assert "which is more than it can do: a loop may run less often" in report.summary
    assert rows["gemm"]["bound"] == "above peak!"
    assert rows["gemm"]["doubt"] == "faster than the chip can multiply"
    assert rows["sum"]["bound"] == "above memory!"
    assert "1 instruction above the chip's peak (gemm)" in table.note
    assert "--chip" in table.note


def test_a_card_without_figures_has_rates_and_no_utilisation(report_of):
    built = steps(("gemm", "nvjet", 30), card={"device_vendor": "Nvidia"})
    report, table, rows = report_of(built)
    assert rows["gemm"]["TFLOP/s"].value == pytest.approx(GEMM / 30e-6 / 1e12)
    assert rows["gemm"]["of roof"].basis is Basis.UNKNOWN
    assert "utilisation (MFU)" not in report.header
    assert "no peak" in report.header["achieved in the window"]
    drawn = {column.title: column.drawn for column in table.columns}
    assert not drawn["of roof"]
    named = report_of(built, chip="a100")[0]
    window = (3 * 30 + 2) * 1e-6
    assert named.header["utilisation (MFU)"].value == pytest.approx(3 * GEMM / 312e12 / window)


def test_products_without_a_peak_make_utilisation_a_lower_bound(report_of):
    wide = STEP.replace("ROOT sum", "sum").replace(
        "(gemm, gemm)\n}",
        "(gemm, gemm)\n  c = f8e4m3fnuz[64,64] parameter(2)\n"
        f"  odd = f8e4m3fnuz[64,64] dot(c, c), {DOT}\n"
        "  ROOT t = (bf16[1024,2048], f8e4m3fnuz[64,64]) tuple(sum, odd)\n}",
    )
    built = BuiltTrace({3: wide})
    for _ in range(3):
        built.run(3, ("gemm", "nvjet", 30), ("odd", "gemm_fp8", 5))
    report, table, _ = report_of(built)
    found = report.header["utilisation (MFU)"]
    assert found.basis is Basis.BOUNDED
    assert found.value == pytest.approx(3 * GEMM / 989.4e12 / ((3 * 35 + 5) * 1e-6))
    assert "at least" in report.summary
    assert "no peak of h100 is known for f8e4m3fnuz" in table.note


def test_kernels_whose_program_is_not_at_hand_make_utilisation_a_lower_bound(report_of):
    built = steps(("gemm", "nvjet", 30))
    built.kernel("MemcpyD2D", 500, 100)
    whole = report_of(built)[0].header["utilisation (MFU)"]
    assert whole.basis is Basis.MODELLED
    built.kernel("nvjet", 700, 10, hlo_op="gemm", program_id=99)
    report, table, _ = report_of(built)
    assert report.header["utilisation (MFU)"].basis is Basis.BOUNDED
    assert "kernels whose program is not at hand, 5.00% of the time" in table.note


def test_kernels_of_no_instruction_and_whole_graphs_are_named(report_of):
    built = steps(("gemm", "nvjet", 30))
    built.kernel("MemcpyD2D", 500, 15)
    built.kernel("CudaGraphExec:4", 600, 45, cuda_graph_exec_id=4)
    report, table, rows = report_of(built)
    unknown = rows["(no instruction: MemcpyD2D)"]
    assert unknown["TFLOP/s"].basis is Basis.UNKNOWN
    assert unknown["bound"] == "unknown"
    graph = rows["(one CUDA graph, its kernels not recorded)"]
    assert graph["joined"] == "one CUDA graph: its kernels were not recorded"
    assert "30.0% of the time is CUDA graphs" in table.note
    assert report.header["time joined to instructions"].value == pytest.approx(0.6)


def test_kernels_that_are_joined_by_name_say_so(report_of):
    built = steps(("gemm", "nvjet", 30))
    built.kernel("sum", 500, 10)
    _, table, rows = report_of(built)
    assert rows["sum"]["joined"] == "by kernel name"
    assert "joined by kernel name" in rows["sum"]["GB/s"].model
    assert "10.0% of the time is joined by kernel name" in table.note


def test_a_tpus_own_counts_say_whose_they_are(report_of):
    plane = PlaneWriter("/device:TPU:0")
    plane.plane_stat("device_type_string", "TPU v5 lite")
    us = 1_000_000
    events = [plane.event("%dot = f32[8] dot(...)", at * us, 10 * us) for at in (0, 20)]
    events.append(plane.event("%kernel = f32[8] custom-call(...)", 40 * us, 10 * us))
    plane.describe(
        "%dot = f32[8] dot(...)", hlo_category="fusion", model_flops=10**9, bytes_accessed=10**6
    )
    plane.describe(
        "%kernel = f32[8] custom-call(...)", hlo_category="custom-call", flops=0, bytes_accessed=0
    )
    plane.line("XLA Ops", events)
    report, table, rows = report_of(space(plane))
    assert rows["dot"]["TFLOP/s"].value == pytest.approx(1e9 / 10e-6 / 1e12)
    assert rows["dot"]["TFLOP/s"].model == "the profiler's own count"
    assert rows["dot"]["of peak"].value == pytest.approx(1e14 / 197e12)
    # Its bytes are of all kinds of memory: no share of one of them.
    assert rows["dot"]["of bandwidth"].basis is Basis.UNKNOWN
    # Zeros of a kernel that it cannot look into are unknown.
    assert rows["kernel"]["TFLOP/s"].basis is Basis.UNKNOWN
    found = report.header["utilisation (MFU)"]
    assert found.value == pytest.approx(2e9 / 197e12 / 50e-6)
    assert report.header["achieved in the window"].startswith("at least 40.0 TFLOP/s, of 197")
    assert found.basis is Basis.BOUNDED
    assert "the profiler's own" in table.note


def test_a_recorded_step_says_what_is_computed_again(fixtures_dir):
    path = fixtures_dir / "xplane" / "amd_mi355x_te_fused_attention.xplane.pb"
    report = hloscope.trace(path)
    own, again = (report.header[k] for k in ("utilisation (MFU)", "with recomputed work (HFU)"))
    # Backward attention computes the scores again: one of its five products, twice a step.
    (window,) = {table.rows[0][2].value for table in report.tables if table.name == "devices"}
    product = 2 * (2 * 16) * 2048 * 128 * 2049 // 2
    assert again.value - own.value == pytest.approx(5 * 2 * product / 2516.6e12 / window, rel=1e-6)
    assert report.header["chip"].startswith("Instinct MI355X 288 GB (inferred from 256 compute")
