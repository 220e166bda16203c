"""The one form of JSON that commands print and save: objects that name the version of their schema."""

from __future__ import annotations

import json
from collections.abc import Mapping

SCHEMA = "weightproof/1"  # docs/schema.json; a change that old readers could not read makes it 2


def named(found: Mapping[str, object]) -> dict[str, object]:
    """The object with the version of its schema in front.

    >>> named({"verdict": "PROVED"})
    {'schema': 'weightproof/1', 'verdict': 'PROVED'}
    """
    return {"schema": SCHEMA, **found}


def as_json(found: Mapping[str, object]) -> str:
    """The object on one line.

    >>> as_json({"P": 3})
    '{"schema": "weightproof/1", "P": 3}'
    """
    return json.dumps(named(found), allow_nan=False)
