"""Who may import whom, read from the source without importing it."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

# Area -> the areas that it may import besides itself. `chips` and the single
# files of the package are areas of their own.
ALLOWED = {
    "errors": set(),
    "units": set(),
    "versions": set(),
    "chips": {"errors"},
    "ir": {"errors", "chips"},
    "pipeline": {"errors", "chips", "ir"},
    "passes": {"errors", "chips", "ir", "pipeline", "units", "traces"},
    "capture": {"errors", "chips", "ir", "units", "versions", "models", "kernels"},
    "models": {"errors", "chips", "ir", "capture"},
    "kernels": {"errors", "chips", "capture", "models"},
    "report": {"errors", "pipeline", "units"},
    "subjects": {"errors", "chips", "ir", "pipeline", "capture"},
    "listings": {"pipeline", "models"},
    "targets": {"errors", "units", "chips", "pipeline", "capture"},
    "drawing": {"errors", "units", "ir", "pipeline", "passes"},
    "answers": {
        "errors",
        "units",
        "chips",
        "ir",
        "pipeline",
        "passes",
        "drawing",
        "kernels",
        "traces",
    },
    "profiles": {"errors", "ir", "traces"},
    "flop_models": {"ir", "pipeline", "passes"},
    "traces": {"errors", "chips", "ir", "units"},
}
TOP = {
    "api",
    "comparisons",
    "kernel_commands",
    "sessions",
    "sources",
    "trace_commands",
    "cli",
    "__init__",
    "__main__",
}  # these may import everything

JAX = {"jax", "jaxlib", "flax", "optax"}
MAY_IMPORT_JAX = {"capture", "models", "kernels"}


def source_files():
    mapped = ((name, name) for name in ("kernels", "models", "passes", "traces"))
    for folder, prefix in (("hloscope", ""), *mapped):
        for path in sorted((ROOT / folder).rglob("*.py")):
            parts = [prefix] if prefix else []
            parts += path.relative_to(ROOT / folder).with_suffix("").parts
            yield path, parts


def imported_modules(path, parts):
    """Every module named by an import statement, wherever it stands in the file."""
    package = ["hloscope", *parts[:-1]]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"), filename=str(path))):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            if module in ("hloscope", "hloscope.kernels", "hloscope.models"):
                yield from ((f"{module}.{alias.name}", node.lineno) for alias in node.names)
            else:
                yield module, node.lineno


FILES = list(source_files())
IMPORTS = [
    (path.relative_to(ROOT), parts[0], module, line)
    for path, parts in FILES
    for module, line in imported_modules(path, parts)
]


def test_the_whole_package_is_read():
    areas = {parts[0] for _, parts in FILES}
    assert {
        "ir",
        "pipeline",
        "report",
        "cli",
        "capture",
        "passes",
        "models",
        "kernels",
        "traces",
    } <= areas
    assert len(IMPORTS) > 100


def test_every_area_has_its_place():
    assert {parts[0] for _, parts in FILES} <= set(ALLOWED) | TOP


def test_imports_go_one_way_only():
    wrong = []
    for path, area, module, line in IMPORTS:
        if area in TOP or not module.startswith("hloscope."):
            continue
        wanted = module.split(".")[1]
        if wanted != area and wanted not in ALLOWED[area]:
            wrong.append(f"{path}:{line}: {area} imports {module}")
    assert wrong == []


def test_only_capture_models_and_kernels_import_jax():
    wrong = [
        f"{path}:{line}: {module}"
        for path, area, module, line in IMPORTS
        if module.split(".")[0] in JAX and area not in MAY_IMPORT_JAX
    ]
    assert wrong == []


def test_models_are_reached_through_their_registry():
    wrong = [
        f"{path}:{line}: {module}"
        for path, area, module, line in IMPORTS
        if area != "models"
        and module.startswith("hloscope.models")
        and module != "hloscope.models.registry"
        and not (area == "kernels" and module.startswith("hloscope.models.blocks."))
    ]
    assert wrong == []


def test_the_parts_of_kernels_that_others_use_import_no_jax():
    plain = {"case", "errors", "measurement", "operands", "registry", "running"}
    outside = {
        module.split(".")[2]
        for _, area, module, _ in IMPORTS
        if area != "kernels" and module.startswith("hloscope.kernels.")
    }
    assert outside <= plain
    wrong = [
        f"{path}:{line}: {module}"
        for path, area, module, line in IMPORTS
        if area == "kernels"
        and (path.stem in plain or path.parent.name in ("specs", "oracles"))
        and (
            module.split(".")[0] in JAX
            or module in ("hloscope.kernels.programs", "hloscope.kernels.measuring")
        )
    ]
    assert wrong == []


@pytest.mark.parametrize("folder", ["kernels", "models", "passes"])
def test_top_level_folders_are_never_imported_by_their_bare_name(folder):
    wrong = [
        f"{path}:{line}: {module}"
        for path, _, module, line in IMPORTS
        if module.split(".")[0] == folder
    ]
    assert wrong == []
