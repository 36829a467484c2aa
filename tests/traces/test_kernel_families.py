"""Kernels of one family have one name, whichever variant ran."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hloscope.traces.kernel_families import family_of


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("loop_add_fusion_3", "loop_add_fusion"),
        ("loop_add_fusion", "loop_add_fusion"),
        ("input_reduce_fusion_1.kd", "input_reduce_fusion"),
        ("fusion.12", "fusion"),
        ("fusion.12.remat2.1.clone", "fusion"),
        ("%fusion.3 = f32[8]{0} fusion(%p), kind=kLoop", "fusion"),
        ("wrapped_reduce-window.1", "wrapped_reduce-window"),
        ("quantized_matmul_kernel_1024_5120_512.100", "quantized_matmul_kernel"),
        ("nvjet_hsh_128x256_64x4_1x2_h_bz_coopA_NNT", "nvjet"),
        ("Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT256x256x64_MI16x16x1", "Cijk"),
        ("ampere_fp16_s16816gemm_fp16_128x64_ldg8_f2f_tn", "ampere_fp16_s16816gemm_fp16"),
        (
            "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize64x64x64_warpgroupsize1x1x1_cublas",
            "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n",
        ),
        (
            "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
            "ncclDevKernel_AllReduce",
        ),
        ("__amd_rocclr_fillBufferAligned.kd", "__amd_rocclr_fillBufferAligned"),
        (
            "void at::native::(anonymous namespace)::copy_kernel<4, at::Fn<float>>(int, char*)",
            "at::native::copy_kernel",
        ),
        (
            "transformer_engine::populate_rng_state_kernel(long*, long const*) [clone .kd]",
            "transformer_engine::populate_rng_state_kernel",
        ),
        # Launchers: the kernel is their argument.
        (
            "void ck_tile::kentry<ck_tile::gfx950_t, 2, ck_tile::FmhaFwdKernel<ck_tile::P<1>>, "
            "ck_tile::FmhaFwdKernel<ck_tile::P<1>>::Kargs>(ck_tile::Kargs)",
            "ck_tile::FmhaFwdKernel",
        ),
        (
            "void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_128x128_16x5_nn_align4>(Params)",
            "cutlass_80_tensorop_s1688gemm",
        ),
        ("_ZN7cutlass13device_kernelINS_4gemm6kernelE", "cutlass::device_kernel"),
        ("_ZN12_GLOBAL__N_19my_kernelEPf", "my_kernel"),
        ("_Z9my_kernelPf", "my_kernel"),
        # Nothing would be left of these.
        ("12", "12"),
        ("_3", "_3"),
        ("", ""),
    ],
)
def test_a_name_without_what_changes_from_compile_to_compile(name, family):
    assert family_of(name) == family


@given(st.text(st.characters(codec="ascii"), max_size=60))
def test_any_text_has_a_family_and_a_family_is_its_own(name):
    family = family_of(name)
    assert bool(family) == bool(name)


@given(st.from_regex(r"\A[a-z]{2,8}(_[a-z]{2,8}){0,3}\Z"), st.integers(0, 9999))
def test_numbers_behind_a_name_say_nothing(name, number):
    for variant in (f"{name}_{number}", f"{name}.{number}", f"{name}.{number}.kd"):
        assert family_of(variant) == family_of(name)


@pytest.mark.parametrize("piece", ["Kernel<", "<", "(", "_1", "f(", "_Z9", "Kernel2<a,"])
def test_names_of_any_length_and_depth_are_cut_not_chased(piece):
    assert family_of(piece * 200_000 + "x")
