import pytest

from hloscope.chips import parse_target
from hloscope.pipeline.findings import Severity
from hloscope.pipeline.rules import Limits

TARGETS = ["cpu", "h100", "v5e"]
VOCABULARY, WIDTH, TOKENS = 8192, 128, 8192


def loss(pieces: int) -> str:
    """The gradient of a loss over logits, all at once or in pieces."""
    return f"""
    def piece(head, h, labels):
        logits = h @ head
        picked = jnp.take_along_axis(logits, labels[:, None], 1)
        return (jax.nn.logsumexp(logits, axis=1) - picked[:, 0]).sum()

    def whole(head, h, labels):
        if {pieces} == 1:
            return piece(head, h, labels)
        run = jax.checkpoint(lambda total, xs: (total + piece(head, *xs), None))
        split = (h.reshape({pieces}, -1, {WIDTH}), labels.reshape({pieces}, -1))
        return jax.lax.scan(run, 0.0, split)[0]

    step = Step(
        jax.grad(whole),
        (
            shape({WIDTH}, {VOCABULARY}),
            shape({TOKENS}, {WIDTH}),
            shape({TOKENS}, dtype="int32"),
        ),
    )
    """


@pytest.mark.parametrize("target", TARGETS)
def test_logits_over_the_whole_vocabulary_are_found_with_their_line(found_in, target):
    found = found_in("HS902", loss(1), target)
    assert max(f.cost.value for f in found) == 4 * TOKENS * VOCABULARY
    assert all(f.site.file == "train.py" for f in found)
    # What half of the chip has room for is a matter of choice.
    expected = Severity.ERROR if target == "cpu" else Severity.NOTE
    assert {f.severity for f in found} == {expected}


@pytest.mark.parametrize("target", TARGETS)
def test_logits_in_pieces_are_left_alone(found_in, target):
    assert found_in("HS902", loss(64), target) == ()


def test_arguments_and_what_is_small_are_left_alone(found_in):
    assert found_in("HS902", "step = Step(lambda x: x.sum(), (shape(4096, 4096),))") == ()
    assert found_in("HS902", loss(1), limits=Limits(memory_bytes=1 << 30)) == ()


def module(array: str, more: str = "") -> str:
    return f"""
    HloModule m, is_scheduled=true
    ENTRY e {{
      p = f32[1024,1024] parameter(0), metadata={{op_name="state['w']"}}
      {array}
      {more}
      ROOT o = f32[8] custom-call(p, a), custom_call_target="use",
        metadata={{op_name="jit(f)/transpose(jvp())/g"}}
    }}
    """


@pytest.mark.parametrize(
    ("array", "said"),
    [
        ("a = bf16[1024,1024] convert(p)", "Hand the argument in as it is needed"),
        (
            'a = f32[1024,1024] custom-call(p), custom_call_target="f", '
            'metadata={op_name="jit(f)/jvp()/h"}',
            "jax.checkpoint",
        ),
        (
            "a = f32[2048,1024] all-gather(p), dimensions={0}, replica_groups={{0,1}}",
            "a piece at a time",
        ),
        ('a = f32[1024,1024] custom-call(p), custom_call_target="f"', "in pieces"),
    ],
)
def test_what_to_do_depends_on_what_the_array_is_for(findings_of, array, said):
    (finding,) = findings_of("HS902", module(array), Limits(memory_bytes=1 << 20))
    assert said in finding.fix


def test_a_copy_of_an_argument_is_found_by_its_path(findings_of):
    text = module("a = bf16[1024,1024] convert(p)")
    (finding,) = findings_of("HS902", text, Limits(memory_bytes=1 << 20))
    assert finding.site.leaf == "state['w']"
    assert "state['w']" in finding.notes[0]


def test_on_a_chip_with_room_to_spare_it_is_a_note(findings_of):
    text = module('a = f32[1024,1024] custom-call(p), custom_call_target="f"')
    limits = Limits(memory_bytes=1 << 20)
    (alone,) = findings_of("HS902", text, limits)
    (roomy,) = findings_of("HS902", text, limits, parse_target("h100").chip)
    assert (alone.severity, roomy.severity) == (Severity.ERROR, Severity.NOTE)
