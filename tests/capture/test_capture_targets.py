"""Compiling for chips that are not there. Skips where a plug-in is not installed."""

from __future__ import annotations

import re

import pytest

from hloscope.capture import CaptureRequest, capture, parse_source
from hloscope.errors import CaptureError, TargetError


@pytest.mark.parametrize("target", ["h100", "v5e"])
def test_the_training_step_compiles_for_a_chip_that_is_not_there(need_target, mlp_file, target):
    need_target(target)
    artifact = capture(
        CaptureRequest(parse_source(f"{mlp_file}:step"), target=target, use_cache=False)
    )
    assert (artifact.target, artifact.devices) == (target, 1)
    names = dict(
        re.findall(
            r"parameter\((\d+)\).*?op_name=\"([^\"]*)\"",
            artifact.hlo_text[artifact.hlo_text.index("\nENTRY ") :],
        )
    )
    kept = {
        str(leaf.parameter): leaf.path.replace("'", "\\'")
        for leaf in artifact.signature.inputs
        if leaf.parameter is not None
    }
    assert kept.items() <= names.items()
    assert artifact.xla_memory["alias_size_in_bytes"] > 0
    assert artifact.literals_note is None
    assert re.findall(r'"/[^"/]+/[^"]*"', artifact.hlo_text) == []


def test_a_gpu_module_gets_its_costs_from_the_generic_analysis(need_target, mlp_file):
    need_target("h100")
    artifact = capture(
        CaptureRequest(parse_source(f"{mlp_file}:step"), target="h100", use_cache=False)
    )
    assert artifact.device_kind == "NVIDIA H100 80GB HBM3"
    assert "generic HloCostAnalysis" in artifact.xla_cost_note
    assert artifact.xla_cost["flops"] > 0


@pytest.mark.parametrize(("target", "devices"), [("h100:4", 4), ("v5e:2x2", 4)])
def test_a_plain_pair_is_replicated_over_all_devices(need_target, mlp_file, target, devices):
    need_target(target)
    artifact = capture(
        CaptureRequest(parse_source(f"{mlp_file}:pair"), target=target, use_cache=False)
    )
    assert artifact.devices == devices
    header = artifact.hlo_text.partition("\n")[0]
    assert f"num_partitions={devices}" in header
    # The whole 8x8 matrix, on each device.
    assert re.search(r"f32\[8,8\].*parameter\(", artifact.hlo_text)


@pytest.mark.parametrize("target", ["a100", "l4", "rtx4080", "v100", "t4", "b200", "rtx5090"])
def test_every_nvidia_card_of_the_table_compiles(need_target, write_file, target):
    need_target(target)
    path = write_file(
        "product.py",
        """
        import jax, jax.numpy as jnp
        a = jax.ShapeDtypeStruct((256, 256), jnp.bfloat16)
        pair = (lambda a, b: jax.nn.relu(a @ b), (a, a))
        """,
    )
    artifact = capture(CaptureRequest(parse_source(f"{path}:pair"), target, use_cache=False))
    assert artifact.hlo_text.startswith("HloModule")


@pytest.mark.parametrize(
    ("target", "devices"),
    [("v4", 1), ("v4:2x2x1", 4), ("v5p", 1), ("v5p:2x2x1", 4), ("v6e", 1), ("v6e:2x2", 4)],
)
def test_every_tpu_of_the_table_has_one_device_a_chip(need_target, write_file, target, devices):
    need_target(target)
    path = write_file(
        "product.py",
        """
        import jax, jax.numpy as jnp
        def make(devices):
            count = jax.ShapeDtypeStruct((len(devices), 128), jnp.bfloat16)
            return (lambda a: a @ a.T, (count,))
        """,
    )
    artifact = capture(CaptureRequest(parse_source(f"{path}:make"), target, use_cache=False))
    assert artifact.devices == devices
    assert artifact.signature.inputs[0].dimensions == (devices, 128)


def test_compiler_options_change_what_the_gpu_compiler_chooses(need_target, write_file):
    need_target("h100")
    path = write_file(
        "product.py",
        """
        import jax, jax.numpy as jnp
        a = jax.ShapeDtypeStruct((1024, 1024), jnp.bfloat16)
        pair = (lambda a, b: a @ b, (a, a))
        """,
    )
    source = parse_source(f"{path}:pair")
    plain = capture(CaptureRequest(source, "h100", use_cache=False))
    option = {"xla_gpu_enable_triton_gemm": False}
    chosen = capture(CaptureRequest(source, "h100", compiler_options=option, use_cache=False))
    assert "__cublas" not in plain.hlo_text
    assert "__cublas" in chosen.hlo_text


TRANSPOSED = """
import jax
import jax.numpy as jnp

x = jax.ShapeDtypeStruct((16, 192, 77), jnp.bfloat16)
w = jax.ShapeDtypeStruct((192, 192), jnp.bfloat16)
step = (lambda x, w: jnp.swapaxes(x, 1, 2).reshape(16 * 77, 192) @ w, (x, w))
"""


@pytest.fixture
def untiled(need_target, write_file):
    """A step of whose product XLA finds no tiling without a card; newer jaxlibs find one."""
    need_target("h100")
    source = parse_source(f"{write_file('step.py', TRANSPOSED)}:step")
    option = {"xla_gpu_enable_triton_gemm": True}
    try:
        capture(CaptureRequest(source, "h100", compiler_options=option, use_cache=False))
    except CaptureError as error:
        return source, error
    pytest.skip("this jaxlib tiles that product")


def test_a_product_that_no_default_tiling_fits_is_compiled_without_triton(untiled):
    source, _ = untiled
    artifact = capture(CaptureRequest(source, "h100", use_cache=False))
    assert "__cublas" in artifact.hlo_text
    assert artifact.flags == {"xla_gpu_enable_triton_gemm": "False"}
    assert [text for text in artifact.warnings if "without XLA's Triton products" in text]


def test_triton_products_that_were_asked_for_are_not_left_out(untiled):
    _, error = untiled
    assert "could not be compiled" in error.message


def test_a_program_too_large_for_the_chip_is_refused_in_the_compilers_words(
    need_target, write_file
):
    need_target("v5e")
    path = write_file(
        "huge.py",
        """
        import jax, jax.numpy as jnp
        x = jax.ShapeDtypeStruct((2**36,), jnp.float32)
        pair = (lambda x: x + 1, (x,))
        """,
    )
    with pytest.raises(CaptureError) as caught:
        capture(CaptureRequest(parse_source(f"{path}:pair"), "v5e", use_cache=False))
    assert caught.value.phase == "compile"
    assert "15.75G" in caught.value.detail


def test_a_step_without_an_array_is_not_silently_compiled_for_the_cpu(need_target, write_file):
    need_target("h100")
    path = write_file("none.py", "import jax.numpy as jnp\npair = (lambda: jnp.ones(3), ())\n")
    with pytest.raises(CaptureError, match="compiled for cpu and not for h100"):
        capture(CaptureRequest(parse_source(f"{path}:pair"), "h100", use_cache=False))


@pytest.mark.usefixtures("own_cache")
def test_no_plugin_is_needed_to_say_that_one_is_missing(mlp_file):
    with pytest.raises(TargetError, match="targets install v5e"):
        capture(CaptureRequest(parse_source(f"{mlp_file}:step"), "v5e"))
