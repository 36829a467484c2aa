"""What is kept of a capture, and when it is believed."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys

import pytest

from hloscope.capture import CaptureRequest, capture, parse_source
from hloscope.capture import cache as cache_module

pytestmark = pytest.mark.usefixtures("own_cache")

STEP = """
import jax.numpy as jnp
import helper
step = (lambda x: x * helper.FACTOR, (jnp.ones(4),))
"""


@pytest.fixture(autouse=True)
def project(write_file, tmp_path, monkeypatch):
    write_file("project/helper.py", "FACTOR = 2.0\n")
    write_file("project/train.py", STEP)
    monkeypatch.chdir(tmp_path / "project")
    return tmp_path / "project"


def run(phases=None, **options):
    request = CaptureRequest(parse_source("train.py"), **options)
    heard = [] if phases is None else phases
    return capture(request, progress=lambda event: heard.append(event.phase))


def test_the_second_capture_starts_no_worker_and_gives_the_same():
    first = run()
    phases = []
    second = run(phases)
    assert phases == []
    assert (first.cached, second.cached) == (False, True)
    assert second == first


def test_a_hit_does_not_import_jax():
    run()
    code = (
        "import sys\n"
        "from hloscope.capture import *\n"
        "artifact = capture(CaptureRequest(parse_source('train.py')))\n"
        "assert artifact.cached\n"
        "sys.exit('jax' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("changed", ["train.py", "helper.py"])
def test_a_change_to_the_file_or_to_what_it_imports_is_seen(project, changed):
    run()
    path = project / changed
    path.write_text(path.read_text().replace("2.0", "3.0").replace("ones(4)", "ones(5)"))
    again = run()
    assert not again.cached
    assert ("constant(3)" in again.hlo_text) == (changed == "helper.py")
    assert ("f32[5]" in again.hlo_text) == (changed == "train.py")


def test_a_change_of_equal_size_is_seen(project):
    before = run()
    (project / "helper.py").write_text("FACTOR = 7.0\n")
    after = run()
    assert "constant(7)" in after.hlo_text
    assert before.hlo_text != after.hlo_text


def test_data_that_the_step_reads_counts_as_its_source(project):
    (project / "factor.txt").write_text("2.0")
    (project / "helper.py").write_text("FACTOR = float(open('factor.txt').read())\n")
    run()
    assert run().cached
    (project / "factor.txt").write_text("5.0")
    assert "constant(5)" in run().hlo_text


def test_a_file_that_was_missing_and_now_is_there_is_seen(project):
    (project / "helper.py").write_text(
        "try:\n    FACTOR = float(open('factor.txt').read())\n"
        "except FileNotFoundError:\n    FACTOR = 2.0\n"
    )
    run()
    assert run().cached
    (project / "factor.txt").write_text("5.0")
    assert "constant(5)" in run().hlo_text


def test_a_listing_that_the_step_reads_counts_as_its_source(project):
    (project / "data").mkdir()
    (project / "helper.py").write_text("import os\nFACTOR = 2.0 + len(os.listdir('data'))\n")
    run()
    assert run().cached
    (project / "data" / "one").write_text("")
    assert "constant(3)" in run().hlo_text


def test_the_environment_counts_and_the_terminal_does_not(project, monkeypatch):
    (project / "helper.py").write_text("import os\nFACTOR = float(os.environ.get('FACTOR', 2))\n")
    run()
    monkeypatch.setenv("COLUMNS", "71")
    assert run().cached
    monkeypatch.setenv("FACTOR", "9")
    assert "constant(9)" in run().hlo_text


def test_the_target_and_the_options_are_part_of_the_key():
    run()
    assert not run(target="cpu:2").cached
    assert not run(compiler_options={"xla_cpu_enable_fast_math": True}).cached
    assert run().cached


def test_without_the_cache_nothing_is_read_or_written(own_cache):
    assert not run(use_cache=False).cached
    assert not own_cache.exists()
    run()
    assert not run(use_cache=False).cached


def test_a_program_that_is_known_is_not_compiled_again(project):
    first = run()
    # A comment at the end changes the file and not the program.
    (project / "train.py").write_text(STEP + "# nothing\n")
    phases = []
    second = run(phases)
    assert second.cached
    assert "lower" in phases
    assert "compile" not in phases
    assert second.hlo_text == first.hlo_text
    assert second.timings["compile"] == first.timings["compile"]


def test_a_role_that_changes_is_seen_though_the_program_stays(project):
    text = STEP.replace("step = (", "from hloscope.capture import Step\nstep = Step(")
    (project / "train.py").write_text(text)
    assert run().signature.inputs[0].role == "batch"
    (project / "train.py").write_text(text.replace("),))", "),), roles={0: 'frozen'})"))
    assert run().signature.inputs[0].role == "frozen"


def test_a_damaged_entry_is_passed_over_and_replaced(own_cache):
    first = run()
    for path in own_cache.rglob("*.hloscope"):
        path.write_bytes(path.read_bytes()[:100])
    second = run()
    assert not second.cached
    assert second.hlo_text == first.hlo_text
    for path in own_cache.rglob("*.json"):
        path.write_text("{")
    assert run().hlo_text == first.hlo_text
    assert run().cached


def test_a_cache_that_cannot_be_written_costs_only_the_cache(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("HLOSCOPE_CACHE_DIR", str(tmp_path / "file" / "below"))
    assert not run().cached


def test_what_was_used_longest_ago_goes_first(mlp_on_cpu, tmp_path, monkeypatch):
    programs = cache_module.ProgramCache(tmp_path)
    programs.put("a" * 64, mlp_on_cpu)
    size = next((tmp_path / "programs").iterdir()).stat().st_size
    monkeypatch.setattr(cache_module, "MAX_BYTES", 2 * size + size // 2)
    for age, key in ((300, "a"), (200, "b"), (100, "c")):
        programs.put(key * 64, mlp_on_cpu)
        path = tmp_path / "programs" / f"{key * 64}.hloscope"
        past = path.stat().st_mtime - age
        os.utime(path, (past, past))
    programs.put("d" * 64, mlp_on_cpu)
    left = {path.name[0] for path in (tmp_path / "programs").iterdir()}
    assert left == {"c", "d"}


def test_an_entry_comes_back_as_it_went_in(mlp_on_cpu, tmp_path):
    programs = cache_module.ProgramCache(tmp_path)
    assert programs.get("0" * 64) is None
    programs.put("0" * 64, mlp_on_cpu)
    assert programs.get("0" * 64) == dataclasses.replace(mlp_on_cpu, cached=True)
