"""How a command that an error ended is told: one line, and an exit code."""

from __future__ import annotations

import errno
import os
from typing import NamedTuple

from constructions.errors import BadInput
from verify.commands.parsing import one_line
from verify.frame.certificate import BAD_INPUT_EXIT_CODE

CRASH_EXIT_CODE = 70
MOST_OF_AN_ERROR = 200
FULL = tuple(os.strerror(number) for number in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG))


class Outcome(NamedTuple):
    """The message of an error for people, and the command's exit code."""

    message: str
    code: int

    @classmethod
    def of(cls, error: BaseException, command: str) -> Outcome:
        """Bad input as it says itself, no memory, a full disk, or a bug of ours; `command` is what follows `verify`."""
        if isinstance(error, BadInput):
            return cls(one_line(error), BAD_INPUT_EXIT_CODE)
        if is_out_of_memory(error):
            return cls("not enough memory for these sizes. Choose smaller ones.", BAD_INPUT_EXIT_CODE)
        if is_disk_full(error):
            return cls(one_line(f"cannot write ({error}). Free some space, or name another disk."), BAD_INPUT_EXIT_CODE)
        bug = f"{type(error).__name__}: {str(error)[:MOST_OF_AN_ERROR]}"
        again = f"Please report it, with what `verify --debug {command} ...` prints."
        return cls(one_line(f"a bug of ours ({bug}). {again}"), CRASH_EXIT_CODE)  # Python's 1 would say REFUTED


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error is Python's or numpy's lack of memory, or torch's, which has no class of its own.

    >>> is_out_of_memory(RuntimeError("DefaultCPUAllocator: can't allocate memory: ...")), is_out_of_memory(TypeError())
    (True, False)
    """
    text = str(error)
    return isinstance(error, MemoryError) or "allocate memory" in text or "Storage size calculation" in text


def is_disk_full(error: BaseException) -> bool:
    """Whether an error is that of a disk that takes no more, as Python says it or a library that has its own class.

    >>> is_disk_full(OSError(28, "No space left on device")), is_disk_full(OSError(2, "No such file or directory"))
    (True, False)
    """
    return any(reason in str(error) for reason in FULL)
