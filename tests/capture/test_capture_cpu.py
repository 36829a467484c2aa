"""One step captured for the CPU, held against what JAX itself says."""

from __future__ import annotations

import hashlib
import json
import re
import runpy

import numpy as np
import pytest

from hloscope.capture import Artifact, CaptureRequest, capture, parse_source
from hloscope.errors import CaptureError, UsageError
from hloscope.ir.scan import count_instructions
from hloscope.ir.signature import Role

_PARAMETER = re.compile(r"parameter\((\d+)\).*?op_name=\"((?:[^\"\\]|\\.)*)\"")


def entry_parameters(text):
    """Number to op_name of the entry's parameters, read off the text."""
    entry = text[text.index("\nENTRY ") :]
    return {int(n): name.replace("\\'", "'") for n, name in _PARAMETER.findall(entry)}


def aliased_parameters(text):
    header = text.partition("\n")[0]
    table = re.search(r"input_output_alias=\{(.*?) \}", header)
    return {int(n) for n in re.findall(r"\((\d+), \{\}", table[1])} if table else set()


def test_the_signature_numbers_parameters_as_the_module_does(mlp_on_cpu):
    by_number = {
        leaf.parameter: leaf.path
        for leaf in mlp_on_cpu.signature.inputs
        if leaf.parameter is not None
    }
    assert by_number == entry_parameters(mlp_on_cpu.hlo_text)


def test_a_dropped_argument_is_known_as_dropped(mlp_on_cpu):
    dropped = [leaf.path for leaf in mlp_on_cpu.signature.inputs if leaf.parameter is None]
    assert dropped == ["unused"]


def test_donation_asked_for_is_told_from_donation_granted(mlp_on_cpu):
    donated = {leaf.parameter for leaf in mlp_on_cpu.signature.inputs if leaf.donated}
    assert {leaf.path for leaf in mlp_on_cpu.signature.inputs if leaf.donated} == {
        "state['count']",
        "state['w']",
    }
    assert aliased_parameters(mlp_on_cpu.hlo_text) == donated


def test_roles_are_guessed_from_donation_names_and_dtypes(mlp_on_cpu):
    roles = {leaf.path: leaf.role for leaf in mlp_on_cpu.signature.inputs}
    assert roles == {
        "state['count']": Role.STATE,
        "state['w']": Role.STATE,
        "batch['x']": Role.BATCH,
        "batch['y']": Role.BATCH,
        "key": Role.RNG,
        "lr": Role.OTHER,
        "unused": Role.OTHER,
    }


def test_a_random_key_is_described_as_the_integers_that_xla_sees(mlp_on_cpu):
    key = next(leaf for leaf in mlp_on_cpu.signature.inputs if leaf.path == "key")
    assert (key.dtype, key.dimensions) == ("u32", (2,))


def test_results_are_named_and_numbered(mlp_on_cpu):
    assert [(leaf.path, leaf.index, leaf.dtype) for leaf in mlp_on_cpu.signature.outputs] == [
        ("[0]['count']", 0, "s32"),
        ("[0]['w']", 1, "f32"),
        ("[1]", 2, "f32"),
    ]


def test_the_module_and_its_costs_are_those_of_a_plain_jit(mlp_on_cpu, mlp_file):
    import jax

    names = runpy.run_path(str(mlp_file))
    compiled = jax.jit(names["train"], donate_argnums=0).lower(*names["ARGS"]).compile()

    def without_locations(text):
        text = re.sub(r"\n(FileNames|FunctionNames|FileLocations|StackFrames)\n(.+\n)+", "", text)
        return re.sub(r" ?stack_frame_id=\d+", "", text)

    assert without_locations(mlp_on_cpu.hlo_text) == without_locations(compiled.as_text())
    assert mlp_on_cpu.xla_cost["flops"] == compiled.cost_analysis()["flops"]
    memory = compiled.memory_analysis()
    assert mlp_on_cpu.xla_memory["temp_size_in_bytes"] == memory.temp_size_in_bytes
    assert mlp_on_cpu.xla_memory["alias_size_in_bytes"] == 8 * 8 * 4 + 4


def test_an_elided_constant_is_described_by_its_contents(mlp_on_cpu):
    table = np.linspace(0.0, 1.0, 48, dtype=np.float32)
    assert "constant({...})" in mlp_on_cpu.hlo_text
    (literal,) = [fact for fact in mlp_on_cpu.literals if fact.dtype == "f32"]
    assert literal.dimensions == (6, 8)
    assert literal.kind == "data"
    assert literal.digest == hashlib.sha256(table.tobytes()).hexdigest()
    assert mlp_on_cpu.literals_note is None


def test_the_three_phases_are_timed_apart(mlp_on_cpu):
    assert set(mlp_on_cpu.timings) == {"trace", "lower", "compile"}
    assert all(seconds > 0 for seconds in mlp_on_cpu.timings.values())


