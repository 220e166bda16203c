"""Lines with exactly known coherence: integer coordinates with a common norm per row, or a Seidel matrix."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

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

    def vectors(self) -> Tensor:
        """Unit vectors in float64, rounded once from the exact lines up to a rotation.

        Shapes: (T, d).
        """
        if self.rows is not None and self.rows.shape[1] == self.d:
            coordinates = self.rows.astype(np.float64)
        else:
            coordinates = _square_root(self._gram(), self.d)
        return torch.from_numpy(coordinates / np.linalg.norm(coordinates, axis=1, keepdims=True))

    def _gram(self) -> NDArray[np.float64]:
        gram: NDArray[np.float64]
        if self.seidel is not None:
            gram = np.eye(self.T) + float(self.coherence_squared) ** 0.5 * self.seidel
        else:
            assert self.rows is not None
            inner = (self.rows @ self.rows.T).astype(np.float64)
            norms = np.sqrt(np.diag(inner))
            gram = inner / np.outer(norms, norms)
        return gram


def _square_root(gram: NDArray[np.float64], d: int) -> NDArray[np.float64]:
    """Coordinates in R^d with the given Gram matrix of rank d."""
    values, directions = np.linalg.eigh(gram)
    return np.ascontiguousarray(directions[:, -d:] * np.sqrt(values[-d:]))
