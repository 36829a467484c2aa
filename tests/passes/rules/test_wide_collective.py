import pytest

from hloscope.pipeline.findings import Basis, Severity
from hloscope.pipeline.rules import Limits

# Activations that each device has a part of, gathered to be multiplied in bfloat16.
GATHER = """
def step(devices):
    mesh = Mesh(np.array(devices), ("model",))
    columns = NamedSharding(mesh, P(None, "model"))

    def local(x, w):
        return {gathered} @ w

    f = jax.shard_map(
        local, mesh=mesh, in_specs=P(None, "model"), out_specs=P(None, "model")
    )
    w = shape(512, 64, dtype="bfloat16", sharding=columns)
    return Step(f, (shape(1024, 512, sharding=columns), w))
"""
AFTER = GATHER.format(
    gathered='jax.lax.all_gather(jax.nn.softmax(x), "model", axis=1, tiled=True)'
    ".astype(jnp.bfloat16)"
)
BEFORE = GATHER.format(
    gathered='jax.lax.all_gather(jax.nn.softmax(x).astype(jnp.bfloat16), "model", axis=1, '
    "tiled=True)"
)


def test_a_cast_after_the_all_gather_is_found_with_half_its_wire_bytes(captured, told):
    session = captured(AFTER, "cpu:4")
    (finding,) = told("HS404", session)
    assert told("HS709", session) == ()  # activations are no parameter
    # A ring of four sends three quarters of the 2 MiB that are gathered.
    sent = 1024 * 512 * 4 * 3 // 4
    assert finding.cost.value == sent // 2
    assert finding.cost.basis is Basis.MODELLED
    assert finding.evidence[1].value == pytest.approx(1 / 2)
    assert finding.evidence[2].value == sent
    assert finding.severity is Severity.ERROR
    assert "an all-gather carries f32 where bf16 would do" in finding.message
    assert any("narrowed at train.py:" in note for note in finding.notes)


@pytest.mark.parametrize("target", ["h100:4", "v5e:2x2"])
def test_a_cast_before_the_all_gather_is_left_alone(found_in, target):
    assert found_in("HS404", BEFORE, target) == ()


def test_a_result_that_is_used_wide_as_well_is_left_alone(findings_of):
    text = """
    HloModule m, num_partitions=4
    ENTRY e {
      p = f32[256,512] parameter(0)
      x = f32[256,512] exponential(p)
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


def test_what_is_below_the_limit_is_left_alone(findings_of):
    text = """
    HloModule m, num_partitions=4
    ENTRY e {
      p = bf16[256,512] parameter(0)
      x = f32[256,512] convert(p), metadata={op_name="jit(f)/convert_element_type"}
      ROOT g = f32[1024,512] all-gather(x), channel_id=1, replica_groups={{0,1,2,3}},
        dimensions={0}, use_global_device_ids=true
    }
    """
    assert len(findings_of("HS404", text, Limits(wire_share=0.5))) == 1
    assert findings_of("HS404", text, Limits(wire_share=0.6)) == ()


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
