"""How few neurons and dimensions suffice, and how few are proved too few: claims W-13 to W-18."""

from __future__ import annotations

from bounds.even_readings import widest_kernel


def fewest_neurons(T: int) -> int:
    """The least p of dot+sftm and lin+sftm for all weights, L >= 2: 2^p - 1 >= T.

    Claim: W-16; reached by dot+sftm at d = T - 1 (W-13).

    >>> [fewest_neurons(T) for T in (2, 3, 4, 31, 32)]
    [2, 2, 3, 5, 6]
    """
    return T.bit_length()


def fewest_dimensions_of_one_neuron(T: int, L: int) -> int:
    """A lower bound on d for dot and bos with one neuron, for all weights: T - 1 once L >= floor(T/2) + 1.

    Claim: W-17, W-18 for shorter sequences; T - 1 is reached for every T >= 2 and L (W-14).

    >>> [fewest_dimensions_of_one_neuron(32, L) for L in (17, 16, 10, 2)]
    [31, 30, 29, 1]
    """
    return max(1, T - 1 - widest_kernel(T, L))


def fewest_dimensions_of_blocks(T: int, L: int) -> int:
    """The least d at which blocks of L tokens count with lin and lin+sftm: T - floor(T/L), and T - 1 for longer L.

    Claim: W-15.

    >>> [fewest_dimensions_of_blocks(32, L) for L in (17, 16, 10, 8)]
    [31, 30, 29, 28]
    """
    return max(1, T - max(1, T // max(L, 1)))
