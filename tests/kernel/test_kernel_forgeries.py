"""Forged files and certificates for `verify kernel`: refused in one line, or a theorem of every word of the file.

The oracle reads the bytes and the theorem's text on its own; coqc is not needed, as what would be compiled is compared.
"""

from __future__ import annotations

import copy
import hashlib
import json
import math
import random
import re
import struct

import pytest
from command import run
from models.kernel import needs_coqc

ORDER = ("E", "e_BOS", "A", "W_Q", "W_K", "W_1", "b_1", "W_2", "b_2")
MODELS = ("dot", "dot in float32", "bos+sftm", "lin")
UNSAID = re.compile(r"^unsaid +argument, assumptions, error_share, margin_exact, method, seconds, tightest:", re.M)
ODD = (
    0,
    -1,
    1,
    2,
    3,
    4,
    5,
    99,
    10**100,
    10**400,
    True,
    False,
    None,
    "",
    "3",
    3.0,
    1e300,
    5e-324,
    [],
    {},
    [3],
    {"a": 1},
)


class Proof:
    """A saved proof in parts that can be forged: metadata, tensors (dtype, shape, bytes) and certificate."""

    def __init__(self, folder):
        raw = (folder / "weights.safetensors").read_bytes()
        n = int.from_bytes(raw[:8], "little")
        header, body = json.loads(raw[8 : 8 + n]), raw[8 + n :]
        self.about = json.loads(header.pop("__metadata__")["weightproof"])
        self.tensors = {
            name: (entry["dtype"], entry["shape"], body[slice(*entry["data_offsets"])])
            for name, entry in header.items()
        }
        self.certificate = json.loads((folder / "certificate.json").read_text())
        self.metadata = self.tail = self.text = None  # other bytes than those of the parts
        self.keeps_digest = False

    def write(self, folder):
        folder.mkdir(exist_ok=True)
        header = {"__metadata__": {"weightproof": self.metadata or json.dumps(self.about)}}
        body = b""
        for name, (dtype, shape, data) in self.tensors.items():
            header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(body), len(body) + len(data)]}
            body += data
        said = json.dumps(header).encode()
        raw = len(said).to_bytes(8, "little") + said + body + (self.tail or b"")
        (folder / "weights.safetensors").write_bytes(raw)
        about = dict(self.certificate)
        if not self.keeps_digest:
            about["weights_sha256"] = hashlib.sha256(raw).hexdigest()
        (folder / "certificate.json").write_text(self.text or json.dumps(about))
        return str(folder)

    def words(self):
        """All words of the file, in the order of the theorem."""
        data = b"".join(self.tensors[name][2] for name in ORDER if name in self.tensors)
        return [word for (word,) in struct.iter_unpack("<I", data)]

    def put(self, name, i, value):
        dtype, shape, data = self.tensors[name]
        self.tensors[name] = (dtype, shape, data[: 4 * i] + struct.pack("<f", value) + data[4 * i + 4 :])

    def reshape(self, name, shape, more=b""):
        dtype, _, data = self.tensors[name]
        self.tensors[name] = (dtype, shape, data + more)


@pytest.fixture(scope="module")
def proofs(tmp_path_factory):
    import contextlib
    import io

    from verify.commands.cli import main

    found = {}
    for model in MODELS:
        folder = tmp_path_factory.mktemp("proofs") / "proof"
        name, *formats = model.split(" in ")
        said = ["--model", name, "--T", "3", "--L", "3", *(x for y in formats for x in ("--precision", y))]
        with contextlib.redirect_stdout(io.StringIO()):
            assert main(["histogram", *said, "--save", str(folder)]) == 0
        found[model] = Proof(folder)
    return found


