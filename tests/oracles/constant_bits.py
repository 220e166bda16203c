"""Histogram and Count01 models in constant-bit arithmetic, one input after the other, in fractions."""

import math
from fractions import Fraction
from functools import cache
from itertools import product
from math import comb

import mpmath


class Machine:
    """Multiples of 2^-s up to 2^s - 2^-s: ties go to the smaller magnitude. None stands for no number."""

    def __init__(self, s):
        self.s, self.most = s, Fraction(4**s - 1, 2**s)
        self.exp = cache(self._exp)

    def near(self, x):
        steps = abs(x) * 2**self.s
        whole = math.ceil(steps - Fraction(1, 2))
        return (-1 if x < 0 else 1) * min(Fraction(whole, 2**self.s), self.most)

    def _exp(self, x):
        with mpmath.workprec(400):
            y = mpmath.exp(mpmath.mpf(x.numerator) / x.denominator)
            return self.near(Fraction(int(mpmath.floor(y * 2**100)), 2**100))

    def dot(self, x, y):
        total = Fraction(0)
        for a, b in zip(x, y, strict=True):
            total = self.near(total + self.near(a * b))
        return total

    def times(self, x, W):
        return [self.dot(x, column) for column in zip(*W, strict=True)]

    def plus(self, x, y):
        return [self.near(a + b) for a, b in zip(x, y, strict=True)]

    def softmax(self, scores):
        powers, total = [self.exp(x) for x in scores], Fraction(0)
        for x in powers:
            total = self.near(total + x)
        return [self.near(x / total) for x in powers] if total else None


def stored(at, tensor, *shape):
    """A tensor's numbers, rounded once, as nested lists."""
    numbers = [at.near(Fraction(x)) for x in tensor[2]]
    for n in shape[:0:-1]:
        numbers = [numbers[i : i + n] for i in range(0, len(numbers), n)]
    return numbers


def histogram_logits(at, tensors, about, tokens, position):
    L, d = about["L"], about["d"]
    E, W_1, W_2 = (stored(at, tensors[name], *tensors[name][1]) for name in ("E", "W_1", "W_2"))
    context = [E[t] for t in tokens]
    if "e_BOS" in tensors:
        context = [stored(at, tensors["e_BOS"], d), *context]
    own = E[tokens[position]]
    if "A" in tensors:
        mixing = stored(at, tensors["A"], L, L)[position]
    else:
        Q, K = (stored(at, tensors[name], d, d) for name in ("W_Q", "W_K"))
        root = at.near(Fraction(math.sqrt(d)))
        q = at.times(own, Q)
        mixing = [at.near(at.dot(q, at.times(x, K)) / root) for x in context]
    mixing = at.softmax(mixing) if about["model"].endswith("+sftm") else mixing
    if mixing is None:
        return None
    x = at.plus(own, at.times(mixing, context))
    hidden = [max(y, Fraction(0)) for y in at.plus(at.times(x, W_1), stored(at, tensors["b_1"], len(W_1[0])))]
    return at.plus(at.times(hidden, W_2), stored(at, tensors["b_2"], len(W_2[0])))


def prompt_logits(at, tensors, tokens):
    heads, d, d_h = tensors["W_Q"][1]
    E, b_out = stored(at, tensors["E"], 8, d), [at.near(Fraction(x)) for x in tensors["b_out"][2]]
    W_out = stored(at, tensors["W_out"], d, len(b_out))
    read = []
    for h in range(heads):
        Q, K, V = (stored(at, tensors[name], heads, d, d_h)[h] for name in ("W_Q", "W_K", "W_V"))
        q, keys, values = at.times(E[tokens[-1]], Q), *([at.times(E[t], W) for t in tokens] for W in (K, V))
        shares = at.softmax([at.dot(q, k) for k in keys])
        if shares is None:
            return None
        read.append(at.times(shares, values))
    O = stored(at, tensors["W_O"], heads, d_h, d)
    pairs = [(h, e) for e in range(d_h) for h in range(heads)]
    written = at.times([read[h][e] for h, e in pairs], [O[h][e] for h, e in pairs])
    stream = at.plus(E[tokens[-1]], written) if tensors["skip"][2][0] else written
    return at.plus(at.times(stream, W_out), b_out)


