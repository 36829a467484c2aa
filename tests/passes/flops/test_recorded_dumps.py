"""Whole programs that other people recorded, against arithmetic written out here."""

import pytest

from hloscope.ir import parse_modules, parse_text
from hloscope.passes.flops.counts import Kind
from hloscope.passes.flops.elementwise import ElementwiseLedger
from hloscope.pipeline.findings import Basis


@pytest.fixture(scope="session")
def recorded(fixtures_dir, ledger_of):
    def read(name: str):
        folder = "hlo" if (fixtures_dir / "hlo" / name).exists() else "compiled/today"
        return ledger_of(parse_text((fixtures_dir / folder / name).read_text(), file=name))

    return read


# Llama 3 8B: 32 layers, width 4096, 32 heads and 8 key-value heads of 128, MLP 14336.
WIDTH, MLP, KEYS, VOCABULARY, LAYERS = 4096, 14336, 1024, 128256, 32
ATTENTION_WEIGHTS = 2 * WIDTH * WIDTH + 2 * WIDTH * KEYS
MLP_WEIGHTS = 3 * WIDTH * MLP
LAYER_WEIGHTS = LAYERS * (ATTENTION_WEIGHTS + MLP_WEIGHTS)
HEAD_WEIGHTS = WIDTH * VOCABULARY


def test_llama_8b_on_a_gpu_is_six_n_t_and_its_one_hot_embedding(recorded):
    tokens = 2 * 8192
    ledger = recorded("gpu_llama31_8b_1x8_unscheduled.hlo")
    six_n_t = 6 * (LAYER_WEIGHTS + HEAD_WEIGHTS) * tokens
    # The embedding is a product with one-hot rows, forward and for its gradient.
    embedding = 4 * HEAD_WEIGHTS * tokens
    assert ledger.by_kind[Kind.MATMUL].low == six_n_t + embedding
    # 32 forward and 32 backward attention calls of Transformer Engine: 2 sequences of 8192
    # with 32 heads of 128, padded and causal. Forward two products of all pairs, backward five.
    pairs = 2 * 32 * 8192 * 8192
    attention = ledger.by_kind[Kind.ATTENTION]
    assert attention.high == LAYERS * (2 + 5) * 2 * pairs * 128
    # One of the five repeats the scores; nothing else of this program is computed twice.
    assert ledger.recomputed.high == LAYERS * 2 * pairs * 128
    assert not ledger.unknown_calls
    # Lengths are padded, so that the dense count is the most it can be.
    assert (attention.low, attention.basis) == (0, Basis.BOUNDED)
    assert ledger.total.high == six_n_t + embedding + attention.high
    # The usual estimate: 6 N T and twelve L T S width for attention, without the embedding's
    # one-hot products and without the repeated scores.
    usual = six_n_t + 12 * LAYERS * tokens * 8192 * WIDTH
    own = ledger.total.high - ledger.recomputed.high - embedding
    assert abs(own / usual - 1) < 0.05


def test_causal_attention_of_llama_8b_halves(recorded):
    full = recorded("gpu_llama31_8b_1x8_unscheduled.hlo")
    half = full.with_causal("half")
    pairs = 2 * 32 * 8192 * (8192 + 1) // 2
    assert half.by_kind[Kind.ATTENTION].high == LAYERS * (2 + 5) * 2 * pairs * 128
    assert half.recomputed.high == LAYERS * 2 * pairs * 128
    assert half.by_kind[Kind.MATMUL] == full.by_kind[Kind.MATMUL]
    assert (full.causal, half.causal) == ("full", "half")


