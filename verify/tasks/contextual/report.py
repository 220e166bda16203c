"""What `verify contextual` prints for people."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from verify.arithmetic.outward import about, below, decimal, value
from verify.frame.certificate import Certificate, Verdict
from verify.frame.schema import as_json
from verify.report.certificate import Fact, print_report, weights_fact
from verify.report.console import say
from verify.report.progress import progress_bar
from verify.report.tables import render

if TYPE_CHECKING:
    from verify.tasks.contextual.accuracy import PairShare
    from verify.tasks.contextual.model import ContextualModel
    from verify.tasks.contextual.patterns import AccuracyRow


def report(certificate: Certificate, facts: list[Fact]) -> None:
    """The verdict and everything it rests on, inputs counted in the task's words."""
    print_report(certificate, facts, covers=f"{big(certificate.inputs_covered or 0)} pairs of string and prompt")


def facts(certificate: Certificate, module: ContextualModel) -> Iterator[Fact]:
    """Yields the lines of the report beyond those of every certificate."""
    yield "task", f"{certificate.task}, {certificate.extra['domain']}"
    yield "model", ", ".join(f"{k}={v}" for k, v in certificate.parameters.items() if v is not None)
    yield weights_fact(module)
    where = certificate.tightest
    if certificate.verdict is Verdict.PROVED and where is not None and certificate.margin is not None:
        yield "tightest", f"prompt {where['prompt']}, count {where['count']}, margin {value(certificate.margin)}"
    if certificate.verdict is not Verdict.PROVED and "right_lengths" in certificate.extra:
        for M, (right, wrong) in certificate.extra["right_lengths"].items():
            yield f"{M} regions", describe_lengths(right, wrong, int(certificate.parameters["length"]))
    found = certificate.counterexample
    if found is not None:
        yield "counterexample", f"{shortened(found['string']) or 'the empty string'} (length {found['length']})"
        yield "counterexample", f"regions {shortened(' '.join(found['regions'])) or 'none'}"
        said = f"{found['expected']} ones, the module answers {found['module_answers']}"
        yield "counterexample", f"prompt {found['prompt']}: {said}"


def describe_lengths(right: int | None, wrong: int | None, longest: int) -> str:
    """For which lengths every string is right.

    >>> describe_lengths(7, 8, 512)
    'right on every string up to length 7; wrong strings at every length from 8 on'
    """
    if wrong is None and right == longest:
        return f"right on every string up to length {longest}"
    proved = "not proved at any length" if right is None else f"right on every string up to length {right}"
    if wrong is None:
        return f"{proved}; open beyond"
    return f"{proved}; wrong strings at every length from {wrong} on"


def big(number: int) -> str:
    """A number, or its size where it has more than 40 digits."""
    text = decimal(number)
    return text if len(text) <= 40 else about(number, digits=3)


def figure5(N: int, R: int, keys: str, dtype_name: str, *, is_json: bool) -> int:
    """Prints the three bias tokens on three families of strings, and for which strings each is right."""
    from constructions.contextual.transformer import DTYPES
    from constructions.contextual_counting import build
    from verify.tasks.contextual.patterns import accuracies, right_zeros, verdict_of
    from verify.tasks.contextual.patterns import figure5 as rows_of
    from verify.tasks.contextual.verdict import certify, domain_of

    dtype = DTYPES[dtype_name]
    rows = list(rows_of(N, R, keys, dtype))
    verdict, sets = verdict_of(rows), {}
    for bias in ("BOS", "]"):
        module = build(N, R, bias=bias, keys=keys, dtype=dtype)
        sets[bias] = certify(module, domain_of(module, N)).extra["right_lengths"]
    with progress_bar("numbers of zeros", quiet=is_json) as advance:
        right, wrong = right_zeros(build(N, R, bias="0", keys=keys, dtype=dtype), N, R, advance)
    sets["0"] = {"right_zeros": right, "wrong_zeros": wrong}
    with progress_bar("accuracy on random strings", quiet=is_json) as advance:
        random_strings = list(accuracies(N, R, keys, dtype, advance))
    if is_json:
        listed = [{"bias": row.bias, "strings": row.strings, **row.certificate.to_dict()} for row in rows]
        print(
            as_json({"verdict": verdict.value, "rows": listed, "sets": sets, "accuracies": told_shares(random_strings)})
        )
        return verdict.exit_code
    cells = []
    for row in rows:
        c = row.certificate
        found = c.counterexample
        told = f"margin at least {below(c.margin, digits=3)}" if found is None and c.margin is not None else ""
        if found is not None:
            told = f"{shortened(found['string'])}: prompt {found['prompt']}, {found['expected']} ones, "
            told += f"answer {found['module_answers']}"
        cells.append([row.bias, row.strings, c.verdict.value, told])
    sys.stdout.write(render(("bias", "strings", "verdict", "margin, or the first failure"), cells, "rich"))
    shares = [[row.bias, row.length, row.regions, shown(row.share)] for row in random_strings]
    sys.stdout.write(render(("bias", "length", "regions", "right on random strings"), shares, "rich"))
    for bias in ("BOS", "]"):
        for M, (good, bad) in sets[bias].items():
            say(f"bias {bias}, {M} regions: {describe_lengths(good, bad, N)}")
    spread = f"right on every string with {', '.join(map(str, right)) or 'no number of'} zeros"
    say(f"bias 0, any regions and length: {spread}; wrong strings for {len(wrong)} other numbers of zeros")
    outcomes = {
        Verdict.PROVED: "each bias token is right, and wrong, where B-3.4 says",
        Verdict.REFUTED: "a row above comes out the other way than B-3.4 says",
        Verdict.UNKNOWN: "a row above is open",
    }
    say(f"{verdict.value}: {outcomes[verdict]}")
    return verdict.exit_code


def told_shares(rows: Iterable[AccuracyRow]) -> list[dict[str, object]]:
    """Accuracies as JSON says them: fractions as text."""
    return [
        {"bias": row.bias, "length": row.length, "regions": row.regions, "right": str(row.share.right),
         "open": str(row.share.open)}
        for row in rows
    ]  # fmt: skip


def shown(found: PairShare) -> str:
    """A share in per cent, rounded down, and what is open."""
    left = f", {float(found.open):.2%} open" if found.open else ""
    return ("exactly 100 %" if found.right == 1 else f"{below(100 * found.right, digits=4)} %") + left


def shortened(text: str) -> str:
    """Long runs of one token are written token^n.

    >>> shortened("[1111111111]00")
    '[1^10]00'
    """
    return re.sub(r"(.)\1{7,}", lambda run: f"{run[1]}^{len(run[0])}", text)
