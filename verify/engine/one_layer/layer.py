"""One softmax attention layer of a captured graph, as tables over single positions' tokens and what comes after it.

Fix the tokens of some positions, the answer's own most often. A number that then depends on one other position's token
alone is a table of that token, and the engine computes all tables at once: the graph run on inputs whose free positions
have token 1, token 2, ... of their sets. A row of softmax attends with w_j / Z, where w_j = exp(score_j - top) is a
table of one token and Z their sum; so each number of softmax(scores) @ values is N / Z with N a sum of tables: an atom.
All that comes afterwards is affine in atoms, or a function of such (`Block`), whose results are atoms again.

Nothing is assumed of the graph: `dependence` says which numbers are tables, and where the logits depend on a number
that is neither a table nor affine in atoms, `NotOneLayer` says which operation it was.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import torch
from torch import Tensor

from verify.arithmetic.slack import ENLARGE_LONG as ENLARGE
from verify.arithmetic.slack import LEAST, gamma
from verify.engine import dependence
from verify.engine.balls import Arithmetic, Ball
from verify.engine.capture import Graph
from verify.engine.dependence import (
    LAYER_NORM,
    MOVES,
    PRODUCTS,
    RMS_NORM,
    SOFTMAXES,
    arguments,
    options,
    shape_of,
    through,
)
from verify.engine.dtypes import is_float
from verify.engine.margins import Question
from verify.engine.one_layer.after import NORM, OF_TWO, RMS, SAMPLES, Atoms, makes_atoms, written_norm
from verify.engine.one_layer.forms import FIRST_FORM, LINEAR, ONE_FORM, Form, each_column
from verify.engine.one_layer.forms import moved as moved_form
from verify.engine.rules.linear import plus, times
from verify.engine.rules.normalisation import scores as attention_scores
from verify.engine.rules.pointwise import bounded_exp
from verify.engine.rules.registry import as_ball
from verify.engine.run import call, condition, enclosed_weights, holds

AT = Arithmetic()
SDPA = "aten.scaled_dot_product_attention.default"
NORM_OF = {LAYER_NORM: NORM, RMS_NORM: RMS}
WIDEST = 1 << 11  # numbers in one sum, for whose roundings the bounds' factor ENLARGE stands
PLAIN, WEIGHTS, FORM = "plain", "weights", "form"


class NotOneLayer(Exception):
    """The logits are no function of one layer's quotients: the message says where."""


@dataclass(frozen=True)
class Affine:
    """Numbers c + sum over sources of A_source x: of the attention's atoms (source -1) or of a block's results.

    Shapes: `constant` (size,), each part (size, atoms of the source).
    """

    constant: Ball
    parts: dict[int, Ball]

    def renamed(self, number: Mapping[int, int]) -> Affine:
        """The same map where sources have other numbers."""
        return Affine(self.constant, {number[s]: part for s, part in self.parts.items()})

    def __getitem__(self, rows: Tensor | int) -> Affine:
        return Affine(row(self.constant, rows), {s: row(part, rows) for s, part in self.parts.items()})


