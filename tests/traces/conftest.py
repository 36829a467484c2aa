"""Recordings that are written for a test."""

import pytest
from oracles.bad_files import answer
from oracles.xspaces import space

from hloscope.traces.reading import read_recording, read_trace


@pytest.fixture
def recorded_as(tmp_path):
    """The recording of some planes."""

    def write(*planes):
        path = tmp_path / "h.xplane.pb"
        path.write_bytes(space(*planes))
        return read_recording(path)

    return write


@pytest.fixture
def trace_of(tmp_path):
    """The summary of some planes, or of several hosts' planes by the host's name."""

    def write(*planes, **hosts):
        folder = tmp_path / "plugins" / "profile" / "run"
        folder.mkdir(parents=True)
        for host, theirs in (hosts or {"h": planes}).items():
            (folder / f"{host}.xplane.pb").write_bytes(space(*theirs, hostnames=(host,)))
        return read_trace(tmp_path)

    return write


@pytest.fixture
def written(tmp_path):
    """A file of some bytes."""

    def write(content, name="h.xplane.pb"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        return path

    return write


@pytest.fixture
def answered(written):
    """What the command says of some bytes: a report, or why there is none."""
    return lambda content, name="h.xplane.pb": answer(written(content, name))
