"""Which format a file is of, by its first bytes and the names in its archive; who reads it, or how to convert it."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from constructions.errors import BadInput

if TYPE_CHECKING:
    from torch import Tensor

ENDINGS = (".safetensors", ".pt", ".pth", ".ckpt", ".bin", ".npz", ".msgpack", ".h5", ".hdf5", ".onnx", ".gguf")
LOOKED_AT = 512  # bytes at the start
TORCH_MAGIC = b"\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19."  # torch.save before 1.6, after the protocol


@dataclass(frozen=True)
class Start:
    """What is looked at to tell the format of a file."""

    path: Path
    head: bytes

    @classmethod
    def of(cls, path: Path, what: str) -> Start:
        """Raises: BadInput where the file cannot be read."""
        try:
            with path.open("rb") as file:
                return cls(path, file.read(LOOKED_AT))
        except OSError as error:
            raise BadInput(f"{what}: cannot be read ({error.strerror}). Check the path.") from None

    @cached_property
    def members(self) -> tuple[str, ...]:
        """The names in a zip archive; none for any other file, and for a broken one."""
        if not self.head.startswith(b"PK\x03\x04"):
            return ()
        try:
            with zipfile.ZipFile(self.path) as archive:
                return tuple(archive.namelist())
        except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError, EOFError):
            return ()

    def has_member(self, *ends: str) -> bool:
        return any(f"/{name}".endswith(end) for name in self.members for end in ends)

    def ends(self, *suffixes: str) -> bool:
        return self.path.name.lower().endswith(suffixes)

    @property
    def is_pickle(self) -> bool:
        return len(self.head) > 1 and self.head[0] == 0x80 and 2 <= self.head[1] <= 5

    @property
    def is_map_of_msgpack(self) -> bool:
        first = self.head[:1]
        return b"\x81" <= first <= b"\x8f" or first in (b"\xde", b"\xdf")

    @property
    def is_safetensors(self) -> bool:
        return self.head[8:9] == b"{" and int.from_bytes(self.head[:8], "little") <= self.path.stat().st_size


@dataclass(frozen=True)
class Kind:
    """One format: `reader` is the module and function that reads it, or `convert` the lines that convert it."""

    name: str
    is_it: Callable[[Start], bool]
    reader: str | None = None
    convert: str = ""


def begins(*magic: bytes) -> Callable[[Start], bool]:
    """Whether the file begins with one of these bytes."""
    return lambda start: start.head.startswith(magic)


def npz_of(pairs: str) -> str:
    """The line that saves these pairs of a dict comprehension."""
    return f'numpy.savez("state.npz", **{{{pairs}}})'


OF_THE_ORIGINAL = "save the state dict of the model that it was made from: "
STATE_DICT = 'torch.save(model.state_dict(), "state.pt")'
VARIABLES = 'model = tf.saved_model.load("FOLDER"); ' + npz_of("v.name: v.numpy() for v in model.variables")

# The first that fits is the file's; the last one fits all. FILE is the file's name.
KINDS = (
    Kind("safetensors", lambda s: s.ends(".safetensors") or s.is_safetensors, "safetensors_files.read"),
    Kind(
        "TorchScript",
        lambda s: s.has_member("/constants.pkl"),
        convert=f'model = torch.jit.load("FILE"); {STATE_DICT}',
    ),
    Kind(
        "torch.export",
        lambda s: s.has_member("/archive_format", "/serialized_exported_program.json"),
        convert='program = torch.export.load("FILE"); torch.save(dict(program.state_dict), "state.pt")',
    ),
    Kind(
        "Keras 3",
        lambda s: s.has_member("/model.weights.h5"),
        convert='model = keras.saving.load_model("FILE"); model.save_weights("state.weights.h5")',
    ),
    Kind("NumPy's npz", lambda s: s.has_member(".npy"), "numpy_files.read_npz"),
    Kind("NumPy's npy", begins(b"\x93NUMPY"), "numpy_files.read_npy"),
    Kind("HDF5", begins(b"\x89HDF\r\n\x1a\n"), "hdf5_files.read"),
    Kind("GGUF", begins(b"GGUF"), "gguf_files.read"),
    Kind("GGML", begins(b"lmgg", b"tjgg", b"fmgg"), convert=OF_THE_ORIGINAL + STATE_DICT),
    Kind(
        "TensorFlow Lite",
        lambda s: s.head[4:8] == b"TFL3",
        convert='model = tf.lite.Interpreter("FILE"); '
        + npz_of('t["name"]: model.get_tensor(t["index"]) for t in model.get_tensor_details()'),
    ),
    Kind(
        "MATLAB",
        begins(b"MATLAB 5.0 MAT-file", b"MATLAB 7.0 MAT-file"),
        convert='found = scipy.io.loadmat("FILE"); '
        + npz_of('name: value for name, value in found.items() if not name.startswith("__")'),
    ),
    Kind("ONNX", lambda s: s.ends(".onnx"), "onnx_files.read"),
    Kind("TensorFlow's graph", lambda s: s.ends(".pb"), convert=VARIABLES),
    Kind(
        "TensorFlow's checkpoint",
        lambda s: s.ends(".index") or ".data-0" in s.path.name,
        convert='found = tf.train.load_checkpoint("PREFIX"); '
        + npz_of("name: found.get_tensor(name) for name in found.get_variable_to_shape_map()"),
    ),
    Kind("Core ML", lambda s: s.ends(".mlmodel"), convert=OF_THE_ORIGINAL + STATE_DICT),
    Kind(
        "an index of shards",
        lambda s: s.ends(".index.json"),
        convert='state = {k: v for f in glob.glob("*.safetensors") for k, v in load_file(f).items()}; '
        'save_file(state, "state.safetensors")',
    ),
    Kind(
        "a compressed file",
        begins(b"\x1f\x8b", b"\xfd7zXZ", b"BZh", b"\x28\xb5\x2f\xfd", b"7z\xbc\xaf"),
        convert="unpack it first, and name the file that was in it",
    ),
    Kind(
        "a Python pickle",
        lambda s: s.is_pickle and s.head[2 : 2 + len(TORCH_MAGIC)] != TORCH_MAGIC,
        convert='found = pickle.load(open("FILE", "rb")); numpy.savez("state.npz", **found)',
    ),
    Kind("msgpack, as Flax writes it", lambda s: s.ends(".msgpack") or s.is_map_of_msgpack, "msgpack_files.read"),
    Kind("torch.save", lambda s: True, "torch_files.read"),
)
FOLDERS = (
    (
        ("_METADATA", "_CHECKPOINT_METADATA", "manifest.ocdbt", "_sharding"),
        "an Orbax checkpoint",
        'tree = orbax.checkpoint.PyTreeCheckpointer().restore("FOLDER"); '
        'numpy.savez("state.npz", **flax.traverse_util.flatten_dict(tree, sep="/"))',
    ),
    (("saved_model.pb",), "a TensorFlow SavedModel", VARIABLES),
    (("Manifest.json",), "a Core ML package", OF_THE_ORIGINAL + STATE_DICT),
)


def read(path: Path, what: str, key: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors of a file, and the JSON object in its metadata under `key`, where the format has such.

    Claim: no code of the file runs; what would have to run some is refused.
    Raises: BadInput, in one line, with the lines that convert a format which is not read.
    """
    start = Start.of(path, what)
    kind = next(kind for kind in KINDS if kind.is_it(start))
    if kind.reader is None:
        raise refused(what, kind.name, kind.convert.replace("FILE", path.name))
    module, function = kind.reader.split(".")
    found: tuple[dict[str, Tensor], dict[str, Any]]
    found = getattr(import_module(f"constructions.formats.{module}"), function)(path, what, key)
    return found


