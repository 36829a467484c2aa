import pytest

from hloscope.chips import parse_target
from hloscope.ir.jaxpr_count import JaxprCount
from hloscope.ir.load import load_module
from hloscope.passes.flops.ledger import FlopLedger
from hloscope.passes.quantization import Quantization
from hloscope.passes.roofline import Roofline
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


SCALED = """
def f(x, w, scale):
    q = jnp.clip(x / scale, -448, 448).astype(jnp.float8_e4m3fn)
    return jax.lax.dot(q, w, preferred_element_type=jnp.float32) * scale

step = Step(f, (shape(2048, 2048, dtype="bfloat16"),
                shape(2048, 2048, dtype="float8_e4m3fn"), shape()))
"""
INTEGERS = """
def f(x, w):
    scale = jnp.max(jnp.abs(x), axis=1, keepdims=True) / 127
    q = jnp.round(x / scale).astype(jnp.int8)
    y = jax.lax.dot(q, w, preferred_element_type=jnp.int32)
    return y.astype(jnp.bfloat16) * scale

step = Step(f, (shape(2048, 2048, dtype="bfloat16"), shape(2048, 2048, dtype="int8")))
"""
WEIGHTS = """
def f(x, w, scale):
    return x @ (w.astype(jnp.bfloat16) * scale)

step = Step(f, (shape(16, 2048, dtype="bfloat16"), shape(2048, 2048, dtype="int8"),
                shape(1, 2048, dtype="bfloat16")))
"""


def test_operands_that_xla_widens_for_a_cpu_are_a_note_that_says_so(found_in):
    (finding,) = found_in("HS406", SCALED)
    assert finding.severity is Severity.NOTE
    assert any("XLA widened them for this device" in note for note in finding.notes)
    assert finding.fix.startswith("Compile for the chip")


@pytest.mark.parametrize("code", [SCALED, INTEGERS])
def test_a_chip_that_multiplies_them_in_eight_bits_gains(found_in, code):
    assert found_in("HS406", code, "h100") == ()


def test_integers_on_a_tpu_gain(found_in):
    assert found_in("HS406", INTEGERS, "v5e") == ()


BOTH = """
def f(x, w):
    narrow = [a.astype(jnp.float8_e4m3fn) for a in (x, w)]
    return jax.lax.dot(*narrow, preferred_element_type=jnp.bfloat16)

step = Step(f, (shape(512, 512, dtype="bfloat16"), shape(512, 512, dtype="bfloat16")))
"""


def test_a_tpu_without_a_unit_for_float8_gains_nothing(found_in):
    # The module's product has float8 operands: the chip widens them inside it.
    (finding,) = found_in("HS406", BOTH, "v5e")
    assert finding.message == "values are quantized, and no product multiplies in eight bits"
    assert "1 product of quantized operands after widening" in finding.notes
    assert finding.fix.startswith("Compile for the chip")
    # With a matrix that is kept in float8 memory is saved.
    assert found_in("HS406", SCALED, "v5e", Limits(traffic_share=0.0)) == ()


TRAINED = """
from flax import nnx
from hloscope.models.quantization import quantize

class Model(nnx.Module):
    def __init__(self):
        self.layers = nnx.List([nnx.Linear(512, 256, dtype=jnp.bfloat16, rngs=nnx.Rngs(0))])

graphdef, params = nnx.split(nnx.eval_shape(lambda: quantize(Model(), "fp8")))

def f(params, rows):
    def loss(params, rows):
        out = nnx.merge(graphdef, params).layers[0](rows)
        return jnp.square(out.astype(jnp.float32)).mean()

    return jax.grad(loss, argnums=(0, 1))(nnx.to_pure_dict(params), rows)

step = Step(f, (params, shape(2048, 512, dtype="bfloat16")))
"""


