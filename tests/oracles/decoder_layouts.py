"""Forward passes of four checkpoint layouts in plain numpy float64, written from the layouts' own public code."""

import math

import numpy as np


def softmax(scores):
    e = np.exp(scores - scores.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


ACTIVATIONS = {
    "relu": lambda x: np.maximum(x, 0),
    "gelu": lambda x: x * (1 + np.vectorize(math.erf)(x / math.sqrt(2))) / 2,
    "gelu_tanh": lambda x: x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))) / 2,
}


def layernorm(x, w, b, eps=1e-5):
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + eps) * w + b


def heads(q, k, v, d_head):
    """Lists of (n, d_head) per head -> list of mixed values."""
    n = len(q[0])
    future = np.triu(np.full((n, n), -np.inf), 1)
    return [softmax(a @ b.T / math.sqrt(d_head) + future) @ c for a, b, c in zip(q, k, v, strict=True)]


def progress_measures(w, tokens, activation="relu"):
    """Nanda et al.: every matrix on the left."""
    x = np.stack([w["embed.W_E"][:, t] for t in tokens]) + w["pos_embed.W_pos"][: len(tokens)]
    i = 0
    while f"blocks.{i}.attn.W_Q" in w:
        block = {name.split(".", 2)[2]: value for name, value in w.items() if name.startswith(f"blocks.{i}.")}
        q, k, v = (np.einsum("ihd,pd->iph", block[f"attn.W_{c}"], x) for c in "QKV")
        z = np.concatenate(heads(q, k, v, q.shape[-1]), axis=-1)
        x = x + np.einsum("df,qf->qd", block["attn.W_O"], z)
        hidden = ACTIVATIONS[activation](np.einsum("md,pd->pm", block["mlp.W_in"], x) + block["mlp.b_in"])
        x = x + np.einsum("dm,pm->pd", block["mlp.W_out"], hidden) + block["mlp.b_out"]
        i += 1
    return x @ w["unembed.W_U"]


def transformer_lens(w, tokens, activation, normalization="LN", eps=1e-5):
    x = w["embed.W_E"][tokens] + w["pos_embed.W_pos"][: len(tokens)]

    def norm(x, name):
        if normalization == "none":
            return x
        if normalization == "LNPre":
            return layernorm(x, 1, 0, eps)
        return layernorm(x, w[f"{name}.w"], w[f"{name}.b"], eps)

    i = 0
    while f"blocks.{i}.attn.W_Q" in w:
        at = f"blocks.{i}."
        y = norm(x, f"{at}ln1")
        q, k, v = (np.einsum("pd,idh->iph", y, w[f"{at}attn.W_{c}"]) + w[f"{at}attn.b_{c}"][:, None, :] for c in "QKV")
        z = heads(q, k, v, q.shape[-1])
        x = x + sum(z_i @ w_i for z_i, w_i in zip(z, w[f"{at}attn.W_O"], strict=True)) + w[f"{at}attn.b_O"]
        if f"{at}mlp.W_in" in w:
            y = norm(x, f"{at}ln2")
            y = ACTIVATIONS[activation](y @ w[f"{at}mlp.W_in"] + w[f"{at}mlp.b_in"])
            x = x + y @ w[f"{at}mlp.W_out"] + w[f"{at}mlp.b_out"]
        i += 1
    return norm(x, "ln_final") @ w["unembed.W_U"] + w.get("unembed.b_U", 0)


def gpt2(w, tokens, n_heads, activation, is_out_in):
    """nanoGPT (matrices out by in) and Hugging Face (in by out)."""
    turn = (lambda W: W.T) if is_out_in else (lambda W: W)
    x = w["transformer.wte.weight"][tokens] + w["transformer.wpe.weight"][: len(tokens)]
    d = x.shape[-1]

    def bias(name):
        return w.get(f"{name}.bias", 0)

    def norm(x, name):
        return layernorm(x, w[f"{name}.weight"], bias(name))

    i = 0
    while f"transformer.h.{i}.ln_1.weight" in w:
        at = f"transformer.h.{i}."
        qkv = norm(x, f"{at}ln_1") @ turn(w[f"{at}attn.c_attn.weight"]) + bias(f"{at}attn.c_attn")
        q, k, v = (np.split(part, n_heads, axis=-1) for part in np.split(qkv, 3, axis=-1))
        z = np.concatenate(heads(q, k, v, d // n_heads), axis=-1)
        x = x + z @ turn(w[f"{at}attn.c_proj.weight"]) + bias(f"{at}attn.c_proj")
        hidden = norm(x, f"{at}ln_2") @ turn(w[f"{at}mlp.c_fc.weight"]) + bias(f"{at}mlp.c_fc")
        x = x + ACTIVATIONS[activation](hidden) @ turn(w[f"{at}mlp.c_proj.weight"]) + bias(f"{at}mlp.c_proj")
        i += 1
    x = norm(x, "transformer.ln_f")
    return x @ w.get("lm_head.weight", w["transformer.wte.weight"]).T
