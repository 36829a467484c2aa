import pytest

from hloscope.ir import parse_text
from hloscope.passes.flops.convolution import count_convolution
from hloscope.passes.flops.counts import Kind


def convolution(lhs: str, rhs: str, result: str, attributes: str):
    return parse_text(
        f"HloModule m\nENTRY e {{ a = {lhs} parameter(0)  b = {rhs} parameter(1)\n"
        f"ROOT r = {result} convolution(a, b), {attributes} }}"
    ).entry.root


def test_padding_does_no_arithmetic():
    same = convolution(
        "f32[2,8,8,3]",
        "f32[3,3,3,5]",
        "f32[2,8,8,5]",
        "window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f",
    )
    # 22 of the 24 pairs of output and tap lie inside, in each dimension.
    assert count_convolution(same).flops == 2 * 3 * 5 * 2 * 22 * 22


def test_a_tpu_matrix_product_without_spatial_dimensions_is_one():
    dot = convolution("bf16[64,32]", "bf16[32,16]", "f32[64,16]", "dim_labels=bf_io->bf")
    count = count_convolution(dot)
    assert (count.kind, count.flops) == (Kind.MATMUL, 2 * 64 * 32 * 16)


def test_a_tpu_batch_dimension_is_not_counted_squared():
    batched = convolution(
        "bf16[16,64,32]",
        "bf16[16,32,8]",
        "bf16[16,64,8]",
        "window={size=16 stride=15 lhs_dilate=16}, dim_labels=0bf_0io->0bf",
    )
    count = count_convolution(batched)
    assert (count.kind, count.flops) == (Kind.MATMUL, 2 * 16 * 64 * 32 * 8)


def test_a_contracted_spatial_dimension_makes_a_matrix_product():
    heads = convolution(
        "bf16[64,32,128]",
        "bf16[32,128,256]",
        "bf16[64,1,256]",
        "window={size=32}, dim_labels=b0f_0io->b0f",
    )
    count = count_convolution(heads)
    assert (count.kind, count.flops) == (Kind.MATMUL, 2 * 64 * 32 * 128 * 256)


@pytest.mark.parametrize(
    ("op_name", "kind"),
    [("jit(f)/conv_general_dilated", Kind.CONVOLUTION), ("jit(f)/dot_general", Kind.MATMUL)],
)
def test_a_one_by_one_window_is_what_the_program_called_it(op_name, kind):
    pointwise = convolution(
        "f32[2,8,3]",
        "f32[1,3,5]",
        "f32[2,8,5]",
        f'window={{size=1}}, dim_labels=b0f_0io->b0f, metadata={{op_name="{op_name}"}}',
    )
    assert count_convolution(pointwise).kind is kind


def test_groups_divide_the_work():
    depthwise = convolution(
        "f32[2,10,6]",
        "f32[3,1,6]",
        "f32[2,8,6]",
        "window={size=3}, dim_labels=b0f_0io->b0f, feature_group_count=6",
    )
    assert count_convolution(depthwise).flops == 2 * 1 * 6 * 2 * (8 * 3)
