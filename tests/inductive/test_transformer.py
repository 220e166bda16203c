"""Decoders that count: proofs against runs of every input, mutated models, planted faults, and the command."""

import itertools
import json

import pytest
import torch
from command import as_json, run
from models.selection import every, first
from oracles.inductive import right
from safetensors.torch import save

from constructions.decoder import Decoder, initialised
from constructions.decoder_arrays import DecoderArrays
from constructions.errors import BadInput
from constructions.inductive import as_bytes, load, selective, started, succession
from verify.arithmetic.readings import Real, reading_of
from verify.counting.tasks import Task
from verify.engine.balls import Arithmetic
from verify.engine.rules.linear import kept_norms
from verify.frame.certificate import Verdict
from verify.frame.decide import Effort, certify, exhaustive, sampled
from verify.tasks.inductive import cells, engine_runs, noisy, uniform
from verify.tasks.inductive.runs import Runs
from verify.tasks.inductive.task import Counting


def wrong_lines(model, task, length=None):
    """The (length, shift) of every wrong prefix of a line, run by torch and compared with the oracle."""
    wrong = []
    for shift in range(1 if model.pe == "nope" else model.positions - model.has_bos):
        room = None if model.pe == "nope" else model.positions - model.has_bos - shift
        for line in task.lines(length, room=room):
            said = model(torch.tensor([line.tokens]), shift=shift)[0].argmax(-1).tolist()
            due = right(task.name, line.tokens, M=task.M, m=task.m)
            wrong += [(i + 1 - line.leading, shift) for i, (a, b) in enumerate(zip(said, due, strict=True)) if a != b]
    return wrong


def wrong_strings(model, task, n):
    """Whether a string of length n over the task's types is answered wrongly somewhere."""
    strings = list(itertools.product(range(task.K), repeat=n))
    said = torch.cat([model(part).argmax(-1) for part in torch.tensor(strings).split(4096)]).tolist()
    return any(
        b is not None and a != b
        for string, answers in zip(strings, said, strict=True)
        for a, b in zip(answers, right(task.name, string, m=task.m, C=task.C), strict=True)
    )


@pytest.mark.parametrize("layernorm", [False, True])
@pytest.mark.parametrize(
    ("name", "pe", "bos"),
    every(2, [
        ("shifted", "nope", False),
        ("shifted", "rope", True),
        ("helper", "ape", False),
        ("helper-shifted", "spe", False),
        ("vanilla", "sine", True),
        ("succession", "rope", True),
    ]),
)  # fmt: skip
def test_number_words(name, pe, bos, layernorm):
    task = Task.of(name, vocabulary=9)
    model = started(task=name, M=9, pe=pe, bos=bos, layernorm=layernorm, positions=14)
    found = certify(Counting(model, task))
    assert found.verdict is Verdict.PROVED and found.to_dict()["length"] == task.longest()
    assert not wrong_lines(model, task)
    ran = exhaustive(Counting(model, task))
    assert ran.verdict is Verdict.PROVED and ran.inputs_covered == found.inputs_covered


@pytest.mark.parametrize("pe", ["nope", "rope"])
def test_the_checker_runs_what_the_file_holds_whole(pe, tmp_path, capsys):
    """RoPE's tables are computed by torch; the certificate holds them."""
    folder = str(tmp_path / "saved")
    assert run(capsys, "inductive", "--task", "shifted", "--vocabulary", "4", "--pe", pe, "--save", folder)[0] == 0
    code, out, _ = run(capsys, "check", folder)
    assert code == 0 and out.startswith("HOLDS") and ("tables" in out) == (pe == "rope")


@pytest.mark.parametrize(("pe", "bos"), [("ape", ()), ("rope", ("--bos",))])
def test_succession_of_one_word(pe, bos, capsys):
    """No word follows the word 1 where it is the last: a^1 is all that there is."""
    sizes = ("--vocabulary", "1", "--positions", "3")
    code, found = as_json(capsys, "inductive", "--task", "succession", "--pe", pe, *bos, *sizes)
    assert code == 0 and found["length"] == 1


