"""The exported set: what other readers and onnxruntime make of it is what was proved; needs the extra `export`."""

import csv
import json
from dataclasses import replace
from fractions import Fraction
from itertools import product

import pytest
import torch
from command import run
from oracles.vnnlib_text import is_met

onnxruntime = pytest.importorskip("onnxruntime", reason="the extra `export` is not installed")
pytest.importorskip("onnx", reason="the extra `export` is not installed")

from constructions import inventory_counting, relation_counting  # noqa: E402
from constructions.errors import BadInput  # noqa: E402
from verify.export.instances import BUILDERS, instances, parity_layer  # noqa: E402
from verify.export.networks import histogram_network  # noqa: E402
from verify.export.running import check  # noqa: E402
from verify.export.scalar import ScalarLayer  # noqa: E402

T, L = 2, 2


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    from verify.commands.cli import main

    folder = tmp_path_factory.mktemp("set") / "out"
    assert main(["export", str(folder), "--T", str(T), "--L", str(L)]) == 0
    return folder


def answers(folder):
    return json.loads((folder / "answers.json").read_text())


def test_at_least_thirty_instances_of_both_answers(written):
    found = [entry["answer"] for entry in answers(written).values()]
    assert len(found) >= 30 and found.count("sat") >= 10 and found.count("unsat") >= 10
    rows = list(csv.reader((written / "instances.csv").read_text().splitlines()))
    assert len(rows) == len(found)
    assert all((written / onnx).is_file() and (written / vnnlib).is_file() for onnx, vnnlib, _ in rows)


def test_every_sequence_met_or_not_as_the_module_counts(written):
    """The text of a query at every one-hot input, with what the network says there: met iff the answer is sat."""
    for name, entry in answers(written).items():
        if "model" not in entry:
            continue
        session = onnxruntime.InferenceSession(written / "onnx" / f"{name}.onnx")
        text, met = (written / "vnnlib" / f"{name}.vnnlib").read_text(), False
        for tokens in product(range(T), repeat=L):
            X = torch.nn.functional.one_hot(torch.tensor(tokens), T).float()
            Y = session.run(["Y"], {"X": X.numpy()})[0]
            met |= is_met(text, [Fraction(x) for x in X.flatten().tolist()], [Fraction(y) for y in Y.ravel().tolist()])
        assert met is (entry["answer"] == "sat"), name


def test_a_second_parser_reads_the_same_query(written):
    vnnlib = pytest.importorskip("vnnlib", reason="the parser of the standard is not installed")
    from vnnlib.compat import transform

    for name, entry in answers(written).items():
        query = vnnlib.parse_query_string((written / "vnnlib2" / f"{name}.vnnlib").read_text())
        boxes = {tuple(map(tuple, case.input_box)) for case in transform(query)}
        if "model" not in entry:
            assert len(boxes) == 1
            continue
        place, k = entry["position"], entry["count"]
        sequences = [tokens for tokens in product(range(T), repeat=L) if tokens.count(tokens[place]) == k]
        assert boxes == {tuple((float(t == s),) * 2 for t in tokens for s in range(T)) for tokens in sequences}, name


@pytest.mark.parametrize("model", BUILDERS)
def test_the_network_is_the_module(tmp_path, model):
    module = BUILDERS[model](T=3, L=3, d=4)
    (tmp_path / "m.onnx").write_bytes(histogram_network(module))
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx")
    for tokens in product(range(3), repeat=3):
        X = torch.nn.functional.one_hot(torch.tensor(tokens), 3).float().numpy()
        theirs = torch.from_numpy(session.run(["Y"], {"X": X})[0])
        assert torch.allclose(theirs, module(torch.tensor([tokens]))[0], rtol=1e-4, atol=1e-4)


def test_a_wrong_answer_is_caught_when_it_is_run(tmp_path):
    for instance in instances(T, L):
        if instance.name in ("lin_T2_L2_count1_built", "dot_T2_L2_count2_spoilt", "lost_one_is_smaller"):
            path = tmp_path / f"{instance.name}.onnx"
            path.write_bytes(instance.network)
            assert check(instance, path) > 0
            with pytest.raises(AssertionError, match=instance.name):
                check(replace(instance, answer="sat" if instance.answer == "unsat" else "unsat"), path)


@pytest.mark.parametrize("longest", [4, 9])
def test_least_margins_of_broken_lines_against_a_grid(longest):
    layer = ScalarLayer.of(*parity_layer(longest))
    for low, high in ((Fraction(1, 3), Fraction(5, 2)), (Fraction(2), Fraction(2)), (Fraction(-1), Fraction(longest))):
        for right in (0, 1):
            least, place = layer.least_margin(low, high, right)
            grid = [low + (high - low) * i / 64 for i in range(65)]
            assert low <= place <= high and layer.margin(place, right) == least
            assert all(layer.margin(x, right) >= least for x in grid)


def test_numbers_that_float32_rounds_are_refused():
    with pytest.raises(BadInput, match="float32"):
        histogram_network(inventory_counting.lin(T=3, L=3, d=3, basis="random", dtype=torch.float64))
    with pytest.raises(BadInput, match="sqrt"):
        histogram_network(relation_counting.dot(T=3, L=3, d=3))


@pytest.mark.parametrize(
    "options", [("--T", "5"), ("--T", "1"), ("--L", "1"), ("--L", "40"), ("--T", "4", "--L", "7"), ("--T", "x")]
)
def test_bad_calls(capsys, tmp_path, options):
    code, out, err = run(capsys, "export", str(tmp_path / "out"), *options)
    assert code == 2 and out == "" and err.count("\n") == 1 and not (tmp_path / "out").exists()
    assert list(tmp_path.iterdir()) == []  # nothing half-written


def test_a_folder_with_files_is_kept(capsys, tmp_path):
    (tmp_path / "mine").write_text("")
    assert run(capsys, "export", str(tmp_path))[0] == 2
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_json(capsys, tmp_path):
    code, out, err = run(capsys, "export", str(tmp_path / "out"), "--T", "2", "--L", "2", "--json")
    assert code == 0 and len(json.loads(out)["instances"]) >= 30 and err.startswith("wrote")
