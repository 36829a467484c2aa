"""What kernels' names say: libraries' and compilers' spellings, with those that mislead."""

import pytest

from hloscope.traces.kernel_names import Category, category_of_name

C = Category

NAMES = {
    C.ALL_REDUCE: [
        "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
        "ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm*, unsigned long, ncclWork*)",
        "all-reduce.5",
        "all-reduce-start.3",
        "all_reduce_kernel",
        "void stream_executor::gpu::one_shot_all_reduce_kernel<float>(float*)",
        "psum.7",
    ],
    C.ALL_GATHER: [
        "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
        "all-gather.12",
        "all_gather.3",
    ],
    C.REDUCE_SCATTER: [
        "ncclDevKernel_ReduceScatter_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
        "reduce-scatter.1",
        "psum_scatter.2",
    ],
    C.ALL_TO_ALL: ["all-to-all.4", "ragged_all_to_all_kernel", "RaggedAllToAllKernelImpl"],
    C.PERMUTE: [
        "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)",
        "collective-permute-start.1",
        "ppermute.3",
    ],
    C.COLLECTIVE: [
        "ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)",
        "ncclDevKernel_Broadcast_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
        "mscclKernel_Sum_float",
        "rcclGenericKernel",
        "nvshmemi_transfer",
        "async-collective-start",
        "send.1",
        "recv-done.2",
    ],
    C.HOST_TO_DEVICE: ["MemcpyH2D", "CopyHostToDevice"],
    C.DEVICE_TO_HOST: ["MemcpyD2H", "CopyDeviceToHost"],
    C.DEVICE_TO_DEVICE: ["MemcpyD2D", "CopyDeviceToDevice"],
    C.PEER_TO_PEER: ["MemcpyP2P"],
    C.COPY: ["__amd_rocclr_copyBuffer.kd", "MemcpyOther"],
    C.MEMSET: ["Memset", "__amd_rocclr_fillBufferAligned.kd"],
    C.ATTENTION: [
        "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_3_64x64x128",
        "void flash_fwd_kernel<Flash_fwd_kernel_traits<128, 128, 64, 4> >(Flash_fwd_params)",
        "flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel",
        "fmha_fwd_hd128_bf16_causal",
        "aiter::fmha_bwd_hd128_bf16",
        "mha_fwd",
        "void ck_tile::kentry<ck_tile::gfx950_t, 1, ck_tile::FmhaFwdKernel<int> >(int)",
        "splash_mha_fwd_residuals",
        "void cutlass::device_kernel<cutlass::fmha::kernel::Sm100FmhaFwdKernel<int> >(int)",
    ],
    C.CONVOLUTION: [
        "implicit_convolve_sgemm",
        "sm80_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize128x128x32",
        "sm90_xmma_wgrad_implicit_gemm_indexed_bf16",
        "cutlass_tensorop_bf16_s16816dgrad_optimized_bf16_128x128_32x4_nhwc",
        "void cudnn::cnn::conv2d_grouped_direct_kernel<false>(float)",
        "void cudnn::winograd::generateWinogradTilesKernel<0, float>(int)",
        "void cutlass__5x_cudnn::Kernel<cutlass_tensorop_bf16_s16816fprop_bf16>(int)",
        "void cutlass::Kernel2<cutlass_80_tensorop_s1688wgrad_optimized_tf32_128x128>(int)",
        "void cutlass::device_kernel<cutlass::conv::kernel::ConvUniversal<int> >(int)",
        "miopenSp3AsmConv_v30_3_1_gfx94x",
        "igemm_fwd_gtcx3_nhwc_bf16",
        "cudnn-conv.3",
        "convolution.12",
        "convolution-base-dilated.1",
    ],
    C.GEMM: [
        "nvjet_hsh_128x256_64x4_2x1_v_bz_coopA_NNT",
        "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_bf16_128x64_nn_align8>(int)",
        "void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<int> >(int)",
        "cutlass3x_sm90_tensorop_s64x128x16gemm_bf16_bf16_f32_void_bf16",
        "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_nn",
        "volta_h884gemm_64x64_ldg8_nn",
        "maxwell_sgemm_128x64_nn",
        "gemmSN_NN_kernel",
        "void gemv2T_kernel_val<int, int, float>(float)",
        "void dot_kernel<float, 128, 0>(float)",
        "void splitKreduce_kernel<32, 16, int, float>(float)",
        "magma_sgemmEx_kernel",
        "Cijk_Ailk_Bljk_BBS_BH_MT256x128x64_MI16x16x16x1_SN.kd",
        "wv_splitk_small_fp16_bf16_kernel",
        "gemm_fusion_dot_general_1",
        "triton_gemm_dot.4",
        "dot_general.3",
        "dot.7",
        "cublas-gemm.1",
    ],
    C.LAYOUT: [
        "void cudnn::ops::nchwToNhwcKernel<float, float, float, false>(int)",
        "void cudnn::ops::nhwcToNchwKernel<float>(int)",
        "cudnn::ops::convertTensor_kernel",
        "input_transpose_fusion",
        "wrapped_transpose",
        "transpose_fusion.2",
        "loop_transpose_fusion",
        "copy_fusion.3",
        "wrapped_copy",
        "wrapped_slice",
        "loop_slice_fusion",
        "loop_dynamic_slice_fusion",
        "loop_concatenate_fusion",
    ],
    C.IN_FLIGHT: ["copy-start.3", "slice-start.1"],
    C.REDUCTION: [
        "void cudnn::bn_fw_tr_1C11_kernel_NCHW<float, float>(int)",
        "void transformer_engine::normalization::rmsnorm_fwd_tuned_kernel<int>(int)",
        "layer_norm_fwd",
        "triton_softmax.2",
        "input_reduce_fusion_1",
        "wrapped_reduce",
        "loop_reduce_fusion",
        "reduce-window.3",
    ],
    C.SORT: [
        "void cub::DeviceRadixSortOnesweepKernel<int>(int)",
        "DeviceScanKernel",
        "sort_0",
        "sort.4",
        "RaftSelectKernel",
        "topk_kernel",
    ],
    C.SCATTER: ["scatter.3", "wrapped_scatter", "loop_gather_fusion", "gather_fusion.1"],
    C.RANDOM: ["threefry2x32", "loop_threefry_fusion", "rng-bit-generator.2"],
    C.CONVERT: ["loop_convert_fusion.kd", "wrapped_convert.kd", "convert_fusion.1"],
    C.ELEMENTWISE: [
        "loop_add_multiply_fusion",
        "wrapped_tanh",
        "fusion",
        "fusion.12",
        "fusion_3",
        "input_fusion",
        "multiply_add_fusion",
        "broadcast.5",
        "select_fusion",
    ],
    C.LINEAR_ALGEBRA: [
        "void potrf_kernel<float>(int)",
        "getrf_pivot",
        "syevj_batched",
        "geqr2_smem",
        "trsm_left_kernel",
        "cusolver_gesvd",
    ],
    C.CONTROL: ["while.7", "call.2", "conditional"],
    C.OTHER: ["my_kernel", "", "Im3d2Col", "void user::kernel<float>(float*)"],
}


@pytest.mark.parametrize(
    ("name", "category"), [(name, kind) for kind, names in NAMES.items() for name in names]
)
def test_a_name_is_of_its_category(name, category):
    assert category_of_name(name) is category


@pytest.mark.parametrize(
    ("name", "category", "misleading"),
    [
        ("reduce-scatter.1", C.REDUCE_SCATTER, "scatter, reduce"),
        ("all-gather.1", C.ALL_GATHER, "gather"),
        ("splitKreduce_kernel", C.GEMM, "reduce"),
        ("sm80_xmma_fprop_implicit_gemm_f32", C.CONVOLUTION, "gemm"),
        ("void cutlass::fmha_kernel<cutlass::gemm::Sm90>", C.ATTENTION, "cutlass, gemm"),
        ("input_transpose_reduce_fusion", C.REDUCTION, "transpose"),
        ("loop_convert_reduce_fusion", C.REDUCTION, "convert"),
        ("void k<cutlass::bfloat16_t>(ncclComm)", C.COLLECTIVE, "cutlass in a template"),
    ],
)
def test_names_that_hold_several_words_are_of_the_one_that_says_most(name, category, misleading):
    assert category_of_name(name) is category, misleading
