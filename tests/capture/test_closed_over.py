import functools
import hashlib

import jax
import jax.numpy as jnp
import numpy as np

import hloscope
from hloscope.capture.artifact import Artifact
from hloscope.capture.closed_over import find_closed_over

GLOBAL = np.random.default_rng(0).normal(size=(64, 64)).astype(np.float32)
X = jax.ShapeDtypeStruct((64, 64), "float32")


def arrays_of(function, *arguments):
    jitted = function if hasattr(function, "trace") else jax.jit(function)
    traced = jitted.trace(*(arguments or (X,)))
    return find_closed_over(function, traced, traced.lower()).arrays


def fresh(seed):
    return jnp.asarray(np.random.default_rng(seed).normal(size=(64, 64)), "float32")


def test_a_global_is_named_and_known_by_its_contents():
    (array,) = arrays_of(lambda x: x + GLOBAL)
    assert array.names == ("GLOBAL",)
    assert (array.dtype, array.dimensions, array.bytes) == ("f32", (64, 64), 64 * 64 * 4)
    assert array.digest == hashlib.sha256(GLOBAL.tobytes()).hexdigest()
    assert array.file.endswith("test_closed_over.py")
    assert array.parameters == ()


def test_closures_containers_and_attributes_are_named_by_their_path():
    class Layer:
        def __init__(self):
            self.bias = fresh(1)

    tables, layer = {"sin": fresh(2)}, Layer()

    def step(x):
        return x @ tables["sin"] + layer.bias

    assert {array.names for array in arrays_of(step)} == {("tables['sin']",), ("layer.bias",)}


def test_methods_partials_and_jitted_functions_are_looked_into():
    class Model:
        def __init__(self):
            self.weight = fresh(3)

        def __call__(self, x):
            return x @ self.weight

    (array,) = arrays_of(Model().__call__)
    assert array.names == ("self.weight",)
    (array,) = arrays_of(functools.partial(lambda x, *, table: x + table, table=fresh(4)))
    assert array.names == ("table",)
    (array,) = arrays_of(jax.jit(lambda x: x + GLOBAL))
    assert array.names == ("GLOBAL",)


def test_a_double_that_jax_narrowed_is_still_named():
    wide = np.random.default_rng(5).normal(size=(64, 64))
    (array,) = arrays_of(lambda x: x + wide)
    assert (array.dtype, array.names) == ("f32", ("wide",))


def test_what_is_made_while_tracing_has_no_name():
    (array,) = arrays_of(lambda x: x + GLOBAL * 3)
    assert array.names == ()


def test_an_array_that_a_scan_reads_is_found_once():
    def step(x):
        y, _ = jax.lax.scan(lambda c, _: (c + GLOBAL, None), x, None, length=3)
        return y

    (array,) = arrays_of(step)
    assert array.names == ("GLOBAL",)


def test_small_arrays_and_arguments_are_left_out():
    small = np.arange(8, dtype=np.float32)
    assert arrays_of(lambda x: x[0, :8] + small) == ()
    assert arrays_of(lambda x, table: x + table, X, X) == ()


HOISTING = """
import jax, jax.numpy as jnp, numpy as np
from hloscope import Step

TABLE = jnp.asarray(np.random.default_rng(0).normal(size=(512, 512)), "float32")

def run(state, x):
    return state + x * 2 + TABLE * x

step = Step(run, (jax.ShapeDtypeStruct((512, 512), "float32"),) * 2, donate=(0,))
"""


def test_what_jax_hoists_names_its_parameter(tmp_path, monkeypatch):
    monkeypatch.setenv("JAX_USE_SIMPLIFIED_JAXPR_CONSTANTS", "1")
    file = tmp_path / "train.py"
    file.write_text(HOISTING)
    subject = hloscope.load(f"{file}:step")
    (array,) = subject.artifact.closed_over.arrays
    assert (array.names, array.parameters) == (("TABLE",), (0,))
    (hoisted,) = (t for t in hloscope.constants(subject).tables if t.name == "hoisted")
    assert hoisted.rows[0][2:4] == ("TABLE", "0")
    (parameters,) = (t for t in hloscope.alias(subject).tables if t.name == "parameters")
    assert ("TABLE", "no") in [(row[0], row[3]) for row in parameters.rows]


def test_an_artifact_keeps_them(tmp_path, monkeypatch):
    monkeypatch.delenv("JAX_USE_SIMPLIFIED_JAXPR_CONSTANTS", raising=False)
    file = tmp_path / "train.py"
    file.write_text(HOISTING)
    artifact = hloscope.load(f"{file}:step").artifact
    artifact.save(tmp_path / "step.hloscope")
    loaded = Artifact.load(tmp_path / "step.hloscope")
    assert loaded.closed_over == artifact.closed_over
    assert [array.names for array in loaded.closed_over.arrays] == [("TABLE",)]
