import pytest

from hloscope.ir.load import load_module
from hloscope.passes.collectives import Collectives
from hloscope.pipeline.findings import Basis, Severity
from hloscope.pipeline.rules import Limits

GATHER = """
def step(devices):
    mesh = Mesh(np.array(devices), ("fsdp",))
    rows = NamedSharding(mesh, P("fsdp", None))

    def local(params, x):
        w = params["kernel"]
        return x @ {gathered}

    f = jax.shard_map(local, mesh=mesh, in_specs=P("fsdp", None), out_specs=P("fsdp", None))
    x = shape(256, 1024, dtype="bfloat16", sharding=rows)
    return Step(f, ({{"kernel": shape(1024, 512, sharding=rows)}}, x))
"""
AFTER = GATHER.format(gathered='jax.lax.all_gather(w, "fsdp", tiled=True).astype(jnp.bfloat16)')
BEFORE = GATHER.format(gathered='jax.lax.all_gather(w.astype(jnp.bfloat16), "fsdp", tiled=True)')
# 262144 x 1024 in float32: 1 GiB, sharded by rows and gathered whole for the lookup.
TABLE = """
def step(devices):
    mesh = Mesh(np.array(devices), ("fsdp",))
    rows = NamedSharding(mesh, P("fsdp", None))

    def f(table, tokens):
        {before}
        table = jax.lax.with_sharding_constraint(table, NamedSharding(mesh, P()))
        return table[tokens].astype(jnp.bfloat16)

    return Step(f, (shape(262144, 1024, sharding=rows),
                    shape(64, 16, dtype="int32", sharding=rows)))
"""
# Without the first constraint the partitioner may gather first and convert then.
NARROWED = "table = jax.lax.with_sharding_constraint(table.astype(jnp.bfloat16), rows)"


def test_a_cast_after_the_all_gather_is_found_with_leaf_line_and_half_its_wire_bytes(
    captured, told
):
    session = captured(AFTER, "cpu:4")
    (finding,) = told("HS709", session)
    assert told("HS404", session) == ()  # one exchange is reported once
    # A ring of four sends three quarters of the 2 MiB that are gathered.
    sent = 1024 * 512 * 4 * 3 // 4
    assert finding.cost.value == sent // 2
    assert finding.cost.basis is Basis.MODELLED
    assert finding.evidence[1].value == pytest.approx(1 / 2)
    assert finding.evidence[2].value == sent
    assert finding.severity is Severity.ERROR
    assert finding.message == "params['kernel'] is gathered in f32 where bf16 would do"
    assert finding.site.leaf == "params['kernel']"
    assert finding.site.file == "train.py"
    assert any("narrowed at train.py:" in note for note in finding.notes)


@pytest.mark.parametrize("target", ["cpu:4", "h100:4", "v5e:2x2"])
def test_a_cast_before_the_all_gather_is_left_alone(found_in, target):
    # XLA widens it for a CPU again, which is not the program's doing.
    assert found_in("HS709", BEFORE, target) == ()


@pytest.mark.parametrize("target", ["h100:4", "v5e:2x2"])
def test_a_compiler_that_swaps_the_cast_itself_leaves_nothing_to_find(captured, told, target):
    session = captured(AFTER, target)
    assert told("HS709", session) == ()
    rows = session.get(Collectives).rows
    assert [row.payload_bytes for row in rows] == [1024 * 512 * 2]


@pytest.mark.parametrize("target", ["cpu:4", "h100:4"])
def test_an_embedding_table_of_a_gigabyte_gathered_in_float32_is_found(found_in, target):
    (finding,) = found_in("HS709", TABLE.format(before=""), target)
    assert finding.site.leaf == "table"
    assert finding.evidence[2].value == (1 << 30) * 3 // 4
    assert finding.cost.value == (1 << 29) * 3 // 4


def test_the_table_gathered_in_bfloat16_is_left_alone(found_in):
    assert found_in("HS709", TABLE.format(before=NARROWED), "h100:4") == ()


TEXT = """
HloModule m, num_partitions=4
ENTRY e {
  x = f32[256,512] parameter(0), metadata={op_name="params['w']"}
  g = f32[1024,512] all-gather(x), channel_id=1, replica_groups={{0,1,2,3}}, dimensions={0},
    use_global_device_ids=true
  b = bf16[1024,512] convert(g), metadata={op_name="jit(f)/convert_element_type"}
  n = f32[1024,512] negate(g)
  ROOT t = (bf16[1024,512], f32[1024,512]) tuple(b, n)
}
"""
ALONE = TEXT.replace("negate(g)", "broadcast(c), dimensions={}").replace(
    "n = ", "c = f32[] constant(0)\n  n = "
)


def test_a_parameter_that_is_used_wide_as_well_is_left_alone(findings_of):
    assert findings_of("HS709", TEXT) == ()
    (finding,) = findings_of("HS709", ALONE)
    assert finding.cost.value == 1024 * 512 * 2 * 3 // 4


def test_a_batch_is_no_parameter(findings_of):
    batch = ALONE.replace("params['w']", "batch['x']")
    assert findings_of("HS709", batch) == ()
    assert len(findings_of("HS404", batch)) == 1


def test_what_is_below_the_limit_is_left_alone(findings_of):
    assert findings_of("HS709", ALONE, Limits(wire_share=0.6)) == ()


def test_a_recorded_step_that_gathers_its_weights_in_bfloat16_is_left_alone(
    findings_of, fixtures_dir
):
    path = fixtures_dir / "hlo" / "tpu_v6e8_llama3_8b_train_step.hlo"
    assert findings_of("HS709", load_module(str(path)).module) == ()
