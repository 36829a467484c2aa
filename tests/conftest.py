"""Fixtures that every folder of tests shares."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def fixtures_dir() -> Path:
    """Dumps and traces recorded by other people, kept beside the repository."""
    folder = ROOT.parent / "shared" / "fixtures"
    if not folder.is_dir():
        pytest.skip("the recorded dumps (shared/fixtures beside the repository) are not here")
    return folder
