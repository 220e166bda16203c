"""Line systems of low coherence: exact families, the search, certified overlaps, bounds, catalogue."""

import json
import math
from fractions import Fraction
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
import sympy
import torch
from flint import fmpz_mat
from models.selection import every, first

from bounds.coherence import (
    all_bounds,
    best_known_lower_bound,
    gerzon,
    least_d,
    levenshtein,
    orthoplex,
    welch,
)
from bounds.equiangular_tight_frames import EXISTING, IMPOSSIBLE, OPEN, real_etf_status
from constructions.errors import BadInput, NotKnown
from constructions.frames import equiangular, orthogonal_bases
from constructions.frames.choice import exact_frame, low_coherence
from constructions.frames.finite_fields import conference_matrix, hadamard_matrix
from constructions.frames.line_systems import coherence, normalized
from constructions.frames.optimiser import optimised_lines
from constructions.frames.polish import polished
from constructions.frames.symmetries import KINDS, random_group
from verify.tasks.histogram.coherence import certify_coherence

TABLE = json.loads((Path(__file__).parents[1] / "data" / "best_known_lines.json").read_text())["best_sin2"]
BEST_KNOWN = {(int(T), int(d)): math.sqrt(1 - v) for d, row in TABLE.items() for T, v in row.items()}

TIGHT = [
    *(equiangular.simplex(T) for T in (2, 3, 8, 33)),
    *(equiangular.conference(q) for q in (5, 9, 13, 17, 25, 29, 37, 41, 49)),
    *(equiangular.bent(m, is_large) for m in (2, 3, 4) for is_large in (False, True)),
    *(equiangular.steiner_triples(m) for m in (3, 4)),
    *(equiangular.steiner_pairs(v) for v in (4, 8, 12, 16)),
    *(equiangular.latin_square(is_large) for is_large in (False, True)),
    *(equiangular.naimark_complement(equiangular.steiner_triples(m)) for m in (3, 4)),
    equiangular.naimark_complement(equiangular.conference(13)),
]
# line system, T, d, coherence^2, whether it attains the Levenshtein bound
OTHERS = [
    (equiangular.symplectic(), 40, 16, Fraction(1, 25), False),
    (orthogonal_bases.kerdock_bases(2), 12, 4, Fraction(1, 4), True),
    (orthogonal_bases.kerdock_bases(4), 144, 16, Fraction(1, 16), True),
    (orthogonal_bases.hadamard_pair(8), 16, 8, Fraction(1, 8), False),
    (orthogonal_bases.hadamard_pair(12), 24, 12, Fraction(1, 12), False),
    (orthogonal_bases.root_lines("D4"), 12, 4, Fraction(1, 4), True),
    (orthogonal_bases.root_lines("E6"), 36, 6, Fraction(1, 4), True),
    (orthogonal_bases.root_lines("E7"), 63, 7, Fraction(1, 4), True),
    (orthogonal_bases.root_lines("E8"), 120, 8, Fraction(1, 4), True),
]


def name(lines):
    return f"{lines.T},{lines.d}"


def exact_coherence_squared(rows):
    gram = (rows @ rows.T).tolist()
    return max(Fraction(gram[i][j] ** 2, gram[i][i] * gram[j][j]) for i, j in combinations(range(len(gram)), 2))


@pytest.mark.parametrize("lines", TIGHT, ids=name)
def test_tight_frames_by_integer_arithmetic(lines):
    """S^2 = (T-1) I + mu S has two eigenvalues, the least -1/c: so I + cS has eigenvalues 0 and T/d, hence rank d."""
    T, d, S = lines.T, lines.d, equiangular.seidel_matrix(lines)
    assert lines.coherence_squared == Fraction(T - d, d * (T - 1))
    assert (S == S.T).all() and (np.abs(S) == 1 - np.eye(T)).all()
    remainder = S @ S - (T - 1) * np.eye(T, dtype=np.int64)
    mu = int(remainder[0, 1] * S[0, 1])
    assert (remainder == mu * S).all()
    # 1/c = lambda solves lambda^2 + mu lambda = T - 1, with lambda^2 = 1/c^2 exact
    squared = 1 / lines.coherence_squared
    assert (T - 1 - squared) ** 2 == mu**2 * squared
    assert mu == 0 or (T - 1 - squared > 0) == (mu > 0)


