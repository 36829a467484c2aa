import pytest

from hloscope.passes.reshards import Reshards
from hloscope.pipeline.findings import Basis, Severity
from hloscope.pipeline.rules import Limits
from hloscope.pipeline.session import Session
from hloscope.subjects import ArtifactSubject

MESH = """
def sharding(mesh, *spec):
    return NamedSharding(mesh, P(*spec))

def step(devices):
    mesh = Mesh(np.array(devices).reshape(2, 4), ("data", "model"))
"""
# The product sums over a dimension that one operand has on one axis and the other on another.
CONFLICT = (
    MESH
    + """
    def f(x, w):
        return jnp.tanh(x) @ jnp.tanh(w)

    spec = sharding(mesh, "model", "data")
    return Step(f, (shape(2048, 2048, sharding=spec), shape(2048, 2048, sharding=spec)))
"""
)
HEADS = (
    MESH
    + """
    def f(x, w):
        heads = (x @ w).reshape(16, 1024, {heads}, 64)
        return jax.nn.softmax(jnp.einsum("bqhd,bkhd->bhqk", heads, heads))

    x = shape(16, 1024, 64, sharding=sharding(mesh, "data", None, None))
    return Step(f, (x, shape(64, {heads} * 64, sharding=sharding(mesh, None, "model"))))
"""
)
RESULT = (
    MESH
    + """
    def f(x):
        return jnp.tanh(x) * 2

    f = jax.jit(f, out_shardings=sharding(mesh, None, "model"))
    return Step(f, (shape(2048, 2048, sharding=sharding(mesh, "model", None)),))
"""
)
CONSTRAINED = (
    MESH
    + """
    def f(x):
        y = jax.lax.with_sharding_constraint(jnp.tanh(x), sharding(mesh, None, None))
        y = jax.lax.with_sharding_constraint(jnp.sin(y), sharding(mesh, None, "data"))
        return jnp.exp(y.sum(0))

    return Step(f, (shape(2048, 2048, sharding=sharding(mesh, "model", None)),))
"""
)
TENSOR_PARALLEL = (
    MESH
    + """
    def loss(params, x):
        return jnp.mean((jax.nn.gelu(x @ params["up"]) @ params["down"]) ** 2)

    def f(params, x):
        gradients = jax.grad(loss)(params, x)
        return jax.tree.map(lambda p, g: p - 0.1 * g, params, gradients)

    params = {
        "up": shape(256, 1024, sharding=sharding(mesh, None, "model")),
        "down": shape(1024, 256, sharding=sharding(mesh, "model", None)),
    }
    return Step(f, (params, shape(512, 256, sharding=sharding(mesh, "data", None))))
"""
)
BY_HAND = """
def step(devices):
    mesh = Mesh(np.array(devices), ("expert",))

    def local(w, x):
        sent = jax.lax.all_to_all(x, "expert", 0, 1, tiled=True)
        h = jnp.tanh(jnp.einsum("ecd,edf->ecf", sent, w))
        back = jax.lax.all_to_all(h, "expert", 1, 0, tiled=True)
        back = jax.lax.ppermute(back, "expert", [(i, (i + 1) % 8) for i in range(8)])
        return jax.lax.all_gather(back, "expert", axis=1, tiled=True)

    tokens = P(None, "expert", None)
    g = jax.shard_map(
        local, mesh=mesh, in_specs=(P("expert"), tokens), out_specs=P(), check_vma=False
    )

    def loss(w, x):
        return jnp.mean(g(w, x) ** 2)

    w = shape(8, 64, 64, sharding=NamedSharding(mesh, P("expert")))
    x = shape(8, 512, 64, sharding=NamedSharding(mesh, tokens))
    return Step(jax.grad(loss, (0, 1)), (w, x))
"""
# The partitioner knows no direct way between these two.
INVOLUNTARY = """
def step(devices):
    mesh = Mesh(np.array(devices).reshape(2, 2, 2), ("a", "b", "c"))

    def f(x):
        y = jax.lax.with_sharding_constraint(jnp.tanh(x), NamedSharding(mesh, P("a", "b")))
        y = jax.lax.with_sharding_constraint(y, NamedSharding(mesh, P(None, ("a", "b", "c"))))
        return jnp.sin(y)

    return Step(f, (shape(1024, 1024, sharding=NamedSharding(mesh, P("a", "b"))),))
"""
ANY_SIZE = Limits(reshard_bytes=0, wire_share=0.0)


@pytest.mark.parametrize("target", ["h100:8", "v5e:2x4"])
def test_a_product_of_operands_on_conflicting_axes_is_found(found_in, target):
    finding, *others = found_in("HS706", CONFLICT, target)
    assert others == []
    assert "at dot_general that nothing in the program asks for" in finding.message
    # x has 1024 rows of half their columns on a device and gathers the other half of 512
    # rows; w gathers its rows over four devices. TPUs send both in bfloat16.
    wide = 2 if target.startswith("v5e") else 4
    x, w = 512 * 2048 // 2, 2048 * 1024 * 3 // 4
    assert finding.cost.value == (x + w) * wide
    assert finding.cost.basis is Basis.MODELLED
    assert finding.severity is Severity.ERROR
    assert finding.site.file == "train.py"
    assert finding.fix.startswith("Shard both operands alike")


def test_heads_that_the_axis_does_not_divide_are_found(found_in):
    found = found_in("HS706", HEADS.format(heads=6), "cpu:8")
    reshape = next(finding for finding in found if "at reshape" in finding.message)
    # Two of four devices hold three of six heads: half of 8 x 1024 x 192 numbers is sent.
    assert reshape.cost.value == 8 * 1024 * 192 * 4 // 2
    assert "the axis divides" in reshape.fix


