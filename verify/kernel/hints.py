"""Sets of tokens to split regions by, from the tree of splits of a certificate; nothing rests on their being good."""

from __future__ import annotations

import base64
import binascii
import zlib
from collections.abc import Mapping

from constructions import plain_json
from constructions.errors import BadInput

MOST_BYTES = 1 << 26  # of a tree that is no longer compressed
MOST_FLAGS = 1 << 20  # of all sets: which tokens they hold, one by one, as a theorem names them
Sets = tuple[frozenset[int], ...]


def sets_by_token(folder: str, tree: object, T: int) -> dict[int, Sets]:
    """The clusters that a saved tree halves, for each own token whose parts have some, wholes before their parts.

    There are none where they would be more than a theorem is to name.

    Raises: BadInput for anything but a tree that `--save` wrote.
    """
    if not isinstance(tree, Mapping) or tree.get("data") is None:
        return {}
    try:
        unpacking = zlib.decompressobj()
        text = unpacking.decompress(base64.b64decode(tree["data"], validate=True), MOST_BYTES)
        cells = plain_json.loads(text)["cells"]
        by_token = {t: merges for _, t, merges, _ in cells if merges}
        if T * sum(map(len, by_token.values())) > MOST_FLAGS:
            return {}
        return {t: _left_halves([s for s in range(T) if s != t], merges) for t, merges in by_token.items()}
    except (AttributeError, IndexError, KeyError, TypeError, ValueError, zlib.error, binascii.Error):
        raise BadInput(f"folder={folder!r}: the certificate's tree cannot be read. Save it again.") from None


def _left_halves(others: list[int], merges: list[list[int]]) -> Sets:
    """The first half of each cluster, in a tree of the other tokens whose parts come before wholes.

    >>> [sorted(found) for found in _left_halves([0, 2, 3], [[0, 2], [1, 3]])]
    [[2], [0]]
    """
    members = [frozenset({s}) for s in others]
    if len(merges) >= len(others):
        raise ValueError("more merges than clusters")
    for left, right in merges:
        members.append(members[left] | members[right])
    return tuple(members[left] for left, _ in reversed(merges))
