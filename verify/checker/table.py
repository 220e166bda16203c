"""What every field of every kind of certificate may hold, and how it is known: one table, and the walk along it.

A field that is not in the table of its kind is refused, and so is a value of another type than stands there.
"""

import math
import re
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
FILE, HEADER, TASK = "equals the digest of the file", "equals what the file's header says", "equals the task's own"

# A path names keys with dots, and any element of a list by []; a key that may be missing ends in "?".
Table = dict[str, Field]


def _fields(text: str) -> Table:
    """Reads lines "HOW = TYPES: PATHS; TYPES: PATHS", each with what is indented further below it.

    [TYPES] are lists of them, and a.(b,c) is a.b and a.c. What is "trusted NAME: SENTENCE" has that name, and without
    one that of its own key.
    """
    found: Table = {}
    for line in re.sub("\n {8,}", " ", text.strip()).splitlines():
        how, _, parts = line.strip().rpartition(" = ")
        of_trust = re.fullmatch("trusted ?([^:]*): (.*)", how)
        for types, _, paths in (part.partition(": ") for part in parts.split("; ")):
            for path in _paths(paths):
                own = re.sub(r"\[]|\?", "", path).rpartition(".")[2]
                field = Field("list", f"trusted: {of_trust[2]}", of_trust[1] or own) if of_trust else Field("list", how)
                depth = types.count("[")
                found |= {path.rstrip("?" * (k > 0)) + "[]" * k: field for k in range(depth)}
                found[path.rstrip("?" * (depth > 0)) + "[]" * depth] = field._replace(types=types.strip("[]"))
    return found


def _paths(text: str) -> list[str]:
    """The paths of "a.(b,c) d": a.b, a.c and d."""
    cut = [word.rstrip(")").partition("(") for word in text.split()]
    return [first + last for first, _, lasts in cut for last in lasts.split(",")]


def _but(table: Table, *left_out: str) -> Table:
    """The fields whose path does not begin so."""
    return {path: field for path, field in table.items() if not path.startswith(left_out)}


SECONDS = "trusted: how long deciding took = number: seconds"
HISTOGRAM: Table = _fields(f"""
    {SECONDS}
    by fields.check = text: verdict inputs_covered
    {HEADER} = text | null: claim; object: parameters; text: parameters.(model,dtype); whole: parameters.(T,L,d,p)
    equals histogram = text: task
    equals real = text: reading
    equals certified = text: method
    equals a known one, by fields.check = text: argument?
    by fields._replay = number | null: margin; text | null: margin_exact
    {TASK} = [text]: assumptions
    by splits.decide = text | null: wrong_pairs?; list | null: error_share; number: error_share[]
    equals null = null: reason
    {FILE} = text: weights_sha256
    a search, every leaf decided again by splits.decide = object | null: tree?; text | null: tree.data
    by splits._decide_tree = whole | null: tree.parts
    equals null or a known reason, by splits.decide = text | null: tree.reason
""")


def _an_input(name: str) -> Table:
    return _fields(f"""
    run exactly by fields._replay = [whole]: {name}.tokens; whole: {name}.position
    by fields._replay = whole: {name}.expected
""")


COUNTEREXAMPLE: Table = _an_input("counterexample") | _fields("""
    run exactly by fields._replay = object: counterexample
    equals its tokens = [whole]: counterexample.input?
    by fields._replay = whole: counterexample.predicted; flag: counterexample.is_tie
    trusted: no smaller input is wrong = flag: counterexample.is_smallest
    trusted: what torch answers there = whole: counterexample.module_predicts
""")
WRONG = _fields(SECONDS) | COUNTEREXAMPLE | HISTOGRAM | _fields("equals null = null: margin_per_count tightest")
MUST_FIT = "trusted: how many pairs are wrong; it must fit"
UNCOUNTED: Table = _fields(f"""
    {MUST_FIT} wrong_pairs = [number]: error_share
    {MUST_FIT} error_share = text | null: wrong_pairs?
""")

# ---- recurrent networks

