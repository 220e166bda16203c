"""Checkpoints of other trainers: recognised by their names, and near misses named with the first that differs."""

import pytest
import torch
from command import as_json, run
from models import checkpoints
from models.public_layout import hand_built

from constructions import layouts, relation_counting
from constructions.decoder import from_checkpoint
from constructions.errors import BadInput


def encoder():
    layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    model = torch.nn.ModuleDict({"encoder": torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)})
    return dict(model.state_dict()) | {"embedding.weight": torch.zeros(5, 8), "head.weight": torch.zeros(5, 8)}


KNOWN = {
    layouts.HISTOGRAM: lambda: dict(relation_counting.bos(T=3, L=2).state_dict()),
    layouts.DOCUMENT: lambda: hand_built("dot", T=4, L=3),
    layouts.PROGRESS_MEASURES: checkpoints.progress_measures,
    layouts.TRANSFORMER_LENS: checkpoints.transformer_lens,
    layouts.NANOGPT: lambda: checkpoints.gpt2(True, has_bias=False),
    layouts.HUGGING_FACE: lambda: checkpoints.gpt2(False),
    layouts.ENCODER: encoder,
}
OPTIONS = {
    layouts.PROGRESS_MEASURES: {},
    layouts.TRANSFORMER_LENS: {"activation": "relu"},
    layouts.NANOGPT: {"n_heads": 2},
    layouts.HUGGING_FACE: {"n_heads": 2, "activation": "gelu"},
}


@pytest.mark.parametrize("layout", KNOWN, ids=lambda layout: layout.name)
@pytest.mark.parametrize("prefix", ["", "module.", "_orig_mod.model."])
def test_every_layout_is_recognised(layout, prefix):
    found = layouts.likeness({prefix + name: tensor for name, tensor in KNOWN[layout]().items()})
    assert found.layout is layout and found.is_exact


@pytest.mark.parametrize("layout", KNOWN, ids=lambda layout: layout.name)
def test_a_near_miss_names_the_layout_and_the_first_name_that_differs(layout):
    state = KNOWN[layout]()
    first = next(name.replace("{i}", "0") for name in layout.must)
    there = next(name for name in state if name.endswith(first))
    state[there.replace("0", "0.x") if "0" in there else there + "x"] = state.pop(there)
    found = layouts.likeness(state)
    assert found.layout is layout and not found.is_exact
    assert found.missing[0] == first and first in found.said and layout.name in found.said


def test_what_is_no_transformer_is_of_no_layout():
    assert layouts.likeness({"conv.weight": torch.zeros(3, 3), "fc.bias": torch.zeros(3)}) is None


@pytest.mark.parametrize("layout", OPTIONS, ids=lambda layout: layout.name)
def test_a_decoder_is_built_from_its_names(layout):
    tokens = torch.tensor([[0, 1, 2]])
    state = KNOWN[layout]()
    decoder = from_checkpoint(state, **OPTIONS[layout])
    theirs = layouts_loader(layout)(state, **OPTIONS[layout])
    assert torch.equal(decoder(tokens), theirs(tokens))


def layouts_loader(layout):
    from constructions import decoder_loaders as loaders

    return loaders.LOADERS[layout.name]


@pytest.mark.parametrize(
    ("state", "options", "said"),
    [
        (checkpoints.gpt2(False), {}, "n_heads=None"),
        (checkpoints.gpt2(False), {"n_heads": 2, "normalization": "LN"}, "takes no such option"),
        (checkpoints.transformer_lens(), {}, "activation=None"),
        (encoder(), {}, "torch's TransformerEncoder's"),
        ({"x": torch.zeros(1)}, {}, "no layout that is read here"),
        ({n: t for n, t in checkpoints.gpt2(False).items() if "ln_f" not in n}, {}, "lacks ln_f.weight"),
    ],
)
def test_what_the_names_do_not_say_is_asked_for(state, options, said):
    with pytest.raises(BadInput, match=said):
        from_checkpoint(state, **options)


COMMANDS = (
    "histogram --model dot --L 2",
    "parity --L 3",
    "count01",
    "contextual",
    "modular --P 7",
    "addition --digits 2 --base 2",
    "inductive --task modular --length 3",
    "inductive --task modular --model rnn --length 3",
)


@pytest.mark.parametrize("line", COMMANDS)
def test_commands_say_what_a_file_of_another_layout_is(line, tmp_path, capsys):
    torch.save(checkpoints.gpt2(False), tmp_path / "gpt2.pt")
    code, out, err = run(capsys, *line.split(), "--weights", str(tmp_path / "gpt2.pt"))
    assert code == 2 and out == "" and err.count("\n") == 1
    assert "Hugging Face GPT-2's" in err and "from_hf_gpt2" in err


def test_modular_says_that_a_file_is_of_transformer_lens(tmp_path, capsys):
    torch.save(checkpoints.transformer_lens(), tmp_path / "lens.pt")
    code, _, err = run(capsys, "modular", "--P", "7", "--weights", str(tmp_path / "lens.pt"))
    assert code == 2 and "TransformerLens'" in err and "from_transformer_lens" in err
    torch.save(checkpoints.progress_measures(V=6, classes=6), tmp_path / "grok.pt")
    code, said = as_json(capsys, "modular", "--P", "5", "--weights", str(tmp_path / "grok.pt"))
    assert code == 1 and said["verdict"] == "REFUTED"
