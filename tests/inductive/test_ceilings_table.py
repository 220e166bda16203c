"""The table's cells: document C's figures, ceilings that C's own figures respect, and what makes a cell open."""

import csv
import shutil
from fractions import Fraction
from itertools import product
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from command import run
from oracles.recurrent_blocks import line as run_line

from constructions.errors import NotKnown, ProvedImpossible
from constructions.recurrent.gated import load as load_gated
from constructions.recurrent.model import KINDS, load
from verify.arithmetic.readings import Real
from verify.counting.asked import Asked, judge_of
from verify.counting.tasks import STARTED, Task
from verify.frame.certificate import Verdict
from verify.frame.decide import Effort, decide
from verify.report.tables import render
from verify.tasks.inductive import table as module
from verify.tasks.inductive.ceilings.laws import equal_prefix
from verify.tasks.inductive.document_c import reported


class Unbuilt:
    """A family without constructions: NotKnown, or what it is told to raise."""

    def __init__(self, error):
        self.error = error

    def judged(self, asked):
        raise self.error


@pytest.fixture
def empty_table(monkeypatch):
    monkeypatch.setattr(module, "judge_of", lambda model: Unbuilt(NotKnown("none")).judged)
    module.proved.cache_clear()
    yield module.table()
    module.proved.cache_clear()


def test_without_weights_a_cell_is_open_unless_there_is_a_ceiling(empty_table):
    assert len(empty_table.rows) == len(reported()) == 208
    assert not empty_table.is_complete
    ceilings = [row for row in empty_table.rows if row[-1] is not None]
    assert empty_table.open_cells == 208 - len(ceilings)
    assert [row[:4] for row in ceilings if row[1] == "mamba"] == [["modular", "mamba", "no", 1]]  # C-R2
    assert {(row[0], row[1], row[2]) for row in ceilings if row[1] != "mamba"} == {
        (task, pe, "no")
        for task in ("succession", "modular", "selective", "selective-modular", "first-homogeneous")
        for pe in ("nope", "rope")
    } | {("first-heterogeneous", "nope", "no")}
    markdown = render(empty_table.columns, empty_table.rows, "markdown")
    bound = "C-I1: in and out of distribution at most 11.77 %"
    assert f"| modular | rope | no | 4 | 11.8 | 11.8 | - | - | {bound} |" in markdown
    assert r"11.77 \%" in render(empty_table.columns, empty_table.rows, "latex")


def test_each_proof_is_one_job_and_jobs_can_be_run_elsewhere(empty_table, monkeypatch):
    jobs = module.jobs()
    assert len(jobs) == len(set(jobs)) == 80
    monkeypatch.setattr(module.TableJob, "run", None)
    entries = {job: module.Entry("7", 1, "C-X") for job in reversed(jobs)}
    assert {row[6] for row in module.table(entries).rows} == {"7"}


@pytest.mark.parametrize(("length", "ends"), [("7", 0), (None, 3)])
def test_the_command_prints_the_table(monkeypatch, capsys, length, ends):
    """As the jobs are run one by one; with an open cell the exit code is 3."""
    monkeypatch.setattr(module.TableJob, "run", lambda job: module.Entry(length, 1, "C-X"))
    code, out, err = run(capsys, "inductive", "--table", "--format", "csv")
    assert code == ends and out.count("\n") == 209 and ("C-X" in out) is (ends == 0)


def test_a_table_goes_on_from_what_a_folder_keeps(monkeypatch, capsys, tmp_path):
    """Stopped after ten proofs, as by Ctrl-C, it proves the other seventy only; and a damaged file is named."""
    proved = []

    def stopped(job):
        if len(proved) == 10:
            raise KeyboardInterrupt
        proved.append(job)
        return module.Entry(f"{len(proved)}", 1, "C-X")

    asked = ("inductive", "--table", "--format", "csv", "--resume", str(tmp_path / "kept"))
    monkeypatch.setattr(module.TableJob, "run", stopped)
    assert run(capsys, *asked)[0] == 130 and len(list((tmp_path / "kept").iterdir())) == 10
    rest = []
    monkeypatch.setattr(module.TableJob, "run", lambda job: rest.append(job) or module.Entry("70", 1, "C-X"))
    code, whole, _ = run(capsys, *asked)
    assert code == 0 and len(rest) == 70 and not set(rest) & set(proved) and whole.count(",10,") and whole.count(",70,")
    assert run(capsys, *asked)[1] == whole and len(rest) == 70
    first, second, *_ = sorted((tmp_path / "kept").iterdir())
    for damaged in ('{"length": "7"', '{"job": 1, "result": 1}', "[" * 100_000, second.read_text()):  # another job's
        first.write_text(damaged)
        code, out, err = run(capsys, *asked)
        assert (code, out) == (2, "") and err.count("\n") == 1 and first.name in err and "delete it" in err
    for wrong in (("--task", "vanilla", "--resume", "x"), ("--table", "--resume", str(first / "below"))):
        assert run(capsys, "inductive", *wrong)[0] == 2