def test_the_program_before_optimization_is_kept(mlp_on_cpu):
    assert mlp_on_cpu.lowered_text.startswith("HloModule jit_train")
    assert "dot(" in mlp_on_cpu.lowered_text
    assert "fusion(" not in mlp_on_cpu.lowered_text
    assert count_instructions(mlp_on_cpu.lowered_text) == mlp_on_cpu.lowered.num_instructions
    assert count_instructions(mlp_on_cpu.hlo_text) == mlp_on_cpu.module.num_instructions


def test_versions_and_target_are_recorded(mlp_on_cpu):
    import jax
    import jaxlib

    assert mlp_on_cpu.target == "cpu"
    assert mlp_on_cpu.device_kind == "cpu"
    assert mlp_on_cpu.versions["jax"] == jax.__version__
    assert mlp_on_cpu.versions["jaxlib"] == jaxlib.__version__
    assert mlp_on_cpu.name == "train"


def test_no_absolute_path_gets_into_an_artifact(mlp_on_cpu, mlp_file, tmp_path):
    mlp_on_cpu.save(tmp_path / "mlp.hloscope")
    document = json.dumps(Artifact.load(tmp_path / "mlp.hloscope")._document())
    for text in (mlp_on_cpu.hlo_text, mlp_on_cpu.lowered_text, document):
        assert str(mlp_file.parent) not in text
        assert "site-packages" not in text
        assert re.findall(r'"/[^"/]+/[^"]*"', text) == []
    assert '"train_mlp.py"' in mlp_on_cpu.hlo_text


def test_hloscope_leaves_no_frame_of_its_own(mlp_on_cpu):
    assert "capture/" not in mlp_on_cpu.hlo_text
    assert "stages.py" not in mlp_on_cpu.hlo_text
    assert "<frozen" not in mlp_on_cpu.hlo_text


@pytest.mark.parametrize("attribute", ["pair", "made", "on_devices"])
def test_a_step_comes_as_a_pair_or_from_a_function(mlp_file, attribute):
    artifact = capture(CaptureRequest(parse_source(f"{mlp_file}:{attribute}"), use_cache=False))
    assert artifact.name == ("on 1" if attribute == "on_devices" else "train")


def test_a_module_is_imported_from_the_current_folder(write_file, tmp_path, monkeypatch):
    write_file("pkg/__init__.py", "")
    write_file("pkg/scale.py", "FACTOR = 3.0")
    write_file(
        "pkg/steps.py",
        """
        import jax.numpy as jnp
        from .scale import FACTOR
        pair = (lambda x: x * FACTOR, (jnp.ones(4),))
        """,
    )
    monkeypatch.chdir(tmp_path)
    by_module = capture(CaptureRequest(parse_source("pkg.steps:pair"), use_cache=False))
    by_file = capture(CaptureRequest(parse_source("pkg/steps.py:pair"), use_cache=False))
    assert "multiply" in by_module.hlo_text
    assert by_file.hlo_text == by_module.hlo_text
    assert '"pkg/steps.py"' in by_file.hlo_text


def test_a_file_below_the_current_folder_is_named_from_there(write_file, tmp_path, monkeypatch):
    write_file(
        "examples/adds.py", "import jax.numpy as jnp\npair = (lambda x: x + 1, (jnp.ones(4),))"
    )
    monkeypatch.chdir(tmp_path)
    relative = capture(CaptureRequest(parse_source("examples/adds.py:pair"), use_cache=False))
    absolute = parse_source(f"{tmp_path}/examples/adds.py:pair")
    assert '"examples/adds.py"' in relative.hlo_text
    assert relative.source == "examples/adds.py:pair"
    assert capture(CaptureRequest(absolute, use_cache=False)).source == relative.source


def test_simulated_devices_share_a_mesh_that_the_step_builds(write_file):
    path = write_file(
        "meshed.py",
        """
        import jax, jax.numpy as jnp, numpy as np
        from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

        def make(devices):
            mesh = Mesh(np.array(devices).reshape(2, 2), ("a", "b"))
            x = jax.ShapeDtypeStruct((8, 8), jnp.float32, sharding=NamedSharding(mesh, P("a", "b")))
            return (lambda x, y: (x @ y).sum(), (x, jnp.ones((8, 8))))
        """,
    )
    artifact = capture(
        CaptureRequest(parse_source(f"{path}:make"), target="cpu:4", use_cache=False)
    )
    assert artifact.devices == 4
    assert "num_partitions=4" in artifact.hlo_text.partition("\n")[0]
    assert dict(artifact.mesh) == {"a": 2, "b": 2}
    assert "all-reduce" in artifact.hlo_text
    assert artifact.signature.inputs[0].dimensions == (8, 8)
    assert "'a', 'b'" in artifact.signature.inputs[0].sharding


