"""The networks of `minigrad.models`: names, shapes, outputs beside torch, files, replaced heads."""

from __future__ import annotations

import io
import json
import math
from pathlib import Path

import numpy as np
import pytest

import minigrad
from minigrad import hub, models, nn

SMALL = dict(vocab_size=11, n_positions=7, n_embd=8, n_layer=1, n_head=2)

pytestmark = pytest.mark.usefixtures("reference_backend")


def published_names():
    """{network: {name: shape}} of names.txt."""
    found = {}
    for line in Path(__file__).with_name("names.txt").read_text().splitlines():
        if line.startswith("["):
            found[line[1:-1]] = current = {}
        elif not line.startswith("#"):
            name, _, shape = line.partition(" ")
            current[name] = tuple(map(int, shape.split("x"))) if shape else ()
    return found


def on_meta(name, **options):
    """A network without data."""
    with minigrad.device("meta"):
        if name == "gpt2":
            return models.GPT2LMHeadModel(models.GPT2Config(**SMALL))
        return models.get_model(name, **options)


@pytest.mark.parametrize("name", published_names())
def test_names_and_shapes_are_those_of_published_files(name):
    wanted = published_names()[name]
    found = {key: tuple(value.shape) for key, value in on_meta(name).state_dict().items()}
    assert list(found.items()) == list(wanted.items())


@pytest.mark.parametrize(
    ("name", "millions"),
    [
        *(("vgg13", 133.048), ("vgg19", 143.667), ("vgg11_bn", 132.869), ("vgg13_bn", 133.054)),
        *(("vgg19_bn", 143.678), ("resnet34", 21.798), ("resnet101", 44.549)),
        ("resnet152", 60.193),
    ],
)
def test_numbers_of_parameters(name, millions):
    """As published for these networks."""
    count = sum(p.numel() for p in on_meta(name).parameters())
    assert round(count / 1e6, 3) == millions


# ------------------------------------------------------------------------ beside torch


def made_state(torch, model, seed):
    """A state dict of torch with random values, of the shapes of a model."""
    source = torch.Generator().manual_seed(seed)
    state = {}
    for name, value in model.state_dict().items():
        fan_in = math.prod(value.shape[1:]) or 1
        x = torch.randn(tuple(value.shape), generator=source) * math.sqrt(2 / fan_in)
        if name.endswith("running_var"):
            x = x.abs() + 0.5
        elif name.endswith(("bn1.weight", "bn2.weight", "bn3.weight", "downsample.1.weight")):
            x = 1 + 0.1 * x
        state[name] = torch.tensor(7) if name.endswith("num_batches_tracked") else x
    return state


def torch_resnet(torch, state, x):
    """ResNet by torch's functions."""
    F = torch.nn.functional

    def conv(x, name, stride, norm):
        x = F.conv2d(
            x, state[f"{name}.weight"], None, stride, state[f"{name}.weight"].shape[2] // 2
        )
        means = (state[f"{norm}.running_mean"], state[f"{norm}.running_var"])
        return F.batch_norm(x, *means, state[f"{norm}.weight"], state[f"{norm}.bias"])

    x = F.max_pool2d(F.relu(conv(x, "conv1", 2, "bn1")), 3, 2, 1)
    blocks = dict.fromkeys(name.rsplit(".", 2)[0] for name in state if ".conv1." in name)
    for block in blocks:
        stride = 2 if block in ("layer2.0", "layer3.0", "layer4.0") else 1
        deep = f"{block}.conv3.weight" in state
        y = F.relu(conv(x, f"{block}.conv1", 1 if deep else stride, f"{block}.bn1"))
        y = conv(y, f"{block}.conv2", stride if deep else 1, f"{block}.bn2")
        if deep:
            y = conv(F.relu(y), f"{block}.conv3", 1, f"{block}.bn3")
        if f"{block}.downsample.0.weight" in state:
            x = conv(x, f"{block}.downsample.0", stride, f"{block}.downsample.1")
        x = F.relu(x + y)
    return F.linear(x.mean((2, 3)), state["fc.weight"], state["fc.bias"])


