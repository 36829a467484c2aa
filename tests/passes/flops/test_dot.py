import pytest

from hloscope.ir import parse_text
from hloscope.passes.flops.dot import count_dot, count_ragged_dot
from hloscope.pipeline.findings import Basis


def root(operands: str, result: str, operation: str):
    names = operands.split("; ")
    lines = "\n".join(f"p{n} = {shape} parameter({n})" for n, shape in enumerate(names))
    arguments = ", ".join(f"p{n}" for n in range(len(names)))
    call = operation.replace("(...)", f"({arguments})")
    return parse_text(f"HloModule m\nENTRY e {{\n{lines}\nROOT r = {result} {call}\n}}").entry.root


def test_a_batched_dot_is_two_flops_a_multiply_add():
    dot = root(
        "bf16[4,8,16]; bf16[4,16,32]",
        "f32[4,8,32]",
        "dot(...), lhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_batch_dims={0}, "
        "rhs_contracting_dims={1}",
    )
    count = count_dot(dot)
    assert (count.flops, count.basis, count.dtypes) == (
        2 * 4 * 8 * 16 * 32,
        Basis.EXACT,
        ("bf16", "bf16"),
    )


def test_a_dynamic_size_makes_the_count_an_upper_bound():
    dot = root(
        "f32[<=8,16]; f32[16,32]",
        "f32[<=8,32]",
        "dot(...), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
    )
    count = count_dot(dot)
    assert (count.flops, count.basis) == (2 * 8 * 16 * 32, Basis.BOUNDED)


def test_a_ragged_dot_meets_one_group_a_row():
    dot = root(
        "bf16[64,16]; bf16[8,16,32]; s32[8]",
        "bf16[64,32]",
        "ragged-dot(...), lhs_contracting_dims={1}, rhs_contracting_dims={1}, "
        "lhs_ragged_dims={0}, rhs_group_dims={0}",
    )
    assert count_ragged_dot(dot).flops == 2 * 64 * 16 * 32


def test_a_ragged_contraction_shares_the_sum_among_the_groups():
    dot = root(
        "bf16[16,64]; bf16[64,32]; s32[8]",
        "bf16[8,16,32]",
        "ragged-dot(...), lhs_contracting_dims={1}, rhs_contracting_dims={0}, lhs_ragged_dims={1}",
    )
    assert count_ragged_dot(dot).flops == 2 * 16 * 64 * 32


def test_a_ragged_batch_counts_every_batch_once():
    dot = root(
        "bf16[6,16,64]; bf16[6,64,32]; s32[2]",
        "bf16[6,16,32]",
        "ragged-dot(...), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, "
        "rhs_contracting_dims={1}, lhs_ragged_dims={0}",
    )
    assert count_ragged_dot(dot).flops == 2 * 6 * 16 * 64 * 32


@pytest.mark.parametrize(
    ("result", "algorithm", "expected"),
    [
        ("f32", "", "f32"),
        ("bf16", "", "bf16"),
        ("bf16", ", algorithm=dot_bf16_bf16_f32", "f32"),
        ("f32", ", algorithm=dot_bf16_bf16_f32_x3", "f32"),
        ("f32", ", algorithm=dot_tf32_tf32_f32", "f32"),
        ("f32", ", algorithm=dot_f16_f16_f16", "f16"),
        ("bf16", ", algorithm=dot_any_f8_any_f8_f32_fast_accum", "f32"),
    ],
)
def test_sums_are_kept_as_the_algorithm_says_or_else_as_the_result(result, algorithm, expected):
    dot = root(
        "bf16[8,16]; bf16[16,32]",
        f"{result}[8,32]",
        f"dot(...), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}{algorithm}",
    )
    count = count_dot(dot)
    assert count.accumulation == expected
    # An algorithm of several passes is still one product.
    assert count.flops == 2 * 8 * 16 * 32
