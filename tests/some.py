"""Loops of tests over what is listed from what is there."""


def some(items):
    """The items as a list, of which there must be one: a loop over none would assert nothing."""
    found = list(items)
    assert found, "nothing to look at"
    return found
