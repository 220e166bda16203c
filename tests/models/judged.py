"""A small right model of every task, and how each is decided."""

from __future__ import annotations

from models import histogram_runs

from constructions import circuit_simulation, contextual_counting, count01, modular, parity
from constructions.circuits.circuit import Circuit, Gate, decompose
from constructions.relation_counting import bos
from verify.arithmetic.formats import FORMATS
from verify.arithmetic.readings import ConstantBits, Rounded
from verify.frame.decide import certify
from verify.frame.decide import exhaustive as run_all
from verify.tasks.addition.modular.task import ModularAddition
from verify.tasks.circuit import dtype as circuit_dtype
from verify.tasks.circuit import proof as circuit
from verify.tasks.contextual import verdict as contextual
from verify.tasks.count01 import verdict as counting
from verify.tasks.count01.task import PromptDomain
from verify.tasks.histogram import proof as histogram
from verify.tasks.histogram.rounded import verdict as rounded
from verify.tasks.parity.task import Parity

FLOAT32 = FORMATS["float32"]
NAND = decompose(Circuit("nand", ("x", "y"), (Gate("nand", (0, 1), "z"),), (("z", 2),)))
REGION = PromptDomain(max_length=3)
ONES = "majority-ones"

MODELS = {
    "histogram": lambda: bos(T=3, L=2),
    "count01": lambda: count01.uniform(),
    "contextual": lambda: contextual_counting.build(6, 2),
    "circuit": lambda: circuit_simulation.build(NAND.circuit, s=3),
    "parity": lambda: parity.sawtooth(T=2, L=2),
    "modular": lambda: modular.staircase(P=3),
}
# task, way of deciding -> the certificate of a module
WAYS = {
    ("histogram", "real"): histogram.certify,
    ("histogram", "rounded"): lambda m: rounded.certify(m, fmt=FLOAT32),
    ("histogram", "bits"): lambda m: histogram_runs.in_bits(m, 5),
    ("histogram", "exhaustive"): histogram_runs.exhaustive,
    ("histogram", "sampled"): histogram_runs.sampled,
    ("count01", "real"): lambda m: counting.certify(m, ONES, REGION),
    ("count01", "rounded"): lambda m: counting.certify(m, ONES, REGION, reading=Rounded(FORMATS["float64"])),
    ("count01", "bits"): lambda m: counting.certify(m, ONES, REGION, reading=ConstantBits(6)),
    ("count01", "exhaustive"): lambda m: run_all(counting.Count01.of(m, ONES, REGION, method="exhaustive")),
    ("contextual", "real"): lambda m: contextual.certify(m, contextual.domain_of(m, 6)),
    ("contextual", "rounded"): lambda m: contextual.certify(m, contextual.domain_of(m, 6), fmt=FLOAT32),
    ("contextual", "exhaustive"): lambda m: contextual.exhaustive(m, contextual.domain_of(m, 6)),
    ("circuit", "bits"): lambda m: circuit.certify(m, NAND),
    ("circuit", "rounded"): lambda m: circuit_dtype.certify(m, NAND, fmt=FLOAT32),
    ("circuit", "real"): lambda m: circuit_dtype.certify(m, NAND, fmt=None),
    ("circuit", "exhaustive"): lambda m: circuit.certify(m, NAND, method="exhaustive"),
    ("circuit", "sampled"): lambda m: circuit.certify(m, NAND, method="sampled"),
    ("parity", "real"): lambda m: certify(Parity(m)),
    ("modular", "real"): lambda m: certify(ModularAddition(m, 3)),
}
