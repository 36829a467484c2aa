"""Mutated HLO text. Run: python tests/fuzz/fuzz_text.py --inputs 100000"""

from __future__ import annotations

import random
import sys

from mutation import FIXTURES, run

from hloscope.ir import parse_modules

TEXTS = [
    path.read_text(encoding="utf-8", errors="replace")
    for path in sorted(FIXTURES.rglob("*.hlo"))
    if path.stat().st_size < 9000
]
PIECES = [
    *'{}()[]",=%\n :\\\0?',
    *("/*", "*/", "//", "ROOT ", "ENTRY ", "-1", "f32[", "<=", "{1,0:T(8,128)}", "calls=%x"),
    *("u8[0]{0}", "\n}\n", "parameter(", "HloModule ", "9" * 30, "9" * 5000, "constant({"),
]


def mutate(rng: random.Random) -> bytes:
    text = rng.choice(TEXTS)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(text) + 1)
        kind = rng.random()
        if kind < 0.3:
            text = text[:at] + rng.choice(PIECES) + text[at:]
        elif kind < 0.55:
            text = text[:at] + text[at + rng.randint(1, 20) :]
        elif kind < 0.65:
            text = text[:at]
        elif kind < 0.85:
            source = rng.randrange(len(text) + 1)
            text = text[:at] + text[source : source + rng.randint(1, 200)] + text[at:]
        else:
            text = text[:at] + rng.choice(PIECES) + text[at + 1 :]
    return text.encode()


if __name__ == "__main__":
    sys.exit(run("text", mutate, lambda data: parse_modules(data.decode())))
