"""Three different ways of not getting a construction."""


class BadInput(ValueError):
    """An argument breaks a rule: the message names it, its value, the rule and a way out."""


class ProvedImpossible(BadInput):
    """No weights of the asked shape can do it, and there is a proof."""


class NotKnown(BadInput):
    """No construction is known for the asked shape; nobody says that none exists."""
