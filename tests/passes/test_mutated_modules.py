"""Whatever parses gets an answer or a typed error from every pass and rule."""

import contextlib
import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hloscope.chips import CHIPS
from hloscope.errors import HloscopeError
from hloscope.ir import parse_text
from hloscope.passes.aliasing import Aliasing
from hloscope.passes.chunked_loops import ChunkedLoops
from hloscope.passes.convolution_sizes import ConvolutionSizes
from hloscope.passes.duplicate_products import DuplicateProducts
from hloscope.passes.flops.elementwise import ElementwiseLedger
from hloscope.passes.heap_block import HeapBlock
from hloscope.passes.host_offload import HostOffload
from hloscope.passes.layout_changes import LayoutChanges
from hloscope.passes.masked_products import MaskedProducts
from hloscope.passes.matrix_tiles import MatrixPadding
from hloscope.passes.memory_use import MemoryUse
from hloscope.passes.operand_dtypes import OperandDtypes
from hloscope.passes.remat_verdict import RematVerdict
from hloscope.passes.repeated_reads import RepeatedReads
from hloscope.passes.reshards import Reshards
from hloscope.passes.residuals import Residuals
from hloscope.passes.roofline import Roofline
from hloscope.passes.score_traffic import ScoreTraffic
from hloscope.passes.step_invariance import StepInvariance
from hloscope.passes.wide_gathers import WideExchanges
from hloscope.pipeline.findings import Trust
from hloscope.pipeline.session import AnalysisFailedError

FILES = [
    "tpu_ragged.hlo",
    "tpu_scan_remat.hlo",
    "gpu_attn_grad.hlo",
    "gpu_attn_paged.hlo",
    "gpu_gemm_f8.hlo",
    "gpu_conv_strided_grad.hlo",
    "cpu_switch.hlo",
    "cpu_scan.hlo",
    "cpu_donate.hlo",
    "tpu_pallas_ce.hlo",
    "cpu_linalg.hlo",
    "gpu_linalg.hlo",
    "tpu_linalg.hlo",
    "cpu_redwin.hlo",
    "gpu_sort_small.hlo",
    "cpu_fft.hlo",
    "tpu_m_fsdp.hlo",
    "gpu_m_coll.hlo",
    "gpu_ragged_bwd.hlo",
    "gpu_offload.hlo",
    "tpu_offload.hlo",
]
TOKEN = re.compile(r"[\w.\-]+|[^\w\s]")


def mutate(text: str, kind: str, where: float, other: float, value: str) -> str:
    found = TOKEN.search(text, int(where * (len(text) - 1)))
    second = TOKEN.search(text, int(other * (len(text) - 1)))
    number = re.compile(r"\d+").search(text, int(where * (len(text) - 1)))
    if kind == "number" and number is not None:
        return text[: number.start()] + value + text[number.end() :]
    if found is None or second is None:
        return text
    replacement = "" if kind == "delete" else second.group()
    return text[: found.start()] + replacement + text[found.end() :]


position = st.floats(0, 1, exclude_max=True)
mutations = st.lists(
    st.tuples(
        st.sampled_from(["number", "number", "delete", "swap"]),
        position,
        position,
        st.sampled_from(["0", "1", "7", "-1", "99999999999"]),
    ),
    min_size=1,
    max_size=4,
)


@pytest.mark.slow
@settings(
    max_examples=2000,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.filter_too_much],
)
@given(file=st.sampled_from(FILES), changes=mutations)
def test_a_mutated_module_is_answered_or_refused_by_type(fixtures_dir, session_of, file, changes):
    text = (fixtures_dir / "compiled" / "today" / file).read_text()
    for change in changes:
        text = mutate(text, *change)
    try:
        session = session_of(parse_text(text), CHIPS["v5e"])
    except HloscopeError:
        return
    memory = (MemoryUse, HeapBlock, HostOffload, Residuals, RematVerdict)
    redundant = (
        *(ScoreTraffic, MatrixPadding, MaskedProducts, LayoutChanges),
        *(StepInvariance, DuplicateProducts, RepeatedReads, ChunkedLoops, ConvolutionSizes),
    )
    others = (Aliasing, OperandDtypes, ElementwiseLedger, Roofline, Reshards, WideExchanges)
    for wanted in (Trust, *others, *memory, *redundant):
        with contextlib.suppress(HloscopeError):
            try:
                session.get(wanted)
            except AnalysisFailedError as failed:
                raise failed.error from None
