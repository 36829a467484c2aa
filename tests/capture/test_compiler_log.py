"""Keeping what the compiler says on standard error."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from hloscope.capture.stages import standard_error_in

CRASH = """
import os, sys
from pathlib import Path
from hloscope.capture.stages import standard_error_in
with standard_error_in(Path(sys.argv[1])):
    os.write(2, b"last words")
    os._exit(7)
"""


def test_what_is_said_is_in_the_file_and_said_again_after(tmp_path, capfd):
    with standard_error_in(tmp_path / "log"):
        os.write(2, b"slow\n")
        assert capfd.readouterr().err == ""
    os.write(2, b"more\n")
    assert (tmp_path / "log").read_bytes() == b"slow\n"
    assert capfd.readouterr().err == "slow\nmore\n"


def test_an_error_on_the_way_gives_standard_error_back(tmp_path, capfd):
    def fail() -> None:
        with standard_error_in(tmp_path / "log"):
            os.write(2, b"before\n")
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        fail()
    os.write(2, b"after\n")
    assert capfd.readouterr().err == "before\nafter\n"


def test_what_a_process_said_outlives_it(tmp_path):
    log = tmp_path / "log"
    done = subprocess.run([sys.executable, "-c", CRASH, str(log)], check=False)
    assert done.returncode == 7
    assert log.read_text() == "last words"
