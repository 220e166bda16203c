"""The cycle that a recurrent network's state settles into, with the ellipsoids of its proof, in the plane."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from constructions.errors import BadInput, NotKnown
from constructions.recurrent.model import RecurrentModel
from verify.counting.tasks import Task
from verify.frame.clock import Budget
from verify.frame.decide import Effort, certify
from verify.report.style import BLUE, GREY, VERMILLION, new_figure, style
from verify.tasks.recurrent.invariant import WrittenEllipsoids, WrittenInvariant
from verify.tasks.recurrent.network import Network, float_step, orbit
from verify.tasks.recurrent.task import Homogeneous

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CORNERS = 180  # of the polygons that stand for ellipses
LABELLED = 30  # states that get the answer that is due there


def cycle(model: RecurrentModel, modulus: int, *, seed: int = 0, budget: float | Budget = 30.0) -> Figure:
    """Draws the cycle with the ellipsoids that a proof for all lengths found round it, and where one step leads.

    Left: the orbit and the cycle; a state of more than two numbers by its shadow in the plane in which the cycle is
    widest. Right: what one step makes of each ellipsoid, in the coordinates in which the next one is the unit ball.
    Raises: NotKnown where no cycle is proved, BadInput for a state of one number.
    """
    if Network.of(model).size < 2:
        raise BadInput(f"modulus={modulus}: the state is one number, and has no plane to draw. Take another modulus")
    certificate = certify(Homogeneous(model, Task.of("modular", modulus=modulus), None), effort=Effort(budget, seed))
    invariant = certificate.extra.get("invariant")
    if invariant is None:
        raise NotKnown(f"modulus={modulus}: {certificate.verdict.value}, so no cycle is proved. Take other weights")
    net, (centres, shapes) = Network.of(model), ellipsoids(invariant)
    with style():
        figure, (left, right) = new_figure(8.2, 3.9, ncols=2)
        _draw_orbit(left, net, invariant, centres, shapes, modulus)
        _draw_steps(right, net, centres, shapes, [_due(invariant, i, modulus) for i in range(len(centres))], seed)
        left.set_title(f"{model.kind.upper()}, {model.hidden} units, modulo {modulus}, at every length")
        right.set_title("one step from each ellipsoid into the next")
    return figure


def ellipsoids(invariant: WrittenEllipsoids) -> tuple[np.ndarray, np.ndarray]:
    """Centres (k, N) and matrices (k, N, N) of the ellipsoids that a certificate holds."""
    centres = np.array(invariant["centres"])
    N = centres.shape[1]
    shapes = np.zeros((len(centres), N, N))
    for matrix, rows, exponent in zip(shapes, invariant["shapes"], invariant["exponents"], strict=True):
        for i, row in enumerate(rows):
            matrix[i, : i + 1] = np.ldexp(row, exponent)
    return centres, shapes


def plane(centres: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Two orthonormal directions (2, N) in which points (k, N) are widest, and their mean; (k, 2) stay as they are.

    >>> plane(np.zeros((3, 2)))[0].tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    N = centres.shape[1]
    if N <= 2:
        return np.eye(2, N), np.zeros(N)
    middle = centres.mean(0)
    directions = np.linalg.svd(centres - middle)[2][:2]
    signs = np.sign(directions[np.arange(2), np.abs(directions).argmax(1)])
    return directions * signs[:, None], middle


def outline(shape: np.ndarray, directions: np.ndarray) -> np.ndarray:
    """The border (CORNERS, 2) of the shadow of {L e : |e| <= 1}, L being `shape`."""
    shadow = directions @ shape
    values, vectors = np.linalg.eigh(shadow @ shadow.T)
    angles = np.linspace(0, 2 * np.pi, CORNERS)
    circle = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    border: np.ndarray = circle @ (vectors * np.sqrt(np.maximum(values, 0))).T
    return border


def images(net: Network, centre: np.ndarray, shape: np.ndarray, seed: int = 0) -> np.ndarray:
    """States after one step from an ellipsoid's border: all round it for two numbers, else in random directions."""
    N = len(centre)
    if N == 2:
        angles = np.linspace(0, 2 * np.pi, CORNERS)
        e = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    else:
        e = np.random.default_rng(seed).normal(size=(CORNERS * N, N))
        e /= np.linalg.norm(e, axis=1)[:, None]
    return float_step(net, centre + e @ shape.T, 0)


