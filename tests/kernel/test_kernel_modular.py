"""Saved proofs of modular adders as theorems: what is accepted, and what is refused."""

import dataclasses
import json
import math
import re
import shutil
from fractions import Fraction

import pytest
import torch
from command import as_json, run
from models.kernel import answered, needs_coqc

from constructions.adder.transformer import AdderTransformer, to_bytes
from constructions.errors import BadInput
from constructions.modular import clock, one_neuron, pizza, staircase
from verify.commands.cli import main
from verify.kernel.compiler import ALLOWED_AXIOMS, library
from verify.kernel.pairs import PREAMBLE, check_of, read_pairs
from verify.kernel.stored import read_folder

LAYER = ("W_Q", "W_K", "W_V", "W_O", "W_1", "b_1", "W_2")


@pytest.fixture(scope="module")
def proof(tmp_path_factory):
    folder = tmp_path_factory.mktemp("kernel") / "proof"
    assert main(["modular", "--P", "5", "--construction", "clock", "--K", "2", "--save", str(folder)]) == 0
    return folder


@pytest.fixture
def saved(proof, tmp_path):
    """A copy for each test, which may write into it."""
    return shutil.copytree(proof, tmp_path / "proof")


def saved_model(capsys, module, folder, **told):
    """The code of `verify modular` on a module, which is saved; a refuted one as proved, by a margin of 2^-60."""
    folder.mkdir()
    path, P = folder / "model.safetensors", module.classes
    path.write_bytes(to_bytes(module))
    code, _, err = run(capsys, "modular", "--P", str(P), "--weights", str(path), "--save", str(folder / "proof"))
    assert code in (0, 1), err
    at = folder / "proof" / "certificate.json"
    about = json.loads(at.read_text())
    if code:
        pairs = {"inputs_covered": str(P * P), "counts": {"right": str(P * P), "wrong": "0"}}
        about |= {"verdict": "PROVED", "counterexample": None, "margin": 2.0**-60, "reason": None, **pairs}
        about["tightest"] = {"input": [0, 0], "margin": 2.0**-60}
    at.write_text(json.dumps(about | told))
    return code


def read(folder):
    return read_pairs(str(folder), *read_folder(str(folder)))


def accepted(checks):
    """For each check whether it says true, from one run of coqc."""
    return answered([check.call for check in checks], PREAMBLE, library(("PairsCorrect",))[0])


def tensors_of(module):
    return {**dict(module.named_parameters()), **{name: getattr(module.layers[0], name) for name in LAYER}}


def test_the_theorem_says_every_word(saved, capsys):
    stored, named = read(saved), tensors_of(clock(P=5, frequencies=(1, 2)))
    for name, words in stored.words.items():
        expected = named[name].detach().view(torch.int64).reshape(-1).tolist()
        assert [word for row in words for word in row] == [word % 2**64 for word in expected]
    text = run(capsys, "kernel", str(saved))[1]
    margin, shift = map(int, re.search(r"file_adds weights (\d+) (\d+)\.", text).groups())
    said = json.loads((saved / "certificate.json").read_text())["margin"]
    assert Fraction(margin, 2**shift) == Fraction(said)
    for row in stored.words["W_1"]:
        assert "[" + "; ".join(f"{word:#x}" if word else "0" for word in row) + "]" in text


@pytest.mark.parametrize("margin", [0.5, math.nextafter(0.5, 1), 1e300, 2.0**-1000 * (1 + 2.0**-52), 5e-324])
def test_the_theorem_says_the_margin_itself(saved, margin):
    check = check_of(dataclasses.replace(read(saved), margin=margin))
    assert Fraction(check.margin, 2**check.shift) == Fraction(margin)


ODD = (0, 1, 5.0, 10**400, True, None, "25", 5e-324, [], {"P": 5})