@pytest.mark.parametrize("pe", ["ape", "spe", "sine"])
def test_succession_by_positions(pe, capsys):
    """C-T9 through the command, and a run of every line at every shift."""
    task = Task.of("succession", vocabulary=7)
    for layernorm in (False, True):
        model = succession(M=7, pe=pe, layernorm=layernorm, positions=12)
        assert not wrong_lines(model, task)
    argv = ("inductive", "--task", "succession", "--pe", pe, "--vocabulary", "7", "--positions", "12")
    code, found = as_json(capsys, *argv)
    assert code == 0 and found["claim"] == "C-T9" and found["length"] == 7 and found["margin"] > 0.45
    assert run(capsys, *argv, "--heads", "2")[0] == 2
    with pytest.raises(BadInput, match="positions are counted"):
        succession(M=7, pe="rope")


def test_margin_is_the_formula():
    """1 / (2 M) without LayerNorm, attained where k + n = M."""
    for M in (10, 100):
        found = certify(Counting(started(task="shifted", M=M, layernorm=False), Task.of("shifted", vocabulary=M)))
        assert found.margin is not None and 0 <= 1 / (2 * M) - found.margin < 1e-9
    assert (
        certify(
            Counting(started(task="shifted", M=100, layernorm=False), Task.of("shifted")), reading_of("float32")
        ).verdict
        is Verdict.PROVED
    )


@pytest.mark.parametrize("seed", first(2, [0, 1, 4, 2, 3, 5]))
def test_mutated_models_are_never_proved_where_a_run_fails(seed):
    """A weight changed at random: PROVED only where all runs are right, REFUTED only at the shortest wrong length."""
    generator = torch.Generator().manual_seed(seed)
    task = Task.of("shifted", vocabulary=9)
    model = started(task="shifted", M=9, pe=("nope", "ape", "rope")[seed % 3], layernorm=seed > 2, positions=12)
    with torch.no_grad():
        for value in list(model.parameters())[:: 1 + seed % 2]:
            value += torch.randn(value.shape, generator=generator, dtype=value.dtype) * 0.03 * seed
    found, wrong = certify(Counting(model, task)), wrong_lines(model, task)
    assert (found.verdict is Verdict.PROVED) == (not wrong)
    if wrong:
        case = found.counterexample
        assert (case["length"], case["shift"]) == min(wrong) and case["is_smallest"]
        assert (
            found.to_dict()["length"] == (min(wrong)[0] - 1 if min(wrong)[0] else None)
            and case["predicted"] != case["expected"]
        )


@pytest.mark.parametrize("positions", first(1, [6, 10]))
@pytest.mark.deep
@pytest.mark.parametrize("pe", ["rope", "sine", "spe"])
def test_random_decoders_of_two_layers(pe, positions):
    """The engine's bounds hold what torch computes, at every shift, with and without LayerNorm."""
    task = Task.of("modular", modulus=3)
    for bos, layernorm in ((pe == "rope", True),):
        model = initialised(
            Decoder(vocabulary=1, d=8, n_heads=2, n_layers=2, classes=3, positions=positions, pe=pe, bos=bos,
                    layernorm=layernorm), seed=1, std=0.5).eval()  # fmt: skip
        problem = Counting(model, task, None if pe != "nope" else positions - 1)
        for found in engine_runs.bounds(problem.runs, Real()):
            for row, line in enumerate(found.lines):
                logits = model(torch.tensor([line.tokens]), shift=found.shifts.start)[0]
                for i, due in enumerate(task.answers(line.tokens)):
                    rivals = logits[i][[c for c in range(3) if c != due]]
                    margin = (logits[i, due] - rivals.max()).item()
                    assert found.low[row, i] - 1e-9 <= margin <= found.high[row, i] + 1e-9
        assert certify(problem).verdict is Verdict.REFUTED and wrong_lines(model, task, problem.longest)


