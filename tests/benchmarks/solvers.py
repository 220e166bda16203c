"""General solvers on the questions that one proof answers: SMT in exact numbers, and bound propagation in floats.

python tests/benchmarks/solvers.py [--lirpa PYTHON]

A question is a token t, how often it occurs, k, and the counts of the other tokens: does another logit reach the right
one? Each solver gets the same hidden layer h = ReLU(base + sum of n_s slope_s), an affine function of the counts n.
auto_LiRPA 0.3 needs an environment of its own (torch 1.13, numpy below 2), whose interpreter is given by --lirpa.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import tempfile
import time
from fractions import Fraction
from pathlib import Path

from constructions import inventory_counting, relation_counting
from constructions.histogram import HistogramTransformer
from verify.frame.certificate import Verdict
from verify.tasks.histogram.proof import certify

TIMEOUT = 60.0  # seconds for all questions of one model


def questions(module: HistogramTransformer) -> list[dict[str, object]]:
    """Each token and count: slopes and base of the hidden layer, readout, and the right class, in the stored numbers.

    Scores and slopes are products in float64: what is asked is a question near the module's, by rounding.
    """
    E, W_Q, W_K, W_1, b_1, W_2, b_2 = (
        getattr(module, name).detach().double().numpy() for name in ("E", "W_Q", "W_K", "W_1", "b_1", "W_2", "b_2")
    )
    V, scores = E @ W_1, (E @ W_Q) @ (E @ W_K).T / math.sqrt(module.d)
    return [
        {"t": t, "k": k, "L": module.L, "right": k - module.first_count, "slopes": (scores[t][:, None] * V).tolist(),
         "base": (V[t] + b_1).tolist(), "W_2": W_2.tolist(), "b_2": b_2.tolist()}
        for t in range(module.T)
        for k in range(1, module.L + 1)
    ]  # fmt: skip


def literal(x: float) -> str:
    """A number in SMT-LIB, exactly."""
    exact = Fraction(x)
    value = f"(/ {abs(exact.numerator)}.0 {exact.denominator}.0)"
    return f"(- {value})" if exact < 0 else value


def in_smt_lib(question: dict) -> str:
    """Whether some other logit reaches the right one: unsat where the model is right on all these sequences."""
    T, p = len(question["slopes"]), len(question["base"])
    lines = ["(set-logic QF_LIRA)", *(f"(declare-const n{s} Int)(assert (>= n{s} 0))" for s in range(T))]
    lines.append(f"(assert (= n{question['t']} {question['k']}))")
    lines.append(f"(assert (= (+ {' '.join(f'n{s}' for s in range(T))}) {question['L']}))")
    for i in range(p):
        terms = [f"(* {literal(row[i])} (to_real n{s}))" for s, row in enumerate(question["slopes"])]
        lines.append(f"(declare-const z{i} Real)(declare-const h{i} Real)")
        lines.append(f"(assert (= z{i} (+ {literal(question['base'][i])} {' '.join(terms)})))")
        lines.append(f"(assert (= h{i} (ite (> z{i} 0.0) z{i} 0.0)))")
    right, reached = question["right"], []
    for c in range(len(question["b_2"])):
        if c != right:
            slopes = [row[right] - row[c] for row in question["W_2"]]
            terms = " ".join(f"(* {literal(slope)} h{i})" for i, slope in enumerate(slopes))
            reached.append(f"(<= (+ {literal(question['b_2'][right] - question['b_2'][c])} {terms}) 0.0)")
    return "\n".join([*lines, f"(assert (or {' '.join(reached)}))", "(check-sat)"])


def by_z3(text: str, left: float) -> str:
    import z3

    solver = z3.SolverFor("QF_LIRA")
    solver.set("timeout", max(1, int(1000 * left)))
    solver.from_string(text.replace("(check-sat)", ""))
    return str(solver.check())


def by_cvc5(text: str, left: float) -> str:
    import cvc5

    solver = cvc5.Solver()
    solver.setOption("tlimit-per", str(max(1, int(1000 * left))))
    parser = cvc5.InputParser(solver)
    parser.setStringInput(cvc5.InputLanguage.SMT_LIB_2_6, text, "question")
    said = ""
    while not (command := parser.nextCommand()).isNull():
        said = command.invoke(solver, parser.getSymbolManager()).strip() or said
    return said


def solved(module: HistogramTransformer, solver) -> tuple[float, int, int]:
    """CPU seconds, the questions that were answered `unsat`, and all of them."""
    asked = [in_smt_lib(question) for question in questions(module)]
    started, answered = time.process_time(), 0
    for text in asked:
        left = TIMEOUT - (time.process_time() - started)
        if left <= 0:
            break
        answered += solver(text, left) == "unsat"
    return time.process_time() - started, answered, len(asked)


def by_lirpa(module: HistogramTransformer, python: str) -> tuple[float, int, int]:
    """The same for CROWN's lower bounds on boxes of counts, 0 to L - k for each other token, in float32."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "questions.json"
        path.write_text(json.dumps(questions(module)))
        program = [python, "-W", "ignore", str(Path(__file__).with_name("lirpa.py")), str(path)]
        found = subprocess.run(program, check=True, capture_output=True, text=True)
    seconds, answered, asked = json.loads(found.stdout.splitlines()[-1])
    return seconds, answered, asked


def models():
    """Name and model: built ones, and ones whose numbers a random basis makes generic."""
    for T, L in ((8, 5), (32, 10)):
        yield f"dot, T = {T}, L = {L}", relation_counting.dot(T=T, L=L)
    for T, L in ((8, 5), (16, 8)):
        yield f"dot, p = T = {T}, L = {L}, random basis", inventory_counting.dot(T=T, L=L, basis="random")


def rows(python: str | None):
    """For each model and solver what was answered: (model, solver, seconds, answered, asked)."""
    solvers = {"z3": lambda m: solved(m, by_z3), "cvc5": lambda m: solved(m, by_cvc5)}
    if python is not None:
        solvers["auto_LiRPA, CROWN"] = lambda m: by_lirpa(m, python)
    for model, module in models():
        assert certify(module).verdict is Verdict.PROVED
        started = time.process_time()
        certify(module)
        yield model, "the proof", time.process_time() - started, module.T * module.L, module.T * module.L
        for name, solver in solvers.items():
            yield model, name, *solver(module)


def table(python: str | None) -> list[str]:
    """The table of docs/benchmarks.md."""
    lines = ["| model | by | CPU seconds | answered | of |", "|---|---|---|---|---|"]
    for model, name, seconds, answered, asked in rows(python):
        lines.append(f"| {model} | {name} | {seconds:.2g} | {answered} | {asked} |")
    return lines


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lirpa", metavar="PYTHON", help="an interpreter that imports auto_LiRPA")
    sys.stdout.write("\n".join(table(parser.parse_args().lirpa)) + "\n")
