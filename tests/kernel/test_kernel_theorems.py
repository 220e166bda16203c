"""Theorems that Coq's kernel checks, and false ones that it refuses."""

import dataclasses
import math
import re
from fractions import Fraction
from pathlib import Path

import pytest
import torch
from command import as_json, run
from models.kernel import accepted, needs_coqc
from models.random_models import BUILDERS

from constructions import relation_counting
from constructions.adder.digits import Digits
from constructions.addition import one_head
from constructions.checkpoint import as_bytes
from constructions.count01 import documents, uniform
from constructions.histogram import MODELS
from constructions.modular import staircase
from verify.frame.certificate import Verdict
from verify.kernel.compiler import ALLOWED_AXIOMS, SOURCES, compile_theorem, library, sources
from verify.kernel.general import GENERAL
from verify.kernel.stored import read_saved, read_weights
from verify.kernel.theorem import check_inputs, state
from verify.tasks.histogram.proof import certify

pytestmark = [needs_coqc, pytest.mark.deep]  # the kernel step of CI runs them
TOKENS_IN_COQ = ("BOS", "Zero", "One", "Two", "Equals", "Four", "Five", "EOS")
TRAINED = Path(__file__).parents[1] / "data" / "trained_bos_T4_L3_d4_p8.safetensors"


def stored_of(module, margins):
    return read_weights(as_bytes(module, claim=None, construction=None), margins)


def proved(module):
    """The stored model with the margins of its certificate."""
    certificate = certify(module)
    assert certificate.verdict is Verdict.PROVED
    return stored_of(module, certificate.margin_per_count)


def test_a_saved_proof_becomes_a_theorem(tmp_path, capsys):
    folder = str(tmp_path / "proof")
    run(capsys, "histogram", "--model", "dot+sftm", "--T", "4", "--L", "3", "--basis", "random", "--save", folder)
    code, about = as_json(capsys, "kernel", folder, "--run")
    assert code == 0 and about["verdict"] == "PROVED" and about["reason"] is None
    assert set(about["axioms"]) <= ALLOWED_AXIOMS


@pytest.mark.deep
def test_all_models_and_formats_are_accepted():
    models = [build(T=8, L=6) for builders in BUILDERS.values() for build in builders]
    models += [
        relation_counting.dot(T=5, L=4, dtype=getattr(torch, name)) for name in ("float64", "float16", "bfloat16")
    ]
    models += [build(T=4, L=3, basis="random", dtype=torch.float64) for build in (relation_counting.bos_sftm,)]
    assert all(accepted(check_inputs(proved(module)) for module in models))


def mutated(kind, seed):
    """A construction at T = 4 with one weight changed: by a little, by much, or to zero."""
    g = torch.Generator().manual_seed(seed)
    module = BUILDERS[kind][0](T=4, L=3, dtype=torch.float64)
    names = [name for name, _ in module.named_parameters()]
    with torch.no_grad():
        weights = getattr(module, names[int(torch.randint(len(names), (1,), generator=g))]).view(-1)
        i = int(torch.randint(len(weights), (1,), generator=g))
        weights[i] = [weights[i] + 2.0**-8, weights[i] * 1.02 - 0.01, weights[i] + 1, -weights[i], 0.3][seed % 5]
    return module


def test_mutated_models_are_accepted_exactly_where_verify_proves_them():
    """Regions are split down to single multisets where need be, but not for lin; none of these needs it there."""
    models = [mutated(kind, seed) for kind in MODELS for seed in range(5)]
    certificates = [certify(module) for module in models]
    inputs = [
        check_inputs(stored_of(module, x.margin_per_count if x.verdict is Verdict.PROVED else [2.0**-30]))
        for module, x in zip(models, certificates, strict=True)
    ]
    is_proved = [x.verdict is Verdict.PROVED for x in certificates]
    assert accepted(inputs) == is_proved
    assert 5 < sum(is_proved) < 25


def test_margins_beyond_the_certificates_are_refused():
    stored = proved(relation_counting.dot(T=4, L=3))
    larger = [dataclasses.replace(stored, margins=(x, *stored.margins[1:])) for x in (stored.margins[0] * 1.001, 1.0)]
    larger.append(dataclasses.replace(stored, margins=(*stored.margins[:-1], 0.51)))
    assert accepted(map(check_inputs, larger)) == [False] * 3


