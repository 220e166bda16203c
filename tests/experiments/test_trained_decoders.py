"""What an experiment says of document C's decoders is what a run of every string at every shift says."""

import dataclasses
import itertools
from fractions import Fraction

import pytest
import torch

from constructions.decoder import Decoder, initialised
from constructions.errors import BadInput
from constructions.inductive import load
from constructions.training import Recipe, train
from verify.counting.tasks import STARTED, Line, Task
from verify.frame.experiment import GridSize, Result, Verdict
from verify.report.seeds import agreement
from verify.tasks.inductive import experiments, tested
from verify.tasks.inductive.tested import every_string
from verify.tasks.inductive.trained import IGNORED, Course, shifted_run

PES = ("nope", "sine", "ape", "rope", "spe")


def small(task, pe, *, bos=False, layers=1, positions=8, seed=0, std=0.5, dtype=torch.float64, d=8):
    model = Decoder(vocabulary=task.vocabulary, d=d, n_heads=2, n_layers=layers, d_mlp=8, classes=task.classes, pe=pe,
                    positions=positions, bos=bos, dtype=dtype)  # fmt: skip
    return initialised(model, seed=seed, std=std).eval().requires_grad_(False)


def trial_of(monkeypatch, task, pe, sizes, *, steps, bos=False, layers=1):
    """A trial of other sizes, trained for so many steps."""
    usual = experiments.recipe
    monkeypatch.setattr(experiments, "sizes_of", lambda *of: sizes)
    monkeypatch.setattr(experiments, "recipe", lambda *of: dataclasses.replace(usual(*of), steps=steps))
    return experiments.DecoderTrial(GridSize.LAPTOP, task, pe, layers, bos, 8, 2, 8, 1, ("positions", "seed"))


def loaded(tmp_path, trained):
    place = tmp_path / "weights.safetensors"
    place.write_bytes(trained.weights)
    return load(str(place)).double()


@pytest.mark.parametrize("pe", PES)
@pytest.mark.parametrize("bos", [False, True])
def test_strings_run_together_are_run_as_by_themselves(pe, bos):
    task = Task.of("selective", types=3)
    model, g = small(task, pe, bos=bos, layers=2), torch.Generator().manual_seed(1)
    strings, shifts = torch.randint(3, (6, 5), generator=g), torch.tensor([0, 1, 2, 0, 1, 2])
    first = shifts.tolist() if pe != "nope" else [0] * 6
    alone = torch.cat([model(x[None], shift=s) for x, s in zip(strings, first, strict=True)])
    assert torch.allclose(shifted_run(model, strings, shifts), alone, atol=1e-9)
    if pe in ("ape", "spe", "sine"):
        assert not torch.allclose(shifted_run(model, strings, 2 - shifts), alone, atol=1e-9)


@pytest.mark.parametrize(
    ("name", "lengths", "starts"),
    [("shifted", {4}, range(1, 9)), ("helper", {4, 7}, [0]), ("helper-shifted", {4, 7}, range(9))],
)
def test_lessons_are_the_inputs_of_the_task(name, lengths, starts):
    course, g = Course(Task.of(name, vocabulary=9), 3, 6, 12), torch.Generator().manual_seed(0)
    lessons = [course.lesson(5, g) for _ in range(60)]
    assert {lesson.shape[1] for lesson in lessons} == lengths
    assert {int(start) for lesson in lessons for start in lesson[:, 0]} == set(starts)
    for lesson in lessons:
        assert set(lesson[:, 1:].flatten().tolist()) <= ({10} if lesson.shape[1] == 4 else {11})
        due = course.due(lesson)
        count = lesson[:, :1] + torch.arange(lesson.shape[1])
        assert torch.equal(due, torch.where(count <= 9, count, IGNORED))
    longer = course.drawn(1, 6, g)
    assert course.due(longer, 3)[0, :4].eq(IGNORED).all() and course.due(longer)[0, 0] == longer[0, 0]


