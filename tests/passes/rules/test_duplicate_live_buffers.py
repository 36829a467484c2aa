import pytest

from hloscope.pipeline.rules import Limits

SIZE = 2048


def text_of(*, twice: bool) -> str:
    jax = pytest.importorskip("jax")

    def init(noise):
        params = jax.numpy.sort(noise, axis=0)
        return {"params": params, "ema": params} if twice else {"params": params}

    return jax.jit(init).lower(jax.ShapeDtypeStruct((SIZE, SIZE), "float32")).compile().as_text()


def test_a_value_that_is_returned_twice_is_found(findings_of):
    (finding,) = findings_of("HS904", text_of(twice=True), Limits(memory_bytes=1 << 22))
    assert finding.cost.value == 4 * SIZE * SIZE
    assert finding.message.startswith("2 buffers hold the same f32[2048,2048]")
    assert "sort" in finding.site.op_name
    # Of argument and two results one is there for nothing.
    share = finding.evidence[1].value
    assert share == pytest.approx(1 / 3, rel=0.01)


def test_a_value_that_is_returned_once_is_left_alone(findings_of):
    assert findings_of("HS904", text_of(twice=False), Limits(memory_bytes=1 << 22)) == ()


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
        ("copy(p)", 1),
        ("copy(a)", 1),
        ("transpose(p), dimensions={1,0}", 0),  # the same, but only a fusion's body would say so
    ],
)
def test_two_are_the_same_by_how_they_are_computed(findings_of, second, found):
    limits = Limits(memory_bytes=1 << 20)
    assert len(findings_of("HS904", module(second), limits)) == found


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
