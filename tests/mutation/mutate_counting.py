"""Break one counting rule at a time, and see that some test notices.

Run with ``python tests/mutation/mutate_counting.py``. Each edit below is made
in a copy of the package, and the tests named beside it run against the copy:
they must fail. An edit that no longer fits its file is an error, so that the
table follows the code.
"""

from __future__ import annotations

import argparse
import compileall
import os
import py_compile
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Mutant:
    """One edit that breaks one rule.

    Attributes:
        file: File under ``passes``.
        old: Text that stands there.
        new: What it becomes.
        tests: Test files under ``tests/passes``, of which one must fail.
    """

    file: str
    old: str
    new: str
    tests: tuple[str, ...]

    def __str__(self) -> str:
        return (
            f"{self.file}: {' '.join(self.old.split())[:50]} -> {' '.join(self.new.split())[:40]}"
        )


def _in(file: str, *tests: str, edits: Sequence[tuple[str, str]]) -> Iterator[Mutant]:
    return (Mutant(file, old, new, tests) for old, new in edits)


MUTANTS = (
    *_in(
        "flops/counts.py",
        "flops/test_dot.py",
        "flops/test_library_calls.py",
        "flops/test_ledger.py",
        edits=[
            ("flops = 2 * result.num_elements * contracted", "flops = result.num_elements"),
            ("return 4 * flops if is_complex", "return 2 * flops if is_complex"),
            ("return shape.elements[0] if", "return shape.elements[-1] if"),
            ("basis=Basis.BOUNDED, model=", "basis=Basis.EXACT, model="),
            ("return match[1] if match else result.dtype", "return result.dtype"),
            ("self.recomputed_flops * visible // dense", "self.recomputed_flops"),
            ("self.transcendentals * visible // dense", "self.transcendentals"),
        ],
    ),
    *_in(
        "flops/dot.py",
        "flops/test_dot.py",
        edits=[
            ("contracted = size_of(lhs, instruction.dot_dims.lhs_contracting)", "contracted = 1"),
            ("flops //= max(groups, 1)", "flops //= 1"),
        ],
    ),
    *_in(
        "flops/convolution.py",
        "flops/test_convolution.py",
        "flops/test_ledger.py",
        "flops/test_products_against_xla.py",
        edits=[
            ("// max(convolution.feature_groups, 1)", "// 1"),
            ("// max(convolution.batch_groups, 1)", "// 1"),
            ("features * prod(convolution.positions())", "features"),
            ("flops=count.flops // groups", "flops=count.flops"),
            ("batch = lhs == rhs == result == valid", "batch = False"),
            ("contracted = lhs == rhs == valid and result == 1", "contracted = False"),
        ],
    ),
    *_in(
        "flops/window_positions.py",
        "flops/test_convolution.py",
        "flops/test_window_positions.py",
        edits=[
            ("offset = tap * w + shift", "offset = tap + shift"),
            ("high = min(outputs - 1, ((n - 1) * b - offset) // s)", "high = outputs - 1"),
            ("low = max(0, -(offset // s))", "low = 0"),
        ],
    ),
    *_in(
        "flops/cudnn_conv.py",
        "flops/test_library_calls.py",
        edits=[
            ("x, y = result, first", "x, y = first, result"),
            ("x, y = first, second", "x, y = first, result"),
            ("sizes[features] *= sizes.pop()", "sizes.pop()"),
            ('integer("feature_group_count", 1)', 'integer("unheard_of", 1)'),
        ],
    ),
    *_in(
        "flops/gemm_calls.py",
        "flops/test_library_calls.py",
        edits=[
            ('size_of(lhs, integers(dims, "lhs_contracting_dimensions"))', "1"),
            ("flops //= max(instruction.operands[2]", "flops *= max(instruction.operands[2]"),
            ("size_of(lhs, (-1,))", "size_of(lhs, (-2,))"),
        ],
    ),
    *_in(
        "flops/attention.py",
        "flops/test_attention.py",
        edits=[
            ("forward = rows * (self.wide + self.deep)", "forward = rows * 2 * self.wide"),
            ("per_pair = 2 * forward + repeated", "per_pair = 2 * forward"),
            ("repeated = rows * self.wide if", "repeated = rows * self.deep if"),
            ("rows = 2 * self.batch * self.heads", "rows = 2 * self.batch"),
            ("Basis.BOUNDED if mask.padded else", "Basis.MODELLED if mask.padded else"),
            ("rows // 2 * pairs", "rows * pairs"),
            ("shift = keys - queries if mask.at_the_end else 0", "shift = 0"),
            ("shift + mask.right + 1, keys", "shift + mask.right, keys"),
            ("shift - mask.left, keys", "shift - mask.left + 1, keys"),
            ("rising * (rising - 1) // 2", "rising * (rising + 1) // 2"),
        ],
    ),
    *_in(
        "flops/cudnn_attention.py",
        "flops/test_library_calls.py",
        edits=[
            ("keys *= _pages(instruction)", "keys *= 1"),
            ("_GRADIENT_OPERAND = 4", "_GRADIENT_OPERAND = 0"),
            ("left=window - 1 if window > 0", "left=window if window > 0"),
            ('causal = "CAUSAL" in kind or', "causal ="),
            ('padded=packed or "PADDING" in kind', "padded=packed"),
            ("repeats_scores=not kept", "repeats_scores=True"),
        ],
    ),
    *_in(
        "flops/transformer_engine.py",
        "flops/test_transformer_engine.py",
        edits=[
            ("_PADDED = (1, 3, 5)", "_PADDED = (1,)"),
            ("_CAUSAL = (2, 3, 4, 5)", "_CAUSAL = (2, 3)"),
            ("_BOTTOM_RIGHT = (4, 5)", "_BOTTOM_RIGHT = ()"),
            ("left=left if left >= 0 else None", "left=None"),
            ("or segments > 1", ""),
            ("2 * result.num_elements * contracted", "2 * result.num_elements"),
            ("(groups if contracted else 1)", "1"),
            ('backward = "backward" in', 'backward = "sideways" in'),
        ],
    ),
    *_in(
        "flops/aiter.py",
        "flops/test_library_calls.py",
        edits=[
            ("first = 1 if backward else 0", "first = 0"),
            ("at_the_end=True", "at_the_end=False"),
            ("return 2 if four_bit", "return 1 if four_bit"),
            ("Mask(padded=True) if packed", "Mask() if packed"),
        ],
    ),
    *_in(
        "flops/onednn.py",
        "flops/test_library_calls.py",
        edits=[('-2 if config.get("transpose_a") is True else -1', "-1")],
    ),
    *_in(
        "flops/kernel_estimate.py",
        "flops/test_library_calls.py",
        edits=[('estimate.get("flops", "")', 'estimate.get("bytes_accessed", "")')],
    ),
    *_in(
        "flops/fourier.py",
        "flops/test_fourier.py",
        edits=[
            ("2.5 if real else 5.0", "5.0"),
            ("log2(points)", "int(log2(points))"),
            ('if kind == "RFFT" else instruction.shape', "if True else instruction.shape"),
        ],
    ),
    *_in(
        "flops/linear_algebra.py",
        "flops/test_linear_algebra.py",
        edits=[
            ('"potrf n^3/3", Fraction(n**3, 3)', '"potrf n^3/3", Fraction(n**3, 2)'),
            ("long * short**2 - Fraction(short**3, 3)", "Fraction(long * short**2)"),
            ("2 * long * short**2 - Fraction(2 * short**3, 3)", "Fraction(long * short**2)"),
            ("- 2 * (m + n) * k**2", "- 2 * m * k**2"),
            ("kept = columns if left else rows", "kept = columns"),
            ("Fraction(9 * n**3)", "Fraction(4 * n**3)"),
            ("14 * long * short**2 + 8 * short**3", "14 * long * short**2"),
            ("Fraction(25 * n**3)", "Fraction(10 * n**3)"),
            ("prod(batch) * flops", "flops"),
            ("a.dimensions[-1] * b.num_elements", "2 * a.dimensions[-1] * b.num_elements"),
            ("flops * 4 if is_complex(dtype) else flops", "flops"),
            ("3 * diagonal.num_elements + 5", "3 * diagonal.num_elements + 4"),
        ],
    ),
    *_in(
        "applications.py",
        "test_applications.py",
        "flops/test_elementwise.py",
        edits=[
            ("operands[0].shape.num_elements - result.num_elements", "result.num_elements"),
            ("covering or (taps - 1) * _first(", "covering or taps * _first("),
            ('source if key == "scatter" else (taps - 1) * source', "source"),
            ("operands[len(operands) // 2 + 1]", "operands[0]"),
            ("(scan.dimensions or (0,))[0]", "0"),
        ],
    ),
    *_in(
        "flops/elementwise.py",
        "flops/test_elementwise.py",
        edits=[
            ("0 if function else elements", "elements"),
            ("transcendentals=elements if function else 0", "transcendentals=0"),
            ("max(0, length - 1).bit_length()", "length.bit_length()"),
            ("max(1, (kept - 1).bit_length())", "1"),
            ("flops += each * cost[0]", "flops += each"),
            ("transcendentals += each * cost[1]", "transcendentals += each"),
            ("sum(part.num_elements for part in parts)", "parts[-1].num_elements"),
            ("skip=applied", "skip=frozenset()"),
            ('return unknown(Kind.OTHER, f"no rule', 'return None  # (f"no rule'),
        ],
    ),
    *_in(
        "flops/normalization.py",
        "flops/test_elementwise.py",
        edits=[
            ("_NORM_FORWARD = 7", "_NORM_FORWARD = 8"),
            ("_NORM_BACKWARD = 13", "_NORM_BACKWARD = 7"),
            ("_SOFTMAX_FORWARD = 4", "_SOFTMAX_FORWARD = 3"),
        ],
    ),
    *_in(
        "multiplicity.py",
        "flops/test_ledger.py",
        "test_multiplicity.py",
        edits=[
            ("else Times(count, count, count)", "else ONCE"),
            ("return Times(low, trip.count, trip.count) + more", "return ONCE"),
            ("return _MAYBE", "return ONCE"),
            ("else NEVER\n    if trip", "else ONCE\n    if trip"),
        ],
    ),
    *_in(
        "flops/totals.py",
        "flops/test_ledger.py",
        edits=[
            ("min(total.low for total in totals)", "max(total.low for total in totals)"),
            ("max(highs) if len(highs) == len(totals) else None", "min(highs)"),
            ("low = 0 if count.basis is Basis.BOUNDED else number", "low = number"),
            ("_UNKNOWN = FlopTotal(0, None, 0)", "_UNKNOWN = FlopTotal(0, 0, 0)"),
            ("sums[kind] + total if kind in sums", "total if kind in sums"),
        ],
    ),
    *_in(
        "flops/ledger.py",
        "flops/test_ledger.py",
        edits=[
            ("row.count.without_masked_pairs()", "row.count"),
            ("return self.count.recomputed_flops", "return 0"),
            ("return shared_by_groups(count, groups)", "return count"),
        ],
    ),
    *_in(
        "step_parts.py",
        "flops/test_ledger.py",
        edits=[
            ('component in first.split("/")', "True"),
            ("return any(name in instruction.computation for name in left)", "return False"),
        ],
    ),
    *_in(
        "flops/registered.py",
        "flops/test_registered_models.py",
        edits=[
            ("for model in reversed(_MODELS)", "for model in _MODELS"),
            ("if number < 0 or not isfinite(number)", "if not isfinite(number)"),
            ("if not fnmatchcase(target, model.target)", "if target != model.target"),
        ],
    ),
)


