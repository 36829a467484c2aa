"""Dots and convolutions, counted here and by XLA's HloCostAnalysis."""

import math

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from hloscope.errors import HloscopeError
from hloscope.ir import Instruction, parse_modules, parse_text
from hloscope.passes.flops.convolution import count_convolution
from hloscope.passes.flops.dot import count_dot, count_ragged_dot

QUICK = settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
REAL = ["f32", "bf16", "f16", "f64", "s8", "s32", "f8e4m3fn"]


def module_of(result: str, lhs: str, rhs: str, operation: str) -> str:
    """One instruction over two parameters, as a whole module."""
    return (
        "HloModule one\n\nENTRY e {\n"
        f"  a = {lhs} parameter(0)\n  b = {rhs} parameter(1)\n"
        f"  ROOT r = {result} {operation}\n}}\n"
    )


def shape(dtype: str, sizes: list[int]) -> str:
    return f"{dtype}[{','.join(map(str, sizes))}]"


def braces(numbers: list[int]) -> str:
    return "{" + ",".join(map(str, numbers)) + "}"


@st.composite
def dots(draw: st.DrawFn) -> str:
    dtype = draw(st.sampled_from(REAL))
    groups = [
        draw(st.lists(st.integers(0, 6), max_size=2))
        for _ in ("batch", "contract", "left", "right")
    ]
    batch, contract, left, right = groups
    lhs_order = draw(st.permutations(range(len(batch + contract + left))))
    rhs_order = draw(st.permutations(range(len(batch + contract + right))))
    lhs = [(batch + contract + left)[k] for k in lhs_order]
    rhs = [(batch + contract + right)[k] for k in rhs_order]

    def where(order: list[int], first: int, count: int) -> str:
        return braces([order.index(first + k) for k in range(count)])

    b, c = len(batch), len(contract)
    kept_left = [k for k in lhs_order if k >= b + c]
    kept_right = [k for k in rhs_order if k >= b + c]
    result = (
        batch
        + [(batch + contract + left)[k] for k in kept_left]
        + [(batch + contract + right)[k] for k in kept_right]
    )
    accumulated = "s32" if dtype.startswith("s") else "f32" if dtype.startswith("f8") else dtype
    return module_of(
        shape(accumulated, result),
        shape(dtype, lhs),
        shape(dtype, rhs),
        f"dot(a, b), lhs_batch_dims={where(lhs_order, 0, b)}, "
        f"lhs_contracting_dims={where(lhs_order, b, c)}, "
        f"rhs_batch_dims={where(rhs_order, 0, b)}, "
        f"rhs_contracting_dims={where(rhs_order, b, c)}",
    )


@QUICK
@given(text=dots())
def test_dots_equal_xlas_count(xla_flops, text):
    assert count_dot(parse_text(text).entry.root).flops == xla_flops(text)


