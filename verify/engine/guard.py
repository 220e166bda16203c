"""A run of the module beside its enclosure: what it computes must lie where the bounds say, or a rule is wrong.

The module is run on the inputs that were enclosed, in float64, and in a dtype reading in that dtype. Real numbers and
the run differ by the run's own roundings. Those are bounded by the same graph in float64 in any order: every order of
evaluation, the one without roundings among them, lies in its balls, and so does what torch computes.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy

import torch
from torch import Tensor, nn

from verify.arithmetic.formats import FORMATS, Format, format_of
from verify.arithmetic.margins import OneRun, margins_of
from verify.arithmetic.readings import Real, Rounded
from verify.engine.balls import Arithmetic, Ball
from verify.engine.capture import CREATING, Graph, given
from verify.engine.margins import Question
from verify.engine.run import ENTRIES_AT_ONCE, call, condition, enclose, enclosed_weights, is_assertion

DTYPES = {"float64": torch.float64, "float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
LOOKED_AT = 16  # inputs of a batch whose run is bounded, those that are furthest out first
ALONE = 8  # inputs that are run where the module takes no batch


class Disagreement(Exception):
    """A run lies outside what was enclosed: a bug of ours."""


@contextmanager
def made_of(dtype: torch.dtype) -> Iterator[None]:
    """Floating-point numbers that come from none are of this dtype."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