def for_heads(x: Tensor, heads: int) -> Tensor:
    """Keys or values for so many heads of queries, each repeated in place."""
    return x.repeat_interleave(heads // x.shape[-3], -3)


def row(x: Ball, rows: Tensor | int | tuple[slice | int, ...]) -> Ball:
    return Ball(x.mid[rows], x.radius[rows])


@dataclass(frozen=True)
class Block:
    """A function of affine forms, entry by entry; LayerNorm ("norm") or RMSNorm ("rms") without weights, with eps."""

    function: str
    given: Affine
    eps: float = 0.0

    @property
    def size(self) -> int:
        return len(self.given.constant.mid)


@dataclass(frozen=True)
class Layer:
    """The logits where some positions' tokens are fixed: tables, blocks in order, and the logits' forms.

    Atom k is N_k / Z_h, h = `head[k]`, with N_k the sum over places of one entry of `values[k]` each and Z_h that of
    `weights[h]`. Place i is free position `places[i]`, its entries by rank in its set; the last place has what is
    fixed, as its only entry. |atom k| is at most `largest[k]`.
    Shapes: `weights` (heads, places + 1, ranks), `values` (atoms, places + 1, ranks), `logits` affine (classes,).
    """

    places: tuple[int, ...]
    weights: Ball
    values: Ball
    head: Tensor
    largest: Tensor
    blocks: tuple[Block, ...]
    logits: Affine


@dataclass(frozen=True)
class Weighted:
    """A tensor of attention weights w / Z: the numbers w by run, and which softmax row each one's Z is of."""

    numbers: Ball
    group: Tensor


class OneLayer:
    """A graph of one attention layer at one answer, the tokens of some positions fixed.

    Raises: NotOneLayer where the logits are no such function.
    """

    def __init__(self, graph: Graph, question: Question, sets: Sequence[Sequence[int]], fixed: Sequence[int]) -> None:
        self.graph, self.question = graph, question
        self.sets = [list(allowed) for allowed in sets]
        self.fixed, self.length = tuple(fixed), graph.length
        self.places = tuple(i for i in range(graph.length) if i not in self.fixed)
        if not self.places:
            raise NotOneLayer("every position is fixed")
        self.channels = graph.length + 1  # the last one: neither a table nor a form
        too_many = dependence.too_many(graph.program, self.channels)
        if too_many is not None:
            raise NotOneLayer(too_many)
        self.stored = enclosed_weights(graph, AT)
        self.kinds: dict[torch.fx.Node, str] = {}
        self.depends: dict[torch.fx.Node, Tensor] = {}
        self.known: dict[torch.fx.Node, Tensor] = {}
        self.groups: dict[torch.fx.Node, Tensor] = {}
        self.lost: str | None = None
        for node in graph.program.nodes:
            if node.op == "output":
                self.output = self._checked(node.all_input_nodes[-1])
            else:
                self._follow(node)

    # which numbers are tables, weights, or forms

    def _follow(self, node: torch.fx.Node) -> None:
        if node.op == "placeholder":
            self._start(node)
            return
        if str(node.target) == "aten._assert_tensor_metadata.default":
            return  # shapes and dtypes are known
        if str(node.target).startswith("aten._assert"):
            raise NotOneLayer(f"{node.target} may fail")
        rows = condition(node)  # of an embedding: below 0 it fails, which the runs show where each row has one token
        if rows is not None and not (self.kinds[rows] == PLAIN and bool((self.depends[rows].sum(0) <= 1).all())):
            raise NotOneLayer(f"{node.target} may fail")
        kinds = {self.kinds[x] for x in node.all_input_nodes}
        name = str(node.target)
        found = cast(Tensor, through(node, self.depends, self.channels, self.known))  # or a list, which getitem reads
        self.kinds[node], self.depends[node] = PLAIN, found
        if kinds <= {PLAIN}:
            if (name in SOFTMAXES or name == SDPA) and bool((found.sum(0) > 1).any()):
                self._attend(node, name)
            else:
                self._remember(node, found)
            return
        self.kinds[node] = FORM
        if WEIGHTS in kinds:
            self._weigh(node, name, found)
        elif not self._is_form(node, name):
            self._lose(node)

    def _start(self, node: torch.fx.Node) -> None:
        self.kinds[node] = PLAIN
        empty = cast(Tensor, dependence.nothing(node, self.channels))
        if node.name in self.graph.stored:
            value = self.graph.stored[node.name]
            if not value.is_floating_point():
                self.known[node] = value
        elif isinstance(node.meta.get("val"), Tensor):  # the tokens; an argument that is a Python number is in the code
            for i in self.places:
                empty[i, 0, i] = True
        self.depends[node] = empty

    def _remember(self, node: torch.fx.Node, found: dependence.Deps) -> None:
        """Keeps whole numbers that depend on nothing, as torch computes them."""
        value = node.meta.get("val")
        is_whole = isinstance(value, Tensor) and not is_float(value.dtype)
        if is_whole and not bool(dependence.flat(found).any()) and all(x in self.known for x in node.all_input_nodes):
            self.known[node] = cast(Tensor, call(node, self.known, AT, torch.device("cpu")))

    def _lose(self, node: torch.fx.Node) -> None:
        """What a node computes is neither a table nor a form."""
        self.lost = self.lost or f"{node.target} after the attention"
        found = self.depends[node]
        for part in found if isinstance(found, list) else [found]:
            part[self.length] = True

    def _attend(self, node: torch.fx.Node, name: str) -> None:
        """A softmax of tables: rows all of whose scores are tables have weights."""
        if name == SDPA:
            if len(arguments(node)) > 6:
                raise NotOneLayer(f"{node.target} with more arguments than are known")
            self.kinds[node] = FORM
            q, k, v = self.queries(node)
            by_key = dependence.spread(k.any(-1).unsqueeze(-2), [*q.shape[1:-1], k.shape[-2]])
            scores = q.any(-1, keepdim=True) | by_key
            mask = arguments(node)[3] if len(arguments(node)) > 3 else options(node).get("attn_mask")
            if mask is not None:
                scores = scores | dependence.spread(self.depends[mask], list(scores.shape[1:]))
            groups = rows_of(list(scores.shape[1:]), -1)
            self.groups[node] = groups
            self.depends[node] = self._mixture(alone(scores, -1), groups, v)
            return
        self.kinds[node] = WEIGHTS
        dim: int = arguments(node)[1]
        self.groups[node] = rows_of(shape_of(node), dim)
        self.depends[node] = alone(self.depends[arguments(node)[0]], dim)

    def queries(self, node: torch.fx.Node) -> list[Tensor]:
        """The dependence of queries, keys and values, as many heads of each."""
        q, k, v = (self.depends[x] for x in arguments(node)[:3])
        return [q, *(for_heads(x, q.shape[-3]) for x in (k, v))] if options(node).get("enable_gqa") else [q, k, v]

    def _mixture(self, weights: Tensor, groups: Tensor, values: Tensor) -> Tensor:
        """The dependence of weights @ values: nothing where it is an atom, the last channel elsewhere."""
        pairs = weights.unsqueeze(-1) | values.unsqueeze(-3)  # (channels, ..., rows, keys, columns)
        is_one_row = (groups == groups[..., :1]).all(-1)
        is_atom = ((pairs.sum(0) <= 1) & ~pairs[-1]).all(-2) & is_one_row.unsqueeze(-1)
        found = torch.zeros(len(pairs), *is_atom.shape, dtype=torch.bool)
        found[-1] = ~is_atom
        return found

    def _weigh(self, node: torch.fx.Node, name: str, found: object) -> None:
        """An operation on attention weights: they are moved, or multiply tables."""
        first, *rest = node.all_input_nodes
        if name in MOVES and gives_floats(node) and not rest and not isinstance(found, list) and first in self.groups:
            self.kinds[node] = WEIGHTS
            self.groups[node] = dependence.move(node, self.groups[first])
        elif name in PRODUCTS and len(rest) == 1 and self.kinds[rest[0]] == PLAIN and arguments(node)[0] is first:
            x, y = self.depends[first], self.depends[rest[0]]
            if x.ndim != y.ndim or x.shape[1:-2] != y.shape[1:-2] or x.ndim < 3:
                self._lose(node)
            else:
                self.depends[node] = self._mixture(x, self.groups[first], y)
        else:
            self._lose(node)

    def _is_form(self, node: torch.fx.Node, name: str) -> bool:
        """Whether an operation on forms gives forms; which of its numbers are, `through` has said."""
        if not gives_floats(node):
            return False
        if node.target is operator.getitem or name in MOVES and len(node.all_input_nodes) == 1:
            return True
        if name == "aten.index.Tensor":
            return all(p is None or p in self.known for p in arguments(node)[1])
        if name in NORM_OF:
            is_alone = [x for x in node.all_input_nodes if self.kinds[x] != PLAIN] == [arguments(node)[0]]
            return is_alone and len(arguments(node)[1]) == 1
        return self._is_linear(node, name) or self._makes_atoms(node)

    def _makes_atoms(self, node: torch.fx.Node) -> bool:
        """Whether an operation on forms makes new atoms."""
        return makes_atoms(node, [x for x in node.all_input_nodes if self.kinds[x] == FORM])

    def _is_linear(self, node: torch.fx.Node, name: str) -> bool:
        """Whether an operation on forms is linear in them."""
        if any(options(node).get(key, 1) != 1 for key in ("alpha", "beta")):
            return False
        forms = [x for x in node.all_input_nodes if self.kinds[x] == FORM]
        if name in ("aten.addmm.default", "aten.baddbmm.default"):
            return sum(self.kinds[x] == FORM for x in arguments(node)[1:3]) == 1
        if name.startswith(ONE_FORM):
            return name in LINEAR and len(forms) == 1 and sum(x is forms[0] for x in arguments(node)) == 1
        if name.startswith(FIRST_FORM):
            return name in LINEAR and forms == [arguments(node)[0]]
        return name in LINEAR

    def _checked(self, node: torch.fx.Node) -> torch.fx.Node:
        if self.kinds[node] == PLAIN:
            raise NotOneLayer("no attention over several tokens was found")
        if self.kinds[node] == WEIGHTS:
            raise NotOneLayer("the logits are attention weights")
        found = self.question.logits(Ball(self.depends[node].any(0).double())).mid
        if bool(found.any()):
            raise NotOneLayer(self.lost or "the answer depends on attention between two free tokens")
        if len(found) != 1:
            raise NotOneLayer("several positions answer")
        return node

    # their numbers

    def layer(self, tokens: Sequence[int]) -> Layer:
        """The tables where the fixed positions have these tokens."""
        return Numbers(self, tokens).layer()

    def runs(self, tokens: Sequence[int]) -> Tensor:
        """Inputs of the domain: in run r each free position has the token of rank r of its set, or its last one."""
        ranks = max(len(self.sets[i]) for i in self.places)
        found = torch.empty(ranks, self.length, dtype=torch.long)
        for i in self.places:
            allowed = torch.tensor(self.sets[i])
            found[:, i] = allowed[torch.arange(ranks).clamp(max=len(allowed) - 1)]
        for i, token in zip(self.fixed, tokens, strict=True):
            found[:, i] = token
        return found


def alone(found: Tensor, dim: int) -> Tensor:
    """The scores' dependence; where a row has a score of two tokens, all of it is lost."""
    spoilt = (found.sum(0) > 1) | found[-1]
    axis = dim % spoilt.ndim
    found = found.clone()
    found[-1] = spoilt.any(axis, keepdim=True)
    return found


def rows_of(shape: list[int], dim: int) -> Tensor:
    """A number for each row along an axis, at all of its entries."""
    dim %= len(shape)
    reduced = [1 if i == dim else n for i, n in enumerate(shape)]
    return torch.arange(int(torch.tensor(reduced).prod())).reshape(reduced).expand(shape)


class Numbers:
    """The values of one `OneLayer` for some tokens of its fixed positions."""

    def __init__(self, given: OneLayer, tokens: Sequence[int]) -> None:
        self.given, self.tokens = given, given.runs(tokens)
        self.slot = torch.full((given.length + 1,), len(given.places))  # by position; what is fixed comes last
        for slot, place in enumerate(given.places):
            self.slot[place] = slot
        self.atoms = Atoms()
        widths = torch.tensor([len(given.sets[i]) for i in given.places] + [1])
        drawn = torch.rand(SAMPLES, len(widths), generator=torch.Generator().manual_seed(0))
        self.samples = (drawn * widths).long()  # ranks of some inputs
        self.heads: list[Ball] = []
        self.values: list[tuple[Tensor, Tensor, Tensor, Tensor]] = []
        self.forms: dict[torch.fx.Node, Any] = {}
        self.plain = self._plain()

    def _plain(self) -> dict[torch.fx.Node, Ball]:
        """What plain nodes compute in all runs, of those that others read; stored numbers are as they are stored."""
        given, kinds = self.given, self.given.kinds
        nodes = list(given.graph.program.nodes)
        read = [
            x
            for x in nodes
            if kinds.get(x) == PLAIN
            and any(kinds.get(user, FORM) != PLAIN for user in x.users)
            and x.op != "placeholder"
        ]
        names: list[torch.fx.Node] = []

        def one(tokens: Tensor) -> tuple[Tensor, list[tuple[Tensor, Tensor]]]:
            values: dict[torch.fx.Node, object] = {}
            found: list[tuple[Tensor, Tensor]] = []
            names.clear()
            held = torch.ones((), dtype=torch.bool)
            for node in nodes:
                if node.op == "placeholder":
                    values[node] = given.stored.get(node.name, tokens.unsqueeze(0))
                elif kinds.get(node) == PLAIN:
                    values[node] = call(node, values, AT, tokens.device)
                    if condition(node) is not None:
                        held = held & holds(node, values)
            for node in read:
                value = values[node]
                if isinstance(value, Ball | Tensor):
                    names.append(node)
                    ball = as_ball(AT, value, tokens)
                    is_truth = isinstance(value, Tensor) and value.dtype == torch.bool
                    found.append((value if isinstance(value, Tensor) and is_truth else ball.mid, ball.radius))
            return held, found

        with torch.no_grad():
            held, found = torch.vmap(one)(self.tokens)
        if not bool(held.all()):
            raise NotOneLayer("the module fails on some tokens")
        return {node: Ball(mid, rad) for node, (mid, rad) in zip(names, found, strict=True)}

    def run(self, node: torch.fx.Node, r: int | None = None) -> Ball:
        """The value of a plain argument in all runs, or in one."""
        if node.op == "placeholder":
            stored = self.given.stored[node.name]
            ball = as_ball(AT, stored, torch.zeros(()))
            if r is not None:
                return ball
            n = len(self.tokens)
            return Ball(ball.mid.expand(n, *ball.mid.shape), ball.radius.expand(n, *ball.mid.shape))
        if node not in self.plain:
            raise NotOneLayer(f"{node.target} gives what may be one of several truth values or whole numbers")
        found = self.plain[node]
        return found if r is None else Ball(found.mid[r], found.radius[r])

    def argument(self, x: object) -> Any:
        """A form, or a constant as the first run has it."""
        if isinstance(x, list | tuple):
            return [self.argument(part) for part in x]
        if not isinstance(x, torch.fx.Node):
            return x
        return self.forms[x] if self.given.kinds[x] == FORM else self.run(x, 0)

    def layer(self) -> Layer:
        given = self.given
        for node in given.graph.program.nodes:
            kind = given.kinds.get(node)
            if kind == WEIGHTS:
                self.forms[node] = self._weights(node)
            elif kind == FORM:
                self.forms[node] = self._form(node)
        logits = each_column(lambda column: given.question.logits(column), self.forms[given.output])
        return self._assembled(Form(logits.mid[:, 0], logits.rad[:, 0]))

    def _weights(self, node: torch.fx.Node) -> Weighted:
        source = arguments(node)[0]
        if given_kind(self.given, source) == WEIGHTS:
            before = self.forms[source]
            parts = before.numbers.mid, before.numbers.radius
            mid, rad = (torch.stack([dependence.move(node, x) for x in part.unbind(0)]) for part in parts)
            return Weighted(Ball(mid, rad), dependence.move(node, before.group))
        scores, dim = self.run(source), arguments(node)[1]
        return self._exponentials(scores, self.given.depends[node], self.given.groups[node], dim)

    def _exponentials(self, scores: Ball, depends: Tensor, groups: Tensor, dim: int) -> Weighted:
        """The numbers w = exp(score - top) of each run, and the tables whose sum is Z, for rows that are whole.

        The top is one number for each row, whatever the token, so that it cancels in w / Z. A score of exactly -inf
        has the weight 0, without an error.
        """
        axis = dim % groups.ndim
        is_masked = torch.isneginf(scores.mid) & (scores.radius == 0)
        top = torch.where(is_masked, -torch.inf, scores.mid).amax(0).amax(axis, keepdim=True)
        top = torch.where(torch.isfinite(top), top, torch.zeros_like(top))
        finite = Ball(torch.where(is_masked, 0.0, scores.mid), scores.radius)
        mid, rad = bounded_exp(AT, plus(AT, finite, Ball(-top)))
        mid, rad = (torch.where(is_masked, 0.0, x) for x in (mid, rad))
        first = len(self.heads)
        size = groups.shape[axis]
        flat = [x.movedim(axis + 1, -1).reshape(len(mid), -1, size) for x in (mid, rad)]
        slots = self._slots(depends).movedim(axis, -1).reshape(-1, size)
        whole = ~depends[-1].movedim(axis, -1).reshape(-1, size).any(-1)
        for g in range(len(slots)):
            w = Ball(flat[0][:, g].unsqueeze(-1), flat[1][:, g].unsqueeze(-1))
            table = row(summed(w, slots[g].unsqueeze(-1), len(self.given.places) + 1), 0)
            self.heads.append(table if bool(whole[g]) else Ball(torch.full_like(table.mid, torch.nan)))
        return Weighted(Ball(mid, rad), groups + first)

    def _slots(self, depends: Tensor) -> Tensor:
        """The place of each number's one position, the last one where it depends on none."""
        position = torch.where(depends[:-1].any(0), depends[:-1].double().argmax(0), self.given.length)
        return self.slot[position]

    def _form(self, node: torch.fx.Node) -> list[Form | None] | list[Form] | Form:
        name = str(node.target)
        if node.target is operator.getitem:
            part: Form = self.forms[arguments(node)[0]][arguments(node)[1]]
            return part
        if name == SDPA:
            return self._attention(node)
        if any(given_kind(self.given, x) == WEIGHTS for x in node.all_input_nodes):
            if name not in PRODUCTS:
                return self._nothing(node)
            weights, (first, second) = self.forms[arguments(node)[0]], arguments(node)
            return self._mix(node, weights, self.given.depends[first], self.run(second), self.given.depends[second])
        if not self.given._is_form(node, name):
            return self._nothing(node)
        if name in MOVES:
            return moved_form(node, self.forms[arguments(node)[0]])
        if name == "aten.index.Tensor":
            form = self.forms[arguments(node)[0]]
            taken = [
                [dependence.taken(node, part, self.given.known) for part in x.unbind(0)] for x in (form.mid, form.rad)
            ]
            return Form(*map(torch.stack, taken))
        if name in NORM_OF:
            return self._norm(node, NORM_OF[name])
        if not self.given._is_linear(node, name):
            return self._function(node)
        return LINEAR[name](*(self.argument(x) for x in arguments(node)))

    def _nothing(self, node: torch.fx.Node) -> list[Form] | Form:
        """Zeros in place of numbers that no answer depends on."""
        value = node.meta["val"]
        shapes = [part.shape for part in value] if isinstance(value, list | tuple) else [value.shape]
        found = [Form.constant(Ball(torch.zeros(shape, dtype=torch.float64))) for shape in shapes]
        return found if isinstance(value, list | tuple) else found[0]

    def _attention(self, node: torch.fx.Node) -> Form:
        q, k, v = (self.run(x) for x in arguments(node)[:3])
        if options(node).get("enable_gqa"):
            k, v = (Ball(for_heads(x.mid, q.mid.shape[-3]), for_heads(x.radius, q.mid.shape[-3])) for x in (k, v))
        mask = arguments(node)[3] if len(arguments(node)) > 3 else options(node).get("attn_mask")
        is_causal = arguments(node)[5] if len(arguments(node)) > 5 else options(node).get("is_causal", False)
        scale = options(node).get("scale")
        given = [] if mask is None else [self.run(mask)]
        is_truth = mask is not None and mask.meta["val"].dtype == torch.bool

        def one(*parts: Tensor) -> tuple[Tensor, Tensor]:
            balls = [Ball(m, r) for m, r in zip(parts[::2], parts[1::2], strict=True)]
            q, k, *others = balls
            last = others[0] if others else None
            found = attention_scores(AT, q, k, last.mid if last and is_truth else last, bool(is_causal), scale)
            return found.mid, found.radius

        scores = Ball(*torch.vmap(one)(*(part for x in (q, k, *given) for part in (x.mid, x.radius))))
        dq, dk, by_value = self.given.queries(node)
        by_key = dependence.spread(dk.any(-1).unsqueeze(-2), [*dq.shape[1:-1], dk.shape[-2]])
        depends = dq.any(-1, keepdim=True) | by_key
        if mask is not None:
            depends = depends | dependence.spread(self.given.depends[mask], list(depends.shape[1:]))
        depends = alone(depends, -1)
        weights = self._exponentials(scores, depends, self.given.groups[node], -1)
        return self._mix(node, weights, depends, v, by_value)

    def _mix(self, node: torch.fx.Node, weights: Weighted, depends: Tensor, values: Ball, by_value: Tensor) -> Form:
        """New atoms: each is the sum over keys of weight times value, divided by its row's Z."""
        is_atom = ~self.given.depends[node].any(0)  # (..., rows, columns)
        before, samples = self.atoms.count, list[Tensor]()
        flat = torch.arange(is_atom.numel()).reshape(is_atom.shape)
        order: list[int] = []
        for place in is_atom.any(-1).nonzero().tolist():
            lead, i = tuple(place[:-1]), place[-1]
            w = row(weights.numbers, (slice(None), *lead, i))  # (runs, keys)
            v = row(values, (slice(None), *lead))  # (runs, keys, columns)
            terms = times(AT, Ball(w.mid.unsqueeze(-1), w.radius.unsqueeze(-1)), v)
            is_none = (w.mid == 0) & (w.radius == 0)  # masked: exactly 0, whatever number the value is
            is_zero = is_none.unsqueeze(-1) & torch.isfinite(v.mid) & torch.isfinite(v.radius)
            terms = Ball(torch.where(is_zero, 0.0, terms.mid), torch.where(is_zero, 0.0, terms.radius))
            pairs = depends[(slice(None), *lead, i)].unsqueeze(-1) | by_value[(slice(None), *lead)]
            slots, head = self._slots(pairs), int(weights.group[(*lead, i, 0)])
            size = torch.where(is_none.unsqueeze(-1), 0.0, v.size).amax(0).sum(0) * ENLARGE
            tables = summed(terms, slots, len(self.given.places) + 1)
            for c in is_atom[(*lead, i)].nonzero().squeeze(1).tolist():
                self.values.append((tables.mid[c], tables.radius[c], torch.tensor(head), size[c]))
                samples.append(self.at_samples(tables.mid[c]) / self.at_samples(self.heads[head].mid))
                order.append(int(flat[(*lead, i, c)]))
        assert sorted(order) == flat[is_atom].tolist()
        if order:
            self.atoms.add(-1, torch.stack(samples, 1))
        return Form.of_atoms(list(is_atom.shape), torch.tensor(order, dtype=torch.long), before)

    def at_samples(self, table: Tensor) -> Tensor:
        """The sums of a table's entries (places + 1, ranks) at the samples."""
        return table[torch.arange(len(table)), self.samples].sum(-1)

    def _function(self, node: torch.fx.Node) -> Form:
        """New atoms, of the numbers whose arguments are forms; a norm that is written out is one."""
        is_form = ~self.given.depends[node].any(0)
        written = written_norm(node)
        if written is not None:
            kind, x, eps = written
            if self.given.kinds[x] == FORM and self.forms[x].mid.shape[1:] == is_form.shape:
                return self.atoms.norm(kind, self.forms[x], is_form.all(-1), eps)
        xs = [self.argument(x) for x in arguments(node)[: 2 if str(node.target) in OF_TWO else 1]]
        return self.atoms.operation(node, xs, is_form.flatten().nonzero().squeeze(1), shape_of(node))

    def _norm(self, node: torch.fx.Node, kind: str) -> list[Form | None]:
        """New atoms: each row that is made of forms, normalised; then weight and bias."""
        x, _, weight, *more = arguments(node)
        whole = (~self.given.depends[x].any(0)).all(-1)
        out = self.atoms.norm(kind, self.forms[x], whole, float(more[-1]))
        if weight is not None:
            out = LINEAR["aten.mul.Tensor"](out, self.run(weight, 0))
        if kind == NORM and more[0] is not None:
            out = LINEAR["aten.add.Tensor"](out, self.run(more[0], 0))
        return [out, None, None]

    def _assembled(self, logits: Form) -> Layer:
        """The layer with its atoms sorted by where they come from, and the blocks that the logits depend on."""
        every = [Block(function, self._affine(form), eps) for function, form, eps in self.atoms.blocks]
        number, read = {-1: -1}, set(self._affine(logits).parts)
        for b in reversed(range(len(every))):
            if b in read:
                read |= set(every[b].given.parts)
        number |= {b: i for i, b in enumerate(sorted(read - {-1}))}
        blocks = tuple(replace(every[b], given=every[b].given.renamed(number)) for b in number if b >= 0)
        used = sorted({int(head) for _, _, head, _ in self.values})
        place = {head: i for i, head in enumerate(used)}
        weights = Ball(
            torch.stack([self.heads[h].mid for h in used]), torch.stack([self.heads[h].radius for h in used])
        )
        widest = max(len(self.values), len(logits.mid[0]), *(block.size for block in blocks), 0)
        if widest > WIDEST:
            raise NotOneLayer(f"{widest} numbers side by side are more than {WIDEST}")
        mid, rad, head, largest = zip(*self.values, strict=True)
        return Layer(
            self.given.places,
            weights,
            Ball(torch.stack(mid), torch.stack(rad)),
            torch.tensor([place[int(h)] for h in head]),
            torch.stack(largest),
            blocks,
            self._affine(logits).renamed(number),
        )

    def _affine(self, form: Form) -> Affine:
        """Rows of a form by the sources of its atoms; sources without a number are left out."""
        form = form.padded(1 + self.atoms.count)
        parts = {}
        for source in dict.fromkeys(s for s, _ in self.atoms.columns):
            at = torch.tensor([i for i, (s, _) in enumerate(self.atoms.columns) if s == source])
            mid, rad = form.mid[1 + at].T, form.rad[1 + at].T
            if bool((mid != 0).any()) or bool((rad != 0).any()):
                parts[source] = Ball(mid.contiguous(), rad.contiguous())
        return Affine(Ball(form.mid[0], form.rad[0]), parts)


def gives_floats(node: torch.fx.Node) -> bool:
    """Whether all that a node computes are floats: what truncates numbers is not linear."""
    value = node.meta["val"]
    parts = [part for part in value if part is not None] if isinstance(value, list | tuple) else [value]
    return all(is_float(part.dtype) for part in parts)


def given_kind(given: OneLayer, node: object) -> str | None:
    return given.kinds.get(node) if isinstance(node, torch.fx.Node) else None


def summed(terms: Ball, slots: Tensor, places: int) -> Ball:
    """The sums of the terms of each place, as tables by place and run.

    Shapes: terms (runs, keys, columns), slots (keys, columns); the result (columns, places, runs).
    """
    to = torch.nn.functional.one_hot(slots, places).double()

    def by_place(x: Tensor) -> Tensor:
        return torch.einsum("rkc,kcp->cpr", x, to)

    mid, off, n = by_place(terms.mid), by_place(terms.radius), len(slots)
    rad = (off + gamma(n + 2) * by_place(terms.mid.abs())) * (1 + gamma(n + 8)) * ENLARGE + n * LEAST
    is_one = (to.sum(0) <= 1).unsqueeze(-1).expand_as(mid)  # a term as it is, nothing is added to it
    return Ball(mid, torch.where(is_one, off, rad))


def candidates(length: int, position: int | None) -> list[tuple[int, ...]]:
    """Which positions to fix, the most promising first: none, the answer's, the last, the first, any, and two."""
    own = length - 1 if position is None else position
    pairs = [(min(own, i), max(own, i)) for i in range(length) if i != own]
    return list(dict.fromkeys([(), (own,), (length - 1,), (0,), *((i,) for i in range(length)), *pairs]))
