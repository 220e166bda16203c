"""One input of a proof, run through the module: does float evaluation contradict what was proved?

Every logit that a kernel can compute lies in a ball that covers all roundings in all orders; a margin outside it means
that the module is not what was proved about, or that the proof is wrong.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from verify.arithmetic import softmax
from verify.arithmetic.any_order import RoundedArithmetic
from verify.arithmetic.balls import Ball, relu
from verify.arithmetic.formats import KERNEL_NAMES, Format, format_of
from verify.arithmetic.margins import OneRun, margins_between
from verify.arithmetic.readings import Reading, Rounded
from verify.arithmetic.torch_settings import lowered
from verify.tasks.histogram.rounded.reduction import divided_by_root
from verify.tasks.histogram.stored import StoredModel

if TYPE_CHECKING:
    from constructions.histogram import HistogramTransformer


def look(
    module: HistogramTransformer, stored: StoredModel, tokens: list[int], position: int, reading: Reading
) -> OneRun:
    """Runs one position of a sequence beside a proof: in a format's reading by the rounded module."""
    fmt = kernel_format(module)
    if fmt is None:
        return OneRun()
    if not isinstance(reading, Rounded):
        return look_at(stored, tokens, position, fmt, lambda: _margin(module, stored, tokens, position))
    if reading.format.name not in KERNEL_NAMES or lowered(reading.format):
        return OneRun()
    margin = _margin(rounded_module(module, stored, reading.format), stored, tokens, position)
    return OneRun(at_most=-math.inf if math.isnan(margin) else margin)


def look_at(stored: StoredModel, tokens: list[int], position: int, fmt: Format, run: Callable[[], float]) -> OneRun:
    """One run in a format, beside a proof in real arithmetic."""
    low, high = margin_range(stored, tokens, position, fmt)
    return OneRun(run(), low, high, at_most=high) if math.isfinite(low) and math.isfinite(high) else OneRun()


def _margin(module: HistogramTransformer, stored: StoredModel, tokens: list[int], position: int) -> float:
    import torch

    from verify.tasks.histogram.runs import run_margins, runner

    return float(run_margins(runner(module, None), torch.tensor([tokens]), stored.first_count)[0, position])


def kernel_format(module: HistogramTransformer) -> Format | None:
    """The format in which torch rounds here, None where a device or a setting of torch may choose another."""
    import torch

    is_chosen = torch.is_autocast_enabled("cpu") or module.E.device.type != "cpu"
    fmt = format_of(module.dtype)
    return None if is_chosen or lowered(fmt) else fmt


@np.errstate(over="ignore", invalid="ignore")
def margin_range(stored: StoredModel, tokens: list[int], position: int, fmt: Format) -> tuple[float, float]:
    """Between which numbers the exact margin and every computed one lie; infinite where no bound is known."""
    logits = computed_logits(stored, tokens, position, replace(RoundedArithmetic.of(fmt), keeps=True))
    low, high = margins_between(logits.lower, logits.upper, stored.class_of(tokens.count(tokens[position])))
    return float(low), float(high)


def computed_logits(stored: StoredModel, tokens: list[int], position: int, at: RoundedArithmetic) -> Ball:
    """Balls (classes,) around every logit that can be computed, each operation rounded, each sum in any order.

    Coordinates in which all tokens here are 0, and neurons that are 0, are left out: stored weights are finite, so that
    they add nothing but zeros.
    """
    distinct, index = np.unique(tokens, return_inverse=True)
    x = stored.E[distinct]
    if stored.e_BOS is not None:
        x, index = np.vstack([x, stored.e_BOS]), np.append(len(distinct), index)
    used = _used(Ball.exact(x))
    x, own = x[:, used], Ball.exact(stored.E[[tokens[position]]][:, used])
    mixing = _mixing(stored, own, Ball.exact(x), used, index, position, at)
    mixed = at.sum_of(own, at.product(mixing, Ball.exact(x[index])))
    h = relu(at.product_and(mixed, Ball.exact(stored.W_1[used]), Ball.exact(stored.b_1[None])))
    on = _used(h)
    return at.product_and(h[:, on], Ball.exact(stored.W_2[on]), Ball.exact(stored.b_2[None]))[0]


def _used(x: Ball) -> np.ndarray:
    """The columns in which some number may not be 0; the first one where there is none."""
    found = np.flatnonzero(x.is_not_zero.any(0))
    return found if found.size else np.zeros(1, dtype=found.dtype)


def _mixing(
    stored: StoredModel, own: Ball, x: Ball, used: np.ndarray, index: np.ndarray, position: int, at: RoundedArithmetic
) -> Ball:
    """The mixing weights (1, context) of one position, where the context holds the rows `index` of x.

    x and the position's own token have the coordinates `used` alone.
    """
    if stored.A is not None:
        scores = Ball.exact(stored.A[position : position + 1])
    else:
        assert stored.W_Q is not None and stored.W_K is not None
        queries, keys = (at.product(y, Ball.exact(W[used])) for y, W in ((own, stored.W_Q), (x, stored.W_K)))
        scores = divided_by_root(at, at.product(queries, keys.T), stored.d)[:, index]
    return softmax.shares(scores, at) if stored.is_softmax else scores


def rounded_module(module: HistogramTransformer, stored: StoredModel, fmt: Format) -> HistogramTransformer:
    """The module with rounded weights, in the dtype of the format or else in one that holds its numbers exactly."""
    import torch

    from verify.arithmetic.formats import KERNELS
    from verify.frame.judged import unparametrized

    dtype = KERNELS.get(fmt.name, torch.float32 if fmt.p <= 24 else torch.float64)
    copy = deepcopy(unparametrized(module)).to(dtype)
    with torch.no_grad():
        for name, parameter in copy.named_parameters():
            parameter.copy_(torch.from_numpy(getattr(stored, name)))
    return copy