def test_whatever_is_said_in_the_theorem_cannot_be_changed(saved):
    """Every field, and every parameter, that is not printed as unsaid: another value is refused."""
    data, original = read_folder(str(saved))
    unsaid = {*read(saved).unsaid}
    assert unsaid == {
        "argument", "claim", "error_share", "margin_exact", "method", "parameters.construction",
        "parameters.frequencies", "parameters.orbit", "seconds", "tightest.input",
    }  # fmt: skip
    places = [(original, key) for key in original] + [(original["parameters"], key) for key in original["parameters"]]
    places += [(original["counts"], "wrong"), (original["tightest"], "margin"), (original["tightest"], "input")]
    places = [(holder, key) for holder, key in places if {key, f"parameters.{key}"}.isdisjoint(unsaid | {"schema"})]
    assert len(places) > 20
    for holder, key in places:
        kept = holder.pop(key)
        with pytest.raises(BadInput):
            read_pairs(str(saved), data, original)
        for odd in ODD:
            if json.dumps(odd) != json.dumps(kept):
                holder[key] = odd
                with pytest.raises(BadInput):
                    read_pairs(str(saved), data, original)
        holder[key] = kept
    read_pairs(str(saved), data, original)


@pytest.mark.parametrize(
    "forge",
    [
        lambda about: about["parameters"].update(layout="grokking"),
        lambda about: about.update({"x\n": 1}),
        lambda about: about.update(reading="dtype, any order"),
        lambda about: about.update(verdict="REFUTED"),
        lambda about: about.update(tightest=[1, 2]),
        lambda about: about["tightest"].update(is_only=True),
    ],
)
def test_a_certificate_of_anything_else_is_refused(saved, capsys, forge):
    about = json.loads((saved / "certificate.json").read_text())
    forge(about)
    (saved / "certificate.json").write_text(json.dumps(about))
    code, out, err = run(capsys, "kernel", str(saved))
    assert code == 2 and out == "" and err.count("\n") == 1


@pytest.mark.parametrize(
    "module",
    [
        AdderTransformer(tokens=6, length=3, classes=5, d=2, p=(2, 2)),
        AdderTransformer(tokens=6, length=4, classes=5, d=2),
        AdderTransformer(tokens=7, length=3, classes=5, d=2),
        AdderTransformer(tokens=2, length=3, classes=1, d=2),
        AdderTransformer(tokens=6, length=3, classes=5, d=2, skip=False),
        clock(P=5, frequencies=(1, 2), dtype=torch.float32),
    ],
)
def test_other_models_are_refused(saved, capsys, module):
    (saved / "weights.safetensors").write_bytes(to_bytes(module))
    code, out, err = run(capsys, "kernel", str(saved))
    assert code == 2 and out == "" and err.count("\n") == 1


# ---- What the check accepts, against an oracle in fractions


def exact_margin(module):
    """The least lead over all pairs, in fractions, by the formula of a layer with uniform attention."""
    W = {name: weights.detach().double().tolist() for name, weights in tensors_of(module).items()}
    P, skip = module.classes, int(module.has_skip)

    def times(v, M):
        return [sum((Fraction(x) * Fraction(w) for x, w in zip(v, column, strict=True)), Fraction(0)) for column in M]

    def columns(M, n):
        return [[row[c] for row in M] for c in range(n)]

    def placed(token, i):
        return [Fraction(e) + Fraction(x) for e, x in zip(W["E"][token], W["positions"][i], strict=True)]

    least = None
    d, p = len(W["positions"][0]), len(W["b_1"])
    for a in range(P):
        for b in range(P):
            three = [placed(a, 0), placed(b, 1), placed(P, 2)]
            mean = [sum(xs) / 3 for xs in zip(*three, strict=True)]
            x = [skip * own for own in three[2]]
            for V, out in zip(W["W_V"], W["W_O"], strict=True):
                mixed = times(mean, columns(V, len(V[0])))
                x = [old + new for old, new in zip(x, times(mixed, columns(out, d)), strict=True)]
            read = times(x, columns(W["W_1"], p))
            fired = [max(Fraction(0), r + Fraction(bias)) for r, bias in zip(read, W["b_1"], strict=True)]
            y = [skip * old + new for old, new in zip(x, times(fired, columns(W["W_2"], d)), strict=True)]
            logits = times(y, columns(W["W_out"], P))
            logits = [logit + Fraction(bias) for logit, bias in zip(logits, W["b_out"], strict=True)]
            right = logits.pop((a + b) % P)
            least = min(x for x in (least, right - max(logits)) if x is not None)
    return least


