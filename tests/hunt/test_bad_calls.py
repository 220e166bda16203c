"""Bad calls of every command: exit code 2 and one line that names the argument; no traceback, no hang, no growth."""

from __future__ import annotations

import os
import resource
import signal
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from command import run
from safetensors.torch import save_file

from constructions import relation_counting
from verify.frame.registry import commands

SECONDS = 10
GROWTH = 2 << 30
LONG = "x" * 300
NINES = "9" * 5000
BENCH = "INPUT(a)\nINPUT(b)\nOUTPUT(z)\nz = NAND(a, b)\n"
TASK = """
from torch import nn

from verify.module import Task, tokens

task = Task(tokens([3, 3]), lambda word: 0)


def model(weights):
    if weights is None:
        raise SystemExit("this file needs --weights")
    return nn.Linear(1, 1)
"""

# What each command needs to be asked at all, its integers, and the option that reads or writes a file.
PLAIN = {
    "histogram": "--model dot --T 4 --L 3",
    "precision": "histogram --model bos --T 3 --L 2",
    "frontier": "histogram --model lin --T 3 --L 2",
    "bounds": "--T 8 --L 3",
    "count01": "--construction documents --N 10",
    "contextual": "--length 8 --regions 2",
    "circuit": "{bench}",
    "language": "0*1 --length 4",
    "parity": "--T 3 --L 3",
    "modular": "--P 5",
    "addition": "--digits 2 --base 2",
    "module": "{task}",
    "kernel": "{folder}",
    "heads": "{weights} --law d-test",
    "figure": "margin --model dot --T 4 --L 3 --out {folder}/f.svg",
    "inductive": "--task modular --model rnn",
    "bidirectional": "--length 8 --regions 2",
    "batch": "{weights}",
    "export": "{folder}",
    "claims": "",
    "check": "{folder}",
}
INTEGERS = {
    "histogram": ("T", "L", "d", "p", "seed"),
    "precision": ("T", "L", "d", "p"),
    "frontier": ("T", "L", "seed", "steps"),
    "bounds": ("T", "L", "N"),
    "count01": ("N",),
    "contextual": ("length", "regions", "built-for", "on-regions", "zeros", "seed"),
    "circuit": ("bits", "runs", "seed"),
    "language": ("length", "bits", "runs", "seed"),
    "parity": ("T", "L", "seed"),
    "modular": ("P", "K", "best", "neurons-per-frequency", "seed"),
    "addition": ("digits", "base", "heads", "layers", "lookahead", "seed"),
    "module": ("seed",),
    "figure": ("T", "L", "d", "p", "seed"),
    "inductive": (
        *("layers", "heads", "d", "positions", "length", "vocabulary", "modulus", "types", "max-count", "seed"),
    ),
    "bidirectional": ("length", "regions", "coordinates", "built-for", "on-regions", "seed"),
    "batch": ("workers",),
    "export": ("T", "L"),
}
READS = {
    "histogram": "--weights",
    "contextual": "--weights",
    "count01": "--weights",
    "circuit": "",
    "language": "--length 3 --dfa",
    "check": "",
    "heads": "--law d-test",
    "kernel": "",
    "module": "",
    "modular": "--P 5 --weights",
    "addition": "--digits 2 --weights",
    "parity": "--weights",
    "inductive": "--task modular --model rnn --weights",
    "bidirectional": "--weights",
    "batch": "",
    "figure": "tape --input 01 --out {folder}/f.svg",
}
WRITES = {
    "histogram": "--model dot --T 4 --L 3 --save",
    "contextual": "--length 8 --regions 2 --save",
    "count01": "--length 2 --save",
    "parity": "--T 3 --L 3 --save",
    "modular": "--P 5 --save",
    "addition": "--digits 2 --base 2 --save",
    "circuit": "{bench} --save",
    "language": "0*1 --length 4 --save",
    "figure": "margin --model dot --T 4 --L 3 --out",
    "inductive": "--task modular --model rnn --save",
    "bidirectional": "--length 8 --regions 2 --save",
    "export": "",
}
PLACES = ("fifo", "/dev/zero", "folder", "large", "nothing", LONG, "", "a\nb", "socket")


