"""Texts that are written out in every event: few distinct ones, read once each."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hloscope.traces.codes import chunks
from hloscope.traces.layouts import rows_at
from hloscope.traces.wire import Bytes, Positions, WireError, varints_at, words_of

__all__ = ["codes_of_texts"]

_WIDEST = 512  # bytes of a text; longer ones are read one by one
_U = np.uint64
_MIXER = _U(0x9E37_79B9_7F4A_7C15)  # odd: multiplying by it loses nothing


def codes_of_texts(
    buffer: Bytes, positions: Positions, ends: Positions, places: dict[str, int]
) -> NDArray[np.int32]:
    """The place of each text among all of them.

    Args:
        buffer: The file.
        positions: Where the length of each stands.
        ends: What none of them may reach beyond.
        places: Those that are known, and their places; more are added.

    Raises:
        WireError: A text reaches beyond its event.
    """
    codes = np.empty(len(positions), np.int32)
    words = words_of(buffer)
    for chunk in chunks(len(positions)):
        length, begins = varints_at(words, positions[chunk], buffer)
        room = ends[chunk] - begins
        wrong = (room < 0) | (length > np.maximum(room, 0).view(np.uint64))
        if wrong.any():
            at = int(positions[chunk][wrong][0])
            raise WireError("a text that reaches beyond its event", at)
        sizes = length.view(np.int64)
        some = codes[chunk]
        for size in np.unique(sizes).tolist():
            mine = np.flatnonzero(sizes == size)
            some[mine] = _of_one_size(buffer, begins[mine], size, places)
    return codes


def _of_one_size(
    buffer: Bytes, begins: Positions, size: int, places: dict[str, int]
) -> NDArray[np.int32]:
    first, inverse = np.arange(len(begins)), np.arange(len(begins))
    if 0 < size <= _WIDEST and int(begins.max()) + size + 8 <= len(buffer):
        columns = rows_at(buffer, begins, size)
        columns[-1] &= _U(0xFFFF_FFFF_FFFF_FFFF >> 8 * (-size % 8))
        mixed = columns[0].copy()
        for column in columns[1:]:
            mixed ^= mixed >> _U(29)
            mixed *= _MIXER
            mixed += column
        _, first, inverse = np.unique(mixed, return_index=True, return_inverse=True)
        if any(np.any(column != column[first][inverse]) for column in columns):
            # Two texts of one mixture, which is all but impossible: one by one.
            first, inverse = np.arange(len(begins)), np.arange(len(begins))
    view = buffer.data
    codes = []
    for begin in begins[first].tolist():
        word = bytes(view[begin : begin + size]).decode("utf-8", "replace")
        codes.append(places.setdefault(word, len(places)))
    return np.asarray(codes, np.int32)[inverse]
