import pytest

from hloscope.pipeline.findings import Severity
from hloscope.pipeline.rules import Limits

# (older, newer) come back crosswise: each lives in the buffer of the other.
PING_PONG = """
def exchange(buffers, x):
    older, newer = buffers
    return newer, older * 0.5 + x

pair = (shape(512, 512), shape(512, 512))
step = Step(exchange, (pair, shape(512, 512)), donate=(0,))
"""

STRAIGHT = """
def update(older, newer, x):
    return older * 0.5 + x

step = Step(update, (shape(512, 512), shape(512, 512), shape(512, 512)), donate=(0,))
"""


def test_buffers_that_are_returned_crosswise_are_copied(found_in):
    found = found_in("HS703", PING_PONG)
    assert found
    assert {finding.cost.value % (512 * 512 * 4) for finding in found} == {0}
    assert {finding.site.leaf for finding in found} <= {"buffers[0]", "buffers[1]"}
    assert found[0].severity is Severity.WARNING


def test_the_same_update_in_place_is_quiet(found_in):
    assert found_in("HS703", STRAIGHT) == ()


def test_copies_below_the_limit_are_quiet(found_in):
    assert found_in("HS703", PING_PONG, limits=Limits(donation_bytes=64 << 20)) == ()


def test_a_cache_that_is_written_in_place_is_quiet(found_in):
    code = """
    def write(cache, x, position):
        return jax.lax.dynamic_update_slice(cache, x[None], (position, 0))

    step = Step(write, (shape(2048, 512), shape(512), shape(dtype="int32")), donate=(0,))
    """
    assert found_in("HS703", code) == ()


def test_crosswise_buffers_are_copied_on_a_gpu_as_well(found_in):
    assert found_in("HS703", PING_PONG, "h100")
    assert found_in("HS703", STRAIGHT, "h100") == ()


def test_crosswise_buffers_are_copied_on_a_tpu_as_well(found_in):
    # 128 MiB each: smaller ones are exchanged through VMEM.
    large = PING_PONG.replace("512, 512", "8192, 4096")
    found = found_in("HS703", large, "v5e:2x2")
    assert {finding.cost.value % (8192 * 4096 * 4) for finding in found} == {0}
    assert found
    assert found_in("HS703", STRAIGHT.replace("512, 512", "8192, 4096"), "v5e:2x2") == ()


# One leaf for each cause; no two are of one size, so that JAX pairs each with its own result.
EVERY_CAUSE = """
from jax.experimental.layout import Format, Layout

def update(state, x):
    g = {k: jnp.outer(x[: v.shape[0]], x[: v.shape[1]]) for k, v in state.items()}
    new = {k: v * 0.9 + g[k] for k, v in state.items()}
    y = x[:64, None] * x[None, :512]
    new["late"] = state["late"] - 0.1 * jax.grad(lambda w: ((y @ w) ** 2).mean())(state["late"])
    change = ((new["late"] - state["late"]) ** 2).sum()
    return g["shoved"] @ g["shoved"].T, new, change, state["kept"]

state = {
    "fine": shape(512, 512),
    "late": shape(512, 768),
    "kept": shape(512, 1024),
    "shoved": shape(640, 640),
    "laid": shape(768, 1024),
}

def step(devices):
    to = NamedSharding(Mesh(np.array(devices), ("x",)), P())
    given = {k: to for k in state} | {"laid": Format(Layout((1, 0)), to)}
    jitted = jax.jit(update, donate_argnums=0, out_shardings=(to, given, to, to))
    placed = {k: shape(*v.shape, sharding=to) for k, v in state.items()}
    return Step(jitted, (placed, shape(2048, sharding=to)))
"""


@pytest.mark.parametrize("target", ["cpu", "h100"])
def test_each_cause_is_found_in_one_real_step(captured, told, tmp_path, target):
    session = captured(EVERY_CAUSE, target)
    found = {finding.site.leaf: finding for finding in told("HS703", session)}
    head = "is aliased and copied all the same: "

    kept = found.pop("state['kept']")
    assert kept.message == f"state['kept'] {head}its old value is returned as well"

    late = found.pop("state['late']")
    assert late.message.endswith("its old value is still read when its buffer could be written")
    source = (tmp_path / "train.py").read_text().splitlines()
    assert "change = " in source[late.site.line - 1]
    assert f"train.py:{late.site.line}" in late.fix
    assert late.cost.value == 512 * 768 * 4

    shoved = found.pop("state['shoved']", None)
    if shoved is not None:  # where the two are not made in one go
        assert shoved.message.endswith("another result than its new value was given its buffer")
        assert shoved.fix.startswith("Return [1]['shoved'] before [0]")

    if target == "h100":  # a CPU needs no other order for it
        laid = found.pop("state['laid']")
        assert laid.message == f"state['laid'] {head}it comes back in another layout"
        assert "Format" in laid.fix
    assert found.keys() <= {"state['laid']"}


# The product reads the old value once the new one is there: XLA makes that in a temporary.
OLD_AND_NEW = """
def update(state, x):
    new = state["w"] - 0.1 * jax.grad(lambda w: ((x @ w) ** 2).mean())(state["w"])
    return {"w": new}, (new @ state["w"]).sum()

step = Step(update, ({"w": shape(8192, 8192)}, shape(64, 8192)), donate=(0,))
"""


def test_a_tpus_temporary_beside_the_old_value_names_what_still_reads_it(captured, told):
    from hloscope.passes.alias_copies import AliasCopies, CopyKind

    session = captured(OLD_AND_NEW, "v5e:2x2")
    (copy,) = session.get(AliasCopies).copies
    assert (copy.kind, copy.bytes) == (CopyKind.BESIDE, 8192 * 8192 * 4)
    for dump in (False, True):
        (finding,) = told("HS703", session, dump=dump)
        assert finding.message.endswith("still read when its buffer could be written")
        assert "made beside the old value" in finding.notes[0]
        assert finding.site.op_name.endswith(("reduce_sum", "dot_general"))
