"""One compiled program with all that is known of it, and the file that holds it."""

from __future__ import annotations

import dataclasses
import functools
import json
import lzma
import os
import struct
import tempfile
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from hloscope.errors import InputError
from hloscope.ir.closed_over import ChangedArray, ClosedOver, ClosedOverArray
from hloscope.ir.compiler_log import (
    FullRematerialization,
    SlowFold,
    full_rematerializations_from_document,
    slow_folds_from_document,
)
from hloscope.ir.jaxpr_count import JaxprCount, JaxprFlops, JaxprSite, UncountedPrimitive
from hloscope.ir.jaxpr_promotions import JaxprPromotions
from hloscope.ir.named_points import NamedPoints
from hloscope.ir.signature import InputLeaf, OutputLeaf, Role, Signature

if TYPE_CHECKING:
    from hloscope.ir import Module

__all__ = ["FORMAT", "Artifact", "LiteralFacts"]

FORMAT = 4
"""Version of the file's layout; a file of a later one is refused.

2 added the jaxpr's count, 3 the arrays that the step closes over, 4 the values
that it names for its remat policies.
"""

_DOCUMENT = "artifact.json"
_OPTIMIZED = "optimized.hlo"
_LOWERED = "lowered.hlo"
# A text larger than this is no HLO that anyone compiled; it guards against a
# small zip that unpacks to fill the memory.
_MAX_ENTRY_BYTES = 2 * 2**30

# What zipfile, its decompressors, the decoder and json raise on damaged bytes.
_BROKEN_ZIP = (
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    struct.error,
    NotImplementedError,
    RuntimeError,
    EOFError,
    OverflowError,
    ValueError,
)

_EMPTY: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class LiteralFacts:
    """What an elided constant of the optimized module holds.

    Attributes:
        name: The instruction's name.
        dtype: Element type in HLO's spelling.
        dimensions: Its dimensions.
        kind: ``zeros`` (every bit zero), ``splat`` (one value throughout),
            ``iota`` (0, 1, 2, ... along one dimension) or ``data``.
        value: The value of a ``splat`` or of ``zeros``, as text.
        digest: SHA-256 of the bytes; equal digests are equal contents.
    """

    name: str
    dtype: str
    dimensions: tuple[int, ...]
    kind: str
    value: str | None
    digest: str


