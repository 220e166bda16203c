"""Counts up to C of two types: every judged string is y..y z y..y z .. y..y z, with at most C of the type z.

So the states to be known are those that any number of y's leads to, from 0 and from what each z made of such states.
They are held by ellipsoids: one round the states of an orbit, or of several that are near each other, after every y,
until it is mapped into ellipsoids round a cycle that y maps into each other. What z makes of all of them is where the
next level starts, and must be answered right. Floats find the ellipsoids; what is proved is the lemma of `chain` at
every step.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from verify.arithmetic.balls import Ball
from verify.arithmetic.slack import Array
from verify.frame.clock import Deadline
from verify.tasks.recurrent.blocks import BlockProof
from verify.tasks.recurrent.chain import Ellipsoids, Rules, derivative, excess, margins
from verify.tasks.recurrent.invariant import of_graph
from verify.tasks.recurrent.merged import MOST_NUMBERS, ROOM, ROUNDS, WIDEST, hold_images, join
from verify.tasks.recurrent.network import Network, float_step, orbit
from verify.tasks.recurrent.search import along_cycle, enlarged, find_cycle, noise, round_cycle, spectral_rate
from verify.tasks.recurrent.sets import Trained

SETTLES, RATES = 1000, (0.5, 0.75, 0.25)
TRIED = ((0, 0.01), (2, 0.002), (4, 0.002))  # doublings by which rings are smaller, and what is near
THICKNESS = 2.0**-32  # of ellipsoids, relative to their states: far more than float64 rounds
MOST_DOUBLINGS, MOST_ELLIPSOIDS, AT_A_TIME = 60, 200_000, 1 << 17


@dataclass(frozen=True)
class TokenLines:
    """The strings of y and z whose answers to z are judged; rings are 2^-smaller as large as they could be,
    and states after z are one where they are `near`, relative to the largest of each number.
    """

    trained: Trained
    y: int
    smaller: int
    near: float

    @property
    def z(self) -> int:
        return 1 - self.y

    @property
    def net(self) -> Network:
        return self.trained.net

    @property
    def rules(self) -> Rules:
        return Rules(self.trained.at)

    def prove(self, until: Deadline) -> BlockProof:
        """The least margin of z's answers, or why it is not known."""
        N, C, least = self.net.size, self.trained.task.C or 0, np.inf
        starts, levels, then = (
            Ellipsoids.of(np.zeros((1, N)), np.zeros((1, N, N))),
            list[Ellipsoids](),
            list[list[int]](),
        )
        for count in range(1, C + 1):
            closed = self.closed(starts, until)
            if isinstance(closed, str):
                return BlockProof(None, closed)
            held, after = closed
            least = min(least, self.margin(held, count))
            if not least > 0:
                return BlockProof(None, "ellipsoids round its lines of states do not separate the logits")
            first, judged = len(then), np.full(len(held), -1)
            if count < C:
                starts, over, places = self.gathered(held, self.z)
                if not (over <= 1).all():
                    return BlockProof(None, "ellipsoids grow too large where a type's token comes after others")
                judged = first + len(held) + places
            both = (first + after, judged) if self.y == 0 else (judged, first + after)
            then += np.stack(both, 1).tolist()
            levels.append(held)
        graphs = of_graph(Ellipsoids.joined(*levels), [self.z], then)
        return BlockProof(least, None, {"sets": len(then), "graphs": graphs})

    def margin(self, held: Ellipsoids, count: int) -> float:
        """The least margin after z: on boxes, and where these are too large on ellipsoids."""
        widths = held.widths()
        ends = np.nextafter(held.centres - widths, -np.inf), np.nextafter(held.centres + widths, np.inf)
        after = self.trained.step(ends, self.z)
        right = self.trained.task.class_of(count)
        low = self.trained.margins(after, np.full(len(held), right))
        unsure = np.flatnonzero(~(low > 0))
        if len(unsure):
            there, over = self.step(held[unsure], self.z)
            found = margins(self.net, there, [right] * len(there), self.rules).low
            low[unsure] = np.where(over <= 1, found, -np.inf)
        return float(low.min())

    def closed(self, starts: Ellipsoids, until: Deadline) -> tuple[Ellipsoids, np.ndarray] | str:
        """Ellipsoids that hold all states after any number of y's, and which one y leads to from each; or why there are
        none.
        """
        rings, held, now, places = list[Ellipsoids](), [starts], starts, list[np.ndarray]()
        while len(now):
            if until.is_up():
                return "time is up before its lines of states are closed"
            after, over = self.step(now, self.y)
            entered = np.full(len(now), -1)  # which ellipsoid of the rings
            for ring, start in zip(rings, np.cumsum([0, *map(len, rings)]), strict=False):
                place = self.enters(now, after, ring)
                entered = np.where(place >= 0, start + place, entered)
            out = np.flatnonzero(entered < 0)
            if not (over[out] <= 1).all():
                return "ellipsoids along its lines of states grow too large"
            number, then = sum(map(len, held)), -1 - entered
            now, then[out] = self.met(now[out], after[out], number)
            places.append(then)
            held.append(now)
            if number + len(now) > MOST_ELLIPSOIDS:
                return "its lines of states settle too late"
            if len(now) and (len(held) in (2, 64, 256) or not rings):
                found = self.ring(now.centres[-1], rings, until)
                if isinstance(found, str):
                    return found
                rings += [] if found is None else [found]
        first = sum(map(len, held))
        turns = [first + start + np.roll(np.arange(len(ring)), -1)
                 for ring, start in zip(rings, np.cumsum([0, *map(len, rings)]), strict=False)]  # fmt: skip
        then = np.concatenate(places)
        return Ellipsoids.joined(*held, *rings), np.concatenate([np.where(then < 0, first - 1 - then, then), *turns])

    def met(self, now: Ellipsoids, after: Ellipsoids, number: int) -> tuple[Ellipsoids, np.ndarray]:
        """Those round the images of states, one round all that are near each other, and its place from `number` on."""
        if len(now) > 1:
            joint, over, places = self.gathered(now, self.y)
            if len(joint) < len(now) and (over <= 1).all():
                return joint, number + places
        return after, number + np.arange(len(now))

    def step(self, here: Ellipsoids, token: int) -> tuple[Ellipsoids, Array]:
        """Ellipsoids round the states after the token, and the lemma's left-hand side for each."""
        parts, over, most = list[Ellipsoids](), list[Array](), max(1, AT_A_TIME // self.net.size**2)
        for k in range(0, len(here), most):
            own = np.arange(len(here[k : k + most]))
            after, left = self.onto(here[k : k + most], token, own, own)
            parts.append(after)
            over.append(left)
        return Ellipsoids.joined(*parts), np.concatenate(over)

    def gathered(self, here: Ellipsoids, token: int) -> tuple[Ellipsoids, Array, np.ndarray]:
        """Ellipsoids that hold all states after the token, those near each other in one; the lemma's left-hand sides;
        and which one each is mapped into.
        """
        centres = float_step(self.net, here.centres, token)
        near, places, chosen = self.near * np.abs(centres).max(0), np.zeros(len(here), dtype=int), list[int]()
        for i in reversed(range(len(here))):
            same = np.flatnonzero((np.abs(centres[np.array(chosen, dtype=int)] - centres[i]) <= near).all(1))
            places[i] = same[0] if len(same) else len(chosen)
            chosen += [] if len(same) else [i]
        return *self.onto(here, token, places, np.array(chosen)), places

    def onto(self, here: Ellipsoids, token: int, places: np.ndarray, chosen: np.ndarray) -> tuple[Ellipsoids, Array]:
        """Ellipsoids round the states that the token makes of the chosen centres, so large that each of `here` is
        mapped into the one at its place; and the lemma's left-hand side for each.
        """
        image = derivative(self.net, token, here)
        centres, moved, added = self.moved(here, token, image)
        reached, room = centres[chosen], np.full(len(here), ROOM)
        for _ in range(ROUNDS):
            Q = hold_images(moved, added, centres - reached[places], room)
            joint = Q[chosen] if len(chosen) == len(here) else [join(list(Q[places == k])) for k in range(len(chosen))]
            after = Ellipsoids.of(reached, _roots(np.asarray(joint)))
            over = excess(self.net, token, here, after[places], self.rules, is_joint=True, image=image)
            if not ((over > 1) & np.isfinite(over)).any():
                break
            room = np.where(over > 1, room * np.minimum(over, 2.0) * ROOM, room)
        return after, over

    def moved(self, here: Ellipsoids, token: int, image: Ball) -> tuple[Array, Array, Array]:
        """In floats: the centres after the token, what its derivatives make of the matrices, and how far it is off."""
        scales = here.scales[:, None]
        rounded = noise(self.net, token, here.centres, self.rules) / np.sqrt(self.net.size)
        varied = np.sqrt((image.rad**2).sum(-1)) * scales
        thick = THICKNESS * (1 + np.abs(here.centres))
        return float_step(self.net, here.centres, token), image.mid * scales[..., None], rounded + varied + thick

    def enters(self, now: Ellipsoids, after: Ellipsoids, ring: Ellipsoids) -> np.ndarray:
        """Into which of the ring's ellipsoids y maps each, -1 for none; `after` are round their images."""
        off = np.abs(after.centres[:, None] - ring.centres[None]).max(-1)
        place, found = off.argmin(1), np.full(len(now), -1)
        inverse = np.linalg.inv(ring.shapes) / ring.scales[:, None, None]
        far = np.linalg.norm((inverse[place] @ (after.centres - ring.centres[place])[..., None])[..., 0], axis=-1)
        wide = np.linalg.norm(inverse[place] @ after.shapes * after.scales[:, None, None], axis=(1, 2))
        near = np.flatnonzero(far + wide / np.sqrt(self.net.size) < 1)
        if len(near):
            over = excess(self.net, self.y, now[near], ring[place[near]], self.rules, is_joint=True)
            found[near] = np.where(over <= 1, place[near], -1)
        return found

    def ring(self, state: Array, known: list[Ellipsoids], until: Deadline) -> Ellipsoids | str | None:
        """Ellipsoids round the cycle that y's lead to from a state; None where it is known."""
        states = orbit(self.net, [self.y] * SETTLES, state, until)
        if any(np.abs(ring.centres - states[-1]).max(1).min() < 1e-6 for ring in known):
            return None
        cycle = find_cycle(self.net, self.y, states, 1, until)
        J = None if cycle is None else along_cycle(self.net, self.y, cycle, until)
        if cycle is None or J is None:
            return "one type's tokens lead to no cycle"
        own = spectral_rate(J)
        for share in RATES:
            ring = round_cycle(self.net, self.y, cycle, self.rules, own + (1 - own) * share, until)
            if ring is not None and self.stays(ring):
                return self.largest(ring)
        return "ellipsoids round the cycle of one type's tokens are not mapped into each other"

    def stays(self, ring: Ellipsoids) -> bool:
        """Whether y maps each ellipsoid of a ring into the next."""
        return bool((excess(self.net, self.y, ring, Ellipsoids.joined(ring[1:], ring[:1]), self.rules) <= 1).all())

    def largest(self, ring: Ellipsoids) -> Ellipsoids:
        """A ring that stays in itself, as large as it does, or smaller as is wished."""
        low, high = 0, MOST_DOUBLINGS
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self.stays(enlarged(ring, middle)) else (low, middle)
        sizes = (max(0, low - self.smaller), low, 0)
        return next(larger for size in sizes if self.stays(larger := enlarged(ring, size)))


def fits(trained: Trained) -> bool:
    """Whether all judged strings are lines: two types, counted up to C; and states are not too large."""
    return trained.K == 2 and trained.task.C is not None and trained.net.size <= MOST_NUMBERS


def closed(trained: Trained, until: Deadline) -> BlockProof:
    """A margin of every judged answer of every string over two types, or why none is found."""
    both = [_best(trained, y, until) for y in (0, 1)]
    margins, reasons, facts = zip(*both, strict=True)
    if any(reasons):
        return BlockProof(None, next(filter(None, reasons)))
    sets, (one, other) = sum(fact["sets"] for fact in facts), (fact["graphs"] for fact in facts)
    return BlockProof(min(margins), None, {"sets": sets, "graphs": [*one, *other] if one and other else []})


def _best(trained: Trained, y: int, until: Deadline) -> BlockProof:
    """What is known of the answers to the other type, over several sizes of rings and of what is one state."""
    found = BlockProof(None, "time is up")
    for smaller, near in TRIED:
        if found.reason is not None and not until.is_up():
            found = TokenLines(trained, y, smaller, near).prove(until)
    return found


def _roots(Q: Array) -> Array:
    """Lower triangular matrices with these squares; NaN where there is none."""
    out = np.full_like(Q, np.nan)
    for t, one in enumerate((Q + np.swapaxes(Q, -1, -2)) / 2):
        if np.isfinite(one).all() and np.abs(one).max() < WIDEST**2:
            try:
                out[t] = np.linalg.cholesky(one)
            except np.linalg.LinAlgError:
                continue
    return out
