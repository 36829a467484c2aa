"""What the tables of a trace's exchanges say."""

import pytest
from oracles.traced_devices import ALL_REDUCE, embedded, gpu, tpu
from oracles.xspaces import space

from hloscope.answers.trace import report_trace
from hloscope.answers.trace_exchanges import exchange_tables
from hloscope.pipeline.findings import Basis
from hloscope.pipeline.inputs import MeshAxes
from hloscope.traces.reading import read_trace

US = 1e-6


@pytest.fixture
def trace_of(tmp_path):
    def write(**hosts):
        for host, planes in hosts.items():
            (tmp_path / f"{host}.xplane.pb").write_bytes(space(*planes, hostnames=(host,)))
        (only,) = tmp_path.iterdir() if len(hosts) == 1 else [tmp_path]
        return read_trace(only)

    return write


def _device(number, compute, last, beside=0):
    """Two steps: a product, an all-reduce of 10 us once the last has come, partly hidden."""
    kernels, more = [], []
    for at in (0, 100):
        kernels.append(("gemm", at, compute, "dot.1"))
        more.append(("ncclAllReduce", at + compute, last - compute + 10, "all-reduce.1"))
        if beside:
            kernels.append(("gemm", at + compute, beside, "dot.2"))
    return gpu(number, {7: kernels, 8: more})


def _tables(trace, **more):
    return {table.name: table for table in exchange_tables(trace, 20, **more)}


def _rows(table):
    heads = [column.title for column in table.columns]
    return [dict(zip(heads, row, strict=True)) for row in table.rows]


def test_exchanges_are_summed_over_devices_by_axis_and_kind(trace_of):
    program = embedded(ALL_REDUCE.replace("GROUPS", "[1,8]<=[8]"))
    devices = [_device(n, 60 if n == 3 else 40, 60, beside=5) for n in range(8)]
    tables = _tables(trace_of(h=[*devices, program]))
    (row,) = _rows(tables["exchanges"])
    # Seven wait 20 us and send 10, the last one only sends; 5 us of each are hidden.
    assert row["exposed"].value == pytest.approx(2 * (7 * 25 + 5) * US)
    assert row["hidden"].value == pytest.approx(2 * 8 * 5 * US)
    assert (row["exposed"].basis, row["runs"].value) == (Basis.EXACT, 16)
    assert row["share"].value == pytest.approx(2 * (7 * 25 + 5) / (8 * 170))
    assert (row["over"], row["exchange"]) == ("8 devices", "all-reduce")
    # A ring sends 2 (n-1)/n of 4 KiB.
    assert (row["sent"].value, row["sent"].basis) == (16 * 2 * 4096 * 7 // 8, Basis.MODELLED)
    (one,) = _rows(tables["exchanges by instruction"])
    assert (one["instruction"], one["module"]) == ("all-reduce.1", "jit_step")
    assert one["exposed"].value == row["exposed"].value


def test_the_device_that_the_others_wait_for_is_named(trace_of):
    devices = [_device(n, 60 if n == 3 else 40, 60) for n in range(8)]
    table = _tables(trace_of(h=devices))["arrivals"]
    assert table.title.endswith("GPU 3 keeps the others waiting")
    rows = _rows(table)
    assert rows[3]["caused"].value == pytest.approx(2 * 7 * 20 * US)
    assert [row["waited"].value for row in rows[:4]] == pytest.approx([40 * US] * 3 + [0])
    assert [row["last"].value for row in rows[2:4]] == [0, 1]
    assert rows[3]["to the usual"].value == pytest.approx(0.5)
    assert "all of the host were taken for them" in table.note


def test_devices_that_come_together_or_take_turns_are_not_named(trace_of):
    together = _tables(trace_of(h=[_device(n, 40, 40) for n in range(4)]))["arrivals"]
    assert together.title.endswith("they come to exchanges together")


def test_of_devices_that_exchange_nothing_waits_are_unknown_and_not_zero(trace_of):
    devices = [gpu(n, {7: [("gemm", 0, 40, "dot.1")]}) for n in range(2)]
    tables = _tables(trace_of(h=devices))
    assert set(tables) == {"arrivals"}
    for row in _rows(tables["arrivals"]):
        assert [row[name].basis for name in ("caused", "waited", "last")] == [Basis.UNKNOWN] * 3
        assert row["compute"].value == pytest.approx(40 * US)


def test_axes_are_those_of_the_mesh_or_of_the_groups_own(trace_of):
    def over(groups, mesh=None, operation="all-reduce.1"):
        label = f"%{operation} = f32[8]{{0}} all-reduce(%p), channel_id=1, replica_groups={groups}"
        lines = {"XLA Ops": [(f"{label}, to_apply=%add", 0, 5, "all-reduce")]}
        (row,) = _rows(_tables(trace_of(h=[tpu("TPU:0", lines)]), mesh=mesh)["exchanges"])
        return row["over"], row["sent"].value

    mesh = MeshAxes({"data": 2, "model": 4})
    assert over("[2,4]<=[8]") == ("4 devices", 2 * 32 * 3 // 4)
    assert over("[2,4]<=[8]", mesh) == ("model", 48)
    assert over("{{0,4},{1,5},{2,6},{3,7}}", mesh) == ("data", 32)
    assert over("mesh['data'=2,'model'=4] {'model'}") == ("model", 48)
    assert over("mesh['axis_0'=2,'axis_1'=4] {'axis_1'}") == ("4 devices", 48)
    assert over("{{0,3},{1,2}}", mesh) == ("2 devices", 32)


def test_hosts_stand_beside_each_other_by_a_model(trace_of):
    program = embedded(ALL_REDUCE.replace("GROUPS", "[1,4]<=[4]"))
    a = [_device(n, 40, 60) for n in range(2)]
    b = [_device(n, 60, 60) for n in range(2)]
    tables = _tables(trace_of(a=[*a, program], b=[*b, program]))
    rows = {row["host"]: row for row in _rows(tables["arrivals of hosts"])}
    assert rows["a"]["waited"].value == pytest.approx(2 * 20 * US)
    assert rows["b"]["caused"].basis is Basis.MODELLED
    within = _rows(tables["arrivals"])
    assert [row["device"] for row in within] == ["a GPU 0", "a GPU 1", "b GPU 0", "b GPU 1"]
    assert {row["waited"].basis for row in within} == {Basis.BOUNDED}


def test_one_device_without_exchanges_has_no_table_of_them(trace_of):
    trace = trace_of(h=[gpu(0, {7: [("gemm", 0, 40, "dot.1")]})])
    assert exchange_tables(trace, 20) == ()
    names = {table.name for table in report_trace(trace).tables}
    assert not names & {"exchanges", "exchanges by instruction", "arrivals"}


def test_the_list_says_how_many_more_there_are(trace_of):
    kernels = [("ncclAllReduce", at * 10, 5, f"all-reduce.{at}") for at in range(5)]
    trace = trace_of(h=[gpu(0, {7: kernels})])
    _, listed = exchange_tables(trace, 2)
    assert (len(listed.rows), listed.note) == (2, "3 more; --top 0 lists all.")
    assert len(exchange_tables(trace, 0)[1].rows) == 5
