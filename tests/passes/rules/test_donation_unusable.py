import pytest

from hloscope.errors import Unavailable
from hloscope.pipeline.findings import Severity

LOSS = """
def loss(logits, labels):
    return ((logits - labels) ** 2).mean()

step = Step(loss, (shape(512, 512), shape(512, 512)), donate={donate}, roles={roles})
"""


def test_a_donated_argument_that_no_result_resembles_is_found(found_in):
    (finding,) = found_in("HS702", LOSS.format(donate="(0,)", roles="{}"))
    assert finding.message == ("logits was donated, but no result could use it: no matching output")
    assert finding.notes == ("logits: no result is f32[512,512]",)
    assert (finding.site.leaf, finding.cost.value) == ("logits", 512 * 512 * 4)
    assert finding.severity is Severity.WARNING


def test_what_is_not_donated_is_not_found(found_in):
    assert found_in("HS702", LOSS.format(donate="()", roles="{}")) == ()


def test_a_donated_argument_that_a_result_takes_is_not_found(found_in):
    code = "step = Step(lambda w, g: w - 0.1 * g, (shape(512, 512), shape(512, 512)), donate=(0,))"
    assert found_in("HS702", code) == ()


def test_two_donated_for_one_result_leave_one_unused(found_in):
    code = """
    def add(state, spare):
        return state + spare

    step = Step(add, (shape(64, 64), shape(64, 64)), donate=(0, 1))
    """
    (finding,) = found_in("HS702", code)
    assert finding.site.leaf == "spare"
    assert "another leaf took the output" in finding.message


def test_a_donated_leaf_that_the_step_never_reads_is_a_note(found_in):
    code = """
    def step_of(state):
        return {"w": state["w"] * 2}

    step = Step(step_of, ({"w": shape(64), "stale": shape(64)},), donate=(0,))
    """
    (finding,) = found_in("HS702", code)
    assert (finding.severity, finding.site.leaf) == (Severity.NOTE, "state['stale']")


def test_a_state_leaf_whose_new_value_is_known_is_left_to_hs701(found_in):
    code = """
    def step_of(state):
        return {"mu": state["mu"].astype(jnp.float32) * 0.9}

    step = Step(step_of, ({"mu": shape(64, dtype="bfloat16")},), donate=(0,))
    """
    assert found_in("HS702", code) == ()
    (finding,) = found_in("HS701", code)
    assert "dtype differs" in finding.message


def test_a_dump_that_tells_of_no_donation_is_not_checked(findings_of):
    text = "HloModule m\nENTRY e { p = f32[4] parameter(0)\n ROOT n = f32[4] negate(p) }"
    with pytest.raises(Unavailable, match="whether an argument was donated"):
        findings_of("HS702", text)


def test_a_dump_with_a_donor_left_is_found(fixtures_dir, findings_of):
    text = (fixtures_dir / "compiled" / "today" / "gpu_dtype_donate.hlo").read_text()
    (finding,) = findings_of("HS702", text)
    assert finding.site.leaf == "a"
    assert (finding.site.file, finding.site.line) == ("gpu4.py", 41)
    assert finding.cost.value == 1024 * 1024 * 4
