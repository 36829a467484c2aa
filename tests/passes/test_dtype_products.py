import pytest

from hloscope.ir.load import load_module
from hloscope.passes.dtype_products import DtypeProducts, PartialSums
from hloscope.passes.narrow_reductions import NarrowReductions
from hloscope.passes.promotions import Promotions
from hloscope.passes.quantization import Quantization
from hloscope.passes.wide_types import WideTypes

SPLIT = """
HloModule m
add { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT s = f32[] add(a, b) }
fused {
  p = f32[2,64,32] parameter(0)
  z = f32[] constant(0)
  r = f32[64,32] reduce(p, z), dimensions={0}, to_apply=add,
    metadata={op_name="jit(f)/NAME"}
  ROOT c = bf16[64,32] convert(r)
}
ENTRY e {
  x = bf16[64,2,512] parameter(0)
  y = bf16[2,512,32] parameter(1)
  d = f32[2,64,32] dot(x, y), lhs_batch_dims={1}, lhs_contracting_dims={2},
    rhs_batch_dims={0}, rhs_contracting_dims={1}, metadata={op_name="jit(f)/dot_general"}
  ROOT f = bf16[64,32] fusion(d), kind=kInput, calls=fused
}
"""


@pytest.mark.parametrize(
    ("name", "partial"), [("dot_general", PartialSums.XLA), ("reduce_sum", PartialSums.USER)]
)
def test_partial_sums_of_xlas_own_are_told_from_the_programs(session_of, name, partial):
    (row,) = session_of(SPLIT.replace("NAME", name)).get(DtypeProducts).rows
    assert row.partial is partial
    assert (row.written, row.result, row.accumulation) == (("bf16", "bf16"), "f32", "f32")
    assert row.row.nominal == 2 * 64 * 32 * 1024


def test_a_batched_product_that_is_used_as_it_is_has_no_partial_sums(session_of):
    text = SPLIT.replace("ROOT f = bf16[64,32] fusion(d), kind=kInput, calls=fused", "").replace(
        "d = f32", "ROOT d = f32"
    )
    (row,) = session_of(text).get(DtypeProducts).rows
    assert row.partial is PartialSums.NONE


DOT = """
HloModule m
ENTRY e {{
  x = f32[8,8] parameter(0)
  ROOT d = f32[8,8] dot(x, x), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}{more}
}}
"""


@pytest.mark.parametrize(
    ("more", "rounding"),
    [
        ("", ""),
        (", algorithm=dot_tf32_tf32_f32", "TF32"),
        (", algorithm=dot_tf32_tf32_f32_x3", "TF32 x3"),
        (", algorithm=dot_bf16_bf16_f32", "bf16"),
        (", algorithm=dot_bf16_bf16_f32_x6", "bf16 x6"),
        (", algorithm=dot_f32_f32_f32", "full"),
        (", operand_precision={highest,highest}", "full"),
        (", operand_precision={default,default}", ""),
    ],
)
def test_how_float32_is_rounded_is_said_where_the_product_says_so(session_of, more, rounding):
    (row,) = session_of(DOT.format(more=more)).get(DtypeProducts).rows
    assert row.rounding == rounding


def test_the_rounding_of_a_library_call_stands_in_its_configuration(session_of, fixtures_dir):
    text = (fixtures_dir / "compiled" / "today" / "gpu_gemm_f32.hlo").read_text()
    (row,) = session_of(text).get(DtypeProducts).rows
    assert row.rounding == ""
    asked = text.replace("ALG_UNSET", "ALG_DOT_TF32_TF32_F32")
    (row,) = session_of(asked).get(DtypeProducts).rows
    assert row.rounding == "TF32"


def test_products_of_one_type_that_are_summed_in_two_are_named(session_of):
    text = """
    HloModule m
    ENTRY e {
      x = bf16[8,8] parameter(0)
      a = bf16[8,8] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
      b = f32[8,8] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
      ROOT t = (bf16[8,8], f32[8,8]) tuple(a, b)
    }
    """
    products = session_of(text).get(DtypeProducts)
    assert products.mixed_accumulation == {("bf16", "bf16"): ("bf16", "f32")}


def test_float64_and_int64_are_summed_by_line(session_of):
    text = """
    HloModule m
    ENTRY e {
      x = f32[100] parameter(0)
      w = f64[100] convert(x), metadata={op_name="f" source_file="m.py" source_line=3}
      n = f64[100] negate(w), metadata={op_name="f" source_file="m.py" source_line=3}
      a = f64[100] abs(n), metadata={op_name="f" source_file="m.py" source_line=4}
      i = s64[50] iota(), iota_dimension=0
      ROOT t = (f64[100], s64[50]) tuple(a, i)
    }
    """
    wide = session_of(text).get(WideTypes)
    assert [(line.dtype, line.bytes) for line in wide.float64] == [("f64", 1600), ("f64", 800)]
    assert [[i.name for i in line.enters] for line in wide.float64] == [["w"], []]
    assert [(line.dtype, line.bytes) for line in wide.int64] == [("s64", 400)]
    assert wide.computed_bytes == 3 * 800 + 400
    assert (wide.float64_arguments, wide.floating_arguments) == (0, 400)