def refused(what: str, name: str, convert: str) -> BadInput:
    """What is said of a format that is not read."""
    return BadInput(f"{what}: its format is {name}, which is not read. Convert it where you trust it: {convert}")


def check_no_folder(path: str | os.PathLike[str], what: str) -> None:
    """Raises: BadInput for a folder that is a checkpoint as a whole, with the lines that convert it."""
    try:
        inside = set(os.listdir(path))
    except (OSError, ValueError):
        return  # a file, or nothing; ValueError for a zero byte in the name
    for marks, name, convert in FOLDERS:
        if inside & set(marks):
            raise refused(what, name, convert)


def library(name: str, what: str, kind: str) -> Any:
    """A library that reads one format.

    Raises: BadInput, with a way out, where it is not installed.
    """
    try:
        return import_module(name)
    except ImportError:
        raise BadInput(
            f"{what}: its format is {kind}, which {name} reads, and that is not installed. "
            "Use pip install 'weightproof[formats]', or save the tensors as .npz or .safetensors."
        ) from None


def unique(pairs: Iterable[tuple[str, Tensor]], what: str) -> dict[str, Tensor]:
    """The tensors by name, with dots for slashes.

    Raises: BadInput where two have one name, or there is none.
    """
    found: dict[str, Tensor] = {}
    for name, tensor in pairs:
        plain = name.strip("/").replace("/", ".")
        if plain in found:
            raise BadInput(f"{what}: holds two tensors {plain}. Save one of them.")
        found[plain] = tensor
    if not found:
        raise BadInput(f"{what}: holds no tensors. Save the weights.")
    return found
