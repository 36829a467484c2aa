"""Models that users bring: by decorator, and by the entry points of an installed package."""

import math
import re
import sys
from pathlib import Path

import pytest

from hloscope.flop_models import Basis, Count, Kind, register_flop_model
from hloscope.passes.flops import registered
from hloscope.passes.flops.counts import Unmodelled

ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def no_models(monkeypatch):
    """Each test starts without models, and leaves none."""
    monkeypatch.setattr(registered, "_MODELS", [])
    registered.load_entry_points.cache_clear()
    yield
    registered.load_entry_points.cache_clear()


SHAPES = ("f32[64,32]; f32[32,16]", "f32[64,16]")


def test_a_function_of_the_call_becomes_its_model(read_call):
    @register_flop_model("my_kernel*")
    def product(call):
        (m, k), (_, n) = (operand.shape.dimensions for operand in call.operands)
        return 2 * m * k * n

    count = read_call(*SHAPES, "my_kernel_v2")
    assert count == Count(Kind.KERNEL, 2 * 64 * 32 * 16, Basis.MODELLED, "product")
    assert isinstance(read_call(*SHAPES, "your_kernel"), Unmodelled)


def test_calls_of_one_target_are_told_apart_by_their_op_name(read_call):
    register_flop_model("__gpu$xla.gpu.triton", op_name="*/attn/*", name="mine")(lambda _: 7)
    named = ', metadata={op_name="jit(f)/attn/pallas_call"}'
    assert read_call(*SHAPES, "__gpu$xla.gpu.triton", extra=named).model == "mine"
    other = named.replace("attn", "mlp")
    assert isinstance(read_call(*SHAPES, "__gpu$xla.gpu.triton", extra=other), Unmodelled)


def test_a_count_may_say_more(read_call):
    given = Count(Kind.ATTENTION, 100, Basis.BOUNDED, "mine", masked_flops=50)
    register_flop_model("k")(lambda _: given)
    assert read_call(*SHAPES, "k") == given


def test_the_model_registered_last_is_asked_first_and_may_pass(read_call):
    register_flop_model("k")(lambda _: 1)
    register_flop_model("k")(lambda call: 2 if call.operands[0].shape.rank == 3 else None)
    assert read_call(*SHAPES, "k").flops == 1
    assert read_call("f32[1,2,3]", "f32[1]", "k").flops == 2


def test_a_users_model_comes_before_hloscopes_own(read_call):
    register_flop_model("__cublas$gemm")(lambda _: 5)
    assert read_call(*SHAPES, "__cublas$gemm").flops == 5


@pytest.mark.parametrize(
    "answer", ["many", -1, math.nan, math.inf, True, [1], Count(Kind.KERNEL, -3)]
)
def test_an_answer_that_is_no_number_of_flops_makes_the_call_unknown(read_call, answer):
    register_flop_model("k", name="mine")(lambda _: answer)
    read = read_call(*SHAPES, "k")
    assert isinstance(read, Unmodelled)
    assert "mine returned" in read.reason


def test_a_count_without_a_number_is_unknown_with_its_note(read_call):
    register_flop_model("k")(lambda _: Count(Kind.KERNEL, None, note="depends on the data"))
    assert read_call(*SHAPES, "k") == Unmodelled("depends on the data")


def test_a_model_that_raises_makes_the_call_unknown_and_is_listed(ledger_of):
    @register_flop_model("k")
    def broken(_):
        raise KeyError("tiles")

    ledger = ledger_of(
        "HloModule m\nENTRY e { x = f32[4] parameter(0)\n"
        'ROOT r = f32[4] custom-call(x), custom_call_target="k" }'
    )
    (group,) = ledger.unknown_calls
    assert group.reason == "the model broken failed: KeyError: 'tiles'"
    assert ledger.total.high is None


def install(folder: Path, monkeypatch, module: str) -> None:
    """A distribution as an installer leaves it: a module, and its metadata beside it."""
    (folder / "flops_of_my_kernels.py").write_text(module)
    metadata = folder / "my_kernels-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: my-kernels\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(
        "[hloscope.flop_models]\nkernels = flops_of_my_kernels\n"
    )
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(sys.modules, "flops_of_my_kernels", raising=False)


def test_an_installed_packages_models_are_found_by_its_entry_point(
    tmp_path, monkeypatch, read_call
):
    install(
        tmp_path,
        monkeypatch,
        "from hloscope.flop_models import register_flop_model\n"
        "@register_flop_model('packaged_kernel')\n"
        "def packaged(call):\n"
        "    return 42\n",
    )
    count = read_call(*SHAPES, "packaged_kernel")
    assert (count.flops, count.model) == (42, "packaged")


def test_an_entry_point_that_fails_is_named_where_a_model_is_missing(
    tmp_path, monkeypatch, read_call
):
    install(tmp_path, monkeypatch, "raise RuntimeError('no such card')\n")
    read = read_call(*SHAPES, "packaged_kernel")
    assert read == Unmodelled(
        "no model for this target; entry point kernels failed: RuntimeError: no such card"
    )


def test_the_example_of_the_documentation_works(read_call):
    page = (ROOT / "docs" / "custom_calls.md").read_text(encoding="utf-8")
    example = next(
        block
        for block in re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)
        if "__gpu$xla.gpu.triton" in block
    )
    exec(compile(example, "custom_calls.md", "exec"), {})
    named = ', metadata={op_name="jit(step)/moe/grouped_matmul/pallas_call"}'
    count = read_call(
        "bf16[1024,512]; bf16[8,512,2048]; s32[8]",
        "bf16[1024,2048]",
        "__gpu$xla.gpu.triton",
        extra=named,
    )
    assert count.flops == 2 * 1024 * 512 * 2048