BY_ROUTE = "the statement that is decided, by inductive._route"
INDUCTIVE: Table = _fields(f"""
    {SECONDS}
    by inductive.check = text: verdict
    trusted: which claim the weights come from = text | null: claim
    equals inductive = text: task
    equals the file's and the task's, by inductive._check_parameters = object: parameters
    {HEADER} = text: parameters.(model,dtype,activation?); whole: parameters.(units,layers)
    {BY_ROUTE} = text: parameters.task reading method; whole | text: length;
        whole: parameters.(modulus?,vocabulary?,types?,max_count?,neurons?)
    equals length = whole | text: parameters.length
    the statement that is decided, by formats.named = text: parameters.precision?
    the statement that is decided, by formats.of_sums = text: parameters.accumulate?
    trusted: how the prover came to it = text: argument
    by inductive._route = text: inputs_covered
    a bound, shown by inductive._route = number: margin
    equals null = null: margin_exact margin_per_count counterexample error_share reason
    trusted tightest: where the margin is least = object | null: tightest; whole: tightest.length;
        number: tightest.margin
    trusted: how the prover words what is taken for granted = [text]: assumptions
    {FILE} = text: weights_sha256
    trusted by_length: how many lines are answered right at each length = [object]: by_length?;
        whole: by_length[].(first,last); text: by_length[].(right,wrong,undecided); whole | null: first_wrong_length?
    trusted document_c: what the document prints, and the share of by_length =
        object: document_c? document_c.(trained,tested); text: document_c.(trained.lengths,tested.lengths);
        number: document_c.(trained.percent,tested.percent); text | null: document_c.(trained.share,tested.share)
""")
WRONG_STRING: Table = INDUCTIVE | _fields("""
    equals null = null: tightest
    a bound, shown by inductive._route = whole: right_to
    by inductive._route = object: counterexample; whole: counterexample.(length,expected);
        flag: counterexample.is_first?
    run by inductive._route = list | text: counterexample.input; whole: counterexample.input[]
    another statement, shown by inductive._route = whole | null: counterexample.predicted
    trusted: what torch answers there = whole | null: counterexample.float64_predicts?
""")
SHORTER = "trusted: that all strings up to there are right, where the wrong one is not said to be the first"
ONE_STRING: Table = WRONG_STRING | _fields(f"{SHORTER} = whole: right_to")
IN_EACH = "trusted: that every order is right up to there, where it is not said to be the first = whole: right_to"
WRONG_RUN: Table = WRONG_STRING | _fields(f"""
    {IN_EACH}
    trusted: how the prover names the run = text: counterexample.evaluation
    by rounded_runs.decide = flag: counterexample.is_first
    a result that its operation may have, by rounded_runs.ReplayedRun = object: run; [[number]]: run.numbers;
        [number]: run.logits
""")
ONE_EVALUATION: Table = _fields("""
    trusted: that every order is right up to there, as the run that is followed is = whole: right_to
    trusted: which runs the prover found to be wrong = text: counterexample.evaluation
""")
WRONG_EVALUATION: Table = WRONG_STRING | ONE_EVALUATION | _fields("""
    equals right_to + 1 = length, by inductive._route = flag: counterexample.is_first
""")  # fmt: skip
WRONG_FAR: Table = WRONG_EVALUATION | _fields(f"""
    {IN_EACH}
    by computed_lengths.decide = text: counterexample.evaluation
    by linear.wrong_after = flag: counterexample.is_first
""")
WRONG_DECAYS: Table = WRONG_FAR | _fields("""
    by kept_runs.decide, computed_turns.decide or inductive._certified = text: counterexample.evaluation; object: run?
    a witness, by kept_runs.decaying_run = [number]: run.kept
""")
WRONG_NAMED: Table = WRONG_EVALUATION | _fields(f"""
    {IN_EACH}
    run again by named_runs.decide, exact_runs.by_steps, exact_runs.in_fractions or kept_gates.decide =
        text: counterexample.evaluation; flag: counterexample.is_first
""")
HALF, OF_STEP = "half of the margin", "that torch.export traced the step"
BY_STEP: Table = INDUCTIVE | _fields(f"""
    trusted {HALF}: the other half is shown in every evaluation, by inductive._route = number: margin
    trusted {OF_STEP}: in real arithmetic it is the network's on all that is followed, by captured.beside =
        elsewhere: program
""")


def _of_words(table: Table) -> Table:
    """A wrong line that begins with a number word, after which alone there may be none that is right."""
    of_words = "by worded.decide = flag: counterexample.is_first; whole: counterexample.start?"
    kept = _but(table, "right_to", "counterexample.is_first?")
    return kept | _fields(of_words) | {"right_to?": table["right_to"]}


SET = "a witness, tried by closed_sets.proved or blocks.proved"
BOXES: Table = INDUCTIVE | _fields("""
    a witness, tried by rounded_boxes.for_ever = object: boxes; whole: boxes.(entry,turn); [number]: boxes.(low,high)
""")
FOR_EVER: Table = INDUCTIVE | _fields("""
    a witness, tried by recurrent.for_ever or rounded.for_ever = object: invariant?; whole: invariant.(entry,place);
        [[number]]: invariant.centres; [integer]: invariant.exponents; [[[number]]]: invariant.shapes
    trusted the rate of the invariant: from 0 to 1; nothing rests on it = number: invariant.rate
    a bound, shown by recurrent.for_ever or rounded.for_ever = number: invariant.margin
""")
TURN = "a witness, tried by linear.exact"
LEAPS: Table = _fields(f"{TURN} = [object]: leaps?; whole: leaps[].(after,turn); whole | null: leaps[].turns")
STATES: Table = INDUCTIVE | _fields("""
    trusted: that the run has it: some order of the readout's sums does = number: margin
    a witness, tried by rounded.repeated = object: repeats; whole: repeats.(state_after,comes_again_after)
    trusted that torch runs through the saved states: each follows in some order of the sums = list: states
    a step of some order of the sums, by rounded.repeated = [number]: states[]
""")
BLOCKS: Table = INDUCTIVE | _fields("""
    by selective.decide = object: invariant_found; whole: invariant_found.(cases?,states?)
    a witness, tried by selective.decide = number: invariant_found.least_sign?
""")