@pytest.mark.parametrize("lines", [lines for lines in TIGHT if lines.rows is not None], ids=name)
def test_tight_frames_with_integer_coordinates(lines):
    assert lines.rows.shape == (lines.T, lines.d)
    assert exact_coherence_squared(lines.rows) == lines.coherence_squared
    gram = fmpz_mat((lines.rows.T @ lines.rows).tolist())
    assert gram == gram[0, 0] * fmpz_mat(np.eye(lines.d, dtype=int).tolist())


@pytest.mark.parametrize(
    ("lines", "T", "d", "squared", "is_levenshtein"), OTHERS, ids=lambda x: name(x) if hasattr(x, "T") else ""
)
def test_other_families_by_integer_arithmetic(lines, T, d, squared, is_levenshtein):
    assert (lines.T, lines.d, lines.coherence_squared) == (T, d, squared)
    if lines.rows is not None:
        assert exact_coherence_squared(lines.rows) == squared
        assert fmpz_mat(lines.rows.tolist()).rank() == d
    else:
        inverse = math.isqrt(int(1 / squared))
        gram = fmpz_mat((inverse * np.eye(T, dtype=np.int64) + lines.seidel).tolist())
        assert gram.rank() == d
        assert np.linalg.eigvalsh(lines.seidel).min() > -inverse - 1e-9
    if is_levenshtein:
        assert levenshtein().at(T, d) ** 2 == sympy.Rational(squared.numerator, squared.denominator)


@pytest.mark.parametrize("lines", every(9, [*TIGHT, *(case[0] for case in OTHERS)]))
def test_float_vectors_are_the_exact_lines(lines):
    vectors = lines.vectors()
    assert vectors.shape == (lines.T, lines.d)
    certified = certify_coherence(torch.from_numpy(vectors))
    assert float(certified.coherence_squared) == pytest.approx(float(lines.coherence_squared), rel=1e-12)
    assert max(abs(float(n) - 1) for n in certified.norm_squared) < 1e-14


def test_kerdock_bases_are_unbiased():
    rows = orthogonal_bases.kerdock_bases(4).rows.reshape(9, 16, 16)
    for a, b in combinations(rows[1:], 2):
        assert (np.abs(a @ b.T) == 4).all()
    for basis in rows[1:]:
        assert (basis @ basis.T == 16 * np.eye(16)).all()


def test_the_graphs_are_strongly_regular():
    networkx = pytest.importorskip("networkx")
    for lines, degree, sign in ((equiangular.latin_square(is_large=True), 15, -1), (equiangular.symplectic(), 12, -1)):
        graph = networkx.from_numpy_array((lines.seidel == sign).astype(int))
        assert networkx.is_strongly_regular(graph)
        assert graph.degree[0] == degree


@pytest.mark.parametrize("n", [1, 2, *range(4, 92, 4), 96, 100])
def test_hadamard_matrices(n):
    H = hadamard_matrix(n)
    assert (np.abs(H) == 1).all() and (n * np.eye(n) == H @ H.T).all()


@pytest.mark.parametrize("q", [5, 9, 13, 17, 25, 29, 37, 41, 49, 121, 169])
def test_conference_matrices(q):
    C = conference_matrix(q)
    assert (C == C.T).all() and (np.diag(C) == 0).all() and (q * np.eye(q + 1) == C @ C).all()


def test_sizes_that_the_matrices_do_not_reach():
    for bad in (lambda: hadamard_matrix(6), lambda: conference_matrix(7), lambda: conference_matrix(45)):
        with pytest.raises(BadInput):
            bad()
    with pytest.raises(NotKnown):
        hadamard_matrix(92)
    with pytest.raises(BadInput, match="exactly one"):
        equiangular.steiner([(0, 1, 2), (0, 1, 3), (2, 3)], "none")
    with pytest.raises(BadInput, match="tight"):
        equiangular.naimark_complement(equiangular.symplectic())


# exact frames and the tables of others