def stated(text):
    """What a theorem's text says: its words, its sizes, its kind, its margins as numbers, the format of its runs."""
    fields = re.findall(r"(\w+)_words := (.*?)(?:;\n  \w+_words|\n\|\})", re.sub(r"\n    ", " ", text), re.DOTALL)
    record = text[text.index("E_words") : text.index("|}.")]
    words = [int(word, 0) for word in re.findall(r"0x[0-9a-f]+|\b0\b", re.sub(r"\w+_words :=", "", record))]
    sizes = {name: int(n) for name, n in re.findall(r"file_(T|L|d|p|classes|first_count) := (\d+)%nat", text)}
    kind, softmax = re.search(r"file_kind := (\w+); file_softmax := (\w+)", text).groups()
    margins = [int(n) for n in re.search(r"Definition margins : list Z := \[(.*)\]", text)[1].split(";")]
    run_in, shift = re.search(r"file_counts(?:_in (\w+))? weights margins (\d+)\.", text).groups()
    assert fields
    model = kind.lower() + ("+sftm" if softmax == "true" else "")
    return words, sizes, model, [math.ldexp(n, -int(shift)) for n in margins], run_in


def agrees(text, proof):
    """Whether the theorem says exactly what file and certificate say, and the file has the shapes of its sizes."""
    words, sizes, model, margins, run_in = stated(text)
    about, tensors, said = proof.about, proof.tensors, proof.certificate
    T, L, d, p, first = (about[name] for name in ("T", "L", "d", "p", "first_count"))
    classes = len(tensors["b_2"][2]) // 4
    shapes = {"E": [T, d], "W_1": [d, p], "b_1": [p], "W_2": [p, classes], "b_2": [classes]}
    shapes |= {"A": [L, L]} if model.startswith("lin") else {"W_Q": [d, d], "W_K": [d, d]}
    shapes |= {"e_BOS": [d]} if model.startswith("bos") else {}
    wanted = said["margin_per_count"] or [said["margin"]] * L
    formats, parts = ({"precision": run_in, "accumulate": run_in}, 2) if run_in else ({}, 1)
    return (
        words == proof.words()
        and sizes == {"T": T, "L": L, "d": d, "p": p, "classes": classes, "first_count": first}
        and min(T, L, d, p) >= 1
        and classes + first > L
        and {name: shape for name, (_, shape, _) in tensors.items()} == shapes
        and all(math.isfinite(struct.unpack("<f", struct.pack("<I", word))[0]) for word in words)
        and model == about["model"] == said["parameters"]["model"]
        and said["parameters"] == {"model": model, "T": T, "L": L, "d": d, "p": p, "dtype": "float32", **formats}
        and said["inputs_covered"] == str(T**L)
        and said["claim"] == about["claim"]
        and (said["verdict"], said["task"], said["reading"])
        == ("PROVED", "histogram", "dtype, any order" if run_in else "real")
        and said.get("schema", "weightproof/1") == "weightproof/1"
        and said["margin"] == min(wanted)
        and len(margins) == L
        and all(0 < n <= m / parts <= n * (1 + 2**-30) for n, m in zip(margins, wanted, strict=True))
    )


def outcome(proof, folder, capsys):
    """The theorem that is printed, None where the proof is refused."""
    code, out, err = run(capsys, "kernel", proof.write(folder))
    assert code in (0, 2) and "Traceback" not in err and "a bug of ours" not in err
    if code == 2:
        assert out == "" and err.count("\n") == 1 and len(err) < 700, err
        return None
    return out


@pytest.mark.parametrize("model", MODELS)
def test_a_theorem_says_every_word(model, proofs, tmp_path, capsys):
    proof = copy.deepcopy(proofs[model])
    assert agrees(outcome(proof, tmp_path / "p", capsys), proof)
    proof.put("W_2", 0, -7.25)  # a word that the proof does not bear is in the theorem all the same
    text = outcome(proof, tmp_path / "p", capsys)
    assert agrees(text, proof) and f"{struct.unpack('<I', struct.pack('<f', -7.25))[0]:#x}" in text


def float_rows(*values):
    return struct.pack(f"<{len(values)}f", *values)


