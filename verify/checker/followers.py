"""How a recurrent network of any kind is followed from token to token, in real arithmetic or in a format."""

from collections.abc import Callable

from flint import arb, arb_mat, ctx

from verify.checker import (
    block_shapes,
    captured,
    computed_gates,
    computed_tables,
    formats,
    gated,
    linear,
    rounded,
    whole_blocks,
)
from verify.checker.reading import NOT_CHECKABLE, Refusal, require
from verify.checker.records import LineCertificate, LineParameters
from verify.checker.recurrent import BITS, GATES, StoredNetwork, Vector, due_of, network, point, step
from verify.checker.rounded import stored_network
from verify.checker.rounded_lines import ComputedLine, Gaps, TokenFollower, differences, either

Way = Callable[[Callable[[TokenFollower], None]], None]  # decides something by whatever follower shows it


def way_of(weights: bytes, c: LineCertificate, said: LineParameters) -> tuple[Way, int, int]:
    """How the network of a certificate is followed, and how many tokens it knows and classes it has."""
    kind, is_real = said["model"], c["reading"] == "real"
    if kind in block_shapes.KINDS:
        stack = whole_blocks.of_file(weights, said)
        if not is_real and c["verdict"] == "PROVED":
            return _every_evaluation(weights, c, stack, formats.named(said)), len(stack.tokens), len(stack.b)
        stack = stack if is_real else whole_blocks.in_format(stack, formats.named(said))
        return (
            lambda decide: _in_more_digits(lambda: whole_blocks.by_balls(stack), decide),
            len(stack.tokens),
            len(stack.b),
        )
    if kind in gated.KINDS:
        require(gated.is_of_decays(weights, said), "a rotation reads no tokens", NOT_CHECKABLE)
    if kind in gated.KINDS and is_real:
        cell = gated.GatedCell.of(weights, said)
        return lambda decide: decide(gated.by_balls(cell)), len(cell.keep), len(cell.b)
    if kind in gated.KINDS:
        fmt = formats.named(said)
        stored = computed_tables.StoredCell.of(weights, said, fmt)
        tokens = len(computed_tables.gates(stored, fmt)[0])
        return lambda decide: decide(computed_gates.fading(stored, fmt)), tokens, len(stored.b)
    require(kind in GATES or kind in linear.KINDS, f"parameters: no recurrent model, but {kind!r}", NOT_CHECKABLE)
    if is_real:
        net = network(weights, said) if kind in GATES else linear.as_layer(weights, said)
        return lambda decide: _in_more_digits(lambda: by_balls(net), decide), len(net.tokens), len(net.b)
    near, fmt = stored_network(weights, said)
    return lambda decide: either(near, fmt, decide), len(near.tokens), len(near.b)


def _every_evaluation(
    weights: bytes, c: LineCertificate, stack: whole_blocks.StoredBlocks, fmt: formats.BinaryFormat
) -> Way:
    """Every evaluation of the step that torch traced, which in real arithmetic must be that of these blocks."""
    graph, numbers = captured.of_program(weights, c["program"])
    exact = captured.CapturedStep(graph, numbers, BITS[0])

    def way(decide: Callable[[TokenFollower], None]) -> None:
        for are_kept in (False, True):
            step = captured.CapturedStep(graph, numbers, BITS[0], fmt, are_kept=are_kept)
            try:
                with ctx.workprec(BITS[0]):
                    decide(captured.beside(step.follower(), exact.follower(), whole_blocks.by_balls(stack)))
                return
            except Refusal as refusal:
                if refusal.exit_code != NOT_CHECKABLE or are_kept:
                    raise

    return way


def line_of_blocks(weights: bytes, c: LineCertificate, said: LineParameters) -> None:
    """Checks a proof of one repeated token up to a length, or the first wrong length, of whole blocks."""
    way, tokens, classes = way_of(weights, c, said)
    require(tokens == 1, f"parameters: {tokens} tokens, and the task has one")
    way(lambda follow: ComputedLine(due_of(classes, said), follow).decide(c, said))


def run_of_blocks(weights: bytes, c: LineCertificate, said: LineParameters) -> None:
    """Checks a wrong length of whole blocks in a format: that of the one run which keeps all results exactly."""
    way, tokens, classes = way_of(weights, c, said)
    require(tokens == 1, f"parameters: {tokens} tokens, and the task has one")
    due, right_to = due_of(classes, said), c["right_to"]
    n, margin, wrong = linear.wrong_at(c, due, said, may_be_open=True)
    require(0 <= right_to < n and c["counterexample"]["is_first"] == (right_to == n - 1), "right_to: is no less")
    way(lambda follow: ComputedLine(due, follow).wrong(n, right_to, margin, wrong))


def _in_more_digits(first: Callable[[], TokenFollower], decide: Callable[[TokenFollower], None]) -> None:
    """Decides in balls of more and more bits."""
    for bits in BITS:
        try:
            with ctx.workprec(bits):
                decide(first())
            return
        except Refusal as refusal:
            if refusal.exit_code != NOT_CHECKABLE or bits == BITS[-1]:
                raise


def by_balls(net: StoredNetwork, state: Vector | None = None) -> TokenFollower:
    """What balls of exact numbers say of the logits after one token, two tokens, and so on."""

    def follow(token: int) -> tuple[Callable[[int], Gaps], TokenFollower]:
        there = step(net.reading(token), point([arb(0)] * net.size if state is None else state)).value
        h = there[net.read : net.read + net.hidden]
        logits = [x for row in (net.V * arb_mat(len(h), 1, h)).tolist() for x in row]
        logits = [x + b for x, b in zip(logits, net.b, strict=True)]
        return lambda k: differences(logits, net.rows, k), by_balls(net, there)

    return follow


def line_of_gates(weights: bytes, c: LineCertificate, said: LineParameters) -> None:
    """Checks a line of gated decays or a rotation in a format, token by token."""
    fmt = formats.named(said)
    with ctx.workprec(rounded.BITS):
        net = computed_tables.StoredCell.of(weights, said, fmt)
        follow = computed_gates.turning if "omega" in net.rows else computed_gates.fading
        ComputedLine(due_of(len(net.b), said), follow(net, fmt)).decide(c, said)
