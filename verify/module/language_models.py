"""Models of Hugging Face's transformers as they are: what they return beside the logits is left out."""

from __future__ import annotations

from torch import Tensor, nn

HOME = "PreTrainedModel"  # the class that all models of transformers are


class Logits(nn.Module):
    """Calls a model of transformers without its cache, and returns its logits alone."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.train(model.training)

    def forward(self, tokens: Tensor) -> Tensor:
        logits: Tensor = self.model(tokens, use_cache=False).logits
        return logits


def logits_alone(module: nn.Module) -> nn.Module:
    """The module itself, or what returns the logits of a model of transformers.

    >>> logits_alone(nn.Linear(2, 2))
    Linear(in_features=2, out_features=2, bias=True)
    """
    return Logits(module) if any(kind.__name__ == HOME for kind in type(module).__mro__) else module