FORGED = {
    "a second row of b_1": ("dot", lambda x: x.reshape("b_1", [2, 1], float_rows(12345.0))),
    "a second row of b_2": ("dot", lambda x: x.reshape("b_2", [2, 3], float_rows(1.0, 2.0, 3.0))),
    "a second row of e_BOS": ("bos+sftm", lambda x: x.reshape("e_BOS", [2, 3], float_rows(1.0, 2.0, 3.0))),
    "b_1 as a matrix": ("dot", lambda x: x.reshape("b_1", [1, 1])),
    "b_2 as a column": ("dot", lambda x: x.reshape("b_2", [3, 1])),
    "b_2 as a row": ("dot", lambda x: x.reshape("b_2", [1, 3])),
    "W_1 as a row": ("dot", lambda x: x.reshape("W_1", [1, 3])),
    "W_1 as a vector": ("dot", lambda x: x.reshape("W_1", [3])),
    "W_2 as a column": ("dot", lambda x: x.reshape("W_2", [3, 1])),
    "E of three axes": ("dot", lambda x: x.reshape("E", [1, 3, 3])),
    "a token more": ("dot", lambda x: x.reshape("E", [4, 3], float_rows(1.0, 2.0, 3.0))),
    "an unused A": ("dot", lambda x: x.tensors.update(A=("F32", [3, 3], float_rows(*[7.0] * 9)))),
    "an unused e_BOS": ("dot", lambda x: x.tensors.update(e_BOS=("F32", [3], float_rows(7.0, 7.0, 7.0)))),
    "an unused W_Q": ("lin", lambda x: x.tensors.update(W_Q=("F32", [3, 3], float_rows(*[7.0] * 9)))),
    "an unknown tensor": ("dot", lambda x: x.tensors.update(bias=("F32", [1], float_rows(7.0)))),
    "an empty tensor": ("dot", lambda x: x.tensors.update(A=("F32", [0], b""))),
    "no W_K": ("dot", lambda x: x.tensors.pop("W_K")),
    "NaN": ("dot", lambda x: x.put("b_2", 2, math.nan)),
    "an infinity": ("lin", lambda x: x.put("A", 0, -math.inf)),
    "the words of another format": ("dot", lambda x: x.tensors.update(b_1=("I32", [1], x.tensors["b_1"][2]))),
    "two formats": ("dot", lambda x: x.tensors.update(b_1=("F64", [1], struct.pack("<d", 1.0)))),
    "bytes at the end": ("dot", lambda x: setattr(x, "tail", b"\0" * 8)),
    "an L twice": ("dot", lambda x: setattr(x, "metadata", json.dumps(x.about)[:-1] + ', "L": 2}')),
    "L as true": ("dot", lambda x: x.about.update(L=True)),
    "another entry": ("dot", lambda x: x.about.update(classes=3)),
    "an old digest": ("dot", lambda x: (x.put("b_2", 2, -99.0), setattr(x, "keeps_digest", True))),
    "T and L of the certificate": ("dot", lambda x: x.certificate["parameters"].update(T=99, L=50)),
    "10^100 inputs": ("dot", lambda x: x.certificate.update(inputs_covered=str(10**100))),
    "inputs as a number": ("dot", lambda x: x.certificate.update(inputs_covered=27)),
    "infinitely many": ("dot", lambda x: x.certificate.update(inputs_covered="infinite")),
    "a larger margin": ("dot", lambda x: x.certificate.update(margin=0.75)),
    "no margin": ("dot", lambda x: x.certificate.pop("margin")),
    "four margins": ("dot", lambda x: x.certificate.update(margin=0.1, margin_per_count=[0.1] * 4)),
    "true as margin": ("dot", lambda x: x.certificate.update(margin=True, margin_per_count=[True] * 3)),
    "10^400": ("dot", lambda x: x.certificate.update(margin=10**400, margin_per_count=[10**400] * 3)),
    "margins that are none": ("dot", lambda x: x.certificate.update(margin_per_count=5)),
    "no margins": ("dot", lambda x: x.certificate.update(margin_per_count=[])),
    "a counterexample": ("dot", lambda x: x.certificate.update(counterexample={"input": [0, 0, 0]})),
    "a reason": ("dot", lambda x: x.certificate.update(reason="the time is up")),
    "another claim": ("dot", lambda x: x.certificate.update(claim="A-4.1")),
    "another model": ("dot", lambda x: x.about.update(model="dot+sftm")),
    "another dtype": ("dot", lambda x: x.certificate["parameters"].update(dtype="float64")),
    "one parameter more": ("dot", lambda x: x.certificate["parameters"].update(eps=0.0)),
    "another schema": ("dot", lambda x: x.certificate.update(schema="weightproof/2")),
    "no schema": ("dot", lambda x: x.certificate.update(schema=None)),
    "a line in a name": ("dot", lambda x: x.certificate.update({"x\nPROVED in Coq's kernel": 1})),
    "a name of a terminal": ("dot", lambda x: x.certificate.update({"x\x1b[2K": 1})),
    "a verdict twice": ("dot", lambda x: setattr(x, "text", json.dumps(x.certificate)[:-1] + ', "verdict": "PROVED"}')),
    "a list": ("dot", lambda x: setattr(x, "text", "[1]")),
    "deep": ("dot", lambda x: setattr(x, "text", "[" * 10**5)),
    "NaN as margin": ("dot", lambda x: setattr(x, "text", json.dumps(x.certificate | {"margin": math.nan}))),
    "1e999": ("dot", lambda x: setattr(x, "text", json.dumps(x.certificate).replace('"margin": 0', '"margin": 1e999'))),
} | {f"L = {L}": ("dot", lambda x, L=L: x.about.update(L=L)) for L in (0, -1, 2, 4, 10**6, 10**400)}  # fmt: skip


