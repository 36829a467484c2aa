"""XLA's protobuf messages, as far as hloscope reads them.

Field numbers are those of ``xla/service/hlo.proto`` and ``xla/xla_data.proto``
(read from the descriptors inside jaxlib 0.12.0.1; none was renumbered since
0.4.18). What is missing here is skipped on reading.

One message a line, wrapped with indentation: ``number name type``, where
``*`` marks a repeated field and ``?`` one whose presence counts. Messages that
XLA nests stand beside the others: names never reach the wire.
"""

from __future__ import annotations

__all__ = ["ENUMS", "MESSAGES"]

MESSAGES = """
HloProto: 1 hlo_module HloModuleProto; 3 buffer_assignment BufferAssignmentProto
HloSnapshot: 1 hlo HloProto
HloModuleProto: 1 name string; 2 entry_computation_name string; 3 computations HloComputationProto*;
    4 host_program_shape ProgramShapeProto; 5 id int64; 6 entry_computation_id int64;
    7 schedule HloScheduleProto; 8 input_output_alias HloInputOutputAliasProto;
    15 device_assignment DeviceAssignmentProto; 17 stack_frame_index StackFrameIndexProto;
    18 buffer_donor HloBufferDonorProto; 19 frontend_attributes FrontendAttributes;
    22 payloads bytes*
HloComputationProto: 1 name string; 2 instructions HloInstructionProto*; 5 id int64;
    6 root_id int64; 8 execution_thread string
HloInstructionProto: 1 name string; 2 opcode string; 3 shape ShapeProto; 7 metadata OpMetadata;
    8 literal LiteralProto; 9 parameter_number int64; 11 fusion_kind string; 13 tuple_index int64;
    14 dimensions int64*; 15 window Window;
    16 convolution_dimension_numbers ConvolutionDimensionNumbers;
    17 slice_dimensions SliceDimensions*; 18 exponent_bits int32; 19 mantissa_bits int32;
    20 dynamic_slice_sizes int64*; 21 padding_config PaddingConfig; 22 outfeed_config bytes;
    23 distribution RandomDistribution; 24 epsilon float; 25 feature_index int64;
    26 channel_id int64; 27 infeed_config bytes; 28 custom_call_target string;
    29 outfeed_shape ShapeProto; 30 dot_dimension_numbers DotDimensionNumbers; 31 fft_type FftType;
    32 fft_length int64*; 33 gather_dimension_numbers GatherDimensionNumbers;
    34 gather_slice_sizes int64*; 35 id int64; 36 operand_ids int64*;
    37 control_predecessor_ids int64*; 38 called_computation_ids int64*; 40 sharding OpSharding;
    43 backend_config bytes; 45 all_reduce_id int64; 47 is_host_transfer bool;
    48 scatter_dimension_numbers ScatterDimensionNumbers; 49 replica_groups ReplicaGroup*;
    50 feature_group_count int64; 51 precision_config PrecisionConfig;
    52 source_target_pairs SourceTarget*; 54 domain_entry_sharding OpSharding;
    55 domain_exit_sharding OpSharding; 56 constrain_layout bool;
    57 operand_shapes_with_layout ShapeProto*; 58 batch_group_count int64;
    59 triangular_solve_options TriangularSolveOptions; 60 is_stable bool;
    61 parameter_replication ParameterReplication; 62 cholesky_options CholeskyOptions;
    63 comparison_direction string; 65 custom_call_has_side_effect bool; 66 delta int64;
    67 indices_are_sorted bool; 68 frontend_attributes FrontendAttributes; 69 unique_indices bool;
    70 rng_algorithm RandomAlgorithm; 71 use_global_device_ids bool; 72 comparison_type string;
    73 is_cross_program_prefetch bool; 74 output_operand_aliasing OutputOperandAliasing*;
    75 padding_type PaddingType; 76 custom_call_schedule CustomCallSchedule;
    77 custom_call_api_version CustomCallApiVersion; 79 async_execution_thread string;
    80 cross_program_prefetch_index int32?; 81 k int64; 82 statistics_viz StatisticsViz;
    85 largest bool; 87 collective_device_list CollectiveDeviceListProto;
    88 original_value OriginalValueProto; 89 is_composite bool;
    90 ragged_dot_dimension_numbers RaggedDotDimensionNumbers; 91 result_accuracy ResultAccuracy;
    92 iota_collective_device_list IotaReplicaGroupListProto;
    93 mesh_axes_replica_group_list MeshAxesReplicaGroupListProto; 94 is_reverse bool;
    95 num_carries int64; 96 is_associative TriState; 97 conv_kind ConvolutionKind;
    98 sparsity_config SparsityConfig; 99 backend_config_payload Payload; 100 has_dynamic_root bool;
    101 block_scaling_config BlockScalingConfig; 102 comparison_order string;
    103 shuffle_mode ShuffleMode
SliceDimensions: 1 start int64; 2 limit int64; 3 stride int64

HloScheduleProto: 1 sequences ScheduleSequence*
ScheduleSequence: 1 key int64; 2 value InstructionSequence
InstructionSequence: 1 instruction_ids int64*
HloInputOutputAliasProto: 1 entries AliasEntryProto*
AliasEntryProto: 1 output_shape_index int64*; 2 parameter_number int64;
    3 parameter_shape_index int64*; 4 kind AliasKind
HloBufferDonorProto: 1 entries BufferDonorEntryProto*
BufferDonorEntryProto: 1 parameter_number int64; 2 parameter_shape_index int64*
StackFrameIndexProto: 1 file_names string*; 2 function_names string*;
    3 file_locations FileLocation*; 4 stack_frames StackFrame*
FileLocation: 1 file_name_id int32; 2 function_name_id int32; 3 line int32; 4 column int32;
    5 end_line int32; 6 end_column int32
StackFrame: 1 file_location_id int32; 2 parent_frame_id int32
DeviceAssignmentProto: 1 replica_count int32; 2 computation_count int32;
    3 computation_devices ComputationDevice*
ComputationDevice: 1 replica_device_ids int64*
FrontendAttributes: 1 map FrontendAttribute*
FrontendAttribute: 1 key string; 2 value string
OpMetadata: 1 op_type string; 2 op_name string; 3 source_file string; 4 source_line int32;
    5 profile_type ProfileType*; 8 size_of_generated_code_in_bytes int64;
    9 size_of_memory_working_set_in_bytes int64; 12 deduplicated_name string;
    15 stack_frame_id int32; 16 scheduling_name string; 17 source_end_line int32;
    18 source_column int32; 19 source_end_column int32; 20 metadata_payload Payload
Payload: 1 value bytes?; 2 id int64?
OriginalValueProto: 1 elements OriginalValueElementProto*; 2 is_synthetic_call bool;
    3 call_hierarchy string?
OriginalValueElementProto: 1 shape_index int64*; 2 original_array OriginalArrayProto
OriginalArrayProto: 1 instruction_name string; 2 shape_index int64*

ShapeProto: 2 element_type PrimitiveType; 3 dimensions int64*; 4 tuple_shapes ShapeProto*;
    5 layout LayoutProto; 6 is_dynamic_dimension bool*
LayoutProto: 1 minor_to_major int64*; 6 tiles TileProto*; 7 element_size_in_bits int64;
    8 memory_space int64; 9 dim_level_types DimLevelType*; 10 physical_shape ShapeProto;
    11 index_primitive_type PrimitiveType; 12 pointer_primitive_type PrimitiveType;
    13 dim_unique bool*; 14 dim_ordered bool*; 15 dynamic_shape_metadata_prefix_bytes int64;
    16 tail_padding_alignment_in_elements int64; 17 split_configs SplitConfigProto*
TileProto: 1 dimensions int64*
SplitConfigProto: 1 dimension int64; 2 split_indices int64*
ProgramShapeProto: 1 parameters ShapeProto*; 2 result ShapeProto
LiteralProto: 1 shape ShapeProto; 2 preds bool*; 3 u8s bytes; 4 s32s int32*; 5 s64s int64*;
    6 u32s uint32*; 7 u64s uint64*; 8 f32s float*; 9 f64s double*; 10 tuple_literals LiteralProto*;
    11 f16s bytes; 12 c64s float*; 13 bf16s bytes; 15 s8s bytes; 16 u16s bytes; 17 s16s bytes;
    18 c128s double*; 19 f8e5m2s bytes; 20 f8e4m3fns bytes; 21 s4s bytes; 22 u4s bytes;
    23 f8e4m3b11fnuzs bytes; 24 f8e5m2fnuzs bytes; 25 f8e4m3fnuzs bytes; 26 s2s bytes;
    27 u2s bytes; 28 f8e4m3s bytes; 29 f8e3m4s bytes; 30 s1s bytes; 31 u1s bytes;
    32 f4e2m1fns bytes; 33 f8e8m0fnus bytes; 35 f6e3m2fns bytes; 36 f6e2m3fns bytes

Window: 1 dimensions WindowDimension*
WindowDimension: 1 size int64; 2 stride int64; 3 padding_low int64; 4 padding_high int64;
    5 window_dilation int64; 6 base_dilation int64; 7 window_reversal bool
ConvolutionDimensionNumbers: 3 kernel_input_feature_dimension int64;
    4 kernel_output_feature_dimension int64; 6 kernel_spatial_dimensions int64*;
    7 input_batch_dimension int64; 8 input_feature_dimension int64;
    9 output_batch_dimension int64; 10 output_feature_dimension int64;
    11 input_spatial_dimensions int64*; 12 output_spatial_dimensions int64*
DotDimensionNumbers: 1 lhs_contracting_dimensions int64*; 2 rhs_contracting_dimensions int64*;
    3 lhs_batch_dimensions int64*; 4 rhs_batch_dimensions int64*
RaggedDotDimensionNumbers: 1 dot_dimension_numbers DotDimensionNumbers;
    2 lhs_ragged_dimensions int64*; 3 rhs_group_dimensions int64*
GatherDimensionNumbers: 1 offset_dims int64*; 2 collapsed_slice_dims int64*;
    3 start_index_map int64*; 4 index_vector_dim int64; 5 operand_batching_dims int64*;
    6 start_indices_batching_dims int64*
ScatterDimensionNumbers: 1 update_window_dims int64*; 2 inserted_window_dims int64*;
    3 scatter_dims_to_operand_dims int64*; 4 index_vector_dim int64; 5 input_batching_dims int64*;
    6 scatter_indices_batching_dims int64*
PaddingConfig: 1 dimensions PaddingConfigDimension*
PaddingConfigDimension: 1 edge_padding_low int64; 2 edge_padding_high int64;
    3 interior_padding int64
TriangularSolveOptions: 1 left_side bool; 2 lower bool; 3 unit_diagonal bool;
    4 transpose_a Transpose
CholeskyOptions: 1 lower bool
PrecisionConfig: 1 operand_precision Precision*; 2 algorithm Algorithm
SparsityConfig: 1 lhs TensorSparsityConfig?; 2 rhs TensorSparsityConfig?
TensorSparsityConfig: 1 num_non_zero int64; 2 block_size int64; 3 dimension int64;
    4 stride int64; 5 idx int32
BlockScalingConfig: 1 lhs TensorBlockScalingConfig?; 2 rhs TensorBlockScalingConfig?
TensorBlockScalingConfig: 1 scale_idx int32; 2 zero_idx int32?; 3 strides int64*; 4 steps int64*
ShuffleMode: 1 rotate ShuffleRotate?
ShuffleRotate: 1 shifts int64*
ParameterReplication: 1 replicated_at_leaf_buffers bool*
OutputOperandAliasing: 1 output_shape_index int64*; 2 operand_index int64;
    3 operand_shape_index int64*
StatisticsViz: 1 stat_index_to_visualize int64; 2 statistics Statistic*
Statistic: 1 stat_name string; 2 stat_val double
ResultAccuracy: 1 mode ResultAccuracyMode?; 2 tolerance ResultTolerance?
ResultTolerance: 1 atol double; 2 rtol double; 3 ulps int64

ReplicaGroup: 1 replica_ids int64*
CollectiveDeviceListProto: 1 replica_groups ReplicaGroup*;
    2 iota_replica_group_list IotaReplicaGroupListProto
IotaReplicaGroupListProto: 1 num_replica_groups int64; 2 num_devices_per_group int64;
    3 iota_reshape_dims int64*; 4 iota_transpose_perm int32*
MeshAxesReplicaGroupListProto: 1 mesh MeshProto; 2 axes AxisRefProto*
MeshProto: 1 axes MeshAxis*; 2 device_ids int64*; 3 iota_transform IotaTransform
MeshAxis: 1 name string; 2 size int64
IotaTransform: 1 reshape_dims int64*; 2 transpose_perm int64*
AxisRefProto: 1 mesh_axis_index int64; 2 sub_axis_info SubAxis
SubAxis: 1 pre_size int64; 2 size int64
SourceTarget: 1 source int64; 2 target int64
OpSharding: 1 type ShardingType; 3 tile_assignment_dimensions int64*;
    4 tile_assignment_devices int64*; 5 tuple_shardings OpSharding*;
    6 replicate_on_last_tile_dim bool; 7 metadata OpMetadata*; 8 last_tile_dims ShardingType*;
    9 iota_reshape_dims int64*; 10 iota_transpose_perm int32*; 11 is_shard_group bool;
    12 shard_group_id int64; 13 shard_group_type ShardGroupType;
    14 named_sharding NamedShardingProto
NamedShardingProto: 2 mesh MeshProto; 3 dim_shardings DimensionSharding*;
    4 replicated_axes AxisRefProto*; 5 unreduced_axes AxisRefProto*; 6 metadata OpMetadata*;
    7 manual_axes AxisRefProto*; 8 reduction_op ReductionOp
DimensionSharding: 1 axes AxisRefProto*; 2 is_closed bool

BufferAssignmentProto: 1 logical_buffers LogicalBufferProto*;
    3 buffer_allocations BufferAllocationProto*; 4 heap_simulator_traces HeapSimulatorTrace*;
    5 peak_buffers PeakBuffers*
PeakBuffers: 1 index int64; 2 logical_buffer_ids int64*
LogicalBufferProto: 1 id int64; 2 size int64; 3 defined_at BufferLocation; 4 color int64
BufferLocation: 2 instruction_name string; 3 shape_index int64*; 4 instruction_id int64
BufferAllocationProto: 1 index int64; 2 size int64; 3 is_thread_local bool;
    5 is_entry_computation_parameter bool; 6 parameter_number int64; 7 maybe_live_out bool;
    8 color int64; 9 assigned AssignedBuffer*; 10 parameter_shape_index int64*; 11 is_tuple bool;
    12 is_constant bool; 13 is_parameter_aliased_with_output bool
AssignedBuffer: 1 logical_buffer_id int64; 2 offset int64; 3 size int64
HeapSimulatorTrace: 1 events HeapEvent*; 2 whole_module_simulation bool;
    3 buffer_allocation_index int64
HeapEvent: 1 kind HeapEventKind; 2 buffer_id int64; 3 computation_name string;
    4 instruction_name string; 5 share_with_canonical_id int64
"""