def test_succession_is_taught_both_ways():
    course, g = Course(Task.of("succession", vocabulary=9), 4, 9, 12), torch.Generator().manual_seed(0)
    seen = {tuple(course.lesson(1, g)[0].tolist()) for _ in range(20)}
    assert seen == {(10,) * 4, tuple(range(1, 9))}
    assert course.due(torch.arange(1, 9)[None]).tolist() == [list(range(2, 10))]


def by_hand(model, course, is_counted, drawn=None):
    """For each length: right answers and all, over every shift and line that is counted, run one by one; at shifts
    alone at which strings of `drawn` tokens fit, where it is given."""
    task, found = course.task, {}
    room = None if model.pe == "nope" else model.positions - model.has_bos
    for shift in range(1 if room is None else room if drawn is None else room - drawn + 1):
        for line in task.lines(course.tested, room=None if room is None else room - shift):
            if len(line.tokens) <= line.leading or not is_counted(line):
                continue
            said = model(torch.tensor([line.tokens]), shift=shift)[0].argmax(-1).tolist()
            for place in range(line.leading, len(line.tokens)):
                right, of = found.get(place + 1 - line.leading, (0, 0))
                is_right = said[place] == task.answers(line.tokens)[place]
                found[place + 1 - line.leading] = right + is_right, of + 1
    return found


@pytest.mark.parametrize(
    ("task", "pe", "bos", "of"),
    [
        ("modular", "ape", False, {"modulus": 3}),
        pytest.param("modular", "rope", True, {"modulus": 3}, marks=pytest.mark.deep),
        pytest.param("shifted", "spe", False, {"vocabulary": 6}, marks=pytest.mark.deep),
        pytest.param("helper", "nope", False, {"vocabulary": 6}, marks=pytest.mark.deep),
        pytest.param("succession", "sine", False, {"vocabulary": 6}, marks=pytest.mark.deep),
        pytest.param("succession", "nope", True, {"vocabulary": 6}, marks=pytest.mark.deep),
        pytest.param("first-homogeneous", "rope", False, {}, marks=pytest.mark.deep),
    ],
)
def test_shares_are_those_of_all_lines_and_shifts(tmp_path, monkeypatch, task, pe, bos, of):
    trial = trial_of(monkeypatch, task, pe, experiments.Sizes(3, 6, 8, of), steps=30, bos=bos)
    trained = trial.run()
    model, course, result = loaded(tmp_path, trained), trial.course, trained.result
    last = 0 if course.task.M is None else course.task.M + 1
    found = by_hand(model, course, lambda line: line.tokens[-1] == last)
    for law, part in (("trained", range(1, 4)), ("tested", range(4, 7))):
        right, total = (sum(found.get(n, (0, 0))[i] for n in part) for i in (0, 1))  # shifted has none of the last
        assert result.exact[law] == (Fraction(right, total),) * 2 and result.inputs[law] == total
        assert result.wrong_of(law) == (total - right, total)
    laws = [("trained", 3, range(1, 4)), ("tested", 6, range(4, 7))]
    for law, length, part in laws if task != "first-homogeneous" else [*laws, ("first token", 3, range(1, 2))]:
        tokens = length + (task in STARTED)
        found = by_hand(model, course, lambda line: line.tokens[-1] == last, drawn=tokens)
        right, total = (sum(found.get(n, (0, 0))[i] for n in part) for i in (0, 1))
        assert result.exact[f"{law}, as drawn"] == (Fraction(right, total),) * 2
        assert result.inputs[f"{law}, as drawn"] == total < (result.inputs[law] + (pe == "nope"))
    case = result.wrong
    assert result.verdict is Verdict.REFUTED and 0 < result.exact["trained"][0] < 1
    said = model(torch.tensor([case["input"]]), shift=case["shift"])[0, case["position"]].argmax()
    assert course.task.said(int(said)) == case["predicted"] != case["expected"]


