import pytest

from hloscope.pipeline.findings import Severity
from hloscope.pipeline.rules import Limits

SIZE = 512


def init(*, twice: bool) -> str:
    return f"""
    def init(noise):
        params = jnp.tanh(noise @ noise)
        return {{"params": params, "ema": params}} if {twice} else {{"params": params}}

    step = Step(init, (shape({SIZE}, {SIZE}),))
    """


@pytest.mark.parametrize("target", ["cpu", "h100", "v5e"])
def test_a_value_that_is_returned_twice_is_found(found_in, target):
    (finding,) = found_in("HS904", init(twice=True), target, Limits(memory_bytes=1 << 20))
    assert finding.cost.value == 4 * SIZE * SIZE
    assert finding.message.startswith(f"2 buffers hold the same f32[{SIZE},{SIZE}]")
    assert finding.site.file == "train.py"
    assert "Return the value once" in finding.fix
    assert all("(output)" in note for note in finding.notes)
    # A chip with room to spare makes it a note; of a CPU's memory nothing is known.
    assert (finding.severity is Severity.NOTE) == (target != "cpu")


@pytest.mark.parametrize("target", ["cpu", "h100", "v5e"])
def test_a_value_that_is_returned_once_is_left_alone(found_in, target):
    assert found_in("HS904", init(twice=False), target, Limits(memory_bytes=1 << 20)) == ()


def test_an_argument_that_is_returned_as_it_is_is_found(found_in):
    program = f"""
    def step(state, x):
        return {{"frozen": state["frozen"], "w": state["w"] + x.sum()}}

    step = Step(step, ({{"frozen": shape({SIZE}, {SIZE}), "w": shape(8)}}, shape(8)))
    """
    (finding,) = found_in("HS904", program, limits=Limits(memory_bytes=1 << 20))
    assert finding.cost.value == 4 * SIZE * SIZE
    assert "donate" in finding.fix


def module(second: str) -> str:
    return f"""
    HloModule m, is_scheduled=true
    one {{
      x = f32[1024,1024] parameter(0)
      ROOT y = f32[1024,1024] transpose(x), dimensions={{1,0}}
    }}
    two {{
      u = f32[1024,1024] parameter(0)
      ROOT v = f32[1024,1024] transpose(u), dimensions={{1,0}}
    }}
    other {{
      x = f32[1024,1024] parameter(0)
      ROOT y = f32[1024,1024] reverse(x), dimensions={{1,0}}
    }}
    ENTRY e {{
      p = f32[1024,1024] parameter(0)
      a = f32[1024,1024] fusion(p), kind=kLoop, calls=one
      b = f32[1024,1024] {second}
      ROOT o = f32[1024,1024] dot(a, b), lhs_contracting_dims={{1}}, rhs_contracting_dims={{1}}
    }}
    """


@pytest.mark.parametrize(
    ("second", "found"),
    [
        ("fusion(p), kind=kLoop, calls=two", 1),
        ("fusion(p), kind=kLoop, calls=other", 0),
        ("copy(p)", 0),  # XLA copies an argument only where something must not write to it
        ('copy(p), metadata={op_name="jit(f)/copy"}', 1),  # the step asked for it
        ("copy(a)", 1),
        ("transpose(p), dimensions={1,0}", 0),  # the same, but only a fusion's body would say so
    ],
)
def test_two_are_the_same_by_how_they_are_computed(findings_of, second, found):
    limits = Limits(memory_bytes=1 << 20)
    assert len(findings_of("HS904", module(second), limits)) == found


def test_a_copy_in_another_layout_or_memory_is_not_the_same(findings_of):
    limits = Limits(memory_bytes=1 << 20)
    for layout in ("{0,1}", "{1,0:S(5)}"):
        text = module("copy(a)").replace("b = f32[1024,1024]", f"b = f32[1024,1024]{layout}")
        assert findings_of("HS904", text, limits) == ()


def test_what_is_below_the_limit_is_left_alone(findings_of):
    assert findings_of("HS904", module("copy(p)"), Limits(memory_bytes=1 << 23)) == ()


def test_two_results_of_one_fusion_are_not_taken_for_the_same(findings_of):
    text = """
    HloModule m, is_scheduled=true
    both {
      x = f32[1024,1024] parameter(0)
      y = f32[1024,1024] sine(x)
      z = f32[1024,1024] cosine(x)
      ROOT t = (f32[1024,1024], f32[1024,1024]) tuple(y, z)
    }
    ENTRY e {
      p = f32[1024,1024] parameter(0)
      f = (f32[1024,1024], f32[1024,1024]) fusion(p), kind=kLoop, calls=both
      a = f32[1024,1024] get-tuple-element(f), index=0
      b = f32[1024,1024] get-tuple-element(f), index=1
      ROOT o = f32[1024,1024] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={1}
    }
    """
    assert findings_of("HS904", text, Limits(memory_bytes=1 << 22)) == ()
