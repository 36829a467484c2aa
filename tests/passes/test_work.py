"""The whole ledger: work and bytes of each launch."""

from pathlib import Path

import pytest

from hloscope.passes.flops.elementwise import ElementwiseLedger
from hloscope.passes.flops.ledger import FlopLedger
from hloscope.passes.memory_spaces import Space
from hloscope.passes.work import WorkLedger

TEXT = """
HloModule m
fused {
  a = bf16[8,16] parameter(0)
  b = bf16[16,4] parameter(1)
  d = f32[8,4] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT e = f32[8,4] exponential(d)
}
cond {
  s = (s32[], bf16[8,16], bf16[16,4], f32[8,4]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(5)
  ROOT c = pred[] compare(i, n), direction=LT
}
body {
  s = (s32[], bf16[8,16], bf16[16,4], f32[8,4]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  a = bf16[8,16] get-tuple-element(s), index=1
  b = bf16[16,4] get-tuple-element(s), index=2
  one = s32[] constant(1)
  next = s32[] add(i, one)
  f = f32[8,4] fusion(a, b), kind=kLoop, calls=fused
  ROOT t = (s32[], bf16[8,16], bf16[16,4], f32[8,4]) tuple(next, a, b, f)
}
ENTRY e {
  a = bf16[8,16] parameter(0)
  b = bf16[16,4] parameter(1)
  z = f32[8,4] parameter(2)
  i = s32[] constant(0)
  t = (s32[], bf16[8,16], bf16[16,4], f32[8,4]) tuple(i, a, b, z)
  w = (s32[], bf16[8,16], bf16[16,4], f32[8,4]) while(t), condition=cond, body=body
  ROOT r = f32[8,4] get-tuple-element(w), index=3
}
"""


def test_a_fusion_in_a_loop_sums_what_is_inside_over_all_runs(session_of):
    work = session_of(TEXT).get(WorkLedger)
    row = next(row for row in work.rows if row.instruction.name == "f")
    assert row.times.exact == 5
    assert row.chain == "w x5"
    assert row.products.nominal == 5 * 2 * 8 * 16 * 4
    assert row.transcendentals == 5 * 8 * 4
    assert row.elementwise.nominal == 0
    assert row.dtypes == ("bf16",)
    assert row.accumulation == ("f32",)
    assert row.traffic.read[Space.DEVICE] == (8 * 16 + 16 * 4) * 2
    assert row.traffic.written[Space.DEVICE] == 8 * 4 * 4


@pytest.mark.parametrize(
    "name",
    [
        "compiled/today/gpu_scan_train.hlo",
        "compiled/today/tpu_scan_remat.hlo",
        "compiled/today/cpu_switch.hlo",
        "compiled/today/gpu_attn_grad.hlo",
        "hlo/tpu_v6e8_llama3_8b_train_step.hlo",
    ],
)
def test_nothing_is_lost_between_the_ledgers_and_the_launches(fixtures_dir: Path, session_of, name):
    session = session_of((fixtures_dir / name).read_text())
    work = session.get(WorkLedger)
    products = sum(row.products.nominal for row in work.rows)
    elementwise = sum(row.elementwise.nominal for row in work.rows)
    counted = [*session.get(FlopLedger).rows, *session.get(ElementwiseLedger).rows]
    assert products + elementwise + work.elsewhere.nominal == sum(row.nominal for row in counted)