def test_what_is_open_is_not_kept(monkeypatch, capsys, tmp_path):
    """The seconds may have ended its proof, so that the same command tries it again."""
    asked, tried = ("inductive", "--table", "--format", "csv", "--resume", str(tmp_path / "kept")), []
    monkeypatch.setattr(module.TableJob, "run", lambda job: tried.append(job) or module.Entry(None, 0, module.NOTHING))
    assert [run(capsys, *asked)[0], run(capsys, *asked)[0]] == [3, 3] and len(tried) == 160
    assert [module.if_decided(said) for said in ("open", "open, right to length 7")] == [None, None]
    assert module.if_decided("wrong at length 3") == "wrong at length 3"


@pytest.mark.deep
def test_no_cell_of_a_transformer_is_open():
    for job in module.jobs():
        if job.model in module.EMBEDDINGS:
            found = job.run()
            assert found.is_impossible or found.length.split(",")[0].split(" ")[0] in ("all", "100", "99", "128"), job


def test_no_cell_of_gated_decays_and_none_of_an_lstm_at_ten_types_is_open():
    """Of these S4's modular counting alone has a longer way of its own; the others are in the deep test below."""
    for task, model in (*product(("selective", "selective-modular"), ("s4", "mamba", "rwkv")),
                        ("modular", "mamba"), ("modular", "rwkv"), ("selective-modular", "lstm")):  # fmt: skip
        found = module.TableJob(task, model, False).run()
        lengths = {"modular": "100", "selective": "100", "selective-modular": "all" if model == "lstm" else "128"}
        assert found.length == lengths[task] and not found.is_impossible, (task, model)
        assert found.layers == 1 + (task == "modular" and model == "mamba")


@pytest.mark.deep
def test_no_cell_of_a_recurrent_network_is_open():
    for job in module.jobs():
        if job.model not in module.EMBEDDINGS:
            found = job.run()
            assert found.length is not None and found.layers == 1 + ((job.task, job.model) in module.ONE_LAYER), job


@pytest.mark.parametrize(
    ("task", "pe", "said"),
    [
        (Task.of("selective", types=2, max_count=2), "ape", "all at 6 positions"),
        (
            Task.of("selective", types=2, max_count=2, distinct_start=True),
            "nope",
            "4, first two tokens different",
        ),
    ],
)
def test_what_is_proved_is_said_of_the_strings_that_it_is_of(task, pe, said):
    asked = Asked(task, "transformer", pe=pe, positions=6 if pe == "ape" else None, length=4 if pe == "nope" else None)
    found = decide(judge_of("transformer")(asked).problem, Real(), "certified", Effort())
    assert found and module.said(found) == said


def test_a_distinct_start_is_proved_where_an_equal_one_is_impossible(monkeypatch):
    """Planted: a family that can do with a distinct start alone."""

    def judged(asked):
        raise NotKnown("none") if asked.task.has_distinct_start else ProvedImpossible("C-I2", "a a")

    monkeypatch.setattr(module, "judge_of", lambda model: judged)
    module.proved.cache_clear()
    assert module.proved("selective", "nope", False) == module.Entry(None, 0, "C-I2", is_impossible=True)
    module.proved.cache_clear()
    distinct = module.Entry("100, first two tokens different", 2, "C-T7")
    monkeypatch.setattr(
        module,
        "_decided",
        lambda asked: distinct if asked.task.has_distinct_start else module.Entry(None, 0, "C-I2", True),
    )
    assert module.proved("selective", "rope", False) == distinct
    module.proved.cache_clear()