# ---- heads

OF_CERTIFIED = "the statement that is decided, by heads._certified"
WITNESS = "a witness, tried by heads._certified"
ANSWERED: Table = _fields(f"""
    by heads._certified; an open one is not checkable = flag | null: separable
    {WITNESS} = elsewhere | null: certificate
    trusted: the certificate's in floating point = anything: separator
    trusted: a share of the law = text | null: learned_accuracy auc syntactic_accuracy
""")
HEAD: Table = ANSWERED | _fields(f"""
    equals its place = whole: head
    by heads._certified; an open one is not checkable = flag | null: separable_unbounded
    {WITNESS} = elsewhere | null: certificate_unbounded
    trusted: a number of the head in floating point = anything: svc w01 w02 values kappa
""")
TOGETHER: Table = ANSWERED | _fields(f"{OF_CERTIFIED} = [whole]: heads")
HEADS: Table = _fields(f"""
    {SECONDS}
    equals heads = text: task
    equals real = text: reading
    {HEADER} = object: parameters; whole: parameters.(heads,d,d_h); flag: parameters.(skip,norm);
        text: parameters.dtype
    {FILE} = text: weights_sha256
    the statement that is decided, by heads._law = text: law
    equals the law in words = text: law_text
    trusted: which answers the counts and accuracies count as right = text: labels
    equals the size of the law = text: inputs
    trusted counts: of right and wrong answers = object | null: counts; text: counts.(right,wrong)
    trusted: the share of right answers = text | null: accuracy
    trusted: inputs that are answered wrongly = anything: wrong_inputs?
    {TASK} = text: empty_prompt
    one for each head of the file = list: heads
    see HEAD = object: heads[]
    {OF_CERTIFIED} = list | null: pairs; list: subsets
    see TOGETHER = object: pairs[] subsets[]
""")
HEADS |= {f"heads[].{name}": field for name, field in HEAD.items()}
HEADS |= {f"{these}[].{name}": field for these in ("pairs", "subsets") for name, field in TOGETHER.items()}
HEADS |= _fields("""
    trusted: accuracies and shares of all subsets = anything: all_subsets?
    equals whether nothing is open = flag: complete
    trusted: which numbers under the law the prover left open = [text]: open
""")
KIND = f"{OF_CERTIFIED} = text: kind\n"
SHARES = "trusted shares: the combination's in floating point = list | null: shares; number: shares[]\n"
NAMED = "equals the heads it stands at = list: heads\nequals those it stands at = whole: heads[]\n"
ROWS, RAYS = "[[whole]]: rows; [flag]: more_ones", "[object]: rays; integer: rays[].sign"
OF_HEADS: dict[str, Table] = {
    "separator": _fields(f"{KIND}{WITNESS} = [text]: w; text: b"),
    "tight": _fields(f"{KIND}{WITNESS} = {RAYS}; [whole]: columns; [[whole]]: rays[].rows; [flag]: rays[].more_ones"),
    "gordan": _fields(f"{KIND}{SHARES}{WITNESS} = [whole]: columns; {ROWS}"),
    "one head": _fields(f"{KIND}{WITNESS} = whole: head; elsewhere: certificate"),
    "joint separator": _fields(f"{KIND}{NAMED}{WITNESS} = [[text]]: w; text: b"),
    "joint gordan": _fields(f"{KIND}{NAMED}{SHARES}{WITNESS} = {ROWS}"),
    "joint tight": _fields(f"{KIND}{NAMED}{WITNESS} = {RAYS}; [whole]: rays[].rows"),
}

# ---- real arithmetic by cells, forms and pairs


def _real(task: str, parameters: str) -> Table:
    """What certificates of all these tasks have, with these parameters."""
    return _fields(f"""
    {SECONDS}
    by statement.verdict_of = text: verdict
    trusted: which claim the weights come from = text | null: claim
    equals {task} = text: task
    {HEADER} = object: parameters; {parameters}
    equals real = text: reading
    equals certified = text: method
    trusted: how the prover came to it = text: argument
    by {task}.check = text: inputs_covered
    a bound, shown by {task}.check = number: margin
    equals null = null: margin_exact margin_per_count tightest counterexample error_share reason
    {TASK} = [text]: assumptions
    {FILE} = text: weights_sha256
""")


PARITY = _real("parity", "whole: parameters.(T,L,d,p); text: parameters.dtype")
LEAST = "trusted tightest: where the margin is least"
PARITY_PROVED: Table = PARITY | _fields(f"{LEAST} = object: tightest; whole: tightest.(token,count)")
PARITY_WRONG: Table = PARITY | _fields("""
    by parity.check = number: margin; text: margin_exact; whole: counterexample.predicted; flag: counterexample.is_tie
    run exactly by parity.check = object: counterexample; [whole]: counterexample.input;
        whole: counterexample.(position,expected)
""")

