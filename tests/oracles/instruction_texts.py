"""One instruction each for the attributes that fixtures lack, as HLO text."""

from __future__ import annotations

__all__ = ["INSTRUCTIONS", "module_text"]

INSTRUCTIONS = [
    'f32[8]{0} negate(%v), frontend_attributes={b="x\\"y",a={"n":1}}',
    "f32[8]{0} exponential(%v), result_accuracy={tolerance={atol=1e-10,rtol=0.5,ulps=2}}",
    "f32[8]{0} exponential(%v), result_accuracy={mode=highest}",
    "f32[8]{0} negate(%v), statistics={visualizing_index=1,a=1.5,b=2}",
    'f32[8]{0} negate(%v), origin={{"a" {1}}}',
    '(f32[8]{0}, f32[8]{0}) tuple(%v, %v), origin={({"a"}, {"b" {0,1}})}',
    'f32[8]{0} negate(%v), metadata={op_type="t" op_name="params[\\\'w\\\'];x" source_file="f.py" '
    "source_line=3 source_end_line=4 source_column=5 source_end_column=6 "
    'deduplicated_name="d" scheduling_name="s"}',
    "f32[] reduce(%v, %zero), dimensions={0}, to_apply=%sum",
    "f32[8,8]{1,0} reduce(%m, %zero), dimensions={}, to_apply=%sum",
    "f32[8]{0} map(%v, %v), dimensions={0}, to_apply=%sum",
    "f32[8]{0} reduce-window(%v, %zero), window={size=3 stride=2 pad=4_4 rhs_dilate=2}, "
    "to_apply=%sum",
    "f32[8]{0} select-and-scatter(%v, %half, %zero), window={size=2 stride=2}, "
    "select=%ge, scatter=%sum",
    "f32[11]{0} pad(%v, %zero), padding=1_2",
    "f32[15]{0} pad(%v, %zero), padding=0_0_1",
    "f32[4]{0} slice(%v), slice={[0:8:2]}",
    "f32[8]{0} reverse(%v), dimensions={0}",
    "f32[8]{0} sort(%v), dimensions={0}, is_stable=true, to_apply=%ge",
    "f32[8]{0} broadcast(%zero), dimensions={}",
    "s32[4,2]{1,0} iota(), iota_dimension=1",
    "f32[8,8]{1,0} transpose(%m), dimensions={1,0}",
    "f32[8]{0} reduce-precision(%v), exponent_bits=5, mantissa_bits=10",
    "c64[8,5]{1,0} fft(%m), fft_type=RFFT, fft_length={8}",
    "f32[8,8]{1,0} cholesky(%m), lower=true",
    "f32[8,8]{1,0} cholesky(%m)",
    "f32[8,8]{1,0} triangular-solve(%m, %m), left_side=true, lower=true, unit_diagonal=true, "
    "transpose_a=ADJOINT",
    "f32[8,8]{1,0} triangular-solve(%m, %m), transpose_a=NO_TRANSPOSE",
    "f32[8]{0} rng(%zero, %one), distribution=rng_uniform",
    "u64[1]{0} rng-get-and-update-state(), delta=4096",
    "(u64[2]{0}, u32[4]{0}) rng-bit-generator(%state), algorithm=rng_three_fry",
    "(f32[8,8]{1,0}, f32[8]{0}, f32[8]{0}) batch-norm-training(%m, %v, %v), "
    "epsilon=0.001, feature_index=1",
    "f32[8,8]{1,0} batch-norm-inference(%m, %v, %v, %v, %v), epsilon=1e-05, feature_index=0",
    "(f32[4]{0}, s32[4]{0}) topk(%v), k=4, largest=true",
    "pred[8]{0} compare(%v, %v), direction=LT, type=TOTALORDER",
    "pred[8]{0} compare(%v, %v), direction=NE",
    "pred[] compare(%size, %size), direction=LT, order=PARTIAL",
    'f32[8,8]{1,0:T(8,128)(*,1)} custom-call(), custom_call_target="x"',
    "s32[] get-dimension-size(%m), dimensions={1}",
    "f32[<=8,8]{1,0} set-dimension-size(%m, %size), dimensions={0}",
    "f32[1,8]{1,0} dynamic-slice(%m, %size, %size), dynamic_slice_sizes={1,8}",
    "f32[] dynamic-slice(%zero), dynamic_slice_sizes={}",
    "f32[8,8]{1,0} dot(%m, %m), lhs_contracting_dims={1}, rhs_contracting_dims={0}, "
    "operand_precision={highest,high}",
    "f32[8,8]{1,0} dot(%m, %m), lhs_contracting_dims={1}, rhs_contracting_dims={0}, "
    "algorithm=dot_bf16_bf16_f32_x3",
    "f32[8,8,8,8]{3,2,1,0} dot(%m, %m), lhs_contracting_dims={}, rhs_contracting_dims={}",
    "f32[8,8]{1,0} dot(%m, %m, %groups), lhs_contracting_dims={1}, rhs_contracting_dims={0}, "
    "sparsity_config={lhs={sparsity=2x4 dimension=1 stride=1 idx=2}}",
    "f32[8,8]{1,0} dot(%m, %m, %m, %m), lhs_contracting_dims={1}, rhs_contracting_dims={0}, "
    "block_scaling_config={lhs={scale_idx=2 strides=1x32 steps=8x1} "
    "rhs={scale_idx=3 zero_idx=4 strides=1 steps=32}}",
    "f32[8,8]{1,0} shuffle(%m), dimensions={0,1}, mode=rotate, shifts={1,2}",
    "(f32[8]{0}, f32[]) scan(%v, %zero), dimensions={0}, is_reverse=true, num_carries=1, "
    "is_associative=true, to_apply=%carry",
    "f32[8]{0} call(%v), to_apply=%twice, is_composite=true, frontend_attributes="
    '{composite.name="a",composite.attributes="{x}",composite.version="1"}',
    "f32[8]{0} custom-call(%v), padding_type=PADDING_SAME, feature_group_count=2, "
    'custom_call_target="x"',
    "f32[8]{0} ragged-all-to-all(%v, %v, %groups, %groups, %groups, %groups), "
    "replica_groups={{0,1}}",
    "f32[8]{0} collective-broadcast(%v), channel_id=1, replica_groups={{0,1}}",
    "f32[8,8]{1,0} scaled-dot(%m, %m, %m, %m), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
    "f32[8]{0} dot(%m, %m), lhs_batch_dims={0}, lhs_contracting_dims={1}, rhs_batch_dims={0}, "
    "rhs_contracting_dims={1}",
    "f32[8,8]{1,0} ragged-dot(%m, %weights, %groups), lhs_contracting_dims={1}, "
    "rhs_contracting_dims={1}, lhs_ragged_dims={0}, rhs_group_dims={0}",
    "f32[4,8]{1,0} gather(%m, %rows), offset_dims={1}, collapsed_slice_dims={0}, "
    "start_index_map={0}, index_vector_dim=1, slice_sizes={1,8}, indices_are_sorted=true",
    "f32[8,1]{1,0} gather(%m, %each), offset_dims={1}, collapsed_slice_dims={}, "
    "start_index_map={1}, operand_batching_dims={0}, start_indices_batching_dims={0}, "
    "index_vector_dim=1, slice_sizes={1,1}",
    "f32[8,8]{1,0} scatter(%m, %rows, %updates), update_window_dims={1}, inserted_window_dims={0}, "
    "scatter_dims_to_operand_dims={0}, index_vector_dim=1, unique_indices=true, to_apply=%sum",
    "f32[8]{0} all-reduce(%v), channel_id=3, replica_groups={{0,1},{2,3}}, "
    "use_global_device_ids=true, to_apply=%sum",
    "f32[8]{0} all-reduce(%v), replica_groups={}, constrain_layout=true, to_apply=%sum",
    "f32[8]{0} all-reduce(%v), channel_id=3, replica_groups=[2,4]<=[4,2]T(1,0), to_apply=%sum",
    "f32[32]{0} all-gather(%v), channel_id=1, replica_groups=[1,4]<=[4], dimensions={0}",
    "f32[2]{0} reduce-scatter(%v), channel_id=1, replica_groups={{0,1,2,3}}, "
    "dimensions={0}, to_apply=%sum",
    "f32[8]{0} all-to-all(%v), channel_id=1, replica_groups={{0,1,2,3}}, dimensions={0}",
    "f32[8]{0} collective-permute(%v), channel_id=1, source_target_pairs={{0,1},{1,0}}",
    'f32[8]{0} custom-call(%v), custom_call_target="a\\"b", '
    "operand_layout_constraints={f32[8]{0}}, custom_call_has_side_effect=true, "
    "schedule=SCHEDULE_LATEST, output_to_operand_aliasing={{}: (0, {})}, "
    'api_version=API_VERSION_STATUS_RETURNING, backend_config="opaque \\001\\"bytes\\""',
    '(f32[8]{0}, f32[8]{0}) custom-call(%v), custom_call_target="t", '
    "output_to_operand_aliasing={{1}: (0, {})}, called_computations={%sum, %ge}",
    'f32[8]{0} custom-call(%v), custom_call_target="typed", api_version=API_VERSION_TYPED_FFI, '
    "backend_config={lower = true, n = 3 : i64}",
    "f32[8]{0} fusion(%v), kind=kInput, calls=%twice",
    "f32[8]{0} call(%v), to_apply=%twice",
    "f32[8]{0} conditional(%flag, %v, %v), true_computation=%twice, false_computation=%twice",
    "f32[8]{0} conditional(%size, %v, %v, %v), branch_computations={%twice, %twice, %twice}",
    "f32[8]{0} while(%v), condition=%stop, body=%twice, "
    'backend_config={"known_trip_count":{"n":"6"}}',
    "f32[8]{0} negate(%v), control-predecessors={%zero, %one}",
    "f32[1,6,8]{2,1,0} convolution(%image, %kernel), window={size=3}, dim_labels=b0f_0io->b0f",
    "f32[1,8,8]{2,1,0} convolution(%image, %kernel), "
    "window={size=3 pad=1_1 rhs_reversal=1}, dim_labels=b0f_0io->b0f, "
    "operand_precision={high,high}",
    "f32[1,6,8]{2,1,0} convolution(%image, %grouped), window={size=3}, dim_labels=b0f_0io->b0f, "
    "feature_group_count=4",
    '((f32[8]{0}), token[]) infeed(%tok), infeed_config="a\\"b"',
    'token[] outfeed(%v, %tok), outfeed_shape=f32[8]{0}, outfeed_config="c"',
    "(f32[8]{0}, u32[], token[]) send(%v, %tok), channel_id=7, is_host_transfer=true",
    "(f32[8]{0}, u32[], token[]) recv(%tok), channel_id=7, is_host_transfer=true",
    "(f32[8]{0}, f32[8]{0}, u32[]) copy-start(%v), cross_program_prefetch_index=0",
    'f32[8]{0} domain(%v), domain={kind="sharding", entry={maximal device=0}, '
    "exit={maximal device=1}}",
    "f32[8]{0} negate(%v), sharding={devices=[4]<=[4]}",
    "f32[8]{0} negate(%v), sharding={devices=[2,2]<=[4] last_tile_dims={manual}}",
    "f32[8]{0} negate(%v), sharding={devices=[2,2]0,2,1,3 last_tile_dim_replicate}",
    'f32[8]{0} negate(%v), sharding={replicated metadata={op_name="x"}}',
    "f32[8]{0} negate(%v), sharding={manual}",
    "f32[8]{0} negate(%v), sharding={devices=[4]<=[4] shard_as 2}",
    "(f32[8]{0}, f32[8]{0}) tuple(%v, %v), sharding={{replicated}, {maximal device=2}}",
    's4[8]{0:E(4)} custom-call(), custom_call_target="x"',
    'f32[8,8]{0,1:T(8,128)(2,1)S(5)} custom-call(), custom_call_target="x"',
    'f32[8,8]{1,0:D(D,C)L(4)#(u32)*(s64)M(8)} custom-call(), custom_call_target="x"',
    'f32[8,8]{1,0:SC(0:2,4)(1:3)} custom-call(), custom_call_target="x"',
    'f32[?,8]{1,0} custom-call(), custom_call_target="x"',
    '(f32[8]{0}, (token[], ()), opaque[]) custom-call(), custom_call_target="x"',
    "f32[2,3]{1,0} constant({ { 1, -2.5, 3e-08 }, { inf, -inf, nan } })",
    "f32[2,3]{0,1} constant({ { 1, 2, 3 }, { 4, 5, 6 } })",
    "s4[5]{0} constant({1, -2, 3, -8, 7})",
    "u2[5]{0} constant({1, 2, 3, 0, 1})",
    "bf16[3]{0} constant({1, 0.5, -3})",
    "f16[3]{0} constant({1, 0.5, -65504})",
    "f8e4m3fn[4]{0} constant({1, 0.5, -448, nan})",
    "f8e5m2[4]{0} constant({1, 0.5, inf, -inf})",
    "f8e4m3b11fnuz[3]{0} constant({1, 0.5, -30})",
    "f8e8m0fnu[3]{0} constant({1, 0.5, 8})",
    "f4e2m1fn[5]{0} constant({1, 0.5, -6, 3, 0})",
    "c64[2]{0} constant({(1, 2), (-3, 0.5)})",
    "c128[] constant((1, -2))",
    "pred[3]{0} constant({1, 0, 1})",
    "pred[] constant(true)",
    "u64[2]{0} constant({18446744073709551615, 0})",
    "s64[] constant(-9223372036854775808)",
    "f64[] constant(0.1)",
    "s8[0]{0} constant({})",
    "(f32[2]{0}, s32[]) constant(({1, 2}, 3))",
]

