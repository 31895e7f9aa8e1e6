"""torch's own samples of its operators (`op_db`), run on minigrad's operators of the same name.

`run(entry, dtype, backend)` yields one `Difference` per sample that minigrad answers in another way
than torch. As a program, `python -m tests.engine.op_db [name ...]` prints all of them by cause.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import importlib
import random
import re
import types
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

import minigrad
from minigrad import backends

DTYPES = ("float64", "float32", "float16", "bfloat16", "int64", "int32", "uint8", "bool",
          "complex128", "complex64")  # fmt: skip


@dataclass(frozen=True)
class Difference:
    """One sample on which minigrad and torch differ.

    kind: "raises" (torch computes), "lenient" (torch raises), "error" (another exception), "value",
    "dtype", "shape", "structure" (number or type of results) or "gradient".
    """

    operator: str
    variant: str
    dtype: str
    kind: str
    sample: str
    detail: str

    def cause(self) -> str:
        """What differences of one cause have in common: the kind and the message."""
        return f"{self.kind}: {re.sub(r'[0-9]+', 'N', self.detail)[:110]}"


# --- operators ---


@functools.cache
def _paths() -> dict[Any, str]:
    """torch's functions and methods, and their names in minigrad's namespace."""
    import torch

    found: dict[Any, str] = {}
    for prefix in ("", "nn.functional.", "signal.windows.", "Tensor."):
        space = functools.reduce(getattr, prefix.split(".")[:-1], torch)
        for name in dir(space):
            value = getattr(space, name, None)
            if callable(value) and not isinstance(value, type):
                try:
                    found.setdefault(value, prefix + name)
                except TypeError:  # not hashable
                    continue
    return found


def _ours(path: str) -> Callable | None:
    """minigrad's object of this name; None if it has none."""
    try:
        return functools.reduce(getattr, path.split("."), minigrad)
    except AttributeError:
        return None


def translated(value: Any) -> Any:
    """A function of torch, or a Python function of its test suite that calls some, on minigrad.

    None for a function that minigrad does not have.
    """
    if isinstance(value, functools.partial):
        inner = translated(value.func)
        return inner and functools.partial(inner, *value.args, **value.keywords)
    try:
        path = _paths().get(value)
    except TypeError:
        path = None
    if path is not None:
        return _ours(path)
    if not isinstance(value, types.FunctionType):
        return None
    cells = []
    for cell in value.__closure__ or ():
        content = cell.cell_contents
        if callable(content):
            content = translated(content)
            if content is None:
                return None
        cells.append(types.CellType(content))
    space = {**value.__globals__, "torch": minigrad}
    made = types.FunctionType(value.__code__, space, value.__name__, value.__defaults__,
                              tuple(cells))  # fmt: skip
    made.__kwdefaults__ = value.__kwdefaults__
    return made


_RANDOM = re.compile(
    "dropout|bernoulli|multinomial|rand|normal_|^normal|cauchy|exponential|geometric|log_normal"
    "|uniform|empty|rrelu|new_empty|gumbel|resize|nn.functional.embedding_bag|fractional_max_pool"
)


@functools.cache
def entries() -> tuple[Any, ...]:
    """The entries of op_db whose operator minigrad has, without random ones."""
    database = importlib.import_module("torch.testing._internal.common_methods_invocations").op_db
    return tuple(e for e in database if not _RANDOM.search(e.name) and operator(e) is not None)


def missing() -> list[str]:
    """The names of op_db that minigrad does not have."""
    database = importlib.import_module("torch.testing._internal.common_methods_invocations").op_db
    return sorted({e.name for e in database if operator(e) is None})


def operator(entry: Any) -> Callable | None:
    """minigrad's operator of an entry, None if it has none."""
    path = entry.name
    if _ours(path) is None and _ours(f"Tensor.{path}") is None:
        return None
    return translated(entry.op) or _ours(path)


def label(entry: Any) -> str:
    """The entry's name, with its variant."""
    return f"{entry.name}.{entry.variant_test_name}" if entry.variant_test_name else entry.name


# --- values ---


def copied(value: Any) -> Any:
    """A tensor of torch as one of minigrad with the same order of strides."""
    import torch

    if value.dtype == torch.bfloat16:
        return minigrad.from_numpy(value.detach().float().numpy()).to(minigrad.bfloat16)
    return minigrad.from_numpy(value.detach().resolve_conj().resolve_neg().numpy().copy(order="K"))