def test_llama_8b_on_a_tpu_is_six_n_t_and_what_is_recomputed(recorded):
    tokens = 4 * 8192
    ledger = recorded("tpu_v6e8_llama3_8b_train_step.hlo")
    six_n_t = 6 * LAYER_WEIGHTS * tokens
    # The backward pass repeats every product of a layer but the MLP's last.
    recomputed = 2 * (LAYER_WEIGHTS - LAYERS * WIDTH * MLP) * tokens
    # The loss goes through the vocabulary in 63 blocks of 2048, and repeats the logits.
    head = 4 * 2 * WIDTH * (63 * 2048) * tokens
    assert ledger.by_kind[Kind.MATMUL].low == six_n_t + recomputed + head
    # JAX's names tell the repetition apart: a layer's products and its attention kernel.
    repeated = [row for row in ledger.rows if row.recomputed_flops]
    products = sum(row.nominal for row in repeated if row.count.kind is Kind.MATMUL)
    assert abs(products / recomputed - 1) < 0.05
    # Splash attention: two forward passes, one backward, by its author's estimate.
    queries = 4 * 32 * 8192 * 8192
    forward, backward = 4 * queries * 128, 5 * queries * 128 * 2
    # The second forward pass stands among what is repeated.
    assert abs(ledger.recomputed.low / (recomputed + LAYERS * forward) - 1) < 0.01
    # Without it, the usual estimate: 6 N T with the head, and attention twelve L T S width.
    usual = 6 * (LAYER_WEIGHTS + HEAD_WEIGHTS) * tokens + 12 * LAYERS * tokens * 8192 * WIDTH
    assert abs((ledger.total.low - ledger.recomputed.low) / usual - 1) < 0.05
    estimate = ledger.by_kind[Kind.KERNEL].low
    assert 0.5 < estimate / (LAYERS * (2 * forward + backward)) <= 1.0
    assert ledger.total.basis is Basis.MODELLED
    assert not ledger.unknown_calls


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        # Einsum with batch dimensions 2x8 as a window: 16 * 128 * 128 * 64 multiply-adds.
        ("tpu_einsum.hlo", 33554432),
        # 1024 rows through one of eight 512x512 matrices each.
        ("tpu_ragged.hlo", 2 * 1024 * 512 * 512),
        # Six layers of a scan, three products each, forward and backward.
        ("cpu_scan.hlo", 6 * 3 * 2 * 32 * 128 * 128),
    ],
)
def test_recorded_totals(recorded, name, expected):
    total = recorded(name).total
    assert (total.low, total.high, total.basis) == (expected, expected, Basis.EXACT)


@pytest.mark.parametrize(
    ("name", "rows"),
    [
        ("cpu_remat_unroll.hlo", 15),
        ("cpu_remat_unroll_nocse.hlo", 11),
        ("gpu_remat_unroll.hlo", 23),
        ("gpu_remat_unroll_nocse.hlo", 17),
        ("tpu_remat_unroll.hlo", 23),
        ("tpu_remat_unroll_nocse.hlo", 17),
    ],
)
def test_rematerialization_shows_in_the_number_of_products(recorded, name, rows):
    assert len(recorded(name).rows) == rows


@pytest.mark.parametrize("name", ["gpu_conv_strided_grad.hlo", "gpu_convfus_grad_s2.hlo"])
def test_strided_gradients_cost_the_same_as_library_calls_and_as_fusions(recorded, name):
    ledger = recorded(name)
    assert ledger.by_kind[Kind.CONVOLUTION].low == 1207959552
    assert len({row.count.flops for row in ledger.rows}) == 1


PAIRS = 4 * 8 * 1024 * 1024  # batch, heads, queries, keys
FORWARD = 2 * PAIRS * (64 + 64)
BACKWARD = 2 * PAIRS * (3 * 64 + 2 * 64)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("gpu_attn_fwd.hlo", FORWARD),
        ("gpu_attn_grad.hlo", FORWARD + BACKWARD),
        ("gpu_attn_bias.hlo", FORWARD + BACKWARD),
        ("gpu_attn_causal.hlo", FORWARD),
        ("gpu_attn_window.hlo", FORWARD),
        ("gpu_attn_paged.hlo", FORWARD),
        ("gpu_attn_f8.hlo", 2 * FORWARD),  # heads of 128
        ("gpu_attn_gqa.hlo", 2 * (FORWARD + BACKWARD)),  # 16 query heads
    ],
)
def test_fused_attention_by_its_formula(recorded, name, expected):
    ledger = recorded(name)
    assert ledger.by_kind[Kind.ATTENTION].low == expected
    assert ledger.total.basis is Basis.MODELLED


