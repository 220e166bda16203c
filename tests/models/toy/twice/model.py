"""One layer of linear attention that tells a token that stands alone from one that occurs again."""

import torch
from torch import Tensor, nn

from constructions.errors import BadInput
from constructions.files import read_tensors, state_bytes

KEY = "weightproof"


class TwiceTransformer(nn.Module):
    """Adds up the scores of a token with all tokens, and reads two classes from the sum: once 0, again 1.

    Shapes: E (T, d); w (2,); b (2,).
    """

    def __init__(self, *, T: int, L: int, d: int) -> None:
        super().__init__()
        self.T, self.L, self.d = T, L, d
        self.E, self.w, self.b = (nn.Parameter(torch.zeros(s, dtype=torch.float64)) for s in ((T, d), 2, 2))

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits (..., L, 2) of tokens (..., L) in 0..T-1."""
        x = self.E[tokens]
        return (x @ x.transpose(-1, -2)).sum(-1, keepdim=True) * self.w + self.b


def orthonormal(*, T: int, L: int) -> TwiceTransformer:
    """Builds weights whose sum is the own count k: the logits are 0 and k - 3/2, so that the margin is 1/2."""
    module = TwiceTransformer(T=T, L=L, d=T)
    module.load_state_dict({"E": torch.eye(T), "w": torch.tensor([0, 1.0]), "b": torch.tensor([0, -1.5])})
    return module


def as_bytes(module: TwiceTransformer) -> bytes:
    return state_bytes(module, KEY, {"L": module.L})


def load(path: str, L: int) -> TwiceTransformer:
    """Reads a model. Raises: BadInput for any other file."""
    tensors, _ = read_tensors(path, KEY, ("E",))
    if set(tensors) != {"E", "w", "b"} or tensors["E"].dim() != 2 or tensors["w"].shape != (2,):
        raise BadInput(f"weights={path!r}: is no TwiceTransformer, whose tensors are E (T, d), w (2,) and b (2,).")
    module = TwiceTransformer(T=len(tensors["E"]), L=L, d=tensors["E"].shape[1])
    module.load_state_dict(tensors)
    return module