def test_every_ceiling_stands_beside_the_figure_that_it_bounds(empty_table):
    """A ceiling says of which column it is, and no figure there is above it but 12.0, by erratum C-6."""
    inside, outside = (empty_table.columns.index(f"C, {part} distribution") for part in ("in", "out of"))
    bounds = [row for row in empty_table.rows if "at most" in (row[-1] or "")]
    assert len(bounds) == 20 and sum("in and out of" in row[-1] for row in bounds) == 10
    above = []
    for row in bounds:
        words, ceiling = row[-1].split(": ")[1].split(" %")[0].split(" at most ")
        figures = {"in distribution": [row[inside]], "in and out of distribution": [row[inside], row[outside]]}[words]
        above += [row[:4] for figure in figures if float(figure) > float(ceiling) + 0.05]
    assert above == [["modular", "nope", "no", 2]]


def test_workers_belong_to_the_table(capsys):
    code, out, err = run(capsys, "inductive", "--task", "shifted", "--workers", "2")
    assert code == 2 and out == "" and err.count("\n") == 1 and "--table" in err
    for ignored in (("--budget", "3"), ("--effort", "9"), ("--length", "9"), ("--task", "shifted")):
        code, out, err = run(capsys, "inductive", "--table", *ignored)
        assert code == 2 and out == "" and f"{ignored[0]}: has no effect with --table" in err


def test_an_impossible_request_is_no_open_cell(monkeypatch):
    monkeypatch.setattr(module, "judge_of", lambda model: Unbuilt(ProvedImpossible("X-1", "never")).judged)
    module.proved.cache_clear()
    found = module.table()
    module.proved.cache_clear()
    assert found.is_complete and {row[-1] for row in found.rows if row[1] == "s4"} == {"X-1"}


def test_no_figure_of_c_is_above_its_ceiling_but_the_one_of_the_errata():
    above = [
        (cell.task, cell.model, cell.layers)
        for cell in reported()
        if (bound := module.ceiling(cell)) is not None
        and "at most" in bound
        and max(cell.inside, cell.outside if "out of distribution" in bound else 0)
        > float(bound.split("at most ")[1].split(" %")[0]) + 0.05
    ]
    assert above == [("modular", "nope", 2)]  # 12.0: erratum C-6


def test_ceilings_are_printed_upwards():
    bound = module.ceiling(next(c for c in reported() if (c.task, c.model, c.layers) == ("selective", "rope", 4)))
    printed = Fraction(bound.split("at most ")[1].removesuffix(" %")) / 100
    assert 0 < printed - equal_prefix(10, 10, 50) < Fraction(1, 10_000)


DATA = Path(__file__).parents[1] / "data"


def table_with(monkeypatch, capsys, folder):
    """Exit code, rows, and what is said to be wrong, of a table in which proofs of our own weights are not run."""
    monkeypatch.setattr(module.TableJob, "run", lambda job: module.Entry("7", 1, "C-X"))
    code, out, err = run(capsys, "inductive", "--table", "--weights", str(folder), "--format", "csv")
    return code, list(csv.reader(out.splitlines())), err


def test_trained_networks_stand_beside_the_figures(monkeypatch, capsys, tmp_path):
    """One is right at every length, and one is wrong first at 151; cells without a file have none."""
    shutil.copy(DATA / "table_a1" / "modular-rnn-1.safetensors", tmp_path)
    shutil.copy(DATA / "recurrent" / "lstm_seed6_stop0.25.safetensors", tmp_path / "modular-lstm-1.safetensors")
    code, (head, *rows), _ = table_with(monkeypatch, capsys, tmp_path)
    assert code == 0 and head[-1] == module.TRAINED
    told = {(row[0], row[1], row[3]): row[-1] for row in rows if row[-1] not in ("", "-")}
    assert told == {
        ("modular", "rnn", "1"): "right at every length",
        ("modular", "lstm", "1"): "wrong first at length 151",
    }