def test_a_jitted_step_with_in_shardings_places_its_arguments_itself(write_file):
    path = write_file(
        "placed.py",
        """
        import jax, numpy as np
        from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

        def make(devices):
            rows = NamedSharding(Mesh(np.array(devices), ("x",)), P("x"))
            host = rows.with_memory_kind("pinned_host")
            jitted = jax.jit(
                lambda state, x: ({"w": state["w"] + x.sum(), "m": state["m"]}, x.mean()),
                donate_argnums=0,
                in_shardings=({"w": rows, "m": host}, rows),
                out_shardings=({"w": rows, "m": host}, None),
            )
            w, m = (jax.ShapeDtypeStruct((8, n), "float32") for n in (4, 6))
            return (jitted, ({"w": w, "m": m}, jax.ShapeDtypeStruct((8, 2), "float32")))
        """,
    )
    artifact = capture(
        CaptureRequest(parse_source(f"{path}:make"), target="cpu:4", use_cache=False)
    )
    leaves = {leaf.path: leaf for leaf in artifact.signature.inputs}
    assert "'x'" in leaves["state['w']"].sharding
    assert leaves["state['m']"].memory_kind == "pinned_host"
    assert [out.memory_kind for out in artifact.signature.outputs[:2]] == ["pinned_host", "device"]
    assert len(artifact.module.input_output_alias) == 2


def test_the_memory_and_the_layout_that_an_argument_asks_for_are_kept():
    import jax
    from jax.experimental.layout import Format, Layout
    from jax.sharding import SingleDeviceSharding

    from hloscope.capture.abstraction import abstract_arguments

    device = jax.devices("cpu")[0]
    host = SingleDeviceSharding(device, memory_kind="pinned_host")
    turned = Format(Layout((1, 0)), SingleDeviceSharding(device))

    def shape(**more):
        return jax.ShapeDtypeStruct((4, 6), "float32", **more)

    for present in (True, False):
        (plain, parked, laid), _ = abstract_arguments(
            (shape(), shape(sharding=host), shape(sharding=turned)),
            {},
            (),
            [device],
            mesh=None,
            present=present,
            scalars=True,
        )
        assert (plain.sharding is None) == present
        assert parked.sharding.memory_kind == "pinned_host"
        assert laid.format.layout.major_to_minor == (1, 0)


def test_a_mesh_is_handed_to_a_step_that_takes_one(write_file):
    path = write_file(
        "handed.py",
        """
        import jax, jax.numpy as jnp
        from jax.sharding import NamedSharding, PartitionSpec as P

        def make(mesh):
            x = jax.ShapeDtypeStruct((8,), jnp.float32, sharding=NamedSharding(mesh, P("data")))
            return (lambda x: x.sum(), (x,))

        plain = (lambda x: x + 1, (jnp.ones(8),))
        """,
    )
    request = {"target": "cpu:4", "mesh": {"data": 4}, "use_cache": False}
    artifact = capture(CaptureRequest(parse_source(f"{path}:make"), **request))
    assert artifact.mesh == {"data": 4}
    assert "f32[2]" in artifact.hlo_text
    with pytest.raises(UsageError, match="does not take one"):
        capture(CaptureRequest(parse_source(f"{path}:plain"), **request))


def test_compiler_options_reach_the_compiler(mlp_file):
    source = parse_source(f"{mlp_file}:step")
    option = {"xla_cpu_enable_fast_math": True}
    artifact = capture(CaptureRequest(source, compiler_options=option, use_cache=False))
    assert artifact.flags["xla_cpu_enable_fast_math"] == "True"
    with pytest.raises(UsageError, match="refuses a compiler option") as caught:
        capture(CaptureRequest(source, compiler_options={"xla_no_such": 1}, use_cache=False))
    assert "xla_no_such" in str(caught.value)


def test_nothing_of_the_arguments_real_size_is_allocated(write_file):
    # A quarter of a terabyte an argument: more than a machine that runs tests has.
    path = write_file(
        "huge.py",
        """
        import jax, jax.numpy as jnp
        x = jax.ShapeDtypeStruct((2**36,), jnp.float32)
        pair = (lambda x: x + 1, (x,))
        """,
    )
    artifact = capture(CaptureRequest(parse_source(f"{path}:pair"), use_cache=False))
    assert artifact.xla_memory["argument_size_in_bytes"] == 4 * 2**36


