"""HS803: long compiles of which nothing is kept."""

from __future__ import annotations

import pytest

from hloscope.errors import Unavailable
from hloscope.pipeline.inputs import CompilerSetup, CompileTimes
from hloscope.pipeline.rules import Limits

PLAIN = "step = Step(lambda x: x + 1, (shape(8),))"
AT_IMPORT = f'jax.config.update("jax_compilation_cache_dir", "somewhere")\n{PLAIN}'
IN_MAIN = f"""
def main():
    jax.config.update("jax_compilation_cache_dir", "somewhere")
{PLAIN}"""
ANY_TIME = Limits(compile_seconds=0.0)


def test_a_program_without_a_cache_is_found_once_it_compiles_for_long(found_in):
    (finding,) = found_in("HS803", PLAIN, limits=ANY_TIME)
    assert finding.cost.value > 0
    assert found_in("HS803", PLAIN, limits=Limits(compile_seconds=1e6)) == ()


@pytest.mark.parametrize("code", [AT_IMPORT, IN_MAIN])
def test_a_module_that_sets_the_cache_up_is_left_alone(found_in, code):
    assert found_in("HS803", code, limits=ANY_TIME) == ()


def test_a_cache_that_the_environment_sets_up_is_seen(found_in, monkeypatch, tmp_path):
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(tmp_path / "cache"))
    assert found_in("HS803", PLAIN, limits=ANY_TIME) == ()


def test_an_architecture_of_hloscopes_own_is_not_checked(findings_of):
    text = "HloModule m\nENTRY e { ROOT p = f32[] parameter(0) }"
    with pytest.raises(Unavailable, match="no program of the user's"):
        findings_of("HS803", text, CompileTimes(1.0, 1.0, 60.0), CompilerSetup((), None))
    assert findings_of("HS803", text, CompileTimes(1.0, 1.0, 6.0), CompilerSetup((), None)) == ()
