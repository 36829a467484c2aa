import numpy as np
import pytest

import hloscope
from hloscope.errors import Unavailable
from hloscope.pipeline.rules import Limits

MIB = 1 << 20
FOLDED = """
TABLE = np.random.default_rng(0).normal(size=(1024, 512)).astype(np.float32)

def run(x):
    return x + {table}

step = Step(run, (shape(1024, 512),))
"""


def test_what_xla_computes_from_a_constant_is_found(found_in):
    (finding,) = found_in("HS303", FOLDED.format(table="jnp.asarray(TABLE)[::-1]"))
    assert finding.message == "XLA folded operations on constants into f32[1024,512]"
    assert finding.cost.value == 1024 * 512 * 4
    assert finding.notes == (
        "known because no array of the jaxpr has its contents",
        "the only closed-over array with as many elements is TABLE",
    )
    # It is no array that the step closed over, so HS301 leaves it to this rule.
    assert found_in("HS301", FOLDED.format(table="jnp.asarray(TABLE)[::-1]")) == ()


def test_an_array_that_is_used_as_it_is_was_not_folded(found_in):
    assert found_in("HS303", FOLDED.format(table="TABLE")) == ()
    (finding,) = found_in("HS301", FOLDED.format(table="TABLE"))
    assert finding.message == "TABLE (f32[1024,512]) is baked into the executable"


def test_a_sum_that_is_computed_in_the_step_is_quiet(found_in):
    assert found_in("HS303", FOLDED.format(table="jnp.arange(512, dtype=x.dtype)")) == ()


def test_folds_below_the_limit_are_quiet(found_in):
    limits = Limits(constant_bytes=4 << 20)
    code = FOLDED.format(table="jnp.asarray(TABLE)[::-1]")
    assert found_in("HS303", code, limits=limits) == ()


def test_a_dump_cannot_tell(findings_of):
    text = "HloModule m\nENTRY e { ROOT c = f32[512,1024] constant({...}) }"
    with pytest.raises(Unavailable, match="cannot be told from others"):
        findings_of("HS303", text)


@pytest.mark.parametrize(
    ("target", "shape", "change"),
    [
        ("cpu", "f32[1024,1024]", "rounded to bf16 and back"),
        ("v5e:2x2", "bf16[1024,1024]", "rounded to bf16"),
    ],
)
def test_a_table_that_is_only_rounded_for_a_product_is_known_by_name(
    found_in, target, shape, change
):
    code = """
    TABLE = np.random.default_rng(0).normal(size=(1024, 1024)).astype(np.float32)
    OTHER = np.zeros_like(TABLE)
    step = Step(lambda x: x @ TABLE.astype(jnp.bfloat16), (shape(64, 1024, dtype="bfloat16"),))
    """.replace("TABLE.astype", "jnp.asarray(TABLE).astype")
    (finding,) = found_in("HS303", code, target)
    assert finding.message == f"XLA folded operations on TABLE into {shape}"
    assert finding.notes == (f"known because the array of that name, {change}, has its contents",)
    assert (finding.site.file, finding.site.line is not None) == ("train.py", True)
    assert "Pass TABLE to the step" in finding.fix


@pytest.mark.parametrize("target", ["cpu", "h100"])
def test_a_table_that_is_only_transposed_is_known_by_name(found_in, target):
    code = """
    TABLE = np.random.default_rng(0).normal(size=(1024, 1024)).astype(np.float32)
    step = Step(lambda x: jnp.sin(x) + jnp.asarray(TABLE).T, (shape(1024, 1024),))
    """
    (finding,) = found_in("HS303", code, target)
    assert finding.message == "XLA folded operations on TABLE into f32[1024,1024]"
    assert "transposed" in finding.notes[0]


def dumped(folder, function):
    """What ``--xla_dump_to`` writes of a function: its module before and after optimization."""
    jax = pytest.importorskip("jax")
    from jaxlib import _hlo

    lowered = jax.jit(function).lower(jax.ShapeDtypeStruct((1024, 512), "float32"))
    options = _hlo.HloPrintOptions()
    options.print_large_constants = False
    options.print_metadata = True
    before = lowered.compiler_ir("hlo").as_hlo_module().to_string(options)
    name = "module_0001.jit_run"
    (folder / f"{name}.before_optimizations.txt").write_text(before)
    (folder / f"{name}.cpu_after_optimizations.txt").write_text(lowered.compile().as_text())
    return str(folder)


def half_folded(x):
    import jax.numpy as jnp

    table = jnp.asarray(np.random.default_rng(0).normal(size=(512, 512)).astype(np.float32))
    return x + jnp.concatenate([table, jnp.sin(table)])  # 1 MiB before, 2 MiB after


def verdicts(source):
    findings = hloscope.audit(source).findings
    return [f for f in findings if f.code in ("HS301", "HS303")]


def test_a_dump_with_the_module_before_optimization_tells_what_was_folded(tmp_path):
    (finding,) = verdicts(dumped(tmp_path, half_folded))
    assert (finding.code, finding.cost.value) == ("HS303", 2 * MIB)
    assert finding.notes[0] == (
        "known because no constant before optimization has its type and size"
    )
    assert finding.site.file.endswith("test_folded_constant.py")


def test_without_that_module_the_constant_is_left_to_the_other_rule(tmp_path):
    dumped(tmp_path, half_folded)
    (tmp_path / "module_0001.jit_run.before_optimizations.txt").unlink()
    (finding,) = verdicts(str(tmp_path))
    assert finding.code == "HS301"


def test_a_constant_as_large_as_one_before_optimization_may_be_that_one(tmp_path):
    table = np.random.default_rng(0).normal(size=(1024, 512)).astype(np.float32)
    (finding,) = verdicts(dumped(tmp_path, lambda x: x + table))
    assert finding.code == "HS301"


def test_a_broken_module_before_optimization_costs_the_verdict_and_nothing_else(tmp_path):
    dumped(tmp_path, half_folded)
    (tmp_path / "module_0001.jit_run.before_optimizations.txt").write_text("HloModule x\n{")
    (finding,) = verdicts(str(tmp_path))
    assert finding.code == "HS301"