def calls():
    """(name, arguments, what the line must name): about 700 of them."""
    for command, names in INTEGERS.items():
        for name in names:
            for value in ("-1", "x", "1.5", "", NINES):
                if not (name == "seed" and value == "x" and command == "frontier"):
                    yield (
                        f"{command} --{name} {value[:8] or 'nothing'}",
                        (command, *without(command, name), f"--{name}={value}"),
                        name,
                    )
            twice = (command, *PLAIN[command].split(), f"--{name}", "3", f"--{name}", "3")
            yield f"{command} --{name} twice", twice, f"--{name}"
    for command, options in READS.items():
        for place in PLACES:
            named = "''" if place == "" else "{" + place + "}"
            yield f"{command} reads {place[:10] or 'nothing'}", (command, *options.split(), "{" + place + "}"), named
    for command, options in WRITES.items():
        places = (LONG, "", "nowhere/x") if command in ("circuit", "language") else ("fifo", "/dev/full", LONG, "")
        for place in places:
            arguments = (command, *options.split(), "{" + place + "}")
            named = options.split()[-1].strip("-") if options else "{" + place + "}" if place else "''"
            yield f"{command} writes {place[:10] or 'nothing'}", arguments, named
    for command in commands():
        yield f"{command} --unknown", (command, "--unknown"), ""
        yield f"{command} stray", (command, *PLAIN.get(command, "").split(), "stray", "stray"), "stray"
        yield f"{command} {LONG[:5]}", (command, "--" + LONG), ""
    for number, line in enumerate(SINGLE.strip().splitlines()):
        yield f"{number} {line[:40]}", tuple(line.split()), ""


def without(command, name):
    """The plain arguments less one option."""
    words = PLAIN[command].split()
    if f"--{name}" in words:
        i = words.index(f"--{name}")
        del words[i : i + 2]
    return words


