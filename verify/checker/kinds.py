"""Which part of the checker re-decides a certificate: one for each task."""

from collections.abc import Callable
from functools import partial

from verify.checker import (
    addition,
    circuits,
    contextual,
    count01,
    fields,
    heads,
    inductive,
    modular,
    parity,
    placed,
    rounded_module,
)
from verify.checker.reading import NOT_CHECKABLE, Refusal, read_certificate

Check = Callable[[bytes, bytes], tuple[str, list[str]]]
TASKS: dict[str, Check] = {
    "addition": addition.check,
    "circuit": circuits.check,
    "contextual counting": contextual.check,
    "count01": count01.check,
    "heads": heads.check,
    "inductive": inductive.check,
    "modular": modular.check,
    "language": circuits.check,
    "module": rounded_module.check,
    "parity": parity.check,
    **{task: partial(placed.check, task=task) for task in placed.TASKS},
}


def check(weights: bytes, certificate: bytes) -> tuple[str, list[str]]:
    """The verdict that holds, and the fields taken on trust. Raises: Refusal with the reason and the exit code.

    Where arithmetic fails nothing is said of the statement.
    """
    try:
        task = read_certificate(certificate).get("task")
    except Refusal:
        task = None  # which the histogram's part words
    try:
        return TASKS.get(str(task), fields.check)(weights, certificate)
    except (ZeroDivisionError, OverflowError, MemoryError) as error:
        raise Refusal(f"the certificate is not followed ({type(error).__name__}: {error})", NOT_CHECKABLE) from None
