"""Names of host events, as JAX and its runtimes record them."""

import pytest

from hloscope.traces.host_kinds import (
    HostKind,
    asks_for_results,
    is_users,
    kind_of_name,
    place_of,
    program_called,
)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("CommonPjRtLoadedExecutable::ExecuteHelperOnSingleDevice", HostKind.LAUNCH),
        ("PjRtStreamExecutorLoadedExecutable::EnqueueExecution", HostKind.LAUNCH),
        ("PJRT_LoadedExecutable_Execute linkage", HostKind.LAUNCH),
        ("jit_loss_fn:XLA GPU module", HostKind.LAUNCH),
        ("hipExtModuleLaunchKernel", HostKind.LAUNCH),
        ("cuLaunchKernelEx", HostKind.LAUNCH),
        ("cudaGraphLaunch_v10000", HostKind.LAUNCH),
        ("Scheduled TpuLoadedExecutable::Execute", HostKind.LAUNCH),
        ("tpu::System::Execute=>IssueSequencedEvent", HostKind.LAUNCH),
        ("tpu::System::TransferToDevice=>IssueEvent", HostKind.PLACEMENT),
        ("TpuClient::LinearizeIntoImpl", HostKind.PLACEMENT),
        ("tpu::System::TransferFromDevice", HostKind.TRANSFER),
        ("XlaDelinearize", HostKind.TRANSFER),
        ("PjitFunction(step)", HostKind.DISPATCH),
        ("$array_methods.py:769 _operator_mul", HostKind.DISPATCH),
        ("DevicePutWithSharding", HostKind.PLACEMENT),
        ("$api.py:2035 device_put", HostKind.PLACEMENT),
        ("batched_copy_array_to_devices_with_sharding: assemble device lists", HostKind.PLACEMENT),
        ("hipMemcpyHtoDAsync", HostKind.PLACEMENT),
        ("$dataloader.py:708 __next__", HostKind.INPUT),
        ("$queue.py:154 get", HostKind.INPUT),
        ("load_batch", HostKind.INPUT),
        ("Iterator::Prefetch", HostKind.INPUT),
        ("$api.py:3105 block_until_ready", HostKind.DEVICE_WAIT),
        ("CommonPjRtBuffer::Await", HostKind.DEVICE_WAIT),
        ("cudaStreamSynchronize_v3020", HostKind.DEVICE_WAIT),
        ("ThunkExecutor::Execute (wait for completion)", HostKind.DEVICE_WAIT),
        ("np.asarray(jax.Array)", HostKind.TRANSFER),
        ("$array.py:298 __float__", HostKind.TRANSFER),
        ("PjRtStreamExecutorBuffer::ToLiteral", HostKind.TRANSFER),
        ("backend_compile_and_load", HostKind.COMPILE),
        ("PjRtCpuClient::Compile", HostKind.COMPILE),
        ("$partial_eval.py:2268 trace_to_jaxpr", HostKind.COMPILE),
        ("pure_callback.1", HostKind.CALLBACK),
        ("xla_ffi_python_cpu_callback", HostKind.CALLBACK),
        ("$builtins isinstance", None),
        ("$train.py:12 main", None),
        ("MemoryAllocation", None),
        ("fusion.3", None),
    ],
)
def test_a_name_says_what_an_event_is(name, kind):
    assert kind_of_name(name) is kind


def test_a_call_names_the_module_that_it_runs():
    assert program_called("PjitFunction(step)") == "jit_step"
    # As JAX calls the module of a lambda.
    assert program_called("PjitFunction(<lambda>)") == "jit__lambda"
    assert program_called("ParseArguments") is None


def test_only_what_a_program_asks_for_is_a_question():
    assert asks_for_results("$array.py:298 __float__")
    assert asks_for_results("CommonPjRtBuffer::Await")
    assert not asks_for_results("Wait for donation holds")
    assert not asks_for_results("ArrayImpl.copy_to_host_async")
    assert not asks_for_results("PjitFunction(step)")


def test_frames_are_told_by_their_files():
    assert place_of("$train.py:12 main") == ("train.py", 12)
    assert place_of("$builtins len") is None
    assert is_users("$train.py:12 main")
    assert is_users("$loader.py:41 __next__")
    assert not is_users("$array.py:298 __float__")
    assert not is_users("$contextlib.py:132 __enter__")