def gap(logits, right):
    """(right logit) - (largest other); None where they are no numbers."""
    return None if logits is None else min((logits[right] - x for j, x in enumerate(logits) if j != right), default=9)


def histogram(tensors, about, c, say):
    p, T, L, first = c["parameters"], about["T"], about["L"], about["first_count"]
    at = Machine(int(p["precision"][1:]))
    say({k: p[k] for k in ("model", "T", "L", "d", "p")} == {k: about[k] for k in ("model", "T", "L", "d", "p")}, "p")

    def answer(tokens, position):
        logits = histogram_logits(at, tensors, about, tokens, position)
        return logits, gap(logits, tokens.count(tokens[position]) - first)

    case = c["counterexample"]
    if c["verdict"] == "REFUTED":
        tokens = case["tokens"]
        say(len(tokens) == L and max(tokens) < T, "the input")
        logits, found = answer(tokens, case["position"])
        say(found is None or found <= 0, "the input is right")
        say(c["margin"] == (None if found is None else float(found)), "margin")
        say(case["expected"] == tokens.count(tokens[case["position"]]) and c["inputs_covered"] == "1", "case")
        if logits is not None:
            best = [k + first for k, x in enumerate(logits) if x == max(logits)]
            say(case["predicted"] in best and case["module_predicts"] == best[0], "predicted")
            say(case["predicted"] != case["expected"] and case["is_tie"] == (len(best) > 1), "tie")
        return
    gaps = [answer(list(x), i)[1] for x in product(range(T), repeat=L) for i in range(L)]
    say(None not in gaps and min(gaps) > 0, "some input is wrong")
    say(c["margin"] is None or c["margin"] <= min(gaps), "margin")
    say(c["inputs_covered"] == c["counts"]["right"] == str(T**L) and c["counts"]["wrong"] == "0", "counts")
    say(c["wrong_pairs"] == "0" and c["error_share"] == [0.0, 0.0], "shares")


def count01(tensors, about, c, say):
    p = c["parameters"]
    at, names = Machine(int(p["precision"][1:])), ("BOS", "0", "1", "2", "=", "4", "5", "EOS")
    lo, m, total = p.get("min_digits", 0), p.get("min_noise", 0), p["max_length"]
    tops = [p[name] if p[name] is not None else total for name in ("max_digits", "max_noise")]
    lasts = (4,) if p.get("semantic_only") else (4, 5, 6)

    def due(n, last):
        is_more = n[1] > n[0] if p["labels"] == "majority-ones" else n[0] >= n[1]
        return 7 if last != 4 else 5 if is_more else 6

    def is_in(n):
        fits = lo <= min(n[:2]) and m <= n[2] and (total is None or sum(n) <= total)
        return fits and (tops[0] is None or max(n[:2]) <= tops[0]) and (tops[1] is None or n[2] <= tops[1])

    case = c["counterexample"]
    if case is not None:
        n, last = (case["n0"], case["n1"], case["n2"]), names.index(case["last"])
        tokens = [names.index(t) for t in case["tokens"]]
        say(is_in(n) and last in lasts and tuple(tokens[1 : sum(n) + 1].count(i) for i in (1, 2, 3)) == n, "the input")
        logits = prompt_logits(at, tensors, tokens)
        found = gap(logits, due(n, last))
        say(found is None or found <= 0, "the input is right")
        say(c["margin"] == (None if found is None else float(found)), "margin")
        say(case["expected"] == names[due(n, last)] and case["input"] == [*n, case["last"]], "case")
        say(c["inputs_covered"] == "1" and tokens[0] == 0 and tokens[sum(n) + 1] == 4, "case")
        return
    say(None not in tops, "no end")
    inside = [n for n in product(range(tops[0] + 1), range(tops[0] + 1), range(tops[1] + 1)) if is_in(n)]
    say(c["inputs_covered"] == str(sum(comb(sum(n), n[2]) * comb(n[0] + n[1], n[0]) for n in inside)), "inputs")
    for n in inside:
        if sum(n) <= 4:
            for word in product((1, 2, 3), repeat=sum(n)):
                if tuple(word.count(i) for i in (1, 2, 3)) == n:
                    for last in lasts:
                        found = gap(prompt_logits(at, tensors, [0, *word, 4, *[last] * (last > 4)]), due(n, last))
                        say(found is not None and found > 0 and found >= c["margin"], f"{word} is wrong")
