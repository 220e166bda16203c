"""Searches of codes, tables, frontiers and radii ask the clock that they are given, and stop."""

import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from itertools import count
from threading import Semaphore
from unittest import mock

import numpy as np
import pytest
import torch
from clocks import looks
from command import run

from constructions import regular_language, relation_counting
from constructions.circuits.between import AT_ONCE
from constructions.codes import library
from constructions.errors import BadInput
from constructions.fewer_dimensions_arrays import code, coherent, plane, sphere
from verify import radius
from verify.changes.quantise import BITS, Roundable, fewest_bits
from verify.commands import figure, workers
from verify.frame import clock
from verify.frame.certificate import Verdict
from verify.frame.clock import NOT_REACHED, Budget, Deadline, TimeIsUp
from verify.frame.decide import Effort, silent
from verify.report import style
from verify.tasks.circuit import chains
from verify.tasks.histogram.drawings.histogram import margins
from verify.tasks.histogram.frontier.search import smallest_d
from verify.tasks.histogram.precision import command as precision
from verify.tasks.histogram.precision.search import BitsFrontier

SEARCHED = {
    "code": lambda told: code("lin", T=7, L=4, d=6, progress=told),
    "even shares": lambda told: code("dot+sftm", T=5, L=12, d=3, progress=told),
    "packing": lambda told: coherent("dot", T=13, L=2, d=7, progress=told),
    "sphere": lambda told: sphere("bos+sftm", T=9, L=3, d=5, progress=told),
    "plane": lambda told: plane("bos+sftm", T=4, L=2, d=2, progress=told),
}
VERDICTS = {"PROVED", "REFUTED", "UNKNOWN", None}


def ticking(monkeypatch, seconds):
    """The machine's clock, which moves on by so many seconds at each look."""
    ticks = count()
    monkeypatch.setattr(clock, "wall", lambda: seconds * next(ticks))


def answer(capsys, line):
    code, out, err = run(capsys, *line.split(), "--json")
    assert code in (0, 1, 3), err
    return code, json.loads(out)


@pytest.mark.parametrize("name", SEARCHED)
def test_a_builder_s_search_ends_at_the_look_that_is_too_late(name):
    seen = []
    with pytest.raises(TimeIsUp):
        SEARCHED[name](looks(6).deadline().ending(seen.append))
    assert len(seen) == 5  # the first look began the time, and the last one ended it


def test_a_search_that_was_ended_leaves_nothing_and_one_that_ended_serves_all():
    asked = {"model": "lin", "T": 5, "L": 3, "d": 4, "steps": 40, "seed": 7}
    with pytest.raises(TimeIsUp):
        library.find(**asked, progress=looks(9).deadline().ending(silent))
    first, second = [], []
    found = library.find(**asked, progress=first.append)
    assert library.find(**asked, progress=second.append) is found is library.find(**asked)
    assert len(first) == 40 and not second
    with pytest.raises(TimeIsUp):
        library.find(**asked | {"seed": 8}, progress=looks(9).deadline().ending(silent))


@pytest.mark.parametrize("seconds", [1.0, *(pytest.param(s, marks=pytest.mark.deep) for s in (0.3, 5.0))])
def test_one_budget_for_all_formats_and_bits(capsys, monkeypatch, seconds):
    line = "precision histogram --model bos --T 3 --L 2"
    _, whole = answer(capsys, line)
    ticking(monkeypatch, seconds)
    exit_code, cut = answer(capsys, f"{line} --budget 4")
    unreached = [row for row in cut if row["verdict"] == NOT_REACHED]
    assert exit_code == 3 and unreached and all("budget of 4 s ended" in row["how it fails"] for row in unreached)
    assert [row["precision"] for row in cut[:7]] == [row["precision"] for row in whole[:7]] and len(cut) < len(whole)
    assert not any("smallest" in row["precision"] for row in cut)
    known = {row["precision"].split(",")[0]: row["verdict"] for row in whole}
    assert all(row["verdict"] in (known[row["precision"].split(",")[0]], "UNKNOWN", NOT_REACHED) for row in cut)


def test_the_fewest_bits_of_a_table_are_those_above_one_that_fails():
    of = {word.value[0]: mock.Mock(verdict=word) for word in Verdict}
    for verdicts, is_fewest in (("PPR", True), ("PUR", False), ("PP", False), ("R", False), ("", False)):
        found = BitsFrontier({24 - i: of[letter] for i, letter in enumerate(verdicts)})
        assert found.is_fewest is is_fewest


