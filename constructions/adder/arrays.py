"""The small decoder of the adders as arrays, zero but for what builders write."""

from __future__ import annotations

from constructions.errors import BadInput
from constructions.model_arrays import ModelArrays

MADE_BY = "constructions.adder.transformer:AdderTransformer"


def zero_adder(
    *,
    tokens: int,
    length: int,
    classes: int,
    d: int,
    heads: int = 1,
    d_h: int = 1,
    d_v: int = 1,
    p: tuple[int, ...] = (0,),
    skip: bool = True,
    dtype: str = "float64",
) -> ModelArrays:
    """A zero AdderTransformer before it is made; sizes and shapes are those that it has.

    Raises: BadInput for a size below one.

    >>> model = zero_adder(tokens=4, length=3, classes=3, d=2, p=(5,))
    >>> model.blocks[0].W_1.shape, model.module.blocks[0].W_1.shape, model.sizes() == model.module.sizes()
    ((2, 5), torch.Size([2, 5]), True)
    """
    sizes = {"tokens": tokens, "length": length, "classes": classes, "d": d, "heads": heads, "d_h": d_h, "d_v": d_v}
    for name, value in sizes.items():
        if value < 1:
            raise BadInput(f"{name}={value}: must be at least 1")
    shapes: dict[str, tuple[int, ...]] = {"E": (tokens, d), "positions": (length, d)}
    shapes |= {"W_out": (d, classes), "b_out": (classes,)}
    for i, neurons in enumerate(p):
        layer: dict[str, tuple[int, ...]] = {"W_Q": (heads, d, d_h), "W_K": (heads, d, d_h)}
        layer |= {"W_V": (heads, d, d_v), "W_O": (heads, d_v, d)}
        layer |= {"W_1": (d, neurons), "b_1": (neurons,), "W_2": (neurons, d)}
        shapes |= {f"layers.{i}.{name}": shape for name, shape in layer.items()}
    said = {"layers": len(p), "heads": heads, "d": d, "d_h": d_h, "p": sum(p)}
    arguments = {**sizes, "p": p, "skip": skip}
    return ModelArrays.zeros(MADE_BY, dtype, arguments, shapes, has_skip=skip, sizes=lambda: said)
