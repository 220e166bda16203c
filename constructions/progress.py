"""What a long search is told to report to."""

from collections.abc import Callable

Progress = Callable[[float], None]  # told the share that is done, at each step; what it raises ends a search
