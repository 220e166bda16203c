"""Three different ways of not getting a construction."""


class BadInput(ValueError):
    """An argument breaks a rule: the message names it, its value, the rule and a way out."""


class ProvedImpossible(BadInput):
    """No weights of the asked shape can do it, and there is a proof: `claim` is the id of the claim that it is.

    >>> ProvedImpossible("W-5", "p=1: one neuron cannot count here. Use --p 4.").claim
    'W-5'
    """

    def __init__(self, claim: str, reason: str) -> None:
        super().__init__(reason)
        self.claim = claim


class NotKnown(BadInput):
    """No construction is known for the asked shape; nobody says that none exists."""