PROMOTED = """
HloModule m
ENTRY e {{
  x = bf16[100] parameter(0)
  s = f32[] parameter(1), metadata={{op_name="rate"}}
  b = f32[100] broadcast(s), dimensions={{}}
  w = f32[100] convert(x), metadata={{op_name="jit(f)/convert_element_type"
    source_file="m.py" source_line=3}}
  ROOT y = f32[100] multiply(w, b), metadata={{op_name="jit(f)/mul" source_file="m.py"
    source_line={line}}}
}}
"""


def test_an_array_that_a_wide_scalar_on_its_line_widens_is_a_promotion(session_of):
    (row,) = session_of(PROMOTED.format(line=3)).get(Promotions).rows
    assert (row.source, row.result, row.elements) == ("bf16", "f32", 100)
    assert (row.operation, row.partner) == ("multiply", "number rate")


def test_a_conversion_on_a_line_of_its_own_is_none(session_of):
    assert session_of(PROMOTED.format(line=4)).get(Promotions).rows == []


def test_a_strong_scalar_promotes_and_a_python_number_does_not(session_of):
    jax = pytest.importorskip("jax")
    import jax.numpy as jnp

    x = jax.ShapeDtypeStruct((64, 64), "float16")
    strong = jax.jit(lambda x: jnp.tanh(x * jnp.float32(3))).lower(x).compile().as_text()
    weak = jax.jit(lambda x: jnp.tanh(x * 3.0)).lower(x).compile().as_text()
    (row,) = session_of(strong).get(Promotions).rows
    assert (row.source, row.result, row.elements) == ("f16", "f32", 64 * 64)
    assert session_of(weak).get(Promotions).rows == []


def test_sums_in_sixteen_bits_are_listed_with_their_terms(session_of):
    text = """
    HloModule m
    add { a = bf16[] parameter(0)  b = bf16[] parameter(1)  ROOT s = bf16[] add(a, b) }
    most { a = bf16[] parameter(0)  b = bf16[] parameter(1)  ROOT s = bf16[] maximum(a, b) }
    ENTRY e {
      x = bf16[512,8] parameter(0)
      z = bf16[] constant(0)
      r = bf16[8] reduce(x, z), dimensions={0}, to_apply=add
      m = bf16[8] reduce(x, z), dimensions={0}, to_apply=most
      ROOT t = (bf16[8], bf16[8]) tuple(r, m)
    }
    """
    (row,) = session_of(text).get(NarrowReductions).rows
    assert (row.instruction.name, row.dtype, row.terms) == ("r", "bf16", 512)


def test_weights_kept_in_eight_bits_and_widened_inside_the_product_waste_nothing(session_of):
    text = """
    HloModule m
    fused {
      x = bf16[64,64] parameter(0)
      q = s8[64,64] parameter(1)
      w = bf16[64,64] convert(q), metadata={op_name="jit(f)/convert_element_type"}
      ROOT d = bf16[64,64] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
    }
    ENTRY e {
      x = bf16[64,64] parameter(0)
      q = s8[64,64] parameter(1)
      ROOT f = bf16[64,64] fusion(x, q), kind=kCustom, calls=fused
    }
    """
    found = session_of(text).get(Quantization)
    assert (len(found.out_of), len(found.products), len(found.widened)) == (1, 0, 1)
    assert (found.convert_bytes, found.wasted_bytes, found.stored_bytes) == (4096, 0, 4096)
    ahead = text.replace("fused {", "unused {").replace(
        "ROOT f = bf16[64,64] fusion(x, q), kind=kCustom, calls=fused",
        'w = bf16[64,64] convert(q), metadata={op_name="jit(f)/convert_element_type"}\n'
        "ROOT d = bf16[64,64] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
    )
    # Read in one byte, written in two.
    assert session_of(ahead).get(Quantization).wasted_bytes == 64 * 64 * (1 + 2)


def test_fp8_products_of_a_recorded_loop_are_counted_with_their_runs(session_of, fixtures_dir):
    module = load_module(str(fixtures_dir / "hlo" / "fp8_gemm_loop.hlo")).module
    found = session_of(module).get(Quantization)
    assert found.flops == 20 * 2 * 32768 * 8192 * 1024
    assert (found.convert_bytes, found.flops_per_byte) == (0, None)
    assert found.stored_bytes == (32768 + 8192) * 1024
