"""Fixtures that every folder of tests shares."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from hloscope.capture import Artifact, CaptureRequest, Source, SourceKind, capture
from hloscope.capture.plugins import find_plugins
from hloscope.chips import parse_target
from hloscope.errors import TargetError

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
