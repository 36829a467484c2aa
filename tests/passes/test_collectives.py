"""Exchanges between devices: each once, with group, payload and wire bytes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hloscope.ir import parse_text
from hloscope.passes.collectives import CollectiveKind, Collectives, wire_bytes
from hloscope.pipeline.findings import Basis

K = CollectiveKind


def facts(row):
    return (row.kind, row.group_size, row.payload_bytes, row.wire_bytes)


@pytest.fixture(scope="session")
def collectives_of(session_of):
    return lambda program: session_of(program).get(Collectives)


@pytest.fixture
def recorded(fixtures_dir, collectives_of):
    def read(name):
        path = fixtures_dir / "compiled" / "today" / f"{name}.hlo"
        return collectives_of(parse_text(path.read_text(), file=path.name))

    return read


def test_the_ring_formulas():
    # 1000 bytes over 4 devices, by hand.
    assert wire_bytes(K.ALL_REDUCE, 1000, 4) == 1500
    assert wire_bytes(K.ALL_GATHER, 1000, 4) == 750
    assert wire_bytes(K.REDUCE_SCATTER, 1000, 4) == 750
    assert wire_bytes(K.ALL_TO_ALL, 1000, 4) == 750
    assert wire_bytes(K.PERMUTE, 1000, 2) == 1000
    assert wire_bytes(K.BROADCAST, 1000, 4) == 1000
    assert wire_bytes(K.SEND, 1000, 2) == 1000
    assert wire_bytes(K.RECEIVE, 1000, 2) == 0


@given(st.sampled_from(list(K)), st.integers(0, 1 << 50), st.integers(1, 4096))
def test_nothing_sends_more_than_its_payload_and_an_all_reduce_twice_that(kind, payload, devices):
    wire = wire_bytes(kind, payload, devices)
    most = 2 * payload if kind is K.ALL_REDUCE else payload
    assert 0 <= wire <= most
    if devices == 1:
        assert wire == 0


@given(st.integers(0, 1 << 40), st.integers(2, 512))
def test_an_all_reduce_is_a_reduce_scatter_and_an_all_gather(payload, devices):
    halves = wire_bytes(K.REDUCE_SCATTER, payload, devices)
    halves += wire_bytes(K.ALL_GATHER, payload, devices)
    assert halves - 1 <= wire_bytes(K.ALL_REDUCE, payload, devices) <= halves


def program(operation, header="", more=""):
    return (
        f"HloModule m{header}\n\nadd {{\n  p = f32[] parameter(0)\n  q = f32[] parameter(1)\n"
        f"  ROOT s = f32[] add(p, q)\n}}\n\nENTRY e {{\n  a = f32[64] parameter(0)\n"
        f"  b = bf16[32] parameter(1)\n{more}  ROOT r = {operation}\n}}\n"
    )


PARTS = ", num_partitions=8"
REPLICAS = ", replica_count=4"


@pytest.mark.parametrize(
    ("operation", "header", "expected"),
    [
        # Who is in a group depends on channel_id and use_global_device_ids.
        ("f32[64] all-reduce(a), to_apply=add", REPLICAS, (K.ALL_REDUCE, 4, 256, 384)),
        (
            "f32[64] all-reduce(a), channel_id=1, replica_groups={}, to_apply=add",
            PARTS,
            (K.ALL_REDUCE, 8, 256, 448),
        ),
        (
            "f32[64] all-reduce(a), channel_id=1, use_global_device_ids=true, "
            "replica_groups={{0,1},{2,3},{4,5},{6,7}}, to_apply=add",
            PARTS,
            (K.ALL_REDUCE, 2, 256, 256),
        ),
        (
            "f32[64] all-to-all(a), channel_id=1, replica_groups={}, dimensions={0}",
            PARTS,
            (K.ALL_TO_ALL, 8, 256, 224),
        ),
        # A group of one sends nothing.
        (
            "f32[64] all-gather(a), replica_groups={{0},{1}}, dimensions={0}",
            ", replica_count=2",
            (K.ALL_GATHER, 1, 256, 0),
        ),
        # Variadic: all operands.
        (
            "(f32[64], bf16[32]) all-reduce(a, b), replica_groups={{0,1,2,3}}, to_apply=add",
            REPLICAS,
            (K.ALL_REDUCE, 4, 320, 480),
        ),
        # A permute of everyone to itself.
        (
            "f32[64] collective-permute(a), source_target_pairs={{0,0},{1,1}}",
            PARTS,
            (K.PERMUTE, 1, 256, 0),
        ),
        (
            "f32[64] collective-permute(a), source_target_pairs={{0,1},{1,0}}",
            PARTS,
            (K.PERMUTE, 2, 256, 256),
        ),
        # The uneven group that takes longest.
        (
            "f32[64] all-reduce(a), replica_groups={{0},{1,2,3}}, to_apply=add",
            REPLICAS,
            (K.ALL_REDUCE, 3, 256, 342),
        ),
        (
            "f32[16] reduce-scatter(a), replica_groups=[1,4]<=[4], dimensions={0}, to_apply=add",
            REPLICAS,
            (K.REDUCE_SCATTER, 4, 256, 192),
        ),
        (
            "f32[256] all-gather(a), replica_groups=mesh['x'=2,'y'=4] {'y'}, channel_id=3, "
            "use_global_device_ids=true, dimensions={0}",
            PARTS,
            (K.ALL_GATHER, 4, 1024, 768),
        ),
    ],
)
def test_groups_and_bytes(collectives_of, operation, header, expected):
    (row,) = collectives_of(program(operation, header)).rows
    assert facts(row) == expected
    assert row.basis is Basis.MODELLED


def test_an_asynchronous_pair_is_one_exchange_of_its_results(collectives_of):
    more = (
        "  s = (f32[64], f32[256]) all-gather-start(a), replica_groups={{0,1,2,3}}, "
        "dimensions={0}\n"
    )
    (row,) = collectives_of(program("f32[256] all-gather-done(s)", REPLICAS, more)).rows
    assert facts(row) == (K.ALL_GATHER, 4, 1024, 768)
    assert row.asynchronous


def test_a_transfer_to_the_host_is_no_exchange_between_devices(collectives_of):
    more = "  t = token[] after-all()\n"
    send = "(f32[64], u32[], token[]) send(a, t), channel_id=1, is_host_transfer=true"
    assert not collectives_of(program(send, PARTS, more)).rows
    (row,) = collectives_of(program(send.replace("true", "false"), PARTS, more)).rows
    assert facts(row) == (K.SEND, 2, 256, 256)


def test_pairs_that_cannot_be_read_leave_the_bytes_unknown(collectives_of):
    (row,) = collectives_of(
        program("f32[64] collective-permute(a), source_target_pairs={{zero,1}}", PARTS)
    ).rows
    assert (row.group_size, row.wire_bytes, row.basis) == (None, None, Basis.UNKNOWN)
    assert "source_target_pairs" in row.note


def test_a_sum_of_which_each_device_keeps_a_slice_is_a_reduce_scatter(collectives_of):
    text = program("f32[16] fusion(a), kind=kCustom, calls=arc", REPLICAS).replace(
        "ENTRY",
        "arc {\n  p = f32[64] parameter(0)\n"
        "  ar = f32[64] all-reduce(p), replica_groups={{0,1,2,3}}, to_apply=add\n"
        "  i = s32[] constant(0)\n"
        "  ROOT ds = f32[16] dynamic-slice(ar, i), dynamic_slice_sizes={16}\n}\n\nENTRY",
    )
    (row,) = collectives_of(text).rows
    assert facts(row) == (K.REDUCE_SCATTER, 4, 256, 192)
    assert row.launch.name == "r"


# 8 devices as dp=2 x tp=4; the same step for each chip. The program of the CPU fixture is
# smaller. Payloads: psum over tp, pmax over both, all_gather over dp, the rest over tp.
@pytest.mark.parametrize(
    ("name", "size"), [("cpu_coll", 512), ("gpu_m_coll", 524_288), ("tpu_m_coll", 8_388_608)]
)
def test_one_step_of_every_collective_on_each_kind_of_chip(recorded, name, size):
    rows = recorded(name).rows
    found = sorted((row.kind.value, row.group_size, row.payload_bytes) for row in rows)
    assert found == [
        ("all-gather", 2, 2 * size),
        ("all-reduce", 4, size),
        ("all-reduce", 8, size),
        ("all-to-all", 4, size),
        ("collective-permute", 2, size),
        ("reduce-scatter", 4, size),
    ]


def test_an_exchange_that_tpus_spread_over_fusions_counts_once(recorded):
    collectives = recorded("tpu_m_fsdp")
    rows = {row.instruction.name: row for row in collectives.rows}
    # all-gather.15 and .17 go on with what .13 starts.
    assert set(rows) == {"all-gather.13", "all-gather.18", "all-reduce", "all-reduce.7"}
    assert {i.name for i in collectives.repeats} == {"all-gather.15", "all-gather.17"}
    started = rows["all-gather.13"]
    assert started.launch.name == "async-collective-start"
    assert started.asynchronous
    assert facts(started) == (K.ALL_GATHER, 2, 2 * 1024 * 1024, 1024 * 1024)
    # all-reduce-scatter.2: two gradients of bf16[1024,1024], of which each keeps half.
    assert facts(rows["all-reduce.7"]) == (K.REDUCE_SCATTER, 2, 2**22, 2**21)


def test_exchanges_in_a_loop_run_as_often_as_it_does(recorded):
    rows = recorded("tpu_m_scan_fsdp").rows
    assert len(rows) == 8
    assert {row.times.exact for row in rows} == {8}
    unrolled = recorded("gpu_m_scan_db").rows
    rolled = recorded("gpu_m_scan_fsdp").rows
    # Double buffering halves the trips and doubles the body.
    assert sum(row.times.nominal for row in unrolled) == sum(row.times.nominal for row in rolled)


def test_how_much_a_ragged_exchange_sends_is_only_bounded(recorded):
    row = next(
        row
        for row in recorded("gpu_m_ragged_a2a").rows
        if row.kind is CollectiveKind.RAGGED_ALL_TO_ALL
    )
    assert row.basis is Basis.BOUNDED
    assert row.group_size == 4


def test_every_exchange_of_a_recorded_training_step_has_a_group_and_bytes(
    fixtures_dir, collectives_of
):
    path = fixtures_dir / "hlo" / "tpu_v6e8_llama3_8b_train_step.hlo"
    rows = collectives_of(parse_text(path.read_text())).rows
    # grep: 21 all-gather(, 8 reduce-scatter(, 4 all-reduce( and no other.
    assert [sum(row.kind is kind for row in rows) for kind in (K.ALL_GATHER, K.REDUCE_SCATTER)] == [
        21,
        8,
    ]
    assert len(rows) == 33
    assert {row.group_size for row in rows} == {8}
    assert all(row.wire_bytes for row in rows)
    # all-gather.150: bf16[1,14336,512] of each of 8 devices, in the forward loop of 32 layers.
    gather = next(row for row in rows if row.instruction.name == "all-gather.150")
    assert gather.payload_bytes == 14336 * 512 * 8 * 2
    assert gather.times.exact == 32
