"""Fixtures that every folder of tests shares."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from hloscope.capture import Artifact, CaptureRequest, Source, SourceKind, capture
from hloscope.capture.plugins import find_plugins
from hloscope.chips import parse_target
from hloscope.errors import TargetError
from hloscope.traces.reading import read_trace
from hloscope.traces.summary import Trace

ROOT = Path(__file__).resolve().parent.parent
NO_SKIPPED_TARGETS = "HLOSCOPE_TEST_NO_SKIPPED_TARGETS"

CaptureArch = Callable[..., Artifact]


@pytest.fixture(scope="session")
def fixtures_dir() -> Path:
    """Dumps and traces recorded by other people, kept beside the repository."""
    folder = ROOT.parent / "shared" / "fixtures"
    if not folder.is_dir():
        pytest.skip("the recorded dumps (shared/fixtures beside the repository) are not here")
    return folder


@pytest.fixture(scope="session")
def need_target() -> Callable[[str], None]:
    """Skip where a target's plug-in is not installed; where CI says so, fail instead."""

    def need(target: str) -> None:
        try:
            find_plugins(parse_target(target))
        except TargetError as error:
            if os.environ.get(NO_SKIPPED_TARGETS):
                pytest.fail(f"{NO_SKIPPED_TARGETS} is set, but {error.message}")
            pytest.skip(f"{error.message}: {error.hint}")

    return need


@pytest.fixture(scope="session")
def capture_arch(need_target: Callable[[str], None]) -> CaptureArch:
    """Capture one of hloscope's architectures; each is compiled once a session."""
    done: dict[tuple[object, ...], Artifact] = {}

    def get(arch: str, target: str = "cpu", preset: str = "smoke", **mesh: int) -> Artifact:
        key = (arch, target, preset, tuple(mesh.items()))
        if key not in done:
            need_target(target)
            source = Source(SourceKind.ARCH, arch)
            done[key] = capture(CaptureRequest(source, target=target, preset=preset, mesh=mesh))
        return done[key]

    return get


@pytest.fixture(scope="session")
def recorded_loop(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Trace]:
    """Loops that ran on this machine's CPU, by their names in ``oracles/record_loops.py``."""
    folder = tmp_path_factory.mktemp("loops")
    script = Path(__file__).parent / "oracles" / "record_loops.py"
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    subprocess.run([sys.executable, script, folder], check=True, env=environment, timeout=300)
    return lambda name: read_trace(folder / name)
