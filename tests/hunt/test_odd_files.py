"""Files with odd metadata, tensors or certificates, for every command that reads some: a verdict, or one line; no bug.

What is put where is drawn: metadata entries, the shape, dtype, name and values of tensors, and fields of certificates.
"""

from __future__ import annotations

import contextlib
import copy
import hashlib
import io
import json
import math
import random
import struct

import pytest
from command import run

from verify.commands.cli import main

DRAWN = 3  # of each command; a hundred in the deep part
ODD = (0, -1, 1, 2, 3, 99, 2**31, 2**63, 10**9, 10**100, 10**400, True, False, None, "", "3", "a\nb", 3.0, 0.5, -1.0,
       1e300, 5e-324, [], {}, [3], {"a": 1}, [[[]]], "tanh", "rnn", "real", "infinite", "-1", "1/0",
       "9" * 5000)  # fmt: skip
VALUES = (0.0, -0.0, 1e38, -1e38, 1e-45, 1e300, math.nan, math.inf, -math.inf, 1.0, -1.0, 0.1, 1e-20)
RAW = ("", "[]", "1", "null", "{", '{"L":NaN}', '{"a":1,"a":2}', "[" * 3000, '{"L":1e999}', '{"L":' + "9" * 9999 + "}")
CODES = {"F64": ("d", 8), "F32": ("f", 4), "F16": ("e", 2), "I64": ("q", 8), "BOOL": ("B", 1)}

SAVED = {
    "dot": "histogram --model dot --T 3 --L 3",
    "lin": "histogram --model lin --T 3 --L 3",
    "parity": "parity --T 3 --L 3",
    "count01": "count01 --construction uniform",
    "contextual": "contextual --length 5 --regions 1",
    "bidirectional": "bidirectional --length 5 --regions 1",
    "circuit": "circuit {bench}",
    "modular": "modular --P 5",
    "addition": "addition --digits 2 --base 2",
    "rnn": "inductive --task modular --model rnn --length 3",
    "mamba": "inductive --task modular --model mamba --length 3",
    "decoder": "inductive --task modular --bos --positions 8 --length 3",
}
READ = {
    "dot": ("histogram --weights {file}", "histogram --weights {file} --precision float32", "batch {file}",
            "kernel {folder}", "export {folder}", "figure attention --weights {file} --input 0,1 --out {out}"),
    "lin": ("histogram --weights {file} --method exhaustive", "kernel {folder}"),
    "parity": ("parity --weights {file}", "batch {file} --task parity"),
    "count01": ("count01 --weights {file}", "heads {file} --law box:0:3:2"),
    "contextual": ("contextual --weights {file}", "contextual --weights {file} --precision float32"),
    "bidirectional": ("bidirectional --weights {file}",),
    "circuit": ("circuit {bench} --weights {file}", "circuit {bench} --weights {file} --precision float32"),
    "modular": ("modular --P 5 --weights {file}",),
    "addition": ("addition --digits 2 --base 2 --weights {file}",),
    "rnn": ("inductive --task modular --model rnn --length 3 --weights {file}",),
    "mamba": ("inductive --task modular --model mamba --length 3 --weights {file}",),
    "decoder": ("inductive --task modular --length 3 --weights {file}",),
}  # fmt: skip
BUDGETED = (
    "histogram",
    "parity",
    "count01",
    "contextual",
    "bidirectional",
    "circuit",
    "modular",
    "addition",
    "inductive",
)


class Saved:
    """A saved folder in parts: metadata by key, tensors as [dtype, shape, bytes], and the certificate."""

    def __init__(self, folder):
        raw = (folder / "weights.safetensors").read_bytes()
        n = int.from_bytes(raw[:8], "little")
        header, body = json.loads(raw[8 : 8 + n]), raw[8 + n :]
        self.metadata = header.pop("__metadata__", {})
        self.tensors = {
            name: [entry["dtype"], entry["shape"], body[slice(*entry["data_offsets"])]]
            for name, entry in header.items()
        }
        self.certificate = json.loads((folder / "certificate.json").read_text())

    def write(self, folder):
        folder.mkdir(exist_ok=True)
        header = {"__metadata__": self.metadata} if self.metadata else {}
        body = b""
        for name, (dtype, shape, data) in self.tensors.items():
            header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(body), len(body) + len(data)]}
            body += data
        said = json.dumps(header).encode()
        said += b" " * (-len(said) % 8)
        raw = len(said).to_bytes(8, "little") + said + body
        (folder / "weights.safetensors").write_bytes(raw)
        self.certificate["weights_sha256"] = hashlib.sha256(raw).hexdigest()
        (folder / "certificate.json").write_text(json.dumps(self.certificate))

    def state(self, name, value):
        """Puts a value into the metadata."""
        (key,) = self.metadata
        self.metadata[key] = json.dumps(json.loads(self.metadata[key]) | {name: value})


