"""Attention of image and text together, each with weights of its own.

The block of Esser et al. (arXiv:2403.03206), modulated by the condition
(adaLN-zero, Peebles and Xie, arXiv:2212.09748). It differs from the paper's in
its MLPs, which are gated, with as many parameters.
"""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from flax import nnx
from jax.ad_checkpoint import checkpoint_name
from jax.typing import DTypeLike

from hloscope.models.blocks.attention import AttentionRoute, attend
from hloscope.models.blocks.mlp import GatedMlp
from hloscope.models.blocks.modulation import modulation, unscaled_norm

__all__ = ["JointBlock", "Stream"]


class Stream(nnx.Module):
    """One modality's weights of a block.

    Args:
        width: Channels of the tokens, a multiple of ``head_width``.
        head_width: Channels of an attention head.
        condition_width: Channels of the condition.
        ends: Whether nothing reads these tokens after the block's attention, so
            that they only give it keys and values.
        dtype: Of activations and products.
        rngs: Source of the initial parameters.
    """

    def __init__(
        self,
        width: int,
        head_width: int,
        condition_width: int,
        *,
        ends: bool,
        dtype: DTypeLike,
        rngs: nnx.Rngs,
    ) -> None:
        self.ends = ends
        self.heads = width // head_width
        parts = 2 if ends else 6
        self.modulation = modulation(width, parts, condition_width, dtype=dtype, rngs=rngs)
        self.norm1 = unscaled_norm(width, dtype=dtype, rngs=rngs)
        joined = 2 * width if ends else 3 * width
        self.key_value_query = nnx.Linear(width, joined, use_bias=False, dtype=dtype, rngs=rngs)
        self.norm_key = nnx.RMSNorm(head_width, dtype=dtype, rngs=rngs)
        if not ends:
            self.norm_query = nnx.RMSNorm(head_width, dtype=dtype, rngs=rngs)
            self.out = nnx.Linear(width, width, use_bias=False, dtype=dtype, rngs=rngs)
            self.norm2 = unscaled_norm(width, dtype=dtype, rngs=rngs)
            # Three products of 8/3 of the width: as many parameters as two of 4.
            self.mlp = GatedMlp(width, 8 * width // 3, dtype=dtype, rngs=rngs)

    def modulate(self, condition: jax.Array) -> list[jax.Array]:
        """Shift and scale before the attention; unless it ends, its gate and the MLP's three.

        Args:
            condition: ``[batch, condition_width]``.

        Returns:
            Two or six of ``[batch, 1, width]``.
        """
        return jnp.split(self.modulation(condition)[:, None], 2 if self.ends else 6, axis=-1)

    def heads_of(self, tokens: jax.Array, shift: jax.Array, scale: jax.Array) -> list[jax.Array]:
        """Keys, values and, unless it ends, queries: ``[batch, tokens, heads, head_width]``."""
        joined = self.key_value_query(self.norm1(tokens) * (1 + scale) + shift)
        parts = jnp.split(joined, 2 if self.ends else 3, axis=-1)
        key, value, *query = (part.reshape(*tokens.shape[:2], self.heads, -1) for part in parts)
        return [self.norm_key(key), value, *(self.norm_query(part) for part in query)]

    def __call__(
        self, tokens: jax.Array, attended: jax.Array, modulation: Sequence[jax.Array]
    ) -> jax.Array:
        """Add to ``tokens`` what the attention gave them, then what the MLP does.

        Args:
            tokens: ``[batch, tokens, width]``.
            attended: ``[batch, tokens, heads, head_width]``.
            modulation: The last four of what ``modulate`` gives.
        """
        gate1, shift2, scale2, gate2 = modulation
        with jax.named_scope("attention"):
            mixed = self.out(attended.reshape(tokens.shape))
            tokens = tokens + gate1 * checkpoint_name(mixed, "attention_out")
        with jax.named_scope("mlp"):
            mixed = self.mlp(self.norm2(tokens) * (1 + scale2) + shift2)
            kept: jax.Array = checkpoint_name(mixed, "mlp_out")
            return tokens + gate2 * kept


class JointBlock(nnx.Module):
    """Attention of both streams' tokens to all of them, and an MLP in each.

    Args:
        width: Channels of the tokens, a multiple of ``head_width``.
        head_width: Channels of an attention head.
        condition_width: Channels of the condition.
        text_ends: Whether nothing reads the text after this block.
        route: See ``hloscope.models.blocks.attention.attend``.
        dtype: Of activations and products.
        rngs: Source of the initial parameters.
    """

    def __init__(
        self,
        width: int,
        head_width: int,
        condition_width: int,
        *,
        text_ends: bool = False,
        route: AttentionRoute,
        dtype: DTypeLike,
        rngs: nnx.Rngs,
    ) -> None:
        def stream(*, ends: bool) -> Stream:
            return Stream(width, head_width, condition_width, ends=ends, dtype=dtype, rngs=rngs)

        self.image = stream(ends=False)
        self.text = stream(ends=text_ends)
        self.route: AttentionRoute = route

    def __call__(
        self, image: jax.Array, text: jax.Array, condition: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        """Map ``[batch, tokens, width]`` of image and text to the same shapes.

        A text that ends here comes back as it was.
        """
        with jax.named_scope("modulation"):
            image_modulation = self.image.modulate(condition)
            text_modulation = self.text.modulate(condition)
        with jax.named_scope("attention"):
            of_image = self.image.heads_of(image, *image_modulation[:2])
            of_text = self.text.heads_of(text, *text_modulation[:2])
            key, value = (
                jnp.concatenate(pair, axis=1)
                for pair in zip(of_text[:2], of_image[:2], strict=True)
            )
            query = jnp.concatenate((*of_text[2:], of_image[2]), axis=1)
            attended = attend(query, key, value, causal=False, route=self.route)
        with jax.named_scope("image"):
            image_attended = attended[:, -image.shape[1] :]
            image = self.image(image, image_attended, image_modulation[2:])
        if not self.text.ends:
            with jax.named_scope("text"):
                text = self.text(text, attended[:, : text.shape[1]], text_modulation[2:])
        return image, text
