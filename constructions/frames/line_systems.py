"""Lines with exactly known coherence: integer coordinates with a common norm per row, or a Seidel matrix."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from constructions.model_arrays import Array

Integers = NDArray[np.int64]


@dataclass(frozen=True)
class LineSystem:
    """T lines in R^d given exactly, in one of two ways.

    `rows`: integer coordinates, row t stands for the unit vector rows[t] / |rows[t]|.
    `seidel`: a symmetric matrix of zeros on the diagonal and +-1 elsewhere, for equiangular lines whose Gram
    matrix is I + c S, c^2 = `coherence_squared`.
    `d` is the rank, not the number of columns of `rows`.

    Shapes: rows (T, any), seidel (T, T).
    """

    family: str
    d: int
    coherence_squared: Fraction
    rows: Integers | None = None
    seidel: Integers | None = None

    @property
    def T(self) -> int:
        exact = self.rows if self.rows is not None else self.seidel
        assert exact is not None
        return int(exact.shape[0])

    @property
    def is_tight(self) -> bool:
        """Whether the lines are an equiangular tight frame: the coherence attains (T - d) / (d (T - 1)) exactly."""
        return self.coherence_squared == Fraction(self.T - self.d, self.d * (self.T - 1))

    def vectors(self) -> Array:
        """Unit vectors in float64, rounded once from the exact lines up to a rotation.

        Shapes: (T, d).
        """
        if self.rows is not None and self.rows.shape[1] == self.d:
            coordinates = self.rows.astype(np.float64)
        else:
            coordinates = _square_root(self._gram(), self.d)
        return normalized(coordinates)

    def _gram(self) -> Array:
        gram: Array
        if self.seidel is not None:
            gram = np.eye(self.T) + float(self.coherence_squared) ** 0.5 * self.seidel
        else:
            assert self.rows is not None
            inner = (self.rows @ self.rows.T).astype(np.float64)
            norms = np.sqrt(np.diag(inner))
            gram = inner / np.outer(norms, norms)
        return gram


def _square_root(gram: Array, d: int) -> Array:
    """Coordinates in R^d with the given Gram matrix of rank d."""
    values, directions = np.linalg.eigh(gram)
    return np.ascontiguousarray(directions[:, -d:] * np.sqrt(values[-d:]))


def normalized(v: Array) -> Array:
    """The vectors over their norms.

    Shapes: (T, m).

    >>> normalized(np.array([[3.0, 4.0]])).tolist()
    [[0.6, 0.8]]
    """
    result: Array = v / np.linalg.norm(v, axis=1, keepdims=True)
    return result


def coherence(vectors: Array) -> float:
    """The largest |<v_i, v_j>|, i != j, in float64: an estimate, verify.tasks.histogram.coherence certifies it.

    Shapes: (T, d).

    >>> coherence(np.eye(3))
    0.0
    """
    overlaps = np.abs(vectors @ vectors.T)
    np.fill_diagonal(overlaps, 0.0)
    return float(overlaps.max(initial=0.0))