COUNTING: Table = _real("counting", "text: parameters.(name,model,pe,dtype)") | _fields(f"""
    equals inductive = text: task
    {HEADER} = whole: parameters.(layers,n_heads,d,neurons); flag: parameters.(bos,layernorm);
        text | null: parameters.activation
    the statement that is decided, by counting.check = flag: parameters.distinct_start?; whole | text: length;
        whole: parameters.(vocabulary?,modulus?,types?,max_count?,positions?)
    trusted: sines and cosines by torch; waves.tables_of compares them with the real = anything: tables?
    the number that the length all stands for, by counting.check = whole: longest?
    a bound, shown by counting.check = number | null: margin; number: margin_scaled?
    trusted: how the prover came to it = anything: decided_by?
    by counting.check = anything: accuracy?
    {LEAST} = object | null: tightest; [whole]: tightest.input; whole: tightest.(length,shift);
        whole | null: tightest.start; number: tightest.margin
""")
COUNTING_WRONG: Table = _but(COUNTING, "longest") | _fields("""
    equals null = null: tightest
    trusted: what torch computes there; that it is not above zero is compared = number | null: margin
    trusted: how long inputs may be that are all right = whole | null: length
    trusted: how many inputs are right = anything: accuracy?
    run by counting.check = object: counterexample; [whole]: counterexample.input;
        whole: counterexample.(position,expected,length,shift); whole | null: counterexample.start
    trusted: what torch answers there = whole | null: counterexample.predicted
    trusted: whether torch computes a tie = flag: counterexample.is_tie
    trusted: no shorter input is wrong = flag: counterexample.is_smallest?
""")
BUILDER, BUILT = "trusted: how the weights were built", "trusted: which builder made the weights"
CONSTRUCTION = f"{BUILT} = text: parameters.construction?"
SIZES = "text: parameters.dtype; whole: parameters.(layers,heads,d,d_h,p"
MODULAR: Table = _real("modular", f"{SIZES},P,neurons)") | _fields(f"""
    {CONSTRUCTION}
    {BUILDER} = [whole]: parameters.(frequencies?,orbit?)
    by modular.check = text: counts.(right,wrong)
""")
MODULAR_PROVED: Table = MODULAR | _fields(f"""
    by modular.check = object: counts; number: tightest.margin
    {LEAST} = object: tightest; [whole]: tightest.input
""")
MODULAR_WRONG: Table = MODULAR | _fields("""
    by modular.check = object: counts?; [[whole]]: wrong_inputs; whole: counterexample.expected
    run by modular.check = object: counterexample; [whole]: counterexample.input
    a bound, shown by modular.check = whole | null: counterexample.predicted; flag: counterexample.is_smallest
    trusted: what torch answers there = whole: counterexample.torch
""")

ADDITION: Table = _real("addition", f"{SIZES},digits,base)") | _fields(f"""
    {CONSTRUCTION}
    {BUILDER} = whole: parameters.lookahead?
""")
ADDITION_PROVED: Table = ADDITION | _fields(f"""
    {LEAST} = object: tightest; text: tightest.input?; whole: tightest.(column?,sum?,carry?)
    by addition.check = number: tightest.margin
""")
ADDITION_WRONG: Table = ADDITION | _fields("""
    run by addition.check = object: counterexample; text: counterexample.input
    by addition.check = text: counterexample.expected
    a bound, shown by addition.check = text: counterexample.predicted
    trusted: what torch writes = text: counterexample.generated
    trusted: no smaller pair is wrong = flag: counterexample.is_smallest?
    trusted counts: how many pairs are wrong; they must add up = object: counts?; text: counts.(right,wrong)
""")
COUNT01: Table = _real("count01", "flag: parameters.skip?; text: parameters.dtype?") | _fields(f"""
    {CONSTRUCTION}
    {HEADER} = whole: parameters.(heads?,d?)
    {BUILDER} = anything: parameters.(N?,eps?); text | null: parameters.as_printed?
    the statement that is decided, by count01.check = text: parameters.labels; flag: parameters.semantic_only?;
        whole: parameters.(min_digits?,min_noise?); whole | null: parameters.(max_digits,max_noise,max_length)
    equals the domain in words = text: region
    equals what is counted = text: inputs_are
    trusted: what the documents' formulas come to = anything: exact_weights?
""")
COUNT01_PROVED: Table = COUNT01 | _fields(f"""
    a bound, shown by count01.check = number | null: margin; number: margin_scaled?
    {LEAST} = anything: tightest
    trusted: what is wrong one step beyond the region = anything: beyond?
    trusted: how many the prover looked at = whole: boxes?
""")
COUNT01_WRONG: Table = COUNT01 | _fields("""
    by count01.check = number: margin; text | null: margin_exact
    run by count01.check = object: counterexample; [whole | text]: counterexample.input;
        whole: counterexample.(n0,n1,n2); text: counterexample.(last,expected,tokens[]);
        list | null: counterexample.tokens
    trusted: what torch answers there = text: counterexample.predicted
    trusted: what torch computes there = anything: counterexample.logits
    trusted: whether torch shows it, too = flag: counterexample.fails
    trusted: how torch ran it = text: counterexample.replayed
    equals the margin = number: counterexample.margin
    trusted counts: how many prompts are wrong; they must fit the region and the share = object: counts?;
        text: counts.(right,wrong) wrong_share?
    trusted: how many the prover looked at = whole: boxes?
""")

