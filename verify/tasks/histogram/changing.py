"""How the numbers of a histogram model are changed: its questions, its readout, and its own verdict."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import numpy as np
import torch
from flint import arb, ctx, fmpq
from torch import Tensor, nn

from constructions import checkpoint
from constructions.histogram import HistogramTransformer
from constructions.partition_sampler import sample
from verify.arithmetic.exact_reals import Key
from verify.arithmetic.readings import Reading
from verify.changes.changeable import Changeable, ChangeableReadout, Questions, Sampling, check_listed
from verify.frame import decide
from verify.frame.certificate import CERTIFIED, Certificate
from verify.frame.decide import Effort
from verify.tasks.histogram.every_reading import problem
from verify.tasks.histogram.exact_forward import ExactForward
from verify.tasks.histogram.runs import all_sequences
from verify.tasks.histogram.stored import StoredModel

ROOT_OFF_BY = 2.0**-52  # relative: the double next to sqrt(d), and so W_Q over it, is off by half of that


def load(path: str, *, model: str | None = None, L: int | None = None) -> HistogramTransformer:
    """The model of a file."""
    return checkpoint.load(path, model=model, L=L)


def changeable(module: HistogramTransformer, *, L: int | None = None) -> Changeable:
    """The model on all T^L sequences and all positions.

    Raises: BadInput for a module that is not judged, weights that are not finite, or an L that it has no classes for.
    """
    stored = StoredModel.of(module, L)

    def verdict(changed: nn.Module, reading: Reading, effort: Effort) -> Certificate:
        assert isinstance(changed, HistogramTransformer)
        return decide.decide(problem(changed, L=stored.L), reading, CERTIFIED, effort)

    def file(changed: nn.Module) -> bytes:
        assert isinstance(changed, HistogramTransformer)
        return checkpoint.as_bytes(changed, claim=None, construction=None)

    hidden = ExactForward(with_hidden_numbers(stored))

    def enclosed(tokens: Tensor, position: int, bits: int) -> list[arb]:
        *of_neurons, D = (number.ball(bits) for number in hidden.logits(tokens.tolist(), position))
        with ctx.workprec(bits):
            return [*(z / D if stored.is_softmax else z for z in of_neurons), arb(1)]

    def terms(tokens: Tensor, position: int) -> list[dict[Key, fmpq]]:
        return [number.terms for number in hidden.logits(tokens.tolist(), position)]

    def posed(changed: nn.Module) -> Changeable:
        assert isinstance(changed, HistogramTransformer)
        return changeable(changed, L=stored.L)

    is_square = math.isqrt(stored.d) ** 2 == stored.d
    loose = {} if stored.is_linear or is_square else {"W_Q": ROOT_OFF_BY}
    readout = ChangeableReadout("W_2", "b_2")
    return Changeable(
        module, readout, stored.L, lambda: questions(stored), verdict, file, enclosed, terms, posed, loose,
        sampling(stored), 1 if stored.is_linear or is_square else stored.d,
    )  # fmt: skip


def with_hidden_numbers(stored: StoredModel) -> StoredModel:
    """The model whose logits are the hidden numbers, and 1, or all of them times D where there is a softmax."""
    W, b = np.hstack([np.eye(stored.p), np.zeros((stored.p, 1))]), np.append(np.zeros(stored.p), 1.0)
    return replace(stored, W_2=W, b_2=b, classes=stored.p + 1)


def questions(stored: StoredModel) -> Questions:
    """Every question of a model, once: with a mixing matrix each position of each sequence.

    Without one, a position sees its own token and a bag of others, whatever the weights are, so that the first position
    of the sequences whose other tokens do not fall stands for all.
    Raises: BadInput where there are too many.
    """
    T, L = stored.T, stored.L
    number = T**L * L if stored.is_linear else T * math.comb(T + L - 2, L - 1)
    check_listed(number, stored.p + 1, L, f"T={T}, L={L}")
    tokens, position = _sequences(T, L) if stored.is_linear else _bags_of_others(T, L)
    return _asked(stored, tokens, position)


def _asked(stored: StoredModel, tokens: Tensor, position: Tensor) -> Questions:
    own = tokens[torch.arange(len(tokens)), position]
    return Questions(tokens, position, (tokens == own[:, None]).sum(1) - stored.first_count)


def sampling(stored: StoredModel) -> Sampling:
    """Questions of sequences drawn by document A's law and uniformly; near ones have one other token."""
    T, L, asked = stored.T, stored.L, partial(_asked, stored)

    def drawn(seed: int, number: int) -> Questions:
        g = torch.Generator().manual_seed(seed)
        uniform = torch.randint(0, T, (number // 2, L), generator=g)
        tokens = torch.cat([sample(T, L, number - number // 2, g), uniform])
        return asked(tokens, torch.randint(0, L, (number,), generator=g))

    def near(questions: Questions) -> Questions:
        n = len(questions)
        place, step = (x.flatten() for x in torch.meshgrid(torch.arange(L), torch.arange(1, T), indexing="ij"))
        tokens = questions.tokens.repeat_interleave(len(place), 0)
        row, place, step = torch.arange(len(tokens)), place.repeat(n), step.repeat(n)
        tokens[row, place] = (tokens[row, place] + step) % T
        return asked(tokens, questions.position.repeat_interleave(L * (T - 1)))

    def of(counterexample: Mapping[str, object]) -> Questions:
        return asked(torch.tensor([counterexample["tokens"]]), torch.tensor([counterexample["position"]]))

    return Sampling(drawn, near, of)


def _sequences(T: int, L: int) -> tuple[Tensor, Tensor]:
    tokens = torch.cat(list(all_sequences(T, L)))
    return tokens.repeat(L, 1), torch.arange(L).repeat_interleave(len(tokens))


def _bags_of_others(T: int, L: int) -> tuple[Tensor, Tensor]:
    others = torch.tensor(list(itertools.combinations_with_replacement(range(T), L - 1))).reshape(-1, L - 1)
    own = torch.arange(T).repeat_interleave(len(others))
    tokens = torch.cat([own[:, None], others.repeat(T, 1)], dim=1)
    return tokens, torch.zeros(len(tokens), dtype=torch.long)
