"""VNN-LIB 1.0 read as what it is, s-expressions, and evaluated at a point; shares nothing with what writes it."""

import re
from fractions import Fraction


def parsed(text):
    """The commands of a file, each a nested list of words."""
    words = re.findall(r"[()]|[^\s()]+", re.sub(r";[^\n]*", "", text))
    stack = [[]]
    for word in words:
        if word == "(":
            stack.append([])
        elif word == ")":
            done = stack.pop()
            stack[-1].append(done)
        else:
            stack[-1].append(word)
    assert len(stack) == 1
    return stack[0]


def holds(expression, values):
    """The truth of and, or, <=, >= over named values and decimal numbers."""
    head, *rest = expression
    if head == "and":
        return all(holds(each, values) for each in rest)
    if head == "or":
        return any(holds(each, values) for each in rest)
    left, right = (values[each] if each in values else Fraction(each) for each in rest)
    return {"<=": left <= right, ">=": left >= right}[head]


def is_met(text, inputs, outputs):
    """Whether all assertions hold where the X are `inputs` and the Y are `outputs`."""
    values = {f"X_{i}": x for i, x in enumerate(inputs)} | {f"Y_{i}": y for i, y in enumerate(outputs)}
    commands = parsed(text)
    declared = {command[1] for command in commands if command[0] == "declare-const"}
    assert declared == set(values)
    return all(holds(command[1], values) for command in commands if command[0] == "assert")