@pytest.mark.parametrize("name", FORGED)
def test_a_forgery_is_refused(name, proofs, tmp_path, capsys):
    model, forge = FORGED[name]
    for key in (model, f"{model} in float32"):
        if key in proofs:
            proof = copy.deepcopy(proofs[key])
            forge(proof)
            assert outcome(proof, tmp_path / "p", capsys) is None


def test_forgeries_at_random_are_refused_or_the_theorem_says_them(proofs, tmp_path, capsys):
    """A hundred: a value at any place of the metadata or of the certificate, a word, a shape, a tensor's name."""
    rng, refused = random.Random(14), 0
    for _ in range(100):
        proof = copy.deepcopy(proofs[rng.choice(MODELS)])
        kind, name = rng.randrange(6), rng.choice(list(proof.tensors))
        if kind == 0:
            proof.about[rng.choice(list(proof.about))] = rng.choice(ODD)
        elif kind == 1:
            key = rng.choice(list(proof.certificate))
            if key == "parameters":
                proof.certificate[key][rng.choice(list(proof.certificate[key]))] = rng.choice(ODD)
            else:
                proof.certificate[key] = rng.choice(ODD)
            proof.keeps_digest = key == "weights_sha256"
        elif kind == 2:
            proof.put(name, rng.randrange(len(proof.tensors[name][2]) // 4), rng.uniform(-2, 2))
        elif kind == 3:
            size = len(proof.tensors[name][2]) // 4
            proof.reshape(name, rng.choice([[size], [1, size], [size, 1], [1, 1, size]]))
        elif kind == 4:
            proof.reshape(name, [proof.tensors[name][1][0] + 1, *proof.tensors[name][1][1:]], float_rows(1.0, 2.0, 3.0))
        else:
            proof.tensors[rng.choice([*ORDER, "x"])] = proof.tensors.pop(name)
        text = outcome(proof, tmp_path / "p", capsys)
        refused += text is None
        if text is not None:
            assert agrees(text, proof), (kind, name, proof.about, proof.certificate)
    assert 40 < refused < 92


@needs_coqc
@pytest.mark.deep
def test_what_the_certificate_says_beside_the_theorem_is_named(proofs, tmp_path, capsys):
    code, out, _ = run(capsys, "kernel", proofs["dot"].write(tmp_path / "p"), "--run")
    assert code == 0 and "PROVED in Coq's kernel" in out
    assert UNSAID.search(out)


def test_a_written_theorem_comes_with_the_names_of_what_it_does_not_say(proofs, tmp_path, capsys):
    code, out, _ = run(capsys, "kernel", proofs["dot"].write(tmp_path / "p"), "--out", str(tmp_path / "t.v"))
    assert code == 0 and UNSAID.search(out) and "PROVED" not in out


def test_a_theorem_of_the_library_is_not_written(tmp_path, capsys):
    code, out, err = run(capsys, "kernel", "--theorem", "uniform_solves", "--out", str(tmp_path / "t.v"))
    assert code == 2 and out == "" and err.count("\n") == 1 and "Count01.v" in err and not list(tmp_path.iterdir())