def torch_features(torch, state, x, spec, head):
    """The convolutions of VGG or AlexNet by torch's functions: spec lists each one's stride and
    padding, and the pooling after it."""
    F = torch.nn.functional
    names = [name.removesuffix(".weight") for name in state if name.startswith("features")]
    convs = dict.fromkeys(name.removesuffix(".bias") for name in names)
    for name, (stride, padding, pool) in zip(convs, spec, strict=True):
        x = F.relu(F.conv2d(x, state[f"{name}.weight"], state[f"{name}.bias"], stride, padding))
        x = F.max_pool2d(x, *pool) if pool else x
    return F.linear(F.adaptive_avg_pool2d(x, head).flatten(1), state["head.weight"])


def loaded(torch, tensors):
    """What minigrad reads of a file that torch writes."""
    file = io.BytesIO()
    torch.save(tensors, file)
    file.seek(0)
    return minigrad.load(file)


def close(found, wanted):
    wanted = wanted.numpy()
    np.testing.assert_allclose(found.detach().numpy(), wanted, rtol=1e-4, atol=1e-5 * wanted.std())


@pytest.mark.parametrize("name", ["resnet18", "resnet50"])
def test_resnet_beside_torch(name, torch, seed):
    state = made_state(torch, on_meta(name, num_classes=7), seed)
    x = torch.randn(2, 3, 40, 33, generator=torch.Generator().manual_seed(seed))
    model = on_meta(name, num_classes=7)
    own = loaded(torch, {"state": state, "x": x})
    assert (
        str(model.load_state_dict(own["state"], assign=True)) == "<All keys matched successfully>"
    )
    with minigrad.no_grad():
        close(model.eval()(own["x"]), torch_resnet(torch, state, x))


SPECS = {
    "vgg11": [(1, 1, p and (2,)) for p in (1, 1, 0, 1, 0, 1, 0, 1)],
    "vgg16": [(1, 1, p and (2,)) for p in (0, 1, 0, 1, 0, 0, 1, 0, 0, 1, 0, 0, 1)],
    "alexnet": [(4, 2, (3, 2)), (1, 2, (3, 2)), (1, 1, ()), (1, 1, ()), (1, 1, (3, 2))],
}


@pytest.mark.parametrize("name", SPECS)
def test_features_with_a_new_head_beside_torch(name, torch, seed):
    """The three linear layers, most of the parameters, are replaced as programs do; the file's are
    then unexpected, and the new one's missing."""
    model = on_meta(name)
    size = 6 if name == "alexnet" else 7
    file = {f"features.{k}": v for k, v in made_state(torch, model.features, seed).items()}
    file["classifier.0.bias"] = torch.zeros(3)
    head = torch.randn(5, (256 if name == "alexnet" else 512) * size**2) / 100
    x = torch.randn(2, 3, 67, 70, generator=torch.Generator().manual_seed(seed))
    own = loaded(torch, {"state": file, "x": x, "head": head})
    model.classifier = nn.Linear(head.shape[1], 5, bias=False)
    with pytest.raises(
        RuntimeError, match=r'Missing key.*"classifier.weight"(?s:.*)classifier.0.b'
    ):
        model.load_state_dict(own["state"])
    keys = model.load_state_dict(own["state"], strict=False, assign=True)
    assert keys.missing_keys == ["classifier.weight"]
    assert keys.unexpected_keys == ["classifier.0.bias"]
    with minigrad.no_grad():
        model.classifier.weight.copy_(own["head"])
        state = {**file, "head.weight": head}
        close(model.eval()(own["x"]), torch_features(torch, state, x, SPECS[name], size))


