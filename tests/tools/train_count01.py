"""Trains Count01 models as document D does: python tests/tools/train_count01.py out.safetensors --seed 0 [--heads 16].

Attention without positions sees token counts alone, so a batch is a batch of triples (n0, n1, n2).
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import torch
from torch import Tensor

from constructions.count01 import EOS, EQUALS, FIVE, FOUR, Count01Transformer, save

# (least digits, most digits, most noise, how many): document D, Sec. 3.
TRAINING, VALIDATION, TEST = (0, 100, 100, 7000), (101, 150, 150, 1500), (151, 200, 200, 1500)
WIDE = (0, 200, 200, 7000)


def drawn(law: tuple[int, int, int, int], g: torch.Generator) -> Tensor:
    """Triples (k, 3), each count uniform and independent."""
    low, high, noise, k = law
    digits = torch.randint(low, high + 1, (k, 2), generator=g)
    return torch.cat([digits, torch.randint(0, noise + 1, (k, 1), generator=g)], dim=1)


def close_calls(k: int, g: torch.Generator) -> Tensor:
    """Triples near the boundary, n1 - n0 in {-1, 0, 1, 2}, up to 200 each."""
    n0 = torch.randint(1, 199, (k,), generator=g)
    return torch.stack([n0, n0 + torch.randint(-1, 3, (k,), generator=g), torch.randint(0, 201, (k,), generator=g)], 1)


def counts_of(n: Tensor, last: int) -> Tensor:
    """Token counts (k, 8) of the strings with these triples up to `last`."""
    counts = torch.zeros(len(n), 8)
    counts[:, 0], counts[:, 1:4], counts[:, EQUALS] = 1, n.float(), 1
    counts[:, last] = 1
    return counts


def loss_of(model: Count01Transformer, n: Tensor) -> Tensor:
    """Cross-entropy of the answer after "=" and of EOS after it."""
    due = torch.where(n[:, 1] > n[:, 0], FOUR, FIVE)
    loss = torch.nn.functional.cross_entropy(model.logits_at_counts(counts_of(n, EQUALS), EQUALS), due)
    for last in (FOUR, FIVE):
        rows = n[due == last]
        if len(rows):
            logits = model.logits_at_counts(counts_of(rows, last), last)
            loss = loss + torch.nn.functional.cross_entropy(logits, torch.full((len(rows),), EOS)) * len(rows) / len(n)
    return loss


def accuracy(model: Count01Transformer, n: Tensor) -> float:
    """The share of triples whose answer has the largest logit."""
    with torch.no_grad():
        said = model.logits_at_counts(counts_of(n, EQUALS), EQUALS).argmax(-1)
    return float((said == torch.where(n[:, 1] > n[:, 0], FOUR, FIVE)).double().mean())


def initialise(model: Count01Transformer, g: torch.Generator) -> None:
    """Normal entries of scale 1 for embeddings, 1 / sqrt(inputs) for matrices."""
    with torch.no_grad():
        for name, W in model.named_parameters():
            inputs = {"W_O": W.shape[0] * W.shape[1] if W.ndim == 3 else 1, "W_out": W.shape[0]}.get(
                name, W.shape[-2:][0]
            )
            scale = 0.0 if name == "b_out" else 1.0 if name == "E" else inputs**-0.5
            if name == "norm_weight":
                W.fill_(1)
            elif name == "norm_bias":
                W.zero_()
            else:
                W.copy_(torch.randn(W.shape, generator=g) * scale)
            W.requires_grad_(True)


def train(
    d: int,
    heads: int,
    d_h: int,
    seed: int,
    epochs: int,
    *,
    is_wide: bool,
    after: Callable[[int, Count01Transformer], None] = lambda epoch, model: None,
    **options: bool,
) -> tuple[Count01Transformer, float, float]:
    """The model with the best validation accuracy, and its sampled validation and test accuracies.

    `after` is told every epoch, from 1 on, and the model as it then is.
    """
    g = torch.Generator().manual_seed(seed)
    model = Count01Transformer(d=d, heads=heads, d_h=d_h, dtype=torch.float32, **options)
    initialise(model, g)
    training, validation, test = (drawn(law, g) for law in (WIDE if is_wide else TRAINING, VALIDATION, TEST))
    if is_wide:
        training = torch.cat([training, close_calls(7000, g)])
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.0 if is_wide else 0.01)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
    best, state = -1.0, model.state_dict()
    for epoch in range(1, epochs + 1):
        for batch in training[torch.randperm(len(training), generator=g)].split(128 if not is_wide else 512):
            optimizer.zero_grad()
            loss_of(model, batch).backward()
            optimizer.step()
        schedule.step()
        after(epoch, model)
        reached = accuracy(model, training[-7000:] if is_wide else validation)
        if reached >= best:
            best, state = reached, {name: W.clone() for name, W in model.state_dict().items()}
    model.load_state_dict(state)
    return model, best, accuracy(model, test)


def keeping(out: str, every: int) -> Callable[[int, Count01Transformer], None]:
    """Writes OUT-10.safetensors, OUT-20.safetensors and so on beside OUT.safetensors; nothing where `every` is 0."""

    def after(epoch: int, model: Count01Transformer) -> None:
        if every and epoch % every == 0:
            save(model, f"{out.removesuffix('.safetensors')}-{epoch}.safetensors")

    return after


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out")
    for name, value in (("d", 32), ("heads", 16), ("d_h", 2), ("seed", 0), ("epochs", 60), ("keep", 0)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--wide", action="store_true", help="train on [0, 200]^2 x [0, 200] with many close calls")
    parser.add_argument("--norm", action="store_true", help="layer norm before the attention")
    args = parser.parse_args()
    torch.set_num_threads(1)
    options = {"norm": True} if args.norm else {}
    after = keeping(args.out, args.keep)
    model, best, tested = train(
        args.d, args.heads, args.d_h, args.seed, args.epochs, is_wide=args.wide, after=after, **options
    )
    save(model, args.out)
    print(f"{args.out}: seed {args.seed}, validation {best:.4f}, sampled test accuracy {tested:.4f}")
