"""Runs several hundred command lines in this process and writes what their --json prints, for comparing two versions.

python tests/tools/corpus.py OUT.json [--compare OTHER.json]

Everything happens in a temporary folder, with weights that the commands themselves save and that are then changed
here, so that the same lines run on any version. Times are left out.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import itertools
import json
import os
import sys
import tempfile
from collections import Counter
from pathlib import Path

XOR = "INPUT(x)\nINPUT(y)\nOUTPUT(z)\nz = XOR(x, y)\n"
ADDER = "INPUT(x)\nINPUT(y)\nINPUT(c)\nOUTPUT(s)\nOUTPUT(o)\ns = XOR(x, y, c)\na = AND(x, y)\nb = AND(x, c)\n"
ADDER += "d = AND(y, c)\no = OR(a, b, d)\n"
EVEN = {
    "alphabet": "01",
    "start": "a",
    "accept": ["a"],
    "transitions": {"a": {"0": "a", "1": "b"}, "b": {"0": "b", "1": "a"}},
}
FORMATS = ("float64", "float32", "tf32", "bfloat16", "float16", "e4m3", "e5m2", "p6", "p12")


MODULE = '''
import torch
from verify.module import Task, tokens

class Largest(torch.nn.Module):
    """The largest of two tokens, by a weighted sum of one-hot rows."""

    def __init__(self):
        super().__init__()
        self.E = torch.nn.Embedding(5, 5, dtype=torch.float64)
        with torch.no_grad():
            self.E.weight.copy_(torch.diag(torch.tensor([1.0, 3.0, 9.0, 27.0, 81.0], dtype=torch.float64)))

    def forward(self, x):
        h = self.E(x).sum(-2)
        return ANSWER

def model(weights=None):
    return Largest().eval()

task = Task(inputs=tokens([5, 5]), expected=lambda t: t.amax(1), classes=range(5))
'''


def histogram_lines():
    models = ("lin", "lin+sftm", "dot", "dot+sftm", "bos", "bos+sftm")
    for model, (T, L) in itertools.product(models, ((2, 1), (3, 3), (4, 5), (8, 6))):
        yield f"histogram --model {model} --T {T} --L {L}"
    for model in ("dot", "bos", "bos+sftm"):
        yield f"histogram --model {model} --T 4 --L 3 --construction inventory"
        yield f"histogram --model {model} --T 4 --L 3 --basis random --seed 3"
        yield f"histogram --model {model} --T 4 --L 3 --as-printed"
        for dtype in ("float64", "bfloat16", "float16"):
            yield f"histogram --model {model} --T 6 --L 5 --dtype {dtype}"
    for model, method in itertools.product(models, ("exhaustive", "sampled")):
        yield f"histogram --model {model} --T 3 --L 3 --method {method}"
    for method in ("exhaustive", "sampled"):
        yield f"histogram --model bos --T 4 --L 3 --as-printed --method {method}"
    for model, precision in itertools.product(("lin", "dot", "bos", "bos+sftm"), (*FORMATS, "s4", "s8")):
        yield f"histogram --model {model} --T 4 --L 3 --precision {precision}"
    for precision in ("bfloat16", "float16", "e4m3"):
        yield f"histogram --model bos --T 4 --L 3 --precision {precision} --accumulate float32"
    yield "histogram --model dot --T 8 --L 4 --d 7 --construction simplex"
    yield "histogram --model bos+sftm --T 4 --L 3 --d 3 --construction sphere"
    yield "histogram --model bos+sftm --T 3 --L 3 --d 2 --construction plane"
    yield "histogram --model bos+sftm --T 3 --L 3 --construction binary"
    yield "histogram --model bos+sftm --T 3 --L 3 --construction quarter-circle --d 2"
    yield "histogram --model lin --T 3 --L 3 --p 1"
    yield "histogram --model lin --T 3"
    yield "histogram --model bos --T 4 --L 3 --budget -1"
    for name in ("dot", "bos", "lin"):
        for kind in ("same", "noise", "swapped", "scaled", "zero", "tie"):
            yield f"histogram --weights {name}-{kind}.safetensors"
            yield f"histogram --weights {name}-{kind}.safetensors --method exhaustive"
        for precision in ("bfloat16", "float32", "s5"):
            yield f"histogram --weights {name}-noise.safetensors --precision {precision}"
        yield f"histogram --weights {name}-swapped.safetensors --method sampled --seed 2"
    yield "histogram --weights bos-same.safetensors --L 2"
    yield "histogram --weights bos-nan.safetensors"


def count01_lines():
    for N, labels, skip in itertools.product((3, 10), ("majority-ones", "thesis"), ("", " --no-skip")):
        yield f"count01 --N {N} --labels {labels}{skip}"
        yield f"count01 --N {N} --labels {labels}{skip} --max-digits 9 --max-noise 4"
    for labels in ("majority-ones", "thesis"):
        yield f"count01 --construction uniform --labels {labels}"
        yield f"count01 --construction uniform --labels {labels} --length 12"
        yield f"count01 --construction uniform --labels {labels} --method exhaustive --max-digits 3 --max-noise 2"
        yield f"count01 --construction uniform --labels {labels} --method exhaustive --strings 4"
        yield f"count01 --as-printed --labels {labels}"
        yield f"count01 --as-printed aligned --labels {labels} --max-digits 5 --max-noise 5"
        yield f"count01 --as-printed aligned --labels {labels} --method exhaustive --max-digits 3 --max-noise 3"
    yield "count01 --as-printed aligned --eps 0.001 --max-digits 5 --max-noise 5"
    yield "count01 --N 3 --eps 0.001"
    for precision in FORMATS:
        yield f"count01 --construction uniform --precision {precision} --length 10"
        yield f"count01 --N 5 --precision {precision} --max-digits 6 --max-noise 6"
    for precision in ("s3", "s6"):
        yield f"count01 --construction uniform --precision {precision} --length 4"
        yield f"count01 --construction uniform --precision {precision}"
    yield "count01 --construction uniform --precision bfloat16 --accumulate float32 --length 10"
    for dtype in ("float32", "bfloat16", "float16"):
        yield f"count01 --N 5 --dtype {dtype} --max-digits 6 --max-noise 6"
    yield "count01 --N 5 --input 011="
    yield "count01 --N 5 --input 012="
    for kind in ("same", "noise", "scaled", "zero"):
        yield f"count01 --weights count-{kind}.safetensors --max-digits 5 --max-noise 5"
        yield f"count01 --weights count-{kind}.safetensors --max-digits 3 --max-noise 3 --method exhaustive"
        yield f"count01 --weights count-{kind}.safetensors"
    yield "count01 --accumulate float32"
    yield "count01 --method exhaustive"


def contextual_lines():
    for N, R in ((8, 1), (12, 2), (24, 3), (64, 3)):
        for bias in ("BOS", "]", "0"):
            yield f"contextual --length {N} --regions {R} --bias {bias}"
        for keys in ("onehot", "convex"):
            yield f"contextual --length {N} --regions {R} --keys {keys}"
    for bias in ("BOS", "]", "0"):
        yield f"contextual --length 6 --regions 2 --bias {bias} --method exhaustive"
    yield "contextual --length 12 --regions 2 --bias ] --exactly"
    yield "contextual --length 12 --regions 2 --bias 0 --zeros 4"
    yield "contextual --length 12 --regions 2 --bias 0 --calibrated-zeros 2 --zeros 2 --exactly"
    yield "contextual --built-for 24 --regions 3 --length 12 --on-regions 2"
    yield "contextual --built-for 24 --regions 3 --length 25"
    for precision in ("float64", "float32", "bfloat16", "float16", "e4m3", "p8", "p16"):
        yield f"contextual --length 16 --regions 2 --precision {precision}"
        yield f"contextual --length 16 --regions 2 --bias ] --precision {precision}"
    for dtype in ("float64", "bfloat16", "float16"):
        yield f"contextual --length 16 --regions 2 --dtype {dtype}"
    for kind in ("same", "noise", "scaled", "zero"):
        yield f"contextual --weights contextual-{kind}.safetensors"
        yield f"contextual --weights contextual-{kind}.safetensors --length 6 --method exhaustive"
        yield f"contextual --weights contextual-{kind}.safetensors --length 4"
    yield "contextual --weights contextual-noise.safetensors --precision float32"
    yield "contextual --length 12 --regions 2 --input [1]0[11]"
    for claim in ("2.3", "2.4"):
        yield f"contextual --impossible {claim}"
    yield "contextual --length 11 --method exhaustive"


def circuit_lines():
    for name in ("xor.bench", "adder.bench"):
        yield f"circuit {name}"
        for bits in (1, 2, 3, 6):
            yield f"circuit {name} --bits {bits}"
            yield f"circuit {name} --bits {bits} --method exhaustive"
            yield f"circuit {name} --bits {bits} --method sampled"
        yield f"circuit {name} --bits 3 --printed"
        yield f"circuit {name} --precision real"
        for precision in (*FORMATS, "s3"):
            yield f"circuit {name} --precision {precision}"
        yield f"circuit {name} --bits 4 --precision bfloat16"
        yield f"circuit {name} --bits 4 --precision bfloat16 --accumulate float32"
    yield "circuit xor.bench --input 10 --bits 3"
    for kind in ("same", "noise", "scaled", "zero", "swapped"):
        yield f"circuit xor.bench --weights circuit-{kind}.safetensors"
        yield f"circuit xor.bench --weights circuit-{kind}.safetensors --method exhaustive"
        yield f"circuit xor.bench --weights circuit-{kind}.safetensors --precision float32"
        yield f"circuit xor.bench --weights circuit-{kind}.safetensors --precision real"
    yield "circuit adder.bench --weights circuit-same.safetensors"
    yield "circuit missing.bench"


def language_lines():
    for regex, length in (("1*", 0), ("1*", 3), ("0*1(0|10*1)*", 4), ("(01)*", 5), ("0", 2)):
        yield f"language {regex} --length {length}"
        yield f"language {regex} --length {length} --bits 3"
        yield f"language {regex} --length {length} --bits 1"
        yield f"language {regex} --length {length} --precision bfloat16"
        yield f"language {regex} --length {length} --bits 2 --method exhaustive"
    yield "language (a|b)*c --length 2 --alphabet abc"
    yield "language (a|b)*c --length 2 --alphabet abc --bits 2 --method exhaustive"
    yield "language (a|b)*c --length 2 --alphabet abc --bits 1"
    yield "language --majority --length 4"
    yield "language --majority --length 4 --precision real"
    yield "language --dfa even.json --length 4"
    yield "language 1* --length 3 --input 110"
    yield "language 1* --length -1"


def parity_lines():
    for T, L in ((2, 1), (3, 3), (4, 5), (8, 6)):
        yield f"parity --T {T} --L {L}"
    for precision in (*FORMATS, "s4"):
        yield f"parity --T 3 --L 3 --precision {precision}"
    for kind in ("same", "noise", "swapped", "scaled", "zero", "tie", "nan"):
        yield f"parity --weights parity-{kind}.safetensors"
        yield f"parity --weights parity-{kind}.safetensors --method exhaustive"
    yield "parity --T 4 --L 3 --method sampled --seed 1"
    yield "parity --T 0 --L 3"


def modular_lines():
    for P in (2, 3, 5, 12, 13):
        yield f"modular --P {P}"
        yield f"modular --P {P} --method exhaustive"
    for options in (
        "--construction clock --K 2",
        "--construction clock --frequencies 1,5",
        "--construction pizza --K 3",
    ):
        yield f"modular --P 13 {options}"
    yield "modular --P 3 --construction one-neuron"
    yield "modular --P 13 --best 2"
    yield "modular --P 13 --no-mlp"
    for claim in ("W-E4.7", "W-E4.8"):
        yield f"modular --impossible {claim}"
    for precision in FORMATS:
        yield f"modular --P 13 --precision {precision}"
        yield f"modular --P 11 --construction clock --K 2 --precision {precision}"
    yield "modular --P 1"
    yield "modular --P 13 --weights modular.safetensors"
    yield "modular --P 12 --weights modular.safetensors"


def addition_lines():
    for options in ("", "--heads 2", "--layers 2", "--lookahead 1", "--as-printed"):
        yield f"addition --digits 4 {options}".strip()
        yield f"addition --digits 2 {options} --method exhaustive".replace("  ", " ")
    for base, digits in ((2, 6), (10, 12), (16, 3), (37, 2), (60, 2)):
        yield f"addition --digits {digits} --base {base}"
    for precision in FORMATS:
        yield f"addition --digits 3 --precision {precision}"
        yield f"addition --digits 3 --layers 2 --precision {precision}"
    yield "addition --digits 5 --input 00995+00005="
    yield "addition --digits 0"
    yield "addition --digits 3 --weights addition.safetensors"
    yield "addition --digits 4 --weights addition.safetensors"


def bidirectional_lines():
    for N, R in ((6, 2), (12, 2), (16, 3)):
        yield f"bidirectional --length {N} --regions {R}"
    for precision in FORMATS:
        yield f"bidirectional --length 8 --regions 2 --precision {precision}"
    yield "bidirectional --length 6 --regions 2 --method exhaustive"
    yield "bidirectional --built-for 8 --regions 2 --length 9"
    yield "bidirectional --weights bidirectional.safetensors"
    for pe in ("nope", "ape", "rope", "alibi"):
        for more in ("", " --precision float32", " --decoder-mlp", " --decoder-mlp --precision bfloat16"):
            yield f"contextual --pe {pe} --length 8 --regions 2{more}"


def inductive_lines():
    for pe in ("nope", "sine", "ape", "rope", "spe"):
        for task in ("vanilla", "succession", "shifted", "helper", "helper-shifted", "modular"):
            yield f"inductive --task {task} --pe {pe} --bos --positions 24 --vocabulary 12"
            yield f"inductive --task {task} --pe {pe} --positions 24 --vocabulary 12 --no-layernorm"
        for task in ("selective", "selective-modular"):
            yield f"inductive --task {task} --pe {pe} --bos --types 3 --max-count 4 --length 6 --modulus 3"
    for model in ("rnn", "gru", "lstm", "ssm", "s4", "decay", "mamba", "rwkv"):
        yield f"inductive --task modular --model {model} --modulus 5"
        yield f"inductive --task modular --model {model} --modulus 3 --precision float32"
        yield f"inductive --task selective --model {model} --types 2 --max-count 3"
    for activation in ("relu", "gelu", "gelu_tanh"):
        yield f"inductive --task vanilla --activation {activation} --bos --positions 16 --vocabulary 10"
    for precision in FORMATS:
        yield f"inductive --task vanilla --bos --positions 16 --vocabulary 10 --precision {precision}"
    for claim in ("C-I1", "C-I2", "C-I3", "C-I4", "C-I5", "C-I6", "C-I7", "C-I8", "C-R1", "C-R2", "C-R15"):
        yield f"inductive --impossible {claim}"
    yield "inductive --task selective --types 0"
    yield "inductive --task modular --model rnn --modulus 3 --method exhaustive --length 8"
    yield "inductive --task selective --model transformer --distinct-start --types 3 --max-count 3 --length 5"


def heads_lines():
    for construction in ("documents", "uniform", "counting-pair"):
        yield f"heads --construction {construction} --law box:0:3:2"
        yield f"heads --construction {construction} --law unbounded"
    yield "heads --ratios 2,3 --values 1,-1,0 --law box:0:4:3"
    yield "heads --ratios 1/2,inf --values 1,0,0 --law box:0:4:3"
    yield "heads --construction documents --law box:0:3:2 --labels thesis --no-pairs"
    yield "heads --construction documents --law box:0:3:2 --subset 1,2"


def module_lines():
    for kind in ("right", "wrong", "linear"):
        for precision in ("real", "float64", "float32", "bfloat16", "float16"):
            yield f"module {kind}.py --precision {precision}"
        for method in ("exhaustive", "sampled"):
            yield f"module {kind}.py --method {method}"
    yield "module missing.py"


def other_lines():
    yield "check saved"
    yield "check wrong"
    yield "check bos-same.safetensors"
    for model in ("lin", "dot", "bos", "lin+sftm", "dot+sftm", "bos+sftm"):
        yield f"precision histogram --model {model} --T 4 --L 3"
    yield "precision histogram --model bos --T 3 --L 2 --sweep d=3:4 --bits 3:6"
    yield "frontier histogram --model dot --T 4 --L 3 --steps 20 --json"
    yield "batch dot-same.safetensors dot-noise.safetensors dot-zero.safetensors"
    yield "batch missing-folder"
    for name in ("dot-same", "dot-noise", "dot-zero"):
        yield f"repair {name}.safetensors"
        yield f"radius {name}.safetensors --tensors W_2"
        yield f"quantise {name}.safetensors --bits 4"
    yield "quantise dot-same.safetensors --fewest"
    yield "export exported --T 2 --L 2 --no-check"
    yield "kernel saved"
    yield "kernel wrong"
    yield "kernel --theorem integers_are_exact"
    yield "figure margin --model dot --T 4 --L 3 --out margin.svg"
    yield "figure nothing"
    yield "bounds"
    yield "bounds --T 16 --L 5 --json"
    yield "bounds --N 10"
    yield "claims"
    for name in ("A-4.2", "C-T1", "W-2"):
        yield f"claims {name}"


def change(path: str, name: str) -> None:
    """Writes changed copies of a saved weights file."""
    import torch
    from safetensors import safe_open
    from safetensors.torch import save_file

    with safe_open(path, framework="pt") as file:
        tensors, metadata = {key: file.get_tensor(key) for key in file.keys()}, file.metadata()  # noqa: SIM118
    generator = torch.Generator().manual_seed(7)
    last = next(key for key in ("W_2", "W_out", "layers.1.W_2") if key in tensors)
    bias = next(key for key in ("b_2", "b_out", "layers.1.b_1") if key in tensors)

    def written(kind: str, **changed: torch.Tensor) -> None:
        contiguous = {key: value.contiguous() for key, value in (tensors | changed).items()}
        save_file(contiguous, f"{name}-{kind}.safetensors", metadata)

    written("same")
    noise = torch.randn(tensors["E"].shape, generator=generator, dtype=torch.float64) * 0.05
    written("noise", E=(tensors["E"].double() + noise).to(tensors["E"].dtype))
    written("swapped", **{last: tensors[last].flip(-1)})
    written("scaled", **{last: tensors[last] * 2})
    written("zero", **{last: tensors[last] * 0})
    written("tie", **{last: tensors[last] * 0, bias: tensors[bias] * 0})
    written("nan", **{bias: tensors[bias] + float("nan")})


def prepare() -> None:
    """The files that the lines name."""
    Path("xor.bench").write_text(XOR)
    Path("adder.bench").write_text(ADDER)
    Path("even.json").write_text(json.dumps(EVEN))
    for model in ("dot", "bos", "lin"):
        run(f"histogram --model {model} --T 4 --L 3 --save {model}.safetensors")
        change(f"{model}.safetensors", model)
    run("histogram --model bos --T 4 --L 3 --save saved")
    run("histogram --weights bos-noise.safetensors --save wrong")
    run("count01 --N 3 --save count.safetensors")
    change("count.safetensors", "count")
    run("contextual --length 8 --regions 2 --save contextual.safetensors")
    change("contextual.safetensors", "contextual")
    run("parity --T 4 --L 3 --save parity.safetensors")
    change("parity.safetensors", "parity")
    run("modular --P 13 --save modular.safetensors")
    run("addition --digits 3 --save addition.safetensors")
    run("bidirectional --length 8 --regions 2 --save bidirectional.safetensors")
    for kind, answer in (("right", "h"), ("wrong", "h.flip(-1)"), ("linear", "h.relu() - 0.25 * h")):
        Path(f"{kind}.py").write_text(MODULE.replace("ANSWER", answer))
    run("circuit xor.bench --bits 3 --save circuit")
    change("circuit.safetensors" if Path("circuit.safetensors").exists() else "circuit/weights.safetensors", "circuit")


def executed(line: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of one command line."""
    from verify.commands.cli import main

    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = main(line.split())
        except SystemExit as stop:
            code = stop.code
    return code, out.getvalue(), err.getvalue()


