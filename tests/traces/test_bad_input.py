"""Files that are no profile, and folders without one: one message, and what to do then."""

import gzip
import json
import os
import random
import re
import subprocess
import sys

import pytest
from oracles.bad_files import RECORDED, gpu_plane
from oracles.xspaces import message, space, varint

import hloscope
from hloscope.errors import InputError, UsageError
from hloscope.traces.reading import read_recording, read_trace


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "the file is empty"),
        (b"\xff\xd8\xff\xe0\0\x10JFIF\0" * 9, "a picture"),
        (b"some words, and a few more\n" * 9, "but text"),
        (b"HloModule jit_f\n\nENTRY main {\n}\n", "HLO text"),
        (b'{"traceEvents": []}', "but JSON"),
        (b"\x08\x01" * 50, "no whole XSpace"),
        (bytes(500), "no whole XSpace"),
        (b"\xff" * 500, "no whole XSpace"),
        (message(5, b"abc"), "which an XSpace has not"),
        (message(1, b"") * 5, "there is no event in it"),
        (varint(1 << 3 | 2) + varint((1 << 64) - 1) + b"abc", "no whole XSpace"),
        (varint(1 << 3 | 2) + varint(1 << 40) + b"abc", "no whole XSpace"),
    ],
)
def test_other_files_are_told_for_what_they_are(answered, content, said):
    answer = answered(content)
    assert isinstance(answer, InputError)
    assert said in answer.message


def test_a_compiled_program_is_told_for_what_it_is(fixtures_dir, answered):
    for path in (fixtures_dir / "hlo").glob("*.hlo_proto.pb"):
        assert "a compiled program (HloProto)" in answered(path.read_bytes()).message


def test_bytes_that_were_taken_for_text_are_told_for_what_they_are(fixtures_dir, answered):
    content = (fixtures_dir / "xplane" / "BROKEN_tpu_utf8_mangled.xplane.pb").read_bytes()
    assert "whose bytes were taken for text" in answered(content).message


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"[" * 100_000, "nested too deeply"),
        (b'{"traceEvents":[{"a":' + b"[" * 100_000, "nested too deeply"),
        (b"null", "no list traceEvents"),
        (b'{"traceEvents": {"a": 1}}', "no list traceEvents"),
        (b'{"traceEvents": []}', "there is no event"),
        (b"[1, 2, null]", "there is no event"),
        (b"\xff\xfe\x00", "no JSON"),
        (b'{"traceEvents": [{"ph": "X", "ts": 1' + b"0" * 5000 + b"}]}", "no JSON"),
    ],
)
def test_other_json_is_refused(answered, content, said):
    answer = answered(content, "h.trace.json")
    assert isinstance(answer, InputError)
    assert said in answer.message


def test_events_of_json_without_a_usable_place_or_time_are_left_out_and_counted(written):
    def event(**more):
        return {"ph": "X", "pid": 1, "tid": 2, "ts": 5, "dur": 1, "name": "k", **more}

    names = [
        {"ph": "M", "pid": 1, "name": "process_name", "args": {"name": "/device:GPU:0"}},
        {"ph": "M", "pid": 1, "tid": 2, "name": "thread_name", "args": {"name": "Stream #1"}},
        {"ph": "M", "pid": [1], "name": "process_name", "args": {"name": "x"}},
    ]
    wrong = [
        event(pid=[1]),
        event(tid={}),
        event(ts="5"),
        event(ts=None),
        event(ts=True),
        event(ts=float("nan")),
        event(ts=float("inf")),
        event(ts=10**400),
        event(ts=-(10**13)),
        event(dur=-1),
        event(dur=1e300),
        "no event",
    ]
    right = [
        event(),
        event(name=None, args=[]),
        event(ts=9, args={"correlation_id": "--5", "run_id": "²", "program_id": "9" * 30}),
        event(ts=2**53 + 1.5, args={"correlation_id": str((1 << 63) - 1)}),
    ]
    content = json.dumps({"traceEvents": [*names, *wrong[:6], *right, *wrong[6:]]}).encode()
    recording = read_recording(written(content, "h.trace.json"))
    (section,) = [section for section in recording.sections if section.lanes]
    assert sum(map(len, section.lanes)) == 3  # the largest time is too far
    assert f"{len(wrong) + 2} events without a place or a time: left out" in recording.notes
    numbers, known = section.lanes[0].stats.numbers("correlation_id")
    assert (numbers.tolist(), known.tolist()) == ([0, 0, 0], [False] * 3)


