"""Certificates about networks that count: the header, and which part of the checker decides the rest."""

from collections.abc import Callable

from verify.checker import (
    block_shapes,
    blocks,
    captured_cells,
    closed_sets,
    computed_creeps,
    computed_decays,
    computed_lengths,
    computed_strings,
    computed_turns,
    counting,
    creeping,
    exact_runs,
    followers,
    gated,
    gated_lines,
    gated_runs,
    graphs_of_states,
    kept_gates,
    kept_runs,
    linear,
    named_runs,
    one_string,
    recurrent,
    rounded,
    rounded_boxes,
    rounded_lines,
    rounded_runs,
    selective,
    turning,
    worded,
)
from verify.checker.any_order import half_of
from verify.checker.reading import NOT_CHECKABLE, Refusal, as_text, recorded, require
from verify.checker.records import CellCertificate, LineCertificate, LineParameters
from verify.checker.statement import certificate_of, verdict_of
from verify.checker.table import walk

Decide = Callable[[bytes, LineCertificate, LineParameters], None]
SELECTIVE = ("selective", "selective-modular")
SIZES: dict[str, list[str]] = {
    "modular": ["modulus"], "vanilla": ["vocabulary"], "first-homogeneous": [],
    **dict.fromkeys(worded.TASKS, ["vocabulary"]),
    "selective": ["types", "max_count"], "selective-modular": ["types", "max_count", "modulus"],
}  # fmt: skip


def check(weights: bytes, certificate: bytes) -> tuple[str, list[str]]:
    """The verdict that holds, and the fields taken on trust. Raises: Refusal with the reason and the exit code."""
    c = certificate_of("inductive", weights, certificate, LineCertificate)
    verdict, said = verdict_of(c), c.get("parameters")
    if not isinstance(said, dict):
        raise Refusal("parameters: must be an object")
    if said.get("model") == "transformer":
        return counting.check(weights, certificate)
    task, length = said.get("task"), c.get("length")
    require(isinstance(task, str) and task in SIZES, f"task {task!r} is not checked", NOT_CHECKABLE)
    require(length == "all" or type(length) is int and length > 0, f"length: {length!r} is none")
    require(as_text(said.get("length")) == as_text(length), "parameters: another length")
    due = ["model", *SIZES[str(task)]]
    require({*due} <= {*said} and isinstance(said["model"], str), f"parameters: must have {', '.join(due)}")
    if str(said["model"]).startswith("stacked "):
        return captured_cells.stacked(weights, recorded(c, CellCertificate))
    is_of_decays = gated.is_of_decays(weights, said)
    try:
        kind, decide = _route(c, said, is_of_decays)
    except (KeyError, TypeError, AttributeError) as error:
        raise Refusal(f"the certificate is malformed ({type(error).__name__}: {error})") from None
    trusted = walk(c, kind)
    _check_parameters(said, c["reading"], is_of_decays)
    decide(weights, c, said)
    return verdict, trusted


def _check_parameters(said: LineParameters, reading: str, may_have_neurons: bool) -> None:
    """What identifies the task and the network, and nothing else; what each value is has been compared by now."""
    numbers = [*SIZES[said["task"]], "units", "layers"]
    words = ["task", "model", "dtype"] + ["activation"] * (said["model"] == "rnn")
    numbers += ["neurons"] * (may_have_neurons and "neurons" in said)
    words += ["precision", *(["accumulate"] * ("accumulate" in said))] * (reading == "dtype, any order")
    due = {*numbers, *words, "length"}
    require({*said} == due, f"parameters: must be {', '.join(sorted(due))}")


def _route(c: LineCertificate, said: LineParameters, is_of_decays: bool) -> tuple[str, Decide]:
    """The kind of a certificate, whose fields table.py has, and what decides its statement again.

    Reads fields that may be missing or of another type, and decides nothing.
    """
    reading, method, model = c.get("reading"), c.get("method"), said.get("model")
    if (reading, method) == ("bit-exact", "exhaustive"):
        require("states" in c and c["verdict"] == "PROVED", "a run without its states is not repeated", NOT_CHECKABLE)
        return "line, states of a run that repeat", rounded.repeated
    require(method == "certified", f"a run by method {method!r} is not repeated", NOT_CHECKABLE)
    require(reading in ("real", "dtype, any order"), f"the reading {reading!r} is not checked", NOT_CHECKABLE)
    kind, decide = _certified(c, said, is_of_decays)
    has_wider_sums = kind in ("line", "line, wrong", "line, for ever by boxes") and model in recurrent.GATES
    may_have = has_wider_sums and reading != "real" or "accumulate" not in said
    require(may_have, "parameters: sums in a wider format are not checked", NOT_CHECKABLE)
    return kind, decide