def from_torch(value: Any, leaves: list, copy: Callable = copied) -> Any:
    """Arguments of a sample as minigrad's; tensors by `copy`.

    leaves: gets pairs (torch tensor, minigrad tensor) of those that require a gradient.
    """
    import torch

    known = [mine for tensor, mine in leaves if tensor is value]
    if known:
        return known[0]
    if isinstance(value, torch.Tensor):
        tensor = copy(value)
        if value.requires_grad:
            tensor.requires_grad_()
            leaves.append((value, tensor))
        return tensor
    if isinstance(value, torch.dtype):
        return getattr(minigrad, str(value).removeprefix("torch."))
    if isinstance(value, torch.device):
        return minigrad.device(value.type)
    if isinstance(value, torch.memory_format | torch.layout):
        return str(value).removeprefix("torch.")
    if isinstance(value, list):
        return [from_torch(v, leaves, copy) for v in value]
    if isinstance(value, tuple):
        return tuple([from_torch(v, leaves, copy) for v in value])
    if isinstance(value, dict):
        return {k: from_torch(v, leaves, copy) for k, v in value.items()}
    if isinstance(value, torch.nn.LinearCrossEntropyOptions):
        return minigrad.nn.LinearCrossEntropyOptions(**from_torch(asdict(value), leaves, copy))
    if callable(value) and not isinstance(value, type):
        return translated(value) or value
    return value


def as_numpy(tensor: Any) -> np.ndarray:
    tensor = tensor.detach()
    name = str(tensor.dtype)
    return (tensor.float() if name.endswith("bfloat16") else tensor).numpy(force=True)


def flat(result: Any) -> list:
    if isinstance(result, list | tuple) and type(result).__name__ not in ("Size",):
        return [part for item in result for part in flat(item)]
    return [result]


def is_tensor(value: Any) -> bool:
    return hasattr(value, "detach")


TOLERANCE = {
    "float64": 1e-7, "float32": 2e-5, "float16": 4e-3, "bfloat16": 3e-2,
    "complex128": 1e-7, "complex64": 2e-5,
}  # fmt: skip


def first_difference(mine: Any, theirs: Any, tolerance: float) -> tuple[str, str] | None:
    """(kind, detail) of the first difference between two results."""
    ours, wanted = flat(mine), flat(theirs)
    if len(ours) != len(wanted):
        return "structure", f"{len(ours)} results, torch has {len(wanted)}"
    for a, b in zip(ours, wanted, strict=True):
        if is_tensor(a) != is_tensor(b):
            return "structure", f"{type(a).__name__}, torch has {type(b).__name__}"
        if not is_tensor(b):
            if isinstance(b, bool | int | float) and a != b:
                return "value", f"{a}, torch has {b}"
            continue
        if tuple(a.shape) != tuple(b.shape):
            return "shape", f"{list(a.shape)}, torch has {list(b.shape)}"
        named = str(b.dtype).removeprefix("torch.")
        if a.dtype.name != named:
            return "dtype", f"{a.dtype.name}, torch has {named}"
        found = unequal(as_numpy(a), as_numpy(b), max(tolerance, TOLERANCE.get(named, 0.0)))
        if found:
            return "value", found
    return None


def unequal(a: np.ndarray, b: np.ndarray, tolerance: float) -> str | None:
    if b.dtype.kind not in "fc":
        tolerance = 0.0
    if b.dtype.kind == "b":
        close = a == b
    else:
        with np.errstate(all="ignore"):
            wide = (a.astype(np.float64), b.astype(np.float64)) if b.dtype.kind == "f" else (a, b)
            close = np.isclose(*wide, rtol=tolerance, atol=tolerance, equal_nan=True)
    if close.all():
        return None
    at = tuple(np.argwhere(~close)[0])
    return f"{a[at]}, torch has {b[at]} (at {list(map(int, at))}, {int((~close).sum())} wrong)"


# --- running ---


def outcome(call: Callable[[], Any]) -> tuple[Any, Exception | None]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return call(), None
    except Exception as error:
        return None, error


