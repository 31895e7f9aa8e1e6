"""The networks and operations that `benchmarks.training` times, each for minigrad and for torch.

A case makes, from a library (`minigrad` or `torch`), a model and a function that does one step and
returns a loss or another number to compare. Random data is the same for both. All of it is on the
library's default device.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from minigrad.commands import models

# A benchmark repeats its step thousands of times on one batch. With a usual learning rate the loss
# vanishes meanwhile, units die, and after some 800 steps the moments of Adam are subnormal numbers,
# which take a processor several times longer: whoever takes more steps would look slower.
RATE = 1e-7


class Case(NamedTuple):
    """make(library) -> (the model or None, the step)."""

    name: str
    make: Callable[[ModuleType], tuple[Any, Callable]]


def normal(library: ModuleType, *shape: int, seed: int = 0):
    """A tensor of normally distributed float32, the same for every library."""
    values = np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)
    return library.from_numpy(values).to(library.get_default_device())


def labels(library: ModuleType, *shape: int, classes: int = 10):
    values = np.random.default_rng(1).integers(0, classes, shape)
    return library.from_numpy(values).to(library.get_default_device())


def supervised(build: Callable, shape: tuple[int, ...], optimizer: str = "Adam") -> Callable:
    """A step of a classifier: zero_grad, forward, cross entropy, backward, update."""

    def make(library: ModuleType):
        model = build(library)
        update = getattr(library.optim, optimizer)(model.parameters(), lr=RATE)
        x, y = normal(library, *shape), labels(library, shape[0])
        loss_of = library.nn.functional.cross_entropy

        def step():
            update.zero_grad()
            loss = loss_of(model(x), y)
            loss.backward()
            update.step()
            return loss

        return model, step

    return make


def deep_mlp(library: ModuleType):
    """50 layers, initialised so that their gradients do not vanish (K. He et al., 2015)."""
    nn = library.nn
    layers = []
    for _ in range(49):
        layers += [nn.Linear(64, 64), nn.ReLU()]
        nn.init.kaiming_normal_(layers[-2].weight, nonlinearity="relu")
    return nn.Sequential(*layers, nn.Linear(64, 10))


def linear(library: ModuleType):
    model = library.nn.Linear(10, 1)
    update = library.optim.SGD(model.parameters(), lr=RATE)
    x, y = normal(library, 32, 10), normal(library, 32, 1, seed=1)
    mse_loss = library.nn.functional.mse_loss

    def step():
        update.zero_grad()
        loss = mse_loss(model(x), y)
        loss.backward()
        update.step()
        return loss

    return model, step


def dcgan(library: ModuleType):
    """One step of both networks of a DCGAN (A. Radford et al., 2015) on 32 images of 32 x 32."""
    nn = library.nn

    def up(channels, out, stride, padding):
        return nn.ConvTranspose2d(channels, out, 4, stride, padding, bias=False)

    def down(channels, out, stride=2, padding=1):
        return nn.Conv2d(channels, out, 4, stride, padding, bias=False)

    generator = nn.Sequential(
        *(up(64, 128, 1, 0), nn.BatchNorm2d(128), nn.ReLU()),
        *(up(128, 64, 2, 1), nn.BatchNorm2d(64), nn.ReLU()),
        *(up(64, 32, 2, 1), nn.BatchNorm2d(32), nn.ReLU()),
        *(up(32, 1, 2, 1), nn.Tanh()),
    )
    discriminator = nn.Sequential(
        *(down(1, 32), nn.LeakyReLU(0.2)),
        *(down(32, 64), nn.BatchNorm2d(64), nn.LeakyReLU(0.2)),
        *(down(64, 128), nn.BatchNorm2d(128), nn.LeakyReLU(0.2)),
        *(down(128, 1, 1, 0), nn.Flatten()),
    )
    loss_of = nn.BCEWithLogitsLoss()
    updates = [
        library.optim.Adam(model.parameters(), lr=RATE, betas=(0.5, 0.999))
        for model in (generator, discriminator)
    ]
    real, noise = normal(library, 32, 1, 32, 32), normal(library, 32, 64, 1, 1, seed=1)
    ones, zeros = library.ones(32, 1), library.zeros(32, 1)

    def step():
        fake = generator(noise)
        updates[1].zero_grad()
        loss = loss_of(discriminator(real), ones) + loss_of(discriminator(fake.detach()), zeros)
        loss.backward()
        updates[1].step()
        updates[0].zero_grad()
        loss = loss_of(discriminator(fake), ones)
        loss.backward()
        updates[0].step()
        return loss

    return nn.ModuleList([generator, discriminator]), step


def recurrent(layer: str, length: int = 20, size: int = 64) -> Callable:
    """A step on a batch of 32 sequences, by `nn.LSTM` or by a cell written with linear layers."""

    def make(library: ModuleType):
        nn = library.nn

        class Cell(nn.Module):
            """An LSTM of elementary operations."""

            def __init__(self):
                super().__init__()
                self.x, self.h = nn.Linear(size, 4 * size), nn.Linear(size, 4 * size)

            def forward(self, inputs):
                h = c = library.zeros(inputs.shape[0], size)
                states = []
                for t in range(inputs.shape[1]):
                    gates = (self.x(inputs[:, t]) + self.h(h)).chunk(4, 1)
                    i, f, o = (gate.sigmoid() for gate in gates[:3])
                    c = f * c + i * gates[3].tanh()
                    h = o * c.tanh()
                    states.append(h)
                return library.stack(states, 1), (h, c)

        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.lstm = Cell() if layer == "cell" else nn.LSTM(size, size, batch_first=True)
                self.head = nn.Linear(size, 10)

            def forward(self, inputs):
                return self.head(self.lstm(inputs)[0][:, -1])

        return supervised(lambda _: Model(), (32, length, size))(library)

    return make


def ode(library: ModuleType):
    """A neural ODE (R. Chen et al., 2018): 20 steps of Runge-Kutta through a network of width 64,
    and gradients through them."""
    nn = library.nn
    field = nn.Sequential(nn.Linear(2, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh())
    field.append(nn.Linear(64, 2))
    update = library.optim.Adam(field.parameters(), lr=RATE)
    start, target, h = normal(library, 64, 2), normal(library, 64, 2, seed=1), 0.05

    def step():
        y = start
        for _ in range(20):
            k1 = field(y)
            k2 = field(y + h / 2 * k1)
            k3 = field(y + h / 2 * k2)
            k4 = field(y + h * k3)
            y = y + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        loss = ((y - target) ** 2).mean()
        update.zero_grad()
        loss.backward()
        update.step()
        return loss

    return field, step


def gpt_model(library: ModuleType, vocabulary: int = 28, block: int = 32, width: int = 64):
    """A GPT of two blocks and four heads, as `minigrad.examples.gpt`."""
    nn, functional, heads = library.nn, library.nn.functional, 4

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.mlp = nn.Sequential(
                nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
            )

        def forward(self, x):
            n, t, _ = x.shape
            parts = self.qkv(self.ln1(x)).view(n, t, 3, heads, width // heads)
            q, k, v = parts.permute(2, 0, 3, 1, 4)
            y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.proj(y.transpose(1, 2).reshape(n, t, width))
            return x + self.mlp(self.ln2(x))

    class GPT(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens, self.places = (nn.Embedding(n, width) for n in (vocabulary, block))
            self.blocks = nn.Sequential(Block(), Block())
            self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary)

        def forward(self, index):
            places = library.arange(index.shape[1])
            return self.head(self.norm(self.blocks(self.tokens(index) + self.places(places))))

    return GPT()


def gpt_training(library: ModuleType):
    model = gpt_model(library)
    update = library.optim.AdamW(model.parameters(), lr=RATE)
    x, y = labels(library, 16, 32, classes=28), labels(library, 16 * 32, classes=28)
    loss_of = library.nn.functional.cross_entropy

    def step():
        update.zero_grad()
        loss = loss_of(model(x).flatten(0, 1), y)
        loss.backward()
        update.step()
        return loss

    return model, step


def gpt_sampling(library: ModuleType):
    """The likeliest next character, 16 times."""
    model = gpt_model(library)
    start = labels(library, 1, 4, classes=28)

    def step():
        index = start
        with library.no_grad():
            for _ in range(16):
                scores = model(index[:, -32:])[:, -1].softmax(-1)
                index = library.cat([index, scores.argmax(-1, keepdim=True)], 1)
        return scores.max()

    return model, step


def layer(build: Callable, *shape: int) -> Callable:
    """Forward and backward of a layer, with respect to its input and its parameters."""

    def make(library: ModuleType):
        model = build(library.nn)
        x = normal(library, *shape).requires_grad_()
        with library.no_grad():
            g = normal(library, *model(x).shape, seed=1)

        def step():
            x.grad = None
            model.zero_grad()
            y = model(x)
            y.backward(g)
            return x.grad[0, 0].sum() if step.checked else y

        step.checked = True  # the sum is only taken where it is compared
        return model, step

    return make


def attention(library: ModuleType):
    """Causal attention of 4 heads of 32 on 128 places, forward and backward."""
    q, k, v, g = (normal(library, 4, 4, 128, 32, seed=i) for i in range(4))
    for x in (q, k, v):
        x.requires_grad_()
    function = library.nn.functional.scaled_dot_product_attention

    def step():
        q.grad = k.grad = v.grad = None
        y = function(q, k, v, is_causal=True)
        y.backward(g)
        return q.grad.sum() if step.checked else y

    step.checked = True
    return None, step


def small_add(library: ModuleType):
    a, b = normal(library, 4), normal(library, 4, seed=1)
    return None, lambda: a + b


def small_backward(library: ModuleType):
    a = normal(library, 4).requires_grad_()

    def step():
        a.grad = None
        loss = (a * a).sum()
        loss.backward()
        return loss

    return None, step


def images(build: Callable, size: int) -> Callable:
    return lambda library: build(library.nn, 1, size, size)


def bottleneck(library: ModuleType, given: int, outs: int, stride: int):
    """A residual block of ResNet-50 (He et al., 2015, figure 5)."""
    nn, between = library.nn, outs // 4

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            sizes = ((given, between, 1, 1), (between, between, 3, stride), (between, outs, 1, 1))
            self.convs = nn.ModuleList(
                [nn.Conv2d(a, b, k, s, k // 2, bias=False) for a, b, k, s in sizes]
            )
            self.norms = nn.ModuleList([nn.BatchNorm2d(b) for _, b, _, _ in sizes])
            changed = given != outs or stride > 1
            self.short = nn.Conv2d(given, outs, 1, stride, bias=False) if changed else nn.Identity()

        def forward(self, x):
            y = x
            for conv, norm in zip(self.convs[:2], self.norms[:2]):
                y = library.relu(norm(conv(y)))
            return library.relu(self.norms[2](self.convs[2](y)) + self.short(x))

    return Block()


def resnet50(library: ModuleType):
    nn = library.nn
    layers = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU()]
    layers.append(nn.MaxPool2d(3, 2, 1))
    given = 64
    for outs, blocks, stride in ((256, 3, 1), (512, 4, 2), (1024, 6, 2), (2048, 3, 2)):
        for i in range(blocks):
            layers.append(bottleneck(library, given, outs, stride if i == 0 else 1))
            given = outs
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, 1000))


def vgg(library: ModuleType):
    """The convolutions of a VGG for 32 x 32 pixels, each with a batch norm."""
    nn = library.nn
    layers, given = [], 3
    for outs in (64, 128, 256):
        for read in (given, outs):
            layers += [nn.Conv2d(read, outs, 3, padding=1), nn.BatchNorm2d(outs), nn.ReLU()]
        layers.append(nn.MaxPool2d(2))
        given = outs
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(256 * 4 * 4, 10))


def gpt2_mlp(library: ModuleType):
    """The two layers of a block of GPT-2, small."""
    nn = library.nn
    return nn.Sequential(nn.LayerNorm(768), nn.Linear(768, 3072), nn.GELU(), nn.Linear(3072, 768))


def inference(build: Callable, *shape: int) -> Callable:
    """A prediction without gradients, of few samples."""

    def make(library: ModuleType):
        model = build(library).eval()
        x = normal(library, *shape)

        @library.no_grad()
        def step():
            return model(x)

        return model, step

    return make


CASES = [
    Case("cnn 28x28, batch 32", supervised(images(models.cnn, 28), (32, 1, 28, 28))),
    Case("cnn 28x28, batch 256", supervised(images(models.cnn, 28), (256, 1, 28, 28))),
    # the size of `minigrad train`'s digits; small planes use other versions than large ones
    Case("cnn 8x8, batch 64", supervised(images(models.cnn, 8), (64, 1, 8, 8))),
    Case("mlp 784-512-256-10, batch 128", supervised(images(models.mlp, 28), (128, 1, 28, 28))),
    Case("linear 10-1, batch 32", linear),
    Case("mlp of 50 layers of 64, batch 64", supervised(deep_mlp, (64, 64))),
    Case("dcgan 32x32, batch 32", dcgan),
    Case("lstm(64), 32 x 20", recurrent("lstm")),
    Case("hand-written lstm(64), 32 x 20", recurrent("cell")),
    Case("neural ode, 20 steps of RK4", ode),
    Case("gpt, training", gpt_training),
    Case("gpt, sampling", gpt_sampling),
    Case("vgg 32x32, batch 16", supervised(vgg, (16, 3, 32, 32))),
    Case("resnet50, 4 images of 64x64, training", supervised(resnet50, (4, 3, 64, 64), "SGD")),
    Case("resnet50, one image of 224x224", inference(resnet50, 1, 3, 224, 224)),
    Case("resnet50, 4 images of 112x112", inference(resnet50, 4, 3, 112, 112)),
    Case("mlp of gpt-2, 1 token", inference(gpt2_mlp, 1, 1, 768)),
    Case("mlp of gpt-2, 8 tokens", inference(gpt2_mlp, 1, 8, 768)),
    Case(
        "ConvTranspose2d 64-32 k4 s2, 16x16",
        layer(lambda nn: nn.ConvTranspose2d(64, 32, 4, 2, 1), 32, 64, 16, 16),
    ),
    Case(
        "Conv2d 64-128 k4 s2, 4x4",
        layer(lambda nn: nn.Conv2d(64, 128, 4, 2, 1), 32, 64, 4, 4),
    ),
    Case("softmax, 64x64x64", layer(lambda nn: nn.Softmax(-1), 64, 64, 64)),
    Case("layer norm, 512x256", layer(lambda nn: nn.LayerNorm(256), 512, 256)),
    Case("attention, 4x4x128x32", attention),
    Case("a + b, 4 elements", small_add),
    Case("(a * a).sum().backward()", small_backward),
]
