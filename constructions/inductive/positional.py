"""Counting by position ids: a head that finds the first token, and a readout of the distance to it.

Scores -STEEP times the id of the key put nearly all weight on the first token: the mean of the ids is y with
p - y = (n - 1) - delta, 0 <= delta < 1 / (e^STEEP - 1) for every n and every shift, as the weights of later tokens
fall by e^-STEEP each.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from constructions.decoder_arrays import DType, blank, filled
from constructions.errors import BadInput
from constructions.inductive.lanes import LOUD, zeros
from constructions.inductive.proportions import lines
from constructions.model_arrays import Array, ModelArrays

STEEP = 32.0  # of the scores: a power of two, and e^-32 is lost in any dtype here
HEAD = 4  # a size whose root is exact
ONE, IDENT = range(2)
UP, DOWN, LANE, BLANK = (-1 - 2 * i for i in range(4))  # of sinusoids, the slowest cosines


def spe(*, task: str, N: int, m: int | None = None, positions: int = 128, dtype: DType = "float64") -> ModelArrays:
    """A decoder without LayerNorm whose stream holds the position id: the n-th token says n, n mod m, or n = 1.

    The stream keeps a 1, and D = id - y in a lane of its own. Modulo m a sawtooth takes m away at each multiple of m:
    2 floor((N - 1)/m) neurons up to the length N, one less where m divides N - 1, which is the fewest that there can be
    (C-I5). Vanilla and first token need none.
    Claim: C-T4 (ours; C, Sec. 5 holds that this embedding cannot build richer features).

    >>> import torch
    >>> spe(task="modular", N=8, m=3).module(torch.zeros(1, 8, dtype=int), shift=5).argmax(-1).tolist()
    [[0, 1, 2, 0, 1, 2, 0, 1]]
    """
    one, y, r, ident = range(4)
    kinks, slopes = sawtooth(N, m)
    classes = {"vanilla": N + 1, "modular": m or 0}.get(task, 2)
    model = blank(
        vocabulary=1, d=4, d_head=4, d_mlp=len(kinks), classes=classes, positions=positions, pe="spe",
        layernorm=False, dtype=dtype,
    )  # fmt: skip
    E = zeros(1, 3)
    E[0, one] = 1.0
    W_Q, W_K, W_V, W_O = (zeros(4, 4) for _ in range(4))
    W_Q[one, 0], W_K[ident, 0] = 1.0, -STEEP * math.sqrt(4)
    W_V[ident, y], W_O[y, y] = 1.0, 1.0
    W_in, b_in, W_out = zeros(4, len(kinks)), -np.array(kinks), zeros(len(kinks), 4)
    W_in[ident], W_in[y], W_out[:, r] = 1.0, -1.0, np.array(slopes)
    lane = np.eye(4)
    W_U = readout(task, classes, lane[one], lane[ident] - lane[y] + lane[r])
    return filled(
        model,
        {
            "W_E": E, "W_U": W_U, "W_Q": W_Q, "W_K": W_K, "W_V": W_V, "W_O": W_O, "W_in": W_in, "b_in": b_in,
            "W_out": W_out,
        },
    )  # fmt: skip


def readout(task: str, classes: int, one: Array, distance: Array) -> Array:
    """The lines that tell the class from what reads a 1 and what reads n - 1, modulo m in modular: (d, classes).

    >>> one, distance = np.eye(2)
    >>> (np.array([1.0, 2.0]) @ readout("vanilla", 5, one, distance)).argmax().item()  # n = 3
    3
    """
    if task.startswith("first"):  # class 1 is "first": 1/2 - D is positive there alone
        return np.stack([np.zeros_like(one), one / 2 - distance], 1)
    centre = classes // 2
    height, slope = lines(0, classes, centre)
    told = height + slope * (int(task == "vanilla") - centre)
    logits: Array = one[:, None] * told + distance[:, None] * slope
    return logits


def sawtooth(N: int, m: int | None) -> tuple[list[float], list[float]]:
    """Where ReLU neurons of D = n - 1 begin, and their slopes, so that D and their sum are D mod m for n = 1..N.

    A tooth is two neurons that take m away between m r - 3/4 and m r - 1/4, where D never is. A last tooth of one
    length, D = m r, is one neuron from m r - 1 on. Without a modulus there are none.
    Claim: C-I5 (ours) for the number of neurons, the fewest.

    >>> sawtooth(8, 3)
    ([2.25, 2.75, 5.25, 5.75], [-6.0, 6.0, -6.0, 6.0])
    >>> sawtooth(7, 3)
    ([2.25, 2.75, 5.0], [-6.0, 6.0, -3.0])
    """
    if m is None:
        return [], []
    teeth, rest = divmod(N - 1, m)
    ends = range(m, m * teeth + 1, m)
    kinks = [end - offset for end in ends for offset in (0.75, 0.25)]
    slopes = [slope * m for _ in ends for slope in (-2.0, 2.0)]
    if teeth and not rest:
        kinks[-2:], slopes[-2:] = [N - 2.0], [-float(m)]
    return kinks, slopes


def ape(
    *,
    task: str,
    N: int,
    m: int | None = None,
    positions: int = 128,
    as_printed: bool = False,
    dtype: DType = "float64",
) -> ModelArrays:
    """A decoder without LayerNorm whose table holds each id p, and p modulo one or two numbers.

    The head brings the first token's residues. A difference of residues is -1 or less where it wrapped: two neurons add
    the modulus there. Modulo m that is the answer. The count itself is told by its residues modulo two coprime numbers
    whose product is N or more, each with lines of its own, whose sum has its maximum at n alone. All numbers but the
    softmax are whole or halves, and small: 8 bits hold each sum of them for ids up to 256.
    With `as_printed` the modular answer is C's eq. 2, (first - current) mod m, where its residue 0 says m.
    Claim: C-T5 (ours; C, Sec. 5, for the residues).
    Raises: BadInput for `as_printed` in another task.

    >>> import torch
    >>> ape(task="vanilla", N=12).module(torch.zeros(1, 8, dtype=int), shift=5).argmax(-1).tolist()
    [[1, 2, 3, 4, 5, 6, 7, 8]]
    """
    if as_printed and task != "modular":
        raise BadInput(f"as_printed=True: C's eq. 2 is of modular counting, not of {task}; leave it out")
    design = Residues.of(task, N, m, as_printed)
    d = design.lanes
    model = blank(
        vocabulary=1, d=d, d_head=HEAD, d_mlp=design.W_in.shape[1], classes=design.W_U.shape[1], positions=positions,
        pe="ape", activation="relu", layernorm=False, dtype=dtype,
    )  # fmt: skip
    return filled(model, {"W_pos": design.table(positions), **design.weights()})


@dataclass(frozen=True)
class Residues:
    """Matrices over the lanes: a 1, the position id, and one lane for each modulus.

    A residue's lane holds that of p, then p's less the first token's, then, after the MLP, that modulo the modulus,
    less half of it.
    Shapes: W_V (lanes, HEAD); W_O (HEAD, lanes); W_in (lanes, p); b_in (p,); W_out (p, lanes); b_out (lanes,); W_U
        (lanes, classes).
    """

    moduli: tuple[int, ...]
    step: int  # 1, or -1 for the residues of -p
    W_V: Array
    W_O: Array
    W_in: Array
    b_in: Array
    W_out: Array
    b_out: Array
    W_U: Array

    @property
    def lanes(self) -> int:
        return len(self.W_U)

    @classmethod
    def of(cls, task: str, N: int, m: int | None, as_printed: bool) -> Residues:
        """The matrices that count modulo m, to N, or find the first token."""
        is_first, is_vanilla = task.startswith("first"), task == "vanilla"
        moduli = () if is_first else (m,) if m is not None else tuple(coprime(N))
        d, p = 2 + len(moduli), 2 * len(moduli)
        classes = N + 1 if is_vanilla else m or 2
        W_V, W_O, W_U = zeros(d, HEAD), zeros(HEAD, d), zeros(d, classes)
        W_in, b_in, W_out, b_out = zeros(d, p), zeros(p), zeros(p, d), zeros(d)
        said = np.arange(classes) + int(as_printed) - int(is_vanilla)
        for i, modulus in enumerate(moduli):
            lane, half = 2 + i, modulus // 2
            W_V[lane, i], W_O[i, lane] = 1.0, -1.0
            W_in[lane, [2 * i, 2 * i + 1]], b_in[2 * i + 1] = -1.0, -1.0
            W_out[2 * i, lane], W_out[2 * i + 1, lane], b_out[lane] = modulus, -modulus, -half
            j = said % modulus - half
            W_U[lane] = j
            W_U[ONE] -= j**2 / 2
        if is_vanilla:
            W_U[ONE, 0] -= 1.0  # no length is 0, though some number may share its residues
        if is_first:
            W_V[IDENT, 0], W_O[0, IDENT] = 1.0, -1.0
            W_U[[ONE, IDENT], 1] = [0.5, -1.0]
        return cls(moduli, -1 if as_printed else 1, W_V, W_O, W_in, b_in, W_out, b_out, W_U)

    def table(self, positions: int) -> Array:
        """What the lanes hold at each position id before the block: (positions, lanes)."""
        ids = np.arange(1, positions + 1)
        return np.stack([np.ones_like(ids), ids, *(self.step * ids % modulus for modulus in self.moduli)], 1)

    def weights(self) -> dict[str, Array]:
        """All matrices of the decoder, under their names."""
        W_Q, W_K = zeros(self.lanes, HEAD), zeros(self.lanes, HEAD)
        W_Q[ONE, 0], W_K[IDENT, 0] = 1.0, -STEEP * math.sqrt(HEAD)
        names = ("W_V", "W_O", "W_in", "b_in", "W_out", "b_out", "W_U")
        return {"W_Q": W_Q, "W_K": W_K, **{name: getattr(self, name) for name in names}}


def coprime(N: int) -> list[int]:
    """Two neighbouring numbers with a product of at least N: the residues modulo them tell 1..N apart.

    >>> coprime(100), coprime(110)
    ([10, 11], [10, 11])
    """
    a = max(2, math.isqrt(N))
    return [a, a + 1] if a * (a + 1) >= N else [a + 1, a + 2]


def with_layernorm(model: ModelArrays) -> ModelArrays:
    """The same decoder of ReLU layers with one head in pre-LayerNorm blocks, up to about (size of the stream / LOUD)^2.

    Two lanes hold LOUD and -LOUD, so that LayerNorm divides every token by nearly one number c; matrices that read are
    c times as large. A blank lane holds what LayerNorm subtracted: reading less of it takes the mean out. SinePE has no
    blank lanes: the slowest cosines serve, and as tokens are LOUD there already, the two lanes hold LOUD^2 and -LOUD^2.

    >>> model = with_layernorm(ape(task="vanilla", N=6, positions=8))
    >>> import torch
    >>> model.module(torch.zeros(1, 4, dtype=int), shift=2).argmax(-1).tolist()
    [[1, 2, 3, 4]]
    """
    d, d_mlp = model.W_U.shape[0], model.arguments["d_mlp"]
    is_spe, is_sine = model.pe == "spe", model.pe == "sine"
    place = [*range(d - 1), d + 2] if is_spe else list(range(d))
    up, down, empty = (d - 1, d, d + 1) if is_spe else (d + UP, d + DOWN, d + BLANK) if is_sine else (d, d + 1, d + 2)
    size, loud = d + 3 * (not is_sine), LOUD**2 if is_sine else LOUD
    new = blank(**dict(model.arguments) | {"d": size, "layernorm": True}, dtype=model.dtype)
    c = loud * math.sqrt(2 / size)

    def reading(W: Array) -> Array:
        out = zeros(size, W.shape[1])
        out[place] = W * c
        out[empty] -= W.sum(0) * c
        return out

    def writing(W: Array) -> Array:
        out = zeros(len(W), size)
        out[:, place] = W
        return out

    E = zeros(len(model.W_E), size - is_spe)
    E[:, place[: d - is_spe]], E[:, up], E[:, down] = model.W_E, loud, -loud
    filled(new, {"W_E": E, "W_U": reading(model.W_U)})
    if model.pe == "ape":
        filled(new, {"W_pos": writing(model.W_pos)})
    for layer in range(model.arguments["n_layers"]):
        path = f"blocks.{layer}."
        heads = {name: model.weights[f"{path}attention.{name}"] for name in ("W_Q", "W_K", "W_V", "b_Q", "W_O")}
        weights = {name: reading(W) if name in ("W_Q", "W_K", "W_V") else W for name, W in heads.items()}
        weights["W_O"] = writing(heads["W_O"])
        if d_mlp:
            W_in, b_in, W_out, b_out = (
                model.weights[f"{path}mlp.{name}"] for name in ("W_in", "b_in", "W_out", "b_out")
            )
            weights |= {"W_in": reading(W_in), "W_out": writing(W_out), "b_in": b_in, "b_out": writing(b_out[None])[0]}
        filled(new, weights, layer)
    return new
