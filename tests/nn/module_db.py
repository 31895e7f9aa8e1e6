"""torch's own samples of its modules (`module_db`), run on minigrad's modules of the same name.

`differences` yields what minigrad answers in another way than torch: results, gradients, `repr`,
names and values of the state, and what a copy and a pickle compute. As a program,
`python -m tests.nn.module_db [name ...]` prints all of them.
"""

from __future__ import annotations

import copy
import importlib
import pickle
import random
import re
import sys
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import minigrad
from tests.engine import op_db

_RANDOM = re.compile("Dropout|RReLU|Fractional")  # while training


def entries() -> list[Any]:
    """The entries of module_db."""
    return importlib.import_module("torch.testing._internal.common_modules").module_db


def missing() -> list[str]:
    """The modules of module_db that minigrad does not have."""
    return [e.module_cls.__name__ for e in entries() if not hasattr(minigrad.nn, _name(e))]


def _name(entry: Any) -> str:
    return entry.module_cls.__name__


def differences(entry: Any, dtype: str, training: bool) -> Iterator[str]:
    """What minigrad's module does in another way than torch's, sample by sample."""
    import torch

    torch.manual_seed(0)
    random.seed(0)
    options = dict(device="cpu", dtype=getattr(torch, dtype), training=training)
    with _recorded_layers():
        for sample in entry.module_inputs_func(entry, requires_grad=True, **options):
            for found in _of_sample(entry, sample, dtype, training):
                yield f"{_name(entry)}{_described(sample)}, training={training}: {found}"
        if entry.module_error_inputs_func is None:
            return
        for refused in entry.module_error_inputs_func(entry, requires_grad=False, **options):
            sample = refused.module_error_input
            for found in _of_error(entry, sample, dtype, refused.error_regex):
                yield f"{_name(entry)}{_described(sample)}, training={training}: {found}"


def _described(sample: Any) -> str:
    given = sample.constructor_input
    return f"({given.args}, {given.kwargs}) {sample.desc}"


# --- layers that are arguments of other modules: their arguments are needed once more ---

_given: dict[int, tuple] = {}  # arguments of a layer of torch's, by its id


def _recorded_layers() -> Any:
    import torch

    _given.clear()
    plain = torch.nn.TransformerEncoderLayer.__init__

    def recording(self: Any, *args: Any, **kwargs: Any) -> None:
        plain(self, *args, **kwargs)
        _given[id(self)] = (self, args, kwargs)  # which keeps it, and so its id

    return mock.patch.object(torch.nn.TransformerEncoderLayer, "__init__", recording)


def _translated(value: Any, leaves: list) -> Any:
    """Arguments as minigrad's."""
    if id(value) in _given:
        layer, args, kwargs = _given[id(value)]
        make = getattr(minigrad.nn, type(layer).__name__)
        return make(*_translated(args, leaves), **_translated(kwargs, leaves))
    if isinstance(value, tuple):
        return tuple([_translated(v, leaves) for v in value])
    if isinstance(value, dict):
        return {k: _translated(v, leaves) for k, v in value.items()}
    return op_db.from_torch(value, leaves)


def _same(value: Any, leaves: list) -> Any:
    return value


def _made(space: Any, entry: Any, given: Any, dtype: str, translate: Callable) -> Any:
    make = getattr(space.nn, _name(entry))
    args, kwargs = translate((tuple(given.args), dict(given.kwargs)), [])
    return make(*args, **kwargs).to(getattr(space, dtype))


# --- samples ---


