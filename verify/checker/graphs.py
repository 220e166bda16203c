"""A captured graph as a certificate has it, read strictly and followed on many inputs at once, in balls."""

import base64
import binascii
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from flint import arb, ctx

from verify.checker.arrays import FLOAT, MOST_NUMBERS, TRUTH, WHOLE, Array, tensor
from verify.checker.moves import CREATING, RANGES, as_dtype, kind_in, made_kind
from verify.checker.operations import EVERY, truths
from verify.checker.reading import NOT_CHECKABLE, UNREADABLE, WORDS, Refusal, Tensors, as_text, recorded, require
from verify.checker.records import Node

WHOLE_WORDS = {"I64": ("int64", "q"), "I32": ("int32", "i"), "I16": ("int16", "h"), "I8": ("int8", "b")}
WHOLE_WORDS |= {"U8": ("uint8", "B"), "BOOL": ("bool", "?")}
EVERY_WORD = WORDS | WHOLE_WORDS
BYTES = {dtype: struct.calcsize("<" + word) for dtype, (_, word) in WHOLE_WORDS.items()} | {"C64": 8}
AT_ONCE = 1 << 19  # numbers of the widest tensor, over a batch of inputs
T = TypeVar("T")
# what is raised where arguments do not fit
UNFIT = (StopIteration, TypeError, ValueError, LookupError, AttributeError, ArithmeticError)


class TracedGraph(NamedTuple):
    """The operations on an input of so many tokens, in order, which of them is the output, and what they read."""

    length: int
    nodes: list[Node]
    output: int
    stored: dict[int, tuple[str, list[int], bytes]]

    @property
    def operations(self) -> dict[str, int]:
        """How often each operation occurs."""
        names = sorted(node["op"] for node in self.nodes if node["op"] not in ("stored", *GIVEN, "getitem"))
        return {name: names.count(name) for name in names}

    @property
    def numbers(self) -> int:
        """How many numbers are stored."""
        return sum(_product(shape) for _, shape, _ in self.stored.values())


def _product(shape: Sequence[int]) -> int:
    size = 1
    for n in shape:
        size *= n
    return size


GIVEN = ("tokens", "state")  # what a step is called with
DTYPES = {name for name, _ in EVERY_WORD.values()}
NAMED = {"none", "tanh"} | DTYPES  # words that operations are called with
OF_FIRST = ("index", "gather", "embedding", "index_select")  # whose numbers are those of their first argument


def read_graph(found: object, tensors: Tensors) -> TracedGraph:
    """The graph in a certificate, with the tensors that it names: all of them in the file, or written beside.

    Raises: Refusal.
    """
    if not isinstance(found, dict) or {*found} != {"length", "nodes", "output"}:
        raise Refusal("program: a graph has other keys")
    length, listed, nodes, stored = found["length"], found["nodes"], list[Node](), {}
    require(type(length) is int and length > 0 and isinstance(listed, list) and bool(listed), "program: no graph")
    for i, node in enumerate(listed):
        is_node = isinstance(node, dict) and isinstance(node.get("op"), str)
        is_node = is_node and isinstance(node.get("args", []), list) and isinstance(node.get("kwargs", {}), dict)
        is_node = is_node and isinstance(node.get("name", ""), str) and isinstance(node.get("dtype", ""), str | None)
        require(is_node, f"program: node {i} is no operation")
        op = node["op"]
        extra = {"stored": {"name"}, "tokens": set[str](), "state": {"at"}}.get(op, {"args", "kwargs"})
        extra = {"data"} if op == "stored" and "data" in node else extra
        require({*node} == {"op", "shape", "dtype"} | extra, f"program: node {i} has other keys")
        sizes = node["shape"]
        is_shape = sizes is None or isinstance(sizes, list) and all(type(n) is int and n >= 0 for n in sizes)
        has_dtype = node["dtype"] in DTYPES if sizes is not None else node["dtype"] is None
        require(is_shape and has_dtype, f"program: node {i} has no shape or dtype")
        require(_product(sizes or []) <= MOST_NUMBERS, f"program: node {i} is too large", NOT_CHECKABLE)
        nodes.append(recorded(node, Node))
        if op == "stored":
            stored[i] = _stored(nodes[i], tensors, i)
    output = found["output"]
    require(type(output) is int and 0 <= output < len(nodes), "program: there is no such output")
    return TracedGraph(length, nodes, output, stored)


def _stored(node: Node, tensors: Tensors, i: int) -> tuple[str, list[int], bytes]:
    """A tensor of the file, or one that the certificate itself has, of the shape and dtype that are said."""
    words = {name: dtype for dtype, (name, _) in EVERY_WORD.items()}
    dtype_said, shape_said = str(node["dtype"]), node["shape"] or []
    require(dtype_said in words, f"program: node {i} has an unknown dtype", NOT_CHECKABLE)
    if "data" not in node:
        require(node["name"] in tensors, f"program: {as_text(node['name'])[:80]} is no tensor of the file")
        found = tensors[node["name"]]
    else:
        try:
            found = words[dtype_said], shape_said, base64.b64decode(node["data"], validate=True)
        except (TypeError, ValueError, binascii.Error):
            raise Refusal(f"program: node {i} has no data", UNREADABLE) from None
    dtype, shape, raw = found
    require(dtype in EVERY_WORD, f"program: node {i} has an unknown dtype", NOT_CHECKABLE)
    size = BYTES.get(dtype) or {"F64": 8, "F32": 4}.get(dtype, 2)
    is_right = (EVERY_WORD[dtype][0], shape) == (dtype_said, shape_said) and len(raw) == size * _product(shape)
    require(is_right, f"program: node {i} is of another shape or dtype than what is stored")
    return found


