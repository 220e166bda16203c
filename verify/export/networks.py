"""The forward pass of hand-built models as ONNX graphs over real vectors, with the stored numbers as they are."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import ModuleType

import numpy as np
from torch import Tensor

from constructions.errors import BadInput
from constructions.histogram import HistogramTransformer
from verify.frame.judged import check_judged, unparametrized

OPSET = 17  # of 2022: what the verifiers of the field read
IR_VERSION = 8
Nodes = list[tuple[str, list[str], str, dict[str, int]]]  # operator, inputs, output, attributes


def onnx_library() -> ModuleType:
    """The package onnx.

    Raises: BadInput where it is not installed.
    """
    try:
        import onnx
    except ImportError:
        raise BadInput("export: onnx is not installed. Install it with pip install 'weightproof[export]'.") from None
    return onnx


def histogram_network(module: HistogramTransformer) -> bytes:
    """The model on one-hot rows X (L, T) in place of tokens, with logits Y (L, C); equal to the module at one-hot rows.

    Raises: BadInput for a module that is not judged, and where a stored number is no float32 or sqrt(d) is not whole,
    as the graph would then hold others.
    """
    check_judged(module, HistogramTransformer)
    module = unparametrized(module)
    if not module.is_linear and math.isqrt(module.d) ** 2 != module.d:
        raise BadInput(
            f"d={module.d}: scores are divided by sqrt(d), which float32 rounds. Use a square such as --d 4."
        )
    weights: dict[str, Tensor] = dict(module.named_parameters())
    nodes: Nodes = [("MatMul", ["X", "E"], "x", {})]
    context = "x"
    if module.has_bos:
        weights["e_BOS"] = weights["e_BOS"][None, :]
        nodes.append(("Concat", ["e_BOS", "x"], "context", {"axis": 0}))
        context = "context"
    if module.is_linear:
        scores = "A"
    else:
        scores = "scores"
        weights["root"] = module.E.new_tensor(math.isqrt(module.d))
        nodes += [
            ("MatMul", ["x", "W_Q"], "queries", {}),
            ("MatMul", [context, "W_K"], "keys", {}),
            ("Transpose", ["keys"], "keys_T", {}),
            ("MatMul", ["queries", "keys_T"], "products", {}),
            ("Div", ["products", "root"], scores, {}),
        ]
    if module.is_softmax:
        nodes.append(("Softmax", [scores], "mixing", {"axis": -1}))
        scores = "mixing"
    nodes += [("MatMul", [scores, context], "mixed", {}), ("Add", ["x", "mixed"], "mixed_token", {})]
    return graph(nodes + feed_forward("mixed_token"), weights, (module.L, module.T), (module.L, len(module.b_2)))


def feed_forward(source: str) -> Nodes:
    """One ReLU layer from `source` to Y."""
    return [
        ("MatMul", [source, "W_1"], "weighted", {}),
        ("Add", ["weighted", "b_1"], "before", {}),
        ("Relu", ["before"], "hidden", {}),
        ("MatMul", ["hidden", "W_2"], "read", {}),
        ("Add", ["read", "b_2"], "Y", {}),
    ]


def scalar_network(W_1: Tensor, b_1: Tensor, W_2: Tensor, b_2: Tensor) -> bytes:
    """One ReLU layer on one real number: X (1, 1), Y (1, C)."""
    weights = {"W_1": W_1.reshape(1, -1), "b_1": b_1, "W_2": W_2, "b_2": b_2}
    return graph(feed_forward("X"), weights, (1, 1), (1, len(b_2)))


def graph(nodes: Nodes, weights: Mapping[str, Tensor], shape_in: tuple[int, int], shape_out: tuple[int, int]) -> bytes:
    """The serialised ONNX model, the same bytes each time.

    Raises: BadInput where a number is no float32.
    """
    onnx = onnx_library()
    used = {name for _, inputs, _, _ in nodes for name in inputs}
    initializers = [
        onnx.numpy_helper.from_array(as_float32(name, W), name) for name, W in weights.items() if name in used
    ]
    made = onnx.helper.make_graph(
        [onnx.helper.make_node(operator, inputs, [output], **more) for operator, inputs, output, more in nodes],
        "weightproof",
        [onnx.helper.make_tensor_value_info("X", onnx.TensorProto.FLOAT, shape_in)],
        [onnx.helper.make_tensor_value_info("Y", onnx.TensorProto.FLOAT, shape_out)],
        initializers,
    )
    opset = onnx.helper.make_opsetid("", OPSET)
    model = onnx.helper.make_model(made, opset_imports=[opset], ir_version=IR_VERSION, producer_name="weightproof")
    onnx.checker.check_model(model, full_check=True)
    found: bytes = model.SerializeToString(deterministic=True)
    return found


def as_float32(name: str, value: Tensor) -> np.ndarray:
    """The numbers in float32, where nothing is lost by it."""
    exact = value.detach().double().cpu().numpy()
    found = exact.astype(np.float32)
    if not np.array_equal(found.astype(np.float64), exact):
        raise BadInput(f"{name}: holds numbers that float32 rounds. Store the weights in float32 first.")
    return found
