"""What makes a parsed module unfit for the passes, and that it is said where."""

import pytest

from hloscope.errors import InputError, ParseError
from hloscope.ir import parse_text
from hloscope.ir.verify import verify

HEAD = "HloModule m\n"
CALLEE = "c {\n  p = f32[] parameter(0)\n  ROOT n = f32[] negate(p)\n}\n\n"


def entry(*lines: str) -> str:
    body = "".join(f"  {line}\n" for line in ("p = f32[] parameter(0)", *lines))
    return f"ENTRY e {{\n{body}}}\n"


def test_a_sound_module_passes():
    verify(parse_text(HEAD + CALLEE + entry("ROOT r = f32[] fusion(p), kind=kLoop, calls=c")))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("r = f32[] fusion(p), kind=kLoop", "has no calls="),
        ("r = f32[] call(p)", "has no to_apply="),
        ("r = f32[] while(p), condition=c", "has no body="),
        ("r = f32[] while(p, p), condition=c, body=c", "takes one operand"),
        ("r = f32[] fusion(p), kind=kLoop, calls=nowhere", "no computation 'nowhere'"),
        ("r = f32[] fusion(p, p), kind=kLoop, calls=c", "has 2 operands"),
        ("t = (f32[]) tuple(p)\n  r = f32[] get-tuple-element(t), index=1", "index 1 is outside"),
        ("r = f32[] negate(p), a=1 b=2", "expected"),
    ],
)
def test_a_malformed_instruction_is_named_with_its_line(line, message):
    with pytest.raises(ParseError, match=message) as caught:
        verify(parse_text(HEAD + CALLEE + entry(line), file="step.hlo"))
    assert str(caught.value).startswith("step.hlo:")


def test_recursion_is_refused_instead_of_followed():
    text = (
        HEAD
        + "a {\n  p = f32[] parameter(0)\n  ROOT r = f32[] call(p), to_apply=b\n}\n"
        + "b {\n  p = f32[] parameter(0)\n  ROOT r = f32[] call(p), to_apply=a\n}\n"
        + entry("ROOT r = f32[] call(p), to_apply=a")
    )
    with pytest.raises(InputError, match="calls itself"):
        verify(parse_text(text))


def test_a_chain_of_many_calls_is_no_recursion():
    links = [CALLEE.replace("c {", "c0 {")]
    links += [
        f"c{n} {{\n  p = f32[] parameter(0)\n  ROOT r = f32[] call(p), to_apply=c{n - 1}\n}}\n"
        for n in range(1, 3000)
    ]
    verify(parse_text(HEAD + "".join(links) + entry("ROOT r = f32[] call(p), to_apply=c2999")))


def test_an_alias_of_a_parameter_that_does_not_exist_is_refused():
    head = "HloModule m, input_output_alias={ {}: (4, {}, may-alias) }\n"
    with pytest.raises(InputError, match="parameter 4"):
        verify(parse_text(head + entry()))
