"""Diagonal state spaces that count modulo m, the weights of diagonal_arrays as modules."""

from constructions.model_arrays import modules
from constructions.recurrent import diagonal_arrays as arrays
from constructions.recurrent.diagonal_arrays import PI as PI
from constructions.recurrent.diagonal_arrays import readout as readout
from constructions.recurrent.diagonal_arrays import stored_rates as stored_rates
from constructions.recurrent.linear import LinearModel, RotationModel

decays = modules(arrays.decays, LinearModel)
rotation = modules(arrays.rotation, RotationModel)
