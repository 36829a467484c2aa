import pytest

from hloscope.passes.operand_dtypes import OperandDtypes


def written(session_of, text: str) -> tuple[str, ...]:
    (dtypes,) = session_of(text).get(OperandDtypes).by_product.values()
    return dtypes


def program(left: str, right: str, dot: str = "", more: str = "") -> str:
    return f"""
    HloModule m
    {more}
    ENTRY e {{
      x = bf16[8,8] parameter(0)
      w = f32[8,8] parameter(1)
      l = f32[8,8] {left}
      r = f32[8,8] {right}
      ROOT d = f32[8,8] dot(l, r), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}{dot}
    }}
    """


USER = ', metadata={op_name="jit(f)/convert_element_type"}'
OLD_USER = ', metadata={op_name="jit(f)/convert_element_type[new_dtype=float32 weak_type=False]"}'


def test_a_conversion_that_xla_put_there_is_looked_through(session_of):
    assert written(session_of, program("convert(x)", "convert(x)")) == ("bf16", "bf16")


@pytest.mark.parametrize("metadata", [USER, OLD_USER])
def test_a_conversion_that_the_program_asked_for_is_not(session_of, metadata):
    text = program(f"convert(x){metadata}", "convert(x)")
    assert written(session_of, text) == ("f32", "bf16")


def test_an_operand_that_was_float32_all_along_stays_so(session_of):
    assert written(session_of, program("convert(x)", "copy(w)")) == ("bf16", "f32")


def test_movement_between_the_conversion_and_the_product_changes_nothing(session_of):
    text = program("transpose(c), dimensions={1,0}", "copy(w)").replace(
        "l = f32", "c = f32[8,8] convert(x)\n l = f32"
    )
    assert written(session_of, text) == ("bf16", "f32")


FUSED = """
    widen {
      a = bf16[8,8] parameter(0)
      c = f32[8,8] convert(a)
      ROOT t = f32[8,8] transpose(c), dimensions={1,0}
    }
    product {
      p = f32[8,8] parameter(0)
      q = f32[8,8] parameter(1)
      ROOT d = f32[8,8] dot(p, q), lhs_contracting_dims={1}, rhs_contracting_dims={0}
    }
    ENTRY e {
      x = bf16[8,8] parameter(0)
      w = f32[8,8] parameter(1)
      wide = f32[8,8] fusion(x), kind=kLoop, calls=widen
      ROOT d = f32[8,8] fusion(wide, w), kind=kCustom, calls=product
    }
"""


def test_conversions_are_found_through_the_fusions_on_both_sides(session_of):
    assert written(session_of, "HloModule m\n" + FUSED) == ("bf16", "f32")


def test_conversions_that_were_moved_out_of_a_loop_are_found(session_of):
    text = """
    HloModule m
    cond {
      p = (s32[], f32[8,8], f32[8,8]) parameter(0)
      i = s32[] get-tuple-element(p), index=0
      n = s32[] constant(3)
      ROOT go = pred[] compare(i, n), direction=LT
    }
    body {
      p = (s32[], f32[8,8], f32[8,8]) parameter(0)
      i = s32[] get-tuple-element(p), index=0
      one = s32[] constant(1)
      next = s32[] add(i, one)
      w = f32[8,8] get-tuple-element(p), index=1
      h = f32[8,8] get-tuple-element(p), index=2
      d = f32[8,8] dot(w, h), lhs_contracting_dims={1}, rhs_contracting_dims={0}
      ROOT t = (s32[], f32[8,8], f32[8,8]) tuple(next, w, d)
    }
    ENTRY e {
      zero = s32[] constant(0)
      x = bf16[8,8] parameter(0)
      wide = f32[8,8] convert(x)
      init = (s32[], f32[8,8], f32[8,8]) tuple(zero, wide, wide)
      ROOT l = (s32[], f32[8,8], f32[8,8]) while(init), condition=cond, body=body
    }
    """
    # The weights pass through untouched; the state is a new float32 sum each time.
    assert written(session_of, text) == ("bf16", "f32")


@pytest.mark.parametrize(
    ("algorithm", "expected"),
    [
        ("dot_bf16_bf16_f32", "bf16"),
        ("dot_f16_f16_f16", "f16"),
        ("dot_bf16_bf16_f32_x3", "f32"),
        ("dot_tf32_tf32_f32", "f32"),
        ("dot_f32_f32_f32", "f32"),
    ],
)
def test_an_algorithm_that_rounds_its_operands_decides(session_of, algorithm, expected):
    text = program("copy(w)", "copy(w)", f", algorithm={algorithm}")
    assert written(session_of, text) == (expected, expected)


def test_a_library_calls_algorithm_decides_as_well(session_of):
    text = """
    HloModule m
    ENTRY e {
      w = f32[8,8] parameter(0)
      ROOT d = (f32[8,8], s8[64]) custom-call(w, w), custom_call_target="__cublas$lt$matmul",
        backend_config={"gemm_backend_config":{"dot_dimension_numbers":
        {"lhs_contracting_dimensions":["1"],"rhs_contracting_dimensions":["0"]},
        "precision_config":{"algorithm":"ALG_DOT_BF16_BF16_F32"}}}
    }
    """
    assert written(session_of, text) == ("bf16", "bf16")


def test_a_widening_from_an_integer_is_a_float32_operand(session_of):
    text = program("convert(n)", "copy(w)").replace("l = f32", "n = s8[8,8] parameter(2)\n l = f32")
    assert written(session_of, text) == ("f32", "f32")


@pytest.mark.parametrize(
    ("precision", "expected"),
    [
        ("", ("bf16", "bf16")),
        (", operand_precision={default,default}", ("bf16", "bf16")),
        (", operand_precision={highest,highest}", ("f32", "bf16")),
    ],
)
def test_a_tpu_product_of_float32_with_bfloat16_is_one_in_bfloat16(session_of, precision, expected):
    text = f"""
    HloModule m
    ENTRY e {{
      a = f32[64,32] parameter(0)
      b = bf16[32,16] parameter(1)
      ROOT c = bf16[64,16] convolution(a, b), dim_labels=bf_io->bf{precision}
    }}
    """
    assert written(session_of, text) == expected
