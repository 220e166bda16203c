"""State dicts as files of many formats, each as its own tool writes it, and files that no one may run."""

import io
import json
import os
import pickle
import struct
import zipfile

import numpy as np
import torch
from safetensors.torch import save_file


def arrays(state):
    return {name: tensor.numpy() for name, tensor in state.items()}


def nested(state):
    """Names with dots as dicts in dicts, as Flax keeps them."""
    tree = {}
    for name, array in arrays(state).items():
        *path, last = name.split(".")
        inner = tree
        for part in path:
            inner = inner.setdefault(part, {})
        inner[last] = array
    return tree


def safetensors(state, path):
    save_file({name: tensor.contiguous() for name, tensor in state.items()}, path)


def torch_zip(state, path):
    torch.save({"state_dict": state, "epoch": 3}, path)


def torch_legacy(state, path):
    torch.save(state, path, _use_new_zipfile_serialization=False)


def npz(state, path):
    np.savez(path, **arrays(state))


def packed_npz(state, path):
    np.savez_compressed(path, **{name.replace(".", "/"): array for name, array in arrays(state).items()})


def flax(state, path):
    import msgpack

    def array(value):
        return msgpack.ExtType(1, msgpack.packb((value.shape, value.dtype.name, value.tobytes())))

    path.write_bytes(msgpack.packb({"params": nested(state), "step": 7}, default=array))


def hdf5(state, path):
    import h5py

    with h5py.File(path, "w") as file:
        for name, value in arrays(state).items():
            file.create_dataset(name.replace(".", "/"), data=value, compression="gzip" if value.ndim else None)
        file.attrs["keras_version"] = "3.0"
        file["names"] = "no numbers"


def onnx(state, path):
    from onnx import helper, numpy_helper, save

    numbers = [numpy_helper.from_array(value, name) for name, value in arrays(state).items()]
    save(helper.make_model(helper.make_graph([], "weights", [], [], initializer=numbers)), path)


GGML = {"float32": 0, "float16": 1, "int64": 27, "float64": 28, "bfloat16": 30}


def gguf(state, path, kind=None):
    """Version 3, with metadata of several types before the table."""

    def text(value):
        return struct.pack("<Q", len(value)) + value.encode()

    head = text("general.architecture") + struct.pack("<I", 8) + text("none")
    head += text("tokens") + struct.pack("<IIQ", 9, 8, 2) + text("a") + text("b")
    head += text("scores") + struct.pack("<IIQ2f", 9, 6, 2, 0.5, 1.0)
    head += text("general.alignment") + struct.pack("<II", 4, 64)
    table, body = b"", b""
    for name, tensor in state.items():
        size = struct.pack(f"<{tensor.ndim}Q", *tensor.shape[::-1])
        number = GGML[str(tensor.dtype).removeprefix("torch.")] if kind is None else kind
        table += text(name) + struct.pack("<I", tensor.ndim) + size + struct.pack("<IQ", number, len(body))
        body += tensor.contiguous().flatten().view(torch.uint8).numpy().tobytes()
        body += bytes(-len(body) % 64)
    head = b"GGUF" + struct.pack("<IQQ", 3, len(state), 4) + head + table
    path.write_bytes(head + bytes(-len(head) % 64) + body)


READ = {
    "safetensors": (safetensors, ".safetensors"),
    "torch": (torch_zip, ".pt"),
    "torch before 1.6": (torch_legacy, ".pth"),
    "npz": (npz, ".npz"),
    "packed npz": (packed_npz, ".npz"),
    "Flax": (flax, ".msgpack"),
    "HDF5": (hdf5, ".h5"),
    "ONNX": (onnx, ".onnx"),
    "GGUF": (gguf, ".gguf"),
}


class Evil:
    """Makes a folder when it is unpickled."""

    def __init__(self, canary):
        self.canary = canary

    def __reduce__(self):
        return os.makedirs, (str(self.canary),)


def objects(thing):
    """An array of one Python object, which numpy pickles."""
    array = np.empty((), dtype=object)
    array[()] = thing
    return array


def npy_bytes(array):
    file = io.BytesIO()
    np.save(file, array, allow_pickle=True)
    return file.getvalue()


def zipped(path, **members):
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members.items():
            archive.writestr(name.replace("__", "/"), data)


def hostile(folder, canary):
    """Files that would run code, were they loaded by their own tools; name and what the message says."""
    evil = Evil(canary)
    torch.save(evil, folder / "evil.pt")
    torch.save({"state_dict": {"E": torch.zeros(2, 2)}, "callback": evil}, folder / "checkpoint.ckpt")
    torch.save(evil, folder / "legacy.pt", _use_new_zipfile_serialization=False)
    (folder / "evil.pkl").write_bytes(pickle.dumps({"E": np.zeros(2), "more": evil}))
    (folder / "evil.bin").write_bytes(pickle.dumps(evil, protocol=0))
    (folder / "evil.npy").write_bytes(npy_bytes(objects(evil)))
    zipped(folder / "evil.npz", **{"E.npy": npy_bytes(np.zeros((2, 2))), "more.npy": npy_bytes(objects(evil))})
    return {
        "evil.pt": "loading it runs code",
        "checkpoint.ckpt": "loading it runs code",
        "legacy.pt": "not a state dict that can be read safely",
        "evil.pkl": "a Python pickle",
        "evil.bin": "not a state dict that can be read safely",
        "evil.npy": "a pickle of Python objects",
        "evil.npz": "a pickle of Python objects",
    }