def torch_gpt2(torch, state, tokens, heads):
    """GPT-2 by torch's functions; state without a prefix."""
    F = torch.nn.functional
    width = state["wte.weight"].shape[1]

    def norm(x, name):
        return F.layer_norm(x, (width,), state[f"{name}.weight"], state[f"{name}.bias"])

    def linear(x, name):
        return x @ state[f"{name}.weight"] + state[f"{name}.bias"]

    x = state["wte.weight"][tokens] + state["wpe.weight"][: tokens.shape[1]]
    for block in dict.fromkeys(name.rsplit(".", 2)[0] for name in state if ".ln_1." in name):
        parts = linear(norm(x, f"{block}.ln_1"), f"{block}.attn.c_attn").split(width, 2)
        q, k, v = (p.unflatten(2, (heads, -1)).transpose(1, 2) for p in parts)
        scores = q @ k.mT / math.sqrt(width // heads)
        hidden = torch.ones(scores.shape[-2:]).triu(1).bool()
        y = (scores.masked_fill(hidden, -math.inf).softmax(-1) @ v).transpose(1, 2).flatten(2)
        x = x + linear(y, f"{block}.attn.c_proj")
        y = F.gelu(linear(norm(x, f"{block}.ln_2"), f"{block}.mlp.c_fc"), approximate="tanh")
        x = x + linear(y, f"{block}.mlp.c_proj")
    return norm(x, "ln_f") @ state["wte.weight"].T


@pytest.mark.parametrize("form", ["bare", "prefixed", "old"])
def test_gpt2_beside_torch(form, torch, seed, tmp_path):
    """The files that are about: without a prefix; with it and the head; with masks as well."""
    config = SMALL | {"n_layer": 2}
    model = models.GPT2LMHeadModel(models.GPT2Config(**config)).eval()
    state = made_state(torch, model.transformer, seed)
    tokens = torch.randint(0, 11, (3, 7), generator=torch.Generator().manual_seed(seed))
    wanted = torch_gpt2(torch, state, tokens, 2)
    file = dict(state) if form == "bare" else {f"transformer.{k}": v for k, v in state.items()}
    if form != "bare":
        file["lm_head.weight"] = state["wte.weight"].clone()
    if form == "old":
        for i in range(2):
            mask = torch.ones(7, 7).tril().view(1, 1, 7, 7)
            file[f"transformer.h.{i}.attn.bias"] = mask
            file[f"transformer.h.{i}.attn.masked_bias"] = torch.tensor(-1e4)
    own = loaded(torch, {"state": file, "tokens": tokens})
    assert str(model.load_state_dict(own["state"])) == "<All keys matched successfully>"
    close(model(own["tokens"]), wanted)
    assert model.lm_head.weight is model.transformer.wte.weight
    body = models.GPT2Model(models.GPT2Config(**config)).eval()
    body.load_state_dict(own["state"])
    assert minigrad.equal(body(own["tokens"]), model.transformer(own["tokens"]))
    (tmp_path / "config.json").write_text(json.dumps(config | {"activation_function": "gelu_new"}))
    if form == "old":
        torch.save(file, tmp_path / "pytorch_model.bin")
    else:
        minigrad.safetensors.save_file(own["state"], tmp_path / "model.safetensors")
    again = models.GPT2LMHeadModel.from_pretrained(tmp_path)
    assert minigrad.equal(again(own["tokens"]), model(own["tokens"]))


def test_gpt2_reports_what_does_not_fit(tmp_path):
    model = models.GPT2LMHeadModel(models.GPT2Config(**SMALL))
    state = {name: value for name, value in model.state_dict().items() if "c_fc" not in name}
    state |= {"transformer.h.1.ln_1.bias": minigrad.zeros(8), "extra": minigrad.zeros(1)}
    keys = model.load_state_dict(state, strict=False)
    assert keys.missing_keys == [f"transformer.h.0.mlp.c_fc.{part}" for part in ("weight", "bias")]
    assert sorted(keys.unexpected_keys) == ["extra", "transformer.h.1.ln_1.bias"]
    state = model.state_dict() | {"transformer.wpe.weight": minigrad.zeros(6, 8)}
    with pytest.raises(RuntimeError, match=r"size mismatch for transformer.wpe.weight"):
        model.load_state_dict(state)
    with pytest.raises(ValueError, match="at most 7 tokens"):
        model(minigrad.zeros(1, 8, dtype=minigrad.int64))
    with pytest.raises(ValueError, match="multiple of n_head"):
        models.GPT2Config(n_embd=10, n_head=4)
    with pytest.raises(FileNotFoundError, match=r"config.json; expected a folder"):
        models.GPT2LMHeadModel.from_pretrained(tmp_path)
    (tmp_path / "config.json").write_text('{"activation_function": "relu"}')
    with pytest.raises(ValueError, match="expected the activation gelu_new, got relu"):
        models.GPT2LMHeadModel.from_pretrained(tmp_path)


# ------------------------------------------------------------------------ sequences


def test_generation():
    minigrad.manual_seed(0)
    gpt2 = models.GPT2LMHeadModel(models.GPT2Config(**SMALL)).eval()
    rnn = models.CharRNN(11, 8, rnn="gru").eval()
    prompt = minigrad.tensor([[1, 2], [3, 4]])
    for model in (gpt2, rnn):
        text = model.generate(prompt, 9, temperature=0)
        assert text.shape == (2, 11) and minigrad.equal(text[:, :2], prompt)
        by_hand = prompt
        for _ in range(4):
            scores = model(by_hand)
            scores = scores[0] if isinstance(scores, tuple) else scores
            by_hand = minigrad.cat([by_hand, scores[:, -1].argmax(-1, keepdim=True)], 1)
        assert minigrad.equal(text[:, :6], by_hand)
        assert minigrad.equal(model.generate(prompt, 5, top_k=1), text[:, :7])
        seen = model.generate(prompt.repeat(50, 1), 4, temperature=2.0, top_k=3)
        assert len(seen.unique()) > 3
    with pytest.raises(ValueError, match="temperature of at least 0"):
        gpt2.generate(prompt, 1, -1.0)
    with pytest.raises(ValueError, match=r"one of \['rnn', 'lstm', 'gru'\], got 'elman'"):
        models.CharRNN(4, rnn="elman")


@pytest.mark.parametrize("kind", ["rnn", "lstm", "gru"])
def test_char_rnn_learns_a_text(kind):
    minigrad.manual_seed(1)
    text = minigrad.tensor([[0, 1, 2, 3, 2, 1] * 4])
    model = models.CharRNN(4, 16, 1, kind)
    optimizer = minigrad.optim.Adam(model.parameters(), lr=0.03)
    for _ in range(40):
        scores, _ = model(text[:, :-1])
        loss = nn.functional.cross_entropy(scores.flatten(0, 1), text[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert model.generate(text[:, :7], 11, temperature=0).tolist() == [text[0, :18].tolist()]


@pytest.mark.parametrize("size", [28, 32])
def test_lenet_beside_torch(size, torch, seed):
    """With torch's layers in a row: the same parameters in the same order."""
    layers = torch.nn
    pad = (32 - size) // 2
    other = layers.Sequential(
        *(layers.Conv2d(2, 6, 5, padding=pad), layers.ReLU(), layers.MaxPool2d(2)),
        *(layers.Conv2d(6, 16, 5), layers.ReLU(), layers.MaxPool2d(2), layers.Flatten()),
        *(layers.Linear(400, 120), layers.ReLU(), layers.Linear(120, 84), layers.ReLU()),
        layers.Linear(84, 10),
    )
    x = torch.randn(3, 2, size, size, generator=torch.Generator().manual_seed(seed))
    own = loaded(torch, {"state": other.state_dict(), "x": x})
    model = models.LeNet(in_channels=2, size=size)
    model.load_state_dict(dict(zip(model.state_dict(), own["state"].values(), strict=True)))
    close(model(own["x"]), other(x).detach())
    with pytest.raises(ValueError, match="size 28 or 32, got 30"):
        models.LeNet(size=30)


# ------------------------------------------------------------------------ transfer, downloads


def test_a_frozen_network_with_a_new_head_trains_its_head_only(rng):
    minigrad.manual_seed(0)
    model = models.ResNet(models.BasicBlock, (1, 1, 1, 1), num_classes=10)
    file = {k: v.clone() for k, v in model.state_dict().items()}
    for parameter in model.parameters():
        parameter.requires_grad = False
    model.fc = nn.Linear(model.fc.in_features, 3)
    optimizer = minigrad.optim.SGD(model.fc.parameters(), lr=0.1)
    model.eval()  # the running means stay as well
    x = minigrad.from_numpy(rng.normal(size=(4, 3, 32, 32)).astype(np.float32))
    before = model.fc.weight.detach().clone()
    nn.functional.cross_entropy(model(x), minigrad.tensor([0, 1, 2, 1])).backward()
    optimizer.step()
    assert not minigrad.equal(model.fc.weight, before)
    changed = [k for k, v in model.state_dict().items() if k[:3] != "fc." and not v.equal(file[k])]
    assert changed == [] and all(p.grad is None for p in model.layer1.parameters())


def test_initial_weights():
    """Deviations as torchvision draws them."""
    minigrad.manual_seed(0)
    model = models.ResNet(models.Bottleneck, (1, 1, 1, 1), zero_init_residual=True)
    weight = model.layer2[0].conv2.weight
    assert weight.std().item() == pytest.approx(math.sqrt(2 / (128 * 9)), rel=0.02)
    assert model.layer3[0].bn3.weight.abs().max().item() == 0
    assert model.layer3[0].bn2.weight.min().item() == 1
    with minigrad.device("meta"):
        vgg = models.VGG(nn.Identity(), num_classes=2, init_weights=False)
    vgg.features, vgg.classifier = nn.Sequential(nn.Conv2d(3, 64, 3)), nn.Linear(400, 300)
    vgg.apply(models.vgg16.__globals__["_initialise"])
    assert vgg.classifier.weight.std().item() == pytest.approx(0.01, rel=0.02)
    assert vgg.features[0].weight.std().item() == pytest.approx(math.sqrt(2 / (64 * 9)), rel=0.1)
    with pytest.raises(ValueError, match="groups=1"):
        models.ResNet(models.BasicBlock, (1, 1, 1, 1), groups=2)


def test_published_weights(monkeypatch, tmp_path):
    """Read from the folder of downloads; offline the error names it."""
    kinds = models.ResNet50_Weights
    assert kinds.DEFAULT is kinds.IMAGENET1K_V2
    assert kinds.DEFAULT.url.endswith("/models/resnet50-11ad3fa6.pth")
    monkeypatch.setenv("MINIGRAD_CACHE_DIR", str(tmp_path))

    def offline(*args, **kwargs):
        raise OSError("no route to host")

    monkeypatch.setattr(hub, "download_url_to_file", offline)
    small = models.ResNet(models.BasicBlock, (1, 1, 1, 1))
    monkeypatch.setattr("minigrad.models.resnet.ResNet", lambda *a, **k: small)
    with pytest.raises(RuntimeError, match=r"no route to host(?s:.*)copy the file.*checkpoints"):
        models.resnet18(weights="DEFAULT")
    file = {k: v + 1 for k, v in small.state_dict().items()}
    minigrad.save(file, tmp_path / "hub" / "checkpoints" / "resnet18-f37072fd.pth")
    for options in (
        {"weights": models.ResNet18_Weights.DEFAULT},
        {"weights": "IMAGENET1K_V1"},
        {"weights": "ResNet18_Weights.DEFAULT"},
        {"pretrained": True},
    ):
        small.conv1.weight.data.zero_()
        model = models.resnet18(**options)
        assert all(v.equal(file[k]) for k, v in model.state_dict().items())
    for options, error, text in (
        ({"weights": "IMAGENET22K"}, ValueError, "expected one of .*'DEFAULT'.*got 'IMAGENET22K'"),
        ({"weights": kinds.DEFAULT}, TypeError, "expected ResNet18_Weights or None, got"),
        ({"weights": "DEFAULT", "num_classes": 3}, ValueError, "'num_classes' expected value 1000"),
    ):
        with pytest.raises(error, match=text):
            models.resnet18(**options)


def test_models_by_name():
    assert "vgg16_bn" in models.list_models() and len(models.list_models()) == 14
    with pytest.raises(ValueError, match="did you mean 'resnet18'"):
        models.get_model("resnet_18")
    with pytest.raises(AttributeError, match="did you mean 'resnet18'"):
        _ = models.resnet81
