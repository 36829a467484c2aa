from hloscope.pipeline.findings import Severity
from hloscope.pipeline.rules import Limits

DECODE = """
def decode(cache, token):
    keys = jax.lax.dynamic_update_slice(cache["k"], token[None], (0, 0))
    return {{"k": keys}}, keys.sum(0)

step = Step(decode, ({{"k": shape(1024, 512)}}, shape(512)), donate={donate})
"""


def test_a_cache_that_is_not_donated_is_found_as_its_own_new_value(found_in):
    (finding,) = found_in("HS704", DECODE.format(donate="()"))
    assert finding.site.leaf == "cache['k']"
    assert finding.cost.value == 1024 * 512 * 4
    assert "donate_argnames='cache'" in finding.fix
    assert finding.severity is Severity.WARNING


def test_a_donated_cache_is_quiet(found_in):
    assert found_in("HS704", DECODE.format(donate="(0,)")) == ()


def test_pairs_below_the_limit_are_quiet(found_in):
    limits = Limits(donation_bytes=4 << 20)
    assert found_in("HS704", DECODE.format(donate="()"), limits=limits) == ()


def test_state_is_left_to_hs701(found_in):
    code = "step = Step(lambda state: state * 2, (shape(1024, 512),))"
    assert found_in("HS704", code) == ()
    (finding,) = found_in("HS701", code)
    assert "not donated" in finding.message


def test_a_result_that_only_looks_like_an_argument_is_a_note(found_in):
    code = """
    def scores(queries, other):
        return {"far": queries["near"] @ other}

    step = Step(scores, ({"near": shape(512, 512)}, shape(512, 512)))
    """
    (finding,) = found_in("HS704", code)
    assert finding.severity is Severity.NOTE
    assert "could live in its buffers" in finding.message
