"""The door of the recurrent networks: what runs are the cells and the readout that the module says it has."""

from __future__ import annotations

from typing import Any

from torch import nn

from constructions.errors import BadInput
from constructions.recurrent.gated import GatedModel
from constructions.recurrent.linear import LinearModel, RotationModel
from constructions.recurrent.model import RecurrentModel
from verify.frame.judged import check_judged

KINDS = (LinearModel, RotationModel, GatedModel)


def check_recurrent(model: nn.Module) -> None:
    """Raises BadInput for a network whose forward pass is not its class's own, or whose cell is another one."""
    check_judged(model, next((kind for kind in KINDS if isinstance(model, kind)), RecurrentModel))
    if not isinstance(model, RecurrentModel):
        return
    cell: Any = model.cell
    is_rnn = isinstance(cell, nn.RNN)
    said = (model.kind, model.layers, model.hidden, model.inputs, model.activation if is_rnn else None)
    runs = (type(cell).__name__.lower(), cell.num_layers, cell.hidden_size, cell.input_size)
    if said != (*runs, cell.nonlinearity if is_rnn else None):
        raise BadInput(f"module: says that it is {said}, and its cell is {runs}. Load the weights anew.")
