"""verify.certify and verify.assert_proved for every task's model."""

import shlex

import pytest
import torch
from command import run

from constructions.errors import BadInput
from tests.models.judged import MODELS, NAND
from verify import assert_proved, certify

OPTIONS = {"histogram": {}, "count01": {"max_length": 4}, "contextual": {"length": 5}, "circuit": {"circuit": NAND}}


def broken(task):
    module = MODELS[task]()
    with torch.no_grad():
        for weight in module.parameters():
            weight.zero_()
    return module


@pytest.mark.parametrize("task", OPTIONS)
def test_what_is_proved_is_returned(task):
    assert assert_proved(MODELS[task](), **OPTIONS[task]) and certify(MODELS[task](), **OPTIONS[task])


@pytest.mark.parametrize("task", OPTIONS)
def test_what_is_wrong_says_how_to_see_it(task, capsys):
    """The command in the message runs as it stands, and finds the model wrong."""
    with pytest.raises(AssertionError, match="^REFUTED") as failure:
        assert_proved(broken(task), **OPTIONS[task])
    first, counterexample, replay = str(failure.value).splitlines()
    assert "expected" in first and "predicted" in first and counterexample.startswith("counterexample: {")
    words = shlex.split(replay.removeprefix("replay: "))
    assert words[0] == "verify" and run(capsys, *words[1:])[0] == 1


def test_the_reading_is_in_the_command(capsys):
    with pytest.raises(AssertionError, match="--precision p2") as failure:
        assert_proved(MODELS["histogram"](), reading="p2", seed=3)
    words = shlex.split(str(failure.value).splitlines()[-1].removeprefix("replay: "))
    assert run(capsys, *words[1:])[0] == 1


def test_what_is_open_says_why():
    with pytest.raises(AssertionError, match="^UNKNOWN histogram: no failure among 9 sampled"):
        assert_proved(MODELS["histogram"](), method="sampled")


@pytest.mark.parametrize(
    "module, options, named",
    [
        ("x", {}, "module: is 'x'"),
        (torch.nn.Linear(2, 2), {}, "module: is of type Linear"),
        (None, {}, "module: is None"),
        (MODELS["histogram"](), {"L": "3"}, "L='3'"),
        (MODELS["histogram"](), {"budget": -1}, "budget=-1"),
        (MODELS["histogram"](), {"L": True}, "L=True"),
        (MODELS["histogram"](), {"length": 3}, "length=3"),
        (MODELS["histogram"](), {"reading": 3}, "reading=3"),
        (MODELS["histogram"](), {"method": "magic"}, "method='magic'"),
        (MODELS["count01"](), {"max_length": True}, "max_length=True"),
        (MODELS["circuit"](), {}, "circuit=None"),
    ],
)
def test_bad_calls(module, options, named):
    with pytest.raises(BadInput, match=f"^{named}") as refusal:
        certify(module, **options)
    assert "\n" not in str(refusal.value)