@pytest.mark.parametrize(
    "table", ["--model bos --sweep d=4:7 --bits 8,24", pytest.param("--table", marks=pytest.mark.deep)]
)
def test_one_budget_for_all_rows(capsys, monkeypatch, table):
    line = f"precision histogram --T 4 --L 3 {table}"
    ticking(monkeypatch, 0.25)
    exit_code, rows = answer(capsys, f"{line} --budget {40 if table == '--table' else 8}")
    cells = [
        [cell for name, cell in row.items() if name not in ("schema", "model", "construction", "d")] for row in rows
    ]
    assert exit_code == 3 and {cell for row in cells for cell in row} <= VERDICTS | {NOT_REACHED}
    assert cells[0][0] == "PROVED" and all(cell == NOT_REACHED for cell in cells[-1])
    monkeypatch.setattr(clock, "wall", lambda: 0.0)
    exit_code, rows = answer(capsys, f"{line} --budget 8")
    assert exit_code == 0 and not any(NOT_REACHED in row.values() for row in rows)


def test_a_phase_diagram_shows_what_was_not_reached(tmp_path, capsys, monkeypatch):
    ticking(monkeypatch, 0.25)
    place = tmp_path / "phases.svg"
    sweep = ("--model", "bos", "--T", "4", "--L", "3", "--sweep", "d=4:9", "--bits", "8,24", "--budget", "6")
    assert run(capsys, "precision", "histogram", *sweep, "--out", str(place))[0] == 3
    assert place.stat().st_size > 0


def test_coded_models_end_with_the_budget(capsys, monkeypatch):
    line = "histogram --model dot+sftm --T 4 --L 5 --d 3 --construction code"
    ticking(monkeypatch, 0.2)
    exit_code, found = answer(capsys, f"{line} --budget 1")
    assert exit_code == 3 and found["reason"] == "the budget of 1 s ended before weights were found; raise it"
    monkeypatch.setattr(clock, "wall", lambda: 0.0)
    exit_code, found = answer(capsys, f"{line} --budget 1")
    assert exit_code == 0 and found["verdict"] == "PROVED"


@pytest.mark.deep
def test_a_frontier_says_which_d_was_not_reached():
    tried, whole = [], smallest_d("lin", 4, 3, steps=30)
    for number in (3, 312, 10_000):  # the search at d = T has 300 steps
        library._searched.cache_clear()
        try:
            found = smallest_d("lin", 4, 3, steps=30, budget=looks(number))
        except TimeIsUp:
            tried.append(None)
            continue
        assert found.certificate.verdict is Verdict.PROVED and found.d >= whole.d
        tried.append(NOT_REACHED in found.tried.values())
        assert tried[-1] or (found.d, found.tried) == (whole.d, whole.tried)
    assert tried[0] is None and tried[1] is True and tried[-1] is False


def test_a_frontier_that_was_cut_is_searched_again(tmp_path, capsys, monkeypatch):
    line = f"frontier histogram --model lin --T 5 --L 3 --steps 30 --format json --save {tmp_path}".split()
    for seconds in (0.1, 0.003):  # nothing is proved; d = 5 is
        library._searched.cache_clear()
        ticking(monkeypatch, seconds)
        exit_code, out, _ = run(capsys, *line, "--budget", "1")
        (row,) = json.loads(out)
        assert exit_code == 3 and NOT_REACHED in row["tried"] and row["d"] == (None if seconds == 0.1 else 5)
    monkeypatch.setattr(clock, "wall", lambda: 0.0)
    exit_code, out, err = run(capsys, *line, "--budget", "1")
    assert exit_code == 0 and NOT_REACHED not in out and "kept" not in err
    assert "kept, PROVED again" in run(capsys, *line)[2]


def test_jobs_that_have_not_begun_are_left_out(monkeypatch):
    now, ran, may_begin = [0.0], [], Semaphore(6)
    effort = Effort(Budget(9.0, lambda: now[0]))

    def job(timed):
        may_begin.acquire()
        ran.append(timed.seconds)
        now[0] += 5.0
        return len(ran)

    jobs = [workers.TimedJob(None)] * 6
    assert [found for _, found in workers.results_within(effort, job, jobs, workers.Workers())] == [1, 2]
    assert ran == [pytest.approx(9 / 6), pytest.approx(4 / 5)]

    @contextmanager
    def one_thread(number):
        with ThreadPoolExecutor(1) as executor:
            yield workers.Pool(executor)

    monkeypatch.setattr(workers, "_here", one_thread)
    del ran[:]
    now[0], may_begin = 0.0, Semaphore(1)
    for _ in workers.results_within(effort, job, jobs, workers.Workers(2)):
        may_begin.release()
    assert 2 <= len(ran) <= 3 and set(ran) == {3.0}  # one may have begun when the time was up


@pytest.mark.parametrize("number", [2, *(pytest.param(n, marks=pytest.mark.deep) for n in (1, 3, 5, 9, 20, 60))])
def test_a_radius_at_any_look(number):
    model, asked = relation_counting.dot(T=2, L=2), [0]

    def look():
        asked[0] += 1
        return asked[0] * 30.0 / number

    found = radius(model, budget=Budget(30.0, look))
    assert found.at_least is None or found.at_most is None or found.at_least < found.at_most
    assert found.verdict in (Verdict.PROVED, Verdict.UNKNOWN) and asked[0] <= 2 * number + 12
    assert number > 2 or (found.verdict is Verdict.UNKNOWN and "ended before" in found.reason)


