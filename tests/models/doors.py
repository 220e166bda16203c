"""Every door that reads a module's numbers by name: a small right model, and how it is decided."""

from __future__ import annotations

from functools import partial

import torch

from constructions import addition, contextual_positions, contextual_with_positions
from constructions.adder.digits import Digits
from constructions.decoder import Decoder, initialised
from constructions.inductive import started
from constructions.recurrent import counters
from constructions.relation_counting import bos
from tests.models.judged import MODELS, WAYS
from tests.models.whole_blocks import SIZES, drawn
from verify.counting.tasks import Task
from verify.export.networks import histogram_network
from verify.frame.decide import certify
from verify.module import tokens
from verify.python import public
from verify.tasks.addition.task import DigitAddition
from verify.tasks.contextual.stream import StoredContextual
from verify.tasks.count01.heads.dissect import HeadsQuestion, dissect
from verify.tasks.count01.layer_norm.laws import law_named
from verify.tasks.inductive.ceilings.fading import fading
from verify.tasks.inductive.task import Counting
from verify.tasks.recurrent.task import Homogeneous

LAST = tokens([4] * 3)


def last(inputs: torch.Tensor) -> torch.Tensor:
    """The last token."""
    return inputs[:, -1]


def faded() -> Decoder:
    return Decoder(vocabulary=2, d=4, n_heads=2, pe="nope", bos=True)


def last_token() -> Decoder:
    """One attention layer that says the last of three tokens: decided as any module is."""
    model = Decoder(vocabulary=4, d=4, d_mlp=0, layernorm=False, pe="nope", attention_bias=False).eval()
    with torch.no_grad():
        model.W_E.copy_(torch.eye(4))
        model.W_U.copy_(torch.eye(4))
    return model


SHIFTED, CYCLE = Task.of("shifted", vocabulary=4), Task.of("modular", modulus=3)
BOX = law_named("box:0:1:1")


# door -> the file that checks, the model, and what is done with a module
DOORS = {
    "histogram": ("tasks/histogram/problem.py", MODELS["histogram"], WAYS["histogram", "real"]),
    "histogram rounded": ("tasks/histogram/stored.py", MODELS["histogram"], WAYS["histogram", "rounded"]),
    "count01": ("tasks/count01/judged.py", MODELS["count01"], WAYS["count01", "real"]),
    "heads": ("tasks/count01/judged.py", MODELS["count01"], lambda m: dissect(m, HeadsQuestion(BOX))),
    "contextual": ("tasks/contextual/verdict.py", MODELS["contextual"], WAYS["contextual", "real"]),
    "contextual stream": ("tasks/contextual/stream.py", MODELS["contextual"], StoredContextual.of),
    "bidirectional": (
        "tasks/contextual/bidirectional/task.py",
        lambda: contextual_positions.build(3, 1),
        lambda m: public.certify(m, length=3),
    ),
    "positional": (
        "tasks/contextual/bidirectional/task.py",
        lambda: contextual_with_positions.build(3, 1, "alibi", has_mlp=True),
        lambda m: public.certify(m, length=3),
    ),
    "circuit": ("tasks/circuit/task.py", MODELS["circuit"], WAYS["circuit", "real"]),
    "parity": ("tasks/parity/task.py", MODELS["parity"], WAYS["parity", "real"]),
    "modular": ("tasks/addition/modular/task.py", MODELS["modular"], WAYS["modular", "real"]),
    "addition": (
        "tasks/addition/task.py",
        lambda: addition.one_head(n=2),
        lambda m: certify(DigitAddition(m, Digits(2))),
    ),
    "inductive transformer": (
        "tasks/inductive/task.py",
        lambda: started(task="shifted", M=4),
        lambda m: certify(Counting(m, SHIFTED)),
    ),
    "inductive recurrent": (
        "tasks/recurrent/judged.py",
        lambda: counters.cycle(m=3),
        lambda m: certify(Homogeneous(m, CYCLE, None)),
    ),
    **{
        f"{kind} blocks": (
            "tasks/recurrent/judged.py",
            partial(drawn, kind, 0, types=1, classes=3),
            lambda m: certify(Homogeneous(m, CYCLE, None)),
        )
        for kind in SIZES
    },
    "ceilings": ("tasks/inductive/ceilings/fading.py", lambda: initialised(faded(), seed=0), fading),
    "export": ("export/networks.py", lambda: bos(T=3, L=2, d=4), histogram_network),
    "module": (None, last_token, lambda m: public.certify(m, inputs=LAST, expected=last)),
    "pytest": (None, MODELS["histogram"], public.assert_proved),
}
