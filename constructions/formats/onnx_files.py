"""ONNX: the initialisers of a graph, under their names. The graph itself is not looked at."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from constructions.errors import BadInput
from constructions.formats.arrays import tensor_of
from constructions.formats.kinds import library, unique


def read(path: Path, what: str, key: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Raises: BadInput for anything else, and for numbers that lie in another file."""
    onnx = library("onnx", what, "ONNX")
    try:
        graph = onnx.load_model_from_string(path.read_bytes()).graph
        for entry in graph.initializer:
            if entry.data_location == onnx.TensorProto.EXTERNAL:
                raise BadInput(
                    f"{what}: {entry.name} lies in another file. Convert it where you trust it: "
                    f'model = onnx.load("{path.name}"); onnx.save(model, "state.onnx")'
                )
        arrays = ((entry.name, np.asarray(onnx.numpy_helper.to_array(entry))) for entry in graph.initializer)
        return unique(((name, tensor_of(array, name, what)) for name, array in arrays), what), {}
    except BadInput:
        raise
    except Exception as error:  # protobuf's errors are of several libraries
        said = (str(error).splitlines() or [type(error).__name__])[0][:120]
        raise BadInput(f"{what}: not a readable ONNX file ({said}). Save it again.") from None
