"""Adding two numbers modulo P, one token per number, read at "=": a staircase of two neurons, or rotations of circles.

E describes what training finds, rotations, and gives no weights; these are ours, those of constructions.modular_arrays
as modules.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from constructions import modular_arrays
from constructions.adder.transformer import AdderTransformer
from constructions.model_arrays import name_of
from constructions.modular_arrays import CONSTRUCTIONS as CONSTRUCTIONS
from constructions.modular_arrays import ONE_NEURON as ONE_NEURON
from constructions.modular_arrays import PIZZA_113 as PIZZA_113
from constructions.modular_arrays import check_frequencies as check_frequencies
from constructions.modular_arrays import check_K as check_K
from constructions.modular_arrays import check_modulus as check_modulus
from constructions.modular_arrays import circles as circles
from constructions.modular_arrays import pizza_frequencies as pizza_frequencies


def staircase(*, P: int, dtype: torch.dtype = torch.float64) -> AdderTransformer:
    """Uniform attention adds the numbers in one dimension, two ReLUs subtract P, and the readout is a staircase.

    Claim: W-E4.4 (ours); constructions.modular_arrays.staircase says why it is right.
    Shapes: d = d_h = d_v = 1, p = 2.
    Raises: BadInput for P < 2, or numbers that the dtype does not hold.

    >>> staircase(P=113)(torch.tensor([[100, 20, 113]]))[0, -1].argmax()
    tensor(7)
    """
    return modular_arrays.staircase(P=P, dtype=name_of(dtype)).made(AdderTransformer)


def one_neuron(*, P: int, dtype: torch.dtype = torch.float64) -> AdderTransformer:
    """Uniform attention adds rows of the numbers, one lane for each class, and one ReLU corrects what sums get wrong.

    Claim: W-E4.9 (ours); constructions.modular_arrays.one_neuron says why it is right.
    Shapes: d = d_h = d_v = P + 1, p = 1.
    Raises: NotKnown for P > 3, BadInput for P < 2.

    >>> one_neuron(P=3)(torch.tensor([[2, 2, 3]]))[0, -1]
    tensor([  0.,   2., -24.], dtype=torch.float64)
    """
    return modular_arrays.one_neuron(P=P, dtype=name_of(dtype)).made(AdderTransformer)


def clock(*, P: int, frequencies: Sequence[int], dtype: torch.dtype = torch.float64) -> AdderTransformer:
    """Neurons interpolate cos(w z) and sin(w z) at z = a + b: the logits are sum_k cos(w_k (a + b - c)).

    Claim: E-4.1; constructions.modular_arrays.clock says why it is right.
    Shapes: d = 2K + 1, d_h = d_v = 1, p = 2P - 3.
    Raises: BadInput for P < 3 or frequencies that are no residues.

    >>> clock(P=7, frequencies=(1, 2))(torch.tensor([[5, 4, 7]]))[0, -1].argmax()
    tensor(2)
    """
    return modular_arrays.clock(P=P, frequencies=frequencies, dtype=name_of(dtype)).made(AdderTransformer)


def pizza(
    *, P: int, frequencies: Sequence[int] = (1,), m: int = 5, dtype: torch.dtype = torch.float64
) -> AdderTransformer:
    """Points on circles are averaged, and m neurons per frequency double the angle of the average.

    Claim: W-E4.5 (ours); constructions.modular_arrays.pizza says why it is right.
    Shapes: d = 2K, d_h = 1, d_v = 2K, p = m K. For one frequency
    m = 5 is proved enough up to P = 117, and bounds.modular.neurons_needed says what is beyond.
    Raises: ProvedImpossible for even P; BadInput for an even m or one below 5, or frequencies that are no residues.

    >>> pizza(P=113)(torch.tensor([[100, 20, 113]]))[0, -1].argmax()
    tensor(7)
    """
    return modular_arrays.pizza(P=P, frequencies=frequencies, m=m, dtype=name_of(dtype)).made(AdderTransformer)
