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


# A batch that is donated for nothing, beside state; each leaf is told by one rule.
BESIDE_STATE = """
def step(devices):
    rows = NamedSharding(Mesh(np.array(devices), ("x",)), P("x"))

    def train(state, cache, batch):
        new = state["w"] * 0.9 + batch["image"].sum()
        longer = jax.lax.dynamic_update_slice(cache["k"], batch["image"][:8], (0, 0))
        return {"w": new, "mu": state["mu"].astype(jnp.float32) * 0.9}, {"k": longer}

    def rowed(*sizes, dtype="float32"):
        return shape(*sizes, dtype=dtype, sharding=rows)

    state = {"w": rowed(512, 256), "mu": rowed(512, 128, dtype="bfloat16"), "old": rowed(64)}
    batch = {"image": rowed(64, 8192), "label": rowed(64)}
    return Step(train, (state, {"k": rowed(8192, 8192)}, batch), donate=(0, 2))
"""


@pytest.mark.parametrize("target", ["cpu", "h100", "v5e:2x4"])
def test_each_leaf_is_told_by_one_rule(captured, told, target):
    session = captured(BESIDE_STATE, target)
    unusable, unread = told("HS702", session)
    assert (unusable.site.leaf, unusable.severity) == ("batch['image']", Severity.WARNING)
    assert unusable.fix.startswith("Leave batch out of what jax.jit is asked to donate")
    assert (unread.site.leaf, unread.severity) == ("batch['label']", Severity.NOTE)
    assert [finding.site.leaf for finding in told("HS701", session)] == [
        "state['mu']",
        "state['old']",
    ]
    (missed,) = told("HS704", session)
    assert missed.site.leaf == "cache['k']"
    assert missed.cost.value == 8192 * 8192 * 4 // (8 if target == "v5e:2x4" else 1)


def test_a_dump_that_tells_of_no_donation_is_not_checked(findings_of):
    text = "HloModule m\nENTRY e { p = f32[4] parameter(0)\n ROOT n = f32[4] negate(p) }"
    with pytest.raises(Unavailable, match="whether an argument was donated"):
        findings_of("HS702", text)


def test_a_donor_of_a_dump_that_a_result_resembles_is_state(fixtures_dir, findings_of):
    text = (fixtures_dir / "compiled" / "today" / "gpu_dtype_donate.hlo").read_text()
    assert findings_of("HS702", text) == ()
    (finding,) = findings_of("HS701", text)
    assert finding.site.leaf == "a"
    assert (finding.site.file, finding.site.line) == ("gpu4.py", 41)
    assert finding.cost.value == 1024 * 1024 * 4


def test_a_donor_of_a_dump_that_no_result_resembles_is_no_state(findings_of):
    text = (
        "HloModule m, buffer_donor={ (0, {}) }\nENTRY e {\n"
        '  x = f32[64] parameter(0), metadata={op_name="x"}\n'
        "  ROOT r = f32[8] slice(x), slice={[0:8]}\n}"
    )
    (finding,) = findings_of("HS702", text)
    assert finding.message == "x was donated, but no result could use it: no matching output"
