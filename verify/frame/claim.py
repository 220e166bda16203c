"""What a claim is: a statement, its source, its kind, its commands, and where its builder, bound and verifier live."""

from __future__ import annotations

import re
import shlex
import shutil
from dataclasses import asdict, dataclass
from enum import StrEnum

BEHRENS = "Behrens, Biggio, Zdeborova: Counting in Small Transformers"
COUNT01 = "Do Attention Heads Compete or Cooperate during Counting?"
GOLKAR = "Golkar et al.: Contextual Counting: A Mechanistic Study of Transformers on a Quantitative Task"
FRAKNOI = "Fraknoi: Solving Mathematical Problems with Transformers"


class Kind(StrEnum):
    """The kind of evidence that a claim's command gives, and so the outcome that it promises."""

    BUILT = "built and proved"
    IMPOSSIBLE = "impossible"
    SEARCHED = "found by search at listed sizes"
    SAMPLED = "sampled"
    THEOREM = "theorem in Coq's kernel"


@dataclass(frozen=True)
class Ending:
    """How a command ends: the verdict that it prints last, and its exit code."""

    verdict: str
    exit_code: int


# Weights that are built or found end PROVED, and so does a theorem that a proof assistant accepts. An argument ends
# IMPOSSIBLE when all its checks hold; a command that asks for the impossible exits with 2. Sampling refutes or leaves
# open; it never proves.
PROMISES = {
    Kind.BUILT: Ending("PROVED", 0),
    Kind.SEARCHED: Ending("PROVED", 0),
    Kind.IMPOSSIBLE: Ending("IMPOSSIBLE", 0),
    Kind.SAMPLED: Ending("UNKNOWN", 3),
    Kind.THEOREM: Ending("PROVED", 0),
}
REFUTES = Ending("REFUTED", 1)  # of a command that shows what the statement says is wrong


@dataclass(frozen=True)
class Claim:
    """One proposition: its statement and source, its kind, and where its builder, bound and verifier live.

    The three places are "module:function" strings, so that listing the claims imports none of them. `command` ends as
    the kind promises, in seconds; the commands in `deep` do too, for the statement's other models and sizes. `reads`
    holds the files that the commands read, as (name, content). `needs` is a program that they run and that may be
    missing; then they are not run.

    Every command prints the claim's id, or the one of `shown_in`, the claim in whose proof this one is a step. Where
    the statement is general by a proof on paper, `checked_at` has the sizes at which commands check it; semicolons part
    the groups, each of one command. The commands in `refutes` end REFUTED: they show what the statement says is wrong.

    Weights are proved in a dtype too: by those commands that name one, or else by each command with `dtype` added. A
    claim that no dtype can decide says why in `exact`.
    """

    id: str
    statement: str
    source: str
    builder: str
    bound: str
    verifier: str
    command: str
    kind: Kind = Kind.BUILT
    deep: tuple[str, ...] = ()
    reads: tuple[tuple[str, str], ...] = ()
    needs: str = ""
    checked_at: str = ""
    shown_in: str = ""
    refutes: tuple[str, ...] = ()
    dtype: str = "float32"
    exact: str = ""

    @property
    def has_weights(self) -> bool:
        """Whether the claim is of weights that are built or found."""
        return self.builder != "-" and self.kind in (Kind.BUILT, Kind.SEARCHED)

    @property
    def in_dtype(self) -> tuple[str, ...]:
        """The commands that prove the claim's weights in a dtype.

        >>> Claim("X", "s", "s", "m:f", "-", "-", "verify parity --T 3 --L 2").in_dtype
        ('verify parity --T 3 --L 2 --precision float32',)
        """
        if self.exact or not self.has_weights:
            return ()
        own = (self.command, *self.deep)
        return tuple(filter(dtype_of, own)) or tuple(f"{command} --precision {self.dtype}" for command in own)

    @property
    def dtypes(self) -> tuple[str, ...]:
        """The dtypes in which these commands prove them."""
        return tuple(dict.fromkeys(map(dtype_of, self.in_dtype)))

    @property
    def sentence(self) -> str:
        """The statement, and how far commands show it where a proof on paper goes further.

        >>> Claim("X", "for all T", "s", "-", "-", "-", "verify parity --T 3 --L 2", checked_at="T = 3, L = 2").sentence
        'for all T; proved on paper, checked at T = 3, L = 2'
        """
        return f"{self.statement}; proved on paper, checked at {self.checked_at}" if self.checked_at else self.statement

    @property
    def promise(self) -> Ending:
        return PROMISES[self.kind]

    def promise_of(self, command: str) -> Ending:
        """How one of its commands ends."""
        return REFUTES if command in self.refutes else self.promise

    @property
    def why_not(self) -> str:
        """The reason why the commands cannot be run here, or nothing."""
        return f"{self.needs} is not installed" if self.needs and shutil.which(self.needs) is None else ""

    @property
    def set_up(self) -> tuple[str, ...]:
        """Lists the shell lines to type first: one for each file that the commands read.

        >>> xor = (("xor.bench", "INPUT(x)" + chr(10)),)
        >>> print(*Claim("E", "s", "b", "-", "-", "-", "verify circuit xor.bench", reads=xor).set_up)
        printf 'INPUT(x)\\n' > xor.bench
        """
        return tuple(f"printf {as_printf(text)} > {name}" for name, text in self.reads)

    def to_dict(self) -> dict[str, object]:
        """The JSON object."""
        more = {"sentence": self.sentence, "set_up": list(self.set_up), "promise": asdict(self.promise)}
        more |= {"in_dtype": list(self.in_dtype), "dtypes": list(self.dtypes)}
        return {name: value for name, value in asdict(self).items() if name != "dtype"} | more


def dtype_of(command: str) -> str:
    """The dtype in which a command decides, or nothing: in any order of evaluation, or as torch runs it.

    >>> dtype_of("verify parity --T 3 --L 2 --precision bfloat16"), dtype_of("verify parity --T 3 --L 2")
    ('bfloat16', '')
    """
    found = re.search(r"--precision (?!real)(\S+)", command)
    as_it_runs = re.search(r"--dtype (\S+)", command) if "--method exhaustive" in command else None
    return found[1] if found else as_it_runs[1] if as_it_runs else ""


def as_printf(text: str) -> str:
    """A quoted format of printf that writes the text.

    >>> print(as_printf("a" + chr(10)))
    'a\\n'
    """
    escaped = text.replace("\\", "\\\\").replace("%", "%%").replace("\n", "\\n")
    return shlex.quote(escaped)
