"""From a function, an architecture or a file to an Artifact.

JAX runs in a worker process only; nothing in this module imports it.
"""

from __future__ import annotations

from hloscope.capture.artifact import Artifact, LiteralFacts
from hloscope.capture.request import (
    CaptureRequest,
    Source,
    SourceKind,
    parse_compiler_options,
    parse_mesh,
    parse_options,
    parse_source,
)
from hloscope.capture.run import PhaseEvent, Progress
from hloscope.capture.session import capture
from hloscope.capture.step import Step

__all__ = [
    "Artifact",
    "CaptureRequest",
    "LiteralFacts",
    "PhaseEvent",
    "Progress",
    "Source",
    "SourceKind",
    "Step",
    "capture",
    "parse_compiler_options",
    "parse_mesh",
    "parse_options",
    "parse_source",
]
