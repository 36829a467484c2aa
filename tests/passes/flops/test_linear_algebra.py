"""Factorizations and solves by their textbook counts, written out here."""

import pytest

from hloscope.ir import parse_text
from hloscope.passes.flops.counts import Kind, Unmodelled
from hloscope.passes.flops.linear_algebra import count_cholesky, count_triangular_solve
from hloscope.pipeline.findings import Basis

B, M, N, K = 4, 60, 30, 12
TALL, SQUARE = f"f32[{B},{M},{N}]", f"f32[{B},{N},{N}]"
TAU = f"f32[{B},{K}]"


@pytest.mark.parametrize(
    ("target", "operands", "each"),
    [
        ("cusolver_potrf_ffi", SQUARE, N**3 / 3),
        ("cusolver_getrf_ffi", TALL, M * N**2 - N**3 / 3),
        ("cublas_getrf_batched_ffi", f"f32[{B},{N},{M}]", M * N**2 - N**3 / 3),
        ("cusolver_geqrf_ffi", TALL, 2 * M * N**2 - 2 * N**3 / 3),
        ("hipblas_geqrf_batched_ffi", TALL, 2 * M * N**2 - 2 * N**3 / 3),
        ("lapack_sgeqp3_ffi", TALL, 2 * M * N**2 - 2 * N**3 / 3),
        (
            "cusolver_orgqr_ffi",
            f"{TALL}; {TAU}",
            4 * M * N * K - 2 * (M + N) * K**2 + 4 * K**3 / 3,
        ),
        ("lapack_sormqr_ffi", f"{SQUARE}; {TAU}; {TALL}", 4 * M * N * K - 2 * N * K**2),
        ("cusolver_syevd_ffi", SQUARE, 9 * N**3),
        ("cusolver_sytrd_ffi", SQUARE, 4 * N**3 / 3),
        ("cusolver_gesvdj_ffi", TALL, 14 * M * N**2 + 8 * N**3),
        ("hipsolver_gesvd_ffi", TALL, 14 * M * N**2 + 8 * N**3),
        ("lapack_sgeev_ffi", SQUARE, 25 * N**3),
        ("lapack_sgehrd_ffi", SQUARE, 10 * N**3 / 3),
        ("lapack_strsm_ffi", f"{SQUARE}; f32[{B},{N},7]", N * N * 7),
        ("__cublas$triangularSolve", f"{SQUARE}; f32[{B},{N},7]", N * N * 7),
        ("Cholesky", SQUARE, N**3 / 3),
        ("QrDecompositionBlock", TALL, 2 * M * N**2 - 2 * N**3 / 3),
        ("InvertDiagBlocksLowerTriangular", SQUARE, N**3 / 3),
        ("CompactWyHelper", SQUARE, N**3 / 3),
    ],
)
def test_each_matrix_of_the_batch_by_its_leading_terms(read_call, target, operands, each):
    count = read_call(operands, f"({operands.split('; ')[0]}, s32[{B}])", target)
    assert (count.kind, count.basis) == (Kind.LINEAR_ALGEBRA, Basis.MODELLED)
    assert count.flops == int(round(B * each, 6))
    assert count.model


@pytest.mark.parametrize(
    ("target", "config", "each"),
    [
        ("lapack_ssyevd_ffi", "{mode = 78 : ui8}", 4 * N**3 / 3),
        ("lapack_ssyevd_ffi", "{mode = 86 : ui8}", 9 * N**3),
        ("lapack_sgesdd_ffi", "{mode = 78 : ui8}", 4 * N**3 - 4 * N**3 / 3),
        ("cusolver_gesvdj_ffi", "{compute_uv = false}", 4 * N**3 - 4 * N**3 / 3),
        ("lapack_sgeev_ffi", "{compute_left = 78 : ui8, compute_right = 78 : ui8}", 10 * N**3),
        ("lapack_sgeev_ffi", "{compute_left = 78 : ui8, compute_right = 86 : ui8}", 25 * N**3),
    ],
)
def test_values_alone_cost_less_than_vectors_too(read_call, target, config, each):
    assert read_call(SQUARE, f"({SQUARE}, s32[{B}])", target, config).flops == B * each


def test_a_complex_matrix_costs_four_times_as_much(read_call):
    count = read_call("c64[30,30]", "(c64[30,30], s32[])", "lapack_cpotrf_ffi")
    assert count.flops == 4 * 30**3 // 3


def test_householder_products_from_the_right_use_the_rows(read_call):
    operands = f"{SQUARE}; {TAU}; {TALL}"
    count = read_call(operands, TALL, "lapack_sormqr_ffi", "{side = 82 : ui8}")
    assert count.flops == B * (4 * M * N * K - 2 * M * K**2)


def test_calls_of_before_2024_pass_sizes_before_the_matrix(read_call):
    count = read_call("s32[]; s32[]; f32[30,30]", "(f32[30,30], s32[])", "lapack_spotrf")
    assert count.flops == 30**3 // 3


def test_a_tridiagonal_solve_is_linear(read_call):
    operands = "f32[100]; f32[100]; f32[100]; f32[100,3]"
    count = read_call(operands, "f32[100,3]", "cusparse_gtsv2_ffi")
    assert count.flops == 3 * 100 + 5 * 300


def test_a_routine_without_a_matrix_is_refused(read_call):
    with pytest.raises(ValueError, match="no matrix"):
        read_call("f32[4]", "f32[4]", "cusolver_potrf_ffi")


def test_a_sparse_solve_has_no_model(read_call):
    assert isinstance(read_call("f32[9]", "f32[3]", "cusolver_csrlsvqr_ffi"), Unmodelled)


def root(text: str):
    return parse_text(f"HloModule m\nENTRY e {{\n{text}\n}}").entry.root


def test_the_cholesky_opcode_is_xlas_count(xla_flops):
    text = "x = f32[4,8,8] parameter(0)\nROOT r = f32[4,8,8] cholesky(x), lower=true"
    assert count_cholesky(root(text)).flops == 4 * 8**3 // 3
    assert xla_flops(f"HloModule m\nENTRY e {{\n{text}\n}}\n") == 4 * 8**3 // 3


def test_xla_counts_the_zeros_of_a_triangular_solve_too(xla_flops):
    text = (
        "x = f32[4,8,8] parameter(0)\ny = f32[4,8,5] parameter(1)\nROOT r = f32[4,8,5] "
        "triangular-solve(x, y), left_side=true, lower=true, transpose_a=NO_TRANSPOSE"
    )
    # For each right-hand side 8 rows; row i takes i multiply-adds and a division: 8^2 in all.
    assert count_triangular_solve(root(text)).flops == 4 * 5 * 8**2
    assert xla_flops(f"HloModule m\nENTRY e {{\n{text}\n}}\n") == 2 * 4 * 5 * 8**2
