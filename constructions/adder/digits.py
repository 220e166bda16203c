"""Where the digits of "d_1..d_n + e_1..e_n =" and of its answer stand, most significant first."""

from __future__ import annotations

from dataclasses import dataclass

from constructions.errors import BadInput


@dataclass(frozen=True)
class Digits:
    """Sums of two numbers of n digits in base B, written out: 2n + 2 tokens of prompt and n + 1 of answer.

    Columns are counted from the least significant one, 0; the answer has one more, n. Tokens 0..B-1 are digits.

    >>> sums = Digits(n=3, B=10)
    >>> sums.prompt(95, 5), sums.answer(95, 5)
    ([0, 9, 5, 10, 0, 0, 5, 11], [0, 1, 0, 0])
    """

    n: int
    B: int = 10

    def __post_init__(self) -> None:
        if self.n < 1:
            raise BadInput(f"n={self.n}: must be at least 1 digit")
        if self.B < 2:
            raise BadInput(f"B={self.B}: must be at least 2, the number of digits to choose from")

    @property
    def plus(self) -> int:
        """The token "+"."""
        return self.B

    @property
    def equals(self) -> int:
        """The token "="."""
        return self.B + 1

    @property
    def tokens(self) -> int:
        return self.B + 2

    @property
    def length(self) -> int:
        """How many tokens are ever read: the last digit of the answer is not."""
        return 3 * self.n + 2

    def first(self, column: int) -> int:
        """The position of the first number's digit in a column."""
        return self.n - 1 - column

    def second(self, column: int) -> int:
        """The position of the second number's digit in a column."""
        return 2 * self.n - column

    def query(self, column: int) -> int:
        """The position whose output is the answer's digit in a column: that of "=" or of the digit before."""
        return 3 * self.n + 1 - column

    def prompt(self, a: int, b: int) -> list[int]:
        """The tokens of "a + b =".

        Raises: BadInput for numbers that do not have n digits in base B.
        """
        for name, number in (("a", a), ("b", b)):
            if not 0 <= number < self.B**self.n:
                raise BadInput(f"{name}={number}: must be from 0 to {self.B}^{self.n} - 1")
        return [*self.written(a, self.n), self.plus, *self.written(b, self.n), self.equals]

    def answer(self, a: int, b: int) -> list[int]:
        """The digits of a + b."""
        return self.written(a + b, self.n + 1)

    def written(self, number: int, n: int) -> list[int]:
        """A number's n digits, most significant first."""
        digits = []
        for _ in range(n):
            number, digit = divmod(number, self.B)
            digits.append(digit)
        return digits[::-1]
