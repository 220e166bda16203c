"""Random checkpoints in the layouts that the reference decoder loads."""

import torch


def draw(shapes, seed, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    return {name: torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype) / 2 for name, shape in shapes}


def progress_measures(seed=0, V=7, d=8, n=3, heads=2, d_head=3, d_mlp=10, layers=1, classes=7):
    shapes = [("embed.W_E", (d, V)), ("pos_embed.W_pos", (n, d)), ("unembed.W_U", (d, classes))]
    for i in range(layers):
        at = f"blocks.{i}."
        shapes += [(f"{at}attn.W_{c}", (heads, d_head, d)) for c in "KQV"]
        shapes += [(f"{at}attn.W_O", (d, heads * d_head)), (f"{at}mlp.W_in", (d_mlp, d)), (f"{at}mlp.b_in", (d_mlp,))]
        shapes += [(f"{at}mlp.W_out", (d, d_mlp)), (f"{at}mlp.b_out", (d,))]
    masks = {f"blocks.{i}.attn.mask": torch.ones(n, n).tril() for i in range(layers)}
    return draw(shapes, seed) | masks


def transformer_lens(seed=0, V=7, d=8, n=3, heads=2, d_head=3, d_mlp=10, layers=1, classes=6, has_norms=True):
    shapes = [("embed.W_E", (V, d)), ("pos_embed.W_pos", (n, d)), ("unembed.W_U", (d, classes))]
    shapes += [("unembed.b_U", (classes,))]
    norms = ["ln_final"]
    for i in range(layers):
        at = f"blocks.{i}."
        shapes += [(f"{at}attn.W_{c}", (heads, d, d_head)) for c in "KQV"]
        shapes += [(f"{at}attn.b_{c}", (heads, d_head)) for c in "KQV"]
        shapes += [(f"{at}attn.W_O", (heads, d_head, d)), (f"{at}attn.b_O", (d,))]
        shapes += [(f"{at}mlp.W_in", (d, d_mlp)), (f"{at}mlp.b_in", (d_mlp,))]
        shapes += [(f"{at}mlp.W_out", (d_mlp, d)), (f"{at}mlp.b_out", (d,))]
        norms += [f"{at}ln1", f"{at}ln2"]
    shapes += [(f"{name}.{part}", (d,)) for name in norms for part in "wb"] if has_norms else []
    masks = {f"blocks.{i}.attn.mask": torch.ones(n, n).tril().bool() for i in range(layers)}
    return draw(shapes, seed) | masks | {"blocks.0.attn.IGNORE": torch.tensor(-torch.inf)}


def gpt2(is_out_in, seed=0, V=7, d=8, n=4, layers=2, has_bias=True, is_tied=False):
    def turn(rows, columns):
        return (columns, rows) if is_out_in else (rows, columns)

    shapes = [("wte.weight", (V, d)), ("wpe.weight", (n, d)), ("ln_f.weight", (d,))]
    shapes += [("ln_f.bias", (d,))] if has_bias else []
    for i in range(layers):
        at = f"h.{i}."
        for name, rows, columns in (("attn.c_attn", d, 3 * d), ("attn.c_proj", d, d), ("mlp.c_fc", d, 4 * d)):
            shapes += [(f"{at}{name}.weight", turn(rows, columns))]
            shapes += [(f"{at}{name}.bias", (columns,))] if has_bias else []
        shapes += [(f"{at}mlp.c_proj.weight", turn(4 * d, d))] + ([(f"{at}mlp.c_proj.bias", (d,))] if has_bias else [])
        for name in ("ln_1", "ln_2"):
            shapes += [(f"{at}{name}.weight", (d,))] + ([(f"{at}{name}.bias", (d,))] if has_bias else [])
    shapes = [(f"transformer.{name}", shape) for name, shape in shapes]
    shapes += [] if is_tied else [("lm_head.weight", (V, d))]
    return draw(shapes, seed) | {"transformer.h.0.attn.bias": torch.ones(1, 1, n, n).tril()}
