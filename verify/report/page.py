"""One self-contained page for a certificate or a batch: nothing is fetched, and only sorting is a script."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from html import escape
from math import inf
from typing import NamedTuple

from verify.arithmetic.outward import about, above, below
from verify.frame.certificate import RUN_AS, Certificate, Verdict
from verify.frame.over_time import Bracket
from verify.report.batch import BatchLine
from verify.report.meaning import sentence

POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"
MARKS = {"PROVED": "✓", "REFUTED": "✗"}  # beside the word, so that colour is never alone
MOST_BARS = 60
STYLE = """
:root { color-scheme: light dark; --ink: #1a1a1a; --dim: #5a5a5a; --back: #fff; --line: #d5d5d5; --bar: #0072b2;
  --PROVED: #00664b; --REFUTED: #a33300; --other: #7a5600; }
@media (prefers-color-scheme: dark) { :root { --ink: #eee; --dim: #aaa; --back: #16181b; --line: #3a3d42;
  --bar: #56b4e9; --PROVED: #4fd0a8; --REFUTED: #ff9466; --other: #f0c04a; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1rem; max-width: 60rem; color: var(--ink); background: var(--back);
  font: 1rem/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.3rem; line-height: 1.3; } h2 { font-size: 1.05rem; margin-top: 2rem; }
h3 { font-size: 1rem; margin: 1rem 0 .3rem; } small { color: var(--dim); }
.verdict { font-weight: 700; color: var(--other); }
.PROVED { color: var(--PROVED); } .REFUTED { color: var(--REFUTED); }
table { border-collapse: collapse; width: 100%; } td, th { text-align: left; vertical-align: top;
  padding: .3rem .6rem .3rem 0;
  border-bottom: 1px solid var(--line); } th { color: var(--dim); font-weight: 600; }
th, .number, .verdict { white-space: nowrap; } .facts th { width: 11rem; white-space: normal; } h1, h2 { clear: both; }
.token { display: inline-block; min-width: 1.8em; margin: 0 .2em .2em 0; padding: 0 .3em; text-align: center;
  border: 1px solid var(--line); } .here { border: 2px solid var(--bar); font-weight: 700; }
.share { position: relative; height: 1em; border: 1px solid var(--line); }
.share div { position: absolute; height: 100%; background: var(--bar); } .share .open { opacity: .4; }
.axes { display: grid; grid-template-columns: auto 1fr 1fr; grid-template-rows: 1fr auto auto; column-gap: .5rem; }
.axes svg { grid-area: 1 / 2 / 3 / 4; width: 100%; height: 10rem; border: 1px solid var(--line); }
.axes span { grid-column: 1; font-size: .875rem; color: var(--dim); } .axes small { grid-area: 3 / 2; }
.axes small + small { grid-area: 3 / 3; text-align: right; }
.axes .right { fill: var(--bar); } .axes .open { fill: var(--bar); fill-opacity: .25; }
.axes .wrong { fill: var(--REFUTED); }
details { margin-top: 1.5rem; }
.bar { background: var(--bar); height: .8em; min-width: 2px; margin-top: .35em; } .wide { width: 55%; }
button { all: unset; cursor: pointer; } button:focus-visible { outline: 2px solid var(--bar); }
.scroll { overflow-x: auto; } .scroll td { overflow-wrap: normal; } .figure { background: #fff; }
.figure svg { height: auto; width: 100%; min-width: 36rem; }
@media (max-width: 36rem) { .facts tr, .facts td, .facts th { display: block; width: auto; border: 0; padding: 0; }
  .facts tr { border-bottom: 1px solid var(--line); padding: .4rem 0; } .verdict { white-space: normal; }
  td .verdict { overflow-wrap: normal; } .records, .records tbody, .records tr, .records thead { display: block; }
  .records thead tr { display: flex; flex-wrap: wrap; gap: 0 1rem; } .records thead th { border: 0; }
  .records tbody tr { border-bottom: 1px solid var(--line); padding: .4rem 0; }
  .records td { display: flex; gap: 1rem; border: 0; padding: .1rem 0; }
  .records td::before { content: attr(data-name); flex: 0 0 6rem; color: var(--dim); font-weight: 600; } }
@media print { body { max-width: none; font-size: 10pt; } details > * { display: block; } tr { break-inside: avoid; }
  * { print-color-adjust: exact; } }
"""
SORT = """
for (const b of document.querySelectorAll("th button")) b.onclick = () => {
  const th = b.parentElement, rows = [...th.closest("table").tBodies[0].rows], i = th.cellIndex;
  const up = th.getAttribute("aria-sort") !== "ascending";
  for (const o of th.parentElement.cells) o.removeAttribute("aria-sort");
  th.setAttribute("aria-sort", up ? "ascending" : "descending");
  const key = r => r.cells[i].querySelector("[data-key]")?.dataset.key ?? r.cells[i].textContent;
  const n = x => x === "" ? NaN : Number(x);
  const by = (x, y) => isNaN(n(x)) || isNaN(n(y)) ? x.localeCompare(y) : n(x) - n(y);
  rows.sort((x, y) => (up ? 1 : -1) * by(key(x), key(y))).forEach(r => r.parentElement.append(r));
};
"""


class ModelView(NamedTuple):
    """What a model computes on one input, for the eye: a run in float64, which no verdict rests on.

    Shapes: logits by class; attention, of the position that is asked about, by the token that is attended to.
    """

    logits: dict[int, float]
    attention: list[tuple[str, float]] = []


Case = Mapping[str, object]
LookAt = Callable[[Case], ModelView]


def certificate_page(
    certificate: Certificate,
    facts: Iterable[tuple[str, str]],
    look_at: LookAt | None = None,
    over_time: Sequence[Bracket] = (),
) -> bytes:
    """The page of one certificate: what it means, its margins, the tightest and the wrong input, and every field.

    >>> b"PROVED" in certificate_page(Certificate(Verdict.PROVED, None, "t", {}, "real", "certified", 9), [])
    True
    """
    word = certificate.verdict.value
    head = f"<h1>{_verdict(word)}: {escape(certificate.task)}</h1>"
    return _page(f"{word} {certificate.task}", head + _body(certificate, facts, look_at, over_time))


def batch_page(task: str, lines: Sequence[BatchLine]) -> bytes:
    """The page of a batch: a table that can be sorted, and below it the certificate of each file."""
    rows, parts = [], []
    for i, line in enumerate(lines):
        said_margin = (line.said or {}).get("margin")
        margin = said_margin if isinstance(said_margin, float | int) else None
        shown = "" if margin is None else below(margin)
        file = f'<a href="#f{i}">{escape(line.path)}</a>'
        rows.append([_verdict(line.word), file, _keyed(margin, shown), _keyed(line.seconds, f"{line.seconds:.1f} s")])
        found = _certificate_of(line)
        said = f"<p>{escape(line.text)}</p>" if found is None else _body(found, [])
        parts.append(f'<section id="f{i}"><h2>{_verdict(line.word)}: {escape(line.path)}</h2>{said}</section>')
    counted = f"{len(lines)} file{'s' if len(lines) != 1 else ''}"
    head = f"<h1>verify batch, {escape(task)}: {counted}</h1>"
    table = _sortable(("verdict", "file", "margin", "time"), rows)
    return _page(f"{task}: {counted}", head + table + "".join(parts), SORT)


def table_page(
    title: str, said: Iterable[str], columns: Sequence[str], rows: Iterable[Sequence[object]], figure: bytes | None
) -> bytes:
    """The page of an experiment or a sweep: sentences, its figure as SVG, and a table that can be sorted."""
    table = _sortable(columns, ([escape("-" if each is None else str(each)) for each in row] for row in rows))
    drawn = f'<div class="scroll figure">{_inline(figure)}</div>' if figure is not None else ""
    head = f"<h1>{escape(title)}</h1>" + "".join(f"<p>{escape(each)}</p>" for each in said)
    return _page(title, head + drawn + table, SORT)


def _sortable(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table whose heads sort it; on a phone each row is a record with the names beside the cells, which are HTML."""
    heads = "".join(f'<th scope="col"><button>{escape(name)} ↕</button></th>' for name in columns)
    body = "".join(f"<tr>{''.join(map(_cell, columns, row))}</tr>" for row in rows)
    return (
        f'<div class="scroll"><table class="records"><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table></div>'
    )


def _cell(name: str, html: str) -> str:
    return f'<td data-name="{escape(name)}"><div>{html}</div></td>'


def _keyed(key: float | None, shown: str) -> str:
    """A number with what it is sorted by."""
    return f'<span class="number" data-key="{"" if key is None else key}">{escape(shown)}</span>'


def _inline(figure: bytes) -> str:
    """An SVG file of ours as a part of a page: without its prologue, and without what it says of itself."""
    drawn = figure.decode()
    return re.sub(r"<metadata>.*?</metadata>", "", drawn[drawn.index("<svg") :], flags=re.DOTALL)


def _certificate_of(line: BatchLine) -> Certificate | None:
    try:
        return None if line.said is None else Certificate.from_json(json.dumps(line.said))
    except ValueError:
        return None


def _page(title: str, body: str, script: str = "") -> bytes:
    ends = f"<script>{script}</script>" if script else ""
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        f"<style>{STYLE}</style></head><body><main>{body}</main>{ends}</body></html>\n"
    ).encode()


def _verdict(word: str) -> str:
    return f'<span class="verdict {word if word in MARKS else "other"}">{MARKS.get(word, "?")} {escape(word)}</span>'


def _body(
    certificate: Certificate,
    facts: Iterable[tuple[str, str]],
    look_at: LookAt | None = None,
    over_time: Sequence[Bracket] = (),
) -> str:
    found = f"<p>{escape(sentence(certificate))}</p>"
    if certificate.reason:
        found += f"<p>{escape(certificate.reason)}</p>"
    said = {name: value for name, value in certificate.to_dict().items() if value is not None}
    for title, name in (("Wrong input", "counterexample"), ("Closest call", "tightest")):
        found_there = said.get(name, {}).items()
        case = {key: value for key, value in found_there if value is not None and key != RUN_AS}  # null where infinite
        found += f"<h2>{title}</h2>{_case(case)}" if case else ""
        found += _look(case, look_at(case)) if case and look_at is not None else ""
    found += _bars(certificate) + _share(certificate) + _over_time(over_time)
    sizes = [f"{name}={value}" for name, value in certificate.parameters.items() if value is not None]
    judged = [("task", ", ".join([certificate.task, *sizes])), *facts]
    judged += [("reading", said["reading"]), ("method", said["method"])]
    judged += [("assumed", each) for each in certificate.assumptions]
    fields = [(name, value) for name, value in said.items() if name not in DRAWN]
    found += f"<h2>What was judged</h2>{_table(dict.fromkeys((n, str(v)) for n, v in judged))}"
    return f"{found}<details><summary>All fields</summary>{_table(fields)}</details>"


def _case(case: dict[str, object]) -> str:
    """One input: its tokens in boxes, the position that is asked about marked, and what else is known of it."""
    rows = [
        (
            name.replace("_", " "),
            _tokens(value, case.get("position")) if name in ("input", "tokens") else escape(_text(value)),
        )
        for name, value in case.items()
        if name != "tokens" or value != case.get("input")
    ]
    return _rows(rows)


def _look(case: Case, look: ModelView) -> str:
    """The attention as a number below each token, and the logits as bars, the right one and the largest named."""
    boxes = "".join(
        f'<span class="token">{escape(name)}<br><small>{_short(weight)}</small></span>'
        for name, weight in look.attention[:MOST_TOKENS]
    )
    attention = f"<h3>What this position attends to</h3><p>{boxes}</p>" if boxes else ""
    finite = {name: logit for name, logit in look.logits.items() if abs(logit) < inf}
    least, most = min(finite.values(), default=0.0), max(finite.values(), default=0.0)
    of_note = {case.get("expected"): "right", **({case.get("predicted"): "answered"} if "predicted" in case else {})}
    ranked = sorted(look.logits, key=lambda name: -look.logits[name] if name in finite else inf)
    shown = [name for name in look.logits if name in (*of_note, *ranked[:MOST_LOGITS])]
    rows = "".join(
        f'<tr><td class="number">{name} {of_note.get(name, "")}</td><td class="number">{logit:.6g}</td>'
        f'<td class="wide"><div class="bar" style="width:{_width(logit, least, most):.1f}%"></div></td></tr>'
        for name, logit in ((name, look.logits[name]) for name in shown)
    )
    left = len(look.logits) - len(shown)
    more = f"<p>and {left} smaller ones</p>" if left else ""
    if not look.logits:
        return attention
    head = '<tr><th scope="col">class</th><th scope="col">logit</th><th></th></tr>'
    table = f"<table><thead>{head}</thead><tbody>{rows}</tbody></table>{more}"
    return f"{attention}<h3>Logits, run in float64</h3>{table}"


def _width(logit: float, least: float, most: float) -> float:
    return 100 * (logit - least) / (most - least) if least <= logit <= most and least < most else 0.0


def _short(weight: float) -> str:
    """Two digits, and "~0" for what cannot be told from zero beside the others."""
    return "~0" if 0 < abs(weight) < 0.005 else f"{weight:.2g}"


def _tokens(value: object, position: object) -> str:
    if not isinstance(value, list) or not all(isinstance(each, int | str) for each in value):
        return escape(_text(value))
    boxes = (
        f'<span class="token{" here" if i == position else ""}">{escape(str(each))}</span>'
        for i, each in enumerate(value[:MOST_TOKENS])
    )
    return "".join(boxes) + (f" and {len(value) - MOST_TOKENS} more" if len(value) > MOST_TOKENS else "")


def _share(certificate: Certificate) -> str:
    """The bracket on the share of wrong answers, on a line from 0 to 1."""
    if certificate.error_share is None:
        return ""
    low, high = certificate.error_share
    exactly = f"exactly {low}" + (f", {about(float(100 * low), 3)} %" if low else "")
    says = exactly if low == high else f"between {below(low)} and {above(high)}"
    bars = _part("", 0, low) + _part("open", low, high - low)
    words = "" if low == high else "; what the search left open is drawn lighter"
    return f'<h2>Share of wrong answers</h2><p>{escape(says + words)}</p><div class="share">{bars}</div>'


def _over_time(brackets: Sequence[Bracket]) -> str:
    """The bracket on the accuracy, second by second: open inputs between those known to be right and to be wrong."""
    if not brackets or brackets[-1][0] <= 0:
        return ""
    end, low, high = brackets[-1]
    upper, lower = [(0.0, 0.0)], [(0.0, 100.0)]  # nothing is known at first
    for seconds, least, most in brackets:
        x = 100 * seconds / end
        upper += [(x, upper[-1][1]), (x, float(100 * (1 - most)))]
        lower += [(x, lower[-1][1]), (x, float(100 * (1 - least)))]
    corners = " ".join(f"{x:.2f},{y:.3f}" for x, y in upper + lower[::-1])
    wrong = " ".join(f"{x:.2f},{y:.3f}" for x, y in [*upper, (100.0, 0.0)])
    right = " ".join(f"{x:.2f},{y:.3f}" for x, y in [*lower, (100.0, 100.0)])
    shapes = "".join(
        f'<polygon class="{kind}" points="{points}"/>'
        for kind, points in (("right", right), ("open", corners), ("wrong", wrong))
    )
    known = f"{below(100 * low)} %" if low == high else f"between {below(100 * low)} % and {above(100 * high)} %"
    return (
        f"<h2>Accuracy over time</h2><p>{escape(known.capitalize())} after {end:.3g} s. Below: known to be right; "
        'above: known to be wrong; lighter: open.</p><div class="axes"><span>100 %</span>'
        f'<svg viewBox="0 0 100 100" preserveAspectRatio="none" role="img" aria-label="{escape(known)}">{shapes}</svg>'
        f"<span>0 %</span><small>0 s</small><small>{end:.3g} s</small></div>"
    )


def _part(kind: str, left: Fraction | int, width: Fraction) -> str:
    """A stretch of a line from 0 to 1."""
    return f'<div class="{kind}" style="left:{100 * float(left):.2f}%;width:{100 * float(width):.2f}%"></div>'


MOST_TOKENS = 400
MOST_LOGITS = 12
DRAWN = ("tree", "tightest", "counterexample", "margin_per_count", "reason", "verdict")


def _bars(certificate: Certificate) -> str:
    """The margins by class; none where they are infinite, as there is no other class."""
    every = enumerate(certificate.margin_per_count or (), 1)
    margins = [(k, m) for k, m in every if m is not None and m < inf]
    if certificate.verdict is not Verdict.PROVED or not margins:
        return ""
    shown, most = margins[:MOST_BARS], max(m for _, m in margins)
    rows = "".join(
        f'<tr><td>{k}</td><td>{escape(below(m))}</td><td class="wide"><div class="bar" '
        f'style="width:{100 * m / most if most > 0 else 0:.1f}%"></div></td></tr>'
        for k, m in shown
    )
    more = f"<p>and {len(margins) - MOST_BARS} more</p>" if len(margins) > MOST_BARS else ""
    head = '<tr><th scope="col">count</th><th scope="col">margin at least</th><th></th></tr>'
    return f"<h2>Margins</h2><table><thead>{head}</thead><tbody>{rows}</tbody></table>{more}"


def _table(rows: Iterable[tuple[str, object]]) -> str:
    return _rows((str(name), escape(_text(value))) for name, value in rows)


def _rows(rows: Iterable[tuple[str, str]]) -> str:
    """A table of names and what is written of each, which is HTML."""
    cells = (f'<tr><th scope="row">{escape(name)}</th><td>{html}</td></tr>' for name, html in rows)
    return f'<table class="facts"><tbody>{"".join(cells)}</tbody></table>'


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return ", ".join(f"{name} = {each}" for name, each in value.items())
    return "; ".join(map(str, value)) if isinstance(value, list) else str(value)
