"""Files of whole numbers with scales against numpy's own packing, and what is wrong with some of them."""

import json

import numpy as np
import pytest
import torch
from command import as_json, run
from safetensors.torch import load_file, save_file

from constructions import parity, whole_numbers
from constructions.errors import BadInput
from constructions.files import read_tensors
from tests.planted import planted

KINDS = {torch.float64: np.float64, torch.float32: np.float32, torch.float16: np.float16}


def in_words(q):
    """Eight numbers of a row in each 32 bits, the first in the lowest ones, each plus 8."""
    rows = []
    for row in q.reshape(-1, q.shape[-1]).tolist():
        words = [row[i : i + 8] for i in range(0, len(row), 8)]
        rows.append([int("".join(f"{n + 8:04b}" for n in reversed(word)), 2) for word in words])
    return np.array(rows, dtype=np.uint32).astype(np.int32).reshape(*q.shape[:-1], -1)


def files(seed):
    """Tensors of a file in the layout, and the numbers that they stand for, by numpy."""
    rng = np.random.default_rng(seed)
    dtype = list(KINDS)[seed % 3]
    for shape, blocks in (
        ((3, 13), (1, 13)),
        ((4, 16), (4, 2)),
        ((6, 8), (2, 4)),
        ((5,), (1,)),
        ((2, 3, 9), (1, 1, 9)),
    ):
        scale = rng.uniform(1e-3, 2, blocks).astype(KINDS[dtype])
        one = np.kron(scale, np.ones([m // n for m, n in zip(shape, blocks, strict=True)])).astype(KINDS[dtype])
        for bits in (4, 8):
            q = rng.integers(-(2 ** (bits - 1)), 2 ** (bits - 1), shape)
            stored = {"N_scale": torch.from_numpy(scale), "b": torch.zeros(2)}
            if bits == 8:
                stored["N"] = torch.from_numpy(q.astype(np.int8))
            else:
                stored |= {"N_packed": torch.from_numpy(in_words(q)), "N_shape": torch.tensor(shape)}
            yield stored, q.astype(KINDS[dtype]) * one


def what_is_wrong(folder):
    """What of files numpy reads otherwise, if anything."""
    for seed in range(6):
        for stored, due in files(seed):
            save_file(stored, folder / "q.safetensors")
            read = read_tensors(folder / "q.safetensors", "k")[0]
            if sorted(read) != ["N", "b"] or not np.array_equal(read["N"].numpy(), due):
                return stored
            q = whole_numbers._read("N", stored, "a file")
            again = {name: tensor for name, tensor in q.stored("N").items() if not name.endswith("_scale")}
            if not all(torch.equal(tensor, stored[name]) for name, tensor in again.items()):
                return stored
    return None


def test_numbers_are_those_of_numpy(tmp_path):
    assert what_is_wrong(tmp_path) is None


FAULTS = [
    (whole_numbers, "unpacked", "4 * torch", "3 * torch"),
    (whole_numbers, "unpacked", "+ LEAST", "+ LEAST + 1"),
    (whole_numbers, "unpacked", "& 15", "& 7"),
    (whole_numbers, "packed", "4 * torch", "3 * torch"),
    (whole_numbers.Scaled, "numbers", ".repeat_interleave(self.whole.shape[axis] // scale.shape[axis], axis)", ""),
    (whole_numbers.Scaled, "numbers", ".to(self.scale.dtype)", ".half().to(self.scale.dtype)"),
]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault[2])
def test_planted_faults_are_seen(tmp_path, fault):
    def fails():
        try:
            return what_is_wrong(tmp_path)
        except (BadInput, RuntimeError, ValueError) as error:
            return repr(error)

    with planted(*fault):
        assert fails()


@pytest.fixture
def stored(tmp_path, monkeypatch, capsys):
    """A parity model in 4 bits, as the command writes it, and how to write other tensors in its place."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.safetensors").write_bytes(parity.as_bytes(parity.sawtooth(T=3, L=3)))
    code, _, _ = run(capsys, "quantise", "m.safetensors", "--task", "parity", "--bits", "4", "--save", "q.safetensors")
    assert code == 0
    header = {"weightproof": json.dumps({"L": 3})}
    return load_file("q.safetensors"), lambda tensors: save_file(tensors, "q.safetensors", header)


def test_the_certificate_names_the_reading(stored, capsys):
    code, said = as_json(capsys, "parity", "--weights", "q.safetensors")
    assert code == 0 and said["verdict"] == "PROVED"
    assert said["assumptions"][-1].startswith("the file stores E, W_1, W_2, W_K, W_Q, b_1, b_2 as whole numbers")
    assert "rounded once to the scale's dtype" in said["assumptions"][-1]
    code, plain = as_json(capsys, "parity", "--weights", "m.safetensors")
    assert code == 0 and not any("whole numbers" in text for text in plain["assumptions"])
    code, _, _ = run(capsys, "parity", "--weights", "q.safetensors", "--save", "products")
    assert code == 0 and run(capsys, "check", "products")[0] == 0  # what is saved are the products


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("E_scale", None, "E_packed has no E_scale"),
        ("E_shape", None, "E_packed has no E_shape"),
        ("E_packed", None, "is no ParityTransformer"),
        ("E_shape", torch.tensor([3, 99]), "eight numbers of 4 bits of a row go into each word"),
        ("E_shape", torch.tensor([-3, 4]), "eight numbers of 4 bits of a row go into each word"),
        ("E_shape", torch.tensor([0.5]), "eight numbers of 4 bits of a row go into each word"),
        ("E_scale", torch.ones(2, 4, dtype=torch.float64), "one scale, or so many along each axis"),
        ("E_scale", torch.tensor([torch.inf]), "must hold finite floating-point numbers"),
        ("E_scale", torch.tensor([3]), "must hold finite floating-point numbers"),
        ("E_zero_point", torch.zeros(1), "is a zero point"),
        ("E", torch.zeros(3, 4), "holds E twice"),
        ("E", torch.zeros(3, 4, dtype=torch.int8), "holds E twice"),
        ("W", torch.zeros(3, 4, dtype=torch.int8), "W is int8 and has no W_scale"),
    ],
)
def test_bad_files_are_one_line(stored, capsys, name, value, says):
    tensors, write = stored
    tensors = {key: tensor for key, tensor in tensors.items() if key != name}
    write(tensors if value is None else tensors | {name: value})
    code, out, err = run(capsys, "parity", "--weights", "q.safetensors")
    assert code == 2 and out == "" and err.count("\n") == 1 and says in err, err
