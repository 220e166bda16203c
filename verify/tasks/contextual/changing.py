"""How the numbers of a contextual counting model are changed: its readout, on every valid string and every prompt."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import islice
from typing import cast

import torch
from torch import Tensor, nn

from constructions.contextual import transformer
from constructions.contextual.transformer import BOS, CLOSE, OPEN, WEIGHTS, ContextualCountingTransformer
from verify.changes import captured
from verify.changes.changeable import Changeable, Questions, Sampling, check_listed, of_kind
from verify.tasks.contextual.task import StringDomain, answers, parse
from verify.tasks.contextual.verdict import ContextualCounting, domain_of

DRAWN = 1 << 12  # strings at most that are drawn at a time


class PaddedContextual(nn.Module):
    """A model's numbers on strings of one length, which BOS fills up at their end: the decoder does not look at it.

    A causal encoder does not see what comes later.
    """

    def __init__(self, module: ContextualCountingTransformer) -> None:
        super().__init__()
        for name in WEIGHTS:
            self.register_parameter(name, nn.Parameter(getattr(module, name).detach().clone(), requires_grad=False))
        self.register_buffer("bos", module.bos.clone())
        self.has_bos = module.has_bos

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits (..., R, classes) for every prompt, from strings (..., N) that are filled up."""
        own = cast(ContextualCountingTransformer, self)  # has all that a model's encoder reads
        stream = ContextualCountingTransformer.encode(own, tokens)
        is_filled = tokens == BOS
        if self.has_bos:
            is_filled = torch.cat([torch.zeros_like(is_filled[..., :1]), is_filled], dim=-1)
        scores = (own.P @ own.U_Q) @ (stream @ own.U_K).transpose(-2, -1)
        weights = torch.softmax(scores.masked_fill(is_filled.unsqueeze(-2), -torch.inf), dim=-1)
        return weights @ (stream @ own.U_V) @ own.W_out + own.b_out


def load(path: str) -> ContextualCountingTransformer:
    """The model of a file."""
    return transformer.load(path)


def changeable(
    module: ContextualCountingTransformer, *, length: int | None = None, regions: int | None = None
) -> Changeable:
    """The model on every valid string of up to `length` tokens, all that it has classes for by default.

    Raises: BadInput as `domain_of`.
    """
    domain = domain_of(module, len(module.b_out) - 1 if length is None else length, regions=regions)
    prompts = torch.arange(module.R)

    def asked(strings: Iterable[list[int]]) -> Questions:
        """Every prompt of these strings."""
        listed = list(strings)
        tokens = torch.tensor([string + [BOS] * (domain.N - len(string)) for string in listed]).reshape(-1, domain.N)
        right = torch.tensor([answers(string, module.R) for string in listed], dtype=torch.long)
        return Questions(tokens.repeat_interleave(module.R, 0), prompts.repeat(len(listed)), right.flatten())

    def questions() -> Iterator[Questions]:
        number = domain.strings() * module.R
        check_listed(number, len(module.W_out) + 1, domain.N, f"length={domain.N}, regions={domain.R}")
        yield asked(domain.enumerate())

    def drawn(seed: int, number: int) -> Questions:
        chosen = random.Random(seed)
        return asked(some_string(domain, chosen) for _ in range(min(DRAWN, -(-number // module.R))))[slice(0, number)]

    def near(questions: Questions) -> Questions:
        return asked(islice(neighbours(torch.unique(questions.tokens, dim=0).tolist(), domain), DRAWN))

    def of(counterexample: Mapping[str, object]) -> Questions:
        string, prompt = counterexample["string"], counterexample["prompt"]
        assert isinstance(string, str) and isinstance(prompt, int)
        return asked([parse(string)])[slice(prompt - 1, prompt)]

    judged = of_kind(
        PaddedContextual,
        lambda changed, _: ContextualCounting(plain(changed), domain),
        lambda changed: transformer.as_bytes(plain(changed)),
    )
    found = captured.changeable(PaddedContextual(module).eval(), domain.N, questions, *judged)
    return replace(found, sampling=Sampling(drawn, near, of))


def plain(module: nn.Module) -> ContextualCountingTransformer:
    """The model itself again."""
    return transformer.from_state_dict(module.state_dict())


def some_string(domain: StringDomain, chosen: random.Random) -> list[int]:
    """A valid string: ones alone, zeros alone or both, and delimiters in pairs at places drawn."""
    length = chosen.randint(domain.shortest, domain.N)
    share = chosen.choice((0.0, 1.0, chosen.random()))
    string = [int(chosen.random() < share) for _ in range(length)]
    number = 2 * chosen.randint(0, min(domain.R, length // 2))
    for i, place in enumerate(sorted(chosen.sample(range(length), number))):
        string[place] = CLOSE if i % 2 else OPEN
    return string


def neighbours(padded: list[list[int]], domain: StringDomain) -> Iterator[list[int]]:
    """Valid strings that differ from these in one token, put in, taken out or another one."""
    for row in padded:
        string = [token for token in row if token != BOS]
        for i in range(len(string) + 1):
            for token in range(BOS):
                for changed in (string[:i] + [token] + string[i:], string[:i] + [token] + string[i + 1 :]):
                    if changed != string and domain.has(changed):
                        yield changed
            if domain.has(string[:i] + string[i + 1 :]):
                yield string[:i] + string[i + 1 :]
