"""The family of a kernel: its name without what changes from one compile to the next.

Numbers behind a name, tile sizes, template arguments and the tracer's suffixes say which
variant of a kernel ran, so two runs of one step would have nothing in common by them.
"""

from __future__ import annotations

import re

__all__ = ["family_of"]

_TEMPLATES = re.compile(r"<[^<>]*>")
_ARGUMENTS = re.compile(r"\([^()]*\)")
_ANONYMOUS = re.compile(r"\(anonymous namespace\)::|\{anonymous\}::")
_CLONE = re.compile(r"\s*\[clone [^\]]*\]")
_LIBRARY = re.compile(r"(nvjet|Cijk)_")
_EXCHANGE = re.compile(r"(?:nccl|rccl|msccl)\w*?Kernel_[A-Za-z]+")
_TILE = re.compile(r"[_-][A-Za-z]*\d+x\d+")
# .12, _3, .clone, .remat2, .kd: what XLA and the tracers put behind a name, in any number.
_SUFFIX = re.compile(r"(?:[._]\d+|\.(?:clone|remat\d*|kd|cold|sunk))+$")
_MANGLED = re.compile(r"_ZN?K?(?=\d)")
_LENGTH = re.compile(r"\d+")
# These only launch what their argument names.
_WRAPPERS = frozenset({"kentry", "Kernel", "Kernel2", "device_kernel"})

_LONGEST = 4096  # characters of a name that are looked at
_DEEPEST = 4  # launchers within launchers


def family_of(name: str) -> str:
    """What a kernel or an operation is called whichever variant of it ran.

    Args:
        name: As the tracer has it, or an HLO instruction's name.

    Returns:
        ``loop_add_fusion`` of ``loop_add_fusion_3``, ``nvjet`` of ``nvjet_hsh_128x256_...``,
        ``Cijk`` of a Tensile product, a C++ kernel's name without its arguments. The name
        itself where nothing would be left of it.
    """
    text = name[:_LONGEST].split(" = ", 1)[0].strip().lstrip("%").removeprefix("void ")
    text = _unmangled(_CLONE.sub("", _ANONYMOUS.sub("", text)))
    for _ in range(_DEEPEST):
        text = _wrapped(text) or text
    text = _without(_ARGUMENTS, _without(_TEMPLATES, text)).strip()
    library = _LIBRARY.match(text)
    if library is not None:
        return library[1]
    exchange = _EXCHANGE.match(text)
    if exchange is not None:
        return exchange[0]
    tile = _TILE.search(text)
    if tile is not None and tile.start():
        text = text[: tile.start()]
    return _SUFFIX.sub("", text) or name


def _without(pattern: re.Pattern[str], text: str) -> str:
    """A text without what matches, from the innermost outwards."""
    before = ""
    while before != text:
        before, text = text, pattern.sub("", text)
    return text


def _wrapped(text: str) -> str:
    """The kernel that a launcher has as a template argument; else nothing."""
    head, opened, inside = text.partition("<")
    if not opened or head.rpartition("::")[2] not in _WRAPPERS:
        return ""
    arguments, depth = [""], 0
    for letter in inside:
        if letter == ">" and not depth:
            break
        if letter == "," and not depth:
            arguments.append("")
            continue
        depth += (letter in "<(") - (letter in ">)")
        arguments[-1] += letter
    # Before it stand chips and numbers, behind it the types of its arguments.
    kernel = next((each for each in arguments if "<" in each), arguments[0]).strip()
    return kernel if kernel[:1].isalpha() else ""


def _unmangled(text: str) -> str:
    """The name in a mangled one of C++, without its types; any other text as it is."""
    match = _MANGLED.match(text)
    if match is None:
        return text
    at, parts = match.end(), []
    while (length := _LENGTH.match(text, at)) is not None and int(length[0]):
        begin, at = length.end(), length.end() + int(length[0][:4])
        parts.append(text[begin:at])
    names = [part for part in parts if not part.startswith("_GLOBAL__N")]
    return "::".join(names) or text