# ---- any module

TRACE = """
    trusted graph.sha256: the prover's own digest of each graph = [text]: graph.sha256
    equals how often the program has each = elsewhere: graph.operations
"""
MODULE: Table = _fields(f"""
    {SECONDS}
    by module.check = text: verdict inputs_covered counts.(right,wrong,undecided); object: counts
    equals null = null: claim margin_exact margin_per_count error_share reason
    equals module = text: task
    by module.check_parameters = object: parameters graph
    trusted the module's name: of its class = text: parameters.module
    equals those of the inputs = [whole]: parameters.lengths
    those at which answers are read, -1 for the last = list | null: parameters.positions;
        integer: parameters.positions[]
    equals how many logits take part = whole: parameters.classes
    equals how many the graph reads = whole: parameters.stored_numbers
    equals real = text: reading
    equals certified = text: method
    trusted: how the prover came to it = text: argument
    a bound, shown by module.check = number | null: margin
    trusted: where the margin is least; that input has it = object | null: tightest
    followed by module._check_tightest = [whole]: tightest.input
    a bound, shown by module._check_tightest = number | null: tightest.margin
    {TASK} = [text]: assumptions
    {TRACE.strip()}
    trusted that torch.export traced the module: which torch; the program is what it traced = text: graph.torch
    trusted: how many inputs each part of the prover decided = anything: decided_by
    followed by module.check_counts = [[whole]]: wrong_inputs
    followed on every input by module.check = elsewhere: program
    {FILE} = text: weights_sha256
""")
MODULE_PROVED: Table = MODULE | _fields("equals null = null: counterexample")
MODULE_WRONG: Table = MODULE | _fields("""
    followed by module.check_wrong = object: counterexample; [whole]: counterexample.input;
        whole | list: counterexample.(expected,predicted); whole: counterexample.(expected[],predicted[])
    trusted: what torch answers there = whole | list: counterexample.module_answers?;
        whole: counterexample.module_answers[]
""")


def _grokking(kind: Table) -> Table:
    """The same of addition modulo P by a decoder of the grokking layout, without its operations."""
    return _but(kind, "program", "graph") | _fields("""
    equals modular = text: task
    the statement that is decided, by grokking.check = whole: parameters.P
    equals how many the layout has = whole: parameters.stored_numbers
    trusted: what the prover traced; the operations of the layout are followed, not these = anything: graph
    bounds, shown by grokking.check_differences = [number | null]: margin_per_difference
    by grokking.check_spectrum = [whole]: frequencies
    to nine digits, by grokking.check_spectrum = elsewhere: frequency_shares
""")


CONTEXTUAL: Table = _real("contextual", "whole: parameters.prompts; text: parameters.dtype") | _fields(f"""
    equals contextual counting = text: task
    the statement that is decided, by contextual.check = flag: parameters.exactly; whole | null: parameters.zeros;
        whole: parameters.(length,regions)
    {BUILDER} = text: parameters.(construction?,bias?)
    equals the strings in words = text: domain
    {LEAST} = object | null: tightest; whole: tightest.(prompt,count); [whole]: tightest.regions
    a bound, shown by contextual.check = anything: right_lengths
""")
CONTEXTUAL_WRONG: Table = CONTEXTUAL | _fields("""
    equals null = null: tightest
    trusted: up to which lengths all strings are right, and from which some are wrong = anything: right_lengths
    run by contextual.check = object: counterexample; text: counterexample.(input,string);
        whole: counterexample.(length,prompt,expected); [text]: counterexample.regions;
        [whole]: counterexample.all_expected
    trusted: what torch answers there = whole | null: counterexample.predicted
    trusted module_answers: what torch answers there = whole: counterexample.module_answers;
        [whole]: counterexample.all_module_answers
""")


def _placed(kind: Table) -> Table:
    """The same of encoders that know positions."""
    others = [f"parameters.{name}" for name in ("exactly", "zeros", "construction", "bias")]
    others += ["right_lengths", "tightest.regions", "counterexample.regions", "counterexample.module_answers"]
    return _but(kind, *others) | _fields(f"""
    one of placed.TASKS, by placed.check = text: task
    {HEADER} = number: parameters.slope?; whole: parameters.coordinates?
    {BUILDER} = text: parameters.pe?; flag: parameters.decoder_mlp?; text: parameters.construction?
""")


