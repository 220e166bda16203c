"""What is right in each task of document C, written anew from its Fig. 1 in plain Python."""


def right(name, string, *, M=None, m=None, C=None):
    """The right class of each position of a string; None where it is not judged."""
    out = []
    for i, token in enumerate(string):
        so_far = string[: i + 1]
        if name in ("first-homogeneous", "first-heterogeneous"):
            out.append(1 if i == 0 else 0)
        elif name in ("shifted", "helper", "helper-shifted"):
            out.append(string[0] + i if string[0] + i <= M else None)
        elif name == "succession" and string[0] <= M:
            out.append(token + 1 if token + 1 <= M else None)
        elif name in ("vanilla", "succession"):
            out.append(i + 1 if i + 1 <= M else None)
        elif name == "modular":
            out.append(i % m)
        else:
            count = sum(other == token for other in so_far)
            number = None if count > C else count if name == "selective" else (count - 1) % m
            out.append(number)
    return tuple(out)
