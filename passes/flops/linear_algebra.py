"""Factorizations, solves and eigenvalues: LAPACK, cuSOLVER, cuBLAS, AMD's and TPU's own.

Leading terms as in Golub and Van Loan, *Matrix Computations*, and in LAPACK's
working note 41. Iterative methods (eigenvalues, singular values) take more or
fewer steps as the matrix has it; theirs are the usual estimates.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from fractions import Fraction
from math import prod

from hloscope.ir import Instruction, Shape
from hloscope.ir.dtypes import is_complex, is_floating
from hloscope.passes.flops.counts import Count, Kind, bounded_by_shapes
from hloscope.pipeline.findings import Basis

__all__ = [
    "LIBRARY_CALL",
    "TPU_CALL",
    "count_cholesky",
    "count_library_call",
    "count_tpu_call",
    "count_triangular_solve",
]

_NO_VECTORS = ord("N")  # LAPACK's job letters come as character codes


def _potrf(_: Instruction, __: int, n: int) -> tuple[str, Fraction]:
    return "potrf n^3/3", Fraction(n**3, 3)


def _getrf(_: Instruction, m: int, n: int) -> tuple[str, Fraction]:
    long, short = max(m, n), min(m, n)
    return "getrf m n^2 - n^3/3", long * short**2 - Fraction(short**3, 3)


def _geqrf(_: Instruction, m: int, n: int) -> tuple[str, Fraction]:
    long, short = max(m, n), min(m, n)
    return "geqrf 2 m n^2 - 2 n^3/3", 2 * long * short**2 - Fraction(2 * short**3, 3)


def _orgqr(call: Instruction, m: int, n: int) -> tuple[str, Fraction]:
    k = _reflectors(call)
    work = 4 * m * n * k - 2 * (m + n) * k**2 + Fraction(4 * k**3, 3)
    return "orgqr 4 m n k - 2 (m + n) k^2 + 4 k^3/3", work


def _ormqr(call: Instruction, _: int, __: int) -> tuple[str, Fraction]:
    """Here the matrix that counts is the one multiplied, the third operand."""
    rows, columns = call.operands[2].shape.dimensions[-2:]
    k = _reflectors(call)
    config = call.backend_config
    left = config.get("left", config.get("side", ord("L"))) in (True, ord("L"))
    kept = columns if left else rows
    return "ormqr 4 m n k - 2 n k^2", Fraction(4 * rows * columns * k - 2 * kept * k**2)


def _syevd(call: Instruction, _: int, n: int) -> tuple[str, Fraction]:
    if call.backend_config.get("mode") == _NO_VECTORS:
        return "syevd 4 n^3/3, values only", Fraction(4 * n**3, 3)
    return "syevd 9 n^3", Fraction(9 * n**3)


def _gesvd(call: Instruction, m: int, n: int) -> tuple[str, Fraction]:
    long, short = max(m, n), min(m, n)
    config = call.backend_config
    if config.get("compute_uv") is False or config.get("mode") == _NO_VECTORS:
        work = 4 * long * short**2 - Fraction(4 * short**3, 3)
        return "gesvd 4 m n^2 - 4 n^3/3, values only", work
    return "gesvd 14 m n^2 + 8 n^3", Fraction(14 * long * short**2 + 8 * short**3)


def _geev(call: Instruction, _: int, n: int) -> tuple[str, Fraction]:
    config = call.backend_config
    jobs = [config[key] for key in ("compute_left", "compute_right", "mode") if key in config]
    if jobs and all(job == _NO_VECTORS for job in jobs):
        return "geev 10 n^3, values only", Fraction(10 * n**3)
    return "geev 25 n^3", Fraction(25 * n**3)


def _gehrd(_: Instruction, __: int, n: int) -> tuple[str, Fraction]:
    return "gehrd 10 n^3/3", Fraction(10 * n**3, 3)


def _sytrd(_: Instruction, __: int, n: int) -> tuple[str, Fraction]:
    return "sytrd 4 n^3/3", Fraction(4 * n**3, 3)


def _trtri(_: Instruction, __: int, n: int) -> tuple[str, Fraction]:
    return "trtri n^3/3", Fraction(n**3, 3)


def _larft(_: Instruction, __: int, n: int) -> tuple[str, Fraction]:
    return "larft n^3/3", Fraction(n**3, 3)


def _reflectors(call: Instruction) -> int:
    return call.operands[1].shape.dimensions[-1]


_Model = Callable[[Instruction, int, int], tuple[str, Fraction]]

_ROUTINES: Mapping[str, _Model] = {
    "potrf": _potrf,
    "getrf": _getrf,
    "geqrf": _geqrf,
    "geqp3": _geqrf,
    "orgqr": _orgqr,
    "ungqr": _orgqr,
    "ormqr": _ormqr,
    "unmqr": _ormqr,
    "syevd": _syevd,
    "heevd": _syevd,
    "syevj": _syevd,
    "gesdd": _gesvd,
    "gesvd": _gesvd,
    "gesvdj": _gesvd,
    "gesvdp": _gesvd,
    "geev": _geev,
    "gees": _geev,
    "gehrd": _gehrd,
    "sytrd": _sytrd,
    "hetrd": _sytrd,
}
_SOLVES = ("trsm", "triangularSolve")
_TRIDIAGONAL = ("gtsv", "gtsv2")

LIBRARY_CALL = re.compile(
    r"(?:lapack_[sdcz]|cusolver_|cublas_|cusparse_|hipsolver_|hipblas_|hipsparse_|__cublas\$)"
    rf"({'|'.join([*_ROUTINES, *_SOLVES, *_TRIDIAGONAL])})(?:_batched)?(?:_ffi)?"
)
"""Targets of LAPACK's routines in their several libraries, the routine in group 1."""