@pytest.mark.parametrize(
    ("target", "in_eight_bits", "unit"), [("h100", 3, "f8e4m3fn"), ("v5e", 0, "bf16")]
)
def test_a_quantized_layer_is_counted_whole_and_held_against_its_unit(
    captured, target, in_eight_bits, unit
):
    session = captured(TRAINED, target)
    product = 2 * 2048 * 512 * 256
    assert session.get(FlopLedger).total.nominal == 3 * product
    assert session.get(JaxprCount).total.nominal == 3 * product
    found = session.get(Quantization)
    assert found.flops == in_eight_bits * product
    assert (len(found.products), len(found.widened)) == (in_eight_bits, 3 - in_eight_bits)
    roofline = session.get(Roofline)
    peak = roofline.chip.peaks[unit]
    assert roofline.step.compute.nominal == pytest.approx(3 * product / peak)


def test_weights_that_a_launch_of_its_own_widens_gain_nothing(found_in):
    (finding,) = found_in("HS406", WEIGHTS, "h100")
    # Read in one byte an element, written scaled in two.
    assert finding.cost.value == 2048 * 2048 * (1 + 2)
    assert finding.severity is not Severity.NOTE
    assert finding.fix.startswith("Multiply the quantized operands themselves")


def test_a_cache_that_is_widened_where_it_is_summed_up_saves_traffic(found_in):
    code = """
    def f(q, cache, scale):
        return jnp.einsum("bhd,bkhd->bhk", q, cache.astype(jnp.bfloat16) * scale)

    step = Step(f, (shape(8, 16, 128, dtype="bfloat16"), shape(8, 256, 16, 128, dtype="int8"),
                    shape(8, 256, 16, 1, dtype="bfloat16")))
    """
    assert found_in("HS406", code, "h100", Limits(traffic_share=0.0)) == ()


def test_optimizer_state_that_is_kept_in_eight_bits_saves_memory(found_in):
    code = """
    def f(w, m8, scale, x):
        g = jax.grad(lambda w: ((x @ w) ** 2).mean())(w)
        m = 0.9 * (m8.astype(jnp.float32) * scale) + 0.1 * g
        scale = jnp.max(jnp.abs(m)) / 127
        return w - 1e-3 * m, jnp.round(m / scale).astype(jnp.int8), scale

    step = Step(f, (shape(512, 512), shape(512, 512, dtype="int8"), shape(), shape(8, 512)))
    """
    for target in ("cpu", "h100"):
        assert found_in("HS406", code, target, Limits(traffic_share=0.0)) == ()


def test_gradients_that_devices_exchange_in_eight_bits_save_bytes_on_the_wire(found_in):
    code = """
    def step(devices):
        mesh = Mesh(np.array(devices), ("data",))

        def local(w, x):
            g = jax.grad(lambda w: ((x @ w) ** 2).mean())(w)
            q = jax.lax.all_gather(jnp.round(g * 100).astype(jnp.int8), "data")
            return w - q.astype(jnp.float32).sum(0)

        f = jax.shard_map(local, mesh=mesh, in_specs=(P(), P("data")), out_specs=P(),
                          check_vma=False)
        rows = NamedSharding(mesh, P("data"))
        return Step(f, (shape(512, 512, sharding=NamedSharding(mesh, P())),
                        shape(32, 512, sharding=rows)))
    """
    assert found_in("HS406", code, "cpu:4", Limits(traffic_share=0.0)) == ()


def test_weights_that_a_tpu_widens_inside_its_product_are_left_alone(found_in):
    assert found_in("HS406", WEIGHTS, "v5e") == ()


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
    # The operands are multiplied as they are: to tell the user so would not help.
    assert finding.fix.startswith("Quantize only products of more FLOPs")
    assert finding.evidence[-1].value == pytest.approx(2 * 744 / 3)
    assert findings_of("HS406", program(752)) == ()


WIDENED = """
HloModule m
ENTRY e {
  x = bf16[64,64] parameter(0)
  q = f8e4m3fn[64,64] convert(x), metadata={op_name="jit(f)/convert_element_type"}
  w = bf16[64,64] convert(q), metadata={op_name="jit(f)/dot_general"}
  ROOT d = bf16[64,64] dot(w, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""


@pytest.mark.parametrize(
    ("target", "fix"),
    [("h100", "h100 multiplies f8e4m3fn itself"), ("a100", "Compile for the chip")],
)
def test_a_chip_that_has_the_unit_is_not_to_be_changed(findings_of, target, fix):
    (finding,) = findings_of("HS406", WIDENED, parse_target(target).chip)
    assert finding.fix.startswith(fix)


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