def _certified(c: LineCertificate, said: LineParameters, is_of_decays: bool) -> tuple[str, Decide]:
    """The kind of a certificate that a proof or a run came to."""
    reading, model, task = c.get("reading"), said.get("model"), said.get("task")
    if model in block_shapes.KINDS and reading != "real":
        return _blocks_in_format(said["task"], c["verdict"], "program" in c)
    wrong = ", wrong" * (c["verdict"] == "REFUTED")
    if task in SELECTIVE and reading == "real" and c["argument"] == one_string.ARGUMENT:
        require(bool(wrong), "verdict: one string proves nothing")
        return "strings, one wrong", one_string.refuted
    if task in SELECTIVE and not wrong and c["argument"] == one_string.EACH:
        return "strings", one_string.proved
    if task in worded.TASKS:
        is_run = bool(wrong) and "evaluation" in c["counterexample"]
        require(not is_run or "run" in c, "runs whose numbers are not saved are not checked", NOT_CHECKABLE)
        return "words" + wrong + " in a run" * is_run, worded.decide
    if model in block_shapes.KINDS:
        is_shown = task not in SELECTIVE and (bool(wrong) or c["length"] != "all")
        require(is_shown, "sets of states of whole blocks are not checked", NOT_CHECKABLE)
        return "line" + wrong, followers.line_of_blocks
    if model in gated.KINDS:
        if reading == "real" and is_of_decays and task not in SELECTIVE:
            return "line" + (wrong or ", in closed form"), gated_lines.decide
        if reading != "real" and is_of_decays and task not in SELECTIVE:
            return _of_computed_decays(c, wrong)
        is_kept = "invariant" in c or "boxes" in c
        require(not is_kept, "invariants and boxes of such cells are not checked", NOT_CHECKABLE)
        if reading != "real" or "sets_found" in c:
            return _in_format(c, task in SELECTIVE, wrong)
    if "sets_found" in c and c["sets_found"].get("graphs"):
        require(not wrong and task in SELECTIVE, "sets_found: shows no such verdict")
        return "strings, ellipsoids", graphs_of_states.proved
    if "sets_found" in c:
        is_saved = "low" in c["sets_found"] and not wrong and task in SELECTIVE
        require(is_saved, "sets of states that are not saved are not checked", NOT_CHECKABLE)
        if "window" not in c["sets_found"]:
            return "strings, sets of states of each type", blocks.proved
        return "strings, sets of states", closed_sets.proved
    if is_of_decays:
        return "strings" + wrong, gated.decide
    if task in SELECTIVE:
        is_found = model == "lstm" or "invariant_found" in c and not wrong
        require(is_found, "only proofs by block invariants are checked", NOT_CHECKABLE)
        return "strings" + (wrong if model == "lstm" else ", block by block"), selective.decide
    for_ever = ", for ever" * (not wrong and c["length"] == "all")
    if reading != "real":
        if wrong:
            if "evaluation" in c["counterexample"] and "run" not in c:
                return _in_a_named_run(c, str(model))
            require(c["margin"] is not None, "answers that are no numbers are not checked", NOT_CHECKABLE)
            if "evaluation" not in c["counterexample"]:
                return "line, wrong", computed_lengths.decide
            return "line, wrong in a run", rounded_runs.decide
        if not for_ever:
            return "line", computed_lengths.decide
        if "boxes" in c:
            return "line, for ever by boxes", rounded_boxes.for_ever
        if "invariant" in c:
            return "line, for ever", rounded.for_ever
        return "line", computed_creeps.for_ever
    if model == "s4":
        require(task == "modular", f"{model} on task {task!r} is not checked", NOT_CHECKABLE)
        return "line" + wrong, linear.rotation
    require(
        "right_to" in c or not wrong, "a wrong length that is not said to be the first is not checked", NOT_CHECKABLE
    )
    if model in linear.KINDS and for_ever and "invariant" in c:
        return "line, for ever", linear.for_ever
    if model in linear.KINDS or "repeats" in c or "leaps" in c:
        is_shown = bool(wrong) or "repeats" in c or "leaps" in c or not for_ever
        require(is_shown, "turns that change the state steadily and are not saved are not checked", NOT_CHECKABLE)
        return "line" + wrong + ", fractions", turning.decide if model in linear.KINDS else linear.exact
    require(model in recurrent.GATES, f"parameters: no recurrent model, but {model!r}", NOT_CHECKABLE)
    return "line" + (wrong or for_ever * ("invariant" in c)), creeping.decide