def _of_sample(entry: Any, sample: Any, dtype: str, training: bool) -> Iterator[str]:
    import torch

    theirs = _made(torch, entry, sample.constructor_input, dtype, _same).train(training)
    try:
        ours = _made(minigrad, entry, sample.constructor_input, dtype, _translated).train(training)
    except Exception as error:
        yield f"is not made: {type(error).__name__}: {error}"
        return
    leaves: list = []
    given = tuple(sample.forward_input.args), dict(sample.forward_input.kwargs)
    args, kwargs = _translated(given, leaves)
    if isinstance(theirs, torch.nn.modules.lazy.LazyModuleMixin):  # has parameters after a call
        theirs(*given[0], **given[1])
        ours(*args, **kwargs)
    if repr(ours) != repr(theirs):
        yield f"repr {ours!r}, torch has {theirs!r}"
    state = {name: op_db.from_torch(value, []) for name, value in theirs.state_dict().items()}
    if list(state) != list(ours.state_dict()):
        yield f"state {list(ours.state_dict())}, torch has {list(state)}"
        return
    ours.load_state_dict(state)
    if training and _RANDOM.search(_name(entry)):
        return
    torch.manual_seed(1)
    expected, refusal = op_db.outcome(lambda: theirs(*given[0], **given[1]))
    result, error = op_db.outcome(lambda: ours(*args, **kwargs))
    if refusal is not None or error is not None:
        if not isinstance(error, type(refusal)):
            yield f"{type(error).__name__}: {error}, torch has {type(refusal).__name__}: {refusal}"
        return
    yield from _compared(ours, theirs, result, expected, leaves, dtype)
    yield from _copied(ours.eval(), args, kwargs)


def _compared(
    ours: Any, theirs: Any, result: Any, expected: Any, leaves: list, dtype: str
) -> Iterator[str]:
    tolerance = op_db.TOLERANCE[dtype]
    found = op_db.first_difference(result, expected, tolerance)
    if found:
        yield f"{found[0]}: {found[1]}"
        return
    mine = dict(ours.named_parameters())
    for name, parameter in theirs.named_parameters():
        if parameter.requires_grad != mine[name].requires_grad:
            yield f"requires_grad of {name}: {mine[name].requires_grad}"
        elif parameter.requires_grad:
            leaves.append((parameter, mine[name]))
    found = dtype == "float64" and op_db.gradients(result, expected, leaves)
    if found:
        yield f"{found[0]}: {found[1]}"
    state = ours.state_dict()
    for name, value in theirs.state_dict().items():
        found = op_db.first_difference(state[name], value, tolerance)
        if found:
            yield f"{name} after the call, {found[0]}: {found[1]}"


def _copied(ours: Any, args: tuple, kwargs: dict) -> Iterator[str]:
    """A copy and a pickle compute what the module does."""
    ways = dict(copy=copy.deepcopy, pickle=lambda module: pickle.loads(pickle.dumps(module)))
    with minigrad.no_grad():
        expected = op_db.flat(ours(*args, **kwargs))
        for name, way in ways.items():
            for a, b in zip(op_db.flat(way(ours)(*args, **kwargs)), expected, strict=True):
                if a is not None and op_db.unequal(a.numpy(), b.numpy(), 0.0):
                    yield f"a {name} computes something else"


def _of_error(entry: Any, sample: Any, dtype: str, message: str) -> Iterator[str]:
    import torch

    def called(space: Any, translate: Callable) -> Any:
        module = _made(space, entry, sample.constructor_input, dtype, translate)
        given = sample.forward_input
        if given is not None:
            args, kwargs = translate((tuple(given.args), dict(given.kwargs)), [])
            module(*args, **kwargs)

    _, refusal = op_db.outcome(lambda: called(torch, _same))
    _, error = op_db.outcome(lambda: called(minigrad, _translated))
    if refusal is None:  # of another device
        return
    if not isinstance(error, type(refusal)) or not re.search(message, str(error)):
        yield f"{type(error).__name__}: {error}, torch has {type(refusal).__name__}: {message}"


def main(names: list[str]) -> None:
    print("missing:", *missing())
    for entry in entries():
        if hasattr(minigrad.nn, _name(entry)) and (not names or _name(entry) in names):
            for training in (True, False):
                for found in differences(entry, "float64", training):
                    print(found)


if __name__ == "__main__":
    main(sys.argv[1:])