def test_exact_frames_beside_the_best_known():
    equal = set()
    for (T, d), best in BEST_KNOWN.items():
        frame = exact_frame(T, d)
        if frame is None:
            continue
        assert frame.vectors.shape == (T, d)
        assert frame.coherence > best * (1 - 1e-6)
        if frame.coherence < best * (1 + 1e-6):
            equal.add((T, d))
    assert {(6, 3), (12, 4), (16, 6), (28, 7), (18, 9), (30, 15), (32, 15), (36, 15), (40, 16), (63, 7)} & set(
        BEST_KNOWN
    ) <= equal
    assert len(equal) >= 60


def test_low_coherence_takes_exact_families_at_once():
    assert low_coherence(5, 9).family == "orthonormal"
    assert low_coherence(32, 31).family == "simplex"
    assert low_coherence(12, 4).coherence_squared == Fraction(1, 4)
    assert low_coherence(7, 2).coherence == pytest.approx(math.cos(math.pi / 7))
    assert low_coherence(276, 2).family == "regular polygon"
    assert low_coherence(1, 1).coherence == 0


@pytest.mark.deep
@pytest.mark.parametrize("steps", first(1, [20, 50, 200]))
def test_low_coherence_prefers_the_better_of_search_and_family(steps):
    found = low_coherence(13, 6, steps=2 * steps)  # an exact family gives 1/3
    assert found.coherence <= exact_frame(13, 6).coherence
    tie = low_coherence(15, 6, steps=steps)
    assert tie.coherence_squared == Fraction(1, 9)


@pytest.mark.parametrize(("T", "d"), [(0, 3), (3, 0), (2, 1), (-1, -1)])
def test_low_coherence_refuses_bad_sizes(T, d):
    with pytest.raises(BadInput):
        low_coherence(T, d)


def test_exact_only_refuses_what_it_does_not_have():
    with pytest.raises(NotKnown):
        low_coherence(1000, 3, steps=0)
    with pytest.raises(BadInput):
        low_coherence(7, 3, steps=-1)


# the search


@pytest.mark.parametrize(
    ("T", "d", "best"), first(1, [(6, 3, 1 / math.sqrt(5)), (7, 3, 1 / math.sqrt(3)), (10, 5, 1 / 3), (16, 6, 1 / 3)])
)
def test_search_finds_what_is_proved_best(T, d, best):
    assert coherence(optimised_lines(T, d, steps=250, restarts=48)) == pytest.approx(best, abs=1e-7)


@pytest.mark.parametrize(("T", "d"), first(1, [(11, 4), (13, 5), (20, 8)]))
def test_search_beside_the_best_known(T, d):
    assert coherence(optimised_lines(T, d, steps=300, restarts=48)) < 1.02 * BEST_KNOWN[T, d]


@pytest.mark.deep
def test_search_is_deterministic_and_reports_progress():
    reports = []
    first = optimised_lines(9, 4, seed=3, steps=20, restarts=3, progress=reports.append)
    second = optimised_lines(9, 4, seed=3, steps=20, restarts=3)
    assert np.array_equal(first, second)
    assert reports == sorted(reports) and reports[-1] == pytest.approx(1.0) and reports[0] > 0
    assert not np.array_equal(first, optimised_lines(9, 4, seed=4, steps=20, restarts=3))


def test_search_leaves_the_number_of_threads_alone():
    before = torch.get_num_threads()
    optimised_lines(4, 3, steps=5, restarts=2)
    assert torch.get_num_threads() == before


def test_search_refuses_bad_sizes():
    for arguments in ({"steps": 0}, {"restarts": 0}):
        with pytest.raises(BadInput):
            optimised_lines(5, 3, **arguments)


def test_polishing_never_makes_it_worse():
    rng = np.random.default_rng(0)
    for T, d in ((2, 2), (5, 3), (12, 4)):
        V = normalized(rng.normal(size=(T, d)))
        after = polished(V, iterations=5)
        assert coherence(after) <= coherence(V)
        assert np.allclose(np.linalg.norm(after, axis=1), 1)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("d", [3, 4, 12])
def test_random_groups_act_on_lines(kind, d):
    group = random_group(kind, 4, d, torch.Generator().manual_seed(d)).numpy()
    assert np.allclose(group[0], np.eye(d))
    for a in group:
        assert np.allclose(a @ a.T, np.eye(d))
        for b in group:
            assert any(np.allclose(a @ b, c) or np.allclose(a @ b, -c) for c in group)