class Guard:
    """One module and its graph: compares runs with bounds on the margins of the same inputs."""

    def __init__(self, module: nn.Module, graph: Graph, question: Question, reading: Real | Rounded) -> None:
        self.module, self.graph, self.question, self.reading = module, graph, question, reading
        name = "float64" if isinstance(reading, Real) else reading.format.name
        self.format, self.dtype = FORMATS["float64"], DTYPES.get(name)
        if isinstance(reading, Rounded):
            self.format = reading.format

    def check(self, tokens: Tensor, answers: Tensor, low: Tensor, high: Tensor) -> None:
        """Runs the inputs whose margins between `low` and `high` are decided; what is undecided is not run.

        Raises: Disagreement, with the first operation at which run and enclosure part.
        """
        is_decided = (low > 0) | (high <= 0)
        if not bool(is_decided.any()):
            return
        tokens, answers, low, high = (x[is_decided] for x in (tokens, answers, low, high))
        copied, fmt = self._copy(tokens[:1], answers[:1]), self.format
        if copied is None:
            return
        if copied is self.module and isinstance(self.reading, Real):
            fmt = self._own_format()
        found = self._margins(copied, tokens, answers)
        low, high = low[: len(found)], high[: len(found)]
        # a run is within about the width of the bounds of them: only what is not is looked at closely
        wide = torch.where(torch.isfinite(high - low), 2 * (high - low), torch.zeros_like(low))
        out = torch.fmax(low - wide - found, found - high - wide)
        out = torch.where(found.isnan() & torch.isfinite(low), torch.inf, out)
        for row in out.argsort(descending=True)[:LOOKED_AT].tolist():
            if out[row] > 0:
                said = float(low[row]), float(high[row])
                self._look_at(copied, fmt, tokens[row : row + 1], answers[row : row + 1], said)

    def _own_format(self) -> Format:
        """The format in which the module itself runs."""
        return format_of(self.graph.coarsest)

    def _copy(self, tokens: Tensor, answers: Tensor) -> nn.Module | None:
        """The module in the dtype of the run; None where there is none, or it cannot be copied, or fails on an input.

        What makes constants of a dtype of its own may fail in another one. Then it is judged as it stands, which what
        is said of real arithmetic allows.
        """
        if self.dtype is None:
            return None
        if all(not v.is_floating_point() or v.dtype == self.dtype for v in self.graph.stored.values()):
            return self.module
        try:
            copied = in_format(deepcopy(self.module), self.dtype)
            self._margin(copied, tokens, answers)
        except Exception:  # whatever the user's code raises
            return self.module if isinstance(self.reading, Real) else None
        return copied

    def _margins(self, module: nn.Module, tokens: Tensor, answers: Tensor) -> Tensor:
        """The margins of a run in batches, or where that fails of the first inputs one by one."""
        at_once = max(1, ENTRIES_AT_ONCE // self.graph.widest)
        try:
            starts = range(0, len(tokens), at_once)
            return torch.cat([self._margin(module, tokens[i : i + at_once], answers[i : i + at_once]) for i in starts])
        except Exception:  # the module may take one input at a time
            return torch.cat(
                [self._alone(module, tokens[i : i + 1], answers[i : i + 1]) for i in range(len(tokens))[:ALONE]]
            )

    def _alone(self, module: nn.Module, tokens: Tensor, answers: Tensor) -> Tensor:
        """The margin of one input, which is decided: a module that fails on it is another one."""
        try:
            return self._margin(module, tokens, answers)
        except Exception as error:  # whatever the user's code raises
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            raise Disagreement(f"{tokens[0].tolist()} is decided, and the module fails on it: {reason}") from None

    def _margin(self, module: nn.Module, tokens: Tensor, answers: Tensor) -> Tensor:
        """The least margin of each input (N,)."""
        with torch.no_grad(), made_of(self._default(module)):
            output = module(tokens).double()
        logits = output[:, list(self.question.positions or (0,))] if output.ndim == 3 else output.unsqueeze(1)
        if logits.shape[0] != len(tokens):
            raise ValueError("one output for all inputs")
        if self.question.classes is not None:
            logits = logits[..., list(self.question.classes)]
        return margins_of(logits, answers).amin(1)

    def _default(self, module: nn.Module) -> torch.dtype:
        """The dtype of whole numbers less a Python number: real arithmetic is run beside in float64 throughout."""
        is_wide = module is not self.module or self._own_format() == FORMATS["float64"]
        return torch.float64 if isinstance(self.reading, Real) and is_wide else torch.get_default_dtype()

    def _look_at(
        self, module: nn.Module, fmt: Format, tokens: Tensor, answers: Tensor, said: tuple[float, float]
    ) -> None:
        """Bounds the run of one input, alone: it must lie there, and something of what is said of the margin must."""
        run = self._run(module, tokens, answers, fmt)
        disagrees, place = run._replace(margin=None).contradicts(*said), None
        if disagrees is None:
            disagrees = run.contradicts(None)
            if disagrees is None:
                return
            place = first_apart(self.graph, tokens[0])
            if place is None and module is not self.module:  # code may depend on the dtype: its own is what is known
                run = self._run(self.module, tokens, answers, self._own_format())
                if run.contradicts(None) is None:
                    return
        where = "" if place is None else f", and they part at {place}"
        raise Disagreement(f"on {tokens[0].tolist()} {disagrees}{where}")

    def _run(self, module: nn.Module, tokens: Tensor, answers: Tensor, fmt: Format) -> OneRun:
        """The margin of one input, alone, and between what it lies in every order of evaluation in a format."""
        margin = float(self._alone(module, tokens, answers))
        low, high = self._ends(tokens, answers, fmt)
        return OneRun(margin, low, high, at_most=high)

    def _ends(self, tokens: Tensor, answers: Tensor, fmt: Format) -> tuple[float, float]:
        """Between which margins every order of evaluation in a format lies."""
        accumulate = self.reading.accumulate if isinstance(self.reading, Rounded) else None
        at = Arithmetic(fmt, accumulate, has_norms=True)
        low, high = enclose(self.graph, at, self.question)(tokens, answers)
        return float(low[0].nan_to_num(-torch.inf)), float(high[0].nan_to_num(torch.inf))


def in_format(module: nn.Module, dtype: torch.dtype) -> nn.Module:
    """The module with its floats in a format; complex ones too, of which `module.to` keeps the real parts alone."""

    def converted(x: Tensor) -> Tensor:
        return x.to(dtype.to_complex()) if x.is_complex() else x.to(dtype) if x.is_floating_point() else x

    found: nn.Module = module._apply(converted)  # type: ignore[no-untyped-call]
    return found


def first_apart(graph: Graph, tokens: Tensor) -> str | None:
    """The first operation whose result in float64 lies outside its ball, with its number; None where none does."""
    at = Arithmetic(FORMATS["float64"])
    balls: dict[torch.fx.Node, object] = {}
    floats: dict[torch.fx.Node, object] = {}
    stored = enclosed_weights(graph, at)
    for number, node in enumerate(graph.program.nodes):
        if node.op == "placeholder":
            value = graph.stored.get(node.name, tokens.unsqueeze(0))
            balls[node] = stored.get(node.name, tokens.unsqueeze(0))
            floats[node] = value.double() if value.is_floating_point() else value
        elif node.op == "call_function" and not is_assertion(node):
            balls[node] = call(node, balls, at, tokens.device)
            floats[node] = computed(node, floats)
            if condition(node) is None and is_outside(floats[node], balls[node]):
                return f"{node.target}, operation {number} of the graph"
    return None


def computed(node: torch.fx.Node, values: Mapping[torch.fx.Node, object]) -> object:
    """One operation as torch computes it in float64."""
    args, kwargs = given(node, values)
    if node.target is operator.getitem:
        return args[0][args[1]]
    name, dtype = str(node.target), node.kwargs.get("dtype")
    if name == "aten._assert_tensor_metadata.default":
        return None  # it states the dtype that was captured, and float64 is another
    if isinstance(dtype, torch.dtype) and dtype.is_floating_point and name not in CREATING:
        kwargs = {**kwargs, "dtype": torch.float64}
    function: Callable[..., object] = node.target  # type: ignore[assignment]
    if name == "aten.view.default":
        return args[0].reshape(args[1])
    with torch.no_grad():
        found = function(*args, **kwargs)
    return found.double() if isinstance(found, Tensor) and found.is_floating_point() else found


def is_outside(value: object, ball: object) -> bool:
    """Whether a number lies outside its ball; what is no ball, and a ball of any number, asks nothing."""
    if not (isinstance(ball, Ball) and isinstance(value, Tensor) and value.shape == ball.mid.shape):
        return False
    low, high = ball.ends
    return bool(((value < low) | (value > high) | (value.isnan() & torch.isfinite(ball.radius))).any())
