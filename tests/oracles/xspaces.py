"""XSpaces written by hand, field by field, for what cannot be recorded here."""

import struct


def varint(number):
    """An unsigned or negative number as the wire has it."""
    number &= (1 << 64) - 1
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def number(field, value):
    return varint(field << 3) + varint(value)


def message(field, content):
    content = content.encode() if isinstance(content, str) else content
    return varint(field << 3 | 2) + varint(len(content)) + content


class Reference(str):
    """A stat's text that is kept once, as the name of another stat's metadata."""


class PlaneWriter:
    """One plane; ids of names are given out as they are used.

    Args:
        name: The plane's.
        first_id: The id of the first stat.
    """

    def __init__(self, name, first_id=1):
        self.name = name
        self.events, self.stats = {}, {}
        self.first_id = first_id
        self.lines, self.own, self.about = [], b"", {}

    def stat_id(self, name):
        return self.stats.setdefault(name, len(self.stats) + self.first_id)

    def stat(self, name, value):
        which = number(1, self.stat_id(name))
        if isinstance(value, Reference):
            return which + number(7, self.stat_id(str(value)))
        if isinstance(value, float):
            return which + varint(2 << 3 | 1) + struct.pack("<d", value)
        if isinstance(value, bytes):
            return which + message(6, value)
        if isinstance(value, str):
            return which + message(5, value)
        return which + (number(4, value) if value < 1 << 63 else number(3, value))

    def plane_stat(self, name, value):
        self.own += message(6, self.stat(name, value))

    def event(self, name, offset_ps, duration_ps, **stats):
        which = self.events.setdefault(name, len(self.events) + 1)
        body = number(1, which) + number(2, offset_ps) + number(3, duration_ps)
        return message(4, body + b"".join(message(4, self.stat(*s)) for s in stats.items()))

    def describe(self, event, display_name="", **stats):
        """Stats of all events of one name."""
        self.about[event] = display_name, stats

    def line(self, name, events, timestamp_ns=0, number_=0):
        body = number(1, number_) + message(2, name) + number(3, timestamp_ns) + b"".join(events)
        self.lines.append(message(3, body))

    def write(self):
        metadata = b""
        for name, which in self.events.items():
            display, stats = self.about.get(name, ("", {}))
            body = number(1, which) + message(2, name)
            body += message(4, display) if display else b""
            body += b"".join(message(5, self.stat(*each)) for each in stats.items())
            metadata += message(4, number(1, which) + message(2, body))
        names = b"".join(
            message(5, number(1, which) + message(2, number(1, which) + message(2, name)))
            for name, which in self.stats.items()
        )
        return message(2, self.name) + b"".join(self.lines) + metadata + names + self.own


def space(*planes, hostnames=("host",), errors=()):
    """The bytes of an XSpace."""
    return (
        b"".join(message(1, plane.write()) for plane in planes)
        + b"".join(message(2, error) for error in errors)
        + b"".join(message(4, name) for name in hostnames)
    )
