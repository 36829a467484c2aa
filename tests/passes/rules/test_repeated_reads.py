from hloscope.pipeline.findings import Severity, Unit
from hloscope.pipeline.rules import Limits

ANY_SIZE = Limits(reread_bytes=1)

LAYERS = """
def layer(x, p):
    return jnp.tanh(x @ p["w"] + p["b"])

def loss(params, x):
    for n, p in enumerate(params):
        with jax.named_scope(f"layer_{n}"):
            x = layer(x, p)
    return (x.astype(jnp.float32) ** 2).mean()

def of(*sizes):
    return shape(*sizes, dtype="bfloat16")

params = [{"w": of(512, 512), BIAS} for _ in range(2)]
step = Step(jax.grad(loss), (params, of(2048, 512)))
"""
BIASES = LAYERS.replace("BIAS", '"b": of(512)')
NO_BIASES = LAYERS.replace('"w": of(512, 512), BIAS', '"w": of(512, 512)').replace(' + p["b"]', "")


def test_gradients_of_biases_are_found_on_their_line_with_their_scopes(found_in):
    (finding,) = found_in("HS510", BIASES, "h100", ANY_SIZE)
    assert finding.cost.value == 2 * 2048 * 512 * 2
    assert finding.cost.unit is Unit.BYTES
    assert (finding.evidence[2].name, finding.evidence[2].value) == ("launches", 2)
    assert finding.severity is not Severity.ERROR
    assert (finding.site.file, finding.site.line is not None) == ("train.py", True)
    assert any(all(f"layer_{n}" in note for n in range(2)) for note in finding.notes)
    assert "biases" in finding.fix


def test_a_tpu_sums_in_the_pass_that_writes(found_in):
    assert found_in("HS510", BIASES, "v5e", ANY_SIZE) == ()


def test_layers_without_biases_and_what_is_below_the_limit_are_left_alone(found_in):
    assert found_in("HS510", NO_BIASES, "h100", ANY_SIZE) == ()
    assert found_in("HS510", BIASES, "h100") == ()


SUMS = """
HloModule m, is_scheduled=true
add { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT s = f32[] add(a, b) }
sum { x = f32[1024,64] parameter(0)  z = f32[] constant(0)
      ROOT r = f32[64] reduce(x, z), dimensions={0}, to_apply=add }
square { x = f32[1024,64] parameter(0)  y = f32[1024,64] multiply(x, x)  z = f32[] constant(0)
         ROOT r = f32[64] reduce(y, z), dimensions={0}, to_apply=add }
spread { x = f32[1024,64] parameter(0)  m = f32[64] parameter(1)
         b = f32[1024,64] broadcast(m), dimensions={1}
         d = f32[1024,64] subtract(x, b)  z = f32[] constant(0)
         ROOT r = f32[64] reduce(d, z), dimensions={0}, to_apply=add }
half { x = f32[1024,64] parameter(0)  p = f32[512,64] slice(x), slice={[0:512], [0:64]}
       z = f32[] constant(0)  ROOT r = f32[64] reduce(p, z), dimensions={0}, to_apply=add }
ENTRY e {
  x = f32[1024,64] parameter(0)
  BODY
}
"""
WHOLE = 1024 * 64 * 4
FIRST = "first = f32[64] fusion(x), kind=kInput, calls=sum"


def found(findings_of, body, program=SUMS):
    return findings_of("HS510", program.replace("BODY", body), ANY_SIZE)


def test_two_sums_of_one_array_could_be_one_pass(findings_of):
    body = f"""{FIRST}
      second = f32[64] fusion(x), kind=kInput, calls=square
      ROOT t = (f32[64], f32[64]) tuple(first, second)"""
    (finding,) = found(findings_of, body)
    assert finding.cost.value == WHOLE
    assert finding.evidence[2].value == 1
    assert "first reads" in finding.notes[0] or "second reads" in finding.notes[0]


def test_maxima_are_called_so_and_have_nothing_to_do_with_biases(findings_of):
    body = """y = f32[1024,64] tanh(x)
      first = f32[64] fusion(y), kind=kInput, calls=sum
      ROOT t = (f32[1024,64], f32[64]) tuple(y, first)"""
    (finding,) = found(findings_of, body, SUMS.replace("add(a, b)", "maximum(a, b)"))
    assert finding.message == "a maximum reads an array again that another pass has at hand"
    assert finding.notes[0].startswith("largest: first takes the largest of f32[1024,64]")
    assert "scale of a quantized array" in finding.fix


def test_a_sum_that_waits_for_the_other_cannot(findings_of):
    body = f"""{FIRST}
      ROOT second = f32[64] fusion(x, first), kind=kInput, calls=spread"""
    assert found(findings_of, body) == ()


def test_a_sum_of_what_was_just_written_reads_it_again(findings_of):
    body = """y = f32[1024,64] tanh(x)
      b = f32[1024,64] bitcast(y)
      first = f32[64] fusion(b), kind=kInput, calls=sum
      ROOT t = (f32[1024,64], f32[64]) tuple(y, first)"""
    (finding,) = found(findings_of, body)
    assert finding.cost.value == WHOLE
    assert "y writes" in finding.notes[0]
    # What needs the mean of the array first has to come again.
    later = body.replace(
        "ROOT t = (f32[1024,64], f32[64]) tuple(y, first)",
        """second = f32[64] fusion(b, first), kind=kInput, calls=spread
      ROOT t = (f32[1024,64], f32[64]) tuple(y, second)""",
    )
    (finding,) = found(findings_of, later)
    assert finding.cost.value == WHOLE


def test_a_part_is_not_the_array(findings_of):
    body = f"""{FIRST}
      second = f32[64] fusion(x), kind=kInput, calls=half
      ROOT t = (f32[64], f32[64]) tuple(first, second)"""
    halved = SUMS.replace("slice={[0:512], [0:64]}", "slice={[0:256], [0:64]}")
    halved = halved.replace("p = f32[512,64]", "p = f32[256,64]")
    assert found(findings_of, body, halved) == ()


def test_products_read_for_themselves(findings_of):
    body = f"""{FIRST}
      d = f32[64,64] dot(x, x), lhs_contracting_dims={{0}}, rhs_contracting_dims={{0}}
      ROOT t = (f32[64], f32[64,64]) tuple(first, d)"""
    assert found(findings_of, body) == ()