SINGLE = """
histogram
histogram --model dot
histogram --model nothing --T 4 --L 3
histogram --model dot --T 1000000000 --L 3
histogram --model dot --T 4 --L 1000000000
histogram --model dot --T 4 --L 3 --d 1000000000000
histogram --model dot --T 4 --L 3 --p 1000000000000
histogram --model dot --T 4 --L 3 --budget nan
histogram --model dot --T 4 --L 3 --budget -1
histogram --model dot --T 4 --L 3 --budget x
histogram --model dot --T 4 --L 3 --precision p1
histogram --model dot --T 4 --L 3 --precision p54
histogram --model dot --T 4 --L 3 --precision s0
histogram --model dot --T 4 --L 3 --precision s99
histogram --model dot --T 4 --L 3 --precision p{nines}
histogram --model dot --T 4 --L 3 --precision s{nines}
histogram --model dot --T 4 --L 3 --precision float31
histogram --model dot --T 4 --L 3 --accumulate float32
histogram --model dot --T 4 --L 3 --method guess
histogram --model dot --T 32 --L 10 --method exhaustive
histogram --model dot --T 32 --L 3000 --method exhaustive
histogram --model lin --T 4 --L 3 --p 1
histogram --model lin --T 4 --L 3 --construction relation
histogram --model dot --T 4 --L 3 --construction sphere
histogram --model bos+sftm --T 9 --L 3 --d 1
histogram --weights {weights} --T 4
histogram --weights {weights} --L 0 --model dot
histogram --weights {sparse}
histogram --weights {meta}
histogram --weights {complex}
histogram --weights {integers} --model dot
histogram --weights {expanded} --model dot
histogram --weights {no_dict}
histogram --weights {objects}
histogram --weights {cut}
histogram --weights {words}
histogram --weights {empty_file}
histogram --weights {long_key} --model dot
contextual --weights {sparse}
contextual --weights {meta}
contextual --weights {empty_file}
contextual --weights {weights}
count01 --weights {sparse}
count01 --weights {meta}
count01 --weights {expanded}
count01 --weights {weights}
heads {sparse} --law d-test
heads {meta} --law d-test
heads {weights} --law nothing
heads {weights} --law box:0:{nines}:3
check {empty_folder}
check {cut}
contextual --length 100000000 --regions 4
contextual --length 8 --regions 2 --input (
contextual --input {nines}
contextual --impossible 9.9
contextual --length 8 --regions 2 --precision float31
count01 --construction documents --N 0
count01 --construction documents --N 501
count01 --construction documents --N 10 --eps nan
count01 --construction documents --N 10 --input 0123=
count01 --construction documents --N 10 --precision q
circuit {bench} --bits 0
circuit {bench} --bits 13
circuit {bench} --precision p1
circuit {bench} --precision s{nines}
circuit {bench} --input 012
circuit {bench} --method guess
circuit {bench} --weights {weights}
circuit {bench} --weights {sparse}
circuit {bench} --weights {meta}
circuit {bench} --as-printed
circuit {empty_file}
circuit {objects}
language
language 0*1
language 0*1 --length 1000000000
language 0*1 --length 4 --majority
language --majority --length 1000000000
language ( --length 4
language 0{999999999} --length 4
language 0{{nines}} --length 4
language (0|1)*1(0|1){20} --length 4
language ((0{100}){100}){100} --length 4
language (0|1){300}&(0|1){300}&(0|1){300} --length 4
language (0*1){50}^(1*0){50}^(01){50} --length 4
language 0*1 --length 4 --alphabet 00
language 0*1 --length 4 --alphabet {long}
language --dfa {bench} --length 4
language --dfa {objects} --length 4
figure
figure nothing
figure margin --model dot --T 4 --L 3 --out f.tex
figure margin --model dot --T 4 --L 3 --out {folder}
figure attention --model dot --T 4 --input 0,9,1 --out {folder}/f.svg
figure attention --model dot --T 4 --input 0,,1 --out {folder}/f.svg
figure attention --model dot --T 4 --input {nines} --out {folder}/f.svg
figure activation --model dot --T 4 --L 3 --neuron 99 --out {folder}/f.svg
figure activation --model dot --T 4 --L 3 --neuron {nines} --out {folder}/f.svg
figure phase --T 0 --out {folder}/f.svg
figure phase --T 1000000 --out {folder}/f.svg
figure contextual --input ( --out {folder}/f.svg
figure contextual --input [1] --regions 1000000000 --out {folder}/f.svg
figure tape {bench} --input 2 --out {folder}/f.svg
bounds
bounds --T 8
bounds --T 8 --L 3 --N 4
bounds --T 1:1000000:1 --L 3
bounds --T 8:2 --L 3
bounds --T 8 --L 1:2:3:4
bounds --T {nines} --L 3
bounds --T 8 --L 3 --format pdf
precision
precision histogram --T 4 --L 3
precision histogram --T 4 --L 3 --model dot --sweep d=
precision histogram --T 4 --L 3 --model dot --sweep L=1:3
precision histogram --T 4 --L 3 --model dot --bits 1:60
precision histogram --T 4 --L 3 --model dot --budget nan
precision histogram --T 4 --L 3 --model dot --table
precision histogram --T 4 --L 3 --model dot --format csv --json
precision other --T 4 --L 3
frontier
frontier other --T 4 --L 3
frontier histogram --T 4 --L 3 --model nothing
frontier histogram --T 1000000000 --L 3
frontier histogram --T 4 --L 3 --steps 0
frontier histogram --T 3 --L 2 --save {bench}
claims --format pdf
claims NOTHING-1
parity --T 1000000000000 --L 3
parity --T 3 --L 3 --weights {weights}
parity --weights {weights}
parity --T 3 --L 3 --accumulate float32
parity --T 3 --L 3 --budget nan
modular --P 1
modular --P 1000000000000
modular --P 5 --frequencies 1,x
modular --P 5 --frequencies 1,1
modular --P 5 --frequencies 9 --construction clock
modular --P 5 --construction clock --K 99
modular --P 6 --construction pizza
modular --P 5 --no-mlp
modular --P 5 --impossible 9
modular --P 5 --precision s4
modular --P 5 --precision float31
modular --P 5 --weights {weights}
modular --P 5 --weights {sparse}
modular --P 5 --budget nan
modular --P 113 --best 1000000
addition --digits 1000000000
addition --digits 2 --base 1000000000
addition --digits 2 --lookahead -1
addition --digits 2 --lookahead 9 --heads 2
addition --digits 2 --input 12+3=
addition --digits 2 --input x
addition --digits 2 --input {nines}
addition --digits 2 --precision s4
addition --digits 2 --precision p99
addition --digits 2 --weights {weights}
addition --digits 2 --weights {meta}
addition --digits 2 --budget x
module {objects}
module {cut}
module {task} --weights {weights}
module {task} --weights {sparse}
module {task} --device tpu
module {task} --precision float31
module {task} --budget nan
module {task} --save /dev/full
kernel {empty_folder}
kernel {weights}
kernel {folder} --out {folder}
kernel {folder} --run --out {nines}
heads
heads {weights}
heads {weights} --law d-test --construction uniform
heads --construction uniform --law d-test --subset 0,9
heads --construction uniform --law d-test --subset x
heads --construction uniform --law d-test --extract 7
heads --construction uniform --law box:3:1:1
heads --construction uniform --law box:0:1
heads --ratios 1,2 --law d-test
heads --values 1,2,3 --law d-test
heads --ratios 1,x --values 1,2,3 --law d-test
heads --ratios 1,0 --values 1,2,3 --law d-test
heads --construction uniform --law unbounded --svc
contextual --length 8 --regions 2 --precision s4
contextual --length 8 --regions 2 --precision float32 --accumulate float32
count01 --precision s4 --accumulate float32
count01 --method exhaustive --strings 99
parity --T 3 --L 3 --precision float31
check {nines}
nothing
--nothing
"""


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    """Files and other things that the calls name."""
    here = tmp_path_factory.mktemp("hunt")
    found = {name: here / name for name in ("fifo", "folder", "empty_folder", "large", "socket")}
    os.mkfifo(found["fifo"])
    found["folder"].mkdir()
    found["empty_folder"].mkdir()
    with found["large"].open("wb") as file:
        file.truncate(3 << 30)  # sparse on disk
    os.mknod(found["socket"], 0o140600)
    texts = {
        "bench": ("c.bench", BENCH),
        "objects": ("o.pt", "[1]"),
        "cut": ("cut.pt", "PK\x03\x04"),
        "words": ("words.pt", "raise SystemExit(5)\n"),
        "empty_file": ("e.pt", ""),
        "task": ("task.py", TASK),
    }
    for name, (file_name, text) in texts.items():
        found[name] = here / file_name
        found[name].write_text(text)
    weights = relation_counting.dot(T=4, L=3).state_dict()
    found["weights"] = here / "w.safetensors"
    save_file(dict(weights), found["weights"])
    odd = {
        "sparse": weights | {"E": weights["E"].to_sparse()},
        "meta": weights | {"E": weights["E"].to("meta")},
        "complex": weights | {"E": weights["E"].to(torch.complex64)},
        "integers": weights | {"E": weights["E"].to(torch.int64)},
        "expanded": weights | {"E": torch.zeros(1).expand(10**6, 10**6)},
        "long_key": weights | {"y" * 5000: weights["E"]},
        "no_dict": weights["E"],
    }
    for name, state in odd.items():
        found[name] = here / f"{name}.pt"
        torch.save(state, found[name])
    return {name: str(path) for name, path in found.items()} | {
        "nines": NINES,
        "long": LONG,
        "nothing": str(here / "no"),
    }


