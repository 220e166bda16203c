"""Two causal blocks without positions that contain one with them: the first writes the places, from BOS's share.

A head that attends to everything alike gives BOS the share 1/(i + 1) at place i. The first block's neurons turn that
number into any code of the place, by a line between any two places; the second block is the one that had positions.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from constructions.errors import BadInput

SHARP = 40.0  # by how much the place before leads in the second head


class CausalBlock(nn.Module):
    """One causal softmax head and a feed-forward layer, both with a skip connection.

    Shapes: W_Q, W_K (d, e); W_V (d, h); W_O (h, d); W_1 (d, p); b_1 (p,); W_2 (p, d).
    """

    def __init__(self, d: int, e: int, h: int, p: int, dtype: torch.dtype) -> None:
        super().__init__()

        def zeros(*shape: int) -> nn.Parameter:
            return nn.Parameter(torch.zeros(*shape, dtype=dtype), requires_grad=False)

        self.W_Q, self.W_K, self.W_V, self.W_O = zeros(d, e), zeros(d, e), zeros(d, h), zeros(h, d)
        self.W_1, self.b_1, self.W_2 = zeros(d, p), zeros(p), zeros(p, d)

    def forward(self, x: Tensor) -> Tensor:
        n = x.shape[-2]
        future = torch.ones(n, n, dtype=torch.bool, device=x.device).triu(1)
        scores = ((x @ self.W_Q) @ (x @ self.W_K).transpose(-2, -1)).masked_fill(future, -torch.inf)
        x = x + torch.softmax(scores, dim=-1) @ (x @ self.W_V) @ self.W_O
        return x + torch.relu(x @ self.W_1 + self.b_1) @ self.W_2


class TwoBlocks(nn.Module):
    """BOS and tokens 0..T-1, two causal blocks without positions, and logits over the tokens at every place.

    Claim: B-n3 (footnote 3 of Sec. 3.5, with l = 1). Lanes: tokens, BOS, its share, then the code of the place.
    Shapes: E (T + 1, d), the last row BOS; W_out (d, T); tokens (..., L) -> logits (..., L, T).
    """

    def __init__(self, T: int, L: int, code: int, dtype: torch.dtype = torch.float64) -> None:
        super().__init__()
        self.T, self.L = T, L
        d = 2 * T + 2 + code
        self.E = nn.Parameter(torch.zeros(T + 1, d, dtype=dtype), requires_grad=False)
        self.first = CausalBlock(d, 1, 1, L, dtype)
        self.second = CausalBlock(d, 2, T, 1, dtype)
        self.W_out = nn.Parameter(torch.zeros(d, T, dtype=dtype), requires_grad=False)

    def forward(self, tokens: Tensor) -> Tensor:
        bos = tokens.new_full((*tokens.shape[:-1], 1), self.T)
        x = self.E[torch.cat([bos, tokens], dim=-1)]
        logits: Tensor = self.second(self.first(x)) @ self.W_out
        return logits[..., 1:, :]


def write_places(block: CausalBlock, code: Tensor, bos: int, share: int) -> None:
    """Fills a block that adds row i of the code (L + 1, c) at place i, behind lane `share`, where BOS's share stands.

    Claim: B-n3. The neurons are ReLU(1/(i + 1) - share): between the shares of two places the sum is a line.

    >>> block = CausalBlock(4, 1, 1, 2, torch.float64)
    >>> write_places(block, torch.tensor([[5.0], [7.0], [6.0]], dtype=torch.float64), bos=0, share=2)
    >>> stream = torch.eye(4, dtype=torch.float64)[[0, 1, 1]]  # BOS, then a token twice
    >>> [round(x, 9) for x in block(stream)[:, 3].tolist()]
    [0.0, 2.0, 1.0]
    """
    L = len(code) - 1
    shares = 1 / torch.arange(1, L + 2, dtype=torch.float64)
    rise = (code[1:] - code[:-1]) / (shares[:-1] - shares[1:])[:, None]
    block.W_V[bos, 0], block.W_O[0, share] = 1, 1  # all scores are 0: a mean over all places so far
    block.W_1[share], block.b_1[:] = -1, shares[:-1]
    block.W_2[:, share + 1 : share + 1 + code.shape[1]] = torch.cat([rise[:1], rise[1:] - rise[:-1]])


def token_before(T: int, L: int, dtype: torch.dtype = torch.float64) -> TwoBlocks:
    """Builds the model that says at each place which token stands before it (0 at the first): by places, so no single
    block without positions does it.

    Claim: B-n3. The code of place i is (i, i^2); the second head scores place j with -SHARP (j - (i - 1))^2, up to a
        number that all places share.
    Raises: BadInput for sizes below one.

    >>> import torch
    >>> token_before(3, 4)(torch.tensor([[2, 1, 0, 2]])).argmax(-1).tolist()
    [[0, 2, 1, 0]]
    """
    for name, size in (("T", T), ("L", L)):
        if size < 1:
            raise BadInput(f"{name}={size}: must be at least 1")
    model = TwoBlocks(T, L, 2, dtype)
    bos, share, place, square = T, T + 1, T + 2, T + 3
    with torch.no_grad():
        model.E[:, : T + 1] = torch.eye(T + 1, dtype=dtype)
        i = torch.arange(L + 1, dtype=torch.float64)
        write_places(model.first, torch.stack([i, i * i], dim=1), bos, share)
        second = model.second
        # -(j - i + 1)^2 = 2 j (i - 1) - j^2 - (i - 1)^2, and every token and BOS has a lane that is 1
        second.W_Q[place, 0], second.W_Q[: T + 1, 0] = 2 * SHARP, -2 * SHARP
        second.W_Q[: T + 1, 1] = -SHARP
        second.W_K[place, 0], second.W_K[square, 1] = 1, 1
        second.W_V[:T] = torch.eye(T, dtype=dtype)
        second.W_V[bos, 0] = 1
        second.W_O[:, square + 1 :] = torch.eye(T, model.E.shape[1] - square - 1, dtype=dtype)
        model.W_out[square + 1 : square + 1 + T] = torch.eye(T, dtype=dtype)
    return model.eval()
