"""Files of other tools: the same verdict from every format that is read, one line for each other, no code run."""

import numpy as np
import pytest
import torch
from command import as_json, run
from models import weight_files
from models.public_layout import hand_built
from models.selection import every

from constructions import relation_counting
from constructions.errors import BadInput
from constructions.files import read_tensors
from constructions.names import WeightsFile

SHAPE = {"T": 3, "L": 2}


def states():
    dot = dict(relation_counting.dot(**SHAPE, dtype=torch.float64).state_dict())
    return {
        "right": (dot, "dot", "PROVED"),
        "wrong": (dot | {"W_1": -dot["W_1"]}, "dot", "REFUTED"),
        "softmax": (dict(relation_counting.bos_sftm(**SHAPE).state_dict()), "bos+sftm", "PROVED"),
        "the document's": (hand_built("dot", T=4, L=3), "dot", "PROVED"),
    }


def ready(name):
    if name == "HDF5":
        pytest.importorskip("h5py")
    return weight_files.READ[name]


@pytest.mark.parametrize("format", every(3, weight_files.READ))
def test_every_format_gives_the_same_verdicts(format, tmp_path, capsys):
    write, ending = ready(format)
    for name, (state, model, verdict) in states().items():
        path = tmp_path / f"{name}{ending}"
        write(state, path)
        prefix = ["--map", "=params."] if format == "Flax" and "E" not in state else []
        length = "3" if model == "dot" and "E" not in state else "2"
        argv = ("histogram", "--weights", str(path), "--model", model, "--L", length, *prefix)
        code, said = as_json(capsys, *argv)
        assert said["verdict"] == verdict and code == ("PROVED", "REFUTED").index(verdict), (name, said)


BITS = [torch.float64, torch.float32, torch.float16, torch.bfloat16]
THROUGH_NUMPY = ("npz", "packed npz", "Flax", "HDF5", "ONNX")  # which has no bfloat16


@pytest.mark.parametrize(
    ("format", "dtype"), [(f, d) for f in weight_files.READ for d in BITS[: 3 if f in THROUGH_NUMPY else 4]]
)
def test_numbers_are_read_bit_by_bit(format, dtype, tmp_path):
    write, ending = ready(format)
    g = torch.Generator().manual_seed(5)
    state = {"a.W": torch.randn(3, 5, generator=g).to(dtype), "b": torch.randn(7, generator=g).to(dtype).clone()}
    state["b"][:3] = torch.tensor([0.0, -0.0, torch.finfo(dtype).tiny / 2], dtype=dtype)
    write(state, tmp_path / f"m{ending}")
    found, _ = read_tensors(tmp_path / f"m{ending}", "weightproof")
    found = {name.removeprefix("params."): tensor for name, tensor in found.items()}
    assert found.keys() == state.keys()
    for name, tensor in state.items():
        assert found[name].dtype == dtype and found[name].shape == tensor.shape
        assert torch.equal(found[name].view(torch.uint8), tensor.contiguous().view(torch.uint8))


def test_other_writers_of_arrays(tmp_path):
    """Big ends first, columns first, whole numbers, one array alone."""
    plain = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.savez(tmp_path / "m.npz", big=plain.astype(">f4"), columns=np.asfortranarray(plain), n=np.int16(3))
    found, _ = read_tensors(tmp_path / "m.npz", "weightproof")
    assert found["big"].tolist() == found["columns"].tolist() == plain.tolist() and found["n"].item() == 3
    np.save(tmp_path / "E.npy", plain)
    assert read_tensors(WeightsFile.of(str(tmp_path / "E.npy"), ["W=E.T"]), "weightproof")[0]["W"].shape == (3, 2)


@pytest.mark.parametrize("dtype", ["c8", "V2", "U3", [("a", "f4")], "M8[s]"], ids=str)
def test_arrays_that_torch_has_not_are_refused(dtype, tmp_path):
    np.savez(tmp_path / "m.npz", E=np.zeros(2, dtype=dtype))
    with pytest.raises(BadInput, match="E has dtype"):
        read_tensors(tmp_path / "m.npz", "weightproof")


def test_files_that_are_not_read_say_what_they_are_and_how_to_convert_them(tmp_path, capsys):
    for name, said in weight_files.refused(tmp_path).items():
        code, out, err = run(capsys, "histogram", "--weights", str(tmp_path / name), "--model", "dot", "--L", "2")
        assert code == 2 and out == "" and err.count("\n") == 1 and said in err, (name, err)
        assert "Traceback" not in err and len(err) < 800, (name, err)


def test_nothing_in_a_file_is_run(tmp_path, capsys):
    canary = tmp_path / "canary"
    for name, said in weight_files.hostile(tmp_path, canary).items():
        code, out, err = run(capsys, "histogram", "--weights", str(tmp_path / name), "--model", "dot", "--L", "2")
        assert code == 2 and out == "" and err.count("\n") == 1 and said in err, (name, err)
        assert not canary.exists(), name
    torch.load(tmp_path / "evil.pt", weights_only=False)
    assert canary.exists()  # the files do what they say when they are loaded otherwise


@pytest.mark.parametrize(("ending", "library"), [(".h5", "h5py"), (".onnx", "onnx"), (".msgpack", "msgpack")])
def test_a_library_that_is_missing_is_named(ending, library, tmp_path, monkeypatch):
    begins = {".h5": b"\x89HDF\r\n\x1a\n", ".onnx": b"\x08\x07", ".msgpack": b"\x80"}
    (tmp_path / f"m{ending}").write_bytes(begins[ending])
    monkeypatch.setattr("constructions.formats.kinds.import_module", lambda name: absent(name, library))
    with pytest.raises(BadInput, match=f"{library} reads.*weightproof.formats"):
        read_tensors(tmp_path / f"m{ending}", "weightproof")


def absent(name, library):
    from importlib import import_module

    if name == library:
        raise ImportError(name)
    return import_module(name)


def test_an_hdf5_file_does_not_lead_to_another(tmp_path):
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "secret.h5", "w") as file:
        file["E"] = np.ones(2)
    with h5py.File(tmp_path / "m.h5", "w") as file:
        file["W_1"] = np.zeros(2)
        file["E"] = h5py.ExternalLink("secret.h5", "/E")
    assert read_tensors(tmp_path / "m.h5", "weightproof")[0].keys() == {"W_1"}
    with h5py.File(tmp_path / "v.h5", "w") as file:
        layout = h5py.VirtualLayout(shape=(2,), dtype="f8")
        layout[:] = h5py.VirtualSource(str(tmp_path / "secret.h5"), "E", shape=(2,))
        file.create_virtual_dataset("E", layout)
    with pytest.raises(BadInput, match="lies in another file"):
        read_tensors(tmp_path / "v.h5", "weightproof")


def test_what_unpacks_to_too_much_is_refused_before_it_is_unpacked(tmp_path, monkeypatch):
    np.savez_compressed(tmp_path / "m.npz", E=np.zeros(100_000))
    monkeypatch.setattr("constructions.formats.numpy_files.MOST_BYTES", 10_000)
    with pytest.raises(BadInput, match="unpacks to more than"):
        read_tensors(tmp_path / "m.npz", "weightproof")
