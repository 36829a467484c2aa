from hloscope.ir import parse_text
from hloscope.passes.entry_slots import parameter_slots
from hloscope.passes.value_chains import changing_convert, result_chain

TEXT = """
HloModule m
f {
  a = bf16[8] parameter(0)
  g = f32[8] parameter(1)
  half = bf16[] constant(0.5)
  halves = bf16[8] broadcast(half), dimensions={}
  scaled = bf16[8] multiply(a, halves)
  wide = f32[8] convert(scaled)
  ROOT sum = f32[8] add(wide, g)
}
ENTRY e {
  mu = bf16[8] parameter(0)
  w = f32[8] parameter(1)
  new = f32[8] fusion(mu, w), kind=kLoop, calls=f
  narrow = bf16[8] convert(w)
  moved = bf16[8] copy(narrow)
  other = f32[8] negate(w)
  ROOT t = (f32[8], bf16[8], f32[8]) tuple(new, moved, other)
}
"""


def test_a_result_is_followed_through_tuples_and_copies_to_what_makes_it():
    module = parse_text(TEXT)
    assert [i.name for i in result_chain(module, (1,))] == ["t", "moved", "narrow"]


def test_a_fusion_is_entered():
    assert [i.name for i in result_chain(parse_text(TEXT), (0,))] == ["t", "new", "sum"]


def test_the_convert_of_a_scaled_parameter_inside_a_fusion_is_found():
    module = parse_text(TEXT)
    mu, _ = parameter_slots(module)
    assert changing_convert(module, mu, (0,), "f32").name == "wide"


def test_the_convert_that_makes_the_result_comes_first():
    module = parse_text(TEXT)
    _, w = parameter_slots(module)
    assert changing_convert(module, w, (1,), "bf16").name == "narrow"


def test_a_convert_that_the_result_does_not_depend_on_is_none():
    module = parse_text(TEXT)
    mu, _ = parameter_slots(module)
    assert changing_convert(module, mu, (2,), "f32") is None
