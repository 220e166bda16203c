"""REFUTED in a dtype: the evaluation that a certificate names, again, every operation rounded (docs/checker.md)."""

import math
import random
from collections.abc import Callable, Iterable, Sequence

from verify.checker.formats import BinaryFormat, inner_format
from verify.checker.reading import NOT_CHECKABLE, Refusal, require
from verify.checker.records import FormatSaid, RunAs, RunInput
from verify.checker.replayed_margins import least
from verify.checker.rounded_operations import RoundedOperations

Row = Sequence[float]
Node = float | tuple[float, float]  # a partial sum, or a product that is not yet taken
Way = tuple[str, bool, bool]  # an order, whether products are fused, whether what is added is one more term
TREES = ("pairwise", "random")
ORDERS = ("left to right", "right to left", "ascending", "descending", "small first", "large first", *TREES)
DRIVEN = ("upwards", "downwards")
PLAIN: RunAs = {
    "order": "left to right", "seed": 0, "reciprocal": False, "directions": [], "ways": [],
    "fused": False, "flush": False,
}  # fmt: skip


class Replay(RoundedOperations):
    """One evaluation: each sum in its order, each result rounded to nearest in the inner format, tensors in `fmt`.

    A sum whose name has directions is the least ("-") or the largest ("+") that the `ways` compute, element by element.
    """

    def __init__(self, fmt: BinaryFormat, inner: BinaryFormat, said: RunAs) -> None:
        super().__init__(fmt, inner, said["flush"])
        self.seed, self.reciprocal = said["seed"], said["reciprocal"]
        require(all(len(x) == 2 for x in said["directions"]), "run_as: directions are pairs of a name and signs")
        self.signs = {name: iter(signs) for name, signs in said["directions"]}
        self.way, self.ways = _way([said["order"], said["fused"], False]), [*map(_way, said["ways"])]
        require(bool(self.ways) or not self.signs, "run_as: has directions, and nothing to choose from")

    # ---- sums

    def dot(self, x: Row, y: Row, order: str, fused: bool) -> float:
        """The sum of products. Without the zeros a sum term by term is the same, as these are added exactly."""
        terms = [*zip(x, y, strict=True)]
        if order not in TREES:
            terms = [(a, b) for a, b in terms if (a != 0 and b != 0) or a * b != 0] or [(0.0, 0.0)]
        if order in DRIVEN:
            return self._driven(terms, order == "upwards", fused)
        nodes: list[Node] = [*terms]
        draw = random.Random(self.seed)
        if order == "random":
            nodes.sort(key=lambda _: draw.random())
        elif order == "right to left":
            nodes = [*terms[::-1]]
        elif order not in ("left to right", "pairwise"):
            sign = -1 if order in ("descending", "large first") else 1
            sized = [sign * (z if "cending" in order else abs(z)) for z in (self.fused(a, b, 0.0) for a, b in terms)]
            nodes = [terms[i] for i in sorted(range(len(terms)), key=lambda i: (math.isnan(sized[i]), sized[i]))]
        while order == "pairwise" and len(nodes) > 1:
            nodes = [self._joined(nodes[i : i + 2], fused) for i in range(0, len(nodes), 2)]
        while len(nodes) > 1:
            i = int(draw.random() * (len(nodes) - 1)) if order == "random" else 0
            nodes[i : i + 2] = [self._joined(nodes[i : i + 2], fused)]
        return self._value(nodes[0])

    def _joined(self, pair: list[Node], fused: bool) -> Node:
        if len(pair) == 1:
            return pair[0]
        total, term = pair
        if fused and isinstance(term, tuple):
            return self.fused(*term, self._value(total))
        return self.add(self._value(total), self._value(term))

    def _value(self, node: Node) -> float:
        return self.times(*node) if isinstance(node, tuple) else node

    def _driven(self, terms: list[tuple[float, float]], up: bool, fused: bool) -> float:
        """From the largest term on, always the term whose rounding errs most, up or down."""
        products = [self.times(a, b) for a, b in terms]
        first = max(range(len(terms)), key=lambda i: abs(products[i]))
        total, left = products[first], [i for i in range(len(terms)) if i != first]
        while left:
            sums = {i: self.fused(*terms[i], total) if fused else self.add(products[i], total) for i in left}

            def error(i: int, sums: dict[int, float] = sums, total: float = total) -> float:
                found = (sums[i] - total) - (terms[i][0] * terms[i][1] if fused else products[i])
                return 0.0 if math.isnan(found) else found if up else -found

            chosen = max(left, key=error)
            total = sums[chosen]
            left.remove(chosen)
        return total

    # ---- tensors

    def factors(self, x: Row) -> Row:
        """Numbers as a matrix product reads them."""
        return [self.fmt.factor(y) for y in x]

    def sign(self, name: str) -> str:
        """Which way the next element of a tensor goes, "" where it is computed in the order of all."""
        if name not in self.signs:
            return ""
        found = next(self.signs[name], "")
        require(found in ("+", "-"), f"run_as: the directions of {name} are no + and - for each of its elements")
        return found

    def chosen(self, sign: str, by: Callable[[Way], float]) -> float:
        return picked(sign, [by(way) for way in self.ways]) if sign else by(self.way)

    def sums(self, name: str, x: Row, columns: Iterable[Row], rest: Row | None = None) -> list[float]:
        """A row times every column, and plus what is added: afterwards, or as one more term."""
        found, x = list[float](), self.factors(x)
        for i, column in enumerate(map(self.factors, columns)):

            def by(way: Way, i: int = i, column: Row = column) -> float:
                order, fused, is_term = way
                if rest is not None and is_term:
                    return self.tensor(self.dot([*x, rest[i]], [*column, 1.0], order, fused))
                total = self.tensor(self.dot(x, column, order, fused))
                return total if rest is None else self.tensor(self.add(total, rest[i]))

            found.append(self.chosen(self.sign(name), by))
        return found

    def scores(self, q: Row, keys: Sequence[Row], d: int) -> list[float]:
        """Products with all keys, divided by sqrt(d), or times its reciprocal."""
        root, found, q = self.root(float(d)), list[float](), self.factors(q)
        for key in map(self.factors, keys):
            sign = self.sign("scores")
            product = self.chosen(sign, lambda way, key=key: self.tensor(self.dot(q, key, *way[:2])))  # type: ignore[misc]
            both = [self.divide(product, root), self.times(product, self.divide(1.0, root))]
            found.append(picked(sign, [*map(self.tensor, both)]) if sign else self.tensor(both[self.reciprocal]))
        return found

    def softmax(self, scores: Row) -> list[float]:
        top = math.nan if any(map(math.isnan, scores)) else max(scores)
        powers = [self.exp(self.add(x, -top)) for x in scores]
        total = self.chosen(self.sign("total"), lambda way: self.dot(powers, [1.0] * len(powers), *way[:2]))
        return [self.tensor(self.divide(x, total)) for x in powers]

    def layer_norm(self, x: Row, gain: Row, bias: Row, eps: float) -> list[float]:
        """In two passes, each sum in the order of all; epsilon is added as it is stored."""
        n, ones = float(len(x)), [1.0] * len(x)
        mean = self.divide(self.dot(x, ones, *self.way[:2]), n)
        centred = [self.add(y, -mean) for y in x]
        spread = self.add(self.divide(self.dot(centred, centred, *self.way[:2]), n), eps)
        require(0 < spread < math.inf, "layer norm: a row has no spread, or overflows", NOT_CHECKABLE)
        root = self.root(spread)
        require(root > 0, "layer norm: a row's spread is lost", NOT_CHECKABLE)
        moved = [self.times(self.divide(y, root), a) for y, a in zip(centred, gain, strict=True)]
        return [self.tensor(self.add(y, b)) for y, b in zip(moved, bias, strict=True)]

    def ended(self) -> None:
        """Raises: Refusal where directions are left over."""
        require(all(next(signs, None) is None for signs in self.signs.values()), "run_as: has more directions")

    def margin(self, logits: Row, right: int, predicted: int | None) -> float | None:
        """(right logit) - (the predicted one), None where it is no number; it is above zero only of right answers.

        Raises: Refusal for another prediction.
        """
        self.ended()
        if any(map(math.isnan, logits)):
            require(predicted is None, "predicted: some logit is no number")
            return None
        others = [x for c, x in enumerate(logits) if c != right]
        if predicted is None and math.isinf(logits[right]) and logits[right] == max(others):
            return None  # a tie of two infinities
        is_class = type(predicted) is int and 0 <= predicted < len(logits) and predicted != right
        require(is_class, "predicted: is no wrong class")
        assert predicted is not None
        is_largest = bool(self.signs) or logits[predicted] == max(others)
        require(is_largest, "predicted: another class has a larger logit")
        return least([logits[right] - logits[predicted]])


def _way(said: list[str | bool]) -> Way:
    match said:
        case [str(order), bool(fused), bool(is_term)] if order in ORDERS + DRIVEN:
            return order, fused, is_term
    raise Refusal("run_as: has an order that is none")


def picked(sign: str, found: list[float]) -> float:
    if any(map(math.isnan, found)):
        return math.nan
    return min(found) if sign == "-" else max(found)


def columns(W: Sequence[Row]) -> list[Row]:
    return [*zip(*W, strict=True)]


def positive(x: Row) -> list[float]:
    """ReLU."""
    return [0.0 if z <= 0 else z for z in x]


def replay_of(case: RunInput, parameters: FormatSaid, fmt: BinaryFormat) -> Replay:
    """The evaluation that a certificate names, sums from left to right where it names none. Raises: Refusal."""
    said = case.get("run_as", PLAIN)
    return Replay(fmt, inner_format(fmt, parameters.get("accumulate"), said.get("kept")), said)
