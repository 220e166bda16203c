"""What every field of every kind of certificate may hold, and how it is known: one table, and the walk along it.

A field that is not in the table of its kind is refused, and so is a value of another type than stands there.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

from verify.checker.reading import Refusal, as_text, require


class Field(NamedTuple):
    """One place of a certificate.

    types: which JSON values may stand there, as names of TYPES with " | " between them.
    how: what decides it again ("by module.function"), what it is compared with ("equals ..."), or "trusted: ...".
    name: how the answer names what is trusted there, "" where nothing is.
    """

    types: str
    how: str
    name: str = ""


TYPES: dict[str, Callable[[object], bool]] = {
    "null": lambda x: x is None,
    "flag": lambda x: type(x) is bool,
    "whole": lambda x: type(x) is int and x >= 0,
    "integer": lambda x: type(x) is int,
    "number": lambda x: type(x) is float and math.isfinite(x),
    "text": lambda x: type(x) is str,
    "list": lambda x: type(x) is list,
    "object": lambda x: type(x) is dict,
    "anything": lambda x: True,  # it is not walked: nothing rests on it
    "elsewhere": lambda x: type(x) is dict,  # it is walked along a table of its own
}
NULL = Field("null", "equals null")
FILE, HEADER, TASK = "equals the digest of the file", "equals what the file's header says", "equals the task's own"

# A path names keys with dots, and any element of a list by []; a key that may be missing ends in "?".
Table = dict[str, Field]


def _trusted(types: str, name: str, sentence: str) -> Field:
    return Field(types, f"trusted: {sentence}", name)


SECONDS = _trusted("number", "seconds", "how long deciding took")
HISTOGRAM: Table = {
    "seconds": SECONDS,
    "verdict": Field("text", "by fields.check"),
    "claim": Field("text | null", HEADER),
    "task": Field("text", "equals histogram"),
    "parameters": Field("object", HEADER),
    "parameters.model": Field("text", HEADER),
    **{f"parameters.{name}": Field("whole", HEADER) for name in "TLdp"},
    "parameters.dtype": Field("text", HEADER),
    "reading": Field("text", "equals real"),
    "method": Field("text", "equals certified"),
    "argument?": Field("text", "equals a known one, by fields.check"),
    "inputs_covered": Field("text", "by fields.check"),
    "margin": Field("number | null", "by fields._replay"),
    "margin_exact": Field("text | null", "by fields._replay"),
    "assumptions": Field("list", TASK),
    "assumptions[]": Field("text", TASK),
    "wrong_pairs?": Field("text | null", "by splits.decide"),
    "error_share": Field("list | null", "by splits.decide"),
    "error_share[]": Field("number", "by splits.decide"),
    "reason": NULL,
    "weights_sha256": Field("text", FILE),
    "tree?": Field("object | null", "a search, every leaf decided again by splits.decide"),
    "tree.parts": Field("whole | null", "by splits._decide_tree"),
    "tree.data": Field("text | null", "a search, every leaf decided again by splits.decide"),
    "tree.reason": Field("text | null", "equals null or a known reason, by splits.decide"),
}


def _an_input(name: str) -> Table:
    return {
        f"{name}.tokens": Field("list", "run exactly by fields._replay"),
        f"{name}.tokens[]": Field("whole", "run exactly by fields._replay"),
        f"{name}.position": Field("whole", "run exactly by fields._replay"),
        f"{name}.expected": Field("whole", "by fields._replay"),
    }


COUNTEREXAMPLE: Table = {
    "counterexample": Field("object", "run exactly by fields._replay"),
    **_an_input("counterexample"),
    "counterexample.input?": Field("list", "equals its tokens"),
    "counterexample.input[]": Field("whole", "equals its tokens"),
    "counterexample.predicted": Field("whole", "by fields._replay"),
    "counterexample.is_tie": Field("flag", "by fields._replay"),
    "counterexample.is_smallest": _trusted("flag", "is_smallest", "no smaller input is wrong"),
    "counterexample.module_predicts": _trusted("whole", "module_predicts", "what torch answers there"),
}
WRONG: Table = {"seconds": SECONDS} | COUNTEREXAMPLE | HISTOGRAM | {"margin_per_count": NULL, "tightest": NULL}
UNCOUNTED: Table = {
    "error_share": _trusted("list", "error_share", "how many pairs are wrong; it must fit wrong_pairs"),
    "error_share[]": _trusted("number", "error_share", "how many pairs are wrong; it must fit wrong_pairs"),
    "wrong_pairs?": _trusted("text | null", "wrong_pairs", "how many pairs are wrong; it must fit error_share"),
}

# ---- recurrent networks

OF_C = "what the document prints, and the share of by_length"
BY_LENGTH = "how many lines are answered right at each length"
INDUCTIVE: Table = {
    "seconds": SECONDS,
    "verdict": Field("text", "by inductive.check"),
    "claim": _trusted("text | null", "claim", "which claim the weights come from"),
    "task": Field("text", "equals inductive"),
    "parameters": Field("object", "equals the file's and the task's, by inductive._check_parameters"),
    **{f"parameters.{name}": Field("text", HEADER) for name in ("model", "dtype")},
    **{f"parameters.{name}": Field("whole", HEADER) for name in ("units", "layers")},
    "parameters.activation?": Field("text", HEADER),
    "parameters.task": Field("text", "the statement that is decided, by inductive._route"),
    **{
        f"parameters.{name}?": Field("whole", "the statement that is decided, by inductive._route")
        for name in ("modulus", "vocabulary", "types", "max_count", "neurons")
    },
    "parameters.length": Field("whole | text", "equals length"),
    "parameters.precision?": Field("text", "the statement that is decided, by formats.named"),
    "parameters.accumulate?": Field("text", "the statement that is decided, by formats.of_sums"),
    "reading": Field("text", "the statement that is decided, by inductive._route"),
    "method": Field("text", "the statement that is decided, by inductive._route"),
    "length": Field("whole | text", "the statement that is decided, by inductive._route"),
    "argument": _trusted("text", "argument", "how the prover came to it"),
    "inputs_covered": Field("text", "by inductive._route"),
    "margin": Field("number", "a bound, shown by inductive._route"),
    "margin_exact": NULL,
    "margin_per_count": NULL,
    "tightest": _trusted("object | null", "tightest", "where the margin is least"),
    "tightest.length": _trusted("whole", "tightest", "where the margin is least"),
    "tightest.margin": _trusted("number", "tightest", "where the margin is least"),
    "counterexample": NULL,
    "assumptions": _trusted("list", "assumptions", "how the prover words what is taken for granted"),
    "assumptions[]": _trusted("text", "assumptions", "how the prover words what is taken for granted"),
    "error_share": NULL,
    "reason": NULL,
    "weights_sha256": Field("text", FILE),
    "by_length?": _trusted("list", "by_length", BY_LENGTH),
    "by_length[]": _trusted("object", "by_length", BY_LENGTH),
    **{f"by_length[].{name}": _trusted("whole", "by_length", BY_LENGTH) for name in ("first", "last")},
    **{f"by_length[].{name}": _trusted("text", "by_length", BY_LENGTH) for name in ("right", "wrong", "undecided")},
    "first_wrong_length?": _trusted("whole | null", "by_length", BY_LENGTH),
    "document_c?": _trusted("object", "document_c", OF_C),
    **{f"document_c.{law}": _trusted("object", "document_c", OF_C) for law in ("trained", "tested")},
    **{
        f"document_c.{law}.{name}": _trusted(kind, "document_c", OF_C)
        for law in ("trained", "tested")
        for name, kind in (("lengths", "text"), ("percent", "number"), ("share", "text | null"))
    },
}
WRONG_STRING: Table = INDUCTIVE | {
    "tightest": NULL,
    "right_to": Field("whole", "a bound, shown by inductive._route"),
    "counterexample": Field("object", "by inductive._route"),
    "counterexample.input": Field("list | text", "run by inductive._route"),
    "counterexample.input[]": Field("whole", "run by inductive._route"),
    "counterexample.length": Field("whole", "by inductive._route"),
    "counterexample.expected": Field("whole", "by inductive._route"),
    "counterexample.predicted": Field("whole | null", "another statement, shown by inductive._route"),
    "counterexample.is_first?": Field("flag", "by inductive._route"),
    "counterexample.float64_predicts?": _trusted("whole | null", "float64_predicts", "what torch answers there"),
}
SHORTER = "that all strings up to there are right, where the wrong one is not said to be the first"
ONE_STRING: Table = WRONG_STRING | {"right_to": _trusted("whole", "right_to", SHORTER)}
RUN = "a result that its operation may have, by rounded_runs.ReplayedRun"
WRONG_RUN: Table = WRONG_STRING | {
    "right_to": _trusted(
        "whole", "right_to", "that every order is right up to there, where it is not said to be the first"
    ),
    "counterexample.evaluation": _trusted("text", "evaluation", "how the prover names the run"),
    "counterexample.is_first": Field("flag", "by rounded_runs.decide"),
    "run": Field("object", RUN),
    "run.numbers": Field("list", RUN),
    "run.numbers[]": Field("list", RUN),
    "run.numbers[][]": Field("number", RUN),
    "run.logits": Field("list", RUN),
    "run.logits[]": Field("number", RUN),
}
WRONG_EVALUATION: Table = WRONG_STRING | {
    "right_to": _trusted("whole", "right_to", "that every order is right up to there, as the run that is followed is"),
    "counterexample.evaluation": _trusted("text", "evaluation", "which runs the prover found to be wrong"),
    "counterexample.is_first": Field("flag", "equals right_to + 1 = length, by inductive._route"),
}
OF_DECAYS = "by kept_runs.decide, computed_turns.decide or inductive._certified"
WRONG_FAR: Table = WRONG_EVALUATION | {
    "right_to": WRONG_RUN["right_to"],
    "counterexample.evaluation": Field("text", "by computed_lengths.decide"),
    "counterexample.is_first": Field("flag", "by linear.wrong_after"),
}
WRONG_DECAYS: Table = WRONG_FAR | {
    "counterexample.evaluation": Field("text", OF_DECAYS),
    "run?": Field("object", OF_DECAYS),
    "run.kept": Field("list", "a witness, by kept_runs.decaying_run"),
    "run.kept[]": Field("number", "a witness, by kept_runs.decaying_run"),
}
AGAIN = "run again by named_runs.decide, exact_runs.by_steps, exact_runs.in_fractions or kept_gates.decide"
WRONG_NAMED: Table = WRONG_EVALUATION | {
    "right_to": WRONG_RUN["right_to"],
    "counterexample.evaluation": Field("text", AGAIN),
    "counterexample.is_first": Field("flag", AGAIN),
}

ONE_WRONG_EVALUATION = ONE_STRING | {path: WRONG_EVALUATION[path] for path in ("right_to", "counterexample.evaluation")}
HALF, OF_STEP = "half of the margin", "that torch.export traced the step"
BY_STEP: Table = INDUCTIVE | {
    "margin": _trusted("number", HALF, "the other half is shown in every evaluation, by inductive._route"),
    "program": _trusted(
        "elsewhere", OF_STEP, "in real arithmetic it is the network's on all that is followed, by captured.beside"
    ),
}


def _of_words(table: Table) -> Table:
    """A wrong line that begins with a number word, after which alone there may be none that is right."""
    kept = {path: field for path, field in table.items() if path not in ("right_to", "counterexample.is_first?")}
    first = {"counterexample.is_first": Field("flag", "by worded.decide")}
    return kept | first | {
        "right_to?": table["right_to"], "counterexample.start?": Field("whole", "by worded.decide")
    }  # fmt: skip


SET = "a witness, tried by closed_sets.proved or blocks.proved"


def _sets(*sizes: str, depth: str) -> Table:
    """Boxes in lists of lists of numbers."""
    ends = [f"sets_found.{name}" for name in ("low", "high")]
    lists = {end + depth[:k]: Field("list", SET) for end in ends for k in range(0, len(depth), 2)}
    numbers = {end + depth: Field("number", SET) for end in ends}
    return (
        {"sets_found": Field("object", SET), **{f"sets_found.{x}": Field("whole", SET) for x in sizes}}
        | lists
        | numbers
    )


GRAPH = "a witness, tried by graphs_of_states.proved"
ROUND_STATES: Table = {
    "sets_found": Field("object", GRAPH),
    "sets_found.sets": Field("whole", GRAPH),
    "sets_found.graphs": Field("list", GRAPH),
    "sets_found.graphs[]": Field("object", GRAPH),
    **{
        f"sets_found.graphs[].{name}": Field("list", GRAPH)
        for name in (
            "judged",
            "then",
            "then[]",
            "centres",
            "centres[]",
            "exponents",
            "shapes",
            "shapes[]",
            "shapes[][]",
        )
    },
    "sets_found.graphs[].judged[]": Field("whole", GRAPH),
    **{f"sets_found.graphs[].{name}": Field("integer", GRAPH) for name in ("then[][]", "exponents[]")},
    **{f"sets_found.graphs[].{name}": Field("number", GRAPH) for name in ("centres[][]", "shapes[][][]")},
}
KEPT = "a witness, tried by rounded_boxes.for_ever"
BOXES: Table = INDUCTIVE | {
    "boxes": Field("object", KEPT),
    **{f"boxes.{name}": Field("whole", KEPT) for name in ("entry", "turn")},
    **{f"boxes.{name}": Field("list", KEPT) for name in ("low", "high")},
    **{f"boxes.{name}[]": Field("number", KEPT) for name in ("low", "high")},
}
RING = "a witness, tried by recurrent.for_ever or rounded.for_ever"
FOR_EVER: Table = INDUCTIVE | {
    "invariant?": Field("object", RING),
    "invariant.entry": Field("whole", RING),
    "invariant.place": Field("whole", RING),
    "invariant.rate": _trusted("number", "the rate of the invariant", "from 0 to 1; nothing rests on it"),
    "invariant.margin": Field("number", "a bound, shown by recurrent.for_ever or rounded.for_ever"),
    "invariant.centres": Field("list", RING),
    "invariant.centres[]": Field("list", RING),
    "invariant.centres[][]": Field("number", RING),
    "invariant.exponents": Field("list", RING),
    "invariant.exponents[]": Field("integer", RING),
    "invariant.shapes": Field("list", RING),
    "invariant.shapes[]": Field("list", RING),
    "invariant.shapes[][]": Field("list", RING),
    "invariant.shapes[][][]": Field("number", RING),
}
CLOSED: Table = INDUCTIVE | {
    f"{name}?": _trusted("anything", name, "how the prover came to it; nothing rests on it")
    for name in ("invariant", "boxes")
}
TURN = "a witness, tried by linear.exact"
LEAPS: Table = {
    "leaps?": Field("list", TURN),
    "leaps[]": Field("object", TURN),
    "leaps[].after": Field("whole", TURN),
    "leaps[].turn": Field("whole", TURN),
    "leaps[].turns": Field("whole | null", TURN),
}
TURNS: Table = INDUCTIVE | LEAPS | {"repeats?": Field("list", TURN), "repeats[]": Field("whole", TURN)}
STATES: Table = INDUCTIVE | {
    "margin": _trusted("number", "margin", "that the run has it: some order of the readout's sums does"),
    "repeats": Field("object", "a witness, tried by rounded.repeated"),
    "repeats.state_after": Field("whole", "a witness, tried by rounded.repeated"),
    "repeats.comes_again_after": Field("whole", "a witness, tried by rounded.repeated"),
    "states": _trusted("list", "that torch runs through the saved states", "each follows in some order of the sums"),
    "states[]": Field("list", "a step of some order of the sums, by rounded.repeated"),
    "states[][]": Field("number", "a step of some order of the sums, by rounded.repeated"),
}
BLOCKS: Table = INDUCTIVE | {
    "invariant_found": Field("object", "by selective.decide"),
    "invariant_found.least_sign?": Field("number", "a witness, tried by selective.decide"),
    "invariant_found.cases?": Field("whole", "by selective.decide"),
    "invariant_found.states?": Field("whole", "by selective.decide"),
}

# ---- heads

ANSWERED: Table = {
    "separable": Field("flag | null", "by heads._certified; an open one is not checkable"),
    "certificate": Field("elsewhere | null", "a witness, tried by heads._certified"),
    "separator": _trusted("anything", "separator", "the certificate's in floating point"),
    **{name: _trusted("text | null", name, "a share of the law") for name in ("learned_accuracy", "auc")},
    "syntactic_accuracy": _trusted("text | null", "syntactic_accuracy", "a share of the law"),
}
HEAD: Table = ANSWERED | {
    "head": Field("whole", "equals its place"),
    "separable_unbounded": Field("flag | null", "by heads._certified; an open one is not checkable"),
    "certificate_unbounded": Field("elsewhere | null", "a witness, tried by heads._certified"),
    **{name: _trusted("anything", name, "a number of the head in floating point") for name in ("svc", "w01", "w02")},
    **{name: _trusted("anything", name, "a number of the head in floating point") for name in ("values", "kappa")},
}
TOGETHER: Table = ANSWERED | {
    "heads": Field("list", "the statement that is decided, by heads._certified"),
    "heads[]": Field("whole", "the statement that is decided, by heads._certified"),
}
HEADS: Table = {
    "seconds": SECONDS,
    "task": Field("text", "equals heads"),
    "reading": Field("text", "equals real"),
    "parameters": Field("object", HEADER),
    **{f"parameters.{name}": Field("whole", HEADER) for name in ("heads", "d", "d_h")},
    **{f"parameters.{name}": Field("flag", HEADER) for name in ("skip", "norm")},
    "parameters.dtype": Field("text", HEADER),
    "weights_sha256": Field("text", FILE),
    "law": Field("text", "the statement that is decided, by heads._law"),
    "law_text": Field("text", "equals the law in words"),
    "labels": _trusted("text", "labels", "which answers the counts and accuracies count as right"),
    "inputs": Field("text", "equals the size of the law"),
    "counts": _trusted("object | null", "counts", "of right and wrong answers"),
    "counts.right": _trusted("text", "counts", "of right and wrong answers"),
    "counts.wrong": _trusted("text", "counts", "of right and wrong answers"),
    "accuracy": _trusted("text | null", "accuracy", "the share of right answers"),
    "wrong_inputs?": _trusted("anything", "wrong_inputs", "inputs that are answered wrongly"),
    "empty_prompt": Field("text", TASK),
    "heads": Field("list", "one for each head of the file"),
    "heads[]": Field("object", "see HEAD"),
    "pairs": Field("list | null", "the statement that is decided, by heads._certified"),
    "pairs[]": Field("object", "see TOGETHER"),
    "subsets": Field("list", "the statement that is decided, by heads._certified"),
    "subsets[]": Field("object", "see TOGETHER"),
    **{f"heads[].{name}": field for name, field in HEAD.items()},
    **{f"{these}[].{name}": field for these in ("pairs", "subsets") for name, field in TOGETHER.items()},
    "all_subsets?": _trusted("anything", "all_subsets", "accuracies and shares of all subsets"),
    "complete": Field("flag", "equals whether nothing is open"),
    "open": _trusted("list", "open", "which numbers under the law the prover left open"),
    "open[]": _trusted("text", "open", "which numbers under the law the prover left open"),
}
WITNESS = "a witness, tried by heads._certified"
KIND = {"kind": Field("text", "the statement that is decided, by heads._certified")}
COLUMNS = {name: Field("list", WITNESS) for name in ("columns", "rows", "more_ones")}
COLUMNS |= {"columns[]": Field("whole", WITNESS), "more_ones[]": Field("flag", WITNESS)}
COLUMNS |= {"rows[]": Field("list", WITNESS), "rows[][]": Field("whole", WITNESS)}
SHARES = {"shares": _trusted("list | null", "shares", "the combination's in floating point")}
SHARES |= {"shares[]": _trusted("number", "shares", "the combination's in floating point")}
NAMED = {
    "heads": Field("list", "equals the heads it stands at"),
    "heads[]": Field("whole", "equals those it stands at"),
}
RAYS = {"rays": Field("list", WITNESS), "rays[]": Field("object", WITNESS), "rays[].sign": Field("integer", WITNESS)}
OF_HEADS: dict[str, Table] = {
    "separator": KIND | {"w": Field("list", WITNESS), "w[]": Field("text", WITNESS), "b": Field("text", WITNESS)},
    "tight": KIND | RAYS | {name: COLUMNS[name] for name in ("columns", "columns[]")}
    | {f"rays[].{name}": field for name, field in COLUMNS.items() if "columns" not in name},
    "gordan": KIND | COLUMNS | SHARES,
    "one head": KIND | {"head": Field("whole", WITNESS), "certificate": Field("elsewhere", WITNESS)},
    "joint separator": KIND | NAMED | {"w": Field("list", WITNESS), "w[]": Field("list", WITNESS),
                                       "w[][]": Field("text", WITNESS), "b": Field("text", WITNESS)},
    "joint gordan": KIND | NAMED | SHARES | {name: f for name, f in COLUMNS.items() if "columns" not in name},
    "joint tight": KIND | NAMED | RAYS | {"rays[].rows": Field("list", WITNESS),
                                          "rays[].rows[]": Field("whole", WITNESS)},
}  # fmt: skip

# ---- real arithmetic by cells, forms and pairs


def _real(task: str, **parameters: str) -> Table:
    """What certificates of all these tasks have, whose parameters have these types."""
    return {
        "seconds": SECONDS,
        "verdict": Field("text", "by statement.verdict_of"),
        "claim": _trusted("text | null", "claim", "which claim the weights come from"),
        "task": Field("text", f"equals {task}"),
        "parameters": Field("object", HEADER),
        **{f"parameters.{name}": Field(types, HEADER) for name, types in parameters.items()},
        "reading": Field("text", "equals real"),
        "method": Field("text", "equals certified"),
        "argument": _trusted("text", "argument", "how the prover came to it"),
        "inputs_covered": Field("text", f"by {task}.check"),
        "margin": Field("number", f"a bound, shown by {task}.check"),
        "margin_exact": NULL,
        "margin_per_count": NULL,
        "tightest": NULL,
        "counterexample": NULL,
        "assumptions": Field("list", TASK),
        "assumptions[]": Field("text", TASK),
        "error_share": NULL,
        "reason": NULL,
        "weights_sha256": Field("text", FILE),
    }


PARITY = _real("parity", T="whole", L="whole", d="whole", p="whole", dtype="text")
LEAST = "where the margin is least"
WHERE = _trusted("object", "tightest", LEAST)
PARITY_PROVED: Table = PARITY | {
    "tightest": WHERE,
    "tightest.token": _trusted("whole", "tightest", LEAST),
    "tightest.count": _trusted("whole", "tightest", LEAST),
}
PARITY_WRONG: Table = PARITY | {
    "margin": Field("number", "by parity.check"),
    "margin_exact": Field("text", "by parity.check"),
    "counterexample": Field("object", "run exactly by parity.check"),
    "counterexample.input": Field("list", "run exactly by parity.check"),
    "counterexample.input[]": Field("whole", "run exactly by parity.check"),
    **{f"counterexample.{name}": Field("whole", "run exactly by parity.check") for name in ("position", "expected")},
    "counterexample.predicted": Field("whole", "by parity.check"),
    "counterexample.is_tie": Field("flag", "by parity.check"),
}

BUILDER = "how the weights were built"
COUNTING: Table = _real("counting", **dict.fromkeys(["name", "model", "pe", "dtype"], "text")) | {
    "task": Field("text", "equals inductive"),
    **{f"parameters.{name}": Field("whole", HEADER) for name in ("layers", "n_heads", "d", "neurons")},
    **{f"parameters.{name}": Field("flag", HEADER) for name in ("bos", "layernorm")},
    "parameters.activation": Field("text | null", HEADER),
    **{
        f"parameters.{name}?": Field("whole", "the statement that is decided, by counting.check")
        for name in ("vocabulary", "modulus", "types", "max_count", "positions")
    },
    "parameters.distinct_start?": Field("flag", "the statement that is decided, by counting.check"),
    "length": Field("whole | text", "the statement that is decided, by counting.check"),
    "tables?": _trusted(
        "anything", "tables", "sines and cosines by torch; waves.tables_of compares them with the real"
    ),
    "longest?": Field("whole", "the number that the length all stands for, by counting.check"),
    "margin": Field("number | null", "a bound, shown by counting.check"),
    "margin_scaled?": Field("number", "a bound, shown by counting.check"),
    "decided_by?": _trusted("anything", "decided_by", "how the prover came to it"),
    "accuracy?": Field("anything", "by counting.check"),
    "tightest": _trusted("object | null", "tightest", LEAST),
    "tightest.input": _trusted("list", "tightest", LEAST),
    "tightest.input[]": _trusted("whole", "tightest", LEAST),
    **{f"tightest.{name}": _trusted("whole", "tightest", LEAST) for name in ("length", "shift")},
    "tightest.start": _trusted("whole | null", "tightest", LEAST),
    "tightest.margin": _trusted("number", "tightest", LEAST),
}
COUNTING_WRONG: Table = {name: field for name, field in COUNTING.items() if name != "longest?"} | {
    "tightest": NULL,
    "margin": _trusted("number | null", "margin", "what torch computes there; that it is not above zero is compared"),
    "length": _trusted("whole | null", "length", "how long inputs may be that are all right"),
    "accuracy?": _trusted("anything", "accuracy", "how many inputs are right"),
    "counterexample": Field("object", "run by counting.check"),
    "counterexample.input": Field("list", "run by counting.check"),
    "counterexample.input[]": Field("whole", "run by counting.check"),
    **{
        f"counterexample.{name}": Field("whole", "run by counting.check")
        for name in ("position", "expected", "length", "shift")
    },
    "counterexample.start": Field("whole | null", "run by counting.check"),
    "counterexample.predicted": _trusted("whole | null", "predicted", "what torch answers there"),
    "counterexample.is_tie": _trusted("flag", "is_tie", "whether torch computes a tie"),
    "counterexample.is_smallest?": _trusted("flag", "is_smallest", "no shorter input is wrong"),
}
BUILT: Table = {"parameters.construction?": _trusted("text", "construction", "which builder made the weights")}
SIZES = dict.fromkeys(["layers", "heads", "d", "d_h", "p"], "whole") | {"dtype": "text"}
MODULAR: Table = _real("modular", P="whole", neurons="whole", **SIZES) | BUILT | {
    **{f"parameters.{name}?": _trusted("list", name, BUILDER) for name in ("frequencies", "orbit")},
    **{f"parameters.{name}[]": _trusted("whole", name, BUILDER) for name in ("frequencies", "orbit")},
    **{f"counts.{name}": Field("text", "by modular.check") for name in ("right", "wrong")},
}  # fmt: skip
MODULAR_PROVED: Table = MODULAR | {
    "counts": Field("object", "by modular.check"),
    "tightest": WHERE,
    "tightest.input": _trusted("list", "tightest", LEAST),
    "tightest.input[]": _trusted("whole", "tightest", LEAST),
    "tightest.margin": Field("number", "by modular.check"),
}
MODULAR_WRONG: Table = MODULAR | {
    "counts?": Field("object", "by modular.check"),
    "wrong_inputs": Field("list", "by modular.check"),
    "wrong_inputs[]": Field("list", "by modular.check"),
    "wrong_inputs[][]": Field("whole", "by modular.check"),
    "counterexample": Field("object", "run by modular.check"),
    "counterexample.input": Field("list", "run by modular.check"),
    "counterexample.input[]": Field("whole", "run by modular.check"),
    "counterexample.expected": Field("whole", "by modular.check"),
    "counterexample.predicted": Field("whole | null", "a bound, shown by modular.check"),
    "counterexample.torch": _trusted("whole", "torch", "what torch answers there"),
    "counterexample.is_smallest": Field("flag", "a bound, shown by modular.check"),
}

PAIRS = "how many pairs are wrong; they must add up"
ADDITION: Table = _real("addition", digits="whole", base="whole", **SIZES) | BUILT | {
    "parameters.lookahead?": _trusted("whole", "lookahead", BUILDER),
}  # fmt: skip
ADDITION_PROVED: Table = ADDITION | {
    "tightest": WHERE,
    "tightest.input?": _trusted("text", "tightest", LEAST),
    **{f"tightest.{name}?": _trusted("whole", "tightest", LEAST) for name in ("column", "sum", "carry")},
    "tightest.margin": Field("number", "by addition.check"),
}
ADDITION_WRONG: Table = ADDITION | {
    "counterexample": Field("object", "run by addition.check"),
    "counterexample.input": Field("text", "run by addition.check"),
    "counterexample.expected": Field("text", "by addition.check"),
    "counterexample.predicted": Field("text", "a bound, shown by addition.check"),
    "counterexample.generated": _trusted("text", "generated", "what torch writes"),
    "counterexample.is_smallest?": _trusted("flag", "is_smallest", "no smaller pair is wrong"),
    "counts?": _trusted("object", "counts", PAIRS),
    **{f"counts.{name}": _trusted("text", "counts", PAIRS) for name in ("right", "wrong")},
}
PROMPT = "run by count01.check"
HOW_MANY = "how many prompts are wrong; they must fit the region and the share"
COUNT01: Table = _real("count01", labels="text") | {
    "parameters.construction?": BUILT["parameters.construction?"],
    **{f"parameters.{name}?": Field("whole", HEADER) for name in ("heads", "d")},
    "parameters.skip?": Field("flag", HEADER),
    "parameters.dtype?": Field("text", HEADER),
    **{f"parameters.{name}?": _trusted("anything", name, BUILDER) for name in ("N", "eps")},
    "parameters.as_printed?": _trusted("text | null", "as_printed", BUILDER),
    "parameters.labels": Field("text", "the statement that is decided, by count01.check"),
    "parameters.semantic_only?": Field("flag", "the statement that is decided, by count01.check"),
    **{
        f"parameters.{name}?": Field("whole", "the statement that is decided, by count01.check")
        for name in ("min_digits", "min_noise")
    },
    **{
        f"parameters.{name}": Field("whole | null", "the statement that is decided, by count01.check")
        for name in ("max_digits", "max_noise", "max_length")
    },
    "region": Field("text", "equals the domain in words"),
    "inputs_are": Field("text", "equals what is counted"),
    "exact_weights?": _trusted("anything", "exact_weights", "what the documents' formulas come to"),
}
COUNT01_PROVED: Table = COUNT01 | {
    "margin": Field("number | null", "a bound, shown by count01.check"),
    "margin_scaled?": Field("number", "a bound, shown by count01.check"),
    "tightest": _trusted("anything", "tightest", LEAST),
    "beyond?": _trusted("anything", "beyond", "what is wrong one step beyond the region"),
    "boxes?": _trusted("whole", "boxes", "how many the prover looked at"),
}
COUNT01_WRONG: Table = COUNT01 | {
    "margin": Field("number", "by count01.check"),
    "margin_exact": Field("text | null", "by count01.check"),
    "counterexample": Field("object", PROMPT),
    "counterexample.input": Field("list", PROMPT),
    "counterexample.input[]": Field("whole | text", PROMPT),
    **{f"counterexample.{name}": Field("whole", PROMPT) for name in ("n0", "n1", "n2")},
    **{f"counterexample.{name}": Field("text", PROMPT) for name in ("last", "expected")},
    "counterexample.tokens": Field("list | null", PROMPT),
    "counterexample.tokens[]": Field("text", PROMPT),
    "counterexample.predicted": _trusted("text", "predicted", "what torch answers there"),
    "counterexample.logits": _trusted("anything", "logits", "what torch computes there"),
    "counterexample.fails": _trusted("flag", "fails", "whether torch shows it, too"),
    "counterexample.replayed": _trusted("text", "replayed", "how torch ran it"),
    "counterexample.margin": Field("number", "equals the margin"),
    "counts?": _trusted("object", "counts", HOW_MANY),
    **{f"counts.{name}": _trusted("text", "counts", HOW_MANY) for name in ("right", "wrong")},
    "wrong_share?": _trusted("text", "counts", HOW_MANY),
    "boxes?": _trusted("whole", "boxes", "how many the prover looked at"),
}

# ---- any module

FOLLOWED, OWN_DIGEST = "followed on every input by module.check", "the prover's own digest of each graph"
MODULE: Table = {
    "seconds": SECONDS,
    "verdict": Field("text", "by module.check"),
    "claim": NULL,
    "task": Field("text", "equals module"),
    "parameters": Field("object", "by module.check_parameters"),
    "parameters.module": _trusted("text", "the module's name", "of its class"),
    "parameters.lengths": Field("list", "equals those of the inputs"),
    "parameters.lengths[]": Field("whole", "equals those of the inputs"),
    "parameters.positions": Field("list | null", "those at which answers are read, -1 for the last"),
    "parameters.positions[]": Field("integer", "those at which answers are read, -1 for the last"),
    "parameters.classes": Field("whole", "equals how many logits take part"),
    "parameters.stored_numbers": Field("whole", "equals how many the graph reads"),
    "reading": Field("text", "equals real"),
    "method": Field("text", "equals certified"),
    "argument": _trusted("text", "argument", "how the prover came to it"),
    "inputs_covered": Field("text", "by module.check"),
    "margin": Field("number | null", "a bound, shown by module.check"),
    "margin_exact": NULL,
    "margin_per_count": NULL,
    "tightest": _trusted("object | null", "tightest", "where the margin is least; that input has it"),
    "tightest.input": Field("list", "followed by module._check_tightest"),
    "tightest.input[]": Field("whole", "followed by module._check_tightest"),
    "tightest.margin": Field("number | null", "a bound, shown by module._check_tightest"),
    "assumptions": Field("list", TASK),
    "assumptions[]": Field("text", TASK),
    "error_share": NULL,
    "reason": NULL,
    "graph": Field("object", "by module.check_parameters"),
    "graph.sha256": _trusted("list", "graph.sha256", OWN_DIGEST),
    "graph.sha256[]": _trusted("text", "graph.sha256", OWN_DIGEST),
    "graph.operations": Field("elsewhere", "equals how often the program has each"),
    "graph.torch": _trusted(
        "text", "that torch.export traced the module", "which torch; the program is what it traced"
    ),
    "counts": Field("object", "by module.check"),
    **{f"counts.{name}": Field("text", "by module.check") for name in ("right", "wrong", "undecided")},
    "decided_by": _trusted("anything", "decided_by", "how many inputs each part of the prover decided"),
    "wrong_inputs": Field("list", "followed by module.check_counts"),
    "wrong_inputs[]": Field("list", "followed by module.check_counts"),
    "wrong_inputs[][]": Field("whole", "followed by module.check_counts"),
    "program": Field("elsewhere", FOLLOWED),
    "weights_sha256": Field("text", FILE),
}
MODULE_PROVED: Table = MODULE | {"counterexample": NULL}
EXPECTED = ("expected", "predicted")
MODULE_WRONG: Table = MODULE | {
    "counterexample": Field("object", "followed by module.check_wrong"),
    "counterexample.input": Field("list", "followed by module.check_wrong"),
    "counterexample.input[]": Field("whole", "followed by module.check_wrong"),
    **{f"counterexample.{name}": Field("whole | list", "followed by module.check_wrong") for name in EXPECTED},
    **{f"counterexample.{name}[]": Field("whole", "followed by module.check_wrong") for name in EXPECTED},
    "counterexample.module_answers?": _trusted("whole | list", "module_answers", "what torch answers there"),
    "counterexample.module_answers[]": _trusted("whole", "module_answers", "what torch answers there"),
}
LAYOUT = "what the prover traced; the operations of the layout are followed, not these"
OF_DIFFERENCES = Field("list", "bounds, shown by grokking.check_differences")


def _grokking(kind: Table) -> Table:
    """The same of addition modulo P by a decoder of the grokking layout, without its operations."""
    kept = {path: x for path, x in kind.items() if not path.startswith(("program", "graph"))}
    return kept | {
        "task": Field("text", "equals modular"),
        "parameters.P": Field("whole", "the statement that is decided, by grokking.check"),
        "parameters.stored_numbers": Field("whole", "equals how many the layout has"),
        "graph": _trusted("anything", "graph", LAYOUT),
        "margin_per_difference": OF_DIFFERENCES,
        "margin_per_difference[]": OF_DIFFERENCES._replace(types="number | null"),
        "frequencies": Field("list", "by grokking.check_spectrum"),
        "frequencies[]": Field("whole", "by grokking.check_spectrum"),
        "frequency_shares": Field("elsewhere", "to nine digits, by grokking.check_spectrum"),
    }


STRING, LENGTHS = "run by contextual.check", "up to which lengths all strings are right, and from which some are wrong"
CONTEXTUAL: Table = _real("contextual", **dict.fromkeys(["length", "regions", "prompts"], "whole"), dtype="text") | {
    "task": Field("text", "equals contextual counting"),
    "parameters.exactly": Field("flag", "the statement that is decided, by contextual.check"),
    "parameters.zeros": Field("whole | null", "the statement that is decided, by contextual.check"),
    **{
        f"parameters.{name}": Field("whole", "the statement that is decided, by contextual.check")
        for name in ("length", "regions")
    },
    **{f"parameters.{name}?": _trusted("text", name, BUILDER) for name in ("construction", "bias")},
    "domain": Field("text", "equals the strings in words"),
    "tightest": _trusted("object | null", "tightest", LEAST),
    **{f"tightest.{name}": _trusted("whole", "tightest", LEAST) for name in ("prompt", "count")},
    "tightest.regions": _trusted("list", "tightest", LEAST),
    "tightest.regions[]": _trusted("whole", "tightest", LEAST),
    "right_lengths": Field("anything", "a bound, shown by contextual.check"),
}
CONTEXTUAL_WRONG: Table = CONTEXTUAL | {
    "tightest": NULL,
    "right_lengths": _trusted("anything", "right_lengths", LENGTHS),
    "counterexample": Field("object", STRING),
    **{f"counterexample.{name}": Field("text", STRING) for name in ("input", "string")},
    **{f"counterexample.{name}": Field("whole", STRING) for name in ("length", "prompt", "expected")},
    "counterexample.predicted": _trusted("whole | null", "predicted", "what torch answers there"),
    "counterexample.regions": Field("list", STRING),
    "counterexample.regions[]": Field("text", STRING),
    "counterexample.module_answers": _trusted("whole", "module_answers", "what torch answers there"),
    "counterexample.all_expected": Field("list", STRING),
    "counterexample.all_expected[]": Field("whole", STRING),
    "counterexample.all_module_answers": _trusted("list", "module_answers", "what torch answers there"),
    "counterexample.all_module_answers[]": _trusted("whole", "module_answers", "what torch answers there"),
}


def _placed(kind: Table) -> Table:
    """The same of encoders that know positions."""
    others = ["exactly", "zeros", "construction", "bias", "right_lengths", "regions[]", "module_answers"]
    kept = {path: x for path, x in kind.items() if path.rpartition(".")[2].rstrip("?") not in others}
    del kept["tightest.regions"]
    kept.pop("counterexample.regions", None)
    named = {"pe": "text", "decoder_mlp": "flag", "construction": "text"}
    return kept | {
        "task": Field("text", "one of placed.TASKS, by placed.check"),
        "parameters.slope?": Field("number", HEADER),
        "parameters.coordinates?": Field("whole", HEADER),
        **{f"parameters.{name}?": _trusted(types, name, BUILDER) for name, types in named.items()},
    }


GATES, INDUCTION = "by netlists.Gates", "by languages.check_language"
OF_FILE = "that the program is the file's circuit"  # what is trusted of it; that the transformer runs it is shown
AUTOMATON = "the statement that is decided, by languages.check_language"
NODES = "which nodes are the states, a witness, by languages.check_language"
CIRCUIT: Table = _real("circuits", **dict.fromkeys(["s", "n", "T", "k", "d"], "whole")) | {
    "task": Field("text", "equals circuit or language"),
    "parameters.circuit": _trusted("text", OF_FILE, "which file was read"),
    "parameters.precision?": Field("text", "the statement that is decided, by circuits.check"),
    "reading": Field("text", "the statement that is decided, by circuits.check"),
    "margin": Field("number | null", "a bound, shown by circuits.check"),
    "statistics": Field("elsewhere", "equals those of the program"),
    "forward_runs": _trusted("anything", "forward_runs", "what was run beside the proof"),
    "harmless_differences": _trusted("whole", "harmless_differences", "how many steps differ where no input leads"),
    "smallest_bits?": _trusted("whole | null", "smallest_bits", "that fewer bits do not do"),
    "smaller_bits?": _trusted("anything", "smallest_bits", "that fewer bits do not do"),
    "chain?": _trusted("anything", "chain", "a chain of thought that was asked for"),
    "outputs?": _trusted("anything", "chain", "a chain of thought that was asked for"),
    "program": Field("object", GATES, OF_FILE),
    "program.inputs": Field("whole", GATES, OF_FILE),
    **{
        f"program.{name}": Field("list", GATES, OF_FILE)
        for name in ("gates", "outputs", "steps", "node_of", "gates[]", "steps[]")
    },
    **{f"program.{name}[]": Field("whole", GATES, OF_FILE) for name in ("outputs", "steps[]", "node_of")},
    "program.gates[][]": Field("text | whole", GATES, OF_FILE),
}
WRONG_STEP = ", a wrong step"
STEP = "run by wrong_steps.refute"
IS_WRONG: Table = {
    "margin": Field("number | null", "by wrong_steps.refute"),
    "counterexample": Field("object", STEP),
    "counterexample.input": Field("text", STEP),
    **{f"counterexample.{name}": Field("whole", STEP) for name in ("step", "expected")},
    **{f"counterexample.{name}": Field("whole | null", STEP) for name in ("computed", "predicted")},
    "counterexample.kind": Field("text", STEP),
    "counterexample.gate": _trusted("text", "gate", "the name of the step's gate"),
    "counterexample.why": _trusted("text | null", "why", "what is wrong there, in words"),
    "counterexample.run?": _trusted("text", "run", "how the prover ran it"),
    "counterexample.is_smallest?": _trusted("flag", "is_smallest", "no smaller input is wrong"),
    "error_share": _trusted("list | null", "counts", "how many inputs are wrong"),
    "error_share[]": _trusted("number", "counts", "how many inputs are wrong"),
    "counts?": _trusted("object", "counts", "how many inputs are wrong"),
    **{f"counts.{name}": _trusted("text", "counts", "how many inputs are wrong") for name in ("right", "wrong")},
}
LANGUAGE: Table = CIRCUIT | {
    "parameters.length": Field("whole", INDUCTION),
    "parameters.alphabet": Field("text", INDUCTION),
    "language": _trusted("text", "that the automaton is the language's", "its name; the states are counted"),
    "accepted": Field("text", INDUCTION),
    "program.automaton": Field("object", AUTOMATON),
    **{f"program.automaton.{name}": Field("list", AUTOMATON) for name in ("step", "step[]", "accepting")},
    **{f"program.automaton.{name}": Field("list", NODES) for name in ("slices", "slices[]", "slices[][]")},
    "program.automaton.step[][]": Field("integer", AUTOMATON),
    "program.automaton.accepting[]": Field("whole", AUTOMATON),
    "program.automaton.slices[][][]": Field("integer", NODES),
}

TABLES: dict[str, Table] = {
    "circuit": CIRCUIT,
    f"circuit{WRONG_STEP}": CIRCUIT | IS_WRONG,
    "language": LANGUAGE,
    f"language{WRONG_STEP}": LANGUAGE
    | IS_WRONG
    | {"counterexample.string": Field("text", "what the input's bits write, by languages.spelled")},
    "histogram, proved": HISTOGRAM
    | {
        "margin_per_count": Field("list", "a bound, shown by splits.decide"),
        "margin_per_count[]": Field("number | null", "a bound, shown by splits.decide"),
        "tightest": Field("object | null", "run exactly by fields._replay"),
        **_an_input("tightest"),
        "tightest.margin": Field("number | null", "by fields._replay"),
        "counterexample": NULL,
    },
    "histogram, wrong, with its search": WRONG,
    "histogram, wrong": WRONG | UNCOUNTED,
    "line": INDUCTIVE,
    "words": INDUCTIVE,
    "words, wrong": _of_words(WRONG_STRING),
    "words, wrong in a run": _of_words(WRONG_RUN),
    "line, wrong": WRONG_STRING,
    "words, wrong in an evaluation": _of_words(WRONG_EVALUATION),
    "line, wrong in a run": WRONG_RUN,
    "line, wrong in an evaluation": WRONG_EVALUATION,
    "strings, wrong in an evaluation": ONE_WRONG_EVALUATION,
    **{f"{kind}, by its step": BY_STEP for kind in ("line", "words", "strings")},
    "line, wrong in a named run": WRONG_NAMED,
    "line, wrong in a named run, no number": WRONG_NAMED | {"margin": NULL},
    "line, wrong in a run of even turns": WRONG_NAMED
    | {path.replace("leaps?", "leaps"): field for path, field in LEAPS.items()},
    "line, wrong after many turns": WRONG_FAR,
    "line, wrong in a run of decays": WRONG_DECAYS,
    "line, wrong in a run of decays, no number": WRONG_DECAYS | {"margin": NULL},
    "line, for ever": FOR_EVER,
    "line, for ever by boxes": BOXES,
    "line, fractions": TURNS,
    "line, in closed form": CLOSED,
    "line, wrong, fractions": WRONG_STRING | LEAPS,
    "line, states of a run that repeat": STATES,
    "strings": INDUCTIVE,
    "strings, between two numbers": INDUCTIVE
    | {"sets_found": _trusted("anything", "sets_found", "how many cases the prover met")},
    "strings, sets of states": INDUCTIVE | _sets("window", "sets", depth="[][]"),
    "strings, ellipsoids": INDUCTIVE | ROUND_STATES,
    "strings, sets of states of each type": INDUCTIVE | _sets("sets", depth="[][][]"),
    "strings, wrong": WRONG_STRING,
    "strings, one wrong": ONE_STRING,
    "strings, block by block": BLOCKS,
    "addition, proved": ADDITION_PROVED,
    "addition, refuted": ADDITION_WRONG,
    "contextual, proved": CONTEXTUAL,
    "contextual, refuted": CONTEXTUAL_WRONG,
    "placed, proved": _placed(CONTEXTUAL),
    "placed, refuted": _placed(CONTEXTUAL_WRONG),
    "count01, proved": COUNT01_PROVED,
    "count01, refuted": COUNT01_WRONG,
    "modular, proved": MODULAR_PROVED,
    "modular, refuted": MODULAR_WRONG,
    "module, proved": MODULE_PROVED,
    "module, refuted": MODULE_WRONG,
    "grokking, proved": _grokking(MODULE_PROVED),
    "grokking, refuted": _grokking(MODULE_WRONG),
    "transformer, proved": COUNTING,
    "transformer, refuted": COUNTING_WRONG,
    "parity, proved": PARITY_PROVED,
    "parity, refuted": PARITY_WRONG,
    "heads": HEADS,
    **{f"heads, {kind}": table for kind, table in OF_HEADS.items()},
}

IN_DTYPE = ", in a dtype"  # what is added to a kind's name
STATED = "the statement that is decided, by any_order.reading_of"
BELOW = "the margin below the roundings"
KNOWN = Field("text", "equals the one of its verdict, by histogram_in_dtype.check")


def _in_dtype(kind: str) -> Table:
    """A proof in a format: real arithmetic shows the margin up to what the roundings may do."""
    table = TABLES[kind]
    left_out: tuple[str, ...] = ("right_lengths", "margin_scaled", "counts", "wrong_pairs", "error_share")
    left_out += ("tightest",) * ("margin_per_count[]" in table)
    kept = {path: x for path, x in table.items() if not path.startswith(left_out)}
    of_margin = "no more than twice their bound; all else is shown by any_order.still_due"
    margins = {"margin": _trusted("number", BELOW, of_margin)}
    margins |= {"margin_exact": NULL} if "margin_exact" in table else {}
    if "margin_per_count[]" in table:
        margins |= {"margin_per_count[]": margins["margin"], "tightest": _trusted("anything", "tightest", LEAST)}
        margins |= {"argument?": KNOWN}
    return kept | margins | {
        "reading": Field("text", STATED),
        "parameters.precision": Field("text", STATED),
        "parameters.accumulate?": Field("text | null", STATED),
        "error_share": NULL,
        "search_ended_at?": _trusted("whole", "search_ended_at", "how far the prover looked"),
    }  # fmt: skip


RUN = "run again with every operation rounded, by replay.replay_of"
EVALUATION: Table = {
    "counterexample.run_as": Field("object", RUN),
    "counterexample.run_as.order": Field("text", RUN),
    "counterexample.run_as.seed": Field("integer", RUN),
    "counterexample.run_as.kept?": Field("text", RUN),
    **{f"counterexample.run_as.{name}": Field("flag", RUN) for name in ("fused", "flush", "reciprocal")},
    **{f"counterexample.run_as.{name}": Field("list", RUN) for name in ("directions", "ways")},
    **{f"counterexample.run_as.{name}[]": Field("list", RUN) for name in ("directions", "ways")},
    "counterexample.run_as.directions[][]": Field("text", RUN),
    "counterexample.run_as.ways[][]": Field("text | flag", RUN),
    "counterexample.order": _trusted("text", "order", "the evaluation in words"),
    "margin": Field("number | null", RUN),
    "margin_exact": NULL,
}


def _wrong_in_dtype(task: str) -> Table:
    """A wrong input in a format, and the evaluation in which it is wrong; where none is named, the plainest one."""
    of_real = TABLES[f"{task}, {'wrong' if task == 'histogram' else 'refuted'}"]
    left_out = ("wrong_", "counts", "tree", "error_share", "right_lengths", "boxes")
    left_out_too = ("counterexample.is_smallest", "counterexample.margin")
    kept = {path: field for path, field in of_real.items() if not path.startswith(left_out + left_out_too)}
    run: Table = EVALUATION
    if task in ("contextual", "placed"):
        run = {
            "margin": _trusted("number | null", "margin", "what torch computes; that it is not above zero is compared")
        }
    elif task == "count01":
        run = {path: field for path, field in EVALUATION.items() if path != "counterexample.order"}
        run |= {"counterexample.logits": Field("list", RUN), "counterexample.logits[]": Field("number | null", RUN)}
        run["counterexample.fails"] = Field("flag", RUN)
    elif task == "histogram":
        predicts = _trusted("whole | null", "module_predicts", "what torch answers there")
        every = _trusted("text", "fails_in", "whether another order is right")
        run = EVALUATION | {"counterexample.module_predicts": predicts, "counterexample.fails_in": every}
        run |= {"argument?": KNOWN}
    if "counterexample.run_as" in run:
        answer = "text" if task in ("addition", "count01") else "whole | null"
        run = run | {"counterexample.predicted": Field(answer, RUN)}
    return kept | run | {
        "counterexample.is_smallest?": _trusted("flag", "is_smallest", "no smaller input is wrong"),
        "reading": Field("text", STATED),
        "parameters.precision": Field("text", STATED),
        "parameters.accumulate?": Field("text | null", STATED),
        "error_share": NULL,
    }  # fmt: skip


ROUNDED = ("addition", "contextual", "count01", "histogram", "modular", "parity", "placed")
TABLES |= {f"{task}, proved{IN_DTYPE}": _in_dtype(f"{task}, proved") for task in ROUNDED}
TABLES |= {f"{task}, refuted{IN_DTYPE}": _wrong_in_dtype(task) for task in ROUNDED}
TABLES |= {
    f"{task}{IN_DTYPE}": TABLES[task]
    | {
        "margin": _trusted("number | null", "a tenth of the margin", "the rest by circuits.check"),
        "parameters.precision": Field("text", STATED),
        "parameters.accumulate": Field("text | null", STATED),
    }
    for task in ("circuit", f"circuit{WRONG_STEP}", "language", f"language{WRONG_STEP}")
}
TABLES |= {
    f"transformer, {verdict}{IN_DTYPE}": TABLES[f"transformer, {verdict}"]
    | {
        "reading": Field("text", STATED),
        "parameters.precision": Field("text", STATED),
        "parameters.accumulate?": Field("text | null", STATED),
    }
    for verdict in ("proved", "refuted")
}
for _margin in ("margin", "margin_scaled?"):
    TABLES[f"transformer, proved{IN_DTYPE}"][_margin] = _trusted(
        COUNTING[_margin].types, BELOW, "no more than half of it; the rest is shown by counting.check"
    )

IN_BITS = ", in constant bits"
IN_S_BITS, HOW_MANY_WRONG = "the statement that is decided, by constant_bits.bits_of", "how many inputs are wrong"
OF_BITS: Table = {
    "reading": Field("text", IN_S_BITS),
    "method": Field("text", IN_S_BITS),
    "parameters.precision": Field("text", IN_S_BITS),
    "argument?": _trusted("text", "argument", "how the prover came to it"),
    "margin_exact": NULL,
}
BITS_RUN = "run again, by histogram_in_bits.check"
TABLES |= {
    f"histogram, proved{IN_BITS}": HISTOGRAM
    | OF_BITS
    | {
        "margin": Field("number | null", "a bound, shown by histogram_in_bits.check"),
        "counts": Field("object", "by histogram_in_bits.check"),
        **{f"counts.{name}": Field("text", "by histogram_in_bits.check") for name in ("right", "wrong")},
        "margin_per_count": NULL,
        "tightest": NULL,
        "counterexample": NULL,
    },
    f"histogram, refuted{IN_BITS}": WRONG
    | OF_BITS
    | {
        "counterexample.predicted": Field("whole | null", BITS_RUN),
        "counterexample.module_predicts": Field("whole", BITS_RUN),
        "wrong_pairs?": _trusted("text | null", "wrong_pairs", "how many pairs are wrong; it must fit error_share"),
        "error_share": _trusted("list | null", "error_share", "how many pairs are wrong; it must fit wrong_pairs"),
        "error_share[]": _trusted("number", "error_share", "how many pairs are wrong; it must fit wrong_pairs"),
        "counts?": _trusted("object", "counts", HOW_MANY_WRONG),
        **{f"counts.{name}": _trusted("text", "counts", HOW_MANY_WRONG) for name in ("right", "wrong")},
    },
}


STRINGS_RUN = "by count01_in_bits.refute"
for _verdict, _table in (("proved", COUNT01_PROVED), ("refuted", COUNT01_WRONG)):
    _left_out = ("counts", "wrong_share", "boxes", "beyond", "margin_scaled", "tightest", "counterexample.margin")
    _kept = {path: field for path, field in _table.items() if not path.startswith(_left_out)}
    TABLES[f"count01, {_verdict}{IN_BITS}"] = _kept | OF_BITS | {
        "tightest": NULL,
        "margin": Field("number | null", STRINGS_RUN),
    }  # fmt: skip
TABLES[f"count01, proved{IN_BITS}"]["margin"] = Field("number", "a bound, shown by count01_in_bits.prove")
TABLES[f"count01, refuted{IN_BITS}"] |= {
    "counterexample.tokens": Field("list", STRINGS_RUN),
    **{f"counterexample.{name}": Field("text", STRINGS_RUN) for name in ("predicted", "replayed")},
    "counterexample.logits": Field("list", STRINGS_RUN),
    "counterexample.logits[]": Field("number | null", STRINGS_RUN),
    "counterexample.fails": Field("flag", STRINGS_RUN),
    "counterexample.is_smallest?": _trusted("flag", "is_smallest", "no smaller input is wrong"),
}


IN_EVERY_ORDER = (
    "of a proof half of it is shown in every order, by rounded_module.check; of a wrong input that it is not above 0"
)
CELL: Table = {path: field for path, field in INDUCTIVE.items() if not path.startswith(("parameters", "by_length"))} | {
    "task": Field("text", "equals module, or inductive"),
    "reading": Field("text", "the statement that is decided, by captured_cells"),
    "length": Field("whole | text", "the statement that is decided, by captured_cells"),
    "inputs_covered": Field("text", "by captured_cells"),
    "margin": Field("number | null", "a bound, shown by captured_cells"),
    "parameters": Field("object", "equals the program's, by captured_cells"),
    "parameters.length": Field("whole | text", "equals length"),
    "parameters.precision?": Field("text", STATED),
    "program": _trusted("elsewhere", OF_STEP, "each operation is followed, by captured_cells"),
    "graph": Field("object", "by captured_cells"),
    "graph.sha256": _trusted("list", "graph.sha256", OWN_DIGEST),
    "graph.sha256[]": _trusted("text", "graph.sha256", OWN_DIGEST),
    "graph.operations": Field("elsewhere", "equals how often the program has each"),
    "graph.torch": _trusted("text", OF_STEP, "which torch; the program is what it traced"),
}
CELL |= {path: field for path, field in INDUCTIVE.items() if path.startswith(("by_length", "first_wrong"))}
OF_CELLS: dict[str, Table] = {
    "cell": {
        "parameters.module": _trusted("text", "the module's name", "of its class"),
        **{f"parameters.{name}": Field("whole", "equals the program's") for name in ("tokens", "state", "classes")},
        "parameters.stored_numbers": Field("whole", "equals how many the graph reads"),
    },
    "network": {
        "parameters.task": Field("text", "the statement that is decided, by captured_cells"),
        **{f"parameters.{name}?": Field("whole", "the statement that is decided, by captured_cells")
           for name in ("modulus", "vocabulary", "types", "max_count")},
        **{f"parameters.{name}": _trusted("text", name, "what the network is called") for name in
           ("model", "activation", "dtype")},
        **{f"parameters.{name}": _trusted("whole", name, "how large the network is called") for name in
           ("units", "layers")},
    },
}  # fmt: skip
WRONG_CELL: Table = {
    "tightest": NULL,
    "right_to?": _trusted("whole", "right_to", SHORTER),
    "counterexample": Field("object", "followed by captured_cells"),
    "counterexample.input": Field("list | text", "followed by captured_cells"),
    "counterexample.input[]": Field("whole", "followed by captured_cells"),
    "counterexample.length": Field("whole", "followed by captured_cells"),
    "counterexample.expected": Field("whole", "followed by captured_cells"),
    "counterexample.predicted": Field("whole | null", "followed by captured_cells"),
    "counterexample.is_first?": Field("flag", "by captured_cells: all shorter strings are followed"),
    "counterexample.module_answers?": _trusted("whole | null", "module_answers", "what torch answers there"),
}
RUN_OF_CELL: Table = {"counterexample.evaluation": WRONG_EVALUATION["counterexample.evaluation"]}
for _kind, _own in OF_CELLS.items():
    TABLES |= {f"{_kind}, proved": CELL | _own, f"{_kind}, refuted": CELL | WRONG_CELL | _own}
    TABLES |= {
        f"{_kind}, proved{IN_DTYPE}": CELL | _own | {"margin": _trusted("number | null", HALF, IN_EVERY_ORDER)},
        f"{_kind}, refuted{IN_DTYPE}": CELL | WRONG_CELL | _own | RUN_OF_CELL,
    }
MODULE_IN_DTYPE: Table = {
    "reading": Field("text", "the statement that is decided, by rounded_module.check"),
    "parameters.precision": Field("text", STATED),
    "parameters.accumulate?": Field("text | null", STATED),
    "margin": _trusted("number | null", "half of the margin", IN_EVERY_ORDER),
    "tightest.margin": _trusted("number | null", "half of the margin", IN_EVERY_ORDER),
}
TABLES |= {
    f"{kind}, {verdict}{IN_DTYPE}": TABLES[f"{kind}, {verdict}"] | MODULE_IN_DTYPE
    for kind in ("module", "grokking")
    for verdict in ("proved", "refuted")
}


class AtPath(NamedTuple):
    """What may stand at a path: its field, None for the whole, the names of its types, and keys that must be there."""

    field: Field | None
    types: list[str]
    due: set[str]


def walk(found: object, kind: str) -> list[str]:
    """Refuses whatever has no place in certificates of this kind, and returns what is trusted, each once."""
    table, met = TABLES[kind], set[str]()
    _visit(found, "", table, {}, met)
    return list(dict.fromkeys(field.name for field in table.values() if field.name in met))


def _at_path(path: str, table: Table) -> AtPath:
    field = table.get(path) or table.get(f"{path}?")
    require(not path or field is not None, f"{path}: is no field of such a certificate")
    prefix = f"{path}." if path else ""
    within = (name[len(prefix) :] for name in table if name.startswith(prefix))
    due = {name for name in within if "." not in name and "[" not in name and not name.endswith("?")}
    return AtPath(field, [] if field is None else field.types.split(" | "), due)


def _visit(value: object, path: str, table: Table, known: dict[str, AtPath], met: set[str]) -> None:
    if path not in known:
        known[path] = _at_path(path, table)
    field, types, due = known[path]
    if field is not None:
        if not any(TYPES[name](value) for name in types):
            kinds = " or ".join(types).replace("elsewhere", "object")
            raise Refusal(f"{path}: is {as_text(value)[:80]}, must be {kinds}")
        met |= {field.name} - {""}
        if "anything" in types or "elsewhere" in types:
            return
    if isinstance(value, dict):
        prefix = f"{path}." if path else ""
        missing = sorted(due - {*value})
        require(not missing, f"{prefix}{missing[0] if missing else ''}: is missing")
        for name, inner in value.items():
            _visit(inner, prefix + name, table, known, met)
    if isinstance(value, list):
        for inner in value:
            _visit(inner, f"{path}[]", table, known, met)
