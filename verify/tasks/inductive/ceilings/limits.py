"""C-I4 to C-I6: how long BOS, p neurons, and p bits last."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from itertools import combinations
from random import Random

import torch

from bounds.inductive_limits import first_equal_reciprocals, longest_with_changes, longest_with_neurons
from bounds.rounded_lines import first_wrong, largest_right
from constructions.decoder import Decoder
from constructions.decoder_model import Block
from constructions.errors import BadInput, NotKnown
from verify.arithmetic.formats import FORMATS, KERNELS
from verify.frame.impossibility import Impossibility, seeds
from verify.tasks.inductive.ceilings.fading import fading
from verify.tasks.inductive.ceilings.random_models import MODELS, random_decoder
from verify.tasks.inductive.ceilings.sawtooth import Scalar, build

MODULI, NEURONS = range(2, 11), range(19)
LENGTHS = 400  # up to which bounds are compared with runs
SCALARS = 400  # random networks


def bos_fades(seed: int = 0) -> Impossibility:
    """C-I4: with BOS, the answer on a^n is the same from a length on, unless two logits tie in the limit.

    Claim: C-I4 (ours; the qualitative form is Hahn's).
    """
    beyond, settled, late = 0.0, 0, 0
    for own in seeds(seed, MODELS):
        model = random_decoder(own, pe=("nope", "rope")[own % 2], bos=True, vocabulary=1, std=0.25)
        found = fading(model)
        with torch.no_grad():
            logits = model(torch.zeros(LENGTHS, dtype=torch.long))
        limit = torch.tensor([float(value) for value in found.logits], dtype=torch.float64)
        best = int(limit.argmax())
        n = torch.arange(1, LENGTHS + 1, dtype=torch.float64)[:, None]
        reach = torch.tensor([float(value) for value in found.reach], dtype=torch.float64)
        moved = ((logits[:, best : best + 1] - logits) - (limit[best] - limit)).abs()
        beyond = max(beyond, float((moved - reach * (1 + n.log()) ** found.power / n).max()))
        if found.settled is not None and found.settled <= LENGTHS:
            settled += 1
            late += int((logits.argmax(-1)[found.settled - 1 :] != found.answer).any())
    return Impossibility(
        "C-I4",
        "with BOS and NoPE or RoPE, at any depth and in real arithmetic, a decoder whose logits have one largest on a "
        "alone gives a^n one answer from a length on: it counts modulo m up to a length that its weights bound, and "
        "no decoder does at all lengths with margins above a fixed delta",
        (
            "without BOS all streams are that of a alone (C-I1); let x be it, layer by layer",
            "scores are bounded, so BOS has a share of at most e^D / n, and each a one of at most e^S / n",
            "if the streams at positions i are within A (1 + ln i)^(k - 1) / i of x, attention's output at n is "
            "within C (1 + ln n)^k / n of that on a alone; LayerNorm at x has slope 2 gamma / sigma, the MLP the "
            "product of its norms",
            "so the logits at n are within C (1 + ln n)^(L - 1) / n of those of a alone: once that is below the gap, "
            "the answer stands, and one of the next two lengths is wrong for every m >= 2",
            "with margins above delta the differences change sign by more than delta for ever, and the same bound "
            "stops them",
        ),
        {"length": "settled, or settled + 1; see verify.tasks.inductive.ceilings.fading"},
        {
            "random models": MODELS,
            "largest excess over the bound, n up to 400": beyond,
            "settled by 400": settled,
            "of them answering otherwise later": late,
        },
        beyond <= 1e-9 and settled > 0 and late == 0,
    )


def stored_bos_fades(model: Decoder, m: int) -> Impossibility:
    """C-I4 for one stored decoder: a length at which it counts modulo m wrong at the latest.

    Claim: C-I4 (ours).
    Raises: BadInput for a decoder that the argument does not speak of, or of other classes; NotKnown where the bound
        shows no length.
    """
    if model.W_U.shape[1] != m:
        raise BadInput(f"modulus={m}: the decoder has {model.W_U.shape[1]} classes; name the modulus it was made for")
    found = fading(model)
    failing = found.failing_length(m)
    room = LENGTHS if model.pe == "nope" else min(LENGTHS, model.positions - 1)
    with torch.no_grad():
        answers = model(torch.zeros(room, dtype=torch.long)).argmax(-1)
    wrong = torch.nonzero(answers != torch.arange(room) % m).flatten().tolist()
    if failing is None:
        said = f"in a run it is wrong at length {wrong[0] + 1}" if wrong else f"a run is right up to length {room}"
        raise NotKnown(f"C-I4 bounds no length up to 10^30 for these weights, as each layer's bound pays e^S; {said}")
    later = answers[found.settled - 1 :] if found.settled is not None else answers[room:]
    changed = int((later != found.answer).sum()) if found.answer is not None else 0
    is_missed = failing <= room and not wrong
    return Impossibility(
        "C-I4",
        f"the stored decoder gives a^n one answer from a length on: wrong modulo {m} at length {failing} at the latest",
        (
            "its logits on BOS a^n are within C (1 + ln n)^(L - 1) / n of those of a alone; see docs",
            "where one of these is the largest alone, the answer is the same once the bound is below the gap",
        ),
        {"settled at": found.settled, "length": failing},
        {
            "answer from then on": None if found.answer is None else found.answer + 1,
            f"first wrong length of a run up to {room}": wrong[0] + 1 if wrong else None,
            "answers otherwise later, in the run": changed,
        },
        not changed and not is_missed,
    )


def few_neurons(seed: int = 0) -> Impossibility:
    """C-I5: p ReLU neurons on one monotone scalar count modulo m up to N(m, p + 1) and no further.

    Claim: C-I5 (ours).
    """
    times = [Fraction(n) for n in range(1, longest_with_neurons(MODULI[-1], NEURONS[-1]) + 3)]
    reached = {(m, p): build(m, p).right_up_to(m, times) for m in MODULI for p in NEURONS}
    exact = sum(found == longest_with_neurons(m, p) for (m, p), found in reached.items())
    counted = all(
        longest_by_counting(m, changes) == longest_with_changes(m, changes) for m in MODULI for changes in range(1, 21)
    )
    excess = max(_excess(network, m, times) for m, network in _random_networks(seed))
    return Impossibility(
        "C-I5",
        "p ReLU neurons that read one monotone scalar, with a linear readout and no LayerNorm between, count modulo m "
        "up to N(m, p + 1) and no further: N(m, s) = m (s + 1)/2 for odd s, m s/2 + 1 for even s",
        (
            "each logit is affine in the scalar but for p kinks, common to all; so is each difference of two",
            "on each of the p + 1 pieces a difference changes its sign at most once, so p + 1 times in all",
            "two classes are right by turns; with u and v turns up to N their difference changes sign u + v - 1 times",
            "of N = q m + r lengths the two most frequent classes have 2q (r = 0), 2q + 1 (r = 1) or 2q + 2 turns: "
            "2q <= p + 2 and so on give N(m, p + 1)",
            "reached: a sawtooth of two neurons a tooth, read by the lines r j - j^2/2",
        ),
        {"modulo 10, neurons: length": {p: longest_with_neurons(10, p) for p in (0, 8, 18, 198)}},
        {
            "sizes (m = 2..10, p = 0..18)": len(reached),
            "reached exactly": exact,
            "N(m, s) equals the count of turns, s up to 20": counted,
            "random networks": SCALARS,
            "largest length less N(m, p + 1) of them": excess,
            "not covered": "a LayerNorm before the MLP with biases bends the scalar; GELU has no pieces",
        },
        exact == len(reached) and counted and excess <= 0,
    )


def longest_by_counting(m: int, changes: int) -> int:
    """The largest N such that no two classes take more than changes + 1 turns in 1..N, by adding lengths one by one.

    >>> longest_by_counting(3, 2), longest_by_counting(3, 3)
    (4, 6)
    """
    turns, N = [0] * m, 0
    while True:
        turns[N % m] += 1
        if max(a + b for a, b in combinations(turns, 2)) - 1 > changes:
            return N
        N += 1


def _random_networks(seed: int) -> Iterator[tuple[int, Scalar]]:
    """Moduli with networks of up to 6 neurons: sawteeth with noise, and networks of noise alone."""
    for own in seeds(seed, SCALARS):
        random = Random(own)
        m, p = random.randint(2, 4), random.randint(0, 6)
        built, size = build(m, p), random.choice((0, 1, 8))

        def noisy(value: Fraction, size: int = size, random: Random = random) -> Fraction:
            return value + Fraction(random.randint(-size, size), 16)

        yield (
            m,
            Scalar(
                tuple(map(noisy, built.kinks)),
                tuple(tuple(map(noisy, row)) for row in built.out),
                tuple(map(noisy, built.slope)),
                tuple(map(noisy, built.offset)),
            ),
        )


def _excess(network: Scalar, m: int, times: list[Fraction]) -> int:
    return network.right_up_to(m, times) - longest_with_neurons(m, len(network.kinks))


def few_bits(seed: int = 0) -> Impossibility:
    """C-I6: the share of BOS, rounded to p bits, is the same at two lengths in a row.

    Claim: C-I6 (ours).
    """
    first = {name: first_equal_reciprocals(fmt.p) for name, fmt in FORMATS.items()}
    agree = {name: _first_equal_by_running(name) for name in ("bfloat16", "float16", "float32")}
    head = {name: _lengths_that_agree(name) for name in ("bfloat16", "float16")}
    expected = {name: first[name] - 1 for name in head}
    words = {
        f"{name}, lines through {'M/2' if is_centred else 0}": (
            largest_right(FORMATS[name].p, is_centred=is_centred),
            first_wrong(FORMATS[name].p, is_centred=is_centred),
        )
        for name in agree
        for is_centred in (False, True)
    }
    return Impossibility(
        "C-I6",
        "what is computed from the share of BOS under uniform attention, 1/(n + 1) rounded to p bits, is the same at "
        "two lengths in a row: 1/190 and 1/191 in bfloat16, 1/1464 and 1/1465 in float16, 1/11864338 and the next in "
        "float32",
        (
            "a head with equal scores gives BOS the share 1/(n + 1), and rounding to nearest returns the nearest "
            "number with p bits",
            "in the binade below 2^-e these are 2^-(e + p) apart, and two reciprocals 1/(n (n + 1)): once the first "
            "exceeds the second, two of them meet, near n = 2^(p - 1/2)",
            "equal shares give equal streams where the value of a is 0, hence equal logits, and one of the two "
            "lengths is wrong",
            "in floats a model could read the rounding of other sums; this is about the share",
        ),
        {
            "first n with 1/n = 1/(n + 1)": first,
            "number words of C-T1 without LayerNorm: right up to M in any order, a tie from M where each operation is "
            "rounded": words,
        },
        {
            "found by running, first such n": agree,
            "a head of the reference decoder, lengths with the same logits": head,
        },
        all(first[name] == found for name, found in agree.items()) and head == expected,
    )


def _first_equal_by_running(name: str) -> int | None:
    """The first n with equal rounded reciprocals, by torch's own division, in blocks."""
    dtype, block = KERNELS[name], 1 << 20
    for start in range(1, 1 << 24, block):
        n = torch.arange(start, start + block + 1, dtype=torch.float64)
        rounded = (1 / n).to(dtype)  # no midpoint is within 2^-49 of 1/n: rounding twice is rounding once
        equal = torch.nonzero(rounded[1:] == rounded[:-1])
        if len(equal):
            return start + int(equal[0])
    return None


def _lengths_that_agree(name: str) -> int | None:
    """The first length n at which a uniform head that reads BOS's share gives the logits of length n + 1."""
    model = Decoder(
        vocabulary=1, d=1, d_mlp=0, pe="nope", bos=True, layernorm=False, attention_bias=False, classes=2,
        dtype=KERNELS[name],
    )  # fmt: skip
    with torch.no_grad():
        model.W_E.copy_(torch.tensor([[0.0], [1.0]]))
        block = model.blocks[0]
        assert isinstance(block, Block)
        for W in (block.attention.W_V, block.attention.W_O, model.W_U[:, 1:]):
            W.fill_(1.0)
        logits = model(torch.zeros(first_equal_reciprocals(FORMATS[name].p) + 2, dtype=torch.long))[:, 1]
    equal = torch.nonzero(logits[1:] == logits[:-1])
    return 1 + int(equal[0]) if len(equal) else None
