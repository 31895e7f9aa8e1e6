"""Programs from the READMEs of public packages for torch, run on torch and on minigrad.

    pip install --no-deps --target FOLDER einops vit-pytorch x-transformers
    python -m benchmarks.readme_programs FOLDER vit-pytorch x-transformers

needs torch. Each Python block of a package's description runs in two processes: with torch, and
with minigrad in its place. A block is comparable if torch runs it. Sizes are made smaller, dropout
is off, and both draw random numbers from NumPy. For each outermost call of a Module, minigrad's
gets the parameters and the inputs that torch's had; outputs and the gradients of all parameters are
compared. Prints a line for each difference, and for each package how many blocks agree.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import importlib.util
import io
import os
import pickle
import random
import re
import resource
import signal
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np

SECONDS = 60  # for a block
MEMORY = 10 << 30  # bytes, of torch's process
TOLERANCE = {"float32": 2e-3, "float64": 1e-7}  # of the largest value
SMALLER = {20000: 256, 10000: 256, 8192: 128, 4096: 128, 2048: 128, 1024: 64, 768: 64, 512: 64,
           1000: 10, 50257: 256}  # fmt: skip


def blocks(package: str, folder: str) -> list[str]:
    """The Python programs in a package's description."""
    found = next(
        d for d in importlib.metadata.distributions(path=[folder])
        if d.metadata["Name"].lower().replace("_", "-") == package.lower().replace("_", "-")
    )  # fmt: skip
    text = found.metadata.get_payload() or found.metadata["Description"] or ""
    return [smaller(b) for b in re.findall(r"```(?:python|py)\s*\n(.*?)```", text, re.DOTALL)]


def smaller(source: str) -> str:
    """The program with fewer features, classes and layers, on the CPU, without downloads."""
    source = re.sub(r"(?<![\w.])\d+(?![\w.])", lambda m: str(SMALLER.get(int(m[0]), m[0])), source)
    source = re.sub(r"(depth\s*=\s*)(\d+)", lambda m: m[1] + str(min(2, int(m[2]))), source)
    return re.sub(r"pretrained\s*=\s*True", "pretrained=False", source).replace(".cuda()", "")


