"""Single strings: enclosures of the decoder's output, witnesses against a cell, and runs of the module."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from constructions.contextual_counting_arrays import BOS, CLOSE, ONE, OPEN, ZERO
from constructions.model_arrays import module_of
from verify.arithmetic import softmax
from verify.arithmetic.balls import Ball
from verify.arithmetic.margins import margins_of
from verify.arithmetic.slack import Array
from verify.frame.clock import Deadline
from verify.tasks.contextual.cells import CellProof, PromptCells
from verify.tasks.contextual.readout import Comparison
from verify.tasks.contextual.stream import Kinds, Positions, StoredContextual, StreamReader, encode, pieces, see
from verify.tasks.contextual.task import StringDomain, answers, written

if TYPE_CHECKING:
    from verify.tasks.contextual.model import ContextualModel

MOST_TELLING = 16


def judge(proof: CellProof, tokens: list[int]) -> Comparison:
    """Every prompt on one string, in real arithmetic: margins (R,) and whether it is surely wrong.

    Raises: TimeIsUp.
    """
    stored, readout = proof.stored, proof.readout
    output = decode(stored, tokens, proof.reader, proof.until)
    return readout.compare(output.lower, output.upper, np.array(answers(tokens, stored.R)))


def decode(stored: StoredContextual, tokens: list[int], reader: StreamReader, until: Deadline) -> Ball:
    """The decoder's output (R, g) on one string.

    Raises: TimeIsUp.
    """
    row = np.array([BOS] * stored.has_bos + tokens)
    counts = np.cumsum(np.eye(5, dtype=np.int64)[row], axis=0)
    kinds, number = np.unique(np.concatenate([row[:, None], counts], axis=1), axis=0, return_counts=True)
    of = pieces(stored, Kinds(kinds[:, 0], np.zeros(len(kinds)), kinds[:, None, 1:]), until)
    seen = Positions.joined([see(stored, encode(stored, some), reader) for some in of])
    weights = softmax.weights(seen.scores.T) * Ball.exact(number.astype(np.float64))
    return (weights @ seen.values) / (weights @ Ball.exact(np.ones((len(kinds), 1))))


def candidates(cells: Iterable[PromptCells], domain: StringDomain) -> Iterator[list[int]]:
    """Strings that may refute: of cells that are not proved, plain ones first, then with digits of one kind added."""
    open_cells = [(c, k) for c in cells for k in pick(c)]
    open_cells.sort(key=lambda pair: (not pair[0].wrong[pair[1]], 2 * pair[0].fewest + pair[1]))
    for c, k in open_cells[:40]:
        for M in sorted({c.fewest, c.most}):
            yield from filter(domain.has, fillings(c.r, M, k, domain))


def pick(c: PromptCells) -> set[int]:
    """Three counts of a group of cells: the first that is surely wrong, the first and the least certain unproved."""
    unproved = np.nonzero(~(c.margin > 0))[0]
    wrong = np.nonzero(c.wrong)[0]
    if not len(unproved):
        return set()
    return {int(unproved[0]), int(np.argmin(c.margin)), int(wrong[0]) if len(wrong) else int(unproved[-1])}


def fillings(r: int, M: int, k: int, domain: StringDomain) -> Iterator[list[int]]:
    """Strings with M regions and k ones in region r, with nothing else or many digits in one place."""
    zeros = domain.zeros or 0
    room = domain.N - 2 * M - k - zeros
    if room < 0:
        return
    needed = max(0, domain.shortest - (2 * M + k + zeros))
    for number in sorted({needed, min(room, needed + 1), room}):
        for token in (ZERO, ONE) if domain.zeros is None else (ONE,):
            for place in range(2 * M + 1):
                if number == 0 and (token, place) != (ONE, 0):
                    continue
                if (token, place) != (ONE, 2 * r - 1) or number == 0:
                    yield string(r, M, k, token, place, number, zeros)


def telling(cells: Sequence[PromptCells], domain: StringDomain) -> tuple[tuple[tuple[int, ...], int], ...]:
    """For each number of regions the plainest string of its tightest cell, with the prompt (from 0)."""
    found: list[tuple[tuple[int, ...], int]] = []
    for M in sorted({c.fewest for c in cells})[:MOST_TELLING]:
        tightest = min((c for c in cells if c.fewest == M), key=lambda c: float(c.margin.min()))
        plainest = (tokens for tokens in fillings(tightest.r, M, int(tightest.margin.argmin()), domain))
        found += [(tuple(tokens), tightest.r - 1) for tokens in plainest if domain.has(tokens)][:1]
    return tuple(found)


def string(r: int, M: int, k: int, token: int, place: int, number: int, zeros: int) -> list[int]:
    """M regions, k ones in region r, `number` tokens after `place` delimiters, zeros at the end."""
    out: list[int] = []
    for m in range(2 * M + 1):
        if m:
            out.append(OPEN if m % 2 else CLOSE)
        out += [ONE] * k * (m == 2 * r - 1) + [token] * number * (m == place)
    return out + [ZERO] * zeros


def margins(module: ContextualModel, strings: Sequence[Sequence[int]]) -> Array:
    """(logit of the right class) - (largest other), as the module computes them: (strings, R) for one length.

    NaN where a logit is, infinite where there is no other class.
    """
    import torch

    right = torch.tensor([answers(list(tokens), module.R) for tokens in strings])
    tokens = torch.tensor([list(tokens) for tokens in strings], dtype=torch.long).reshape(len(strings), -1)
    with torch.no_grad():
        logits = module_of(module)(tokens).double()
    return margins_of(logits, right).numpy()


def margin_at_most(stored: StoredContextual, tokens: list[int], prompt: int) -> float:
    """An upper bound on the margin of a prompt (from 0) on a string, in real arithmetic."""
    never = Deadline.never()
    output, right = (
        decode(stored, tokens, StreamReader.of(stored, never), never)[prompt],
        answers(tokens, stored.R)[prompt],
    )
    others = np.arange(stored.classes) != right
    W, b = stored.ball("W_out"), stored.ball("b_out")
    slope = W[:, right][:, None] - W[:, others]
    difference = output @ slope + (b[right] - b[others])
    return float(difference.upper.min(initial=np.inf))


def counterexample(module: ContextualModel, tokens: list[int], prompt: int) -> dict[str, object]:
    """A string that is wrong at a prompt, with its regions and the module's own run."""
    import torch

    right = answers(tokens, module.R)
    with torch.no_grad():
        logits = module_of(module)(torch.tensor(tokens, dtype=torch.long)).double()
    said = int(logits[prompt].argmax())
    is_known = said != right[prompt] and not bool(logits[prompt].isnan().any())
    return {
        "input": written(tokens),
        "predicted": said if is_known else None,
        "string": written(tokens),
        "length": len(tokens),
        "regions": regions(tokens),
        "prompt": prompt + 1,
        "expected": right[prompt],
        "module_answers": said,
        "all_expected": right,
        "all_module_answers": logits.argmax(dim=-1).tolist(),
    }


def regions(tokens: list[int]) -> list[str]:
    """The regions of a string, as written.

    >>> regions([1, 2, 0, 1, 3, 2, 3])
    ['[01]', '[]']
    """
    return [part[part.index("[") :] + "]" for part in written(tokens).split("]")[:-1]]
