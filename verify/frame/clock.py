"""How long a search may run. Whoever decides hands in seconds, a number of steps, or a clock of their own."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import count

from constructions.errors import BadInput
from verify.frame.arguments import check_seconds, check_whole_number

Clock = Callable[[], float]  # seconds since some moment
NOT_REACHED = "not reached"  # stands in a table where the time was up before


def wall() -> float:
    """Seconds of this machine."""
    return time.perf_counter()


@dataclass(frozen=True)
class Budget:
    """Seconds for a search, and the clock that counts them.

    A search reads no other clock, so that its result depends on what this one says and not on the machine's speed.
    `since` is the moment from which they count, where work that belongs to the search came before it.

    >>> looks = iter(range(10))
    >>> deadline = Budget(2, lambda: next(looks)).deadline()
    >>> [deadline.is_up() for _ in range(4)]
    [False, True, True, True]
    """

    seconds: float
    clock: Clock = wall
    steps: int | None = None  # where they, and not seconds, end a search
    since: float | None = None

    @classmethod
    def counting(cls, steps: int, seconds: float = 30.0) -> Budget:
        """A budget that is up after so many looks at its clock, one after each piece of work: batch, cell or step.

        So it ends a search at the same place on every machine. Searches plan as if they had the seconds.
        Raises: BadInput for a number that is not whole, or below 1.

        >>> deadline = Budget.counting(2).deadline()
        >>> [deadline.is_up() for _ in range(4)]
        [False, True, True, True]
        """
        check_whole_number("effort", steps)
        if steps < 1:
            raise BadInput(f"effort={steps}: must be at least 1 step.")
        if not 0 < seconds < float("inf"):
            raise BadInput(f"budget={seconds}: with an effort it must be a number of seconds above 0.")
        looks = count()
        return cls(seconds, lambda: next(looks) * seconds / steps, steps)

    @classmethod
    def of(cls, given: float | Budget) -> Budget:
        """The budget that is meant: plain seconds are the machine's.

        Raises: BadInput for what is no number of seconds, or below zero.
        """
        found = given if isinstance(given, Budget) else cls(given, wall)  # looked up here, as it is now
        check_seconds("budget", found.seconds)
        return found

    def __str__(self) -> str:
        steps = "step" if self.steps == 1 else "steps"
        return f"budget of {self.seconds:g} s" if self.steps is None else f"effort of {self.steps} {steps}"

    def begun(self) -> Budget:
        """The budget whose seconds count from now, or from when they began; steps are each search's own.

        >>> looks = iter([0, 7])
        >>> budget = Budget(2, lambda: next(looks)).begun()
        >>> budget.deadline().is_up()
        True
        """
        has_begun = self.steps is not None or self.since is not None
        return self if has_begun else replace(self, since=self.clock())

    def deadline(self, share: float = 1.0) -> Deadline:
        """When this share of the budget is up, counted from now or from when it began."""
        since = self.clock() if self.since is None else self.since
        return Deadline(since + share * self.seconds, self.clock)

    def building(self) -> Deadline:
        """When what is built before a search has to end: with its seconds; steps are the search's own."""
        return self.deadline() if self.steps is None else Deadline.never()

    def saving(self, share: float) -> Budget:
        """The same budget, that ends sooner by this share of the time it has taken so far: what follows takes that.

        >>> looks = iter([0, 4])
        >>> saving = Budget(10, lambda: next(looks)).begun().saving(0.5)
        >>> saving.deadline().at, str(saving)
        (8.0, 'budget of 10 s')
        """
        if self.steps is not None or self.since is None:
            return self
        return replace(self, since=self.since - share * (self.clock() - self.since))

    def of_seconds(self, seconds: float) -> Budget:
        """Other seconds on the same clock, that have not begun."""
        return replace(self, seconds=seconds, since=None)


class TimeIsUp(Exception):
    """A deadline came in the middle of a piece of work that is nothing while it is not whole."""


@dataclass(frozen=True)
class Deadline:
    """The moment at which a search ends, on its clock."""

    at: float
    clock: Clock

    @classmethod
    def never(cls) -> Deadline:
        """One that does not come."""
        return cls(float("inf"), wall)

    def is_up(self) -> bool:
        """Whether it is over; a budget of 0 is over at once."""
        return self.clock() >= self.at

    def check(self) -> None:
        """Raises: TimeIsUp where it is over."""
        if self.is_up():
            raise TimeIsUp

    def ending(self, progress: Callable[[float], None]) -> Callable[[float], None]:
        """The same report of progress, which ends a search that knows no clock, as a builder's: it raises TimeIsUp.

        >>> told = Budget(2, iter(range(10)).__next__).deadline().ending(lambda share: None)
        >>> told(0.0)
        >>> told(0.5)
        Traceback (most recent call last):
        verify.frame.clock.TimeIsUp
        """

        def told(share: float) -> None:
            self.check()
            progress(share)

        return told

    def left(self) -> float:
        """Seconds until then, below zero afterwards."""
        return self.at - self.clock()

    def part(self, share: float) -> Deadline:
        """When this share of the time that is left now is up."""
        now = self.clock()
        return self.moved_to(now + share * (self.at - now))

    def moved_to(self, at: float) -> Deadline:
        """Another moment of the same clock."""
        return Deadline(at, self.clock)
