"""Heads of Count01 models by brute force: numpy far from ties, python-flint near them, nothing of the verifier.

Every quantity is computed from the tensors of the file, triple by triple, as the documents define it.
"""

from itertools import product

import numpy as np
from flint import arb, ctx
from safetensors.numpy import load_file

BOS, ZERO, ONE, TWO, EQUALS, FOUR, FIVE, EOS = range(8)
FAR = 1e-7  # relative to the largest logit part: float64 sums of a few hundred terms are far better


class Oracle:
    """A model's tensors in float64, and its logits by counts, for any subset of heads."""

    def __init__(self, path):
        self.W = {name: np.asarray(x, dtype=np.float64) for name, x in load_file(path).items()}
        self.heads = len(self.W["W_Q"])
        self.has_skip = bool(self.W.get("skip", True))
        x = self.W["E"]
        if "norm_weight" in self.W:
            centred = x - x.mean(axis=1, keepdims=True)
            x = centred / np.sqrt((centred**2).mean(axis=1, keepdims=True) + float(self.W["norm_eps"]))
            x = x * self.W["norm_weight"] + self.W["norm_bias"]
        self.seen = x

    def kinds(self, last):
        return [BOS, ZERO, ONE, TWO, EQUALS] + ([] if last == EQUALS else [last])

    def counts(self, triples, last):
        one = np.ones((len(triples), 1))
        return np.concatenate([one, triples, one, *([] if last == EQUALS else [one])], axis=1)

    def scores(self, h, last):
        q = self.seen[last] @ self.W["W_Q"][h]
        divisor = np.sqrt(float(self.W.get("score_divisor", 1)))
        return np.array([self.seen[t] @ self.W["W_K"][h] @ q / divisor for t in self.kinds(last)])

    def outputs(self, h, triples, last=EQUALS):
        """(N, d_h): the head's output, by softmax over the counts."""
        s = self.scores(h, last)
        w = self.counts(triples, last) * np.exp(s - s.max())
        return (w / w.sum(axis=1, keepdims=True)) @ (self.seen[self.kinds(last)] @ self.W["W_V"][h])

    def logits(self, triples, heads, last=EQUALS):
        stream = np.zeros((len(triples), self.W["E"].shape[1])) + (self.W["E"][last] if self.has_skip else 0.0)
        for h in heads:
            stream = stream + self.outputs(h, triples, last) @ self.W["W_O"][h]
        return stream @ self.W["W_out"] + self.W["b_out"]

    def exact_logits(self, n, heads, last=EQUALS, bits=300):
        """The logits of one triple as balls, from the stored numbers; without layer norm."""
        assert "norm_weight" not in self.W and "score_divisor" not in self.W
        with ctx.workprec(bits):
            W = {name: np.vectorize(arb, otypes=[object])(x) for name, x in self.W.items() if x.ndim}
            stream = [x if self.has_skip else arb(0) for x in W["E"][last]]
            for h in heads:
                q = W["E"][last] @ W["W_Q"][h]
                w = [
                    k * (q @ (W["E"][t] @ W["W_K"][h])).exp()
                    for t, k in zip(self.kinds(last), (1, *n, 1, 1), strict=False)
                ]
                D = sum(w)
                v = sum(x / D * (W["E"][t] @ W["W_V"][h]) for x, t in zip(w, self.kinds(last), strict=True))
                stream = [a + b for a, b in zip(stream, v @ W["W_O"][h], strict=True)]
            return list(np.array(stream) @ W["W_out"] + W["b_out"])

    def sign(self, triples, heads, expected, rival, last=EQUALS):
        """Signs of (logit expected) - (logit rival): float64, and balls where that is near zero."""
        logits = self.logits(triples, heads, last)
        z = logits[:, expected] - logits[:, rival]
        out = np.sign(z)
        for i in np.flatnonzero(np.abs(z) < FAR * (1 + np.abs(logits).max())):
            found = self.exact_logits(tuple(int(x) for x in triples[i]), heads, last)
            ball = found[expected] - found[rival]
            assert ball > 0 or ball < 0
            out[i] = 1 if ball > 0 else -1
        return out

    def learned_right(self, triples, heads):
        """On how many triples the due one of 4 and 5 wins against the other."""
        signs = self.sign(triples, heads, FOUR, FIVE)
        return int(np.sum(np.where(triples[:, 1] > triples[:, 0], signs > 0, signs < 0)))

    def whole_right(self, triples):
        """On how many triples the due answer has the largest of all logits, all heads together."""
        heads, right = range(self.heads), np.ones(len(triples), dtype=bool)
        more = triples[:, 1] > triples[:, 0]
        for due, expected in ((more, FOUR), (~more, FIVE)):
            for rival in range(len(self.W["b_out"])):
                if rival != expected:
                    right[due] &= self.sign(triples[due], heads, expected, rival) > 0
        return int(right.sum())

    def eos_right(self, triples, heads):
        """After how many triples and their due answer EOS has the largest logit."""
        right, more = np.ones(len(triples), dtype=bool), triples[:, 1] > triples[:, 0]
        for due, last in ((more, FOUR), (~more, FIVE)):
            for rival in range(len(self.W["b_out"])):
                if rival != EOS:
                    right[due] &= self.sign(triples[due], heads, EOS, rival, last) > 0
        return int(right.sum())

    def auc(self, triples, heads):
        """D's AUC by comparing every pair in float64; for small boxes."""
        logits = self.logits(triples, heads)
        more, found = triples[:, 1] > triples[:, 0], []
        for of_class, token in ((more, FOUR), (~more, FIVE)):
            high, low = logits[of_class, token], logits[~of_class, token]
            apart = np.abs(high[:, None] - low[None])
            assert apart.min() > 1e-12 * np.abs(logits).max()
            found.append((int((high[:, None] > low[None]).sum()), len(high) * len(low)))
        return max(found)

    def exact_outputs(self, h, n, bits=300):
        """The head's output on one triple as balls, from the stored numbers."""
        with ctx.workprec(bits):

            def exact(x):
                return np.vectorize(arb, otypes=[object])(x)

            E, Q, K, V = exact(self.W["E"]), exact(self.W["W_Q"][h]), exact(self.W["W_K"][h]), exact(self.W["W_V"][h])
            q = E[EQUALS] @ Q
            w = [k * (q @ (E[t] @ K)).exp() for t, k in zip(self.kinds(EQUALS), (1, *n, 1), strict=True)]
            return list(sum(x * (E[t] @ V) for x, t in zip(w, self.kinds(EQUALS), strict=True)) / sum(w))


def box(low, high, noise):
    """All triples of a box, in lexicographic order."""
    return np.array(list(product(range(low, high + 1), range(low, high + 1), range(noise + 1))), dtype=np.int64)
