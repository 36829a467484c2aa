import pytest

from hloscope.ir.load import load_module
from hloscope.pipeline.findings import Severity
from hloscope.pipeline.rules import Limits

FAKE = """
def f(x, w):
    qx = x.astype(jnp.float8_e4m3fn).astype(jnp.bfloat16)
    qw = w.astype(jnp.float8_e4m3fn).astype(jnp.bfloat16)
    return qx @ qw

step = Step(f, (shape(512, 512, dtype="bfloat16"), shape(512, 512, dtype="bfloat16")))
"""
REAL = """
def f(x, w):
    return jax.lax.dot(x, w, preferred_element_type=jnp.int32)

step = Step(f, (shape(512, 512, dtype="int8"), shape(512, 512, dtype="int8")))
"""
PIXELS = """
def f(image, w):
    return (image.astype(jnp.float32) / 255.0) @ w

step = Step(f, (shape(512, 512, dtype="uint8"), shape(512, 512)))
"""


def test_values_that_are_quantized_and_multiplied_wide_are_found(found_in):
    (finding,) = found_in("HS406", FAKE)
    assert finding.message == "values are quantized, and no product multiplies in eight bits"
    quantities = {quantity.name: quantity.value for quantity in finding.evidence}
    # Two arrays of 512 x 512 are each read in bfloat16.
    assert quantities["bytes of conversions"] >= 2 * 512 * 512 * 2
    assert quantities["conversions"] == 4
    assert quantities["FLOPs in eight bits"] == 0
    assert finding.severity is not Severity.NOTE


@pytest.mark.parametrize("target", ["cpu", "h100", "v5e"])
def test_products_of_bytes_without_conversions_are_left_alone(found_in, target):
    assert found_in("HS406", REAL, target, Limits(traffic_share=0.0)) == ()


def test_pixels_are_not_taken_for_quantized_numbers(found_in):
    assert found_in("HS406", PIXELS, limits=Limits(traffic_share=0.0)) == ()


def program(size):
    return f"""
    HloModule m
    ENTRY e {{
      x = bf16[{size},{size}] parameter(0)
      w = f8e4m3fn[{size},{size}] parameter(1)
      q = f8e4m3fn[{size},{size}] convert(x), metadata={{op_name="jit(f)/convert_element_type"}}
      ROOT d = f32[{size},{size}] dot(q, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
    }}
    """


def test_it_takes_five_hundred_flops_to_pay_for_a_byte(findings_of):
    # 2 n^3 FLOPs against n^2 (2 + 1) bytes: 2n/3 for each, so 750 is where it pays.
    (finding,) = findings_of("HS406", program(744))
    assert finding.message.startswith("conversions to and from eight bits outweigh")
    assert finding.evidence[-1].value == pytest.approx(2 * 744 / 3)
    assert findings_of("HS406", program(752)) == ()


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("gpu_gemm_f8.hlo", True),  # dequantized ahead of a product in bfloat16
        ("gpu_gemm_f8q.hlo", False),  # cuBLASLt multiplies in float8
        ("gpu_gemm_int8.hlo", False),
        ("tpu_int8.hlo", False),
    ],
)
def test_recorded_programs(findings_of, fixtures_dir, name, found):
    module = load_module(str(fixtures_dir / "compiled" / "today" / name)).module
    assert bool(findings_of("HS406", module)) is found


@pytest.mark.parametrize("name", ["fp8_gemm_loop.hlo", "gpu_llama31_405b_fp8_64x8_unscheduled.hlo"])
def test_recorded_programs_whose_products_outweigh_are_left_alone(findings_of, fixtures_dir, name):
    module = load_module(str(fixtures_dir / "hlo" / name)).module
    assert findings_of("HS406", module, Limits(traffic_share=0.0)) == ()
