"""Compile every architecture for every target at one preset, and audit what comes out.

Run: python tests/zoo/compile_zoo.py FOLDER [--preset small] [--target cpu h100 v5e] [--arch ...]

It takes from one to three hours on two cores. Each compile's artifact and its audit as
JSON stay in FOLDER, so a run that was stopped goes on where it was, and rules can be
tried again on the artifacts (``hloscope audit FOLDER/unet-v5e.hloscope``). The table at
the end is Markdown: seconds of tracing, lowering and compiling, the instructions, the
products' FLOPs, the modelled peak and the codes that the audit finds. A pair that fails
is a row with its error, and makes the exit status 1.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from hloscope import api
from hloscope.answers.flop_answers import find_answers
from hloscope.capture import Artifact, CaptureRequest, Source, SourceKind, capture
from hloscope.errors import HloscopeError
from hloscope.models import registry
from hloscope.passes.memory_use import MemoryUse
from hloscope.report.json import report_document, write
from hloscope.sessions import open_session
from hloscope.subjects import ArtifactSubject
from hloscope.units import byte_size, flops

MINUTES = 40  # for one compile

PHASES = ("trace", "lower", "compile")
HEADER = ("arch", "target", *PHASES, "instructions", "products", "peak", "findings")


def main() -> int:
    """Fill the folder, print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--preset", default="small")
    parser.add_argument("--target", nargs="+", default=["cpu", "h100", "v5e"])
    parser.add_argument("--arch", nargs="+", default=registry.names())
    asked = parser.parse_args()
    asked.folder.mkdir(parents=True, exist_ok=True)
    rows = []
    # By target: one that fails throughout is seen in the first minutes.
    for target in asked.target:
        for arch in asked.arch:
            rows.append(_row(asked.folder, arch, target, asked.preset))
            print(f"{arch} {target}: {rows[-1]}", file=sys.stderr, flush=True)
    print(_table(rows))
    return int(any("error" in row for row in rows))


def _row(folder: Path, arch: str, target: str, preset: str) -> dict[str, Any]:
    kept = folder / f"{arch}-{target}.json"
    if kept.exists():
        row: dict[str, Any] = json.loads(kept.read_text())
        return row
    began = time.monotonic()
    try:
        request = CaptureRequest(
            Source(SourceKind.ARCH, arch),
            target=target,
            preset=preset,
            timeout=60 * MINUTES,
            use_cache=False,  # its seconds would be those of another day
        )
        artifact = capture(request)
        artifact.save(folder / f"{arch}-{target}.hloscope")
        row = {"arch": arch, "target": target, **_facts(artifact)}
        report = api.audit(folder / f"{arch}-{target}.hloscope")
        with (folder / f"{arch}-{target}.audit.json").open("w") as stream:
            write(report_document(report), stream)
        counts = Counter(f"{found.code} {found.severity.value}" for found in report.findings)
        row["findings"] = dict(sorted(counts.items()))
    except HloscopeError as error:
        return {"arch": arch, "target": target, "error": error.message}
    row["seconds"] = time.monotonic() - began
    kept.write_text(json.dumps(row))
    return row


def _facts(artifact: Artifact) -> dict[str, Any]:
    session = open_session(ArtifactSubject(artifact), None)
    answers = find_answers(session, "full")
    return {
        **{phase: artifact.timings.get(phase) for phase in PHASES},
        "instructions": sum(
            len(each.instructions) for each in artifact.module.computations.values()
        ),
        "products": answers.ours.value,
        "xla": answers.xla.value,
        "jaxpr": answers.jaxpr.value,
        "peak": session.get(MemoryUse).peak,
    }


def _table(rows: list[dict[str, Any]]) -> str:
    lines = [f"| {' | '.join(HEADER)} |", f"|{'---|' * len(HEADER)}"]
    lines += [f"| {' | '.join(_cells(row))} |" for row in rows]
    return "\n".join(lines)


def _cells(row: dict[str, Any]) -> list[str]:
    first = [row["arch"], row["target"]]
    if "error" in row:
        return [*first, *[""] * (len(HEADER) - 3), row["error"]]
    seconds = ["" if row[phase] is None else f"{row[phase]:.0f} s" for phase in PHASES]
    found = ", ".join(
        code if number == 1 else f"{number} x {code}" for code, number in row["findings"].items()
    )
    products = "unknown" if row["products"] is None else flops(row["products"])
    peak = byte_size(row["peak"])
    return [*first, *seconds, str(row["instructions"]), products, peak, found]


if __name__ == "__main__":
    sys.exit(main())