def test_another_file_is_refused():
    """A wrong word, shape, number of classes, T, L, d, p, class 0 or kind of model: none is accepted."""
    stored = proved(relation_counting.dot(T=4, L=3))
    words, sizes = stored.words, stored.sizes

    def with_words(name, rows):
        return dataclasses.replace(stored, words={**words, name: rows})

    def with_sizes(**changed):
        return dataclasses.replace(stored, sizes={**sizes, **changed})

    def first_row(name, row):
        return with_words(name, (row, *words[name][1:]))

    sign = words["W_2"][0][0] ^ 0x80000000
    wrong = [
        first_row("W_2", (sign, *words["W_2"][0][1:])),
        first_row("b_2", (*words["b_2"][0][:-1], words["b_2"][0][0])),
        first_row("E", words["E"][0][:-1]),
        with_words("E", words["E"][:-1]),
        with_words("W_Q", ()),
        first_row("W_2", words["W_2"][0][:-1]),
        first_row("b_1", ()),
        *(with_sizes(**{name: sizes[name] + step}) for name in ("T", "d", "p", "classes") for step in (1, -1)),
        with_sizes(L=sizes["L"] + 1),  # L - 1 is another true theorem: these weights count shorter sequences as well
        with_sizes(first_count=0),
        dataclasses.replace(stored, model="lin"),
        dataclasses.replace(stored, model="bos"),
        dataclasses.replace(stored, model="dot+sftm"),
    ]
    inputs = [check_inputs(x) for x in wrong]
    for word in ("0x7f800000", "0xffc00001", "0x13f800000", "(-1)"):  # infinity, NaN, and no words of 32 bits
        inputs.append(dataclasses.replace(inputs[0], weights=check_inputs(stored).weights.replace("0x3f800000", word)))
    right = check_inputs(stored)
    inputs += [dataclasses.replace(right, scale=right.scale - 1), dataclasses.replace(right, scale=-1)]
    inputs.append(dataclasses.replace(right, margins=right.margins.replace("[", "[0; ")))
    assert accepted([right, *inputs]) == [True] + [False] * len(inputs)


def test_the_kernel_itself_refuses_a_false_theorem():
    """The check's answer is not taken on trust: Qed evaluates it again."""
    stored = proved(relation_counting.dot(T=3, L=2))
    outcome = compile_theorem(state(dataclasses.replace(stored, margins=(2.0, 2.0))).text, library()[0])
    assert not outcome.is_proved and outcome.axioms is None and outcome.reason


def test_an_axiom_of_ones_own_is_seen():
    text = state(proved(relation_counting.dot(T=3, L=2))).text
    lines = text.splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith("Theorem"))
    lines.insert(at, "Axiom wish : forall x margins shift, file_counts x margins shift.")
    forged = (
        "\n".join(lines)
        .replace("  vm_cast_no_check (eq_refl true).\n", "")
        .replace(
            f"apply (check_correct weights {check_inputs(proved(relation_counting.dot(T=3, L=2))).scale} how)",
            "apply wish",
        )
    )
    outcome = compile_theorem(forged, library()[0])
    assert outcome.axioms is not None and "wish" in outcome.axioms and not outcome.is_proved


@pytest.mark.deep
def test_general_theorems_rest_on_no_axiom_of_ours():
    built, _ = library(sources())
    names = [name for found in GENERAL.values() for name in found]
    lines = [f"From Weightproof Require Import {' '.join(GENERAL)}."]
    lines += [
        f"Definition all_of_them := ({', '.join('@' + name for name in names)}).",
        "Print Assumptions all_of_them.",
    ]
    outcome = compile_theorem("\n".join([*lines, ""]), built)
    assert outcome.is_proved, outcome.reason
    for found in GENERAL:  # and each is a theorem, in a file that admits nothing
        text = (SOURCES / f"{found}.v").read_text()
        assert all(re.search(rf"^Theorem {name}\b", text, re.M) for name in GENERAL[found])
        assert not re.search(r"\b(Admitted|Axiom|Parameter|admit)\b", text)


def test_a_general_theorem_is_asked_for_by_name(capsys):
    code, about = as_json(capsys, "kernel", "--theorem", "uniform_solves")
    assert code == 0 and about["verdict"] == "PROVED" and set(about["axioms"]) <= ALLOWED_AXIOMS
    code, out, err = run(capsys, "kernel", "folder", "--theorem", "uniform_solves")
    assert code == 2 and out == "" and err.count("\n") == 1


def test_the_numbers_of_the_count01_theorem_are_the_builders():
    """The weights that Count01.v writes are those of constructions.count01.uniform."""
    model = uniform()
    text = (SOURCES / "Count01.v").read_text()
    stated = text[text.index("Definition uniform") : text.index("Lemma total_app")]
    tensors = {"e": model.E[:, 0], "W_out": model.W_out[0], "b_out": model.b_out}
    for field, tensor in tensors.items():
        (cases,) = re.findall(rf"\b{field} := fun t => match t with (.*?) \| _ => 0 end", stated)
        found = {name: float(Fraction(x)) for name, x in re.findall(r"(\w+) => (-?[\d/]+)", cases)}
        assert found and [found.get(name, 0.0) for name in TOKENS_IN_COQ] == tensor.tolist()
    assert all(float(W.detach()) == 1 for W in (model.W_Q, model.W_K, model.W_V, model.W_O))