def dense(seed, dtype=torch.float64, asks_nothing=False):
    """A model of two heads in which all is random but one of W_Q and W_K, and the readout, which is fitted to the sums.

    No two of its sizes are equal, so that no tensor can be read along the wrong axis. With `asks_nothing` both W_Q and
    W_K are there, and W_Q reads one lane, which is 0 in "=" alone: with the two in each other's place, it attends.
    """
    g = torch.Generator().manual_seed(seed)
    module = AdderTransformer(
        tokens=4, length=3, classes=3, d=6, heads=2, d_h=5, d_v=4, p=(23,), skip=bool(seed % 2), dtype=dtype
    )
    skipped = ("W_Q", "W_K")[seed % 2]
    with torch.no_grad():
        for name, weights in module.named_parameters():
            if asks_nothing or not name.endswith(skipped):
                weights.copy_(torch.randint(-8, 9, weights.shape, generator=g) / 4.0)
        if asks_nothing:
            module.layers[0].W_Q[:, 1:] = 0
            module.E[3, 0] = -module.positions[2, 0]
        pairs = torch.tensor([[a, b, 3] for a in range(3) for b in range(a, 3)])
        module.W_out.zero_()
        module.b_out.zero_()
        streams = torch.stack([_stream(module, lane, pairs) for lane in range(6)], 1)
        wanted = torch.eye(3, dtype=dtype)[pairs[:, :2].sum(1) % 3]
        module.W_out.copy_(torch.linalg.pinv(streams) @ wanted)
    return module


def _stream(module, lane, pairs):
    """One lane of the last stream, by a readout of it alone."""
    module.W_out.zero_()
    module.W_out[lane] = 1
    return module(pairs)[:, -1, 0]


@needs_coqc
@pytest.mark.deep
def test_the_exact_margin_is_accepted_and_no_larger_one(tmp_path, capsys):
    finer = staircase(P=4)  # biases of more bits than what they are added to
    with torch.no_grad():
        finer.layers[0].b_1 += 2.0**-30
        finer.b_out += 2.0**-45
    modules = [
        finer,
        clock(P=5, frequencies=(1, 2)),
        pizza(P=5),
        staircase(P=4),
        one_neuron(P=3),
        *map(dense, range(1, 5)),
        dense(5, asks_nothing=True),
    ]
    checks, is_due = [], []
    for i, module in enumerate(modules):
        margin, folder = exact_margin(module), tmp_path / str(i)
        assert margin > Fraction(1, 10) and saved_model(capsys, module, folder) == 0
        stored = read(folder / "proof")
        check = check_of(stored)
        most = margin * 2**check.shift // 1
        assert check.margin <= most
        checks += [dataclasses.replace(check, margin=int(most) + more) for more in (-1, 0, 1)]
        is_due += [most > 1, True, False]
        floats = [math.nextafter(float(margin), towards) for towards in (0, 10**3)]
        checks += [check_of(dataclasses.replace(stored, margin=nearby)) for nearby in floats]
        is_due += [nearby <= margin for nearby in floats]
    assert accepted(checks) == is_due


def mutated(seed):
    """A construction, or a dense model, with one weight changed, by a little, by much, or in sign; some attend."""
    g = torch.Generator().manual_seed(seed)
    module = (lambda: clock(P=5, frequencies=(1, 2)), lambda: pizza(P=5), lambda: staircase(P=5), lambda: dense(seed))[
        seed % 4
    ]()
    names = ("E", "positions", "W_V", "W_O", "W_1", "b_1", "W_2", "W_out", "b_out")
    with torch.no_grad():
        weights = tensors_of(module)[names[seed % 9]].view(-1)
        i = int(torch.randint(len(weights), (1,), generator=g))
        weights[i] = [weights[i] + 2.0**-8, weights[i] * 1.02 - 0.01, weights[i] + 1, -weights[i], 0.3][seed % 5]
        if seed % 8 == 3:
            module.layers[0].W_Q += 2.0**-20
            module.layers[0].W_K += 2.0**-20
    return module


@needs_coqc
@pytest.mark.deep
def test_mutated_models_are_accepted_exactly_where_verify_proves_them(tmp_path, capsys):
    """The argument of the check is uniform attention: where scores differ it does not accept what may be proved."""
    checks, is_due, attending = [], [], 0
    for seed in range(36):
        module = mutated(seed)
        layer = module.layers[0]
        own = module.E[-1] + module.positions[2]
        attends = bool((own @ layer.W_Q).any() and layer.W_K.any())
        is_proved = saved_model(capsys, module, tmp_path / str(seed)) == 0
        attending += attends and is_proved
        is_due.append(is_proved and not attends)
        checks.append(check_of(read(tmp_path / str(seed) / "proof")))
    assert 8 < sum(is_due) < 28 and attending
    assert accepted(checks) == is_due


