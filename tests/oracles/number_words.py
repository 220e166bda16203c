"""The lines of the tasks with number words, as document C's tables define them, beside what is right at each token."""

WORDED = ("succession", "shifted", "helper", "helper-shifted")


def lines(task, M, length):
    """Every line to a length, with the right class after each of its tokens."""
    if task == "succession":
        words = tuple(range(1, min(length, M - 1) + 1)), range(2, M + 1)
        return [((M + 1,) * length, range(1, length + 1)), words]
    starts = {"shifted": range(1, M + 1), "helper": [0], "helper-shifted": range(M + 1)}[task]
    fillers = [M + 1] if task == "shifted" else [M + 1, M + 2]
    return [((k, *(a,) * min(length, M - k)), range(k, M + 1)) for k in starts for a in fillers[: 1 + (k < M)]]