def test_ordering_tokens_do_not_shift_the_numbers(write_file):
    path = write_file(
        "ordered.py",
        """
        import jax, jax.numpy as jnp

        def fn(s, unused, x):
            jax.debug.print("{}", x.sum(), ordered=True)
            return s + 1, x * 2

        pair = (fn, (jnp.ones(4), jnp.ones(2), jnp.ones(3)))
        """,
    )
    artifact = capture(CaptureRequest(parse_source(f"{path}:pair"), use_cache=False))
    names = entry_parameters(artifact.hlo_text)
    for leaf in artifact.signature.inputs:
        if leaf.parameter is not None:
            assert names[leaf.parameter] == leaf.path
    # Parameter 0 and result 0 are the token.
    assert [leaf.parameter for leaf in artifact.signature.inputs] == [1, None, 2]
    assert [leaf.index for leaf in artifact.signature.outputs] == [1, 2]


def test_what_jax_warns_of_while_tracing_is_kept(write_file):
    path = write_file(
        "warning.py",
        """
        import warnings
        import jax.numpy as jnp

        def fn(x):
            warnings.warn("the shapes look odd")
            return x + 1

        pair = (fn, (jnp.ones(3),))
        """,
    )
    artifact = capture(CaptureRequest(parse_source(f"{path}:pair"), use_cache=False))
    assert artifact.warnings == ("the shapes look odd",)


def test_an_nnx_step_is_named_by_its_modules(write_file):
    path = write_file(
        "nnx_step.py",
        """
        import jax.numpy as jnp, optax
        from flax import nnx

        model = nnx.Linear(4, 2, rngs=nnx.Rngs(0))
        optimizer = nnx.Optimizer(model, optax.sgd(0.1, momentum=0.9), wrt=nnx.Param)

        @nnx.jit(donate_argnums=(0, 1))
        def train(model, optimizer, x):
            loss, grads = nnx.value_and_grad(lambda m: jnp.mean(m(x) ** 2))(model)
            optimizer.update(model, grads)
            return loss

        pair = (train, (model, optimizer, jnp.ones((3, 4))))
        """,
    )
    artifact = capture(CaptureRequest(parse_source(f"{path}:pair"), use_cache=False))
    paths = {leaf.path: leaf for leaf in artifact.signature.inputs}
    assert paths["model.kernel"].dimensions == (4, 2)
    assert paths["model.kernel"].role is Role.STATE
    # The new values come back under the names of the old ones.
    results = {leaf.path: leaf.dimensions for leaf in artifact.signature.outputs}
    assert results["[0][0].kernel"] == (4, 2)
    assert results["[0][1].opt_state[0].trace['kernel']"] == (4, 2)
    assert aliased_parameters(artifact.hlo_text) == {
        leaf.parameter for leaf in paths.values() if leaf.donated
    }


def test_a_function_that_only_lowers_has_no_time_of_tracing(write_file):
    path = write_file(
        "only_lowers.py",
        """
        import jax, jax.numpy as jnp

        class Wrapped:
            __name__ = "wrapped"
            def __call__(self, x):
                return x + 1
            def lower(self, x):
                return jax.jit(self.__call__).lower(x)

        pair = (Wrapped(), (jnp.ones(3),))
        """,
    )
    artifact = capture(CaptureRequest(parse_source(f"{path}:pair"), use_cache=False))
    assert set(artifact.timings) == {"lower", "compile"}


def test_a_step_on_other_devices_than_the_targets_is_refused(write_file, monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "--xla_force_host_platform_device_count=4")
    path = write_file(
        "elsewhere.py",
        """
        import jax, jax.numpy as jnp, numpy as np
        from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

        mesh = Mesh(np.array(jax.devices()[:4]), ("a",))
        x = jax.ShapeDtypeStruct((8,), jnp.float32, sharding=NamedSharding(mesh, P("a")))
        pair = (lambda x: x + 1, (x,))
        """,
    )
    with pytest.raises(CaptureError, match="not the target's") as caught:
        capture(CaptureRequest(parse_source(f"{path}:pair"), use_cache=False))
    assert "devices" in str(caught.value.hint)


def test_local_means_what_is_attached(mlp_file, monkeypatch):
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    artifact = capture(CaptureRequest(parse_source(f"{mlp_file}:step"), "local", use_cache=False))
    assert (artifact.target, artifact.device_kind, artifact.devices) == ("local", "cpu", 1)


def test_a_path_in_a_flag_does_not_get_into_an_artifact(mlp_file, monkeypatch, tmp_path):
    monkeypatch.setenv("XLA_FLAGS", f"--xla_dump_to={tmp_path}/dump --xla_dump_hlo_as_text")
    artifact = capture(CaptureRequest(parse_source(f"{mlp_file}:step")))
    assert artifact.flags["XLA_FLAGS"] == "--xla_dump_to=.../dump --xla_dump_hlo_as_text"
    # The cache stands back, or a second capture would dump nothing.
    assert list((tmp_path / "dump").iterdir())
    assert not capture(CaptureRequest(parse_source(f"{mlp_file}:step"))).cached