_MODULE = """HloModule every_attribute

%sum (a: f32[], b: f32[]) -> f32[] {{
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %add = f32[] add(%a, %b)
}}

%ge (c: f32[], d: f32[]) -> pred[] {{
  %c = f32[] parameter(0)
  %d = f32[] parameter(1)
  ROOT %greater = pred[] compare(%c, %d), direction=GE
}}

%carry (h: f32[], i: f32[]) -> (f32[], f32[]) {{
  %h = f32[] parameter(0)
  %i = f32[] parameter(1)
  %j = f32[] add(%h, %i)
  ROOT %pair = (f32[], f32[]) tuple(%j, %j)
}}

%twice (e: f32[8]) -> f32[8] {{
  %e = f32[8]{{0}} parameter(0)
  ROOT %double = f32[8]{{0}} add(%e, %e)
}}

%stop (g: f32[8]) -> pred[] {{
  %g = f32[8]{{0}} parameter(0)
  ROOT %never = pred[] constant(false)
}}

ENTRY %main () -> f32[] {{
  %v = f32[8]{{0}} custom-call(), custom_call_target="input"
  %half = f32[4]{{0}} custom-call(), custom_call_target="input"
  %m = f32[8,8]{{1,0}} custom-call(), custom_call_target="input"
  %weights = f32[3,8,8]{{2,1,0}} custom-call(), custom_call_target="input"
  %groups = s32[3]{{0}} custom-call(), custom_call_target="input"
  %rows = s32[4,1]{{1,0}} custom-call(), custom_call_target="input"
  %each = s32[8,1]{{1,0}} custom-call(), custom_call_target="input"
  %updates = f32[4,8]{{1,0}} custom-call(), custom_call_target="input"
  %image = f32[1,8,4]{{2,1,0}} custom-call(), custom_call_target="input"
  %kernel = f32[3,4,8]{{2,1,0}} custom-call(), custom_call_target="input"
  %grouped = f32[3,1,8]{{2,1,0}} custom-call(), custom_call_target="input"
  %state = u64[2]{{0}} custom-call(), custom_call_target="input"
  %zero = f32[] constant(0)
  %one = f32[] constant(1)
  %size = s32[] constant(4)
  %flag = pred[] constant(true)
  %tok = token[] after-all()
  %tested = {instruction}
  ROOT %result = f32[] add(%zero, %one)
}}
"""


def module_text(instruction: str) -> str:
    """A module in which ``%tested`` is the instruction."""
    return _MODULE.format(instruction=instruction)
