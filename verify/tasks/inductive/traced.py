"""What a decoder computes on the way to its logits, layer by layer, in float64: for figures, never for proofs."""

from __future__ import annotations

import math
from copy import deepcopy
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from constructions.decoder import Decoder
from constructions.decoder_model import ACTIVATIONS, Block, block_of
from verify.arithmetic.slack import Array


@dataclass(frozen=True)
class TracedLayer:
    """One block's states on a string of n positions, BOS counted.

    Shapes: before, after (n, d); queries (n, heads d_head), as they are compared; attention (heads, n, n);
        hidden (n, d_mlp) after the activation, None without an MLP.
    """

    before: Array
    queries: Array
    attention: Array
    hidden: Array | None
    after: Array


def traced(model: Decoder, tokens: Tensor) -> list[TracedLayer]:
    """Every layer's states on one string of tokens (n,), position ids from 1 on.

    >>> from constructions.inductive import ape
    >>> traced(ape(task="modular", N=4, m=2, positions=4), torch.tensor([0, 0, 0]))[0].attention.shape
    (1, 3, 3)
    """
    with torch.no_grad():
        model = deepcopy(model).double()
        x, found = model.embed(tokens), []
        for i in range(len(model.blocks)):
            layer, x = _through(block_of(model, i), x)
            found.append(layer)
    return found


def _through(block: Block, x: Tensor) -> tuple[TracedLayer, Tensor]:
    q, k = asked_and_offered(block, block.norm_1(x), 0)
    n = x.shape[-2]
    future = torch.ones(n, n, dtype=torch.bool).triu(1)
    scores = q @ k.transpose(-2, -1) / math.sqrt(block.attention.d_head)
    attention = torch.softmax(scores.masked_fill(future, -torch.inf), dim=-1)
    queries, after, hidden = q.transpose(-3, -2).flatten(-2), block(x, 0, None), None
    if block.mlp is not None:
        middle = block.norm_2(x + block.attention(block.norm_1(x), 0, None))
        hidden = ACTIVATIONS[block.mlp.activation](middle @ block.mlp.W_in + block.mlp.b_in).numpy()
    return TracedLayer(x.numpy(), queries.numpy(), attention.numpy(), hidden, after.numpy()), after


def asked_and_offered(block: Block, x: Tensor, first: int) -> tuple[Tensor, Tensor]:
    """Queries and keys (heads, n, d_head) of normed streams (n, d), with position ids from first + 1."""
    attention = block.attention
    q = attention.by_head(x, attention.W_Q, attention.b_Q)
    k = attention.by_head(x, attention.W_K, attention.b_K)
    if attention.rotation is None:
        return q, k
    return attention.rotation(q, first), attention.rotation(k, first)


def spread_of_scores(model: Decoder) -> Array:
    """The standard deviation of q . k in the first layer (heads, kinds, kinds) over the positions of each two tokens.

    Rows are the tokens that ask, columns those that are looked at, BOS the last of both. A token stands at any id
    behind the one that it looks at, or looks at itself; BOS may have any id, stands before all others, and asks none of
    them (NaN). Scores are not divided by the root of the head size, as in C.

    >>> from constructions.inductive import selective
    >>> spread_of_scores(selective(K=2, C=3, pe="rope", positions=8)).shape
    (1, 3, 3)
    """
    with torch.no_grad():
        model = deepcopy(model).double()
        block, kinds, P = block_of(model, 0), model.W_E.shape[0], model.positions
        streams = _streams(model)
        q, k = (part.numpy() for part in asked_and_offered(block, block.norm_1(streams), 0))
    found = np.full((q.shape[1], kinds, kinds), np.nan)
    later = np.tril(np.ones((P, P), dtype=bool), -1)
    for asking in range(kinds):
        for seen in range(kinds):
            fits = later | (np.eye(P, dtype=bool) if asking == seen else False)
            if model.has_bos and asking == kinds - 1:
                fits = np.eye(P, dtype=bool) & (seen == asking)
            elif model.has_bos and seen != kinds - 1:
                fits = fits & (np.arange(P) > 0)  # the first id is left to BOS
            if fits.any():
                scores = q[asking] @ k[seen].transpose(0, 2, 1)
                found[:, asking, seen] = scores[:, fits].std(axis=1)
    return found


def _streams(model: Decoder) -> Tensor:
    """The stream of every token at every position id (kinds, positions, d)."""
    x = model.W_E[:, None].expand(-1, model.positions, -1)
    if model.pe == "spe":
        return torch.cat([x, model.W_pos.expand(x.shape[0], -1, -1)], dim=-1)
    return x + model.W_pos if model.pe in ("ape", "sine") else x


def principal_components(states: object) -> tuple[Array, Array]:
    """The states' first two principal components (n, 2), and the shares of the variance that they have.

    >>> found, shares = principal_components(np.array([[0.0, 0, 0], [2, 0, 0], [4, 0, 0]]))
    >>> found.tolist(), shares.tolist()
    ([[-2.0, 0.0], [0.0, 0.0], [2.0, 0.0]], [1.0, 0.0])
    """
    centred = np.asarray(states) - np.asarray(states).mean(axis=0)
    out, shares = np.zeros((len(centred), 2)), np.zeros(2)
    _, sizes, directions = np.linalg.svd(centred, full_matrices=False)
    whole = float((sizes * sizes).sum())
    for i in range(min(2, len(sizes))):
        if sizes[i] > 1e-12 * sizes[0]:
            direction = directions[i] * np.sign(directions[i][np.abs(directions[i]).argmax()])
            out[:, i], shares[i] = centred @ direction, sizes[i] ** 2 / whole
    return out, shares