def decided_as(*verdicts):
    """A model whose decisions have these verdicts, one a second."""
    now, left = [0.0], iter(verdicts)

    def decided(rounded, effort):
        now[0] += 1.0
        return None, mock.Mock(verdict=next(left))

    return Roundable({"w": torch.from_numpy(np.ones(3))}, decided), now


@pytest.mark.parametrize(
    ("verdicts", "seconds", "verdict", "undecided"),
    [
        ("RRP", 99.0, "PROVED", ()),
        ("RUP", 99.0, "UNKNOWN", (3,)),
        ("R" * len(BITS), 99.0, "REFUTED", ()),
        ("R" * len(BITS), 4.5, "UNKNOWN", tuple(BITS[5:])),
        ("RUR", 2.5, "UNKNOWN", (3, *BITS[3:])),
        ("R", 0.0, "UNKNOWN", tuple(BITS)),
    ],
)
def test_the_fewest_bits_are_those_below_which_all_were_decided(verdicts, seconds, verdict, undecided):
    of = {"R": Verdict.REFUTED, "P": Verdict.PROVED, "U": Verdict.UNKNOWN}
    model, now = decided_as(*(of[letter] for letter in verdicts))
    found = fewest_bits(model, "per-tensor", Effort(Budget(seconds, lambda: now[0])))
    assert found.verdict == verdict and found.undecided == undecided
    assert (found.found is not None) is ("P" in verdicts) and now[0] <= seconds + 1


def test_steps_do_not_end_what_several_searches_share():
    assert Effort(Budget.counting(1)).end() == Deadline.never() != Effort(3.0).end()


@pytest.mark.parametrize(("limit", "kept"), [("--budget", {"PROVED"}), ("--effort", {"PROVED", "UNKNOWN"})])
def test_a_row_that_more_seconds_may_change_is_not_kept(limit, kept, tmp_path, capsys, monkeypatch):
    said = iter(["PROVED", "UNKNOWN", NOT_REACHED])
    monkeypatch.setattr(precision.PrecisionRow, "run", lambda row: [next(said)] * len(row.formats))
    argv = ("precision", "histogram", "--model", "bos", "--T", "3", "--L", "2", "--sweep", "d=3:5", "--bits", "8:9")
    run(capsys, *argv, limit, "100", "--resume", str(tmp_path))
    assert {json.loads(part.read_text())["result"][0] for part in tmp_path.iterdir()} == kept


def test_a_circuit_of_strings_asks_the_clock_after_so_many_gates(monkeypatch):
    made, at_once, usual = [0], [], regular_language._transitions

    def transitions(*about):
        found = usual(*about)
        made[0] += len(found)
        return found

    monkeypatch.setattr(regular_language, "_transitions", transitions)
    regular_language.unroll(regular_language.majority(90), 90, lambda: at_once.append(made[0]))
    assert made[0] > 4 * AT_ONCE and max(np.diff([*at_once, made[0]])) < 2 * AT_ONCE


def test_what_is_built_in_part_leaves_time_to_let_it_go(capsys, monkeypatch):
    asked = count()
    monkeypatch.setattr(clock, "wall", lambda: float(next(asked)))
    code, out, _ = run(capsys, "language", "--majority", "--length", "200", "--budget", "20")
    assert code == 3 and "ended while the circuit of all strings was built" in out
    assert next(asked) == 11  # the first began the time, and the one at 45 % ended it


def test_what_comes_after_a_search_of_strings_has_time_that_grows_with_what_was_built(capsys, monkeypatch):
    given, judge = [], chains.judge
    monkeypatch.setattr(
        chains, "judge", lambda wish, asked, *more: given.append(asked.budget) or judge(wish, asked, *more)
    )
    for length in (3, 300):
        monkeypatch.setattr(clock, "wall", partial(next, map(float, count())))
        run(capsys, "language", "0*1", "--length", str(length), "--budget", "1000")
    assert [str(budget) for budget in given] == ["budget of 1000 s"] * 2
    begun = [budget.deadline().at - 1000 for budget in given]
    assert begun[0] < 0 and begun[1] < begun[0]


def test_what_draws_is_loaded_before_a_figure_s_search(capsys, monkeypatch):
    order = []
    monkeypatch.setattr(style, "load", lambda: order.append("loaded"))

    def draw(args):
        order.append("drawn")
        raise BadInput("enough")

    monkeypatch.setattr(figure, "draw", draw)
    assert run(capsys, "figure", "margin", "--model", "dot", "--T", "3", "--L", "3", "--out", "f.svg")[0] == 2
    assert order == ["loaded", "drawn"]


def test_margins_that_are_not_proved_are_refused_with_what_would_help():
    for word, advice in ((Verdict.REFUTED, "Choose other"), (Verdict.UNKNOWN, "Raise --budget, or choose other")):
        with pytest.raises(BadInput, match=f"{word.value}, and only a proof has margins. {advice} weights."):
            margins(mock.Mock(verdict=word, margin=None, margin_per_count=None))
