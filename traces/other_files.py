"""What a file is that is no profile, for a message that says so."""

from __future__ import annotations

from hloscope.traces.wire import LENGTH, WireError, fields, read_varint

__all__ = ["what_else"]

_MAGIC = (
    (b"\xff\xd8\xff", "a picture"),
    (b"\x89PNG", "a picture"),
    (b"PK\x03\x04", "a zip file"),
    (b"\x1f\x8b", "a gzip file within a gzip file"),
    (b"\x7fELF", "a program"),
    (b"%PDF", "a PDF"),
)
_REPLACED = "\ufffd".encode()
_MANY = 8  # of them, which no text has by chance
_FIND = "Give a .xplane.pb, a .trace.json.gz, or the folder that they are in."


def what_else(head: bytes) -> tuple[str, str] | None:
    """What a file that is no XSpace may be, and what to do then.

    Args:
        head: Its first few thousand bytes.

    Returns:
        Words that follow *this is*, and a sentence; ``None`` of what is unknown.
    """
    for magic, what in _MAGIC:
        if head.startswith(magic):
            return what, _FIND
    if (
        head.count(_REPLACED) > _MANY
        and len(head.decode("utf-8", "ignore").encode()) > len(head) - 4
    ):
        return (
            "one whose bytes were taken for text: those that are no text were replaced, and lost",
            "Take it again from where it was recorded, as a binary file.",
        )
    if head.lstrip()[:1] in (b"{", b"[") and _is_text(head):
        return "JSON", "A Chrome trace is read where its name ends in .json or .json.gz."
    if head.startswith(b"HloModule") or b"\nENTRY " in head:
        return "HLO text", "It is a compiled program: see hloscope audit, and give a profile here."
    if _is_text(head):
        return "text", _FIND
    if _is_program(head):
        return (
            "a compiled program (HloProto)",
            "See hloscope audit for programs, and give a profile here.",
        )
    return None


def _is_text(head: bytes) -> bool:
    """Whether it is UTF-8 without control characters, up to a character that is cut."""
    text = head.decode("utf-8", "ignore")
    if len(text.encode()) < len(head) - 3:
        return False
    return bool(text) and all(each.isprintable() or each in "\t\n\r\f" for each in text)


def _is_program(head: bytes) -> bool:
    """Whether a module stands first: a message that begins with its own name.

    The first message of an XSpace is a plane, which begins with a number or has its
    name as its second field.
    """
    view = memoryview(head)
    try:
        tag, at = read_varint(view, 0, len(view))
        if tag != 1 << 3 | LENGTH:
            return False
        _, at = read_varint(view, at, len(view))
        first = next(fields(view, at, len(view)), None)
    except WireError:
        return False
    return first is not None and (first.number, first.wire) == (1, LENGTH)
