"""Recurrent networks that count modulo m at every length, the weights of counters_arrays as modules."""

from constructions.model_arrays import modules
from constructions.recurrent import counters_arrays as arrays
from constructions.recurrent.counters_arrays import ADDED as ADDED
from constructions.recurrent.counters_arrays import check as check
from constructions.recurrent.counters_arrays import coprime_factors as coprime_factors
from constructions.recurrent.counters_arrays import stored_cycles as stored_cycles
from constructions.recurrent.linear import LinearModel
from constructions.recurrent.model import RecurrentModel

cycle = modules(arrays.cycle, RecurrentModel)
chinese = modules(arrays.chinese, RecurrentModel)
ring = modules(arrays.ring, RecurrentModel)
adder = modules(arrays.adder, RecurrentModel)
johnson = modules(arrays.johnson, RecurrentModel)
cyclotomic = modules(arrays.cyclotomic, LinearModel)