OF_FILE = "that the program is the file's circuit"  # what is trusted of it; that the transformer runs it is shown
OF_CIRCUIT = "the statement that is decided, by circuits.check"
CIRCUIT: Table = _real("circuits", "whole: parameters.(s,n,T,k,d)") | _fields(f"""
    equals circuit or language = text: task
    trusted {OF_FILE}: which file was read = text: parameters.circuit
    {OF_CIRCUIT} = text: parameters.precision? reading
    a bound, shown by circuits.check = number | null: margin
    equals those of the program = elsewhere: statistics
    trusted: what was run beside the proof = anything: forward_runs
    trusted: how many steps differ where no input leads = whole: harmless_differences
    trusted smallest_bits: that fewer bits do not do = whole | null: smallest_bits?; anything: smaller_bits?
    trusted chain: a chain of thought that was asked for = anything: chain? outputs?
""")
GATES = _fields("""
    by netlists.Gates = object: program; [[text | whole]]: program.gates; [[whole]]: program.steps;
        [whole]: program.(outputs,node_of); whole: program.inputs
""")
CIRCUIT |= {path: field._replace(name=OF_FILE) for path, field in GATES.items()}
WRONG_STEP = ", a wrong step"
IS_WRONG: Table = _fields("""
    by wrong_steps.refute = number | null: margin
    run by wrong_steps.refute = object: counterexample; text: counterexample.(input,kind);
        whole: counterexample.(step,expected); whole | null: counterexample.(computed,predicted)
    trusted: the name of the step's gate = text: counterexample.gate
    trusted: what is wrong there, in words = text | null: counterexample.why
    trusted: how the prover ran it = text: counterexample.run?
    trusted: no smaller input is wrong = flag: counterexample.is_smallest?
    trusted counts: how many inputs are wrong = list | null: error_share; number: error_share[]; object: counts?;
        text: counts.(right,wrong)
""")
LANGUAGE: Table = CIRCUIT | _fields("""
    by languages.check_language = whole: parameters.length; text: parameters.alphabet accepted
    trusted that the automaton is the language's: its name; the states are counted = text: language
    the statement that is decided, by languages.check_language = object: program.automaton;
        [[integer]]: program.automaton.step; [whole]: program.automaton.accepting
    which nodes are the states, a witness, by languages.check_language = [[[integer]]]: program.automaton.slices
""")

TABLES: dict[str, Table] = {
    "circuit": CIRCUIT,
    f"circuit{WRONG_STEP}": CIRCUIT | IS_WRONG,
    "language": LANGUAGE,
    f"language{WRONG_STEP}": LANGUAGE | IS_WRONG
    | _fields("what the input's bits write, by languages.spelled = text: counterexample.string"),
    "histogram, proved": HISTOGRAM | _an_input("tightest") | _fields("""
    a bound, shown by splits.decide = [number | null]: margin_per_count
    run exactly by fields._replay = object | null: tightest
    by fields._replay = number | null: tightest.margin
    equals null = null: counterexample
"""),
    "histogram, wrong, with its search": WRONG,
    "histogram, wrong": WRONG | UNCOUNTED,
    "words, wrong": _of_words(WRONG_STRING),
    "words, wrong in a run": _of_words(WRONG_RUN),
    "line, wrong": WRONG_STRING,
    "words, wrong in an evaluation": _of_words(WRONG_EVALUATION),
    "line, wrong in a run": WRONG_RUN,
    "line, wrong in an evaluation": WRONG_EVALUATION,
    "strings, wrong in an evaluation": ONE_STRING | ONE_EVALUATION,
    **dict.fromkeys(("line", "words", "strings"), INDUCTIVE),
    **{f"{kind}, by its step": BY_STEP for kind in ("line", "words", "strings")},
    "line, wrong in a named run": WRONG_NAMED,
    "line, wrong in a named run, no number": WRONG_NAMED | _fields("equals null = null: margin"),
    "line, wrong in a run of even turns": WRONG_NAMED
    | {path.replace("leaps?", "leaps"): field for path, field in LEAPS.items()},
    "line, wrong after many turns": WRONG_FAR,
    "line, wrong in a run of decays": WRONG_DECAYS,
    "line, wrong in a run of decays, no number": WRONG_DECAYS | _fields("equals null = null: margin"),
    "line, for ever": FOR_EVER,
    "line, for ever by boxes": BOXES,
    "line, fractions": INDUCTIVE | LEAPS | _fields(f"{TURN} = [whole]: repeats?"),
    "line, in closed form": INDUCTIVE
    | _fields("trusted: how the prover came to it; nothing rests on it = anything: invariant? boxes?"),
    "line, wrong, fractions": WRONG_STRING | LEAPS,
    "line, states of a run that repeat": STATES,
    "strings, between two numbers": INDUCTIVE
    | _fields("trusted: how many cases the prover met = anything: sets_found"),
    "strings, sets of states": INDUCTIVE | _fields(f"""
    {SET} = object: sets_found; whole: sets_found.(window,sets); [[number]]: sets_found.(low,high)
"""),
    "strings, ellipsoids": INDUCTIVE | _fields("""
    a witness, tried by graphs_of_states.proved = object: sets_found; whole: sets_found.sets;
        [object]: sets_found.graphs; [whole]: sets_found.graphs[].judged; [[integer]]: sets_found.graphs[].then;
        [[number]]: sets_found.graphs[].centres; [integer]: sets_found.graphs[].exponents;
        [[[number]]]: sets_found.graphs[].shapes
"""),
    "strings, sets of states of each type": INDUCTIVE | _fields(f"""
    {SET} = object: sets_found; whole: sets_found.sets; [[[number]]]: sets_found.(low,high)
"""),
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
}  # fmt: skip