def refused(folder):
    """Files of formats that are not read, or not in this form; name and what the message says."""
    model = torch.nn.Linear(2, 2)
    torch.save(model, folder / "module.pt")
    zipped(folder / "script.pt", **{"m__data.pkl": b"", "m__constants.pkl": b"", "m__code__m.py": b""})
    zipped(folder / "program.pt2", **{"m__archive_format": b"pt2", "m__models__m.json": b"{}"})
    zipped(folder / "model.keras", **{"config.json": b"{}", "model.weights.h5": b""})
    zipped(folder / "other.zip", **{"readme.txt": b"hello"})
    plain = {
        "m.mat": b"MATLAB 5.0 MAT-file, Platform: GLNXA64".ljust(128) + b"\0\1IM",
        "m.tflite": struct.pack("<I", 28) + b"TFL3" + bytes(64),
        "m.pb": b"\x08\x01\x12\x10" + bytes(32),
        "m.ckpt.index": bytes(64),
        "m.ckpt.data-00000-of-00001": bytes(64),
        "m.mlmodel": b"\x08\x04" + bytes(16),
        "m.pt.gz": b"\x1f\x8b\x08\x00" + bytes(32),
        "m.tar.xz": b"\xfd7zXZ\x00" + bytes(32),
        "m.ggml": b"lmgg" + bytes(32),
        "model.safetensors.index.json": json.dumps({"weight_map": {"E": "model-00001.safetensors"}}).encode(),
        "empty.pt": b"",
        "text.pt": b"these are no weights\n",
        "cut.gguf": b"GGUF" + struct.pack("<IQQ", 3, 2**40, 2**40),
        "old.gguf": b"GGUF" + struct.pack("<IQQ", 1, 0, 0),
        "cut.npy": b"\x93NUMPY\x01\x00",
        "huge.npy": b"\x93NUMPY\x01\x00" + struct.pack("<H", 86)
        + b"{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000,), }".ljust(85) + b"\n",
        "cut.h5": b"\x89HDF\r\n\x1a\n" + bytes(8),
        "cut.onnx": b"\x08\x07\xff\xff\xff",
        "cut.msgpack": b"\x81\xa1E\xc7\xff\x01",
    }  # fmt: skip
    for name, data in plain.items():
        (folder / name).write_bytes(data)
    gguf({"E": torch.zeros(32, 32)}, folder / "quantised.gguf", kind=2)
    external(folder / "external.onnx")
    for name, inside in (("orbax", "_METADATA"), ("saved_model", "saved_model.pb"), ("m.mlpackage", "Manifest.json")):
        (folder / name).mkdir()
        (folder / name / inside).write_text("{}")
    return {
        "module.pt": "torch.nn.modules.linear.Linear",
        "script.pt": "TorchScript",
        "program.pt2": "torch.export",
        "model.keras": "Keras 3",
        "other.zip": "not a state dict that can be read safely",
        "m.mat": "MATLAB",
        "m.tflite": "TensorFlow Lite",
        "m.pb": "TensorFlow's graph",
        "m.ckpt.index": "TensorFlow's checkpoint",
        "m.ckpt.data-00000-of-00001": "TensorFlow's checkpoint",
        "m.mlmodel": "Core ML",
        "m.pt.gz": "a compressed file",
        "m.tar.xz": "a compressed file",
        "m.ggml": "GGML",
        "model.safetensors.index.json": "an index of shards",
        "empty.pt": "not a state dict",
        "text.pt": "not a state dict",
        "cut.gguf": "not a readable GGUF file",
        "old.gguf": "version 1",
        "cut.npy": "no array of numbers",
        "huge.npy": "bytes",
        "cut.h5": "HDF5",
        "cut.onnx": "not a readable ONNX file",
        "cut.msgpack": "not a msgpack file",
        "quantised.gguf": "quantised",
        "external.onnx": "lies in another file",
        "orbax": "Orbax",
        "saved_model": "TensorFlow SavedModel",
        "m.mlpackage": "Core ML",
    }


def external(path):
    from onnx import TensorProto, helper, save

    entry = TensorProto(name="E", data_type=TensorProto.FLOAT, dims=[2], data_location=TensorProto.EXTERNAL)
    entry.external_data.add(key="location", value="../../etc/passwd")
    save(helper.make_model(helper.make_graph([], "weights", [], [], initializer=[entry])), path)