def stored_numbers(dtype: str, shape: list[int], raw: bytes) -> Array:
    """Stored numbers as they are; -inf and infinity, too, but no NaN."""
    if dtype == "BF16":
        raw = b"".join(b"\0\0" + raw[i : i + 2] for i in range(0, len(raw), 2))
    name, word = EVERY_WORD[dtype]
    values = struct.unpack(f"<{len(raw) // struct.calcsize('<' + word)}{word}", raw)
    require(all(x == x for x in values), "a stored tensor holds NaN")
    kind = kind_in(name)
    return Array(kind, tuple(shape), [[*map(arb, values)] if kind == FLOAT else [*values]])


class Follower:
    """Follows a graph with so many bits; what no token decides is found once."""

    def __init__(self, graph: TracedGraph, bits: int) -> None:
        self.graph, self.bits = graph, bits
        self.fixed: dict[int, object] = {}
        self.call, self.finish = self._called, self.last
        self.show: Callable[[object], object] = lambda found: found  # what has the shape of a value
        self.most_at_once = AT_ONCE
        self.instead: dict[
            int, Callable[[Mapping[int, object]], object]
        ] = {}  # of some nodes, what is followed in their place
        self.uses = [[*uses_of(node.get("args")), *uses_of(node.get("kwargs"))] for node in graph.nodes]
        self.ranges = self._ranges()
        self.last_use = {j: i for i, used in enumerate(self.uses) for j in used}
        self.computed = self._computed()

    def _computed(self) -> set[int]:
        """The nodes that depend on tokens, or on the state of a cell."""
        found = set[int]()
        for i, node in enumerate(self.graph.nodes):
            used = {*self.uses[i]}
            require(all(0 <= j < i for j in used), f"program: node {i} reads a later one")
            if node["op"] in GIVEN or used & found:
                found.add(i)
        return found

    def _ranges(self) -> dict[int, tuple[int, int]]:
        """What whole numbers a node surely holds without a wrap, whatever dtype the certificate says that it has.

        An operation's dtype is that of one of its whole numbers, int64 of sums, or the one that it is asked for.
        """
        found: dict[int, tuple[int, int]] = {}
        for i, node in enumerate(self.graph.nodes):
            asked = node.get("kwargs", {}).get("dtype")
            require(asked in (None, node["dtype"]), f"program: node {i} is asked for another dtype than it has")
            if node["dtype"] not in (None, *RANGES):
                continue
            uses = self.uses[i][:1] if base_of(node) in OF_FIRST else self.uses[i]
            is_new = asked is not None or node["op"] == "stored" or base_of(node) in ("sum", "cumsum")
            own = RANGES[node["dtype"] or "int64"]
            ranges = [own, *(found[j] for j in uses if j in found and not is_new)]
            found[i] = max(low for low, _ in ranges), min(high for _, high in ranges)
        return found

    @property
    def at_once(self) -> int:
        """How many inputs are followed together."""
        sizes = [_product(self.graph.nodes[i]["shape"] or []) for i in (self.graph.output, *self.computed)]
        return max(1, min(self.most_at_once, AT_ONCE // max(sizes)))

    def output(self, tokens: Sequence[Sequence[int]]) -> Array:
        """The output on each of some inputs. Raises: Refusal, Open."""
        with ctx.workprec(self.bits):
            values = dict(self.fixed)
            for i, node in enumerate(self.graph.nodes):
                if i in self.fixed:
                    continue
                values[i] = self._value(i, node, values, tokens)
                if i not in self.computed:
                    self.fixed[i] = values[i]
                for j in self.uses[i]:
                    if self.last_use[j] == i and j in self.computed and j != self.graph.output:
                        values.pop(j, None)
            return self.finish(values)

    def last(self, values: Mapping[int, object]) -> Array:
        found = values[self.graph.output]
        require(isinstance(found, Array) and found.kind == FLOAT, "program: the output is no tensor of floats")
        assert isinstance(found, Array)
        return found

    def _value(self, i: int, node: Node, values: dict[int, object], tokens: Sequence[Sequence[int]]) -> object:
        try:
            found = self.call(i, node, values, tokens)
        except UNFIT as error:
            raise Refusal(
                f"program: node {i}, {node['op'][:60]}, cannot be followed ({error})", NOT_CHECKABLE
            ) from None
        shown = self.show(found)
        if isinstance(shown, Array):
            self.check(i, node, shown)
        else:
            require(node["shape"] is None, f"program: node {i} is several tensors")
        return found

    def check(self, i: int, node: Node, found: Array) -> None:
        """The shape and the kind must be what the certificate says; whole numbers stay in their dtype."""
        said = as_text(node["shape"]), node["dtype"] if isinstance(node["dtype"], str) else ""
        is_right = said[0] == as_text([*found.shape]) and kind_in(said[1]) == found.kind
        require(is_right, f"program: node {i} is no {said[1][:20]} of shape {said[0][:80]}, but {found.shape}")
        if found.kind == WHOLE:
            low, high = self.ranges[i]
            is_within = all(low <= min(row, default=0) and max(row, default=0) <= high for row in found.rows)
            require(is_within, f"program: whole numbers of node {i} wrap", NOT_CHECKABLE)

    def _called(self, i: int, node: Node, values: dict[int, object], tokens: Sequence[Sequence[int]]) -> object:
        if i in self.instead:
            return self.instead[i](values)
        if node["op"] == "tokens":
            return Array(WHOLE, (1, self.graph.length), tokens)
        if node["op"] == "stored":
            return stored_numbers(*self.graph.stored[i])
        args, kwargs = called_with(node, values)
        if node["op"] == "getitem":
            several, place = args
            if not isinstance(several, tuple) or isinstance(several, Array) or type(place) is not int or place < 0:
                raise Refusal("program: no part of several")
            return several[place]
        namespace, base = node["op"].partition(".")[0], base_of(node)
        require(namespace == "aten", f"program: {node['op'][:60]} is not known", NOT_CHECKABLE)
        if base == "_assert_tensor_metadata":
            return ()  # of shapes and dtypes: it computes nothing
        if base == "_assert_async":
            holds = all(all(row) for row in truths(args[0]).rows)
            require(holds, "program: the module fails on an input")
            return ()
        if base in CREATING:
            is_right = "dtype" in node["kwargs"] or kind_in(of_one(node["dtype"])) == made_kind(base, args)
            require(is_right, f"program: node {i} has no such dtype")
            return CREATING[base](*args, dtype=node["dtype"], **kwargs)
        if base == "_to_copy":
            dtype = of_one(node["dtype"])
            return truths(args[0]) if kind_in(dtype) == TRUTH else as_dtype(tensor(args[0]), dtype)
        require(base in EVERY, f"program: {node['op'][:60]} is not followed", NOT_CHECKABLE)
        if base == "index":
            self.check_places(i)
        found, dtype = EVERY[base](*args, **kwargs), node["dtype"] or ""
        may_widen = "dtype" in node["kwargs"] or base == "pow" and isinstance(args[1], float)
        return as_dtype(found, dtype) if may_widen and isinstance(found, Array) and _is_wider(found, dtype) else found

    def check_places(self, i: int) -> None:
        """Places that an index chooses must be whole numbers of a dtype that torch takes for no truth values."""
        wide = [self.ranges.get(j, RANGES["int64"]) for j in self.uses[i][1:]]
        are_wide = all(low <= RANGES["int32"][0] for low, _ in wide)
        require(are_wide, "program: places in few bits, which torch may take for truths", NOT_CHECKABLE)


def base_of(node: Node) -> str:
    """The name of an operation without its overload."""
    return str(node["op"]).partition(".")[2].partition(".")[0]


def _is_wider(found: Array, dtype: str) -> bool:
    """Whether an operation is asked for floats of whole numbers, or whole numbers of truths."""
    order = [TRUTH, WHOLE, FLOAT]
    return order.index(kind_in(dtype)) > order.index(found.kind)


def of_one(said: T | None) -> T:
    """A shape or dtype, which what is one tensor has."""
    if said is None:
        raise Refusal("program: a node is several tensors", NOT_CHECKABLE)
    return said


def uses_of(given: object) -> list[int]:
    """The nodes that arguments name."""
    if isinstance(given, dict):
        is_node = {*given} == {"node"} and type(given["node"]) is int
        return [given["node"]] if is_node else [j for x in given.values() for j in uses_of(x)]
    return [j for x in given for j in uses_of(x)] if isinstance(given, list) else []


def called_with(node: Node, values: Mapping[int, object]) -> tuple[list[object], dict[str, object]]:
    """The arguments of an operation; which dtype it is asked for is compared with what it has."""
    named = {name: filled(x, values) for name, x in node["kwargs"].items() if name != "dtype"}
    return [filled(x, values) for x in node["args"]], named


def filled(given: object, values: Mapping[int, object]) -> object:
    """Arguments with the values of the nodes that they name."""
    if isinstance(given, dict):
        if {*given} == {"node"}:
            require(type(given["node"]) is int, "program: a node is no whole number")  # by which what reads it is known
            return values[given["node"]]
        if {*given} == {"number"}:
            return {"inf": float("inf"), "-inf": float("-inf")}[given["number"]]
        return {name: filled(x, values) for name, x in given.items()}
    require(not isinstance(given, str) or given in NAMED, f"program: {given!r:.40} is not known", NOT_CHECKABLE)
    return [filled(x, values) for x in given] if isinstance(given, list) else given