# certified overlaps


def by_fractions(vectors):
    rows = [[Fraction(float(x)) for x in row] for row in vectors]
    gram = [[sum(a * b for a, b in zip(x, y, strict=True)) for y in rows] for x in rows]
    pairs = list(combinations(range(len(rows)), 2))
    return (
        max(abs(gram[i][j]) for i, j in pairs),
        (min(gram[i][i] for i in range(len(rows))), max(gram[i][i] for i in range(len(rows)))),
        max(gram[i][j] ** 2 / (gram[i][i] * gram[j][j]) for i, j in pairs),
    )


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("seed", range(4))
def test_certified_coherence_equals_plain_fractions(dtype, seed):
    generator = torch.Generator().manual_seed(seed)
    vectors = torch.randn(9, 4, dtype=torch.float64, generator=generator)
    if seed:  # seed 0: rows of very different norms
        vectors = torch.nn.functional.normalize(vectors, dim=-1)
    certified = certify_coherence(vectors.to(dtype))
    overlap, norms, squared = by_fractions(vectors.to(dtype))
    assert (certified.overlap, certified.norm_squared, certified.coherence_squared) == (overlap, norms, squared)
    i, j = certified.pair
    x, y = (vectors.to(dtype)[t].double().tolist() for t in (i, j))
    assert abs(sum(Fraction(a) * Fraction(b) for a, b in zip(x, y, strict=True))) == overlap


@pytest.mark.parametrize("lines", [equiangular.conference(5), equiangular.conference(9), equiangular.bent(2)], ids=name)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_no_stored_frame_goes_below_welch(lines, dtype):
    """In floats an exact frame can come out below its bound by a rounding error; exactly it cannot."""
    certified = certify_coherence(torch.from_numpy(lines.vectors()).to(dtype))
    assert certified.coherence_squared >= Fraction(lines.T - lines.d, lines.d * (lines.T - 1))


def test_sign_frames_of_power_of_two_norm_are_stored_exactly():
    for dtype in (torch.float64, torch.bfloat16):
        certified = certify_coherence(torch.from_numpy(orthogonal_bases.kerdock_bases(4).vectors()).to(dtype))
        assert certified.overlap == Fraction(1, 4) and certified.norm_squared == (1, 1)


def test_one_planted_overlap_is_found():
    vectors = torch.eye(40, dtype=torch.float64)
    vectors[31, 17] = 2.0**-40
    certified = certify_coherence(vectors)
    assert certified.pair == (17, 31) and certified.overlap == Fraction(1, 2**40)


def test_tiny_and_zero_rows():
    tiny = certify_coherence(torch.tensor([[1e-200, 1e-200], [1e-200, 0.0], [0.0, 1.0]], dtype=torch.float64))
    assert tiny.coherence_squared == Fraction(1, 2)
    for bad in (
        torch.tensor([[1.0, 0.0], [0.0, 0.0]]),
        torch.tensor([[1.0, float("nan")], [0.0, 1.0]]),
        torch.ones(3),
        torch.ones(1, 3),
        torch.ones(2, 3, dtype=torch.int64),
    ):
        with pytest.raises(BadInput):
            certify_coherence(bad)


# bounds


@pytest.mark.parametrize("part", first(1, range(12)))
def test_bounds_are_below_everything_known(part):
    for (T, d), best in list(BEST_KNOWN.items())[part::12]:
        value, _ = best_known_lower_bound(T, d)
        assert float(value) <= best * (1 + 2e-6), (T, d)  # the table prints rounded figures


@pytest.mark.parametrize("lines", [*TIGHT, *(case[0] for case in OTHERS)], ids=name)
def test_bounds_are_below_exact_families(lines):
    value, _ = best_known_lower_bound(lines.T, lines.d)
    squared = sympy.nsimplify(value**2)
    assert squared <= sympy.Rational(lines.coherence_squared.numerator, lines.coherence_squared.denominator)
    if lines.is_tight:
        assert welch().at(lines.T, lines.d) == value


