"""How the numbers of a model that adds digit by digit are changed: its readout, at each digit of an answer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import replace

import torch
from torch import Tensor

from constructions.adder import transformer
from constructions.adder.digits import Digits
from constructions.adder.transformer import AdderTransformer
from constructions.errors import BadInput
from verify.changes import captured
from verify.changes.changeable import Changeable, Questions, Sampling, check_listed, of_kind
from verify.tasks.addition.task import DigitAddition

NINES = 0.5  # of the columns of a drawn pair whose digits sum to B - 1, through which a carry runs


def load(path: str) -> AdderTransformer:
    """The model of a file."""
    return transformer.load(path)[0]


def changeable(module: AdderTransformer) -> Changeable:
    """The model on all pairs of n-digit numbers in base B, the digits before the asked one given.

    Raises: BadInput for tables of tokens and positions that no n and B have.
    """
    sums = sums_of(module)
    digits = sums.n + 1

    def asked(pairs: Tensor) -> Questions:
        """Every digit of these pairs' answers; pairs (N, 2, n) by their digits, most significant first."""
        tokens, answers = written(pairs, sums)
        position = torch.tensor([sums.query(column) for column in reversed(range(digits))])
        return Questions(tokens.repeat_interleave(digits, 0), position.repeat(len(pairs)), answers.flatten())

    def questions() -> Iterator[Questions]:
        number = sums.B ** (2 * sums.n) * digits
        check_listed(number, len(module.W_out) + 1, sums.length, f"n={sums.n}, B={sums.B}")
        numbers = torch.cartesian_prod(*[torch.arange(sums.B)] * (2 * sums.n))
        yield asked(numbers.reshape(-1, 2, sums.n))

    def drawn(seed: int, number: int) -> Questions:
        g = torch.Generator().manual_seed(seed)
        pairs = torch.randint(0, sums.B, (-(-number // digits), 2, sums.n), generator=g)
        carried = torch.rand(len(pairs), sums.n, generator=g) < NINES
        pairs[:, 1] = torch.where(carried, sums.B - 1 - pairs[:, 0], pairs[:, 1])
        return asked(pairs)[slice(0, number)]

    def near(questions: Questions) -> Questions:
        """The same with one digit more or less by one, modulo B."""
        pairs = digits_of(questions.tokens, sums).flatten(1)
        moved = torch.cat([pairs + step * row for step in (1, -1) for row in torch.eye(2 * sums.n, dtype=torch.long)])
        return asked((moved % sums.B).reshape(-1, 2, sums.n))

    def of(counterexample: Mapping[str, object]) -> Questions:
        """The first digit that is said wrong."""
        asked_for, *answers = (str(counterexample[name]) for name in ("input", "expected", "predicted"))
        a, b = (read(part, sums.B) for part in asked_for.rstrip("=").split("+"))
        due, said = (read(answer, sums.B) for answer in answers)
        wrong = next((i for i, (x, y) in enumerate(zip(due, said, strict=True)) if x != y), 0)
        return asked(torch.tensor([[a, b]]))[slice(wrong, wrong + 1)]

    judged = of_kind(AdderTransformer, lambda changed, _: DigitAddition(changed, sums), transformer.to_bytes)
    found = captured.changeable(deepcopy(module).eval(), sums.length, questions, *judged)
    return replace(found, sampling=Sampling(drawn, near, of))


def sums_of(module: AdderTransformer) -> Digits:
    """The sums that a model's tables of tokens and positions are for.

    Raises: BadInput where there are none.
    """
    tokens, length = len(module.E), module.length
    if tokens < 4 or length < 5 or (length - 2) % 3:
        raise BadInput(
            f"weights: {tokens} tokens and {length} positions; n digits in base B have B + 2 and 3n + 2 of them."
        )
    return Digits((length - 2) // 3, tokens - 2)


def written(pairs: Tensor, sums: Digits) -> tuple[Tensor, Tensor]:
    """Prompts with all digits of the answers but the last, and the answers, of pairs (N, 2, n) of digits.

    Shapes: (N, 3n + 2) and (N, n + 1).
    """
    total, carry = pairs.sum(1), torch.zeros(len(pairs), dtype=torch.long)
    answer = []
    for column in reversed(range(sums.n)):
        total[:, column] += carry
        answer.append(total[:, column] % sums.B)
        carry = total[:, column] // sums.B
    answers = torch.stack([*answer, carry][::-1], 1)
    plus, equals = (torch.full((len(pairs), 1), token) for token in (sums.plus, sums.equals))
    return torch.cat([pairs[:, 0], plus, pairs[:, 1], equals, answers[:, :-1]], 1), answers


def digits_of(tokens: Tensor, sums: Digits) -> Tensor:
    """The digits of both numbers of prompts (N, 3n + 2): (N, 2, n)."""
    return torch.stack([tokens[:, : sums.n], tokens[:, sums.n + 1 : 2 * sums.n + 1]], 1)


def read(text: str, B: int) -> list[int | None]:
    """Digits from the text that a counterexample has, None for one that is not known.

    >>> read("1?a", 16), read("1.40", 50)
    ([1, None, 10], [1, 40])
    """
    digits, base = (list(text), 36) if B <= 36 else (text.split("."), 10)
    return [None if digit == "?" else int(digit, base) for digit in digits]
