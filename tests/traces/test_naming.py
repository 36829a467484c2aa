import pytest

from hloscope.ir import parse_text
from hloscope.traces.naming import line_of, scope_of

TEXT = """
HloModule m
inner {
  p = f32[8] parameter(0)
  a = f32[8] add(p, p), metadata={op_name="jit(f)/layer/add" source_file="train.py" source_line=7}
  ROOT c = f32[8] copy(a)
}
ENTRY e {
  x = f32[8] parameter(0)
  own = f32[8] multiply(x, x), metadata={op_name="jit(f)/mul" source_file="train.py" source_line=9}
  fused = f32[8] fusion(x), kind=kLoop, calls=inner
  convert = bf16[8] convert(own)
  back = f32[8] convert(convert)
  none = f32[8] negate(x)
  ROOT t = (f32[8], f32[8], f32[8]) tuple(fused, back, none)
}
"""


@pytest.mark.parametrize(
    ("name", "line", "scope"),
    [
        ("own", "train.py:9", "jit(f)"),
        ("fused", "train.py:7", "jit(f)/layer"),
        ("back", "train.py:9", "jit(f)"),
        ("none", "", ""),
    ],
)
def test_what_xla_made_is_of_the_python_that_it_is_fused_with_or_reads(name, line, scope):
    found = {each.name: each for each in parse_text(TEXT).entry.instructions}[name]
    assert line_of(found) == line
    assert scope_of(found) == scope