IN_DTYPE = ", in a dtype"  # what is added to a kind's name
STATED = "the statement that is decided, by any_order.reading_of"
IN_FORMAT = f"{STATED} = text: reading parameters.precision; text | null: parameters.accumulate?"
BELOW = "trusted the margin below the roundings"
KNOWN = _fields("equals the one of its verdict, by histogram_in_dtype.check = text: argument?")
SMALLEST = "trusted: no smaller input is wrong = flag: counterexample.is_smallest?"


def _in_dtype(kind: str) -> Table:
    """A proof in a format: real arithmetic shows the margin up to what the roundings may do."""
    table, by_count = TABLES[kind], "margin_per_count[]" in TABLES[kind]
    left_out = ("right_lengths", "margin_scaled", "counts", "wrong_pairs", "error_share") + ("tightest",) * by_count
    known = KNOWN | _fields(f"{LEAST} = anything: tightest") if by_count else {}
    return (
        _but(table, *left_out)
        | known
        | _fields(f"""
    {BELOW}: no more than twice their bound; all else is shown by any_order.still_due =
        number: margin{" margin_per_count[]" * by_count}
    {IN_FORMAT}
    equals null = null: margin_exact error_share
    trusted: how far the prover looked = whole: search_ended_at?
""")
    )


RUN = "run again with every operation rounded, by replay.replay_of"
EVALUATION: Table = _fields(f"""
    {RUN} = object: counterexample.run_as; text: counterexample.run_as.(order,kept?);
        integer: counterexample.run_as.seed; flag: counterexample.run_as.(fused,flush,reciprocal);
        [[text]]: counterexample.run_as.directions; [[text | flag]]: counterexample.run_as.ways; number | null: margin
    trusted: the evaluation in words = text: counterexample.order
    equals null = null: margin_exact
""")


def _wrong_in_dtype(task: str) -> Table:
    """A wrong input in a format, and the evaluation in which it is wrong; where none is named, the plainest one."""
    of_real = TABLES[f"{task}, {'wrong' if task == 'histogram' else 'refuted'}"]
    left_out = ("wrong_", "counts", "tree", "error_share", "right_lengths", "boxes", "counterexample.is_smallest")
    kept = _but(of_real, *left_out, "counterexample.margin")
    answer = "text" if task in ("addition", "count01") else "whole | null"
    run = EVALUATION | _fields(f"{RUN} = {answer}: counterexample.predicted")
    if task in ("contextual", "placed"):
        run = _fields("trusted: what torch computes; that it is not above zero is compared = number | null: margin")
    elif task == "count01":
        of_logits = f"{RUN} = [number | null]: counterexample.logits; flag: counterexample.fails"
        run = _but(run, "counterexample.order") | _fields(of_logits)
    elif task == "histogram":
        run |= KNOWN | _fields("""
    trusted: what torch answers there = whole | null: counterexample.module_predicts
    trusted: whether another order is right = text: counterexample.fails_in
""")
    return (
        kept
        | run
        | _fields(f"""
    {SMALLEST}
    {IN_FORMAT}
    equals null = null: error_share
""")
    )


ROUNDED = ("addition", "contextual", "count01", "histogram", "modular", "parity", "placed")
TABLES |= {f"{task}, proved{IN_DTYPE}": _in_dtype(f"{task}, proved") for task in ROUNDED}
TABLES |= {f"{task}, refuted{IN_DTYPE}": _wrong_in_dtype(task) for task in ROUNDED}
OF_CHAIN = _fields(f"""
    trusted a tenth of the margin: the rest by circuits.check = number | null: margin
    {STATED} = text: parameters.precision; text | null: parameters.accumulate
""")
for _kind in ("circuit", f"circuit{WRONG_STEP}", "language", f"language{WRONG_STEP}"):
    TABLES[f"{_kind}{IN_DTYPE}"] = TABLES[_kind] | OF_CHAIN