def test_files_of_no_cell_are_refused(monkeypatch, capsys, tmp_path):
    place, net = tmp_path / "modular-rnn-1.safetensors", DATA / "table_a1" / "modular-rnn-1.safetensors"
    for name in ("modular-gru-1.safetensors", "modular-rnn-2.safetensors", "modular-rope-4.safetensors"):
        shutil.copy(net, tmp_path / name)
        code, _, err = table_with(monkeypatch, capsys, tmp_path)
        assert code == 2 and err.count("\n") == 1 and name in err
        (tmp_path / name).unlink()
    for folder in (tmp_path, place):
        code, _, err = table_with(monkeypatch, capsys, folder)
        assert code == 2 and err.count("\n") == 1 and "TASK-MODEL-LAYERS" in err
    asked = ("inductive", "--table", "--weights", str(tmp_path), "--map", "a=b")
    assert run(capsys, *asked)[0] == 2


FAILING = {
    "helper-lstm-1": 52, "helper-rnn-1": 57, "helper-shifted-lstm-1": 0, "modular-mamba-1": 6, "modular-rwkv-1": 6,
    "modular-s4-1": 6, "selective-lstm-1": 2, "selective-mamba-1": 2, "selective-modular-lstm-1": 3,
    "selective-modular-rwkv-1": 2, "selective-rwkv-1": 3, "shifted-lstm-1": 0, "shifted-rnn-1": 0, "shifted-rwkv-1": 1,
    "selective-rnn-1": 2, "selective-rnn-2": 2, "selective-rnn-4": 2, "selective-s4-1": 2, "selective-lstm-2": 2,
    "selective-lstm-4": 2, "selective-modular-rnn-1": 2, "selective-modular-rnn-2": 2, "selective-modular-rnn-4": 2,
    "selective-modular-s4-1": 2, "selective-modular-mamba-1": 2, "selective-modular-lstm-2": 2,
    "selective-modular-lstm-4": 2,
}  # fmt: skip


def wrong_lengths(file, longest):
    """The lengths up to `longest` at which torch's run of some string in float64 is wrong."""
    task, has_word = Task.of(file.task), file.task in STARTED
    kept = load(file.path) if file.model in KINDS else load_gated(file.path, kind=file.model)
    if task.is_homogeneous:
        strings = [line.tokens[: longest + has_word] for line in task.lines(longest)]
    else:
        strings = list(product(range(task.K), repeat=longest))
    by_size = {n: [s for s in strings if len(s) == n] for n in {*map(len, strings)}}
    said = {s: row for many in by_size.values()
            for s, row in zip(many, kept.double()(torch.tensor(many)).argmax(-1).tolist(), strict=True)}  # fmt: skip
    return {
        t - has_word
        for string, row in said.items()
        for t, (right, answer) in enumerate(zip(task.answers(string), row, strict=True), 1)
        if right is not None and answer != right
    }


@pytest.mark.parametrize("name", FAILING)
def test_wrong_lengths_of_the_trained_files_are_those_of_a_run(name):
    """Also of all strings that start with a number word."""
    (file,) = [x for x in module.trained_files(str(DATA / "table_a1")) if x.path.endswith(f"/{name}.safetensors")]
    n, wrong = FAILING[name], wrong_lengths(file, max(1, FAILING[name]))
    assert file.run() == f"wrong first at length {n}" and min(wrong) == n


@pytest.mark.deep
def test_verdicts_on_the_trained_files_are_those_of_100_digits():
    files = [x for x in module.trained_files(str(DATA / "table_a1")) if x.task == "modular" and x.model in KINDS]
    assert [(f.model, f.layers) for f in files] == [(kind, n) for kind in ("lstm", "rnn") for n in (1, 2, 4)]
    for file in files:
        wrong, _ = run_line(load(file.path), 10, 10_000)
        assert wrong is None and file.run() == "right at every length", file


def test_a_verdict_is_said_in_a_few_words():
    def said(verdict, case=None, **extra):
        return module.said_of_a_file(SimpleNamespace(verdict=verdict, counterexample=case, extra=extra))

    assert said(Verdict.UNKNOWN, right_to=48) == "open, right to length 48" and said(Verdict.UNKNOWN) == "open"
    assert said(Verdict.REFUTED, {"length": 9}) == "wrong at length 9"
    assert said(Verdict.PROVED) == "right at every length"
