"""Hypothesis strategies for the tasks' inputs, for this project's tests and for other projects."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from constructions.errors import BadInput, shown
from verify.counting.tasks import NUMBER_WORDS, STARTED, Task

CountingInput = tuple[int, tuple[int, ...]]


def histogram_sequences(T: int, L: int) -> SearchStrategy[list[int]]:
    """Sequences of L tokens 0..T-1 by recursive partitions, so that all counts are about equally frequent.

    Claim: A-D (App. D; step 4 prints K = k where K = k - 1 is meant).
    Raises: BadInput when T or L is less than 1.

    >>> from hypothesis import find
    >>> find(histogram_sequences(T=3, L=4), lambda x: x.count(x[0]) == 2 and len(set(x)) == 3)
    [0, 0, 1, 2]
    """
    if T < 1 or L < 1:
        raise BadInput(f"T={T}, L={L}: a sequence needs at least one token of at least one kind")
    return _partition_sequences(T, L)


@st.composite
def _partition_sequences(draw: DrawFn, T: int, L: int) -> list[int]:
    unused = list(range(T))
    tokens: list[int] = []
    K = L
    while K:
        k = draw(st.integers(1, K)) if len(unused) > 1 else 1
        token = unused.pop(draw(st.integers(0, len(unused) - 1)))
        tokens += [token] * (K - k + 1)
        K = k - 1
    return list(draw(st.permutations(tokens)))


def counting_inputs(task: Task, *, length: int, positions: int | None = None) -> SearchStrategy[CountingInput]:
    """A shift and tokens of a task of document C, all of whose positions are judged; a BOS is no token of them.

    `length` counts tokens after a leading number word. With `positions` the position ids shift + 1 to shift + n are
    within it; without, the shift is 0. Selective strings have each type at most C times, as C's have.
    Claim: C (Sec. 3.1 and App. G).
    Raises: BadInput when no input of the task fits.

    >>> from hypothesis import find
    >>> find(counting_inputs(Task.of("shifted", vocabulary=9), length=3), lambda x: len(x[1]) == 3)
    (0, (1, 10, 10))
    >>> find(counting_inputs(Task.of("selective", types=2, max_count=2), length=3), lambda x: len(x[1]) == 3)
    (0, (0, 0, 1))
    """
    leading = int(task.name in STARTED)
    room = length + leading if positions is None else min(length + leading, positions)
    if length < 1 or room < 1 + leading:
        raise BadInput(f"length={shown(length)}, positions={shown(positions)}: no input of {task.name} fits")
    return _counting_inputs(task, room, positions)


@st.composite
def _counting_inputs(draw: DrawFn, task: Task, room: int, positions: int | None) -> CountingInput:
    if task.is_homogeneous:
        longest = draw(st.sampled_from(list(task.lines(room if task.name not in NUMBER_WORDS else None, room=room))))
        tokens = longest.tokens[: draw(st.integers(1, len(longest.tokens)))]
    else:
        assert task.K is not None
        pool = [t for t in range(task.K) for _ in range(room if task.C is None else min(task.C, room))]
        n = draw(st.integers(1, min(room, len(pool))))
        tokens = tuple(draw(st.permutations(pool))[:n])
    shift = 0 if positions is None else draw(st.integers(0, positions - len(tokens)))
    return shift, tokens
