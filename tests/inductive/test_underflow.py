"""Products that float64 loses are not lost in real arithmetic: a lane that is 0 in every run decides every answer."""

import pytest
import torch
from models.selection import every
from oracles import decoder as oracle
from oracles.inductive import right

from constructions.decoder import Decoder
from constructions.decoder_arrays import DecoderArrays
from constructions.inductive import positioned, selective, started, succession, unmarked
from verify.counting.tasks import Task
from verify.frame.certificate import Verdict
from verify.frame.decide import certify
from verify.tasks.inductive import uniform
from verify.tasks.inductive.task import Counting

SHIFTED, SUCCESSION = (Task.of(name, vocabulary=4) for name in ("shifted", "succession"))
SELECTIVE = Task.of("selective", types=2, max_count=2)
CASES = {
    "prefix sums": (lambda: started(task="shifted", M=4, layernorm=False), SHIFTED, (2, 5)),
    "boxes": (lambda: selective(K=2, C=2, layernorm=False), SELECTIVE, (0, 1)),
    "placed": (lambda: positioned(K=2, C=2, layernorm=False, positions=5), SELECTIVE, (0, 1)),
    "sharp": (lambda: succession(M=4, layernorm=False, positions=5), SUCCESSION, (5, 5)),
    "marked": (lambda: unmarked(K=2, C=2, positions=5), SELECTIVE, (0, 1)),
}


def widened(model, tiny, huge):
    """The decoder with a lane that takes three tiny factors, and a neuron that takes three huge ones to class 0."""
    block, d = model.blocks[0], model.W_U.shape[0]
    inner, p = block.attention.W_V.shape[1], 0 if block.mlp is None else block.mlp.b_in.numel()
    new = Decoder(
        vocabulary=model.vocabulary, d=d + 3, d_head=inner + 1, d_mlp=p + 1, classes=model.W_U.shape[1],
        positions=model.positions, pe=model.pe, bos=model.has_bos, layernorm=False, activation="relu",
        n_layers=len(model.blocks),
    )  # fmt: skip
    weights = {name: torch.zeros_like(value) for name, value in new.state_dict().items()}
    for name, value in model.state_dict().items():
        if name in weights:
            weights[name][tuple(map(slice, value.shape))] = value
    weights["W_E"][:, d], weights["W_U"][d + 2, 0] = tiny, huge
    layer = {name.removeprefix("blocks.0."): value for name, value in weights.items()}
    layer["attention.W_V"][d, inner], layer["attention.W_O"][inner, d + 1] = tiny, tiny
    layer["mlp.W_in"][d + 1, p], layer["mlp.W_out"][p, d + 2] = huge, huge
    new.load_state_dict(weights)
    return new.eval()


SIZES = ((2.0**-550, 2.0**900), (2.0**-480, 2.0**900))
BY_TURNS = [(name, *SIZES[(i + j) % 2]) for i, name in enumerate(CASES) for j in range(2)]


@pytest.mark.parametrize(("name", "tiny", "huge"), every(12, BY_TURNS))
def test_what_float64_loses_is_not_proved_away(name, tiny, huge):
    build, task, tokens = CASES[name]
    model = widened(build(), tiny, huge)
    due = right(task.name, tokens, M=task.M, m=task.m, C=task.C)
    exact = oracle.margins(oracle.slow(oracle.stored(model), tokens, 0), due)
    assert max(exact) < -1 and model(torch.tensor([tokens]))[0].argmax(-1).tolist() == list(due)
    assert uniform.is_faint(DecoderArrays.of(model)) == (tiny < 2.0**-500)
    assert certify(Counting(model, task)).verdict is not Verdict.PROVED
