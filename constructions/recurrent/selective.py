"""Recurrent networks that count each of K types in one string, the weights of selective_arrays as modules."""

from constructions.model_arrays import modules
from constructions.recurrent import selective_arrays as arrays
from constructions.recurrent.model import RecurrentModel
from constructions.recurrent.selective_arrays import check as check

thermometer = modules(arrays.thermometer, RecurrentModel)
rings = modules(arrays.rings, RecurrentModel)
adders = modules(arrays.adders, RecurrentModel)