def samples(entry: Any, dtype: str, errors: bool) -> Iterator[Any]:
    """The samples of an entry, then (if asked for) those that torch refuses."""
    import torch

    kind = getattr(torch, dtype)
    grad = dtype in ("float64", "complex128") and entry.supports_autograd
    torch.manual_seed(0)
    random.seed(0)
    with contextlib.suppress(Exception):  # a generator that cannot make inputs of this type
        yield from entry.sample_inputs("cpu", kind, requires_grad=grad)
    if not errors or entry.error_inputs_func is None:
        return
    with contextlib.suppress(Exception):
        for refused in entry.error_inputs("cpu"):
            yield refused.sample_input


def run(
    entry: Any, dtype: str, backend: str = "numpy", limit: int | None = None
) -> tuple[int, list[Difference]]:
    """How many samples of an entry were run, and on which minigrad differs."""
    ours = operator(entry)
    theirs = entry.op
    count, found = 0, []
    with backends.use(backend):
        for sample in samples(entry, dtype, errors=dtype == "float64"):
            if undefined(entry, sample):
                continue
            if limit is not None and count >= limit:
                break
            count += 1
            difference = of_sample(ours, theirs, sample)
            if difference:
                found.append(Difference(label(entry), "", dtype, difference[0],
                                        described(sample), difference[1]))  # fmt: skip
    return count, found


def undefined(entry: Any, sample: Any) -> bool:
    """Whether torch's result depends on chance, or on which of equal elements it finds first."""
    import torch

    given = sample.input
    if entry.name.startswith("__r") and not isinstance(given, torch.Tensor):
        return True
    if sample.kwargs.get("dropout_p"):
        return True
    if entry.name == "nn.functional.multi_head_attention_forward":
        return sample.args[9] > 0  # dropout_p
    if entry.name == "mode":
        return given.numel() > 1000  # where torch's order of equal elements is another one
    if entry.name in ("kthvalue", "topk", "sort", "argsort") and not sample.kwargs.get("stable"):
        return np.unique(as_numpy(given.resolve_conj())).size < given.numel()
    return False


def run_inplace(entry: Any, dtype: str, backend: str = "numpy") -> tuple[int, list[Difference]]:
    """The same for the in-place method of the operator."""
    import torch

    theirs = entry.inplace_variant
    name = getattr(theirs, "__name__", "")
    ours = getattr(minigrad.Tensor, name, None) if name else None
    if ours is None or not isinstance(getattr(torch.Tensor, name, None), type(theirs)):
        return 0, []
    count, found = 0, []
    with backends.use(backend):
        for sample in samples(entry, dtype, errors=False):
            if not isinstance(sample.input, torch.Tensor):
                continue
            count += 1
            difference = of_sample(
                lambda x, *a, **k: ours(x.clone(), *a, **k),
                lambda x, *a, **k: theirs(x.clone(), *a, **k),
                sample,
            )
            if difference:
                found.append(Difference(label(entry), "_", dtype, difference[0],
                                        described(sample), difference[1]))  # fmt: skip
    return count, found


def described(sample: Any) -> str:
    return re.sub(r', device="cpu"|, broadcasts_input=False|, name=\'\'', "", sample.summary())[
        :300
    ]


def of_sample(
    ours: Callable, theirs: Callable, sample: Any, copy: Callable = copied
) -> tuple[str, str] | None:
    leaves: list = []
    try:
        arguments = from_torch(
            (sample.input, tuple(sample.args), dict(sample.kwargs)), leaves, copy
        )
    except (TypeError, RuntimeError, AttributeError, ValueError):  # complex, sparse, 65-D tensors
        return None
    given, args, kwargs = arguments
    expected, refusal = outcome(lambda: theirs(sample.input, *sample.args, **sample.kwargs))
    result, error = outcome(lambda: ours(given, *args, **kwargs))
    if any(is_tensor(t) and t.is_sparse for t in flat(expected)):
        return None
    if refusal is not None:
        if error is None:
            return "lenient", f"{type(refusal).__name__}: {str(refusal).splitlines()[0]}"
        if not isinstance(error, type(refusal)):
            return "error", (
                f"{type(error).__name__}, torch has {type(refusal).__name__}: "
                f"{str(error)[:60]!r} for {str(refusal)[:60]!r}"
            )
        return None
    if error is not None:
        return "raises", f"{type(error).__name__}: {str(error).splitlines()[0]}"
    tolerance = max(
        (TOLERANCE.get(str(t.dtype).removeprefix("torch."), 0.0)
         for t in flat([sample.input, list(sample.args), *sample.kwargs.values()])
         if is_tensor(t)), default=0.0,
    )  # fmt: skip
    try:
        difference = first_difference(result, expected, tolerance)
    except Exception as broken:  # a result that is no proper tensor
        return "structure", f"unusable: {type(broken).__name__}: {broken}"
    return difference or gradients(result, expected, leaves)