@dataclass(frozen=True)
class Artifact:
    """One compiled program.

    Attributes:
        hlo_text: The optimized module, as ``compiled.as_text()`` prints it.
        lowered_text: The module before optimization, or ``None``.
        signature: The leaves of the step's arguments and results.
        target: What it was compiled for: ``cpu``, ``h100:8``, ``v5e:2x4``, ``local``.
        device_kind: What the devices call themselves.
        devices: How many devices the target has.
        mesh: Axis sizes of the mesh that was asked for or chosen.
        versions: Of jax, jaxlib, flax, hloscope, python and the plug-ins.
        flags: Compiler flags, from the environment and for this compile.
        timings: Seconds of ``trace``, ``lower`` and ``compile``. A function
            that cannot be traced apart has its tracing in ``lower``.
        xla_cost: XLA's own cost analysis as it is, or ``None``. A negative
            figure is XLA's way to say that it does not know.
        xla_cost_note: Where ``xla_cost`` comes from, or why there is none.
        xla_memory: XLA's own memory analysis in bytes, or ``None``.
        xla_memory_note: Why there is none.
        literals: Facts on the constants that the text elides.
        literals_note: Why ``literals`` is incomplete, if it is.
        jaxpr: FLOPs of the jaxpr that the step traced to, or ``None``.
        jaxpr_note: Why there are none.
        closed_over: The arrays that the step closes over, or ``None``.
        closed_over_note: Why they are not known.
        promotions: Where type promotion widens values in the jaxpr, or ``None``.
        promotions_note: Why that is not known.
        named_points: The values that the step names for remat policies, or ``None``.
        named_points_note: Why they are not known.
        slow_folds: What XLA warned of folding slowly, or ``None`` where nobody listened.
        full_rematerializations: What XLA's partitioner warned of gathering whole, or
            ``None`` where nobody listened.
        persistent_cache: Whether the program that the step is from sets up JAX's
            compilation cache; ``None`` where there is no such program.
        warnings: What JAX warned of while tracing and lowering.
        source: What the user asked for, in words.
        name: The step's name.
        cached: Whether the compile was taken from the cache; not saved.
    """

    hlo_text: str
    lowered_text: str | None
    signature: Signature
    target: str
    device_kind: str
    devices: int
    source: str
    name: str
    mesh: Mapping[str, int] = field(default_factory=lambda: _EMPTY)
    versions: Mapping[str, str] = field(default_factory=lambda: _EMPTY)
    flags: Mapping[str, str] = field(default_factory=lambda: _EMPTY)
    timings: Mapping[str, float] = field(default_factory=lambda: _EMPTY)
    xla_cost: Mapping[str, float] | None = None
    xla_cost_note: str | None = None
    xla_memory: Mapping[str, int] | None = None
    xla_memory_note: str | None = None
    literals: tuple[LiteralFacts, ...] = ()
    literals_note: str | None = None
    jaxpr: JaxprCount | None = None
    jaxpr_note: str | None = None
    closed_over: ClosedOver | None = None
    closed_over_note: str | None = None
    promotions: JaxprPromotions | None = None
    promotions_note: str | None = None
    named_points: NamedPoints | None = None
    named_points_note: str | None = None
    slow_folds: tuple[SlowFold, ...] | None = None
    full_rematerializations: tuple[FullRematerialization, ...] | None = None
    persistent_cache: bool | None = None
    warnings: tuple[str, ...] = ()
    cached: bool = field(default=False, compare=False)

    @functools.cached_property
    def module(self) -> Module:
        """The optimized module, parsed on first use.

        Raises:
            ParseError: The text is not HLO.
        """
        from hloscope.ir import parse_text

        return parse_text(self.hlo_text, file=self.source)

    @functools.cached_property
    def lowered(self) -> Module | None:
        """The module before optimization, parsed on first use, or ``None``.

        Raises:
            ParseError: The text is not HLO.
        """
        from hloscope.ir import parse_text

        if self.lowered_text is None:
            return None
        return parse_text(self.lowered_text, file=f"{self.source} (lowered)")

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything to one file; a file that is there is replaced whole.

        Raises:
            InputError: The file cannot be written.
        """
        target = Path(path)
        try:
            handle, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
            temporary = Path(name)
            try:
                with os.fdopen(handle, "wb") as stream, zipfile.ZipFile(stream, "w") as archive:
                    _add(archive, _DOCUMENT, json.dumps(self._document(), indent=1))
                    _add(archive, _OPTIMIZED, self.hlo_text)
                    if self.lowered_text is not None:
                        _add(archive, _LOWERED, self.lowered_text)
                temporary.replace(target)
            finally:
                temporary.unlink(missing_ok=True)
        except OSError as error:
            raise InputError(
                f"the artifact cannot be written: {error.strerror or error}",
                place=str(target),
                hint="Choose a folder that exists, can be written to and has room.",
            ) from error

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Artifact:
        """Read what :meth:`save` wrote.

        Raises:
            InputError: The file is missing, broken, or no artifact.
        """
        place = str(path)
        try:
            with zipfile.ZipFile(path) as archive:
                names = set(archive.namelist())
                if _DOCUMENT not in names or _OPTIMIZED not in names:
                    raise _foreign(place, "it is a zip, but not one of hloscope's")
                document = json.loads(_read(archive, _DOCUMENT, place))
                hlo_text = _read(archive, _OPTIMIZED, place)
                lowered = _read(archive, _LOWERED, place) if _LOWERED in names else None
        except FileNotFoundError as error:
            raise InputError(
                "there is no such file", place=place, hint="Check the path."
            ) from error
        except OSError as error:
            raise InputError(
                f"the file cannot be read: {error.strerror or error}",
                place=place,
                hint="Check the path and its permissions.",
            ) from error
        except _BROKEN_ZIP as error:
            raise _foreign(place, f"its zip is broken ({error})") from error
        return _from_document(document, hlo_text, lowered, place)

    def _document(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "source": self.source,
            "name": self.name,
            "target": self.target,
            "device_kind": self.device_kind,
            "devices": self.devices,
            "mesh": [[axis, size] for axis, size in self.mesh.items()],
            "versions": dict(self.versions),
            "flags": dict(self.flags),
            "timings": dict(self.timings),
            "xla_cost": None if self.xla_cost is None else dict(self.xla_cost),
            "xla_cost_note": self.xla_cost_note,
            "xla_memory": None if self.xla_memory is None else dict(self.xla_memory),
            "xla_memory_note": self.xla_memory_note,
            "literals": [dataclasses.asdict(literal) for literal in self.literals],
            "literals_note": self.literals_note,
            "jaxpr": None if self.jaxpr is None else dataclasses.asdict(self.jaxpr),
            "jaxpr_note": self.jaxpr_note,
            "closed_over": None
            if self.closed_over is None
            else dataclasses.asdict(self.closed_over),
            "closed_over_note": self.closed_over_note,
            "promotions": None if self.promotions is None else dataclasses.asdict(self.promotions),
            "promotions_note": self.promotions_note,
            "named_points": None
            if self.named_points is None
            else dataclasses.asdict(self.named_points),
            "named_points_note": self.named_points_note,
            "slow_folds": None
            if self.slow_folds is None
            else [dataclasses.asdict(fold) for fold in self.slow_folds],
            "full_rematerializations": None
            if self.full_rematerializations is None
            else [dataclasses.asdict(one) for one in self.full_rematerializations],
            "persistent_cache": self.persistent_cache,
            "warnings": list(self.warnings),
            "signature": dataclasses.asdict(self.signature),
        }


def _add(archive: zipfile.ZipFile, name: str, text: str) -> None:
    # A fixed date makes the same artifact the same bytes.
    entry = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
    entry.compress_type = zipfile.ZIP_DEFLATED
    entry.external_attr = 0o644 << 16
    archive.writestr(entry, text.encode(), compresslevel=6)


def _read(archive: zipfile.ZipFile, name: str, place: str) -> str:
    entry = archive.getinfo(name)
    if entry.file_size > _MAX_ENTRY_BYTES:
        raise _foreign(place, f"its {name} claims to be {entry.file_size} bytes")
    with archive.open(entry) as stream:
        data = stream.read(entry.file_size + 1)
    return data.decode("utf-8")


def _foreign(place: str, why: str) -> InputError:
    return InputError(
        f"this is not a hloscope artifact that can be read: {why}",
        place=place,
        hint="Capture the step again, or give the HLO text itself.",
    )


def _from_document(document: Any, hlo_text: str, lowered: str | None, place: str) -> Artifact:
    try:
        version = document["format"]
        if not isinstance(version, int) or version > FORMAT:
            raise InputError(
                f"the artifact has format {version}, and this hloscope reads up to {FORMAT}",
                place=place,
                hint="Update hloscope, or capture the step again.",
            )
        return Artifact(
            hlo_text=hlo_text,
            lowered_text=lowered,
            signature=_signature(document["signature"]),
            target=_text(document["target"]),
            device_kind=_text(document["device_kind"]),
            devices=int(document["devices"]),
            source=_text(document["source"]),
            name=_text(document["name"]),
            mesh={_text(axis): int(size) for axis, size in document["mesh"]},
            versions=_texts(document["versions"]),
            flags=_texts(document["flags"]),
            timings={_text(k): float(v) for k, v in document["timings"].items()},
            xla_cost=_numbers(document["xla_cost"]),
            xla_cost_note=document["xla_cost_note"],
            xla_memory=_integers(document["xla_memory"]),
            xla_memory_note=document["xla_memory_note"],
            literals=tuple(
                LiteralFacts(
                    name=_text(item["name"]),
                    dtype=_text(item["dtype"]),
                    dimensions=tuple(int(d) for d in item["dimensions"]),
                    kind=_text(item["kind"]),
                    value=item["value"],
                    digest=_text(item["digest"]),
                )
                for item in document["literals"]
            ),
            literals_note=document["literals_note"],
            jaxpr=None if version == 1 else _jaxpr(document["jaxpr"]),
            jaxpr_note=_BEFORE_JAXPR if version == 1 else document["jaxpr_note"],
            closed_over=None if version < 3 else _closed_over(document["closed_over"]),
            closed_over_note=_BEFORE_CLOSED_OVER if version < 3 else document["closed_over_note"],
            # Files of format 3 from before they were looked for have none.
            promotions=JaxprPromotions.from_document(document.get("promotions")),
            promotions_note=document.get("promotions_note", _BEFORE_PROMOTIONS),
            named_points=None
            if version < 4
            else NamedPoints.from_document(document["named_points"]),
            named_points_note=_BEFORE_NAMED_POINTS
            if version < 4
            else document["named_points_note"],
            # Files of format 4 from before the compiler was listened to have none.
            slow_folds=slow_folds_from_document(document.get("slow_folds")),
            full_rematerializations=full_rematerializations_from_document(
                document.get("full_rematerializations")
            ),
            persistent_cache=_flag(document.get("persistent_cache")),
            warnings=tuple(_text(item) for item in document["warnings"]),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise _foreign(place, f"its description is incomplete ({error!r})") from error


def _signature(data: Mapping[str, Any]) -> Signature:
    return Signature(
        inputs=tuple(
            InputLeaf(
                path=_text(leaf["path"]),
                role=Role(leaf["role"]),
                dtype=_text(leaf["dtype"]),
                dimensions=tuple(int(d) for d in leaf["dimensions"]),
                donated=leaf["donated"],
                parameter=leaf["parameter"],
                sharding=leaf["sharding"],
                memory_kind=leaf["memory_kind"],
            )
            for leaf in data["inputs"]
        ),
        outputs=tuple(
            OutputLeaf(
                path=_text(leaf["path"]),
                dtype=_text(leaf["dtype"]),
                dimensions=tuple(int(d) for d in leaf["dimensions"]),
                index=leaf["index"],
                sharding=leaf["sharding"],
                memory_kind=leaf.get("memory_kind"),  # older files lack it
            )
            for leaf in data["outputs"]
        ),
        basis=_text(data["basis"]),
    )


_BEFORE_JAXPR = "the artifact was made by a hloscope that did not count the jaxpr; capture it again"

_BEFORE_CLOSED_OVER = (
    "the artifact was made by a hloscope that did not look for closed-over arrays; capture it again"
)

_BEFORE_NAMED_POINTS = (
    "the artifact was made by a hloscope that did not read named values; capture it again"
)


_BEFORE_PROMOTIONS = (
    "the artifact was made by a hloscope that did not look for promotions; capture it again"
)


def _closed_over(data: Mapping[str, Any] | None) -> ClosedOver | None:
    if data is None:
        return None
    return ClosedOver(
        arrays=tuple(
            ClosedOverArray(
                dtype=_text(array["dtype"]),
                dimensions=tuple(int(d) for d in array["dimensions"]),
                bytes=int(array["bytes"]),
                digest=_text(array["digest"]),
                names=tuple(_text(name) for name in array["names"]),
                parameters=tuple(int(number) for number in array["parameters"]),
                file=array["file"],
                line=array["line"],
                changed=tuple(
                    ChangedArray(*(_text(one[key]) for key in ("change", "dtype", "digest")))
                    for one in array.get("changed", ())
                ),
            )
            for array in data["arrays"]
        ),
        note=_text(data["note"]),
    )


def _jaxpr(data: Mapping[str, Any] | None) -> JaxprCount | None:
    if data is None:
        return None

    return JaxprCount(
        total=_jaxpr_flops(data["total"]),
        by_kind={_text(kind): _jaxpr_flops(flops) for kind, flops in data["by_kind"].items()},
        recomputed=_jaxpr_flops(data["recomputed"]),
        sites=tuple(
            JaxprSite(
                kind=_text(site["kind"]),
                file=_text(site["file"]),
                line=int(site["line"]),
                backward=bool(site["backward"]),
                recomputed=bool(site["recomputed"]),
                each=int(site["each"]),
                runs=int(site["runs"]),
                dead=int(site["dead"]),
                repeated=int(site["repeated"]),
            )
            for site in data["sites"]
        ),
        uncounted=tuple(
            UncountedPrimitive(
                primitive=_text(call["primitive"]),
                name=_text(call["name"]),
                calls=int(call["calls"]),
                shapes=_text(call["shapes"]),
                reason=_text(call["reason"]),
            )
            for call in data["uncounted"]
        ),
        models=tuple(_text(name) for name in data["models"]),
        notes=tuple(_text(note) for note in data["notes"]),
    )


def _jaxpr_flops(data: Mapping[str, Any]) -> JaxprFlops:
    high = data["high"]
    return JaxprFlops(int(data["low"]), None if high is None else int(high), int(data["nominal"]))


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} where text is expected")
    return value


def _flag(value: Any) -> bool | None:
    if value is not None and not isinstance(value, bool):
        raise TypeError(f"{value!r} where true or false is expected")
    return value


def _texts(value: Mapping[str, Any]) -> dict[str, str]:
    return {_text(key): _text(item) for key, item in value.items()}


def _numbers(value: Mapping[str, Any] | None) -> dict[str, float] | None:
    return None if value is None else {_text(k): float(v) for k, v in value.items()}


def _integers(value: Mapping[str, Any] | None) -> dict[str, int] | None:
    return None if value is None else {_text(k): int(v) for k, v in value.items()}
