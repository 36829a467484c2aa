import pytest

from hloscope.answers.trace_kernels import kernel_title


@pytest.mark.parametrize(
    ("name", "title"),
    [
        (
            "void ck_tile::kentry<gfx, 2, ck_tile::FmhaFwdKernel<int>>(args)",
            "ck_tile::FmhaFwdKernel",
        ),
        ("loop_add_fusion_3.kd", "loop_add_fusion_3"),
        ("nvjet_hsh_128x256_64x4_1x2_h_bz_TNT", "nvjet_hsh_128x256_64x4_1x2_h_bz_TNT"),
    ],
)
def test_a_kernel_is_called_by_its_function(name, title):
    assert kernel_title(name) == title
