"""Kept certificates: read back for the same weights, never for others; the fixture fails in readable lines."""

from importlib.metadata import entry_points

import pytest
import torch

from constructions import parity, relation_counting
from verify import certify
from verify.frame.kept import keep, key

pytest_plugins = ["pytester"]


@pytest.fixture
def model():
    return relation_counting.bos(T=3, L=2)


def decided(folder, module, **options):
    return keep(folder, module, options, lambda: certify(module, **options))


def test_the_second_time_it_is_read_and_says_the_same(tmp_path, model):
    first, again = decided(tmp_path, model), decided(tmp_path, relation_counting.bos(T=3, L=2))
    assert (first[1], again[1]) == (False, True) and first[0] == again[0] and first[0]
    wrong = relation_counting.bos(T=3, L=2, as_printed=True)
    assert [decided(tmp_path, wrong)[1] for _ in range(2)] == [False, True]
    assert not decided(tmp_path, wrong)[0]


def test_whatever_changes_the_verdict_changes_the_key(model):
    keys = [
        key(model, {}),
        key(model, {"reading": "bfloat16"}),
        key(model, {"L": 2}),
        key(relation_counting.dot(T=3, L=2), {}),
    ]
    keys.append(key(relation_counting.bos(T=3, L=3), {}))
    keys.append(key(relation_counting.bos(T=3, L=2, dtype=torch.float64), {}))
    with torch.no_grad():
        model.W_1[0, 0] += 1
    keys.append(key(model, {}))
    with torch.no_grad():
        model.W_1[0, 0] -= 1
    model.L = 5  # of dot and bos, read from no weight
    keys.append(key(model, {}))
    assert None not in keys and len(set(keys)) == len(keys)


def test_what_is_not_plainly_ours_is_computed_each_time(tmp_path, model):
    class Other(type(model)):
        def forward(self, tokens):
            return -super().forward(tokens)

    assert key(model, {"method": "exhaustive"}) is None
    decided(tmp_path, model)
    handle = model.register_forward_hook(lambda module, args, output: -output)
    assert key(model, {}) is None
    handle.remove()
    assert key(model, {}) is not None
    model.__class__ = Other
    assert key(model, {}) is None
    assert key(torch.nn.Linear(2, 2), {"inputs": object()}) is None


def test_unknown_is_not_kept_and_a_damaged_file_is_computed_again(tmp_path, model):
    assert [decided(tmp_path, model, reading="p3")[1] for _ in range(2)] == [False, False]
    assert list(tmp_path.iterdir()) == []
    decided(tmp_path, model)
    (kept,) = tmp_path.iterdir()
    kept.write_text(kept.read_text()[:-9])
    assert [decided(tmp_path, model)[1] for _ in range(2)] == [False, True]


def test_other_rooms_have_keys_too():
    found = [key(parity.sawtooth(T=2, L=L), {}) for L in (3, 4)]
    assert None not in found and found[0] != found[1]


def test_the_fixture_in_another_projects_tests(pytester):
    pytester.makepyfile(
        """
        from constructions import relation_counting

        def test_right(assert_proved):
            assert assert_proved(relation_counting.bos(T=3, L=2)).claim is None

        def test_wrong(assert_proved):
            assert_proved(relation_counting.bos(T=3, L=2, as_printed=True))
        """
    )
    is_installed = any(entry.name == "weightproof" for entry in entry_points(group="pytest11"))
    arguments = (*(() if is_installed else ("-p", "verify.python.pytest_plugin")), "--junitxml=junit.xml")
    first = pytester.runpytest_inprocess(*arguments)
    first.assert_outcomes(passed=1, failed=1)
    first.stdout.fnmatch_lines(["*REFUTED histogram: input *, expected *, predicted *", "replay: verify histogram *"])
    first.stdout.no_fnmatch_line("*pytest_plugin.py:*")
    first.stdout.fnmatch_lines(["weightproof: 2 certificates computed, 0 read that still hold"])
    assert 'name="weightproof.verdict" value="PROVED"' in (pytester.path / "junit.xml").read_text()
    again = pytester.runpytest_inprocess(*arguments)
    again.assert_outcomes(passed=1, failed=1)
    again.stdout.fnmatch_lines(["weightproof: 0 certificates computed, 2 read that still hold"])
    fresh = pytester.runpytest_inprocess(*arguments, "--weightproof-fresh")
    fresh.stdout.fnmatch_lines(["weightproof: 2 certificates computed, 0 read that still hold"])
