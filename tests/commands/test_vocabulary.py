"""One vocabulary: an option is called the same in all commands, and last release's spellings are understood."""

import json
from pathlib import Path

import pytest
from models.selection import every

from tests.command import run
from verify.commands.cli import build_parser, kinds_of
from verify.commands.vocabulary import OPTIONS, translated
from verify.frame import registry

XOR = "INPUT(a)\nINPUT(b)\nOUTPUT(y)\ny = XOR(a, b)\n"
HEADS = str(Path(__file__).parents[1] / "data/count01/a4_s0.safetensors")
SELECTIVE = str(Path(__file__).parents[1] / "data/recurrent_selective")


def parsers():
    """Every command's parser, and those of the kinds of figures, by what is typed."""
    parser = build_parser()
    for action in parser._subparsers._group_actions:
        for name, command in action.choices.items():
            yield name, command
            yield from ((f"{name} {kind.prog.split()[-1]}", kind) for kind in kinds_of(command))


PARSERS = list(parsers())


def groups_of(parser):
    return {
        word: made.title for made in parser._action_groups for a in made._group_actions for word in a.option_strings
    }


@pytest.mark.parametrize("name, parser", PARSERS, ids=[name for name, _ in PARSERS])
def test_an_option_that_commands_share_is_declared_once(name, parser):
    """What is declared elsewhere stands in another group of the help page."""
    titles = groups_of(parser)
    shared = {word: OPTIONS[word.removeprefix("--")].group for word in titles if word.removeprefix("--") in OPTIONS}
    assert {word: titles[word] for word in shared} == shared, name


@pytest.mark.parametrize("name, parser", PARSERS, ids=[name for name, _ in PARSERS])
def test_help_fits_eighty_columns(name, parser, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    text = parser.format_help()
    assert max(map(len, text.splitlines())) <= 80, name
    assert all(a.help for a in parser._actions), name


def test_the_words_of_the_last_release_are_all_renamed():
    old = {marker for command in registry.commands().values() for marker in getattr(command.module(), "RENAMED", {})}
    assert old >= {"--say", "--string", "--run", "--on-length", "--max-length", "--n-heads", "--output", "--figure"}
    typed = {(name.split()[0], word) for name, parser in PARSERS for a in parser._actions for word in a.option_strings}
    marked = {
        (name, marker)
        for name, command in registry.commands().items()
        for marker in getattr(command.module(), "RENAMED", {})
    }
    assert not typed & marked


OLD = [
    ("contextual --length 24 --regions 3 --on-length 9 --json",
     "contextual --built-for 24 --regions 3 --length 9 --json"),
    ("contextual --length 12 --regions 2 --string [1]0[11]", "contextual --length 12 --regions 2 --input [1]0[11]"),
    ("bidirectional --length 8 --regions 2 --on-length 7 --json",
     "bidirectional --built-for 8 --regions 2 --length 7 --json"),
    ("count01 --construction uniform --max-length 12 --json", "count01 --construction uniform --length 12 --json"),
    ("count01 --N 5 --say=011=", "count01 --N 5 --input=011="),
    (f"count01 --weights {HEADS} --heads 2,0 --max-digits 4 --max-noise 2 --json",
     f"count01 --weights {HEADS} --subset 2,0 --max-digits 4 --max-noise 2 --json"),
    ("addition --digits 2 --say 05+07=", "addition --digits 2 --input 05+07="),
    ("circuit xor.bench --run 10 --json", "circuit xor.bench --input 10 --json"),
    ("inductive --task vanilla --pe ape --n-heads 2", "inductive --task vanilla --pe ape --heads 2"),
    ("figure attention --model bos --T 4 --sequence 0,1 --output f.svg",
     "figure attention --model bos --T 4 --input 0,1 --out f.svg"),
    ("bounds --T 8 --L 4 --format json", "bounds --T 8 --L 4 --json"),
    ("claims A-4.1 --format=json", "claims A-4.1 --json"),
]  # fmt: skip


def without_times(out):
    try:
        found = json.loads(out)
    except ValueError:
        return out
    if isinstance(found, dict):
        found.pop("seconds", None)
    return found


@pytest.mark.parametrize(
    "before, now", every(3, OLD), ids=[before.split()[0] + str(i) for i, (before, _) in enumerate(OLD)]
)
def test_last_release_is_understood(before, now, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("xor.bench").write_text(XOR)
    (code, out, err), (old_code, old_out, told) = run(capsys, *now.split()), run(capsys, *before.split())
    assert (old_code, without_times(old_out)) == (code, without_times(out))
    notes = [line for line in told.splitlines() if "the old spelling goes with the next release" in line]
    assert bool(notes) == (code != 2) and all(line.startswith(f"verify {before.split()[0]}: --") for line in notes)
    assert "old spelling" not in err


def test_only_old_words_are_read_as_such():
    line = ["contextual", "--length", "24", "--input", "x --say y"]
    assert translated(line, {"--say": {"--say": "--input"}}) == (line, [])


def test_batch_passes_a_second_task_on(capsys):
    files = sorted(Path(SELECTIVE).glob("*.safetensors"))[:1] or pytest.fail("no file to judge")
    model = files[0].stem.split("_")[0]
    options = ("--types", "2", "--max-count", "2", "--length", "3", "--budget", "5")
    argv = ("batch", str(files[0]), "--task", "inductive", "--task", "selective", "--model", model, *options)
    code, out, err = run(capsys, *argv, "--json")
    line = json.loads(out)
    assert code in (0, 1, 3) and line["task"] == "inductive", (out, err)
    code, out, err = run(capsys, "batch", str(files[0]), "--task", "nothing")
    assert code == 2 and "must be one of histogram" in err and err.count("\n") == 1
