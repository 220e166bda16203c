"""For which (T, d) a real equiangular tight frame is known to exist, proved impossible, or neither."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import isqrt
from typing import Literal

SUSTIK = "Sustik, Tropp, Dhillon, Heath, Linear Algebra Appl. 426 (2007)"
SEIDEL = "van Lint, Seidel, Indag. Math. 28 (1966)"
PALEY = "Paley, J. Math. Phys. 12 (1933)"
STEINER = "Fickus, Mixon, Tremain, Linear Algebra Appl. 436 (2012)"
DIFFERENCE_SETS = "Xia, Zhou, Giannakis, IEEE Trans. Inf. Theory 51 (2005)"
TABLES = "Fickus, Mixon, arXiv:1504.00253"
TAYLOR = "Taylor, Proc. London Math. Soc. 35 (1977)"


@dataclass(frozen=True)
class EtfStatus:
    """`status` says what is known, `reason` why, `reference` where it is proved or tabulated."""

    status: Literal["exists", "impossible", "unknown"]
    reason: str
    reference: str


# Frames of T vectors in R^d with d <= T/2; each also gives its complement in R^(T-d).
EXISTING: dict[tuple[int, int], tuple[str, str]] = {
    (6, 3): ("conference matrix, q = 5", PALEY),
    (10, 5): ("conference matrix, q = 9", PALEY),
    (14, 7): ("conference matrix, q = 13", PALEY),
    (16, 6): ("Steiner system of the pairs of 4 points", STEINER),
    (18, 9): ("conference matrix, q = 17", PALEY),
    (26, 13): ("conference matrix, q = 25", PALEY),
    (28, 7): ("Steiner system of the Fano plane", STEINER),
    (30, 15): ("conference matrix, q = 29", PALEY),
    (36, 15): ("graph of a Latin square of order 6", SEIDEL),
    (38, 19): ("conference matrix, q = 37", PALEY),
    (42, 21): ("conference matrix, q = 41", PALEY),
    (46, 23): ("conference matrix of order 46", "Mathon, Canad. J. Math. 30 (1978)"),
    (50, 25): ("conference matrix, q = 49", PALEY),
    (54, 27): ("conference matrix, q = 53", PALEY),
    (62, 31): ("conference matrix, q = 61", PALEY),
    (64, 28): ("difference set in (Z_2)^6", DIFFERENCE_SETS),
    (74, 37): ("conference matrix, q = 73", PALEY),
    (82, 41): ("conference matrix, q = 81", PALEY),
    (90, 45): ("conference matrix, q = 89", PALEY),
    (98, 49): ("conference matrix, q = 97", PALEY),
    (100, 45): ("strongly regular graph (100, 44, 18, 20)", "Jorgensen, Klin, Electron. J. Combin. 10 (2003) R17"),
    (120, 35): ("Steiner system of the triples of PG(3, 2)", STEINER),
    (126, 21): ("regular two-graph of the unitary group U(3, 5)", TAYLOR),
    (144, 66): ("Steiner system of the pairs of 12 points", STEINER),
    (176, 22): ("regular two-graph of the Higman-Sims group", TAYLOR),
    (256, 120): ("difference set in (Z_2)^8", DIFFERENCE_SETS),
    (276, 23): ("regular two-graph of the Conway group .3", "Goethals, Seidel, Discrete Math. 12 (1975)"),
}

# Parameters that pass the integrality conditions, and still no frame exists.
IMPOSSIBLE: dict[tuple[int, int], tuple[str, str]] = {
    (76, 19): (
        "needs a strongly regular graph (75, 32, 10, 16), and there is none",
        "Azarija, Marc, Linear Algebra Appl. 557 (2018), arXiv:1509.05933",
    ),
    (96, 20): (
        "needs a strongly regular graph (95, 40, 12, 20), and there is none",
        "Azarija, Marc, J. Combin. Des. 28 (2020), arXiv:1603.02032",
    ),
}

# Parameters that pass the conditions and are listed as open.
OPEN: dict[tuple[int, int], tuple[str, str]] = {
    (66, 33): ("conference matrix of order 66: open", TABLES),
    (86, 43): ("conference matrix of order 86: open", TABLES),
}


def real_etf_status(T: int, d: int) -> EtfStatus:
    """Whether T equiangular unit vectors that form a tight frame exist in R^d: exists, impossible or unknown.

    Claim: A-4.4 assumes one for every (T, d); necessary conditions from Sustik et al. 2007 (T <= d(d+1)/2
    and the same for the complement; odd integers, or T - 1 a sum of two squares where T = 2d), existence from the
    cited constructions. "unknown" means open or not catalogued here.
    Raises: ValueError when T < 1 or d < 1.

    >>> real_etf_status(28, 7).status, real_etf_status(32, 8).status, real_etf_status(66, 33).status
    ('exists', 'impossible', 'unknown')
    """
    if T < 1 or d < 1:
        raise ValueError(f"T={T}, d={d}: both must be at least 1")
    trivial = _trivial(T, d)
    if trivial is not None:
        return trivial
    broken = next(_broken_conditions(T, d), None)
    if broken is not None:
        return EtfStatus("impossible", broken, SUSTIK)
    for table, status in ((EXISTING, "exists"), (IMPOSSIBLE, "impossible"), (OPEN, "unknown")):
        for size, prefix in ((d, ""), (T - d, "complement of: ")):
            if (T, size) in table:
                reason, reference = table[T, size]
                return EtfStatus(status, prefix + reason, reference)  # type: ignore[arg-type]
    if 2 * d == T and _is_prime_power(T - 1):
        return EtfStatus("exists", f"conference matrix, q = {T - 1}", PALEY)
    return EtfStatus("unknown", "passes the necessary conditions; open or not catalogued here", TABLES)


def _trivial(T: int, d: int) -> EtfStatus | None:
    if d > T:
        return EtfStatus("impossible", "fewer than d vectors do not span R^d", "elementary")
    if d == T:
        return EtfStatus("exists", "an orthonormal basis", "elementary")
    if d == T - 1:
        return EtfStatus("exists", "the corners of a simplex", "elementary")
    if d == 1:
        return EtfStatus("exists", "the same vector T times, coherence 1", "elementary")
    return None


def _broken_conditions(T: int, d: int) -> Iterator[str]:
    """The necessary conditions for 1 < d < T - 1 that (T, d) breaks."""
    for size, where in ((d, "d"), (T - d, "d' = T - d")):
        if size * (size + 1) < 2 * T:
            yield f"T <= {where} ({where} + 1) / 2 fails: {T} > {size * (size + 1) // 2}"
    if 2 * d == T:
        if d % 2 == 0:
            yield f"T = 2d needs odd d, got d = {d}"
        if not _is_sum_of_two_squares(T - 1):
            yield f"T = 2d needs T - 1 a sum of two squares, {T - 1} is none"
        return
    for numerator, denominator, formula in (
        (d * (T - 1), T - d, "sqrt(d (T - 1) / (T - d))"),
        ((T - d) * (T - 1), d, "sqrt((T - d)(T - 1) / d)"),
    ):
        if not _is_odd_square(numerator, denominator):
            yield f"{formula} must be an odd integer, its square is {numerator}/{denominator}"


def _is_odd_square(numerator: int, denominator: int) -> bool:
    quotient, rest = divmod(numerator, denominator)
    return rest == 0 and isqrt(quotient) ** 2 == quotient and quotient % 2 == 1


def _is_sum_of_two_squares(n: int) -> bool:
    return any(isqrt(n - a * a) ** 2 == n - a * a for a in range(isqrt(n) + 1))


def _is_prime_power(n: int) -> bool:
    p = next((i for i in range(2, isqrt(n) + 1) if n % i == 0), n)
    while n % p == 0:
        n //= p
    return n == 1