@needs_coqc
@pytest.mark.deep
def test_more_than_the_certificate_says_is_refused(saved, tmp_path, capsys):
    stored = read(saved)
    sign = stored.words["W_out"][2][1] ^ (1 << 63)

    def with_words(name, rows):
        return dataclasses.replace(stored, words={**stored.words, name: rows})

    row = stored.words["W_out"][2]
    wrong = [
        dataclasses.replace(stored, margin=stored.margin * 1.001),
        dataclasses.replace(stored, is_skipped=False),
        with_words("W_out", (*stored.words["W_out"][:2], (row[0], sign, *row[2:]), *stored.words["W_out"][3:])),
        with_words("b_out", (stored.words["b_out"][0][:-1],)),
        with_words("E", stored.words["E"][:-1]),
        with_words("positions", stored.words["positions"][:-1]),
        with_words("W_V", stored.words["W_V"][:-1]),
        *(dataclasses.replace(stored, sizes={**stored.sizes, name: 6}) for name in ("P", "d", "d_h", "d_v", "p")),
    ]
    right = check_of(stored)
    checks = [right, *map(check_of, wrong)]
    checks += [dataclasses.replace(right, margin=margin) for margin in (0, -1)]
    checks += [dataclasses.replace(right, shift=right.shift - 1)]
    for name in ("placed", "value", "out", "read", "write", "logit"):
        less = re.sub(
            rf"{name}_scale := (\d+)", lambda found: f"{found[0][: -len(found[1])]}({int(found[1]) - 1})", right.scales
        )
        checks.append(dataclasses.replace(right, scales=less))
    assert accepted(checks) == [True] + [False] * (len(checks) - 1)


@needs_coqc
@pytest.mark.deep
@pytest.mark.parametrize(
    "options",
    [
        ("--P", "31", "--construction", "clock", "--K", "2"),
        ("--P", "113", "--dtype", "float32"),
        ("--P", "11", "--construction", "pizza", "--dtype", "bfloat16"),
        ("--P", "2", "--construction", "one-neuron", "--dtype", "float16"),
    ],
)
def test_a_saved_proof_becomes_a_theorem(options, tmp_path, capsys):
    assert run(capsys, "modular", *options, "--save", str(tmp_path / "proof"))[0] == 0
    code, about = as_json(capsys, "kernel", str(tmp_path / "proof"), "--run")
    assert code == 0 and about["verdict"] == "PROVED" and about["seconds"] < 30
    assert about["statement"].startswith("file_adds weights ") and set(about["axioms"]) <= ALLOWED_AXIOMS


@needs_coqc
@pytest.mark.deep
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_the_least_subnormal_and_minus_zero_are_numbers_of_the_theorem(dtype, tmp_path, capsys):
    module = staircase(P=3, dtype=dtype)
    with torch.no_grad():
        module.E[0, 0] = torch.nextafter(torch.zeros(1, dtype=dtype), torch.ones(1, dtype=dtype))[0]
        module.positions[:] = -0.0
    assert saved_model(capsys, module, tmp_path / "model") == 0
    stored = read(tmp_path / "model" / "proof")
    assert stored.words["E"][0] == (1,) and stored.words["positions"] == ((1 << (stored.format.width - 1),),) * 3
    check = check_of(stored)
    less = re.sub(r"placed_scale := (\d+)", lambda found: f"placed_scale := {int(found[1]) - 1}", check.scales)
    assert accepted([check, dataclasses.replace(check, scales=less)]) == [True, False]


@needs_coqc
@pytest.mark.deep
def test_a_model_without_neurons_is_a_file_too(tmp_path, capsys):
    """No such model adds, so that nothing is accepted; its file is one of the theorem's all the same."""
    module = AdderTransformer(tokens=3, length=3, classes=2, d=2)
    assert saved_model(capsys, module, tmp_path / "model") == 1
    assert accepted([check_of(read(tmp_path / "model" / "proof"))]) == [False]