class Session:
    """One process's torch, with random numbers of NumPy, no dropout, and calls that are watched."""

    def __init__(self, torch: Any, dtype: str, records: list | None) -> None:
        self.torch, self.dtype = torch, np.dtype(dtype)
        self.records, self.wanted = [], records  # of this block; those of torch, None in its role
        self.problems: list[str] = []
        self.inside = False
        self.draw = np.random.default_rng(0)
        torch.set_default_dtype(getattr(torch, dtype))
        self._patch_random_numbers()
        self._patch_modules()

    def _patch_random_numbers(self) -> None:
        torch = self.torch

        def made(values: Any, dtype: Any = None, requires_grad: bool = False, **_: Any) -> Any:
            tensor = torch.from_numpy(np.array(values))
            tensor = tensor if dtype is None else tensor.to(dtype)
            return tensor.requires_grad_() if requires_grad else tensor

        def shape(size: tuple) -> tuple:
            given = size[0] if len(size) == 1 and not isinstance(size[0], int) else size
            return tuple(int(n) for n in given)

        def randn(*size: Any, **named: Any) -> Any:
            size = (named.pop("size"),) if "size" in named else size
            return made(self.draw.standard_normal(shape(size)).astype(self.dtype), **named)

        def rand(*size: Any, **named: Any) -> Any:
            size = (named.pop("size"),) if "size" in named else size
            return made(self.draw.random(shape(size)).astype(self.dtype), **named)

        def randint(low: int, high: Any = None, size: Any = None, **named: Any) -> Any:
            if not isinstance(high, int):
                low, high, size = 0, low, high if size is None else size
            return made(self.draw.integers(low, high, tuple(size)), **named)

        def like(draw: Any) -> Any:
            return lambda x, dtype=None, **_: draw(*x.shape, dtype=dtype or x.dtype)

        def fill(draw: Any, scale: Any) -> Any:
            def method(self: Any, a: float = 0, b: float = 1, **_: Any) -> Any:
                with torch.no_grad():
                    return self.copy_(scale(draw(*self.shape, dtype=self.dtype), a, b))

            return method

        torch.randn, torch.rand, torch.randint = randn, rand, randint
        torch.randn_like, torch.rand_like = like(randn), like(rand)
        torch.randperm = lambda n, **named: made(self.draw.permutation(n))
        torch.Tensor.normal_ = fill(randn, lambda x, mean, std: x * std + mean)
        torch.Tensor.uniform_ = fill(rand, lambda x, low, high: x * (high - low) + low)

    def _patch_modules(self) -> None:
        nn = self.torch.nn
        attention, plain = nn.functional.scaled_dot_product_attention, nn.Module.__call__
        nn.functional.dropout = lambda x, *_, **__: x
        nn.Dropout.forward = lambda module, x: x
        nn.functional.scaled_dot_product_attention = lambda *args, dropout_p=0.0, **named: (
            attention(*args, **named)
        )

        def call(module: Any, *args: Any, **named: Any) -> Any:
            if self.inside:
                return plain(module, *args, **named)
            self.inside = True
            try:
                return self._watched(lambda *a, **n: plain(module, *a, **n), module, args, named)
            finally:
                self.inside = False

        nn.Module.__call__ = call

    def _watched(self, call: Any, module: Any, args: tuple, named: dict) -> Any:
        number = len(self.records)
        record = {
            "state": {name: self.array(x) for name, x in self.state(module)},
            "arguments": [self.array(x) for x in self.leaves((args, named))],
        }
        if self.wanted is not None:
            wanted = self.wanted[number]
            self.load(module, wanted["state"])
            args, named = self.refilled((args, named), iter(wanted["arguments"]))
        self.draw = np.random.default_rng(number + 1)
        random.seed(number)
        result = call(*args, **named)
        record["outputs"] = [self.array(x) for x in self.leaves(result)]
        record["gradients"] = self.gradients(module, result)
        self.records.append(record)
        if self.wanted is not None:
            self.compare(type(module).__name__, record, wanted)
        return result

    def array(self, tensor: Any) -> np.ndarray:
        tensor = tensor.detach()
        return np.array(tensor.float() if str(tensor.dtype).endswith("bfloat16") else tensor)

    def leaves(self, tree: Any) -> list:
        """The tensors in nested containers."""
        if isinstance(tree, self.torch.Tensor):
            return [tree]
        if isinstance(tree, dict):
            tree = tuple(tree.values())
        return (
            [x for part in tree for x in self.leaves(part)]
            if isinstance(tree, tuple | list)
            else []
        )

    def refilled(self, tree: Any, arrays: Any) -> Any:
        """The containers with the values of other tensors."""
        if isinstance(tree, self.torch.Tensor):
            tensor = self.torch.from_numpy(next(arrays).copy()).to(tree.dtype)
            return tensor.requires_grad_(tree.requires_grad) if tree.is_floating_point() else tensor
        if isinstance(tree, dict):
            return {key: self.refilled(value, arrays) for key, value in tree.items()}
        if type(tree) in (tuple, list):
            return type(tree)(self.refilled(value, arrays) for value in tree)
        return tree

    def state(self, module: Any) -> list:
        return [(k, v) for k, v in module.state_dict().items() if isinstance(v, self.torch.Tensor)]

    def load(self, module: Any, state: dict) -> None:
        own = dict(self.state(module))
        if own.keys() != state.keys():
            self.problems.append(f"state_dict differs in {sorted(own.keys() ^ state.keys())[:4]}")
        with self.torch.no_grad():
            for name in own.keys() & state.keys():
                own[name].copy_(self.torch.from_numpy(state[name].copy()))

    def gradients(self, module: Any, result: Any) -> dict[str, Any]:
        """Of a weighted sum of all outputs, with respect to each parameter; None for none."""
        torch = self.torch
        outputs = [x for x in self.leaves(result) if x.is_floating_point() and x.requires_grad]
        pairs = [(n, p) for n, p in module.named_parameters() if p.requires_grad]
        if not outputs or not pairs or not torch.is_grad_enabled():
            return {}
        total = sum(
            (x * torch.from_numpy(np.cos(np.arange(x.numel()))).to(x.dtype).reshape(x.shape)).sum()
            for x in outputs
        )
        found = torch.autograd.grad(
            total, [p for _, p in pairs], allow_unused=True, retain_graph=True
        )
        return {n: None if g is None else self.array(g) for (n, _), g in zip(pairs, found)}

    def compare(self, name: str, mine: dict, theirs: dict) -> None:
        for i, pair in enumerate(zip(mine["outputs"], theirs["outputs"], strict=True)):
            self.near(f"{name}: output {i}", *pair)
        for parameter, gradient in theirs["gradients"].items():
            own = mine["gradients"].get(parameter)
            if own is not None and gradient is not None:
                self.near(f"{name}: gradient of {parameter}", own, gradient)
            elif any(g is not None and np.any(g) for g in (own, gradient)):
                self.problems.append(f"{name}: gradient of {parameter} is missing in one")

    def near(self, what: str, a: np.ndarray, b: np.ndarray) -> None:
        if a.shape != b.shape or a.dtype.kind != b.dtype.kind:
            self.problems.append(f"{what}: {a.dtype} {a.shape} instead of {b.dtype} {b.shape}")
        elif a.dtype.kind in "biu":
            if count := np.count_nonzero(a != b):
                self.problems.append(f"{what}: {count} of {a.size} differ")
        else:
            scale = max(np.abs(b[np.isfinite(b)]).max(initial=0), 1e-3)
            limit = TOLERANCE[self.dtype.name] * scale
            if not np.allclose(a, b, rtol=0, atol=limit, equal_nan=True):
                self.problems.append(
                    f"{what}: {np.nanmax(np.abs(a - b)):.2g} apart, of {scale:.2g}"
                )


