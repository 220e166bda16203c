"""lin and lin+sftm on a given space U of vectors: the weights that count on it, or the vector that rules them out."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

from constructions.errors import BadInput, NotKnown, shown
from verify.commands.options import fractions
from verify.frame.schema import as_json

if TYPE_CHECKING:
    from constructions.histogram import HistogramTransformer
    from verify.tasks.histogram.catalogue import SizesAsked
    from verify.tasks.histogram.kernels import Uneven

CLAIM = "W-21"
LARGEST_T = 64  # of which every token is one linear programme with twice as many rows


class RuledOut(NotKnown):
    """A space on which no weights of the regime count, with the vector that shows it."""

    def __init__(self, found: Uneven) -> None:
        super().__init__(f"--kernel: counts 1 and 2 of token {found.t} cannot be apart with these vectors free.")
        self.found = found


def parsed(text: str, sizes: SizesAsked) -> list[list[Fraction]]:
    """The basis (T, m) whose columns are the vectors in "1,-1,1,-1:1,1,-1,-1".

    Raises: BadInput for other models, lengths or ranks, and d or p that are not the space's.
    """
    from verify.tasks.histogram.kernels import rank_of

    T = sizes.T
    if sizes.model not in ("lin", "lin+sftm"):
        raise BadInput(f"--kernel: is of lin and lin+sftm, got --model {sizes.model}. Choose one of them.")
    if T > LARGEST_T or sizes.L < 2:
        raise BadInput(f"--kernel: takes T up to {LARGEST_T} and L from 2, got T={shown(T)}, L={shown(sizes.L)}.")
    vectors = [fractions("--kernel", part, T) for part in text.split(":")]
    d = T - 1 - len(vectors)
    if d < 1 or rank_of(vectors) < len(vectors):
        raise BadInput(
            f"--kernel: must be up to {T - 2} independent vectors at T={T}, got {len(vectors)} of another rank."
        )
    if sizes.d not in (None, d) or sizes.p not in (None, T):
        raise BadInput(f"--kernel: {len(vectors)} vectors of {T} tokens leave d={d} with p={T}. Leave --d and --p out.")
    return [list(row) for row in zip(*vectors, strict=True)]


def on_kernel(text: str, sizes: SizesAsked, dtype: str) -> HistogramTransformer:
    """The weights on a space that is even, by its own numbers N.

    Raises: RuledOut with a vector of the space that is not.
    """
    import torch

    from constructions.exact_laws import on_kernel as built
    from constructions.histogram import DTYPES
    from verify.tasks.histogram.kernels import Uneven, decide_kernel, is_certificate

    basis = parsed(text, sizes)
    found = decide_kernel(basis, sizes.L)
    if not is_certificate(basis, sizes.L, found):
        raise AssertionError(f"{sizes}: the certificate of {text} does not check")
    if isinstance(found, Uneven):
        raise RuledOut(found)
    N, u = (torch.tensor([list(map(float, row)) for row in rows]).double() for rows in (found.N, basis))
    return built(sizes.model, u, N, L=sizes.L, dtype=DTYPES[dtype])


def print_uneven(sizes: SizesAsked, found: Uneven, *, is_json: bool) -> int:
    """Prints the vector that rules the space out, where neurons keep their sides on counts 1 and 2; exit code 1."""
    u, rest = [str(x) for x in found.u], sum(abs(x) for x in found.u) - abs(found.u[found.t])
    if is_json:
        data = {"task": "histogram, kernel", "claim": CLAIM, "verdict": "REFUTED", "model": sizes.model, "T": sizes.T}
        print(as_json(data | {"L": sizes.L, "token": found.t, "u": u}))
    else:
        print(f"vector    u = ({', '.join(u)}): (2L-3) |u_{found.t}| = {(2 * sizes.L - 3) * abs(found.u[found.t])} >= "
              f"{rest}, the sum of the others")  # fmt: skip
        print(f"REFUTED  no {sizes.model} whose neurons keep their sides on counts 1 and 2 counts with these free "
              f"({CLAIM})")  # fmt: skip
    return 1