@pytest.mark.deep
def test_prefix_sums_agree_with_the_engine():
    """Shift by shift, and where one run bounds all shifts together."""
    task = Task.of("helper-shifted", vocabulary=3)
    for pe, layernorm in (("nope", True), ("sine", False), ("spe", True), ("ape", True)):
        runs = Runs(started(task="helper-shifted", M=3, pe=pe, layernorm=layernorm, positions=6), task, None,
                    None if pe == "nope" else 6)  # fmt: skip
        (shared,) = uniform.bounds(runs, Real())
        assert shared.shifts == runs.shifts
        for b in engine_runs.bounds(runs, Real()):
            n = max(len(line.tokens) for line in b.lines)
            exists = torch.arange(n) < torch.tensor([[len(line.tokens)] for line in b.lines])
            alone = uniform.of_lines(noisy.Allowed(), runs, b.lines, b.shifts.start)
            assert not torch.isfinite(b.low[:, n:]).any()
            for low, high in (alone, (shared.low[:, :n], shared.high[:, :n])):
                assert bool(((low <= b.high[:, :n] + 1e-12) & (b.low[:, :n] <= high + 1e-12))[exists].all())


def test_norms_are_kept_of_stored_matrices_and_not_of_a_batch():
    W, at = torch.randn(3, 4, 6, dtype=torch.float64), Arithmetic(has_norms=True, kept={})
    of_each = torch.vmap(lambda part: kept_norms(at, part, 2))(W)
    assert at.kept == {}
    for part, norms in zip(W, of_each, strict=True):
        assert torch.allclose(kept_norms(at, part, 2), norms, rtol=1e-12) and bool(
            (norms >= torch.linalg.svdvals(torch.stack(part.chunk(2, -1)))[:, 0]).all()
        )
        assert kept_norms(at, part, 2) is kept_norms(at, part, 2)
    assert len(at.kept) == 3


@pytest.mark.parametrize("m", [None, 2])
@pytest.mark.parametrize("pe", ["nope", "rope", pytest.param("ape", marks=pytest.mark.deep), "sine", "spe"])
def test_selective(pe, m):
    name = "selective" if m is None else "selective-modular"
    task = Task.of(name, types=2, max_count=4, **({} if m is None else {"modulus": m}))
    for layernorm in (False, True):
        model = selective(K=2, C=4, m=m, pe=pe, layernorm=layernorm, positions=12)
        found = certify(Counting(model, task))
        assert found.verdict is Verdict.PROVED and found.to_dict()["length"] == "all"
        assert (found.inputs_covered is None) == (pe == "nope") and found.to_dict()["margin_scaled"] > 0
        assert not wrong_strings(model, task, 9)


@pytest.mark.deep
def test_all_strings_of_three_types_up_to_length_9():
    task = Task.of("selective", types=3, max_count=9)
    model = selective(K=3, C=9)
    assert certify(Counting(model, task)).verdict is Verdict.PROVED and not wrong_strings(model, task, 9)


@pytest.mark.parametrize("seed", range(8))
def test_mutated_selective_models(seed):
    generator = torch.Generator().manual_seed(seed)
    task = Task.of("selective", types=2, max_count=3)
    model = selective(K=2, C=3, layernorm=bool(seed % 2))
    with torch.no_grad():
        for name, value in model.named_parameters():
            if name.endswith(("W_E", "W_in", "W_out", "W_U", "W_V")):
                value += torch.randn(value.shape, generator=generator, dtype=value.dtype) * 0.002 * seed
    found = certify(Counting(model, task, 8))
    is_wrong = wrong_strings(model, task, 8)
    assert not (is_wrong and found.verdict is Verdict.PROVED)
    assert found.verdict is not Verdict.REFUTED or is_wrong


def test_a_neuron_that_is_on_too_early_is_found():
    """A gate that closes by less than a token's share: right on short strings, wrong on long ones, never proved."""
    task = Task.of("selective", types=2, max_count=3)
    model = selective(K=2, C=3, layernorm=False)
    with torch.no_grad():
        model.W_E[:, 3:5] *= 0.2  # a gate closes by 0.2, and a share is up to 0.25
    assert cells.decide(DecoderArrays.of(model), task, None, Real()).reason is not None
    assert not wrong_strings(model, task, 4)
    string = (0,) * 30 + (1,)
    assert model(torch.tensor([string]))[0, -1].argmax() != 1
    assert certify(Counting(model, task, 40), effort=Effort(budget=0.1)).verdict is not Verdict.PROVED