def in_next(net: Network, centres: np.ndarray, shapes: np.ndarray, i: int, seed: int = 0) -> np.ndarray:
    """The images (n, N) of ellipsoid i in the coordinates in which the next one is the unit ball."""
    after = (i + 1) % len(centres)
    off = images(net, centres[i], shapes[i], seed) - centres[after]
    return np.linalg.solve(shapes[after], off.T).T


def _due(invariant: WrittenInvariant, i: int, modulus: int) -> int:
    """The answer that is due in ellipsoid i."""
    return (invariant["entry"] + i - invariant["place"] - 1) % modulus + 1


def _draw_orbit(
    axes: Axes, net: Network, invariant: WrittenInvariant, centres: np.ndarray, shapes: np.ndarray, modulus: int
) -> None:
    (directions, middle), entry = plane(centres), invariant["entry"]
    way = (orbit(net, [0] * entry) - middle) @ directions.T
    points = (centres - middle) @ directions.T
    axes.plot(*way.T, color=GREY, linewidth=0.8, marker=".", markersize=3, label=f"the first {entry} steps, from 0")
    for i, shape in enumerate(shapes):
        axes.fill(*(points[i] + outline(shape, directions)).T, facecolor=BLUE, edgecolor=BLUE, linewidth=1.5,
                  label="ellipsoids round the cycle" if i == 0 else None)  # fmt: skip
    axes.plot(*np.concatenate([points, points[:1]]).T, color=BLUE, linewidth=0.5, linestyle=":")
    for i, point in enumerate(points[:LABELLED]):
        axes.annotate(str(_due(invariant, i, modulus)), point, xytext=(6, 5), textcoords="offset points", fontsize=8)
    is_plain = net.size == 2
    axes.set(xlabel="$h_1$" if is_plain else "first principal direction",
             ylabel="$h_2$" if is_plain else "second")  # fmt: skip
    axes.margins(0.12)
    axes.legend(fontsize=7, loc="center", bbox_to_anchor=(0.55, 0.3))


def _draw_steps(
    axes: Axes, net: Network, centres: np.ndarray, shapes: np.ndarray, answers: list[int], seed: int
) -> None:
    angles = np.linspace(0, 2 * np.pi, CORNERS)
    axes.plot(np.cos(angles), np.sin(angles), color=BLUE, label="the next ellipsoid")
    for i in range(len(centres)):
        image = _hull(in_next(net, centres, shapes, i, seed)[:, :2])
        axes.fill(*image.T, facecolor="none", edgecolor=VERMILLION, linewidth=0.7, alpha=0.8,
                  label="images of the one before" if i == 0 else None)  # fmt: skip
        if i < LABELLED:
            corner = image[(image @ [np.cos(2.4 * i), np.sin(2.4 * i)]).argmax()]
            axes.annotate(str(answers[(i + 1) % len(answers)]), corner, fontsize=7, color=VERMILLION)
    axes.set(aspect="equal", xticks=(-1, 0, 1), yticks=(-1, 0, 1), xlim=(-1.15, 1.15), ylim=(-1.15, 1.4))
    axes.set(xlabel="own coordinates" + ("" if net.size == 2 else f", the first two of {net.size}"))
    axes.legend(fontsize=7, loc="upper center", ncols=2)


def _hull(points: np.ndarray) -> np.ndarray:
    """The corners of the convex hull, in order."""
    from scipy.spatial import ConvexHull, QhullError

    try:
        corners: np.ndarray = points[ConvexHull(points).vertices]
        return corners
    except QhullError:  # all on a line
        return points