ENUMS = """
PrimitiveType: 0 PRIMITIVE_TYPE_INVALID, 1 PRED, 2 S8, 3 S16, 4 S32, 5 S64, 6 U8, 7 U16, 8 U32,
    9 U64, 10 F16, 11 F32, 12 F64, 13 TUPLE, 14 OPAQUE_TYPE, 15 C64, 16 BF16, 17 TOKEN, 18 C128,
    19 F8E5M2, 20 F8E4M3FN, 21 S4, 22 U4, 23 F8E4M3B11FNUZ, 24 F8E5M2FNUZ, 25 F8E4M3FNUZ, 26 S2,
    27 U2, 28 F8E4M3, 29 F8E3M4, 30 S1, 31 U1, 32 F4E2M1FN, 33 F8E8M0FNU, 34 BUFFER, 35 F6E3M2FN,
    36 F6E2M3FN
DimLevelType: 0 DIM_DENSE, 1 DIM_COMPRESSED, 2 DIM_SINGLETON, 3 DIM_LOOSE_COMPRESSED
AliasKind: 0 UNDEFINED_ALIAS, 1 MAY_ALIAS, 2 MUST_ALIAS
ProfileType: 0 INVALID, 1 WINDOW, 2 FLAG, 3 INTEGER
RandomDistribution: 0 RNG_INVALID, 1 RNG_UNIFORM, 2 RNG_NORMAL
RandomAlgorithm: 0 RNG_DEFAULT, 1 RNG_THREE_FRY, 2 RNG_PHILOX
FftType: 0 FFT, 1 IFFT, 2 RFFT, 3 IRFFT
PaddingType: 0 PADDING_INVALID, 1 PADDING_VALID, 2 PADDING_SAME
CustomCallSchedule: 0 SCHEDULE_NONE, 1 SCHEDULE_LATEST, 2 SCHEDULE_EARLIEST
CustomCallApiVersion: 0 API_VERSION_UNSPECIFIED, 1 API_VERSION_ORIGINAL,
    2 API_VERSION_STATUS_RETURNING, 3 API_VERSION_STATUS_RETURNING_UNIFIED, 4 API_VERSION_TYPED_FFI
TriState: 0 TRI_STATE_UNSPECIFIED, 1 TRI_STATE_TRUE, 2 TRI_STATE_FALSE
ConvolutionKind: 0 CONVOLUTION_KIND_UNSET, 1 CONVOLUTION_KIND_FPROP, 2 CONVOLUTION_KIND_DGRAD,
    3 CONVOLUTION_KIND_WGRAD
Transpose: 0 TRANSPOSE_INVALID, 1 NO_TRANSPOSE, 2 TRANSPOSE, 3 ADJOINT
Precision: 0 DEFAULT, 1 HIGH, 2 HIGHEST, 3 PACKED_NIBBLE
Algorithm: 0 ALG_UNSET, 1 ALG_DOT_ANY_F8_ANY_F8_F32, 2 ALG_DOT_ANY_F8_ANY_F8_F32_FAST_ACCUM,
    3 ALG_DOT_F16_F16_F16, 4 ALG_DOT_F16_F16_F32, 5 ALG_DOT_BF16_BF16_BF16,
    6 ALG_DOT_BF16_BF16_F32, 7 ALG_DOT_BF16_BF16_F32_X3, 8 ALG_DOT_BF16_BF16_F32_X6,
    9 ALG_DOT_TF32_TF32_F32, 10 ALG_DOT_TF32_TF32_F32_X3, 11 ALG_DOT_F32_F32_F32,
    12 ALG_DOT_F64_F64_F64, 13 ALG_DOT_BF16_BF16_F32_X9, 14 ALG_DOT_BF16_BF16_FP8X3,
    15 ALG_DOT_BF16_BF16_FP8X4
ResultAccuracyMode: 0 DEFAULT, 1 HIGHEST
ShardingType: 0 REPLICATED, 1 MAXIMAL, 2 TUPLE, 3 OTHER, 4 MANUAL, 5 UNKNOWN, 6 UNREDUCED
ShardGroupType: 0 AS, 1 LIKE
ReductionOp: 0 SUM, 1 MAX, 2 MIN
HeapEventKind: 0 ALLOC, 1 FREE, 2 SHARE_WITH
"""
