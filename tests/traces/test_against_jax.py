"""What is made of a file, against ``jax.profiler.ProfileData``: all events of all lines.

``test_xspace`` compares the files' fields; here it is the columns that everything else works
with: times from one origin, names, and stats as texts and numbers. JAX's reader gives times in
nanoseconds, and a bytes stat as text.
"""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.profiler import ProfileData
from oracles.xspaces import PlaneWriter, Reference, space

from hloscope.traces.recording import NONE
from hloscope.traces.xspace import read_xspace
from hloscope.traces.xspace_recording import recording_of

RECORDED = [
    "amd_mi300x_attention",
    "amd_mi300x_conv_old_format",
    "amd_mi355x_te_fused_attention",
    "cpu_no_device_plane",
    "nvidia_2x_gtx1080ti_fusion",
]
NOT_SECTIONS = ("/host:metadata", "Task Environment")


def _agree(content, path):
    """Compare all events; how many there were."""
    path.write_bytes(content)
    recording = recording_of(read_xspace(path))
    theirs = ProfileData.from_file(str(path))
    planes = [plane for plane in theirs.planes if plane.name not in NOT_SECTIONS]
    assert [section.name for section in recording.sections] == [plane.name for plane in planes]
    shifts, compared = [], 0
    for section, plane in zip(recording.sections, planes, strict=True):
        lines = [(line.name, list(line.events)) for line in plane.lines]
        lines = [(name, events) for name, events in lines if events]
        assert [lane.name for lane in section.lanes] == [name for name, _ in lines]
        for lane, (_, events) in zip(section.lanes, lines, strict=True):
            assert [lane.labels[row] for row in range(len(lane))] == [e.name for e in events]
            durations = (lane.ends - lane.begins).tolist()
            for event, begin, duration in zip(events, lane.begins.tolist(), durations, strict=True):
                assert duration / 1000 == pytest.approx(event.duration_ns, rel=1e-12, abs=1)
                shifts.append(event.start_ns - begin / 1000)
            _same_stats(lane, [dict(event.stats) for event in events])
            compared += len(events)
    # One origin for all: doubles hold nanoseconds since 1970 to a quarter of a microsecond.
    assert max(shifts) - min(shifts) <= 2 + max(map(abs, shifts)) * 2**-51
    return compared


def _same_stats(lane, theirs):
    names = sorted({name for stats in theirs for name in stats})
    lane.stats.fetch(names)
    for name in names:
        texts = lane.stats.texts(name)
        numbers, known = lane.stats.numbers(name)
        present = lane.stats.present(name)
        for row, stats in enumerate(theirs):
            shared = lane.about(int(lane.labels.codes[row]))
            if not present[row]:
                assert stats.get(name) == shared.get(name)
                continue
            value = stats[name]
            if isinstance(value, int):
                # 64 bits: unsigned ones above 2^63 come out negative.
                assert known[row]
                assert int(numbers[row]) % (1 << 64) == value % (1 << 64)
            elif texts.codes[row] != NONE:
                assert texts[row] == value
            else:
                assert isinstance(value, float | str | bytes)


@pytest.mark.parametrize("name", RECORDED)
def test_every_event_of_a_recording_is_as_jax_reads_it(fixtures_dir, tmp_path, name):
    content = (fixtures_dir / "xplane" / f"{name}.xplane.pb").read_bytes()
    assert _agree(content, tmp_path / "h.xplane.pb") > 50


VALUES = st.one_of(
    st.integers(-(1 << 63), (1 << 64) - 1),
    st.floats(allow_nan=False),
    st.text(st.characters(codec="ascii", min_codepoint=32), max_size=300),
    st.sampled_from(["kept once", "and another"]).map(Reference),
)
EVENTS = st.tuples(
    st.sampled_from(["fusion.1", "dot", "Kernel<int>", "x" * 300]),
    st.integers(0, 1 << 50),
    st.integers(0, 1 << 50),
    st.dictionaries(st.sampled_from(["correlation_id", "hlo_op", "run_id", "other"]), VALUES),
)
LINES = st.tuples(st.lists(EVENTS, min_size=1, max_size=12), st.integers(0, 1 << 30))


@settings(deadline=None, max_examples=60)
@given(st.lists(st.lists(LINES, min_size=1, max_size=3), min_size=1, max_size=3), st.booleans())
def test_every_event_of_any_file_is_as_jax_reads_it(tmp_path_factory, planes, high_ids):
    written = []
    for ordinal, lines in enumerate(planes):
        plane = PlaneWriter(f"/device:GPU:{ordinal}", 1000 if high_ids else 1)
        for number, (events, timestamp) in enumerate(lines):
            body = [plane.event(n, begin, length, **stats) for n, begin, length, stats in events]
            plane.line(f"Stream #{number}", body, timestamp, number)
        written.append(plane)
    path = tmp_path_factory.mktemp("any") / "h.xplane.pb"
    wanted = sum(len(events) for lines in planes for events, _ in lines)
    assert _agree(space(*written), path) == wanted
