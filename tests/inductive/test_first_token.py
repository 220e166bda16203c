"""Which token is the first: built, changed and nudged decoders against every short string, and planted faults."""

import itertools
import random

import pytest
import torch
from command import as_json, run
from models import counting_decoders as models
from models.selection import first
from oracles import decoder as oracle
from oracles.inductive import right
from planted import planted

from constructions.decoder_arrays import DecoderArrays
from constructions.errors import BadInput
from constructions.inductive import alike, ape, as_bytes, beside_bos, spe, unmixed, with_layernorm
from verify.arithmetic.readings import reading_of
from verify.counting.tasks import Task
from verify.frame.certificate import Verdict
from verify.frame.decide import certify
from verify.tasks.inductive import boxes, cells, first_token
from verify.tasks.inductive.task import Counting

NAME = "first-heterogeneous"


def decoder(seed):
    """A task on strings of up to n tokens, and a decoder that solves it, nearly, or not at all."""
    rng = random.Random(seed)
    kind, K, n = rng.choice(["mixed", "bos", "placed"]), rng.randint(2, 3), rng.randint(2, 4)
    has_norm, task = rng.random() < 0.4, Task.of(NAME, types=K, distinct_start=kind == "mixed" or rng.random() < 0.2)
    if kind == "mixed":
        built_for = rng.choice([n, n, 2 * n, 1 + n // 2])
        model = unmixed(K=K, N=built_for, pe=rng.choice(["nope", "rope"]), layernorm=has_norm, positions=n + 1)
    elif kind == "bos":
        model = beside_bos(K=K, pe=rng.choice(["nope", "rope", "ape", "spe", "sine"]), layernorm=has_norm, positions=n)
    else:
        model = alike(rng.choice([ape, spe])(task="first-homogeneous", N=n, positions=n + 1), K)
        model = with_layernorm(model) if has_norm else model
    style = rng.choice(["built", "changed", "changed", "nudged", "readout"])
    if style == "changed":
        model = models.changed(rng, model)
    elif style == "nudged":
        model = models.nudged(rng, model, rng.choice([1e-4, 1e-2, 0.1, 0.5]))
    elif style == "readout":  # another threshold
        with torch.no_grad():
            model.W_U[rng.randrange(len(model.W_U)), 1] += rng.choice([-2.0, -0.4, 0.4, 2.0])
    return task, model.eval(), n


def truth(task, model, n):
    """The least margin of all strings and shifts of each length."""
    m, least = oracle.stored(model), {}
    last = None if model.pe == "nope" else model.positions - model.has_bos
    for length in range(1, n + 1 if last is None else min(n, last) + 1):
        margins = []
        for string in itertools.product(range(task.K), repeat=length):
            if task.has_distinct_start and string[1:2] == string[:1]:
                continue
            for shift in range(1 if last is None else last - length + 1):
                margins += oracle.least_margin(m, string, shift, right(NAME, string))
        least[length] = min(margins)
    return least


def judge(seed):
    """The verdict of a decoder, compared with all its strings."""
    task, model, n = decoder(seed)
    found, least = certify(Counting(model, task, n)), truth(task, model, n)
    if found.verdict is Verdict.PROVED:
        assert min(least.values()) > 0, f"WRONG PROVED: {seed}"
        assert found.margin <= float(min(least.values())) * (1 + 1e-9), seed
    elif found.verdict is Verdict.REFUTED:
        wrong = found.counterexample
        tokens = tuple(wrong["input"])
        assert not (task.has_distinct_start and tokens[1:2] == tokens[:1]), seed
        due = [c if i == wrong["position"] else None for i, c in enumerate(right(NAME, tokens))]
        assert min(oracle.least_margin(oracle.stored(model), tokens, wrong["shift"], due)) <= 0, seed
    return found.verdict


@pytest.mark.parametrize("seeds", first(1, [range(4), *(range(i, i + 6) for i in range(4, 604, 6))]), ids=str)
def test_every_verdict_is_that_of_every_string(seeds):
    verdicts = [judge(seed) for seed in seeds]
    assert {Verdict.PROVED, Verdict.REFUTED} <= set(verdicts)
    assert verdicts.count(Verdict.UNKNOWN) < 2


FAULTS = [
    (cells, "cells_of", "np.ones(K), 0)", "np.zeros(K), 0)"),
    (cells, "cells_of", "if s != t or not task.has_distinct_start", "if s != t"),
    (cells, "cells_of", "for s in range(K)", "for s in range(1)"),
    (cells, "_by_cells", "float(longest - cell.length)", "0.0"),
]


def cells_miss(task, model, n):
    """Whether cells prove what some string refutes."""
    found = cells.decide(DecoderArrays.of(model), task, n, cells.Real())
    return found.reason is None and min(truth(task, model, n).values()) <= 0


def near_misses():
    """Decoders that are wrong on one kind of string alone, each with a length."""
    short = unmixed(K=3, N=1, layernorm=False)  # wrong from 5 tokens on: four of a type and another
    always = unmixed(K=3, N=3, layernorm=False)
    with torch.no_grad():
        always.W_U[:, 1] = torch.tensor([0.0, 0.0, 1.0, 0.0])
    late = beside_bos(K=2, layernorm=False)
    with torch.no_grad():
        late.W_U[:, 1] = torch.tensor([-1.2, 6.0])  # 6/(n + 1) > 1.2 up to n = 4
    by_type = beside_bos(K=2, layernorm=False)
    with torch.no_grad():
        by_type.W_E[1] = torch.tensor([1.48, 0.2])  # a 1 has a fifth of a BOS: 1 1 alone is wrong
    distinct = Task.of(NAME, types=3, distinct_start=True)
    every = Task.of(NAME, types=2)
    alone = Task.of(NAME, types=3)
    return [(distinct, short, 5), (distinct, always, 4), (every, late, 4), (every, by_type, 3),
            (alone, unmixed(K=3, N=6, layernorm=False), 4)]  # fmt: skip


def test_near_misses_are_not_proved():
    for task, model, n in near_misses():
        assert min(truth(task, model, n).values()) <= 0 and not cells_miss(task, model, n)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault[3])
def test_planted_faults_are_caught(fault):
    with planted(*fault):
        assert any(cells_miss(*case) for case in near_misses())


def in_dtype(seed, dtype="float32"):
    """What is proved in a dtype of a decoder, and whether its run on every string is right with that margin."""
    task, model, n = decoder(seed)
    model, reading = model.to(getattr(torch, dtype)), reading_of(dtype)
    proof = next((proof for proof in (boxes, first_token) if proof.applies(DecoderArrays.of(model), task)), None)
    if proof is None:
        return None
    room = n if model.pe == "nope" else min(n, model.positions - model.has_bos)
    found = proof.decide(DecoderArrays.of(model), task, room, reading, 30.0)
    for length in range(1, found.length + 1):
        strings = torch.tensor(list(task.strings(length)))
        for shift in range(1 if model.pe == "nope" else model.positions - model.has_bos - length + 1):
            with torch.no_grad():
                said = model(strings, shift=shift).double()
            sign = torch.tensor([1.0, *[-1.0] * (length - 1)]).double()
            assert bool((((said[..., 1] - said[..., 0]) * sign) >= found.margin).all()), f"WRONG PROVED: {seed}"
    return found.length == room


@pytest.mark.parametrize("seeds", first(1, [range(10), *(range(i, i + 60) for i in range(10, 610, 60))]), ids=str)
def test_what_is_proved_in_a_dtype_is_right_as_it_runs(seeds):
    assert {in_dtype(seed, dtype) for seed in seeds for dtype in ("float32", "bfloat16")} == {None, False, True}


@pytest.mark.deep
def test_at_document_c_s_lengths_in_a_dtype():
    for name, model, task, longest, kind in (
        ("boxes", beside_bos(K=10, dtype=torch.float32), Task.of(NAME), 1 << 20, "float32"),
        ("boxes", beside_bos(K=10, pe="ape"), Task.of(NAME), 127, "float64"),
        ("first_token", unmixed(K=10, N=128, layernorm=False), Task.of(NAME, distinct_start=True), 128, "float64"),
        ("first_token", unmixed(K=10, N=128), Task.of(NAME, distinct_start=True), 128, "float64"),
    ):
        proof = {"boxes": boxes, "first_token": first_token}[name]
        found = proof.decide(DecoderArrays.of(model), task, longest, reading_of(kind), 30.0)
        assert proof.applies(DecoderArrays.of(model), task) and found.length == longest and found.margin > 0


def near_in_dtype():
    """Decoders that a dtype, or one kind of string, makes wrong, with a length and a proof to try on them."""
    every, distinct = Task.of(NAME, types=2), Task.of(NAME, types=3, distinct_start=True)
    by_type = beside_bos(K=2, layernorm=False, dtype=torch.float32)
    late = beside_bos(K=2, layernorm=False, dtype=torch.float32)
    close = unmixed(K=3, N=6, layernorm=False, dtype=torch.float32)
    with torch.no_grad():
        by_type.W_E[1] = torch.tensor([1.48, 0.2])  # a 1 has a fifth of a BOS: 1 1 alone is wrong
        late.W_U[:, 1] = torch.tensor([-1.2, 6.0])  # 6/(n + 1) > 1.2 up to n = 4
        close.blocks[0].mlp.W_out[-1, 3] = -1.99999  # of 2 at the first token, in sums that float32 rounds
    return [(boxes, every, by_type, 2), (boxes, every, late, 3), (first_token, distinct, close, 3)]


def test_near_misses_are_not_proved_in_a_dtype():
    for proof, task, model, n in near_in_dtype():
        assert (
            proof.applies(DecoderArrays.of(model), task)
            and proof.decide(DecoderArrays.of(model), task, n, reading_of("float32"), 30.0).length < n
        )


DTYPE_FAULTS = [
    (boxes, "rows", "np.full_like(t, -1)", "t"),
    (boxes, "rows", "int(hi == 1)", "int(hi <= 4)"),
    (first_token, "least_margin", "- off", ""),
]


@pytest.mark.parametrize("fault", DTYPE_FAULTS, ids=lambda fault: fault[3] or "no drift")
def test_planted_faults_in_a_dtype_are_caught(fault):
    with planted(*fault):
        found = [proof.decide(DecoderArrays.of(model), task, n, reading_of("float32"), 30.0).length == n
                 for proof, task, model, n in near_in_dtype()]  # fmt: skip
        assert any(found)


@pytest.mark.deep
def test_a_string_of_other_embeddings_is_no_line():
    """One embedding alone is moved: strings are no longer answered as a^n is."""
    model = alike(ape(task="first-homogeneous", N=2, positions=2), 3)
    task = Task.of(NAME, types=3)
    assert Counting(model, task).has_lines and certify(Counting(model, task)).verdict is Verdict.PROVED
    with torch.no_grad():
        model.W_E[2, 1] -= 3.0  # its own id is 3 less, so that it is said to be first
    assert not Counting(model, task).has_lines
    assert certify(Counting(model, task)).verdict is Verdict.REFUTED
    with planted(Counting, "has_lines", "(types == types[0]).all()", "(types == types[0]).any()"):
        assert Counting(model, task).has_lines
    assert not Counting(beside_bos(K=2), Task.of(NAME, types=2)).has_lines  # no last length, no longest line


@pytest.mark.parametrize("pe", ["nope", "rope"])
def test_beyond_the_first_run_every_string_is_right(pe):
    """On a^r all answers are one (C-I1), so that 2..r are wrong; from the first other token on none is."""
    model = unmixed(K=3, N=5, pe=pe)
    assert unmixed(K=10, N=128, layernorm=False).W_U.shape[0] == 4
    for string in itertools.product(range(3), repeat=5):
        said = model(torch.tensor([string]))[0].argmax(-1).tolist()
        r = next((i for i, token in enumerate(string) if token != string[0]), 5)
        assert said == [1] * r + [0] * (5 - r)


def test_the_command(capsys, tmp_path):
    given = ("inductive", "--task", NAME)
    code, found = as_json(capsys, *given, "--distinct-start", "--length", "50", "--no-layernorm")
    assert code == 0 and found["claim"] == "C-T11" and found["inputs_covered"] == str(10**50)
    assert found["parameters"]["d"] == 4 and found["parameters"]["n_heads"] == found["parameters"]["layers"] == 1
    code, found = as_json(capsys, *given, "--bos")
    assert code == 0 and found["claim"] == "C-T12" and found["length"] == "all"
    code, found = as_json(capsys, *given, "--pe", "spe", "--positions", "20", "--precision", "float32")
    assert (
        code == 0
        and found["claim"] == "C-T4"
        and found["inputs_covered"] == str(sum(10**n * (21 - n) for n in range(1, 21)))
    )
    assert run(capsys, *given)[0] == 2 and "C-I1" in run(capsys, *given)[2]
    code, out, _ = run(capsys, *given, "--distinct-start")
    assert code == 3 and "Give --length" in out
    code, _, err = run(capsys, *given, "--distinct-start", "--length", "9", "--heads", "2")
    assert code == 2 and "--heads" in err
    path = tmp_path / "m.safetensors"
    path.write_bytes(as_bytes(unmixed(K=3, N=1), {}))
    stored = (*given, "--weights", str(path), "--types", "3", "--distinct-start", "--length")
    assert run(capsys, *stored, "3")[0] == 0 and run(capsys, *stored, "6")[0] == 3


def test_sizes_that_do_not_go_are_refused():
    with pytest.raises(BadInput, match="types=1"):
        unmixed(K=1, N=4)
    with pytest.raises(BadInput, match="pe='ape'"):
        unmixed(K=2, N=4, pe="ape")
    with pytest.raises(BadInput, match="no task on strings"):
        Task.of("modular", distinct_start=True)