_TPU_ROUTINES: Mapping[str, _Model] = {
    "Cholesky": _potrf,
    "LuDecomposition": _getrf,
    "LuDecompositionBlock": _getrf,
    "Qr": _geqrf,
    "QrDecompositionBlock": _geqrf,
    "ProductOfElementaryHouseholderReflectors": _orgqr,
    "CompactWyHelper": _larft,
    "InvertDiagBlocksLowerTriangular": _trtri,
    "InvertDiagBlocksUpperTriangular": _trtri,
}
TPU_CALL = re.compile("|".join(_TPU_ROUTINES))
"""Targets that TPU compilers use for single blocks; the rest of the work is products."""


def count_library_call(instruction: Instruction) -> Count:
    """Count a routine by its leading terms, for each matrix of the batch.

    Raises:
        IndexError: Its operands do not fit the routine.
        ValueError: It has no matrix among them.
    """
    match = LIBRARY_CALL.fullmatch(instruction.custom_call_target or "")
    routine = match[1] if match else ""
    if routine in _SOLVES:
        a, b = _matrices(instruction)[:2]
        return _solve(a, b)
    if routine in _TRIDIAGONAL:
        return _tridiagonal(instruction)
    return _factorization(instruction, _ROUTINES[routine])


def count_tpu_call(instruction: Instruction) -> Count:
    """Count a block that a TPU compiler factorizes or inverts.

    Raises:
        IndexError: Its operands do not fit the routine.
        ValueError: It has no matrix among them.
    """
    return _factorization(instruction, _TPU_ROUTINES[instruction.custom_call_target or ""])


def count_cholesky(instruction: Instruction) -> Count:
    """``cholesky``: ``n^3 / 3`` a matrix, as XLA counts it.

    Raises:
        ValueError: Its operand is no matrix.
    """
    return _factorization(instruction, _potrf)


def count_triangular_solve(instruction: Instruction) -> Count:
    """``triangular-solve``: ``n`` for each element of the right-hand side.

    Half of the ``n^2`` entries are zero, each other takes a multiply and an
    add. XLA counts them all.

    Raises:
        IndexError: It has fewer than two operands.
        ValueError: They are no matrices.
    """
    a, b = _matrices(instruction)[:2]
    return _solve(a, b)


def _matrices(instruction: Instruction) -> list[Shape]:
    """Matrices among the operands; calls of before 2024 also pass their sizes as scalars."""
    shapes = [operand.shape for operand in instruction.operands]
    found = [s for s in shapes if s.rank >= 2 and (is_floating(s.dtype) or is_complex(s.dtype))]
    if not found:
        raise ValueError("it has no matrix among its operands")
    return found


def _factorization(instruction: Instruction, model: _Model) -> Count:
    matrix = _matrices(instruction)[0]
    *batch, rows, columns = matrix.dimensions
    name, flops = model(instruction, rows, columns)
    return _modelled(name, prod(batch) * flops, matrix)


def _solve(a: Shape, b: Shape) -> Count:
    return _modelled(
        "trsm n^2 a right-hand side", Fraction(a.dimensions[-1] * b.num_elements), a, b
    )


def _tridiagonal(instruction: Instruction) -> Count:
    """Three operations a row to eliminate, five for each right-hand side."""
    diagonal, right = instruction.operands[1].shape, instruction.operands[3].shape
    flops = Fraction(3 * diagonal.num_elements + 5 * right.num_elements)
    return _modelled("gtsv 3 n + 5 n k", flops, diagonal, right)


def _modelled(name: str, flops: Fraction, *shapes: Shape) -> Count:
    dtype = shapes[0].dtype
    # A complex multiply-add is four real multiplies and four real adds.
    whole = int(flops * 4 if is_complex(dtype) else flops)
    count = Count(Kind.LINEAR_ALGEBRA, whole, Basis.MODELLED, name, (dtype,), accumulation=dtype)
    return bounded_by_shapes(count, *shapes)
