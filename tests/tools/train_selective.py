"""Trains small recurrent networks on selective counting: python tests/tools/train_selective.py out.safetensors rnn.

Strings over K types; the answer after each token is how often its type was read, up to C, and no more is asked beyond.
`--noise` disturbs the state at every step while training, so that states that mean the same lie close together.
"""

from __future__ import annotations

import argparse

import torch

from constructions.recurrent.model import RecurrentModel, as_bytes
from constructions.written_files import write_whole


def counted(strings: torch.Tensor, types: int) -> torch.Tensor:
    """How often each token's type was read so far, that token included."""
    own = torch.nn.functional.one_hot(strings, types)
    return (own.cumsum(1) * own).sum(-1)


def run(model: RecurrentModel, strings: torch.Tensor, noise: float) -> torch.Tensor:
    """Logits, each state disturbed by as much noise."""
    x, state, said = model.embed(strings), None, []
    for t in range(strings.shape[1]):
        out, state = model.cell(x[:, t : t + 1], state)
        said.append(model.readout(out[:, 0]))
        if isinstance(state, tuple):
            state = tuple(part + noise * torch.randn_like(part) for part in state)
        else:
            state = state + noise * torch.randn_like(state)
    return torch.stack(said, dim=1)


def train(
    kind: str, *, types: int, max_count: int, hidden: int, seed: int, length: int = 16, noise: float = 0.1,
    steps: int = 1500, stop: float = 0.01,
) -> tuple[RecurrentModel, float]:  # fmt: skip
    """The network after Adam with clipped gradients, and its last loss."""
    torch.manual_seed(seed)
    model = RecurrentModel(kind, hidden=hidden, classes=max_count + 1, inputs=types).requires_grad_(True)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for step in range(steps):
        strings = torch.randint(types, (128, length))
        if step % 2:  # long runs of one type among few of the others
            strings = torch.where(torch.rand(128, length) < 0.7, strings[:, :1], strings)
        due = counted(strings, types)
        due = torch.where(due <= max_count, due, -100)
        loss = torch.nn.functional.cross_entropy(run(model, strings, noise).flatten(0, 1), due.flatten())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if loss.item() < stop:
            break
    return model.requires_grad_(False), loss.item()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out")
    parser.add_argument("kind", choices=("rnn", "gru", "lstm"))
    for name, value in (("types", 2), ("max-count", 2), ("hidden", 8), ("seed", 0), ("length", 16), ("steps", 1500)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--noise", type=float, default=0.1)
    args = parser.parse_args()
    torch.set_num_threads(1)
    sizes = {name: value for name, value in vars(args).items() if name not in ("out", "kind")}
    model, loss = train(args.kind, **sizes)
    write_whole(args.out, as_bytes(model))
    print(f"{args.out}: {args.kind}, {sizes}, loss {loss:.4f}")
