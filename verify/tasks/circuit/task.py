"""The circuit problem: one transformer against one circuit on all 2^n inputs, as verify.frame.decide asks for it."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from constructions.circuits.between import Between, goes_on
from constructions.circuits.circuit import Decomposition
from constructions.circuits.machine import UNDEFINED, ConstantBitMachine
from constructions.errors import BadInput
from constructions.model_arrays import ModelArrays, module_of, name_of
from verify.arithmetic.any_order import RoundedArithmetic
from verify.arithmetic.contract import Contract
from verify.arithmetic.formats import KERNEL_NAMES, format_of
from verify.arithmetic.margins import OneRun
from verify.arithmetic.readings import ConstantBits, Kernel, Reading, Real, Rounded
from verify.arithmetic.torch_settings import lowered
from verify.frame.clock import Deadline
from verify.frame.decide import LONGEST_BESIDE, Batch, Effort, Failure, Finding, Item, Ran, Run, first_in_order
from verify.frame.unmade import check_judged
from verify.tasks.circuit import MODEL
from verify.tasks.circuit.forward import MOST_SIMULATED, RealRun, in_kernel, next_g
from verify.tasks.circuit.refutation import EXHAUSTIVE_INPUTS

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from constructions.circuit_simulation import CircuitTransformer
    from verify.tasks.circuit.model import CircuitModel

CLAIM = "E-3.4"
BATCH_TOKENS = 2**25  # tokens of one batch of forward runs: about 250 MiB with their values
SHORT_RUN, SHORT_RUNS = 512, 6  # positions of the machine's pass; up to which torch runs drawn inputs, and how many
CONTRACT = Contract(sums="the partial results of one sum are in at most three formats", is_exp_small=True)
RIGHT = (
    "the next token is 1 where coordinate g exceeds 1/2",
    "right means: every token of the chain of thought is its gate's value",
)
CONSTANT_BITS = (
    "the weights are the stored ones, rounded once to s bits",
    "constant-bit arithmetic: s integer and s fractional bits, rounded after every operation, ties to the "
    "smaller magnitude, saturating at B_s; sums left to right, the bias last",
    "the next token is 1 where coordinate g exceeds 1/2; a softmax 0/0 has no token, nor has any later step",
    "right means: every token of the chain of thought is its gate's value",
)
Proof = Callable[["CircuitProblem", Any, Effort], Finding]
Progress = Callable[[str, int, int], None]


def silent(what: str, done: int, total: int) -> None:
    """Shows no progress."""


@dataclass(frozen=True)
class CircuitProblem:
    """One transformer against one circuit: a `Decidable` whose proof is passed in, as each reading has its own.

    `runs` inputs are run beside a proof. `between` is called between pieces of a run in constant bits, and may end it.
    """

    model: CircuitModel
    decomposition: Decomposition
    proof: Proof
    runs: int = 0
    advance: Progress = silent
    between: Between = goes_on
    task = "circuit"
    claim = CLAIM
    counts_answers = True
    runs_for_ever = False

    @classmethod
    def of(
        cls, model: CircuitModel, decomposition: Decomposition, proof: Proof, runs: int = 0, advance: Progress = silent
    ) -> CircuitProblem:
        """Raises: BadInput for the weights of another circuit, or a forward pass that is not the class's own."""
        check_sizes(model, decomposition)
        if not isinstance(model, ModelArrays):
            from verify.frame.judged import unparametrized

            model = unparametrized(model)
        return cls(model, decomposition, proof, runs, advance)

    def stepped(self, done: int, total: int, deadline: Deadline) -> None:
        """Shows how many steps are done.

        Raises: TimeIsUp after the deadline.
        """
        self.advance("steps", done, total)
        deadline.check()

    def parameters(self, reading: Reading) -> dict[str, object]:
        lanes = self.model.lanes
        s = reading.s if isinstance(reading, ConstantBits) else self.model.s
        sizes = {"circuit": self.decomposition.original.name, "s": s, "n": self.model.n, "T": self.model.T}
        sizes |= {"k": lanes.k, "d": lanes.d}
        if isinstance(reading, Rounded):
            inner = RoundedArithmetic.of(reading.format, reading.accumulate).inner
            sizes |= {"precision": reading.format.name, "accumulate": inner.name}
        return sizes

    def size(self) -> int:
        return 1 << self.model.n

    def assumptions(self, reading: Reading) -> tuple[str, ...]:
        if isinstance(reading, ConstantBits):
            return CONSTANT_BITS
        if isinstance(reading, Real):
            return ("the weights are the stored ones, in real arithmetic, with a softmax that is never 0", *RIGHT)
        if isinstance(reading, Rounded):
            return (*CONTRACT.text(reading.format, reading.accumulate), *RIGHT)
        import torch

        dtype = name_of(self.model.dtype)
        kernel = f"torch {torch.__version__}, {dtype}, the right tokens of all steps in one causal pass"
        return (f"{kernel}: another kernel, batch shape or device may round differently", *RIGHT)

    def facts(self) -> dict[str, object]:
        return {
            "statistics": self.decomposition.original.statistics(),
            "forward_runs": {"inputs": 0, "all": False},
            "harmless_differences": 0,
        }

    def prove(self, reading: Reading, effort: Effort) -> Finding:
        finding = self.proof(self, reading, effort)
        return replace(finding, telling=self._telling(reading, finding))

    def _telling(self, reading: Reading, finding: Finding) -> tuple[tuple[Item, int], ...]:
        """All zeros, all ones, and a few inputs drawn with a fixed seed: which one is tightest is open.

        None where the machine ran what was asked for, or a run is too long.
        """
        is_machine = isinstance(reading, ConstantBits)
        longest = SHORT_RUN if is_machine else LONGEST_BESIDE
        if self.decomposition.circuit.nodes > longest or (is_machine and "forward_runs" in finding.extra):
            return ()
        n, rng = self.model.n, random.Random(0)
        drawn = SHORT_RUNS if self.decomposition.circuit.nodes <= SHORT_RUN else 0
        inputs = [(0,) * n, (1,) * n, *(tuple(rng.getrandbits(1) for _ in range(n)) for _ in range(drawn))]
        return tuple((item, 0) for item in dict.fromkeys(inputs))

    def look(self, item: Item, answer: int, reading: Reading) -> OneRun:
        """In a format that is not the weights' own, a run of the model in it: nothing is proved of a wrong one.

        In real arithmetic arrays, of which no module is run, are evaluated in balls.
        """
        expected = self.expected([item])
        if isinstance(reading, Real) and isinstance(self.model, ModelArrays) and expected.shape[1] <= MOST_SIMULATED:
            g = next_g(self.model, None, RealRun(), expected[:, :-1])
            after = np.where(expected[:, 1:] == 1, g.upper - 0.5, 0.5 - g.lower)[:, self.model.n - 1 :]
            return OneRun(at_most=float(after.min(initial=0.5)))
        if not isinstance(reading, Rounded) or reading.format == format_of(self.dtype):
            return OneRun()
        if reading.format.name not in KERNEL_NAMES or lowered(reading.format):
            return OneRun()
        run = replace(self, model=in_kernel(self.model, reading.format)).runner(Kernel())
        return OneRun(at_most=-math.inf) if run([item]).is_wrong.any() else OneRun()

    def batches(self) -> Iterator[Batch]:
        n = self.model.n
        if n > EXHAUSTIVE_INPUTS:
            raise BadInput(
                f"method=exhaustive: n={n} inputs are 2^{n} runs, the most is n={EXHAUSTIVE_INPUTS}. "
                "Use --method certified."
            )
        step = max(1, min(4096, BATCH_TOKENS // self.decomposition.circuit.nodes))
        items = list(product((0, 1), repeat=n))
        for start in range(0, len(items), step):
            yield [item[::-1] for item in items[start : start + step]]

    def draw(self, rng: random.Random) -> Item:
        return tuple(rng.getrandbits(1) for _ in range(self.model.n))

    def smaller(self, item: Item) -> Iterator[Item]:
        """One bit is zero instead."""
        for place in np.flatnonzero(item):
            yield (*item[:place], 0, *item[place + 1 :])

    def runner(self, reading: Kernel | ConstantBits) -> Run:
        g_of = self._g_of(reading)

        def run(batch: Batch) -> Ran:
            expected = self.expected(batch)
            tokens, g = g_of(expected)
            margins, is_wrong = judged(g, tokens, expected[:, self.model.n :])
            return Ran(margins[:, None], np.logical_or.reduce(is_wrong, axis=1)[:, None])

        return run

    def _g_of(self, reading: Kernel | ConstantBits) -> Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]:
        """Tokens and g of all steps (batch, T) from the right values of all nodes."""
        n = self.model.n
        if isinstance(reading, ConstantBits):
            machine = ConstantBitMachine(self.model, reading.s)

            def watch(*_: object) -> bool:
                self.between()
                return False

            def in_bits(expected: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
                passed = machine.after_right(expected, self.between)
                if passed is not None:
                    return passed
                tokens, g = machine.generate_with_g(expected[:, :n], watch)
                return tokens[:, n:], g[:, n:]

            return in_bits

        import torch

        module = module_of(self.model)

        def by_torch(expected: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            with torch.no_grad():
                inputs = torch.from_numpy(expected[:, :-1]).to(module.E.device)
                g = module(inputs)[:, n - 1 :].double().cpu().numpy()
            tokens: np.ndarray = np.where(np.isnan(g), UNDEFINED, g > 0.5)
            return tokens, g

        return by_torch

    def expected(self, batch: Batch) -> np.ndarray:
        """The right values of all nodes (batch, n+T)."""
        bits = np.array(batch, dtype=np.int64).reshape(len(batch), -1)
        words = [int.from_bytes(np.packbits(column, bitorder="little").tobytes(), "little") for column in bits.T]
        values = self.decomposition.circuit.evaluate(words, (1 << len(batch)) - 1, self.between)
        size = (len(batch) + 7) // 8
        packed = np.frombuffer(b"".join(word.to_bytes(size, "little") for word in values), np.uint8)
        found = np.unpackbits(packed.reshape(len(values), size), axis=1, count=len(batch), bitorder="little")
        return np.ascontiguousarray(found.T, dtype=np.int64)

    def first(self, batch: Batch, is_wrong: np.ndarray) -> tuple[int, Item, int]:
        return first_in_order(batch, is_wrong)

    @property
    def dtype(self) -> torch.dtype | str:
        return self.model.dtype

    def length_of(self, item: Item) -> int:
        return self.decomposition.circuit.nodes

    def is_surely_wrong(self, item: Item, answer: int) -> bool:
        n, expected = self.model.n, self.expected([item])
        tokens, g = self._g_of(Kernel())(expected)
        is_wrong = judged(g, tokens, expected[:, n:])[1]
        step = int(is_wrong[0].argmax())
        right = int(expected[0, n + step])
        from verify.frame.tracing import ends

        run_at_least, really_at_most = ends(sides(module_of(self.model)), expected[0, : n + step].tolist(), right)
        is_wrong_at_tie = right == 1  # g = 1/2 is the token 0
        return run_at_least > 0 or really_at_most < 0 or (is_wrong_at_tie and really_at_most == 0)

    def replay(self, item: Item, answer: int, reading: Reading) -> Failure:
        assert isinstance(reading, Kernel | ConstantBits)
        n, expected = self.model.n, self.expected([item])
        tokens, g = self._g_of(reading)(expected)
        margins, is_wrong = judged(g, tokens, expected[:, n:])
        step = int(is_wrong[0].argmax())
        margin = float(margins[0])
        found = self.counterexample(item, n + step, int(tokens[0, step]), int(expected[0, n + step]))
        return Failure(found, margin if margin == margin else None)

    def counterexample(self, bits: Item, gate: int, computed: int, expected: int) -> dict[str, object]:
        """A wrong step of one input; `computed` is None where there is no token."""
        circuit = self.decomposition.circuit
        token = None if computed == UNDEFINED else computed
        return {
            "gate": circuit.name_of(gate),
            "kind": circuit.gates[gate - self.model.n].kind,
            "step": gate - self.model.n + 1,
            "input": "".join(map(str, bits)),
            "computed": token,
            "expected": expected,
            "predicted": token,
            "why": None,
        }


def sides(model: CircuitTransformer) -> nn.Module:
    """A circuit's transformer whose next token is the larger of two logits, (batch, L, 2): 1/2 - g and g - 1/2."""
    import torch

    class Sides(torch.nn.Module):
        """The transformer, and the two logits of its coordinate g."""

        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, tokens: Tensor) -> Tensor:
            g: Tensor = self.model(tokens)
            return torch.stack([0.5 - g, g - 0.5], dim=-1)

    return Sides()


def judged(g: np.ndarray, tokens: np.ndarray, expected: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The margin of each input (batch,), and which steps (batch, T) are wrong.

    The margin of a step is the distance of g to 1/2, negative on the wrong side: that of the first wrong step, NaN
    where it has no token, or the least of all where none is wrong. The token 0 allows a distance of zero.
    """
    is_wrong: np.ndarray = np.not_equal(tokens, expected)
    distance = np.where(expected == 1, g - 0.5, 0.5 - g)
    if not g.shape[1]:
        return np.full(len(g), 0.5), is_wrong
    at_first = distance[np.arange(len(g)), is_wrong.argmax(1)]
    return np.where(is_wrong.any(1), at_first, distance.min(1, initial=0.5)), is_wrong


def check_sizes(model: CircuitModel, decomposition: Decomposition) -> None:
    """Raises: BadInput for the weights of another circuit, or a forward pass that is not the class's own."""
    check_judged(model, MODEL)
    if not isinstance(model, ModelArrays) and len(model.layers) != len(model.both):
        raise BadInput(f"module.layers: has {len(model.layers)} layers, and two are run. Remove the others.")
    n, T = len(decomposition.circuit.inputs), len(decomposition.circuit.gates)
    if (model.n, model.T) != (n, T):
        raise BadInput(f"weights for n={model.n}, T={model.T}: circuit {decomposition.original.name} has n={n}, T={T}")