@pytest.mark.parametrize(
    ("task", "pe", "bos"),
    [
        pytest.param("selective", "spe", False, marks=pytest.mark.deep),
        pytest.param("selective", "ape", True, marks=pytest.mark.deep),
        ("first-heterogeneous", "nope", False),
    ],
)
def test_shares_are_those_of_all_strings_and_shifts(tmp_path, monkeypatch, task, pe, bos):
    of = {"types": 2} if task != "selective" else {"types": 2, "max_count": 4}
    trial = trial_of(monkeypatch, task, pe, experiments.Sizes(2, 4, 6 + bos, of), steps=30, bos=bos)
    trained = trial.run()
    model, course, result = loaded(tmp_path, trained), trial.course, trained.result
    wrong, total = [], [0] * 4
    for string, shift in itertools.product(itertools.product(range(2), repeat=4), range(1 if pe == "nope" else 3)):
        said, due = model(torch.tensor([string]), shift=shift)[0].argmax(-1).tolist(), course.task.answers(string)
        for place in range(4):
            total[place] += 1
            wrong += [(place + 1, shift, string[: place + 1])] if said[place] != due[place] else []
    for law, part in (("trained", (1, 2)), ("tested", (3, 4))):
        of_law = sum(total[n - 1] for n in part)
        assert result.wrong_of(law) == (sum(case[0] in part for case in wrong), of_law)
    assert (len(result.wrong["input"]), result.wrong["shift"], tuple(result.wrong["input"])) == min(wrong)
    assert ("first token" in result.exact) == (task != "selective")
    if task != "selective":
        assert result.wrong_of("first token") == (sum(case[0] == 1 for case in wrong), total[0])


@pytest.mark.deep
def test_a_right_decoder_is_proved_and_a_planted_fault_is_the_only_one_found():
    """C-T2's weights without positions count both types; one embedding moved is wrong, on strings with that type."""
    from constructions.inductive import selective

    task = Task.of("selective", types=2, max_count=4)
    model = selective(K=2, C=4, pe="nope")
    course = Course(task, 2, 4, 6)
    found = every_string(model.requires_grad_(False), course)
    assert found.verdict is Verdict.PROVED and found.right == found.total == [16] * 4 and found.wrong == [0] * 4
    with torch.no_grad():
        model.W_E[1] += 0.7 * torch.randn(model.W_E.shape[1], generator=torch.Generator().manual_seed(0))
    found = every_string(model, course)
    assert found.verdict is Verdict.REFUTED and 1 in found.counterexample["input"]


def test_shares_leave_the_helper_and_the_number_words_out():
    for name in ("helper", "succession"):
        task = Task.of(name, vocabulary=4)
        problem = tested.taught(small(task, "nope"), Course(task, 2, 4, 8))
        counted = [line for line in problem.runs.lines(0) if problem.share().is_counted(line)]
        assert [line.tokens[-1] for line in counted] == [5] and len(problem.runs.lines(0)) == 2
    assert problem.share().is_counted(Line(None, (5,))) and not problem.share().is_counted(Line(None, (1, 2)))


def test_a_warmup_is_linear_and_belongs_to_a_constant_rate():
    line, rates = torch.nn.Linear(1, 1, bias=False), []
    recipe = Recipe("AdamW", 0.5, 6, 1, warmup=4)
    optimizer, schedule = recipe.started(line)
    for _ in range(6):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    assert rates == [0.125, 0.25, 0.375, 0.5, 0.5, 0.5] and "linear warmup of 4 steps" in str(recipe)
    assert train(line, lambda g: line(torch.ones(1, 1)).square().sum(), recipe, 0).steps == 6
    for wrong in ({"warmup": -1}, {"warmup": 3, "schedule": "cosine"}):
        with pytest.raises(BadInput, match="warmup"):
            Recipe(**({"optimizer": "Adam", "lr": 1e-3, "steps": 1, "batch": 1} | wrong))