@st.composite
def convolutions(draw: st.DrawFn) -> str:
    """A convolution with everything that XLA allows, in up to three dimensions."""
    rank = draw(st.integers(0, 3))
    features = draw(st.integers(1, 3))
    feature_groups, batch_groups = draw(st.sampled_from([(1, 1), (2, 1), (3, 1), (1, 2), (1, 3)]))
    batch = draw(st.integers(1, 3)) * batch_groups
    outputs = draw(st.integers(1, 3)) * feature_groups * batch_groups
    inputs, sizes, pads, results = [], [], [], []
    strides, base, dilation, reverse = [], [], [], []
    for _ in range(rank):
        n, k = draw(st.integers(1, 9)), draw(st.integers(1, 9))
        s, b, w = (draw(st.integers(1, 4)) for _ in range(3))
        low, high = draw(st.integers(-2, 5)), draw(st.integers(-2, 5))
        padded = (n - 1) * b + 1 + low + high
        window = (k - 1) * w + 1
        assume(padded >= window)
        inputs.append(n)
        sizes.append(k)
        strides.append(s)
        base.append(b)
        dilation.append(w)
        pads.append(f"{low}_{high}")
        results.append((padded - window) // s + 1)
        reverse.append(int(draw(st.booleans())))
    spatial = "".join(map(str, range(rank)))

    def arrange(letters: str, values: list[int]) -> tuple[str, list[int]]:
        order = draw(st.permutations(range(len(letters))))
        return "".join(letters[k] for k in order), [values[k] for k in order]

    lhs_labels, lhs = arrange("bf" + spatial, [batch, features * feature_groups, *inputs])
    rhs_labels, rhs = arrange("io" + spatial, [features, outputs, *sizes])
    out_labels, out = arrange("bf" + spatial, [batch // batch_groups, outputs, *results])

    def by(values: list[int]) -> str:
        return "x".join(map(str, values))

    window = (
        f", window={{size={by(sizes)} stride={by(strides)} pad={'x'.join(pads)} "
        f"lhs_dilate={by(base)} rhs_dilate={by(dilation)} rhs_reversal={by(reverse)}}}"
        if rank
        else ""
    )
    dtype = draw(st.sampled_from(REAL))
    accumulated = "s32" if dtype.startswith("s") else "f32" if dtype.startswith("f8") else dtype
    return module_of(
        shape(accumulated, out),
        shape(dtype, lhs),
        shape(dtype, rhs),
        f"convolution(a, b){window}, dim_labels={lhs_labels}_{rhs_labels}->{out_labels}, "
        f"feature_group_count={feature_groups}, batch_group_count={batch_groups}",
    )


@QUICK
@given(text=convolutions())
def test_convolutions_equal_xlas_count(xla_flops, text):
    assert count_convolution(parse_text(text).entry.root).flops == xla_flops(text)


@pytest.mark.parametrize("batch", [0, 3])
def test_scaled_dots_equal_xlas_count(xla_flops, batch):
    lead = [batch] if batch else []
    axis = len(lead)
    dims = f"lhs_contracting_dims={{{axis + 1}}}, rhs_contracting_dims={{{axis + 1}}}"
    if batch:
        dims = f"lhs_batch_dims={{0}}, rhs_batch_dims={{0}}, {dims}"
    text = (
        "HloModule one\n\nENTRY e {\n"
        f"  a = {shape('f8e4m3fn', [*lead, 16, 64])} parameter(0)\n"
        f"  b = {shape('f8e4m3fn', [*lead, 32, 64])} parameter(1)\n"
        f"  s = {shape('f8e8m0fnu', [*lead, 16, 2])} parameter(2)\n"
        f"  t = {shape('f8e8m0fnu', [*lead, 32, 2])} parameter(3)\n"
        f"  ROOT r = {shape('f32', [*lead, 16, 32])} scaled-dot(a, b, s, t), {dims}\n}}\n"
    )
    count = count_dot(parse_text(text).entry.root)
    assert count.flops == 2 * max(batch, 1) * 16 * 32 * 64 == xla_flops(text)


def test_ragged_dots_count_each_row_once_where_xla_forgets_the_rows(xla_flops):
    text = (
        "HloModule one\n\nENTRY e {\n  a = f32[64,16] parameter(0)\n"
        "  b = f32[8,16,32] parameter(1)\n  g = s32[8] parameter(2)\n"
        "  ROOT r = f32[64,32] ragged-dot(a, b, g), lhs_contracting_dims={1}, "
        "rhs_contracting_dims={1}, lhs_ragged_dims={0}, rhs_group_dims={0}\n}\n"
    )
    assert count_ragged_dot(parse_text(text).entry.root).flops == 2 * 64 * 16 * 32
    assert xla_flops(text) == 2 * 16 * 32


def test_complex_products_count_four_times_what_xla_says(xla_flops):
    text = module_of(
        "c64[3,5]",
        "c64[3,7]",
        "c64[7,5]",
        "dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
    )
    # (a+bi)(c+di) summed: four multiplies and four adds for each of 3*5*7.
    assert count_dot(parse_text(text).entry.root).flops == 8 * 3 * 5 * 7
    assert xla_flops(text) == 2 * 3 * 5 * 7


GEOMETRY = (
    "lhs_contracting_dims",
    "rhs_contracting_dims",
    "lhs_batch_dims",
    "rhs_batch_dims",
    "window",
    "dim_labels",
    "feature_group_count",
    "batch_group_count",
)


def alone(instruction: Instruction) -> str:
    """The same instruction over parameters, with nothing else around it."""
    lhs, rhs = (str(operand.shape.without_layout()) for operand in instruction.operands[:2])
    attributes = "".join(
        f", {key}={instruction.attributes[key]}"
        for key in GEOMETRY
        if key in instruction.attributes
    )
    result = str(instruction.shape.without_layout())
    return module_of(result, lhs, rhs, f"{instruction.opcode}(a, b){attributes}")


@pytest.mark.slow
def test_every_recorded_dot_and_convolution_equals_xlas_count(fixtures_dir, xla_flops):
    counters = {"dot": count_dot, "convolution": count_convolution}
    counts: dict[str, int] = {}
    paths = [*fixtures_dir.glob("compiled/*/*.hlo"), *fixtures_dir.glob("hlo/*.hlo")]
    for path in sorted(paths):
        try:
            modules = parse_modules(path.read_text(), file=path.name)
        except HloscopeError:
            continue  # the inputs that are broken on purpose
        for module in modules:
            for instruction in module.instructions():
                counter = counters.get(instruction.opcode)
                if counter is not None and "c64" not in str(instruction.shape):
                    flops = counter(instruction).flops
                    assert flops is not None
                    counts[alone(instruction)] = flops
    different = {text: flops for text, flops in counts.items() if xla_flops(text) != flops}
    assert not different
    assert len(counts) > 150
    assert not any(math.isnan(flops) for flops in counts.values())
