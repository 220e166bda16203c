"""How few neurons and dimensions suffice, and how few are proved too few: claims W-13 to W-18."""

from __future__ import annotations

from math import comb

from bounds.even_readings import widest_kernel


def fewest_neurons(T: int) -> int:
    """The least p of dot+sftm and lin+sftm for all weights, L >= 2: 2^p - 1 >= T.

    Claim: W-16; reached by dot+sftm at d = T - 1 (W-13).

    >>> [fewest_neurons(T) for T in (2, 3, 4, 31, 32)]
    [2, 2, 3, 5, 6]
    """
    return T.bit_length()


def printed_dimensions(T: int, L: int) -> tuple[int, int, int, int, int]:
    """The least d that is printed for lin, for dot with one neuron and with T, for bos+sftm and for dot+sftm.

    The formulas of bounds.coherent_counting in whole numbers, for which sympy need not be loaded.
    Claim: A-4.4 (eq. 44, 56, 66), A-4.5 (eq. 87), A-C.3.2.

    >>> printed_dimensions(32, 10)
    (29, 30, 8, 8, 6)
    """
    of_lin, of_dot = (-(-T * x // (T - 1 + x)) for x in ((2 * L - 3) ** 2, L - 1))  # the Welch bound equals 1/sqrt(x)
    digits = T.bit_length()  # ceil(log2(T + 1))
    return of_lin, of_lin + 1, of_dot, digits + 2, digits


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


def lin_needs_dimensions(T: int, L: int, p: int) -> bool:
    """Whether lin and lin+sftm with p neurons are proved to need d >= T - 1 and p >= T - 1 at this L, for all weights.

    With R = ceil((T+1)/2) slots left free and h slots for every pair of tokens, some choice of the latter leaves every
    neuron affine over the former where p R C(h, h/2) < 2^h.

    Claim: W-24.

    >>> lin_needs_dimensions(3, 76, 3), lin_needs_dimensions(3, 60, 3), lin_needs_dimensions(32, 10, 32)
    (True, False, False)
    """
    return T >= 3 and _has_affine_filling(T, L, (T + 2) // 2, p)


def lin_needs_neurons(T: int, L: int) -> bool:
    """Whether lin and lin+sftm are proved to need p >= T at this L, for all weights and every d.

    As above with R = T, for all T own tokens at once: T p R C(h, h/2) < 2^h at p = T - 1.

    Claim: W-24.

    >>> lin_needs_neurons(3, 625), lin_needs_neurons(3, 100)
    (True, False)
    """
    return T >= 2 and _has_affine_filling(T, L, T, T * (T - 1))


def _has_affine_filling(T: int, L: int, R: int, neurons: int) -> bool:
    """Whether neurons R C(h, h/2) < 2^h for the h slots that each pair of tokens gets beside R free ones.

    For large h by C(h, h/2) <= 2^h sqrt(2/(pi h)), with 3 for pi.
    """
    h = (L - 1 - R) // (T * (T - 1) // 2)
    if h < max(1, (neurons * R) ** 2 // 2):
        return False  # too few in any case, or nearly so: said without large numbers
    return neurons * R * comb(h, h // 2) < 2**h if h < 10**4 else 2 * (neurons * R) ** 2 < 3 * h
