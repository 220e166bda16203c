"""LSTMs that count by adding and holding, the weights of holding_arrays as modules."""

from constructions.model_arrays import modules
from constructions.recurrent import holding_arrays as arrays
from constructions.recurrent.holding_arrays import STARTED as STARTED
from constructions.recurrent.model import RecurrentModel

counter = modules(arrays.counter, RecurrentModel)
starting = modules(arrays.starting, RecurrentModel)
counters = modules(arrays.counters, RecurrentModel)
rings = modules(arrays.rings, RecurrentModel)