def _mangled(content, draw):
    """One file made of another: bits flipped, bytes cut, put in, or moved."""
    bytes_ = bytearray(content)
    for _ in range(draw.choice([1, 1, 2, 20])):
        at = draw.randrange(len(bytes_))
        how = draw.randrange(6)
        if how == 0:
            bytes_[at] ^= 1 << draw.randrange(8)
        elif how == 1:
            bytes_[at] = draw.randrange(256)
        elif how == 2:
            bytes_[at : at + 10] = b"\xff" * 10
        elif how == 3:
            bytes_[at:at] = draw.randbytes(draw.randrange(1, 9))
        elif how == 4:
            other = draw.randrange(len(bytes_))
            bytes_[at : at + 32] = bytes_[other : other + 32]
        else:
            del bytes_[draw.randrange(len(bytes_) // 2, len(bytes_)) :]
    return bytes(bytes_)


@pytest.mark.parametrize("seed", range(4))
def test_files_with_random_damage_are_refused_or_answered(fixtures_dir, answered, seed):
    draw = random.Random(seed)
    name = RECORDED[seed]
    real = (fixtures_dir / "xplane" / f"{name}.xplane.pb").read_bytes()
    small = space(gpu_plane(0), gpu_plane(1))
    answers = [answered(_mangled(draw.choice([small, real]), draw)) for _ in range(120)]
    read = [answer for answer in answers if not isinstance(answer, InputError)]
    assert 0 < len(read) < len(answers)
    for report in read:
        for table in report.tables:
            for row in table.rows:
                for cell in row:
                    value = getattr(cell, "value", None)
                    signed = getattr(cell, "name", "") == "to the usual"  # a difference
                    assert signed or isinstance(cell, str) or value is None or value >= 0
    json_ = (fixtures_dir / "chrome" / "tpu_2core_inference.trace.json.gz").read_bytes()
    for _ in range(10):
        answered(_mangled(json_[:20_000], draw), "h.trace.json.gz")


def test_a_run_of_which_one_host_is_broken_says_which(written):
    good = space(gpu_plane(0), hostnames=["a"])
    written(good, "plugins/profile/run/a.xplane.pb")
    written(good[:40], "plugins/profile/run/b.xplane.pb")
    path = written(b"", "plugins/profile/run/c.xplane.pb")
    os.mkfifo(path.with_name("d.xplane.pb"))
    path.with_name("e.xplane.pb").symlink_to("nowhere")
    trace = read_trace(path.parents[3])
    assert [host.host for host in trace.hosts] == ["a"]
    for name, why in (
        ("b", "cut off at byte 40"),
        ("c", "the file is empty"),
        ("d", "no plain file"),
        ("e", "cannot be read"),
    ):
        assert any(
            note.startswith(f"{name}.xplane.pb is left out") and why in note for note in trace.notes
        )


def test_what_is_no_plain_file_is_refused_and_never_waited_for(tmp_path):
    for name in ("pipe.xplane.pb", "pipe.trace.json"):
        os.mkfifo(tmp_path / name)
        with pytest.raises(InputError, match="no plain file"):
            hloscope.trace(tmp_path / name)


def test_links_to_nothing_and_to_themselves_are_told(tmp_path):
    (tmp_path / "a.xplane.pb").symlink_to(tmp_path / "gone")
    (tmp_path / "b.xplane.pb").symlink_to(tmp_path / "b.xplane.pb")
    for name in "ab":
        with pytest.raises(InputError, match=r"this links to .*, which is not there"):
            hloscope.trace(tmp_path / f"{name}.xplane.pb")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every file")
def test_files_and_folders_that_may_not_be_read_are_told(written):
    path = written(space(gpu_plane(0)))
    path.chmod(0)
    with pytest.raises(InputError, match="Permission denied"):
        hloscope.trace(path)
    path.parent.chmod(0)
    try:
        for place in (path, path.parent):
            with pytest.raises(InputError, match="Permission denied"):
                hloscope.trace(place)
    finally:
        path.parent.chmod(0o700)


@pytest.mark.parametrize("name", ["x" * 300 + ".xplane.pb", "a\0b.xplane.pb", "no.xplane.pb"])
def test_paths_that_cannot_be_are_told(tmp_path, name):
    with pytest.raises(InputError) as caught:
        hloscope.trace(tmp_path / name)
    assert caught.value.hint


def test_folders_without_a_recording_say_what_they_lack(tmp_path, written):
    with pytest.raises(InputError, match="nothing was recorded here"):
        hloscope.trace(tmp_path)
    run = tmp_path / "plugins" / "profile" / "2026_01_01"
    run.mkdir(parents=True)
    with pytest.raises(InputError, match="the run 2026_01_01 holds no file yet"):
        hloscope.trace(tmp_path)
    written(space(gpu_plane(0)), "plugins/profile/2026_01_02/h.xplane.pb")
    os.utime(run, (2e9 * 2, 2e9 * 2))
    notes = hloscope.trace(tmp_path).notes
    assert "the run 2026_01_01 is newer, and holds no file yet" in notes


def test_where_the_newest_run_is_empty_an_older_one_is_offered(tmp_path, written):
    written(space(gpu_plane(0)), "plugins/profile/old/h.xplane.pb")
    new = written(b"", "plugins/profile/new/h.xplane.pb")
    os.utime(new, (4e9, 4e9))
    with pytest.raises(InputError) as caught:
        hloscope.trace(tmp_path)
    assert "--run old" in caught.value.hint
    assert hloscope.trace(tmp_path, run="old").summary
    with pytest.raises(UsageError, match="no run has the name"):
        hloscope.trace(tmp_path, run="other")


@pytest.mark.slow
def test_the_command_exits_with_2_and_one_message_and_with_0_for_a_part(fixtures_dir, written):
    def run(path):
        command = [sys.executable, "-m", "hloscope", "trace", str(path)]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    broken = fixtures_dir / "xplane" / "BROKEN_tpu_utf8_mangled.xplane.pb"
    done = run(broken)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"error: {broken}: ")
    assert "\nhint: " in done.stderr
    assert "Traceback" not in done.stderr
    pipe = written(b"", "x/y.xplane.pb").with_name("pipe.xplane.pb")
    os.mkfifo(pipe)
    assert run(pipe).returncode == 2
    content = space(gpu_plane(0), gpu_plane(1))
    done = run(written(content[:-30]))
    assert done.returncode == 0
    assert "partial  the file is cut off at byte" in re.sub(r" {2,}", "  ", done.stdout)


def test_a_packed_file_of_no_end_is_refused(answered, monkeypatch):
    monkeypatch.setattr("hloscope.traces.files._MOST", 1 << 22)
    packed = gzip.compress(bytes(1 << 20)) * 6
    found = answered(packed, "h.xplane.pb.gz")
    assert isinstance(found, InputError)
    assert found.message == "it unpacks to more than 4.00 MiB"
