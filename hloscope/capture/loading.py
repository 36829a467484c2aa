"""From the words of a request to a Step. Runs in the worker."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from jax.sharding import Mesh

from hloscope.capture.request import KERNEL_PREFIX, CaptureRequest, Source, SourceKind
from hloscope.capture.step import Step
from hloscope.errors import UsageError

__all__ = ["import_root", "load_step"]

_HANDED_IN = ("devices", "mesh")
_WHAT_WORKS = (
    "Let it be a hloscope.capture.Step, a (function, arguments) tuple, or a function "
    "that takes nothing, `devices` or `mesh` and returns one of these."
)


def load_step(request: CaptureRequest, devices: Sequence[Any], mesh: Mesh | None) -> Step:
    """Find what the request names and build its step.

    Whatever the user's code raises passes through as it is.

    Args:
        request: What is asked for.
        devices: The target's devices, for a step that builds its own mesh.
        mesh: The mesh that was asked for, if any.

    Raises:
        UsageError: The name leads to nothing, or to no step.
    """
    source = request.source
    if source.kind is SourceKind.ARCH:
        from hloscope.models import registry

        spec = registry.get(source.text)
        step: Step = spec.build(request.preset, request.options, mesh, devices, request.bad)
        return step
    if source.kind is SourceKind.KERNEL:
        from hloscope.kernels.registry import build

        return build(source.text.removeprefix(KERNEL_PREFIX), devices[0])
    if request.options:
        raise UsageError(
            f"options ({', '.join(request.options)}) belong to named architectures",
            place=str(source),
            hint="Leave them out, or build the step from them in your file.",
        )
    module = _import_file(source) if source.kind is SourceKind.FILE else _import_module(source)
    return _as_step(_find(module, source), source, devices, mesh)


def _import_file(source: Source) -> ModuleType:
    path = Path(source.text)
    if not path.is_file():
        what = "it is a folder" if path.is_dir() else "there is no such file"
        raise UsageError(what, place=source.text, hint="Write `path/file.py:name`.")
    path = path.resolve()
    folder = import_root(path)
    parts = path.relative_to(folder).with_suffix("").parts
    sys.path.insert(0, str(folder))
    if len(parts) > 1 and path.stem != "__init__":
        return importlib.import_module(".".join(parts))
    # A file may be called like a module that exists (`types.py`, `train.py`).
    taken = path.stem in sys.modules or path.stem in sys.stdlib_module_names
    name = f"{path.stem}_of_step" if taken else path.stem
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UsageError(
            "this is not a Python file", place=source.text, hint="Write `path/file.py:name`."
        )
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def import_root(path: Path) -> Path:
    """The folder from which a file is imported under its full name.

    Inside a package that is the folder above the outermost package: a file
    loaded from anywhere else could not use relative imports.
    """
    folder = path.resolve().parent
    while (folder / "__init__.py").exists():
        folder = folder.parent
    return folder


def _import_module(source: Source) -> ModuleType:
    try:
        found = importlib.util.find_spec(source.text)
    except ModuleNotFoundError as error:
        # A parent package is missing; one that fails inside says more by itself.
        if not error.name or not (source.text + ".").startswith(error.name + "."):
            raise
        found = None
    if found is None:
        raise UsageError(
            f"there is no module {source.text!r}",
            place=str(source),
            hint="Check the name, or give the file: `path/file.py:name`.",
        )
    return importlib.import_module(source.text)


def _find(module: ModuleType, source: Source) -> Any:
    value: Any = module
    for part in source.attribute.split("."):
        if not hasattr(value, part):
            steps = sorted(
                name
                for name, item in vars(module).items()
                if isinstance(item, Step) and not name.startswith("_")
            )
            known = f"Steps in it: {', '.join(steps)}." if steps else _WHAT_WORKS
            raise UsageError(
                f"there is nothing called {source.attribute!r} in it", place=source.text, hint=known
            )
        value = getattr(value, part)
    return value


def _as_step(value: Any, source: Source, devices: Sequence[Any], mesh: Mesh | None) -> Step:
    step = _plain_step(value)
    takes_mesh = False
    if step is None and callable(value):
        wanted = _parameters(value, source)
        takes_mesh = "mesh" in wanted
        given = {"devices": list(devices), "mesh": mesh}
        value = value(**{name: given[name] for name in wanted})
        step = _plain_step(value)
    if step is None:
        raise UsageError(
            f"{source.attribute!r} gives {_describe(value)}, which is no step",
            place=str(source),
            hint=_WHAT_WORKS,
        )
    if mesh is not None and not takes_mesh:
        raise UsageError(
            "a mesh was asked for, and this step does not take one",
            place=str(source),
            hint="Make it a function with a parameter called `mesh` that shards its arguments, "
            "or leave the mesh out.",
        )
    return step


def _plain_step(value: Any) -> Step | None:
    if isinstance(value, Step):
        return value
    if (
        isinstance(value, tuple)
        and len(value) == 2
        and callable(value[0])
        and isinstance(value[1], (tuple, list))
    ):
        return Step(fn=value[0], args=tuple(value[1]))
    return None


def _parameters(factory: Callable[..., Any], source: Source) -> list[str]:
    """Which of ``devices`` and ``mesh`` the factory takes; it may need nothing else."""
    try:
        parameters = inspect.signature(factory).parameters.values()
    except (TypeError, ValueError):
        return []
    needed = [
        p.name
        for p in parameters
        if p.name not in _HANDED_IN
        and p.default is p.empty
        and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
    ]
    if needed:
        raise UsageError(
            f"{source.attribute!r} takes ({', '.join(needed)}): its arguments are missing",
            place=str(source),
            hint=_WHAT_WORKS,
        )
    return [p.name for p in parameters if p.name in _HANDED_IN]


def _describe(value: Any) -> str:
    if isinstance(value, tuple):
        return f"a tuple of {len(value)}"
    return f"a {type(value).__name__}"