def test_the_document_s_figures_stand_beside_the_models():
    table = experiments.trials(GridSize.LAPTOP, 1)
    found = {(each.task, each.pe, each.layers): each.settings["C prints"] for each in table}
    assert found["shifted", "rope", 2] == "100/92.5" and found["modular", "spe", 1] == "100/8.2"
    first = {
        (each.d, each.pe): each.settings["C prints"] for each in experiments.trials_of_first_tokens(GridSize.PAPER, 1)
    }
    assert first[4, "spe"] == first[32, "ape"] == "100/100" and first[4, "rope"] == "0/0"
    other = {
        tuple(each.settings[name] for name in ("task", "BOS", "positions", "layers")): each.settings["C prints"]
        for each in experiments.trials_with_bos(GridSize.PAPER, 1)
    }
    assert other["succession", "no", "rope", 1] == other["succession", "no", "nope", 4] == "2/0"
    assert other["modular", "yes", "rope", 1] == "100/27.8" and other["modular", "no", "nope", 2] == "12/11.8"
    assert "-" not in other.values()
    selective = {(each.pe, each.layers): each.printed for each in experiments.trials_of_selective(GridSize.PAPER, 1)}
    assert selective["rope", 2] == "100/40.9" and selective["nope", 1] == "100/99.5"
    (first,) = experiments.trials_of_strings(GridSize.PAPER, 1)
    assert first.settings == {"d": 4, "positions": "nope", "C prints": "100/100", "seed": 0}
    paper = experiments.trials(GridSize.PAPER, 5)
    assert len(paper) == 5 * 5 * 18 and {each.d for each in paper} == {1024}


def test_a_second_seed_is_compared_with_the_first():
    def results(*shares):
        share = [Fraction(each) for each in shares]
        exact = [{"trained": (each, each), "tested": (Fraction(0), Fraction(1))} for each in share]
        return [Result({"d": 4, "seed": i}, (1, 2), Verdict.REFUTED, each, {}) for i, each in enumerate(exact)]

    assert agreement([]) == [] and agreement(results("1"))[0].startswith("One seed")
    (said,) = agreement(results("1", "0.8"))
    assert said.startswith("2 seeds") and "*trained* for 1 of 1 (d 4), *tested* for 0 of 1, verdicts for 0" in said
    assert "*trained* for 0 of 1, " in agreement(results("0.95", "0.9"))[0]
    proved = Result({"d": 4, "seed": 1}, (1, 1), Verdict.PROVED, {})
    assert agreement([*results("1"), proved])[0].endswith("each model: verdicts differ for 1")
    assert experiments.remarks(results("1", "0.8"))[0].startswith("1 of 2")


def test_what_c_scores_is_set_beside_what_it_prints():
    """Right on every string as it is drawn; right at other shifts too; and one that is wrong as drawn."""
    full, less = (Fraction(1),) * 2, (Fraction(1, 2),) * 2
    drawn = {"trained, as drawn": full, "tested, as drawn": full}

    def result(pe, printed, verdict, exact):
        return Result({"positions": pe, "task": "t", "layers": 1, "C prints": printed}, (1, 1), verdict, exact)

    models = [
        result("ape", "100/100", Verdict.REFUTED, {"trained": less, "tested": less, **drawn}),
        result("spe", "100/100", Verdict.REFUTED, {"trained": full, "tested": full, "tested, as drawn": less}),
        result("nope", "100/4.1", Verdict.PROVED, {"trained": full, "tested": full, **drawn}),
        result("rope", "96/9.3", Verdict.UNKNOWN, {}),
    ]
    said = experiments.generalised(models)
    assert said[0].startswith("2 of 4") and said[1].startswith(
        "exactly, where C prints 100/100 1 of 2 models are right on every answer that C scores, 0 PROVED; "
        "elsewhere 1 of 2 models are right on every answer that C scores, 1 PROVED. "
    )
    shares = {found.settings["positions"]: experiments.drawn_share(found, "tested") for found in models[:3]}
    assert shares == {"ape": full, "spe": less, "nope": full}
    figure = experiments.grids_of_drawn(models)
    assert sorted(text.get_text() for text in figure.axes[0].texts) == ["100", "100", "50"]