def filled(argument, places):
    """The argument with the names of places in it replaced."""
    if argument[:1] == "{" and argument[1:-1] not in places and argument[-1:] == "}":
        return argument[1:-1]
    for name, path in places.items():
        argument = argument.replace("{" + name + "}", path)
    return argument


@contextmanager
def limited():
    """An alarm after 10 s, and an address space 2 GiB larger than now."""

    def late(*_):
        raise AssertionError(f"more than {SECONDS} s")

    pages = int(Path("/proc/self/statm").read_text().split()[0]) if Path("/proc/self/statm").exists() else None
    before = resource.getrlimit(resource.RLIMIT_AS)
    if pages is not None:
        resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + GROWTH, before[1]))
    previous = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, 4 * SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
        resource.setrlimit(resource.RLIMIT_AS, before)


CALLS = [
    pytest.param(arguments, named, id=f"{number} {name}", marks=pytest.mark.deep if number % 5 else ())
    for number, (name, arguments, named) in enumerate(calls())
]


def check(code, out, err):
    assert code == 2, (code, out[-300:], err[-300:])
    assert err.count("\n") == 1 and len(err) < 1000 and "Traceback" not in err and "a bug of ours" not in err
    assert "not enough memory" not in err


@pytest.mark.parametrize(("arguments", "named"), CALLS)
def test_a_bad_call_is_one_line(arguments, named, places, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    argv = [filled(argument, places) for argument in arguments]
    started = os.times()
    with limited():
        code, out, err = run(capsys, *argv)
    ended = os.times()
    if argv[0] == "check" and out:
        assert code == 2 and out.count("\n") == 1 and out.startswith("UNREADABLE") and len(out) < 1000
    elif argv[0] == "batch" and out:  # a line for each file, and a summary
        assert code == 2 and "Traceback" not in out + err and Path(argv[1]).name in out.splitlines()[0]
    else:
        check(code, out, err)
        shown = Path(repr(filled(named, places))[1:-1]).name[:20] if named[:1] == "{" else named
        assert shown in err or shown in err.replace("_", "-"), (shown, err)
    assert ended.user + ended.system - started.user - started.system < SECONDS
    assert os.listdir(tmp_path) == []