def test_always_first_is_no_proof_of_the_first_token():
    """Cells speak of a token and its count: a model that says "first" everywhere is wrong from length 2 on."""
    model = selective(K=2, C=1, layernorm=False)  # its last class wins everywhere: 1, "first"
    found = certify(Counting(model, Task.of("first-heterogeneous", types=2), 4))
    assert found.verdict is Verdict.REFUTED and found.counterexample["length"] == 2


def test_files(tmp_path):
    model = started(task="shifted", M=5, pe="rope", positions=9)
    path = tmp_path / "m.safetensors"
    path.write_bytes(as_bytes(model, {"task": "shifted"}))
    again = load(str(path))
    assert again.pe == "rope" and again.positions == 9 and bool((again.W_E == model.W_E).all())
    torch.save(model.state_dict(), tmp_path / "m.pt")
    assert load(str(tmp_path / "m.pt"), {"pe": "rope", "positions": 9, "activation": "relu"}).positions == 9
    with pytest.raises(BadInput, match="leave the option out"):
        load(str(path), {"pe": "ape"})
    with pytest.raises(BadInput, match="name the sizes"):
        Counting(again, Task.of("shifted"))


def test_command(capsys, tmp_path):
    path = str(tmp_path / "m.safetensors")
    assert run(capsys, "inductive", "--task", "shifted", "--vocabulary", "7", "--save", path)[0] == 0
    code, found = as_json(capsys, "inductive", "--task", "shifted", "--vocabulary", "7")
    assert code == 0 and found["length"] == 6 and found["claim"] == "C-T1" and found["inputs_covered"] == "28"
    code, found = as_json(capsys, "inductive", "--task", "shifted", "--vocabulary", "7", "--weights", path)
    assert code == 0 and found["claim"] is None
    code, out, err = run(capsys, "inductive", "--task", "modular", "--json")
    assert code == 2 and '"C-I1"' in out and err.count("\n") == 1
    code, out, err = run(capsys, "inductive", "--task", "selective")
    assert code == 2 and "C-I2" in err
    assert sampled(Counting(load(path), Task.of("shifted", vocabulary=7))).verdict is Verdict.UNKNOWN


@pytest.mark.parametrize(
    "argv",
    [
        (),
        ("--task", "shifted", "--types", "3"),
        ("--task", "modular", "--vocabulary", "3"),
        ("--task", "selective", "--types", "0", "--bos"),
        ("--task", "shifted", "--length", "x"),
        ("--task", "shifted", "--weights", "missing.pt"),
        ("--task", "shifted", "--layers", "0"),
        ("--task", "shifted", "--positions", "1", "--pe", "ape", "--bos"),
        ("--task", "shifted", "--precision", "s6"),
        ("--task", "shifted", "--model", "rnn", "--pe", "rope"),
        ("--task", "shifted", "--vocabulary", "9", "--length", "9"),
        ("--task", "modular", "--pe", "spe", "--length", "30", "--positions", "29"),
    ],
)
def test_bad_input_is_one_line(capsys, argv):
    code, out, err = run(capsys, "inductive", *argv)
    assert code == 2 and out == "" and err.count("\n") == 1 and "Traceback" not in err


def test_impossible_is_not_said_where_one_answer_is_right(capsys):
    """At length 1, or where counts above 1 are not judged, there is one answer, and it is right."""
    for argv in (("modular", "--length", "1"), ("vanilla", "--vocabulary", "1"), ("selective", "--max-count", "1"),
                 ("modular", "--pe", "rope", "--positions", "1")):  # fmt: skip
        code, out, _ = run(capsys, "inductive", "--task", *argv)
        assert code == 3 and out.startswith("UNKNOWN: ")
    for argv in (("modular", "--length", "2"), ("selective", "--max-count", "2", "--length", "2")):
        assert run(capsys, "inductive", "--task", *argv)[2].startswith("impossible (C-I")