def changed(rng, saved):
    """Puts something odd at one place, and returns what."""
    kind = rng.randrange(10)
    name = rng.choice(list(saved.tensors))
    dtype, shape, data = saved.tensors[name]
    code, width = CODES[dtype]
    size = len(data) // width
    if kind < 3 and saved.metadata:
        (key,) = saved.metadata
        entry = rng.choice([*json.loads(saved.metadata[key]), "L", "extra"])
        value = rng.choice(ODD)
        saved.state(entry, value)
        return f"metadata {entry} = {value!r:.40}"
    if kind == 3 and saved.metadata:
        (key,) = saved.metadata
        saved.metadata[key] = rng.choice(RAW)
        return f"metadata {saved.metadata[key][:20]}"
    if kind == 4:
        entry, value = rng.choice(list(saved.certificate)), rng.choice(ODD)
        saved.certificate[entry] = value
        return f"certificate {entry} = {value!r:.40}"
    if kind == 5:
        saved.tensors[rng.choice(["x", "", "\n", f"{name}.x"])] = saved.tensors.pop(name)
        return f"{name} renamed"
    if kind == 6:
        saved.tensors[name][1] = rng.choice([[size], [1, size], [size, 1], [size, 1, 1], shape[::-1]])
        return f"{name} of shape {saved.tensors[name][1]}"
    if kind == 7:
        other = rng.choice(list(CODES))
        saved.tensors[name] = [other, shape, struct.pack(f"<{size}{CODES[other][0]}", *[0] * size)]
        return f"{name} as {other}"
    if kind == 8 and shape:
        saved.tensors[name] = [dtype, [0, *shape[1:]], b""]
        return f"{name} empty"
    if code in "df":
        values = list(struct.unpack(f"<{size}{code}", data))
        value = rng.choice(VALUES)
        with contextlib.suppress(OverflowError):
            struct.pack(f"<{code}", value)
            values[rng.randrange(size)] = value
        saved.tensors[name][2] = struct.pack(f"<{size}{code}", *values)
        return f"{name} with {value}"
    return "nothing"


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    here = tmp_path_factory.mktemp("odd")
    bench = here / "c.bench"
    bench.write_text("INPUT(a)\nINPUT(b)\nOUTPUT(z)\nz = NAND(a, b)\n")
    found = {}
    for name, line in SAVED.items():
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            assert main([*line.format(bench=bench).split(), "--save", str(here / name)]) == 0
        found[name] = Saved(here / name)
    return found, bench


def ask(line, saved_files, folder, bench, capsys):
    """Runs a command on the files, which must end with a verdict, or exit code 2 and one line."""
    saved_files.write(folder)
    words = line.format(file=folder / "weights.safetensors", folder=folder, bench=bench, out=folder.parent / "o.svg")
    words = words.split() + ["--budget", "1"] * (line.split()[0] in BUDGETED)
    code, out, err = run(capsys, *words)
    assert code in (0, 1, 2, 3), (code, err[-300:])
    assert "Traceback" not in err and "a bug of ours" not in out + err
    if code == 2 and line.split()[0] != "batch":
        assert out == "" and err.count("\n") == 1 and len(err) < 1200, err
    return code


def drawn(times, saved, tmp_path, capsys, seed):
    files, bench = saved
    rng, refused = random.Random(seed), 0
    for name, lines in READ.items():
        for line in lines:
            for _ in range(times):
                odd = copy.deepcopy(files[name])
                said = changed(rng, odd)
                try:
                    refused += ask(line, odd, tmp_path / "odd", bench, capsys) == 2
                except AssertionError as error:
                    raise AssertionError(f"{line}: {said}: {error}") from None
    return refused


def test_odd_files_are_judged_or_refused(saved, tmp_path, capsys):
    assert drawn(DRAWN, saved, tmp_path, capsys, seed=15) > DRAWN * 5


@pytest.mark.deep
def test_more_odd_files_are_judged_or_refused(saved, tmp_path, capsys):
    assert drawn(100, saved, tmp_path, capsys, seed=16) > 500


LENGTHS = (0, -1, True, "3", 3.0, [3], {}, 10**9, 10**400)


@pytest.mark.parametrize("L", LENGTHS, ids=[f"{L!r:.9}" for L in LENGTHS])
@pytest.mark.parametrize("name", ["dot", "lin", "parity"])
def test_a_length_that_is_none_is_refused(name, L, saved, tmp_path, capsys):
    odd = copy.deepcopy(saved[0][name])
    odd.state("L", L)
    for line in READ[name]:
        if "batch" not in line:
            assert ask(line, odd, tmp_path / "odd", saved[1], capsys) == 2


@pytest.mark.parametrize(
    "name, entry, value",
    [("dot", "T", 99), ("dot", "d", 4), ("dot", "p", 2), ("dot", "first_count", 0), ("dot", "first_count", True),
     ("dot", "model", "dot+sftm "), ("lin", "L", 2), ("parity", "T", 99), ("parity", "p", 9), ("rnn", "model", "gru"),
     ("rnn", "activation", "gelu"), ("rnn", "activation", 1), ("decoder", "eps", True), ("circuit", "n", True)],
)  # fmt: skip
def test_metadata_that_the_tensors_deny_are_refused(name, entry, value, saved, tmp_path, capsys):
    odd = copy.deepcopy(saved[0][name])
    odd.state(entry, value)
    assert ask(READ[name][0], odd, tmp_path / "odd", saved[1], capsys) == 2


def test_parity_tensors_of_several_dtypes_are_refused(saved, tmp_path, capsys):
    """They were rounded to the embedding's dtype, so that other weights were judged."""
    odd = copy.deepcopy(saved[0]["parity"])
    dtype, shape, data = odd.tensors["E"]
    values = struct.unpack(f"<{len(data) // 8}d", data)
    odd.tensors["E"] = ["F16", shape, struct.pack(f"<{len(values)}e", *values)]
    assert ask(READ["parity"][0], odd, tmp_path / "odd", saved[1], capsys) == 2