def gradients(result: Any, expected: Any, leaves: list) -> tuple[str, str] | None:
    """The first difference between the gradients of the leaves."""
    import torch

    pairs = [
        (a, b) for a, b in zip(flat(result), flat(expected), strict=True)
        if is_tensor(b) and b.requires_grad
    ]  # fmt: skip
    for a, b in zip(flat(result), flat(expected), strict=True):
        if is_tensor(b) and a.requires_grad != b.requires_grad:
            return "gradient", f"requires_grad is {a.requires_grad}, torch has {b.requires_grad}"
    if not pairs:
        return None
    rng = np.random.default_rng(0)
    seeds = [random_like(rng, as_numpy(b)) for _, b in pairs]
    wanted, refusal = outcome(lambda: torch.autograd.grad(
        [b for _, b in pairs], [t for t, _ in leaves], [torch.tensor(s) for s in seeds],
        allow_unused=True))  # fmt: skip
    grads, error = outcome(lambda: minigrad.autograd.grad(
        [a for a, _ in pairs], [t for _, t in leaves], [minigrad.tensor(s) for s in seeds],
        allow_unused=True))  # fmt: skip
    if refusal is not None:
        return None
    if error is not None:
        return "gradient", f"{type(error).__name__}: {error}"
    for mine, theirs, (leaf, _) in zip(grads, wanted, leaves, strict=True):
        if mine is None or theirs is None:
            other = theirs if mine is None else mine
            if other is not None and as_numpy(other).any():
                return "gradient", f"None on one side only: minigrad {mine is None}"
            continue
        found = unequal(as_numpy(mine), as_numpy(theirs), 1e-6)
        if found:
            return "gradient", f"of an input of shape {list(leaf.shape)}: {found}"
    return None


def random_like(rng: np.random.Generator, like: np.ndarray) -> np.ndarray:
    numbers = rng.standard_normal(like.shape)
    if like.dtype.kind == "c":
        numbers = numbers + 1j * rng.standard_normal(like.shape)
    return np.asarray(numbers, like.dtype)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="operators (default: all)")
    parser.add_argument("--dtypes", default=",".join(DTYPES))
    parser.add_argument("--backend", default="numpy")
    parser.add_argument("--limit", type=int, help="samples per operator and dtype")
    parser.add_argument("--verbose", action="store_true", help="every sample")
    parser.add_argument("--no-inplace", action="store_true")
    options = parser.parse_args()
    total, kinds = 0, Counter[str]()
    for entry in entries():
        if options.names and entry.name not in options.names:
            continue
        found: list[Difference] = []
        for dtype in options.dtypes.split(","):
            runs = [run(entry, dtype, options.backend, options.limit)]
            if not options.no_inplace:
                runs.append(run_inplace(entry, dtype, options.backend))
            total += sum(count for count, _ in runs)
            found += [d for _, differences in runs for d in differences]
        kinds.update(d.kind for d in found)
        _report(found, options.verbose)
    print(f"{total} samples, {kinds.total()} differences:", dict(kinds))


def _report(found: list[Difference], verbose: bool) -> None:
    """Print the differences of an operator by cause, each with its first sample or all."""
    groups: dict[tuple[str, str], list[Difference]] = {}
    for d in found:
        groups.setdefault((d.operator + d.variant, d.cause()), []).append(d)
    for (name, cause), group in sorted(groups.items()):
        dtypes = ",".join(sorted({d.dtype for d in group}))
        print(f"{len(group):5} {name:32} {cause}  [{dtypes}]", flush=True)
        for d in group if verbose else group[:1]:
            print(f"      {d.sample}")


if __name__ == "__main__":
    main()