def test_known_values():
    assert welch().at(28, 7) == sympy.Rational(1, 3)
    assert orthoplex().at(144, 16) == levenshtein().at(144, 16) == sympy.Rational(1, 4)
    assert levenshtein().at(63, 7) == sympy.Rational(1, 2)
    assert best_known_lower_bound(4, 2)[0] == sympy.sqrt(2) / 2
    assert best_known_lower_bound(5, 1)[0] == 1
    assert best_known_lower_bound(5, 9)[0] == 0
    assert gerzon().subs({s: 23 for s in gerzon().free_symbols}) == 276


def test_bounds_refuse_outside_their_range():
    with pytest.raises(ValueError, match="holds only"):
        levenshtein().at(28, 7)  # T = d(d+1)/2 exactly
    with pytest.raises(ValueError, match="holds only"):
        welch().at(7, 7)
    with pytest.raises(ValueError):
        best_known_lower_bound(0, 3)


def test_formulas_are_sympy_with_latex():
    for bound in all_bounds():
        assert isinstance(bound.expression, sympy.Expr) and bound.source
        assert bound.latex.startswith(r"M \geq")


@pytest.mark.parametrize(("T", "L"), first(1, [(32, 10), (16, 30), (50, 5), (64, 5)]))
def test_least_d_is_the_strict_version_of_the_printed_formulas(T, L):
    """Printed: d >= ceil(T s / (T - 1 + s)) with M <= 1/sqrt(s); at an integer the bound is met with equality."""
    for s in ((2 * L - 3) ** 2, L - 1):
        strict = math.floor(Fraction(T * s, T - 1 + s)) + 1
        d = least_d(T, 1 / sympy.sqrt(s))
        values = [best_known_lower_bound(T, size)[0] ** 2 for size in range(1, T + 1)]
        assert d >= min(strict, T)
        assert values[d - 1] < sympy.Rational(1, s) and all(v >= sympy.Rational(1, s) for v in values[: d - 1])
        assert d == strict or best_known_lower_bound(T, d - 1)[1].name != "Welch"
    assert least_d(50, sympy.Rational(1, 7)) == 26  # printed: 25


def test_least_d_wants_exact_numbers():
    for M in (0.1, 0, -1, sympy.Float(0.5), sympy.Symbol("x")):
        with pytest.raises(ValueError):
            least_d(10, M)


# the catalogue of real equiangular tight frames


def test_catalogue_entries_pass_the_necessary_conditions():
    for T, d in EXISTING:
        assert real_etf_status(T, d).status == real_etf_status(T, T - d).status == "exists"
    for T, d in IMPOSSIBLE:
        assert real_etf_status(T, d).status == real_etf_status(T, T - d).status == "impossible"
        assert "Azarija" in real_etf_status(T, d).reference
    for T, d in OPEN:
        assert real_etf_status(T, d).status == "unknown"


@pytest.mark.parametrize("lines", TIGHT, ids=name)
def test_what_is_built_exists(lines):
    assert real_etf_status(lines.T, lines.d).status == "exists"


def test_everything_up_to_one_hundred_is_decided_but_two():
    unknown = [(T, d) for T in range(1, 101) for d in range(1, T + 1) if real_etf_status(T, d).status == "unknown"]
    assert unknown == [(66, 33), (86, 43)]


@pytest.mark.parametrize(
    ("T", "d", "status"),
    [
        (32, 8, "impossible"),
        (32, 12, "impossible"),
        (22, 11, "impossible"),
        (34, 17, "impossible"),
        (4, 2, "impossible"),
        (7, 7, "exists"),
        (8, 7, "exists"),
        (3, 5, "impossible"),
        (5, 1, "exists"),
        (170, 85, "exists"),
        (148, 37, "unknown"),
    ],
)
def test_known_statuses(T, d, status):
    found = real_etf_status(T, d)
    assert found.status == status and found.reason and found.reference


def test_equality_in_welch_is_refused_where_the_catalogue_says_impossible():
    """No certified frame of the table's cells attains Welch where a tight frame is impossible."""
    for T, d in BEST_KNOWN:
        if d < T - 1 and real_etf_status(T, d).status == "impossible":
            frame = exact_frame(T, d)
            if frame is not None and frame.coherence_squared is not None:
                assert frame.coherence_squared > Fraction(T - d, d * (T - 1))
