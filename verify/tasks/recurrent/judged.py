"""The door of the recurrent networks: what runs are the cells and the readout that the module says it has."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from constructions.errors import BadInput
from constructions.model_arrays import ModelArrays
from constructions.recurrent.arrays import CELLS
from verify.frame.unmade import check_held, check_judged
from verify.tasks.recurrent.kinds import class_of

if TYPE_CHECKING:
    from torch import nn

    from constructions.recurrent.model import RecurrentModel
    from verify.tasks.recurrent.kinds import AnyModel


def check_recurrent(model: nn.Module | ModelArrays) -> None:
    """Raises BadInput for a network whose forward pass is not its class's own, or whose cell is another one."""
    name = class_of(cast("AnyModel", model))
    if isinstance(model, ModelArrays):
        assert name is not None
        check_held(model)
        return
    check_judged(model, name or CELLS)
    if name != CELLS:
        return
    found = cast("RecurrentModel", model)
    cell = found.cell
    is_rnn = type(cell).__name__ == "RNN"
    said = (found.kind, found.layers, found.hidden, found.inputs, found.activation if is_rnn else None)
    runs = (type(cell).__name__.lower(), cell.num_layers, cell.hidden_size, cell.input_size)
    if said != (*runs, cell.nonlinearity if is_rnn else None):
        raise BadInput(f"module: says that it is {said}, and its cell is {runs}. Load the weights anew.")
