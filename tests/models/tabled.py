"""All inputs of a domain with their logits by the tables of one layer, for tests that look at these alone."""

from itertools import product

import torch

from verify.engine.one_layer.points import Points
from verify.module.inputs import Product


def by_tables(given, part):
    """Tokens (inputs, length), logits (inputs, classes)."""
    free = Product(tuple(tuple(range(len(part.sets[i]))) for i in given.places))
    for own in product(*(part.sets[i] for i in given.fixed)):
        points = Points(given.layer(own))
        for ranks in free.batches():
            tokens = torch.empty(len(ranks), part.length, dtype=torch.long)
            for column, place in enumerate(given.places):
                tokens[:, place] = torch.tensor(part.sets[place])[ranks[:, column]]
            for place, token in zip(given.fixed, own, strict=True):
                tokens[:, place] = token
            with torch.no_grad():
                yield tokens, points(ranks)
