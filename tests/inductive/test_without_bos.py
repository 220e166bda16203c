"""Selective counting without BOS in two layers: every verdict against an independent run of every string."""

import itertools
import math
import random

import pytest
import torch
from command import as_json, run
from models import counting_decoders as models
from models.selection import first
from oracles import decoder as oracle
from oracles.inductive import right
from oracles.operations import Rounded
from planted import planted

from constructions.decoder_arrays import DecoderArrays
from constructions.errors import BadInput
from constructions.inductive import unmarked, with_layernorm
from verify.arithmetic.readings import Real, reading_of
from verify.counting.tasks import Task
from verify.frame.certificate import Verdict
from verify.frame.decide import certify, exhaustive
from verify.tasks.inductive import boxes, marked, noisy, sharp, uniform
from verify.tasks.inductive.task import Counting

STYLES = ("built", "changed", "changed", "changed", "nudged", "soft", "flag", "gates", "drawn", "scores", "table")
BITS = {"float32": (24, -126), "bfloat16": (8, -126), "float16": (11, -14)}
NEAR = 1e-6
HIDDEN = 1e-4  # of the logits: loud lanes hide so much of sinusoids from float64


def decoder(seed, largest=6, style=None):
    """A task on strings, a decoder of two layers that counts well, nearly, or not at all, and a length."""
    rng = random.Random(seed)
    pe, K, C, m = (
        rng.choice(["ape", "spe", "nope", "rope"]),
        rng.randint(2, 3),
        rng.randint(1, 4),
        rng.choice([0, 2, 3]),
    )
    n = rng.randint(2, largest - (K == 3))
    is_distinct = pe in ("nope", "rope") and rng.random() < 0.85
    sizes = {"types": K, "max_count": C, "distinct_start": is_distinct} | ({"modulus": m} if m else {})
    task = Task.of("selective-modular" if m else "selective", **sizes)
    N = rng.choice([n, n, max(1, n // 2 - 1)])  # the last marks tokens that are not first
    model = unmarked(K=K, C=C, m=task.m, pe=pe, N=N, positions=n + rng.randint(0, 2))
    model = with_layernorm(model) if rng.random() < 0.4 else model
    return task, spoilt(rng, model, style or rng.choice(STYLES), K, task), n


def sinusoidal(seed, style):
    """The same with SinePE, whose first token's id is read from waves; as `decoder`."""
    rng = random.Random(f"sines {seed}")
    C, m, n = rng.randint(1, 3), rng.choice([0, 2]), rng.randint(2, 4)
    task = Task.of("selective-modular" if m else "selective", types=2, max_count=C, **({"modulus": m} if m else {}))
    model = unmarked(K=2, C=C, m=task.m, pe="sine", layernorm=rng.random() < 0.6, positions=n + rng.randint(0, 2))
    return task, spoilt(rng, model, style, 2, task), n


def spoilt(rng, model, style, K, task):
    """The decoder with some of its numbers changed."""
    one, two = model.blocks
    with torch.no_grad():
        if style == "changed":
            for _ in range(rng.randint(1, 3)):
                models.changed(rng, model)
        elif style == "nudged":
            models.nudged(rng, model, rng.choice([1e-4, 1e-3, 1e-2, 5e-2]))
        elif style == "soft":
            one.attention.W_K.mul_(rng.choice([0.01, 0.02, 0.04, 0.06, 0.1, 0.15, 0.25]))
            one.mlp.b_in.add_(rng.choice([0.0, 0.0, 0.5, 0.7, 0.8, 0.9, 0.95]))
        elif style == "table" and model.pe == "ape":
            model.W_pos[rng.randrange(len(model.W_pos)), rng.randrange(model.W_pos.shape[1])] += rng.choice([-0.7, 0.7])
        elif style == "flag":
            one.mlp.b_in.add_(rng.choice([-0.5, -0.2, 0.2, 0.5, 1.0, 1.5]))
        elif style == "gates":
            model.W_E[:, K : 2 * K].mul_(rng.choice([0.05, 0.1, 0.2, 0.3, 0.6]))
        elif style == "drawn":
            models.nudged(rng, model, 0.5)
            models.fit(model, task)
        elif style == "scores":
            two.attention.W_Q.normal_(generator=torch.Generator().manual_seed(rng.randrange(2**31)))
            two.attention.W_K.copy_(two.attention.W_Q)
    return model.eval()


def domain(task, n):
    """Every string of n tokens, but those whose first two are equal where the task leaves them out."""
    every = itertools.product(range(task.K), repeat=n)
    return [string for string in every if not (task.has_distinct_start and n > 1 and string[0] == string[1])]


def truth(task, model, n):
    """The shortest wrong length, the least margin, and the least of length times margin, of all strings and shifts."""
    m, wrong, least, scaled = oracle.stored(model), math.inf, math.inf, math.inf
    for length in range(1, n + 1):
        strings = domain(task, length)
        for shift in range(1 if model.pe == "nope" else model.positions - length + 1):
            logits = oracle.fast(m, strings, shift)
            near = (HIDDEN if model.pe == "sine" else NEAR) * (1 + abs(logits).max())
            for string, row in zip(strings, logits, strict=True):
                due = right(task.name, string, m=task.m, C=task.C)
                margin = oracle.margins(row, due)[-1]
                if abs(margin) < near:
                    margin = oracle.margins(oracle.slow(m, string, shift), due)[-1]
                    margin = 0.0 if abs(margin) < 1e-50 else float(margin)
                least, scaled = min(least, margin), min(scaled, length * margin)
                wrong = wrong if margin > 0 else min(wrong, length)
    return wrong, least, scaled


def decide(seed, style=None, draw=decoder):
    """What is proved of a decoder against all its strings: "proved", "wrong", "open", or "unfit" for the argument."""
    task, model, n = draw(seed, style=style)
    if not marked.applies(DecoderArrays.of(model), task):
        return "unfit"
    found = marked.decide(DecoderArrays.of(model), task, n, Real(), 30.0)
    wrong, least, scaled = truth(task, model, n)
    assert found.length < wrong, f"WRONG PROVED: {seed}"
    if found.length == n:
        assert found.margin <= least + 1e-9 * (1 + abs(least)), seed
        assert found.margin_scaled <= scaled + 1e-9 * (1 + abs(scaled)), seed
        return "proved"
    assert style != "built" or wrong <= n, f"built, right and not proved: {seed}"
    return "wrong" if wrong <= n else "open"


def decide_rounded(seed):
    """A proof in a dtype against evaluations in random orders, fused or not, flushed or not."""
    name = list(BITS)[seed % 3]
    task, model, n = decoder(seed, largest=4, style=("built", "nudged", "changed")[seed // 3 % 3])
    if not marked.applies(DecoderArrays.of(model), task):
        return "unfit"
    found = marked.decide(DecoderArrays.of(model), task, n, reading_of(name), 30.0)
    rng, m = random.Random(seed), oracle.stored(model)
    for _ in range(3 if found.length else 0):
        string = rng.choice(domain(task, rng.randint(1, found.length)))
        shift = 0 if model.pe == "nope" else rng.randint(0, model.positions - len(string))
        field = Rounded(BITS[name][0], rng, BITS[name][1])
        due = right(task.name, string, m=task.m, C=task.C)
        margin = min(oracle.margins(oracle.slow(m, string, shift, field, passes=rng.choice([1, 2])), due))
        assert margin >= found.margin > 0, f"WRONG PROVED in {name}: {seed}"
    return "proved" if found.length == n else "open"


def parts(few, many, step):
    """Ranges of seeds, of which the first, a short one, runs by default."""
    return first(1, [few, *(range(i, i + step) for i in range(0, many, step))])


@pytest.mark.parametrize("seeds", parts(range(8), 1600, 200))
def test_every_string(seeds):
    assert {decide(seed) for seed in seeds} >= {"proved", "wrong"}


@pytest.mark.parametrize("seeds", parts(range(6), 240, 40))
def test_every_string_with_sinusoids(seeds):
    styles = ("built", "changed", "nudged", "flag", "gates", "soft")
    assert {decide(seed, styles[seed % 6], sinusoidal) for seed in seeds} >= {"proved", "wrong"}


@pytest.mark.parametrize("seeds", parts([0], 180, 60))
def test_dtypes_are_attacked(seeds):
    assert "proved" in {decide_rounded(seed) for seed in seeds}


FAULTS = (  # where, what it says, what it says wrongly there, the decoders that show it
    (boxes, "rows", "k + (s == t)", "k", "built"),
    (boxes, "rows", "count <= (task.C or 1)", "count < (task.C or 1)", "changed"),
    (boxes, "rows", "np.arange(len(tokens.first.mid))", "np.arange(1)", "changed"),
    (boxes, "means", "1 / (hi + 1) * (1 - 2.0**-52)", "1 / (lo + 1)", "built"),
    (boxes, "means", "tokens.first[s]", "tokens.values[s]", "flag"),
    (boxes, "others_hull", "np.where(is_own, np.inf, low).min(1)", "low.max(0)", None),
    (marked, "applies", "or not uniform.has_zero_scores(model.blocks[1])", "", "scores"),
    (marked, "_has_shares", "task.has_distinct_start and ", "", "built"),
    (marked, "decide", "if not least > 0:", "if False:", None),
    (marked, "by_shares", "(1 / n, 1 - 1 / n)", "(1 / n, 1 / n)", None),
    (marked, "by_positions", "slice(i, i + n)", "slice(0, min(n, end - together - i))", "table"),
    (marked, "by_positions", "range(together, min(together + TOGETHER, end - 1))", "[together]", "table"),
    (marked, "first_tokens", "uniform.after(at, model, x, mixed, 0)", "x", None),
    (marked, "_enclosed", "boxes.hull(rows)", "boxes.hull(rows.each(lambda a: a[:, :1]))", "changed"),
    (sharp, "reached", "(weights * apart).sum(1)", "0 * apart.sum(1)", "soft"),
    (uniform, "_heard", "(out != 0).any(1)", "(out > 0).any(1)", "built"),
    (uniform, "written", "(W != 0).any(0)", "(W > 0).any(0)", "built"),
    (noisy, "lanes_read", "(W != 0).any(1)", "(W > 0).any(1)", "built"),
)  # fmt: skip


@pytest.mark.parametrize("fault", first(2, [(fault,) for fault in FAULTS]))
def test_planted_faults_are_caught(fault):
    owner, name, says, wrongly, style = fault
    with planted(owner, name, says, wrongly), pytest.raises((AssertionError, IndexError, RuntimeError)):
        for seed in range(300):
            decide(seed, style)


@pytest.mark.deep
@pytest.mark.parametrize("layernorm", [False, True])
@pytest.mark.parametrize("pe", ["ape", "spe", "sine", "nope", "rope"])
def test_all_strings_of_three_types_up_to_length_9(pe, layernorm):
    task = Task.of("selective", types=3, max_count=9, distinct_start=pe in ("nope", "rope"))
    model = unmarked(K=3, C=9, pe=pe, N=9, layernorm=layernorm, positions=10)
    found = certify(Counting(model, task, 9))
    assert found.verdict is Verdict.PROVED and truth(task, model, 9)[0] == math.inf
    assert found.inputs_covered == sum(len(domain(task, n)) * (1 if pe == "nope" else 11 - n) for n in range(1, 10))


def test_runs_cover_the_same_strings():
    for pe, task in (("spe", Task.of("selective", types=2, max_count=3)),
                     ("nope", Task.of("selective", types=3, max_count=2, distinct_start=True))):  # fmt: skip
        model = unmarked(K=task.K, C=task.C, pe=pe, N=4, layernorm=True, positions=5)
        problem = Counting(model, task, 4)
        found, ran = certify(problem), exhaustive(problem)
        assert found.verdict is ran.verdict is Verdict.PROVED and found.inputs_covered == ran.inputs_covered


def test_what_is_said_of_strings_that_begin_with_equal_tokens():
    """a^r marks r tokens as first, so that a count k is told as k/r: the nearest whole number."""
    model = unmarked(K=2, C=6, pe="nope", N=16)
    for r in (2, 3, 4):
        said = model(torch.tensor([(0,) * r + (1, 0, 0, 1)]))[0].argmax(-1).tolist()
        for answer, count in zip(said, [*range(1, r + 1), 1, r + 1, r + 2, 2], strict=True):
            due = 1.0 if answer == said[0] and count <= r else count / r  # of a^r itself all answers are one
            assert abs(answer - due) <= 0.5 or answer == 1 == round(due) + 1


def test_command(capsys, tmp_path):
    path = str(tmp_path / "m.safetensors")
    sizes = ("--task", "selective", "--types", "3", "--max-count", "3")
    code, found = as_json(capsys, "inductive", *sizes, "--pe", "ape", "--layers", "2", "--positions", "12")
    assert code == 0 and found["claim"] == "C-T7"
    assert (found["length"], found["longest"]) == ("all", 12)
    assert found["parameters"]["layers"] == 2 and "distinct_start" not in found["parameters"]
    short = ("--pe", "nope", "--distinct-start", "--length", "9")
    assert run(capsys, "inductive", *sizes, *short, "--save", path)[0] == 0
    code, found = as_json(capsys, "inductive", *sizes, *short, "--precision", "float32")
    assert code == 0 and found["length"] == 9 and found["parameters"]["distinct_start"] is True
    code, found = as_json(capsys, "inductive", *sizes, *short, "--weights", path)
    assert code == 0 and found["claim"] is None and found["inputs_covered"] == str(3 + sum(6 * 3**n for n in range(8)))
    assert run(capsys, "inductive", *sizes)[2].startswith("impossible (C-I2)")
    for more, expected in (
        (("--pe", "nope", "--distinct-start"), 3), (("--pe", "sine", "--positions", "9999"), 3),
        (("--pe", "sine", "--positions", "9999", "--no-layernorm"), 3),
        (("--pe", "ape", "--layers", "3"), 2), (("--pe", "spe", "--heads", "2"), 2),
        (("--model", "rnn", "--distinct-start"), 2),
    ):  # fmt: skip
        code, out, err = run(capsys, "inductive", *sizes, *more)
        assert code == expected and (out + err).count("\n") == 1, more
    for task, expected in (("modular", 2), ("first-heterogeneous", 3)):  # the latter up to a length alone
        assert run(capsys, "inductive", "--task", task, "--distinct-start")[0] == expected
    with pytest.raises(BadInput, match="one type"):
        Task.of("selective", types=1, distinct_start=True)
    with pytest.raises(BadInput, match="Give N"):
        unmarked(K=2, C=2, pe="rope")


@pytest.mark.deep
def test_strings_that_begin_alike_are_refuted(capsys, tmp_path):
    path = str(tmp_path / "m.safetensors")
    sizes = ("--task", "selective", "--types", "3", "--max-count", "3", "--length", "4")
    assert run(capsys, "inductive", *sizes, "--pe", "nope", "--distinct-start", "--save", path)[0] == 0
    code, found = as_json(capsys, "inductive", *sizes, "--weights", path)
    assert code == 1 and len(set(found["counterexample"]["input"])) == 1