def _blocks_in_format(task: str, verdict: str, has_step: bool) -> tuple[str, Decide]:
    """The kind of a certificate about whole blocks in a format, and what decides it: every evaluation, or a wrong one.

    Of a proof half of the margin is shown.
    """
    is_wrong = verdict == "REFUTED"
    if task in SELECTIVE:
        kind, decide = "strings", one_string.refuted if is_wrong else one_string.proved
    elif task in worded.TASKS:
        kind, decide = "words", worded.decide
    else:
        kind, decide = "line", followers.run_of_blocks if is_wrong else followers.line_of_blocks
    if is_wrong:
        return f"{kind}, wrong in an evaluation", decide
    require(has_step, "proofs whose step is not saved are not checked", NOT_CHECKABLE)
    return f"{kind}, by its step", lambda weights, c, said: decide(weights, _by_half(c), said)


def _by_half(c: LineCertificate) -> LineCertificate:
    """The same with half of the margin, where that is a number."""
    margin = c["margin"]
    return recorded({**c, "margin": half_of(margin) if type(margin) is float else margin}, LineCertificate)


def _of_computed_decays(c: LineCertificate, wrong: str) -> tuple[str, Decide]:
    """The same of a line of gated decays in a format."""
    if not wrong:
        return "line, in closed form", computed_decays.decide
    if "evaluation" in c["counterexample"]:
        if "numbers" in c.get("run", {}):
            require(c["margin"] is not None, "margin: is none, where every number of a run is one")
            return "line, wrong in a run", gated_runs.decide
        is_of_rule = c["counterexample"]["evaluation"] in named_runs.RULES
        return _in_a_named_run(c, str(c["parameters"]["model"])) if is_of_rule else _in_a_kept_run(c)
    require(c["margin"] is not None, "answers that are no numbers in any order are not checked", NOT_CHECKABLE)
    return "line, wrong", computed_decays.decide


def _in_a_named_run(c: LineCertificate, model: str) -> tuple[str, Decide]:
    """The same where nothing is saved of the run that is wrong."""
    name, is_number = c["counterexample"]["evaluation"], c["margin"] is not None
    if name in named_runs.RULES or name == named_runs.AGAINST and not is_number:
        return "line, wrong in a named run" + ", no number" * (not is_number), named_runs.decide
    if name in kept_gates.OF_53_BITS and not is_number and model in ("gru", "lstm"):
        return "line, wrong in a named run, no number", kept_gates.decide
    require(is_number, "answers that are no numbers are not checked", NOT_CHECKABLE)
    if name == exact_runs.EXACT:
        return "line, wrong in a run of even turns", exact_runs.in_fractions
    if name in kept_gates.SHARES and model in ("gru", "lstm"):
        return "line, wrong in a named run", kept_gates.decide
    if name == kept_runs.KEPT and model not in ("gru", "lstm"):
        return "line, wrong in a named run", exact_runs.by_steps
    if name == rounded_lines.EVERY:
        return "line, wrong after many turns", computed_lengths.decide
    require(model in linear.KINDS, "runs whose numbers are not saved are not checked", NOT_CHECKABLE)
    return "line, wrong in a run of decays", computed_turns.decide


def _in_a_kept_run(c: LineCertificate) -> tuple[str, Decide]:
    is_named = kept_runs.is_named(c["counterexample"]["evaluation"])
    require(is_named, "runs of such cells are not repeated", NOT_CHECKABLE)
    return "line, wrong in a run of decays" + ", no number" * (c["margin"] is None), kept_runs.decide


def _in_format(c: LineCertificate, is_of_strings: bool, wrong: str) -> tuple[str, Decide]:
    """The kind of a certificate about gated decays or a rotation that is followed as computed, and what decides it."""
    is_run = bool(wrong) and "evaluation" in c["counterexample"]
    require(not (is_run and is_of_strings), "runs of such cells are not repeated", NOT_CHECKABLE)
    if is_run and c["counterexample"]["evaluation"] != rounded_lines.EVERY:
        return _in_a_kept_run(c)
    if wrong and not is_of_strings:
        require(c["margin"] is not None, "answers that are no numbers in any order are not checked", NOT_CHECKABLE)
        return "line, wrong" + " in a run of decays" * is_run, computed_turns.decide
    require(is_of_strings == ("sets_found" in c), "proofs without sets of states are not checked", NOT_CHECKABLE)
    require(not (wrong and is_of_strings), "wrong strings of such cells are not run", NOT_CHECKABLE)
    if is_of_strings:
        return "strings, between two numbers", computed_strings.decide
    return "line" + wrong, followers.line_of_gates