def run(line: str) -> dict[str, object]:
    """What one command line answers."""
    code, text, error = executed(line)
    try:
        said = json.loads(text)
    except ValueError:
        said = text.splitlines()
    return {"exit": code, "said": without_times(said), "error": error.strip()}


def answered(line: str) -> list[object]:
    """The JSON values that one command line prints with --json, one on each line."""
    _, text, _ = executed(line if line.startswith("bounds") else f"{line} --json")
    return [json.loads(each) for each in text.splitlines() if each.startswith(("{", "[{", "[]"))]


def without_times(value):
    """JSON values without what differs from run to run: times, and digests of files that name them."""
    if isinstance(value, dict):
        return {key: without_times(x) for key, x in value.items() if key not in ("seconds", "time", "weights_sha256")}
    return [without_times(x) for x in value] if isinstance(value, list) else value


def lines():
    groups = (histogram_lines, count01_lines, contextual_lines, circuit_lines, language_lines, parity_lines)
    groups += (modular_lines, addition_lines, bidirectional_lines, inductive_lines, heads_lines, module_lines)
    for group in (*groups, other_lines):
        yield from group()


def differences(before, after, place=""):
    """Every place where two JSON values differ."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key in {**before, **after}:
            yield from differences(before.get(key, "(absent)"), after.get(key, "(absent)"), f"{place}.{key}")
    elif before != after:
        yield place, before, after


def compare(before, after) -> None:
    """Prints how often each field differs, with examples."""
    found, examples = Counter(), {}
    for line in {**before, **after}:
        for place, old, new in differences(before.get(line), after.get(line)):
            found[place] += 1
            examples.setdefault(place, []).append((line, old, new))
    for place, count in found.most_common():
        print(f"{count:4}  {place}")
        for line, old, new in examples[place][:6]:
            print(f"        {line}\n            {str(old)[:150]} -> {str(new)[:150]}")
    print(f"{len(after)} lines, {sum(found.values())} differences in {len(found)} places")
    for line in sorted(before.keys() & after.keys()):
        if worse := regression(before[line], after[line]):
            print(f"WORSE  {line}: {worse}")


def regression(before, after) -> str | None:
    """What must not change: the exit code, the verdict, and a certified margin that gets smaller."""
    if before["exit"] != after["exit"]:
        return f"exit code {before['exit']} -> {after['exit']}"
    old, new = (x["said"] if isinstance(x["said"], dict) else {} for x in (before, after))
    if "verdict" in old and old["verdict"] != new.get("verdict"):
        return f"{old['verdict']} -> {new.get('verdict')}"
    if new.get("verdict") == "PROVED" and old.get("margin") and (new.get("margin") or 0.0) < old["margin"]:
        return f"margin {old['margin']} -> {new.get('margin')}"
    return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out")
    parser.add_argument("--compare")
    parser.add_argument("--only", default="", help="lines that start so")
    args = parser.parse_args()
    out = Path(args.out).resolve()
    before = json.loads(Path(args.compare).read_text()) if args.compare else None
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        prepare()
        chosen = [line for line in lines() if line.startswith(args.only)]
        answers = {line: run(f"{line} --json" if not line.startswith("bounds") else line) for line in chosen}
        os.chdir(out.parent)
    out.write_text(json.dumps(answers, indent=1))
    print(f"{len(answers)} lines, exit codes {Counter(a['exit'] for a in answers.values())}")
    if before is not None:
        compare({line: before[line] for line in chosen if line in before}, answers)


if __name__ == "__main__":
    sys.exit(main())