def test_options_that_say_otherwise_than_the_file(capsys, tmp_path):
    path = str(tmp_path / "m.safetensors")
    sizes = ("--task", "shifted", "--vocabulary", "7", "--pe", "rope", "--positions", "9")
    assert run(capsys, "inductive", *sizes, "--save", path)[0] == 0
    asked = ("inductive", *sizes[:4], "--weights", path)
    assert run(capsys, *asked)[0] == run(capsys, *asked, "--layers", "1", "--positions", "9")[0] == 0
    for option in (
        ("--pe", "ape"), ("--bos",), ("--layers", "2"), ("--d", "3"), ("--no-layernorm",), ("--heads", "2"),
        ("--activation", "gelu"), ("--positions", "8"), ("--dtype", "float32"), ("--as-printed",),
    ):  # fmt: skip
        code, out, err = run(capsys, *asked, *option)
        assert code == 2 and out == "" and err.count("\n") == 1


def test_files_that_lie_about_their_sizes(tmp_path):
    """Shapes are compared before memory is taken, and every LayerNorm's eps is kept."""
    model = Decoder(vocabulary=1, d=8, n_heads=2, classes=3, pe="nope", bos=True, eps=0.25)
    path = tmp_path / "m.safetensors"
    path.write_bytes(as_bytes(model, {}))
    again = load(str(path))
    assert again.norm.eps == again.blocks[0].norm_1.eps == 0.25
    state = model.state_dict()
    for name, value in (
        ("blocks.0.attention.W_Q", torch.zeros(1, 1 << 22, dtype=torch.float64)),
        ("blocks.0.mlp.W_in", torch.zeros(1, 1 << 22, dtype=torch.float64)),
        ("W_pos", torch.zeros((), dtype=torch.float64)),
        ("blocks.7.mlp.b_in", torch.zeros(2, dtype=torch.float64)),
        ("W_E", torch.full_like(model.W_E, torch.nan)),
    ):
        torch.save(state | {name: value}, tmp_path / "m.pt")
        with pytest.raises(BadInput, match="weights='.*m.pt': "):
            load(str(tmp_path / "m.pt"), {"pe": "ape" if name == "W_pos" else None, "bos": True})
    model.norm.eps = 0.5
    with pytest.raises(BadInput, match="one eps"):
        as_bytes(model, {})


@pytest.mark.parametrize("header", [{"positions": 10**9}, {"pe": "xx"}, {"bos": "yes"}, {"n_heads": 3}, {"eps": 0.0}])
def test_files_that_are_no_decoder_are_one_line(capsys, tmp_path, header):
    """A state dict of another layout, a cut file, an empty one, and metadata that says nonsense."""
    W = {"W_E": torch.zeros(2, 8), "W_U": torch.zeros(8, 10), "blocks.0.attention.W_Q": torch.zeros(8, 8)}
    whole_ = save(W, metadata={"decoder": json.dumps({"pe": "rope", "bos": True, **header})})
    files = {"a.safetensors": whole_, "b.safetensors": whole_[:-9], "c.safetensors": b"", "d.pt": b"PK not a zip"}
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
        code, out, err = run(capsys, "inductive", "--task", "modular", "--weights", str(tmp_path / name))
        assert code == 2 and out == "" and err.count("\n") == 1 and "Traceback" not in err


def test_scores_of_zero_times_an_overflow_are_not_zero():
    """W_Q is 0, and keys overflow in float16: torch's scores are NaN there, and real arithmetic is right."""
    model = started(task="shifted", M=4, layernorm=False)
    with torch.no_grad():
        model.blocks[0].attention.W_K[:] = 60_000.0
    task = Task.of("shifted", vocabulary=4)
    assert certify(Counting(model, task)).verdict is Verdict.PROVED
    assert certify(Counting(model, task), reading_of("float32")).verdict is Verdict.PROVED
    assert certify(Counting(model, task), reading_of("float16")).verdict is Verdict.UNKNOWN
    with torch.no_grad():
        model.blocks[0].attention.W_K[:] = float("inf")
    assert certify(Counting(model, task)).verdict is not Verdict.PROVED