def test_the_numbers_of_the_separating_value_are_the_builders():
    """SeparatingValue.v writes the weights of constructions.count01.documents, with the exact a."""
    text = (SOURCES / "SeparatingValue.v").read_text()
    stated = text[text.index("Definition documents") : text.index("Definition twos")]
    N, a = 10, 10 + math.e / (1 + math.e)
    numbers = {"N": N, "N + 1": N + 1, "N * N": N * N, "-12 * (N + 1)": -12 * (N + 1)}
    numbers |= {"separating_value N + 1": a + 1, "- (separating_value N + 1)": -(a + 1)}
    model = documents(N)
    for field, tensor in {"e": model.E[:, 0], "W_out": model.W_out[0], "b_out": model.b_out}.items():
        (cases,) = re.findall(rf"\b{field} := fun t => match t with(.*?)\| _ => 0 end", stated, re.DOTALL)
        found = {name: text.strip() for name, text in re.findall(r"(\w+) => ([^|]+)", cases)}
        values = [float(numbers.get(x, x)) for x in (found.get(name, "0") for name in TOKENS_IN_COQ)]
        assert found and values == pytest.approx(tensor.tolist(), abs=1e-12)


def test_the_numbers_of_the_staircase_are_the_builders():
    """Addition.v writes the weights of constructions.modular.staircase as a model of Pairs.v."""
    P = 7
    model, text, c = staircase(P=P), (SOURCES / "Addition.v").read_text(), range(P)
    stated = text[text.index("Definition staircase") : text.index("Lemma staircase_embeds")]
    layer, zero = model.blocks[0], [[[0.0]]]
    said = {
        "keeps_stream := true;": (model.skip, True),
        "tokens := map (fun t => [3 * INR t]) (seq 0 P) ++ [[0]];": (model.E, [*([3.0 * t] for t in c), [0.0]]),
        "positions := [[0]; [0]; [0]];": (model.positions, [[0.0]] * 3),
        "head_q := [[0]];": (layer.W_Q, zero),
        "head_k := [[0]];": (layer.W_K, zero),
        "head_v := [[1]];": (layer.W_V, [[[1.0]]]),
        "head_o := [[1]] |}]": (layer.W_O, [[[1.0]]]),
        "mlp_1 := [[1; 1]];": (layer.W_1, [[1.0, 1.0]]),
        "bias_1 := [1 - INR P; - INR P];": (layer.b_1, [1.0 - P, -float(P)]),
        "mlp_2 := [[- INR P]; [INR P]];": (layer.W_2, [[-float(P)], [float(P)]]),
        "readout := [map INR (seq 0 P)];": (model.W_out, [[float(x) for x in c]]),
        "bias_out := map (fun c => - (INR c * INR c / 2)) (seq 0 P)": (model.b_out, [-x * x / 2 for x in c]),
    }
    for words, (tensor, numbers) in said.items():
        assert words in stated and tensor.tolist() == numbers


def test_the_numbers_of_the_column_theorem_are_the_builders():
    """Addition.v writes the weights of constructions.addition.one_head, with exact logarithms."""
    n, B = 3, 10
    model = one_head(n=n, B=B)
    layer, sums = model.blocks[0], Digits(n, B)
    columns = range(2, 2 + n + 1)
    never = (n + 2) * math.log(B) + math.log(sums.length) + 12
    for i in range(n + 1):
        query = model.positions[sums.query(i)] + model.E[sums.equals]
        scores = []
        for position in range(sums.query(i) + 1):
            key = model.positions[position] + (model.E[sums.plus] if position == n else 0)
            scores.append(float((query @ layer.W_Q[0]) @ (key @ layer.W_K[0])))
        seen = min(i + 1, n)
        weights = [B ** (j - i) for j in range(seen)]
        for place, score in enumerate(scores):
            if place == n:
                assert score == pytest.approx(math.log(4 - 2 * sum(weights)))
            elif place in (found := {f(j): j for j in range(seen) for f in (sums.first, sums.second)}):
                assert score == pytest.approx(math.log(weights[found[place]]), abs=1e-12)
            else:
                assert score <= -never
    assert layer.W_O[0, 0, 1] == 4 and layer.W_1[1].tolist() == [B**n] * 2 and layer.W_2[:, 1].tolist() == [-B, B]
    assert layer.b_1.tolist() == [1 - B * B**n, -B * B**n] and len(columns) == n + 1
    readout = [c * (-0.5 + 1 / (2 * B**n)) - c * c / 2 for c in range(B)]
    assert model.W_out[1].tolist() == list(range(B)) and model.b_out.tolist() == pytest.approx(readout)


def test_a_trained_model_is_split_down_to_multisets(tmp_path, capsys):
    """Its neurons are undecided over a whole count: without splitting the check does not show the margins."""
    folder = str(tmp_path / "proof")
    assert run(capsys, "histogram", "--weights", str(TRAINED), "--save", folder)[0] == 0
    inputs = check_inputs(read_saved(folder))
    unsplit = dataclasses.replace(inputs, how=re.sub(r"splits := \d+", "splits := 0", inputs.how))
    assert accepted([inputs, unsplit]) == [True, False]


@pytest.mark.deep
@pytest.mark.parametrize("model, seconds", [("dot", 15), ("dot+sftm", 60)])
def test_all_sequences_of_the_largest_example(model, seconds, tmp_path, capsys):
    folder = str(tmp_path / "proof")
    run(capsys, "histogram", "--model", model, "--T", "32", "--L", "10", "--d", "32", "--save", folder)
    code, about = as_json(capsys, "kernel", folder, "--run")
    assert code == 0 and about["verdict"] == "PROVED" and about["seconds"] < seconds