@contextmanager
def _copies(count: int) -> Iterator[list[Path]]:
    """So many copies of the package, laid out as it is installed."""
    with tempfile.TemporaryDirectory() as folder:
        copies = []
        ignore = shutil.ignore_patterns("__pycache__")
        for number in range(count):
            package = Path(folder) / str(number) / "hloscope"
            shutil.copytree(ROOT / "hloscope", package, ignore=ignore)
            for name in ("passes", "models", "kernels"):
                shutil.copytree(ROOT / name, package / name, ignore=ignore)
            # Checked by their contents, or an edit within one second would not be seen.
            mode = py_compile.PycInvalidationMode.CHECKED_HASH
            compileall.compile_dir(package, quiet=1, invalidation_mode=mode)
            copies.append(package.parent)
        yield copies


def passes(site: Path, tests: Sequence[str]) -> bool:
    """Whether the tests pass against the package in a folder.

    Raises:
        RuntimeError: They did not run at all.
    """
    files = [str(ROOT / "tests" / "passes" / test) for test in tests]
    options = ["-x", "-q", "-m", "not slow", "-p", "no:cacheprovider"]
    # Without -P the repository's own folder would come before the copy.
    command = [sys.executable, "-P", "-m", "pytest", *options, *files]
    environment = os.environ | {"PYTHONPATH": str(site), "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    if done.returncode not in (0, 1, 2):
        raise RuntimeError(f"pytest ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.returncode == 0


def survives(site: Path, mutant: Mutant) -> bool:
    """Whether all tests pass although the rule is broken.

    Raises:
        ValueError: The edit does not fit the file.
    """
    path = site / "hloscope" / "passes" / mutant.file
    text = path.read_text(encoding="utf-8")
    if text.count(mutant.old) < 1:
        raise ValueError(f"{mutant.file} does not hold {mutant.old!r}")
    path.write_text(text.replace(mutant.old, mutant.new), encoding="utf-8")
    try:
        return passes(site, mutant.tests)
    finally:
        path.write_text(text, encoding="utf-8")


def surviving(mutants: Sequence[Mutant], jobs: int) -> list[Mutant]:
    """The mutants that no test notices.

    Raises:
        RuntimeError: The tests fail already without an edit.
        ValueError: An edit does not fit its file.
    """
    with _copies(jobs) as sites, ThreadPoolExecutor(jobs) as pool:
        every = sorted({test for mutant in mutants for test in mutant.tests})
        if not passes(sites[0], every):
            raise RuntimeError("the tests fail without any edit")

        def share(number: int) -> list[Mutant]:
            return [m for m in mutants[number::jobs] if survives(sites[number], m)]

        return [mutant for found in pool.map(share, range(jobs)) for mutant in found]


def main() -> int:
    """Print what survived; the exit status says whether anything did."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--only", default="", help="part of a file's name")
    arguments = parser.parse_args()
    chosen = [mutant for mutant in MUTANTS if arguments.only in mutant.file]
    began = time.monotonic()
    found = surviving(chosen, arguments.jobs)
    for mutant in found:
        print(f"survived: {mutant}")
    seconds = time.monotonic() - began
    print(f"{len(chosen) - len(found)} of {len(chosen)} broken rules noticed, {seconds:.0f} s")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
