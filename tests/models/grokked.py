"""Small modular adders in the layout of the grokking checkpoints: hats over a + b, and small drawn numbers on them."""

import torch
from safetensors.torch import save

from constructions.decoder_loaders import to_progress_measures
from constructions.decoder_model import Decoder
from verify.arithmetic.readings import Real
from verify.frame.decide import certify
from verify.tasks.addition.modular.grokking import about_pairs, findings, problem_of


def hats(P, dtype=torch.float64, noise=2.0**-6, heads=1, layers=1, spare=0, push=0.0):
    """The tensors of a file: an adder modulo P; a `push` towards the class 1 makes pairs with the answer 0 wrong.

    The stream is the number, a + b, and what each class has; uniform attention finds a + b, and a hat of three neurons
    for each sum lets its class have 1. `spare` more classes, and a position, are never asked for.
    """
    d, knots = 2 + P + spare, 2 * P
    sizes = {"d": d, "n_heads": heads, "n_layers": layers, "d_head": 2, "d_mlp": knots, "classes": P + spare}
    plain = {"layernorm": False, "attention_bias": False, "activation": "relu", "dtype": dtype}
    model = Decoder(vocabulary=P + 1, positions=3 + bool(spare), **sizes, **plain)
    drawn = torch.Generator().manual_seed(P)
    with torch.no_grad():
        for value in model.parameters():
            value += noise * torch.randn(value.shape, generator=drawn, dtype=torch.float64).to(dtype)
        block = model.blocks[-1]
        model.W_E[:P, 0] += torch.arange(P, dtype=dtype)
        block.attention.W_V[0, ::2] += 1
        block.attention.W_O[::2, 1] += 3 / heads
        block.mlp.W_in[1, :] += 1
        block.mlp.b_in[:] += 1 - torch.arange(knots, dtype=dtype)
        for s in range(2 * P - 1):
            for i, height in enumerate((1, -2, 1)):
                if s + i < knots:
                    block.mlp.W_out[s + i, 2 + s % P] += height
        model.W_U[2:, :] += torch.eye(P + spare, dtype=dtype)
        model.W_U[2, 1] += push
    return to_progress_measures(model)


def certified(weights, P, reading=None):
    """The weights' bytes, and the certificate that `verify modular --save` writes beside them."""
    problem, decoder = problem_of(weights, P)
    found = about_pairs(certify(problem, reading or Real()), findings(problem, decoder, P), P)
    stored = save({name: value.clone().contiguous() for name, value in weights.items()})
    return stored, found.about(stored).to_json()