def test_heads_that_the_axis_divides_are_left_alone(found_in):
    assert found_in("HS706", HEADS.format(heads=8), "cpu:8", ANY_SIZE) == ()


def test_a_result_that_is_to_lie_otherwise_than_its_argument_is_found(found_in):
    (finding,) = found_in("HS706", RESULT, "cpu:8")
    # Each of four devices sends three quarters of its 512 rows.
    assert finding.cost.value == 2048 * 2048 * 4 // 4 * 3 // 4
    assert finding.message.startswith("an all-to-all over model at ")


@pytest.mark.parametrize(
    ("code", "target"), [(TENSOR_PARALLEL, "cpu:8"), (BY_HAND, "h100:8"), (BY_HAND, "cpu:8")]
)
def test_specs_that_fit_and_exchanges_by_hand_are_left_alone(found_in, code, target):
    assert found_in("HS706", code, target, ANY_SIZE) == ()


def test_what_a_constraint_asks_for_is_left_alone_and_is_a_note_of_a_dump(captured, told):
    session = captured(CONSTRAINED, "cpu:8", ANY_SIZE)
    assert told("HS706", session) == ()
    (finding, *_) = told("HS706", session, dump=True)
    assert finding.severity is Severity.NOTE
    assert "that no name in the dump asks for" in finding.message


def test_a_fully_sharded_decoder_is_left_alone(capture_arch, told):
    artifact = capture_arch("causal_transformer", "cpu:8", fsdp=8)
    session = Session(ArtifactSubject(artifact), given={Limits: ANY_SIZE})
    assert told("HS706", session) == ()
    assert session.get(Reshards).constraints_known


@pytest.mark.parametrize("target", ["cpu:8", "v5e:2x4"])
def test_a_value_made_whole_only_to_be_split_anew_is_found_by_the_partitioners_warning(
    captured, told, target
):
    session = captured(INVOLUNTARY, target)
    (warning, *_) = {row.warning for row in session.get(Reshards).rows}
    assert warning.source == "{devices=[2,2,2]<=[8] last_tile_dim_replicate}"
    assert warning.target == "{devices=[1,8]<=[8]}"
    (finding,) = told("HS706", session)
    assert finding.severity is not Severity.NOTE
    assert finding.message.endswith("to make a value whole and split it anew")
    assert any("involuntary full rematerialization" in note for note in finding.notes)
    assert finding.fix.startswith("Go there over a sharding in between")


SUM_OF_ROWS = """HloModule m, num_partitions=4
ENTRY e {
  p = f32[256,1024] parameter(0), metadata={op_name="batch['x']"}
  n = f32[256,1024] negate(p), metadata={op_name="jit(f)/neg"}
  g = f32[1024,1024] all-gather(n), channel_id=1, replica_groups={{0,1,2,3}}, dimensions={0},
    use_global_device_ids=true, metadata={op_name="jit(f)/sort"}
  ROOT s = f32[1024,1024] negate(g)
}"""


def test_what_is_below_the_limit_is_left_alone(findings_of):
    assert len(findings_of("HS706", SUM_OF_ROWS, Limits(reshard_bytes=3 << 20))) == 1
    assert findings_of("HS706", SUM_OF_ROWS, Limits(reshard_bytes=(3 << 20) + 1)) == ()


def test_of_a_dump_a_gather_of_which_a_slice_is_kept_tells_of_a_value_made_whole(findings_of):
    sliced = SUM_OF_ROWS.replace(
        "ROOT s = f32[1024,1024] negate(g)",
        "i = s32[] constant(0)\n  ROOT s = f32[1024,256] dynamic-slice(g, i, i), "
        "dynamic_slice_sizes={1024,256}",
    )
    (finding,) = findings_of("HS706", sliced)
    assert finding.message.endswith("to make a value whole and split it anew")
    assert "each device keeps a slice of what is gathered" in finding.notes
    assert finding.severity is Severity.WARNING


def test_a_neighbours_edge_is_no_change_of_sharding(findings_of):
    permuted = (
        SUM_OF_ROWS.replace(
            "all-gather(n), channel_id=1, replica_groups={{0,1,2,3}}, dimensions={0},\n"
            "    use_global_device_ids=true",
            "collective-permute({}), channel_id=1, source_target_pairs={{{{0,1}},{{1,2}}}}",
        )
        .replace("{{", "{")
        .replace("}}", "}")
    )
    whole = permuted.replace("{}", "n").replace("1024,1024", "256,1024")
    assert len(findings_of("HS706", whole, ANY_SIZE)) == 1
    edge = whole.replace(
        "  g = f32[256,1024]",
        "  h = f32[1,1024] slice(n), slice={[0:1], [0:1024]}\n  g = f32[1,1024]",
    )
    edge = edge.replace("collective-permute(n)", "collective-permute(h)").replace(
        "ROOT s = f32[256", "ROOT s = f32[1"
    )
    assert findings_of("HS706", edge, ANY_SIZE) == ()


@pytest.mark.parametrize(
    "dump",
    ["tpu_v6e8_llama3_8b_train_step", "gpu_llama31_8b_1x8_unscheduled"],
)
def test_recorded_steps_that_gather_their_parameters_are_left_alone(
    findings_of, fixtures_dir, dump
):
    text = (fixtures_dir / "hlo" / f"{dump}.hlo").read_text()
    assert findings_of("HS706", text, ANY_SIZE) == ()