TABLES[f"transformer, refuted{IN_DTYPE}"] = COUNTING_WRONG | _fields(IN_FORMAT)
TABLES[f"transformer, proved{IN_DTYPE}"] = COUNTING | _fields(f"""
    {IN_FORMAT}
    {BELOW}: no more than half of it; the rest is shown by counting.check = number | null: margin;
        number: margin_scaled?
""")

IN_BITS = ", in constant bits"
OF_BITS: Table = _fields("""
    the statement that is decided, by constant_bits.bits_of = text: reading method parameters.precision
    trusted: how the prover came to it = text: argument?
    equals null = null: margin_exact tightest
""")
TABLES[f"histogram, proved{IN_BITS}"] = HISTOGRAM | OF_BITS | _fields("""
    a bound, shown by histogram_in_bits.check = number | null: margin
    by histogram_in_bits.check = object: counts; text: counts.(right,wrong)
    equals null = null: margin_per_count counterexample
""")  # fmt: skip
TABLES[f"histogram, refuted{IN_BITS}"] = (
    WRONG
    | OF_BITS
    | _fields(f"""
    run again, by histogram_in_bits.check = whole | null: counterexample.predicted;
        whole: counterexample.module_predicts
    {MUST_FIT} error_share = text | null: wrong_pairs?
    {MUST_FIT} wrong_pairs = list | null: error_share; number: error_share[]
    trusted counts: how many inputs are wrong = object: counts?; text: counts.(right,wrong)
""")
)
_NOT_IN_BITS = ("counts", "wrong_share", "boxes", "beyond", "margin_scaled", "tightest", "counterexample.margin")
TABLES[f"count01, proved{IN_BITS}"] = (
    _but(COUNT01_PROVED, *_NOT_IN_BITS)
    | OF_BITS
    | _fields("""
    a bound, shown by count01_in_bits.prove = number: margin
""")
)
TABLES[f"count01, refuted{IN_BITS}"] = (
    _but(COUNT01_WRONG, *_NOT_IN_BITS)
    | OF_BITS
    | _fields(f"""
    by count01_in_bits.refute = number | null: margin; list: counterexample.tokens;
        text: counterexample.(predicted,replayed); [number | null]: counterexample.logits; flag: counterexample.fails
    {SMALLEST}
""")
)


IN_EVERY_ORDER = f"""trusted {HALF}: of a proof half of it is shown in every order, by rounded_module.check;
        of a wrong input that it is not above 0 = number | null: margin"""
CELL: Table = _but(INDUCTIVE, "parameters") | _fields(f"""
    equals module, or inductive = text: task
    the statement that is decided, by captured_cells = text: reading; whole | text: length
    by captured_cells = text: inputs_covered; object: graph
    a bound, shown by captured_cells = number | null: margin
    equals the program's, by captured_cells = object: parameters
    equals length = whole | text: parameters.length
    {STATED} = text: parameters.precision?
    trusted {OF_STEP}: each operation is followed, by captured_cells = elsewhere: program
    {TRACE.strip()}
    trusted {OF_STEP}: which torch; the program is what it traced = text: graph.torch
""")
OF_CELLS: dict[str, Table] = {
    "cell": _fields("""
    trusted the module's name: of its class = text: parameters.module
    equals the program's = whole: parameters.(tokens,state,classes)
    equals how many the graph reads = whole: parameters.stored_numbers
"""),
    "network": _fields("""
    the statement that is decided, by captured_cells = text: parameters.task;
        whole: parameters.(modulus?,vocabulary?,types?,max_count?)
    trusted: what the network is called = text: parameters.(model,activation,dtype)
    trusted: how large the network is called = whole: parameters.(units,layers)
"""),
}
WRONG_CELL: Table = _fields(f"""
    equals null = null: tightest
    {SHORTER} = whole: right_to?
    followed by captured_cells = object: counterexample; list | text: counterexample.input;
        whole: counterexample.(input[],length,expected); whole | null: counterexample.predicted
    by captured_cells: all shorter strings are followed = flag: counterexample.is_first?
    trusted: what torch answers there = whole | null: counterexample.module_answers?
""")
OF_EVALUATION = {"counterexample.evaluation": WRONG_EVALUATION["counterexample.evaluation"]}
for _kind, _own in OF_CELLS.items():
    TABLES |= {f"{_kind}, proved": CELL | _own, f"{_kind}, refuted": CELL | WRONG_CELL | _own}
    TABLES |= {
        f"{_kind}, proved{IN_DTYPE}": CELL | _own | _fields(IN_EVERY_ORDER),
        f"{_kind}, refuted{IN_DTYPE}": CELL | WRONG_CELL | _own | OF_EVALUATION,
    }
MODULE_IN_DTYPE: Table = _fields(f"""
    {IN_FORMAT}
    the statement that is decided, by rounded_module.check = text: reading
    {IN_EVERY_ORDER} tightest.margin
""")
for _kind in ("module, proved", "module, refuted", "grokking, proved", "grokking, refuted"):
    TABLES[f"{_kind}{IN_DTYPE}"] = TABLES[_kind] | MODULE_IN_DTYPE


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
