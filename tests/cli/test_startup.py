import subprocess
import sys

import pytest

HEAVY = (
    "jax",
    "jaxlib",
    "flax",
    "graphviz",
    "networkx",
    "numpy",
    "rich",
    "google.protobuf",
    "hloscope.models",
)

PROBE = """
import sys
from hloscope.cli import main
code = main(sys.argv[1:])
heavy = {heavy!r}
loaded = [name for name in heavy if name in sys.modules]
print(loaded, file=sys.stderr)
sys.exit(code)
"""


def probe(*arguments):
    return subprocess.run(
        [sys.executable, "-c", PROBE.format(heavy=HEAVY), *arguments],
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["--version"],
        ["audit", "--help"],
        ["check", "--help"],
        ["draw", "--help"],
        ["kernels", "--help"],
        ["bench", "--help"],
        ["check", "donation", "--help"],
        ["targets", "--help"],
        ["targets", "install", "--help"],
        ["explain", "--help"],
        ["trace", "--help"],
    ],
)
def test_help_loads_nothing_heavy(arguments):
    done = probe(*arguments)
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines()[-1] == "[]"
    assert done.stdout


def test_importing_the_package_loads_none_of_its_parts():
    code = "import sys, hloscope; print([m for m in sys.modules if m.startswith('hloscope.')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_closed_pipe_is_quiet():
    done = subprocess.run(
        ["bash", "-c", f"{sys.executable} -m hloscope archs | true; exit ${{PIPESTATUS[0]}}"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (0, 141)  # 0 where all was written before the reader went
    assert done.stderr == ""
