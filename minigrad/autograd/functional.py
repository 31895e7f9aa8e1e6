"""Jacobians, Hessians and their products with vectors, with torch.autograd.functional's names.

`func` takes and returns a tensor or a tuple of tensors. With `create_graph` the results can be
differentiated; with `strict` an output that does not depend on an input raises, otherwise its
derivative is zero.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import minigrad
from minigrad._names import namespace
from minigrad.autograd.engine import grad
from minigrad.autograd.mode import enable_grad
from minigrad.tensor import Tensor, functions

__all__ = ["hessian", "hvp", "jacobian", "jvp", "vhp", "vjp"]


def _tuple(name: str, what: str, value: Any) -> tuple[tuple[Tensor, ...], bool]:
    """(the tensors, whether a sequence was given)."""
    given = (value,) if isinstance(value, Tensor) else value
    found = tuple(given) if isinstance(given, list | tuple) else ()
    if not found or not all(isinstance(t, Tensor) for t in found):
        raise TypeError(
            f"The {what} given to {name} must be either a Tensor or a tuple of Tensors, got "
            f"{type(value).__name__}"
        )
    return found, not isinstance(value, Tensor)


def _fresh(inputs: tuple[Tensor, ...], create_graph: bool) -> tuple[Tensor, ...]:
    """The inputs as places to differentiate at: connected to their graph if that is wanted."""
    return tuple(
        t.view_as(t) if create_graph and t.requires_grad else t.detach().requires_grad_()
        for t in inputs
    )


def _called(
    name: str, func: Callable, inputs: Any, create_graph: bool
) -> tuple[tuple, bool, tuple, bool]:
    given, several_inputs = _tuple(name, "inputs", inputs)
    given = _fresh(given, create_graph)
    found = func(*given)
    outputs, several = _tuple(name, "outputs of func", found)
    return given, several_inputs, outputs, several


def _gradients(
    outputs: Any, inputs: tuple, vectors: Any, create_graph: bool, strict: bool
) -> tuple[Tensor, ...]:
    """grad, with zeros where there is no dependence."""
    pairs = [(y, v) for y, v in zip(outputs, vectors, strict=True) if y.requires_grad]
    if strict and len(pairs) < len(outputs):
        raise RuntimeError("Output of the function is independent of all inputs.")
    if not pairs:
        return tuple(functions.zeros_like(x) for x in inputs)
    found = grad(
        *([y for y, _ in pairs], inputs, [v for _, v in pairs]),
        retain_graph=True,
        create_graph=create_graph,
        allow_unused=True,
    )
    for i, g in enumerate(found):
        if strict and g is None:
            raise RuntimeError(f"Output of the function is independent of input {i}.")
    return tuple(functions.zeros_like(x) if g is None else g for x, g in zip(inputs, found))


def _detached(values: Any, create_graph: bool) -> Any:
    if create_graph:
        return values
    if isinstance(values, Tensor):
        return values.detach()
    return tuple(_detached(v, False) for v in values)


def _one_or_all(values: tuple, several: bool) -> Any:
    return values if several else values[0]


def jacobian(
    func: Callable,
    inputs: Any,
    create_graph: bool = False,
    strict: bool = False,
    vectorize: bool = False,
    strategy: str = "reverse-mode",
) -> Any:
    """The derivatives of each output by each input: tensors (*output.shape, *input.shape), in a
    tuple over the outputs of tuples over the inputs, as far as func has several.

    vectorize: one backward pass, by `vmap`, in place of one per element. strategy is accepted as in
    torch.
    """
    if strict and vectorize:
        raise RuntimeError(
            "torch.autograd.functional.jacobian: `strict=True` and `vectorized=True` are not "
            "supported together. Please either set `strict=False` or `vectorize=False`."
        )
    with enable_grad():
        given, several_inputs, outputs, several = _called("jacobian", func, inputs, create_graph)
        table = []
        for y in outputs:
            if vectorize and y.numel():
                table.append(_at_once(y, given, create_graph))
                continue
            rows: list[tuple[Tensor, ...]] = []
            for i in range(y.numel()):
                unit = functions.zeros(y.numel(), dtype=y.dtype, device=y.device)
                unit[i] = 1
                vector = (unit.reshape(y.shape),)
                rows.append(_gradients((y,), given, vector, create_graph, strict))
            table.append(tuple(_stacked(rows, j, y, x) for j, x in enumerate(given)))
    found = tuple(_one_or_all(row, several_inputs) for row in table)
    return _detached(_one_or_all(found, several), create_graph)


def _at_once(y: Tensor, inputs: tuple[Tensor, ...], create_graph: bool) -> tuple[Tensor, ...]:
    """The derivatives of an output by each input, by one backward pass."""
    units = functions.eye(y.numel(), dtype=y.dtype, device=y.device).reshape(-1, *y.shape)

    def row(unit: Tensor) -> tuple[Tensor, ...]:
        return _gradients((y,), inputs, (unit,), create_graph, strict=False)

    rows = minigrad.vmap(row)(units)
    return tuple(r.reshape(*y.shape, *x.shape) for r, x in zip(rows, inputs, strict=True))


def _stacked(rows: list, j: int, y: Tensor, x: Tensor) -> Tensor:
    if not rows:
        return x.new_zeros((*y.shape, *x.shape))
    return functions.stack([row[j] for row in rows]).reshape(*y.shape, *x.shape)


def hessian(
    func: Callable,
    inputs: Any,
    create_graph: bool = False,
    strict: bool = False,
    vectorize: bool = False,
    outer_jacobian_strategy: str = "reverse-mode",
) -> Any:
    """The second derivatives of a scalar by each pair of inputs."""
    several = not isinstance(inputs, Tensor)

    def slopes(*given: Tensor) -> Any:
        found = jacobian(_scalar(func, "hessian"), given, True, vectorize=vectorize)
        return found if several else found[0]

    return jacobian(slopes, inputs, create_graph, strict, vectorize)


def _scalar(func: Callable, name: str) -> Callable:
    def checked(*given: Tensor) -> Tensor:
        y = func(*given)
        if not isinstance(y, Tensor) or y.numel() != 1:
            raise RuntimeError(
                f"The Tensor returned by the function given to {name} should contain a single "
                "element"
            )
        return y.reshape(())

    return checked


def _vectors(name: str, v: Any, like: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """The vector of a product, checked; ones for None where there is a single element."""
    if v is None:
        if len(like) != 1 or like[0].numel() != 1:
            raise RuntimeError(
                f"The vector v can only be None if {name} has a single element to multiply it with."
            )
        return (functions.ones_like(like[0]),)
    found, _ = _tuple(name, "v", v)
    if len(found) != len(like) or any(a.shape != b.shape for a, b in zip(found, like)):
        raise RuntimeError(
            f"{name}: v has invalid size: should be {[list(t.shape) for t in like]} but got "
            f"{[list(t.shape) for t in found]}"
        )
    return found


def vjp(
    func: Callable, inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False
) -> tuple:
    """(outputs, v times the Jacobian), v of the outputs' form."""
    with enable_grad():
        given, several_inputs, outputs, several = _called("vjp", func, inputs, create_graph)
        vectors = _vectors("vjp", v, outputs)
        found = _gradients(outputs, given, vectors, create_graph, strict)
    result = _one_or_all(outputs, several), _one_or_all(found, several_inputs)
    return tuple(_detached(part, create_graph) for part in result)