def test_attention_over_padded_sequences_is_an_upper_bound(recorded):
    attention = recorded("gpu_attn_seqlen.hlo").by_kind[Kind.ATTENTION]
    assert (attention.low, attention.high) == (0, FORWARD)


def test_recorded_linear_algebra_by_textbook_counts(recorded):
    cpu = recorded("cpu_linalg.hlo").by_kind[Kind.LINEAR_ALGEBRA]
    n = 16
    # potrf, getrf, geqrf, orgqr, syevd, gesdd, geev, trsm.
    parts = [1 / 3, 2 / 3, 4 / 3, 4 / 3, 9, 22, 25, 1]
    assert cpu.low == sum(int(part * n**3) for part in parts)
    gpu = recorded("gpu_linalg.hlo").by_kind[Kind.LINEAR_ALGEBRA]
    n = 64
    # potrf, getrf, geqrf, orgqr, syevd, gesvdj; a solve of eight right-hand sides.
    parts = [1 / 3, 2 / 3, 4 / 3, 4 / 3, 9, 22]
    assert gpu.low == sum(int(4 * part * n**3) for part in parts) + 4 * n * n * 8
    assert not recorded("tpu_linalg.hlo").unknown_calls


def test_a_recorded_layer_norm_stands_beside_the_headline(recorded, session_of, fixtures_dir):
    assert recorded("gpu_norm_ln.hlo").total.high == 0
    text = (fixtures_dir / "compiled" / "today" / "gpu_norm_ln.hlo").read_text()
    rows = session_of(text).get(ElementwiseLedger).rows
    (norm,) = [row for row in rows if row.instruction.opcode == "custom-call"]
    assert norm.count.flops == 7 * 512 * 1024


def test_a_sliding_window_masks_all_but_the_last_129_keys(recorded):
    (row,) = recorded("gpu_attn_window.hlo").rows
    visible = sum(min(i + 1, 129) for i in range(1024))
    assert row.count.masked_flops == 2 * 4 * 8 * visible * (64 + 64)


@pytest.mark.parametrize(
    ("name", "target"),
    [
        ("tpu_pallas_noce.hlo", "tpu_custom_call"),
        ("tpu_pallas_splash.hlo", "tpu_custom_call"),
        ("gpu_pallas_triton.hlo", "__gpu$xla.gpu.triton"),
        ("gpu_pallas_mgpu.hlo", "mosaic_gpu_v2"),
    ],
)
def test_kernels_without_an_estimate_are_named(recorded, name, target):
    ledger = recorded(name)
    assert [group.target for group in ledger.unknown_calls] == [target]
    assert ledger.total.high is None


def test_kernels_with_an_estimate_are_taken_at_their_word(recorded):
    assert recorded("tpu_pallas_ce.hlo").total.low == 2147483648
    flash = recorded("tpu_pallas_flash.hlo")
    # 4 B H T S D and, for the softmax, 3 B H T S.
    assert flash.by_kind[Kind.KERNEL].low == 4 * 8 * 1024 * 1024 * (4 * 128 + 3)


def test_one_program_costs_the_same_in_nine_dialects(fixtures_dir, ledger_of):
    totals = {
        path.name: ledger_of(parse_text(path.read_text())).total.low
        for path in (fixtures_dir / "compiled" / "versions").glob("v*[0-9].hlo")
    }
    assert len(totals) == 9
    assert len(set(totals.values())) == 1


def test_every_module_of_every_dump_gets_a_ledger(fixtures_dir, ledger_of):
    from hloscope.errors import HloscopeError

    read = 0
    for path in sorted(fixtures_dir.glob("*/*.hlo")) + sorted(fixtures_dir.glob("*/*/*.hlo")):
        try:
            modules = parse_modules(path.read_text(), file=path.name)
        except HloscopeError:
            continue  # the inputs that are broken on purpose
        for module in modules:
            ledger = ledger_of(module)
            assert ledger.total.low <= (ledger.total.high or ledger.total.nominal), path.name
            read += 1
    assert read > 180
