"""What the events of a host's thread are, by their names.

What a name stands for was looked up where it is given: in recordings made with JAX 0.10.2 and
0.12.0 (CPU), in recordings of older versions (AMD's with the stream-executor client), and in
the sources of jax and xla. A name that is not here says nothing: the event then is what the one
around it is, or other Python, or other native code.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import StrEnum
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "FETCH",
    "KINDS",
    "HostKind",
    "asks_for_results",
    "is_python",
    "is_users",
    "kind_of_name",
    "kinds_of",
    "place_of",
    "program_called",
]


class HostKind(StrEnum):
    """What a thread of the host spends its time on."""

    LAUNCH = "launch"
    DISPATCH = "dispatch"
    PLACEMENT = "argument placement"
    INPUT = "input"
    DEVICE_WAIT = "waiting on the device"
    TRANSFER = "fetching results"
    COMPILE = "trace and compile"
    CALLBACK = "callback"
    DEVICE_WORK = "the device's own work"
    PYTHON = "other Python"
    NATIVE = "other native code"
    BETWEEN = "between steps"
    UNTRACED = "untraced"


KINDS = tuple(HostKind)
"""In the order in which their places stand for them."""

FETCH = HostKind.TRANSFER
"""What a fetch is by its name; while the device works, it waits for it."""

_PYTHON = "$"

# Where each was seen: (R) recorded with jax 0.10.2 and 0.12.0 on a CPU, (A) in AMD's
# recordings, (T) in a TPU's, (S) in the sources only.
_NAMES: tuple[tuple[HostKind, str], ...] = (
    # Callbacks. (R): thunks of a CPU are called after the instruction, and that after the
    # primitive; (S): xla_python_*_callback are the targets of older custom calls.
    (
        HostKind.CALLBACK,
        r"(pure_callback|io_callback|debug_callback|debug_print|python_callback)(\.\d+)?"
        r"|xla_(ffi_)?(partitioned_)?python_(cpu|gpu)_callback|xla_python_callback"
        r"|\$callback\.py:\d+ .*|\$debugging\.py:\d+ .*|Wait for rendezvous callback",
    ),
    # Tracing, lowering and XLA's compile. (R) but trace_to_jaxpr_*, which is (S).
    (
        HostKind.COMPILE,
        r"backend_compile(_and_load)?|lower_sharding_computation|lower_xla_callable"
        r"|trace_to_jaxpr\w*|(PjRt|Tfrt|CommonPjRt|PJRT_)\w*::?\w*[Cc]ompile\w*|PJRT_Client_Compile.*"
        r"|JitCompiler::Compile|\$partial_eval\.py:\d+ trace_to_jaxpr\w*"
        r"|\$pxla\.py:\d+ (lower_sharding_computation|compile|from_hlo|_cached_compilation)"
        r"|\$pjit\.py:\d+ (_resolve_and_lower|_pjit_lower|_create_pjit_jaxpr|_trace_for_jit)"
        r"|\$compiler\.py:\d+ (compile_or_get_cached|backend_compile\w*|_compile_and_write_cache)",
    ),
    # Arguments on their way to the device. (R) DevicePut*, shard_args, batched_*, device_put;
    # (A) hipMemcpyHtoD*; (T) tpu::System and Linearize; (S) the others.
    (
        HostKind.PLACEMENT,
        r"DevicePut\w*|shard_args|batched_device_put|batched_copy_array_to_devices_with_sharding.*"
        r"|BatchedCopyToDeviceWithSharding.*|BufferFromHostBuffer|.*::BufferFromHost\w+"
        r"|TransferToDevice|.*::TransferTo(Device|Infeed).*|.*Buffer::CopyTo(Device|Memory)\w*"
        r"|H2D Dispatch|CopyRawHostToDevice|(.*::|Xla)?Linearize\w*|(hip|cu)MemcpyHtoD\w*"
        r"|\$api\.py:\d+ device_put\w*|\$pxla\.py:\d+ (shard_args|batched_device_put)"
        r"|\$dispatch\.py:\d+ (_batched_device_put_impl|_device_put\w*)"
        r"|\$array\.py:\d+ make_array_from_\w+",
    ),
    # Results on their way to the host. (R) np.asarray(jax.Array), copy_to_host_async, device_get
    # and the frames; (T) tpu::System and Delinearize; (S) the others.
    (
        FETCH,
        r"np\.asarray\(jax\.Array\)|ArrayImpl\.copy_to_host_async|.*Buffer::ToLiteral\w*|ToLiteral"
        r"|CopyRaw(DeviceToHost|ToHost\w*)|D2H Dispatch|(.*::)?TransferFromDevice.*|XlaDelinearize"
        r"|hipMemcpyDtoH\w*|cuMemcpyDtoH\w*|\$api\.py:\d+ device_get"
        r"|\$array\.py:\d+ (_value|__float__|__int__|__bool__|__index__|__array__|__complex__"
        r"|item|tolist|copy_to_host_async|__format__|__repr__|__str__)",
    ),
    # Waiting. (R) block_until_ready's frame, the holds, ThunkExecutor's wait on a caller's
    # thread, and Await's two ends, which are joined in host_threads; (S) the others.
    (
        HostKind.DEVICE_WAIT,
        r"\$api\.py:\d+ (block_until_ready|effects_barrier)|(batched_)?block_until_ready"
        r"|Wait for (donation|usage) holds|ThunkExecutor::Execute \(wait for completion\)"
        r"|.*::Await\w*|.*::BlockHostUntil\w*|.*BlockUntilReady\w*|WaitForAllPendingH2D"
        r"|Wait for LaunchOnDevice completion|ComputeSemaphoreAcquire"
        r"|(hip|cuda|cu)(Stream|Event|Device|Ctx)Synchronize.*",
    ),
    # Input. (S) names of the iterators of torch, tf.data, grain, and of queues that threads
    # fill; (R) a generator that is called by next().
    (
        HostKind.INPUT,
        r"\$[^:]*:\d+ __next__|\$builtins next"
        r"|\$(dataloader|data_loader|iterator_ops|dataset|dataset_iterator|input_pipeline|prefetch"
        r"|tfds|fetch|collate|lazy_dataset|data_sources?|transformations|dataloading)\.py:\d+ .*"
        r"|\$queue\.py:\d+ get|(Iterator|InputPipeline)::.*|IteratorGetNext.*|tf_data.*|tf\.data.*"
        r"|(next|get|load|fetch)_?(the_)?(next_)?(batch|data|input)s?|(data|input)_?(load|pipeline)\w*",
    ),
    # Handing a program to the device. (R) CommonPjRtLoadedExecutable, ExecuteReplicated;
    # (A) PJRT_LoadedExecutable_Execute, PjRtStreamExecutor*, hip*Launch*; (T) those of
    # tpu::System::Execute; (S) CUDA's.
    (
        HostKind.LAUNCH,
        r"PJRT_LoadedExecutable_Execute.*|\w*(Executable|Executor)::(Execute|Enqueue)\w*.*"
        r"|ExecuteReplicated\.__call__|GpuExecutable::.*|Thunks?::.*|\S+:XLA GPU module"
        r"|TPUExecute|TpuExecute\w*|(Scheduled )?TpuLoadedExecutable::.*|tpu::System::Execute.*"
        r"|LoadProgram|DoEnqueueProgram|ThenExecuteCallback|MakeOutputBuffers"
        r"|(hip|cuda|cu)\w*Launch\w*|(hip|cuda|cu)Mem(set|cpyDtoD|cpyPeer|cpyAsync|cpy)\w*",
    ),
    # From the call to the launch, in C++ and in JAX's own Python. (R) and (A).
    (
        HostKind.DISPATCH,
        r"(Pjit|Pmap)Function\(.*\)|ParseArguments|PythonRefManager::CollectGarbage"
        r"|\$(pjit|array_methods|ufunc_api|lax_numpy|ufuncs|traceback_util|lax|slicing|indexing"
        r"|reductions|random|prng|basearray|jax_array)\.py:\d+ .*",
    ),
)  # fmt: skip
_PATTERNS = tuple((kind, re.compile(pattern, re.DOTALL)) for kind, pattern in _NAMES)
_BACKPRESSURE = re.compile(r"Wait for|ComputeSemaphore|ThunkExecutor|SlinkyThreadPool")
_USERS = (None, HostKind.INPUT)
# Files of JAX and of Python's library that stand between a program and what it calls.
_LIBRARIES = frozenset(
    f"{name}.py"
    for name in (
        *("api", "array", "contextlib", "core", "dispatch", "functools", "linear_util", "profiler"),
        *("pxla", "queue", "runpy", "sharding_impls", "threading", "tree", "tree_util", "util"),
    )
)
_CALLED = re.compile(r"(?:Pjit|Pmap)Function\((.*)\)")
_FRAME = re.compile(r"\$([^:]+\.py):(\d+) (.*)")


def is_python(name: str) -> bool:
    """Whether the Python tracer recorded it: ``$train.py:12 main``, ``$builtins len``."""
    return name.startswith(_PYTHON)


@lru_cache(maxsize=100_000)
def kind_of_name(name: str) -> HostKind | None:
    """What an event of that name is; ``None`` where the name does not say."""
    for kind, pattern in _PATTERNS:
        if pattern.fullmatch(name):
            return kind
    return None


def kinds_of(words: Sequence[str]) -> NDArray[np.int8]:
    """The place in ``KINDS`` of what each word stands for, -1 where it does not say."""
    places = {kind: place for place, kind in enumerate(KINDS)}
    found = (kind_of_name(word) for word in words)
    return np.asarray([-1 if kind is None else places[kind] for kind in found], np.int8)


def program_called(name: str) -> str | None:
    """The name of the module that a call runs: ``jit_step`` of ``PjitFunction(step)``."""
    match = _CALLED.fullmatch(name)
    if match is None:
        return None
    prefix = "pmap_" if name.startswith("Pmap") else "jit_"
    return (prefix + re.sub(r"[^\w.-]", "_", match[1])).rstrip("_")


def asks_for_results(name: str) -> bool:
    """Whether a program asks by it for what a device is to compute.

    Others wait, too, but only where they must: before a donated array's memory is taken, or
    with too many programs under way.
    """
    kind = kind_of_name(name)
    asked = kind in (HostKind.DEVICE_WAIT, FETCH) and _BACKPRESSURE.match(name) is None
    return asked and "copy_to_host_async" not in name


def is_users(name: str) -> bool:
    """Whether a frame is neither of JAX nor of Python's library, as far as its file tells."""
    place = place_of(name)
    return place is not None and place[0] not in _LIBRARIES and kind_of_name(name) in _USERS


def place_of(name: str) -> tuple[str, int] | None:
    """The file and line of a Python frame, without its folder; ``None`` of what is none."""
    match = _FRAME.fullmatch(name)
    return None if match is None else (match[1], int(match[2]))
