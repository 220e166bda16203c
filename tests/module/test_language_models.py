"""A model as transformers makes it: an object with logits and a cache in it. transformers itself is not needed."""

from dataclasses import dataclass

import torch
from torch import nn

from verify import certify
from verify.module import tokens


class PreTrainedModel(nn.Module):
    """The class of that name in transformers is told by its name."""


@dataclass
class Output:
    """What torch.export does not know, as transformers' cache."""

    logits: torch.Tensor
    past_key_values: object = None


class GPT2LMHeadModel(PreTrainedModel):
    def __init__(self, W):
        super().__init__()
        self.W = nn.Parameter(W)

    def forward(self, input_ids, use_cache=True):
        return Output(self.W[input_ids], object() if use_cache else None)


def test_the_logits_of_a_model_of_transformers_are_judged():
    task = {"inputs": tokens([3, 3]), "expected": lambda t: t[:, -1]}
    right = certify(GPT2LMHeadModel(torch.eye(3)).eval(), **task)
    assert right.verdict == "PROVED" and right.parameters["module"] == "GPT2LMHeadModel"
    assert certify(GPT2LMHeadModel(-torch.eye(3)).eval(), **task).verdict == "REFUTED"