def jvp(
    func: Callable, inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False
) -> tuple:
    """(outputs, the Jacobian times v), v of the inputs' form; by differentiating twice."""
    with enable_grad():
        given, _, outputs, several = _called("jvp", func, inputs, create_graph)
        vectors = _vectors("jvp", v, given)
        dummies = tuple(functions.zeros_like(y).requires_grad_() for y in outputs)
        slopes = _gradients(outputs, given, dummies, True, strict)
        found = _gradients(slopes, dummies, vectors, create_graph, False)
    result = _one_or_all(outputs, several), _one_or_all(found, several)
    return tuple(_detached(part, create_graph) for part in result)


def vhp(
    func: Callable, inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False
) -> tuple:
    """(output, v times the Hessian of a scalar)."""
    with enable_grad():
        given, several, outputs, _ = _called("vhp", _scalar(func, "vhp"), inputs, create_graph)
        vectors = _vectors("vhp", v, given)
        one = (functions.ones_like(outputs[0]),)
        slopes = _gradients(outputs, given, one, True, strict)
        found = _gradients(slopes, given, vectors, create_graph, strict)
    result = outputs[0], _one_or_all(found, several)
    return tuple(_detached(part, create_graph) for part in result)


def hvp(
    func: Callable, inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False
) -> tuple:
    """(output, the Hessian of a scalar times v): as `vhp`, since Hessians are symmetric."""
    return vhp(func, inputs, v, create_graph, strict)


__getattr__, __dir__ = namespace(__name__)
