"""What `verify contextual` prints for people."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import asdict

from rich.console import Console
from rich.table import Table
from rich.text import Text

from constructions.contextual.transformer import ContextualCountingTransformer
from verify.certificate import Certificate, Verdict, decimal
from verify.commands.contextual import shortened
from verify.report.render import claim_facts, progress_bar, weights_fact


def print_certificate(certificate: Certificate, module: ContextualCountingTransformer) -> None:
    """The verdict and everything it rests on."""
    console = Console(highlight=False)
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in facts(certificate, module):
        table.add_row(name, value)
    console.print(table, markup=False)
    colour = {Verdict.PROVED: "green", Verdict.REFUTED: "red", Verdict.UNKNOWN: "yellow"}[certificate.verdict]
    console.print(f"[bold {colour}]{certificate.verdict}[/]", end="")
    console.print(summary(certificate), markup=False)


def facts(certificate: Certificate, module: ContextualCountingTransformer) -> Iterator[tuple[str, str]]:
    """Name and value, in the order they are read."""
    yield from claim_facts(certificate)
    yield "task", f"{certificate.task}, {certificate.extra['domain']}"
    yield "model", ", ".join(f"{k}={v}" for k, v in certificate.parameters.items() if v is not None)
    yield weights_fact(module)
    yield "reading", certificate.reading
    yield "method", certificate.method
    for assumption in certificate.assumptions:
        yield "assumes", assumption
    yield "inputs", f"{big(certificate.inputs_covered or 0)} pairs of string and prompt"
    if certificate.verdict is Verdict.PROVED and certificate.tightest is not None:
        where = certificate.tightest
        yield "tightest", f"prompt {where['prompt']}, count {where['count']}, margin {certificate.margin:.6g}"
    if certificate.verdict is not Verdict.PROVED and "right_lengths" in certificate.extra:
        for M, (right, wrong) in certificate.extra["right_lengths"].items():
            yield f"{M} regions", describe_lengths(right, wrong, int(certificate.parameters["length"]))
    found = certificate.counterexample
    if found is not None:
        yield "counterexample", f"{shortened(found['string']) or 'the empty string'} (length {found['length']})"
        yield "regions", shortened(" ".join(found["regions"])) or "none"
        yield "prompt", f"{found['prompt']}: {found['expected']} ones, the module answers {found['module_answers']}"
    if certificate.reason is not None:
        yield "reason", certificate.reason
    yield "time", f"{certificate.seconds * 1000:.1f} ms to decide, start-up and building not included"


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
    return text if len(text) <= 40 else f"about {text[0]}.{text[1:3]}e{len(text) - 1}"


def summary(certificate: Certificate) -> str:
    if certificate.verdict is Verdict.PROVED:
        margin = "" if certificate.margin is None else f", margin at least {certificate.margin:.6g}"
        return f" for all {big(certificate.inputs_covered or 0)} pairs of string and prompt{margin}"
    if certificate.verdict is Verdict.REFUTED:
        return " by the counterexample above"
    return f": {certificate.reason}"


def figure5(args: argparse.Namespace) -> int:
    """Prints the three bias tokens on three families of strings, and for which strings each is right."""
    from constructions.contextual.transformer import DTYPES
    from constructions.contextual_counting import build
    from verify.contextual.patterns import figure5 as rows_of
    from verify.contextual.patterns import right_zeros
    from verify.contextual.verdict import certify, domain_of

    N, R = args.length or 512, args.regions or 4
    keys, dtype = args.keys or "onehot", DTYPES[args.dtype or "float32"]
    rows = list(rows_of(N, R, keys, dtype))
    sets = {}
    for bias in ("BOS", "]"):
        module = build(N, R, bias=bias, keys=keys, dtype=dtype)
        sets[bias] = certify(module, domain_of(module, N)).extra["right_lengths"]
    with progress_bar("numbers of zeros", quiet=args.json) as advance:
        right, wrong = right_zeros(build(N, R, bias="0", keys=keys, dtype=dtype), N, R, advance)
    sets["0"] = {"right_zeros": right, "wrong_zeros": wrong}
    if args.json:
        listed = [{"bias": row.bias, "strings": row.strings, **row.certificate.to_dict()} for row in rows]
        print(json.dumps({"rows": listed, "sets": sets}))
        return 0
    console = Console(highlight=False)
    table = Table("bias", "strings", "verdict", "margin, or the first failure", box=None)
    for row in rows:
        c = row.certificate
        found = c.counterexample
        told = f"{c.margin:.3g}" if found is None and c.margin is not None else ""
        if found is not None:
            told = f"{shortened(found['string'])}: prompt {found['prompt']}, {found['expected']} ones, "
            told += f"answer {found['module_answers']}"
        table.add_row(row.bias, row.strings, c.verdict.value, Text(told))
    console.print(table)
    for bias in ("BOS", "]"):
        for M, (good, bad) in sets[bias].items():
            console.print(f"bias {bias}, {M} regions: {describe_lengths(good, bad, N)}", markup=False)
    spread = f"right on every string with {', '.join(map(str, right)) or 'no number of'} zeros"
    console.print(f"bias 0, any regions and length: {spread}; wrong strings for {len(wrong)} other numbers of zeros")
    return 0


def impossible(args: argparse.Namespace) -> int:
    """Prints an argument, its witness and the checks; exit code 3 where a check did not come out."""
    from verify.contextual import impossible as why

    result = {
        "2.1+2.2": lambda: why.no_middle(args.seed),
        "2.3": lambda: why.no_order(args.seed),
        "2.4": lambda: why.causal_rank(min(args.length or 64, 256)),
        "2.5": lambda: why.no_direction(args.seed),
    }[args.impossible]()
    if args.json:
        print(json.dumps(asdict(result)))
        return 0 if result.holds else 3
    console = Console(highlight=False)
    console.print(f"{result.claim}: {result.statement}", markup=False)
    for i, step in enumerate(result.argument, 1):
        console.print(f"{i}. {step}", markup=False)
    for name, values in (("witness", result.witness), ("checked", result.checks)):
        console.print(f"{name}: " + "; ".join(f"{k}: {v}" for k, v in values.items()), markup=False)
    console.print("all checks agree with the argument" if result.holds else "a check disagrees with the argument")
    return 0 if result.holds else 3