def run(source: str, names: dict) -> Exception | None:
    """Runs a program; names of earlier ones are its own where it needs them."""
    failed: Exception | None = None
    quiet = io.StringIO()
    for start in ({}, names):
        here = dict(start)
        signal.alarm(SECONDS)
        try:
            with contextlib.redirect_stdout(quiet), contextlib.redirect_stderr(quiet):
                exec(compile(source, "<program>", "exec"), here)
        except NameError as error:
            failed = error
            continue
        except Exception as error:
            return error
        except SystemExit as error:
            return RuntimeError(f"SystemExit: {error}")
        finally:
            signal.alarm(0)
        names.clear()
        names.update(here)
        return None
    return failed


def child(role: str, folder: str, package: str, dtype: str, kept: Path) -> None:
    """One package in one process: torch's keeps a file for each block, minigrad's reads them."""
    if role == "minigrad":
        import minigrad

        minigrad.as_torch()
    else:  # what takes more is not comparable
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    torch = __import__("torch")
    sys.path.append(folder)
    warnings.simplefilter("ignore")
    signal.signal(signal.SIGALRM, lambda *_: (_ for _ in ()).throw(TimeoutError("too long")))
    session = Session(torch, dtype, None if role == "torch" else [])
    (kept / role).mkdir()
    os.chdir(kept / role)  # programs write files
    names: dict = {}
    agree = comparable = 0
    for number, source in enumerate(blocks(package, folder)):
        file = kept / f"{number}.pickle"
        if role == "minigrad":
            if not file.exists():
                continue
            session.wanted = pickle.loads(file.read_bytes())
        session.records, session.problems = [], []
        session.draw = np.random.default_rng(99)
        error = run(source, names)
        if role == "torch":
            if error is None:
                file.write_bytes(pickle.dumps(session.records))
            continue
        comparable += 1
        if error is None and len(session.records) != len(session.wanted):
            session.problems.append("another number of calls of networks")
        if error is not None:
            session.problems.append(f"{type(error).__name__}: {error}"[:300])
        agree += not session.problems
        for problem in session.problems[:4]:
            print(f"{package} {number}: {problem}")
    if role == "minigrad":
        print(f"{package}: {agree} of {comparable} programs agree", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", help="where the packages are installed")
    parser.add_argument("packages", nargs="+")
    parser.add_argument("--float64", action="store_true", help="tells rounding from mistakes")
    parser.add_argument("--role", choices=["torch", "minigrad"], help=argparse.SUPPRESS)
    parser.add_argument("--kept", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    dtype = "float64" if options.float64 else "float32"
    if options.role:
        child(options.role, options.folder, options.packages[0], dtype, options.kept)
        return
    if importlib.util.find_spec("torch") is None:
        raise SystemExit("readme_programs: needs torch to compare with: pip install torch")
    for package in options.packages:
        with tempfile.TemporaryDirectory() as kept:
            for role in ("torch", "minigrad"):
                command = [sys.executable, "-m", "benchmarks.readme_programs"]
                command += [os.path.abspath(options.folder), package, "--role", role]
                command += ["--kept", kept, *["--float64"] * options.float64]
                subprocess.run(command, check=True)


if __name__ == "__main__":
    main()
