"""Random, trained-like and mutated models, by seed."""

from __future__ import annotations

import torch

from constructions import inventory_counting, relation_counting
from constructions.histogram import MODELS, HistogramTransformer

BUILDERS = {
    "lin": [inventory_counting.lin],
    "lin+sftm": [inventory_counting.lin_sftm],
    "dot": [relation_counting.dot, inventory_counting.dot],
    "dot+sftm": [inventory_counting.dot_sftm],
    "bos": [relation_counting.bos, relation_counting.zero_bos, inventory_counting.bos],
    "bos+sftm": [relation_counting.bos_sftm, inventory_counting.bos_sftm],
}


def random_model(seed: int) -> HistogramTransformer:
    """A model of a random kind, size and style: gaussian, small integers (many ties), or a mutated construction."""
    g = torch.Generator().manual_seed(seed)

    def integer(low: int, high: int) -> int:
        return int(torch.randint(low, high + 1, (1,), generator=g))

    kind = MODELS[seed % 6]
    T, L = integer(2, 4), integer(1, 5)
    style = integer(0, 3)
    if style >= 2:
        build = BUILDERS[kind][integer(0, len(BUILDERS[kind]) - 1)]
        p = None if style == 2 else integer(T, 6)
        model = build(T=T, L=L, p=p, dtype=torch.float64, basis=["standard", "random"][integer(0, 1)], seed=seed)
        names = [name for name, _ in model.named_parameters()]
        with torch.no_grad():
            for _ in range(integer(0, 2)):
                parameter = getattr(model, names[integer(0, len(names) - 1)]).view(-1)
                i = integer(0, len(parameter) - 1)
                change = [0.0, -1.0, 0.5, 1.05][integer(0, 3)]
                shift = [0.0, 0.3, -1.0][integer(0, 2)]
                parameter[i] = parameter[i] * change + shift
        return model
    d, p = integer(1, 4), integer(1, 6)
    dtype = [torch.float32, torch.float64][integer(0, 1)]
    extra = integer(0, 1)
    model = HistogramTransformer(
        kind, T=T, L=L, d=d, p=p, classes=L + extra + integer(0, 1), first_count=1 - extra, dtype=dtype
    )
    with torch.no_grad():
        for parameter in model.parameters():
            if style == 0:
                parameter.copy_(torch.randn(parameter.shape, generator=g, dtype=torch.float64))
            else:
                parameter.copy_(torch.randint(-2, 3, parameter.shape, generator=g))
    return model


def trained_like(seed: int, kind: str, T: int, L: int, p: int, steps: int = 150) -> HistogramTransformer:
    """A gaussian model after a few steps of gradient descent: nearly right, with undecided neurons."""
    from constructions.partition_sampler import sample

    g = torch.Generator().manual_seed(seed)
    model = HistogramTransformer(kind, T=T, L=L, d=T, p=p)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=g))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.03)
    for _ in range(steps):
        x = sample(T, L, 64, g)
        y = (x[:, :, None] == x[:, None, :]).sum(-1) - 1
        loss = torch.nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model


def almost_two_weights(seed: int, kind: str, T: int, L: int) -> HistogramTransformer:
    """Trained-like weights after a few steps; a mixing matrix has two values, off by a little."""
    module = trained_like(seed, kind, T, L, p=2 + seed % 4, steps=15)
    if module.is_linear:
        g = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            mean = module.A.diagonal().mean(), module.A.mean()
            module.A.copy_(mean[1] + (mean[0] - mean[1]) * torch.eye(L))
            module.A += [0.003, 0.02, 0.1][seed % 3] * torch.randn(L, L, generator=g)
    return module
