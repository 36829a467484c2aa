import subprocess
import sys

import pytest

from hloscope.capture import CaptureRequest, Source, SourceKind, capture
from hloscope.chips import ChipKind
from hloscope.errors import UsageError
from hloscope.models import registry


def test_the_registry_lists_its_architectures_in_order():
    assert registry.names() == tuple(sorted(registry.names()))
    assert {"causal_transformer", "hierarchical_mmdit", "simple_dit", "unet"} <= set(
        registry.names()
    )


@pytest.mark.parametrize("name", registry.names())
def test_an_entry_says_what_can_be_asked_of_it(name):
    spec = registry.get(name)
    assert spec.name == name
    assert "\n" not in spec.description
    assert spec.presets[0] == "small"
    for option in spec.options:
        assert option.help
        if option.choices:
            assert option.default == option.choices[0]


def test_an_unknown_architecture_is_answered_with_the_nearest_name():
    with pytest.raises(UsageError) as caught:
        registry.get("unett")
    assert "unett" in caught.value.message
    assert caught.value.hint.startswith("Did you mean unet")


def test_a_name_near_to_none_is_answered_with_all_of_them():
    with pytest.raises(UsageError) as caught:
        registry.get("zzz")
    assert caught.value.hint == f"The architectures are: {', '.join(registry.names())}."


def test_an_unknown_preset_is_answered_with_the_nearest_one():
    with pytest.raises(UsageError, match="Did you mean small") as caught:
        registry.get("unet").build("smal")
    assert caught.value.place == "--preset smal"


def test_an_unknown_option_is_answered_with_the_nearest_one():
    with pytest.raises(UsageError, match="Did you mean attention") as caught:
        registry.get("unet").build("smoke", {"atention": "xla"})
    assert caught.value.place == "--set atention=xla"


def test_an_option_of_another_architecture_is_refused():
    with pytest.raises(UsageError, match="unet has no option 'scan_layers'"):
        registry.get("unet").build("smoke", {"scan_layers": "true"})
    for name in ("ssm", "gated_deltanet"):
        with pytest.raises(UsageError, match=f"{name} has no option 'attention'"):
            registry.get(name).build("smoke", {"attention": "xla"})


def test_an_unknown_value_is_answered_with_the_nearest_one():
    with pytest.raises(UsageError, match="Did you mean bfloat16") as caught:
        registry.get("unet").build("smoke", {"dtype": "bfloat"})
    assert caught.value.place == "--set dtype=bfloat"


@pytest.mark.parametrize(
    "value", ["names:attention_out", "names:mlp_out+attention_out", "offload:mlp_out"]
)
def test_named_values_may_be_kept_alone_or_together_or_on_the_host(value):
    registry.get("simple_dit").check({"remat": value})


@pytest.mark.parametrize(
    "value", ["mlp_out", "names", "names:", "names:a b", "names:+", "full:a", ""]
)
def test_a_policy_that_is_none_is_refused(value):
    with pytest.raises(UsageError, match="is no value of remat"):
        registry.get("simple_dit").check({"remat": value})


@pytest.mark.parametrize(
    ("value", "kind", "said"),
    [
        ("cudnn", ChipKind.CPU, "attention=cudnn compiles for a GPU, not for a CPU"),
        ("cudnn", ChipKind.TPU, "attention=cudnn compiles for a GPU, not for a TPU"),
        ("flash", ChipKind.GPU, "attention=flash compiles for a TPU, not for a GPU"),
    ],
)
def test_a_kernel_for_another_kind_of_chip_is_refused(value, kind, said):
    with pytest.raises(UsageError, match=said):
        registry.get("unet").check({"attention": value}, kind=kind)
    registry.get("unet").check({"attention": value})


def test_a_capture_refuses_it_before_anything_is_built():
    source = Source(SourceKind.ARCH, "unet")
    with pytest.raises(UsageError, match="attention=cudnn compiles for a GPU"):
        capture(CaptureRequest(source, options={"attention": "cudnn"}))


def test_attention_in_16_bits_alone_is_refused_in_float32():
    with pytest.raises(UsageError, match="takes 16 bits, and dtype=float32"):
        registry.get("unet").build("smoke", {"attention": "cudnn", "dtype": "float32"})


@pytest.mark.parametrize("value", ["0", "-4", "2.5", "many", "", "²"])
def test_a_batch_must_be_a_positive_integer(value):
    with pytest.raises(UsageError, match="positive integer"):
        registry.get("unet").build("smoke", {"batch": value})


@pytest.mark.parametrize("name", registry.names())
def test_an_unknown_mesh_axis_is_answered_with_the_ones_there_are(name):
    with pytest.raises(UsageError, match="no sharding rule for the mesh axis 'pipe'") as caught:
        registry.get(name).build("smoke", mesh={"data": 2, "pipe": 4})
    assert "data, fsdp" in caught.value.hint


def test_the_batch_option_sets_the_leading_dimension():
    step = registry.get("causal_transformer").build("smoke", {"batch": "3"})
    assert {leaf.shape[0] for leaf in step.args[1].values()} == {3}


def test_listing_and_refusing_import_no_jax():
    code = """
import sys
from hloscope.errors import UsageError
from hloscope.models import registry
for name in registry.names():
    for build in (lambda: registry.get(name).build("nope"),
                  lambda: registry.get(name).build("smoke", {"nope": "1"}),
                  lambda: registry.get(name).build("smoke", {}, {"nope": 1})):
        try:
            build()
        except UsageError:
            continue
        raise SystemExit("not refused")
raise SystemExit(any(m in sys.modules for m in ("jax", "flax", "optax")))
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("name", ["unet", "simple_mmdit", "ssm"])
def test_an_axis_that_only_other_architectures_have_is_refused(name):
    with pytest.raises(UsageError, match=f"{name} has no sharding rule for .* 'tensor'"):
        registry.get(name).build("smoke", mesh={"tensor": 2})
