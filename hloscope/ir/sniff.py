"""What a file is, told from its bytes and never from its name."""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass

from hloscope.errors import InputError

__all__ = ["MAX_BYTES", "Content", "binary", "decompressed", "foreign", "text_of"]

MAX_BYTES = 4 << 30
"""Largest file and largest decompressed content that is read, in bytes."""

_GZIP = b"\x1f\x8b"
_CHUNK = 1 << 20
_HLO_HINT = (
    "Give HLO: compiled.as_text(), a serialized HloProto or HloModuleProto, or a folder that "
    "--xla_dump_to wrote."
)


@dataclass(frozen=True, slots=True)
class Content:
    """What something is instead of HLO, and what to do about it."""

    what: str
    hint: str


def decompressed(data: bytes, *, file: str, limit: int | None = None) -> bytes:
    """The content of gzip data, or the data as they are where they are not gzip.

    Args:
        data: The file's bytes.
        file: Name for messages.
        limit: Largest result in bytes; :data:`MAX_BYTES` by default.

    Raises:
        InputError: The gzip stream is damaged, breaks off, holds gzip again,
            or grows beyond the limit.
    """
    if not data.startswith(_GZIP):
        return data
    limit = MAX_BYTES if limit is None else limit
    parts: list[bytes] = []
    size = 0
    stream = zlib.decompressobj(wbits=31)
    for start in range(0, len(data), _CHUNK):
        rest = data[start : start + _CHUNK]
        while rest:
            try:
                part = stream.decompress(rest, limit - size + 1)
            except zlib.error as error:
                raise InputError(
                    f"is a damaged gzip file: {error}, after {size} bytes of content",
                    place=file,
                    hint="Fetch it again; check it with gzip -t.",
                ) from None
            parts.append(part)
            size += len(part)
            if size > limit:
                raise InputError(
                    f"holds more than {limit} bytes once decompressed",
                    place=file,
                    hint="That is more than any HLO module; is it the right file?",
                )
            rest = stream.unconsumed_tail
            if stream.eof:  # a gzip file may be several streams in a row, padded with zeros
                rest = stream.unused_data.lstrip(b"\x00")
                if rest:
                    stream = zlib.decompressobj(wbits=31)
    if not stream.eof:
        raise InputError(
            f"is a gzip file that breaks off after {size} bytes of content",
            place=file,
            hint="Fetch the whole file; check it with gzip -t.",
        )
    content = b"".join(parts)
    if content.startswith(_GZIP):
        raise InputError("is gzip inside gzip", place=file, hint="Unpack it once: gunzip FILE.")
    return content


_MAGICS: tuple[tuple[bytes, str, str], ...] = (
    (
        b"PK\x03\x04",
        "a zip archive",
        "A .hloscope artifact is opened by its own suffix; unpack any other and name the HLO "
        "file inside.",
    ),
    (b"PK\x05\x06", "an empty zip archive", _HLO_HINT),
    (b"\x7fELF", "an ELF object or executable", _HLO_HINT),
    (b"ML\xefR", "MLIR bytecode (a StableHLO portable artifact)", _HLO_HINT),
    (b"BC\xc0\xde", "LLVM bitcode", _HLO_HINT),
    (b"\x28\xb5\x2f\xfd", "a zstd archive", "Unpack it first: zstd -d FILE."),
    (b"\xfd7zXZ", "an xz archive", "Unpack it first: xz -d FILE."),
    (b"BZh", "a bzip2 archive", "Unpack it first: bunzip2 FILE."),
    (b"\x93NUMPY", "a numpy array", _HLO_HINT),
    (b"\x89HDF", "an HDF5 file", _HLO_HINT),
    (b"\x89PNG", "a PNG picture", _HLO_HINT),
    (b"%PDF", "a PDF document", _HLO_HINT),
    (b"SQLite format 3", "an SQLite database", _HLO_HINT),
    (b"!<arch>", "an archive of object files", _HLO_HINT),
)
_PICKLE = re.compile(rb"\x80[\x02-\x05].*\.\Z", re.DOTALL)
_PLANE = re.compile(rb"/(?:host|device):[A-Za-z#]|Task Environment|#Chip")
_REPLACED = b"\xef\xbf\xbd"  # the UTF-8 spelling of what replaces a byte that could not be read


def foreign(data: bytes) -> Content | None:
    """Say what bytes are that cannot be HLO; ``None`` where they may be."""
    for magic, what, hint in _MAGICS:
        if data.startswith(magic):
            return Content(f"is {what}, not HLO", hint)
    if _PICKLE.match(data):
        return Content("is a Python pickle, not HLO", _HLO_HINT)
    return None


def binary(data: bytes) -> Content | None:
    """Say what binary data are that turned out to be no protobuf of HLO."""
    head = data[:4096]
    if head.count(_REPLACED) > 8:
        return Content(
            "is binary data in which every byte that is not UTF-8 was replaced",
            "It was read or sent as text and cannot be put right: fetch it again as bytes.",
        )
    if data.startswith(b"\x0a") and _PLANE.search(head):
        return Content(
            "is a profiler trace (XSpace), not HLO",
            "Give the HLO of the program that was traced.",
        )
    return None


_CONTROL = re.compile(rb"[\x00-\x08\x0e-\x1f\x7f]")


def _is_text(head: bytes) -> bool:
    return _CONTROL.search(head) is None


def text_of(data: bytes, *, file: str) -> str | None:
    """The text that the bytes spell, or ``None`` where they are binary.

    Raises:
        InputError: They begin as text, but hold NUL or other bytes that are
            no UTF-8; the message says where.
    """
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise InputError(
            "is UTF-16 text", place=file, hint="Save it as UTF-8: iconv -f UTF-16 -t UTF-8 FILE."
        )
    if not _is_text(data[:512]):
        return None
    if (nul := data.find(b"\x00")) >= 0:
        raise InputError(
            f"is text up to a NUL byte at offset {nul} (line {_line(data, nul)})",
            place=file,
            hint="The file is damaged: dump the module again, or fetch the whole file.",
        )
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(
            f"is text, but byte {data[error.start]:#04x} at offset {error.start} "
            f"(line {_line(data, error.start)}) is no UTF-8",
            place=file,
            hint="The file is damaged, or was saved in another encoding: save it as UTF-8.",
        ) from None


def _line(data: bytes, offset: int) -> int:
    return data.count(b"\n", 0, offset) + 1
