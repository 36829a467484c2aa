import pytest

from hloscope.passes.collectives import Collectives
from hloscope.pipeline.findings import Basis, Severity
from hloscope.pipeline.rules import Limits

GATHER = """
def step(devices):
    mesh = Mesh(np.array(devices), ("fsdp",))
    rows = NamedSharding(mesh, P("fsdp", None))

    def local(w, x):
        return x @ {gathered}

    f = jax.shard_map(local, mesh=mesh, in_specs=P("fsdp", None), out_specs=P("fsdp", None))
    x = shape(256, 1024, dtype="bfloat16", sharding=rows)
    return Step(f, (shape(1024, 512, sharding=rows), x))
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


def test_a_cast_after_the_all_gather_is_found_with_half_its_wire_bytes(found_in):
    (finding,) = found_in("HS404", AFTER, "cpu:4")
    # A ring of four sends three quarters of the 2 MiB that are gathered.
    sent = 1024 * 512 * 4 * 3 // 4
    assert finding.cost.value == sent // 2
    assert finding.cost.basis is Basis.MODELLED
    assert finding.evidence[1].value == pytest.approx(1 / 2)
    assert finding.evidence[2].value == sent
    assert finding.severity is Severity.ERROR
    assert "an all-gather carries f32 where bf16 would do" in finding.message
    assert any("narrowed at train.py:" in note for note in finding.notes)


@pytest.mark.parametrize("target", ["cpu:4", "h100:4", "v5e:2x2"])
def test_a_cast_before_the_all_gather_is_left_alone(found_in, target):
    # XLA widens it for a CPU again, which is not the program's doing.
    assert found_in("HS404", BEFORE, target) == ()


@pytest.mark.parametrize("target", ["h100:4", "v5e:2x2"])
def test_a_compiler_that_swaps_the_cast_itself_leaves_nothing_to_find(captured, found_in, target):
    assert found_in("HS404", AFTER, target) == ()
    rows = captured(AFTER, target).get(Collectives).rows
    assert [row.payload_bytes for row in rows] == [1024 * 512 * 2]


@pytest.mark.parametrize("target", ["cpu:4", "h100:4"])
def test_an_embedding_table_of_a_gigabyte_gathered_in_float32_is_found(found_in, target):
    (finding,) = found_in("HS404", TABLE.format(before=""), target)
    assert finding.evidence[2].value == (1 << 30) * 3 // 4
    assert finding.cost.value == (1 << 29) * 3 // 4


@pytest.mark.parametrize("target", ["cpu:4", "h100:4"])
def test_the_table_gathered_in_bfloat16_is_left_alone(found_in, target):
    assert found_in("HS404", TABLE.format(before=NARROWED), target) == ()


def test_a_result_that_is_used_wide_as_well_is_left_alone(findings_of):
    text = """
    HloModule m, num_partitions=4
    ENTRY e {
      x = f32[256,512] parameter(0)
      g = f32[1024,512] all-gather(x), channel_id=1, replica_groups={{0,1,2,3}}, dimensions={0},
        use_global_device_ids=true
      b = bf16[1024,512] convert(g), metadata={op_name="jit(f)/convert_element_type"}
      n = f32[1024,512] negate(g)
      ROOT t = (bf16[1024,512], f32[1024,512]) tuple(b, n)
    }
    """
    assert findings_of("HS404", text) == ()
    alone = text.replace("negate(g)", "broadcast(c), dimensions={}").replace(
        "n = ", "c = f32[] constant(0)\n      n = "
    )
    (finding,) = findings_of("HS404", alone)
    assert finding.cost.value == 1024 * 512 * 2 * 3 // 4


def test_a_value_that_the_program_widens_just_before_it_is_sent_is_found(findings_of):
    text = """
    HloModule m, num_partitions=4
    ENTRY e {
      x = bf16[256,512] parameter(0)
      w = f32[256,512] convert(x), metadata={op_name="jit(f)/convert_element_type"}
      ROOT g = f32[1024,512] all-gather(w), channel_id=1, replica_groups={{0,1,2,3}},
        dimensions={0}, use_global_device_ids=true
    }
    """
    (finding,) = findings_of("HS404", text)
    assert finding.fix.startswith("Send the bf16 value and widen it after")
    assert findings_of("HS404", text.replace("convert_element_type", "all_gather")) == ()


def test_what_is_below_the_limit_is_left_alone(found_in):
    assert found_in("HS404", AFTER, "cpu:4", Limits(wire_share=0.6)) == ()


def test_small_norms_of_a_recorded_step_stay_below_the_limit(findings_of, fixtures_dir):
    from hloscope.ir.load import load_module

    path = fixtures_dir / "hlo" / "tpu_v6e8_llama3_8b_train_step.hlo"
    assert findings_of("HS404", load_module(str(path)).module) == ()


def test_gradients_that_are_summed_in_bfloat16_are_told_by_their_names(session_of, fixtures_dir):
    from hloscope.ir.load import load_module
    from hloscope.passes.collective_dtypes import CollectiveDtypes

    path = fixtures_dir / "hlo" / "tpu_v6e8_llama3_8b_train_step.hlo"
    sums = session_of(load_module(str(path)).module).get(CollectiveDtypes).narrow_sums
    assert {one.dtype for one in sums} == {"bf16"}
    assert any(one.gradient for one in sums)
