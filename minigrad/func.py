"""Transformations of functions, with torch.func's names: gradients, Jacobians, `vmap`.

They nest. Arguments may be tuples, lists and dictionaries of tensors, such as a module's parameters
for `functional_call`.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import minigrad
from minigrad._names import namespace
from minigrad.autograd import engine
from minigrad.autograd.mode import enable_grad
from minigrad.autograd.node import Node
from minigrad.batching.vmap import vmap
from minigrad.tensor import Tensor
from minigrad.utils._pytree import tree_flatten, tree_leaves, tree_map, tree_unflatten

__all__ = [
    "functional_call",
    "grad",
    "grad_and_value",
    "hessian",
    "jacfwd",
    "jacrev",
    "jvp",
    "linearize",
    "replace_all_batch_norm_modules_",
    "stack_module_state",
    "vjp",
    "vmap",
]


def _like(tree: Any, leaves: Sequence) -> Any:
    """The tree with these leaves."""
    return tree_unflatten(leaves, tree_flatten(tree)[1])


def _place(tensor: Any) -> Any:
    """A tensor to differentiate at; connected to its graph where it has one, so that
    transformations nest."""
    if not isinstance(tensor, Tensor):
        raise TypeError(f"func: expected tensors to differentiate by, got {type(tensor).__name__}")
    return tensor.view_as(tensor) if tensor.requires_grad else tensor.detach().requires_grad_()


def _own(results: Any, places: list[Tensor]) -> Any:
    """Results without a graph if that leads to nothing but the places that were made here."""
    made = {id(p) for p in places if p.grad_fn is None}

    def released(value: Any) -> Any:
        if not isinstance(value, Tensor) or not value.requires_grad:
            return value
        return value if _outside(value, made) else value.detach()

    return tree_map(released, results)


def _has_graph(outputs: list[Tensor], places: list[Tensor]) -> bool:
    """Whether the gradients of outputs will be differentiated: their graph leads to more than the
    places that were made here."""
    made = {id(p) for p in places if p.grad_fn is None}
    return any(y.requires_grad and _outside(y, made) for y in outputs)


def _outside(tensor: Tensor, made: set[int]) -> bool:
    """Whether the graph of a tensor has a leaf other than these."""
    if tensor.grad_fn is None:
        return id(tensor) not in made
    stack, seen = [tensor.grad_fn], {tensor.grad_fn}
    while stack:
        for target in stack.pop().targets():
            if not isinstance(target, Node):
                if id(target) not in made:
                    return True
            elif target not in seen:
                seen.add(target)
                stack.append(target)
    return False


def _chosen(args: tuple, argnums: int | tuple[int, ...]) -> tuple[list, Any, list]:
    """(arguments with fresh places, the trees of those by which is differentiated, their leaves)"""
    numbers = (argnums,) if isinstance(argnums, int) else tuple(argnums)
    if any(not -len(args) <= n < len(args) for n in numbers):
        raise RuntimeError(
            f"func: got argnums={argnums}, but the function was called with {len(args)} arguments"
        )
    given = list(args)
    for n in numbers:
        given[n] = tree_map(_place, args[n])
    trees = given[argnums] if isinstance(argnums, int) else tuple(given[n] for n in numbers)
    return given, trees, tree_leaves(trees)


def _gradients(
    outputs: list, places: list, vectors: list, create_graph: bool = True
) -> list[Tensor]:
    """Gradients that can be differentiated again; zeros where nothing depends on a place."""
    pairs = [(y, v) for y, v in zip(outputs, vectors, strict=True) if y.requires_grad]
    if not pairs:
        return [minigrad.zeros_like(p) for p in places]
    found = engine.grad(
        *([y for y, _ in pairs], places, [v for _, v in pairs]),
        retain_graph=True,
        create_graph=create_graph,
        allow_unused=True,
    )
    return [minigrad.zeros_like(p) if g is None else g for p, g in zip(places, found, strict=True)]


def _tensors(name: str, outputs: Any) -> list[Tensor]:
    """The leaves of what a function has returned; RuntimeError for other than tensors."""
    flat = tree_leaves(outputs)
    for y in flat:
        if not isinstance(y, Tensor):
            raise RuntimeError(f"{name}: expected f to return only tensors, got {type(y).__name__}")
    return flat


def grad_and_value(
    func: Callable, argnums: int | tuple[int, ...] = 0, has_aux: bool = False
) -> Callable:
    """A function that returns (the gradients of func by the arguments `argnums`, its value); with
    `has_aux` func returns (value, anything), and so does the second part."""

    @functools.wraps(func)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        with enable_grad():
            given, trees, places = _chosen(args, argnums)
            found = func(*given, **kwargs)
            value = found[0] if has_aux else found
            if not isinstance(value, Tensor) or value.ndim:
                shape = list(value.shape) if isinstance(value, Tensor) else type(value).__name__
                raise RuntimeError(
                    "grad_and_value(f)(*args): Expected f(*args) to return a scalar tensor, got "
                    f"{shape}"
                )
            ones, graph = minigrad.ones_like(value), _has_graph([value], places)
            slopes = _gradients([value], places, [ones], graph)
        return _own((_like(trees, slopes), found), places)

    return wrapper


def grad(func: Callable, argnums: int | tuple[int, ...] = 0, has_aux: bool = False) -> Callable:
    """A function that returns the gradients of the scalar func by the arguments `argnums`; with
    `has_aux` (gradients, what func returns beside its value)."""
    both = grad_and_value(func, argnums, has_aux)

    @functools.wraps(func)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        slopes, found = both(*args, **kwargs)
        return (slopes, found[1]) if has_aux else slopes

    return wrapper


def vjp(func: Callable, *primals: Any, has_aux: bool = False) -> tuple:
    """(func(*primals), a function from vectors of the outputs' form to their products with the
    Jacobian, one per primal), and with `has_aux` what func returns beside its outputs."""
    with enable_grad():
        given, trees, places = _chosen(primals, tuple(range(len(primals))))
        found = func(*given)
    outputs = found[0] if has_aux else found
    flat = _tensors("vjp(f, *primals)", outputs)

    def pullback(*cotangents: Any) -> Any:
        vectors = tree_leaves(cotangents[0] if len(cotangents) == 1 else cotangents)
        with enable_grad():
            slopes = _gradients(flat, places, vectors)
        result = _like(trees, _own(slopes, places))
        return result if len(primals) > 1 else (result[0],)

    result = _own(outputs, places), pullback
    return (*result, _own(found[1], places)) if has_aux else result


def jvp(func: Callable, primals: tuple, tangents: tuple, *, has_aux: bool = False) -> tuple:
    """(func(*primals), the Jacobian times the tangents); by differentiating twice. So what func
    computes in a block of `no_grad` counts as constant, unlike in torch."""
    for name, value in (("primals", primals), ("tangents", tangents)):
        if not isinstance(value, tuple):
            raise RuntimeError(
                f"jvp(f, primals, tangents): Expected {name} to be a tuple, got "
                f"{type(value).__name__}; write `({name},)` for one tensor"
            )
    vectors = tree_leaves(tangents)
    if tree_flatten(primals)[1] != tree_flatten(tangents)[1]:
        raise RuntimeError(
            "jvp(f, primals, tangents): Expected primals and tangents to have the same structure"
        )
    with enable_grad():
        given, _, places = _chosen(tuple(primals), tuple(range(len(primals))))
        found = func(*given)
        outputs = found[0] if has_aux else found
        flat = _tensors("jvp(f, primals, tangents)", outputs)
        dummies = [minigrad.zeros_like(y).requires_grad_() for y in flat]
        slopes = _gradients(flat, places, dummies)
        products = _gradients(slopes, dummies, vectors)
    result = (outputs, _like(outputs, products))
    result = _own(result, places + dummies)
    return (*result, _own(found[1], places)) if has_aux else result


def linearize(func: Callable, *primals: Any) -> tuple[Any, Callable]:
    """(func(*primals), a function of tangents that gives the Jacobian times them). func is called
    again for each."""
    return func(*primals), lambda *tangents: jvp(func, primals, tangents)[1]


def jacrev(
    func: Callable,
    argnums: int | tuple[int, ...] = 0,
    *,
    has_aux: bool = False,
    chunk_size: int | None = None,
) -> Callable:
    """A function that returns the Jacobian of func by the arguments `argnums`: for each output and
    argument a tensor (*output.shape, *argument.shape). `vmap` computes the rows in one backward
    pass; chunk_size: so many at a time."""

    @functools.wraps(func)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        with enable_grad():
            given, trees, places = _chosen(args, argnums)
            found = func(*given, **kwargs)
            outputs = found[0] if has_aux else found
            flat = _tensors("jacrev(f)", outputs)
            graph = _has_graph(flat, places)
            rows = [_rows(y, places, chunk_size, graph) for y in flat]
            table = _like(outputs, [_like(trees, row) for row in rows])
        result = _own(table, places)
        return (result, _own(found[1], places)) if has_aux else result

    return wrapper


def _rows(
    y: Tensor, places: list[Tensor], chunk_size: int | None, create_graph: bool
) -> list[Tensor]:
    if not y.numel():
        return [p.new_zeros((*y.shape, *p.shape)) for p in places]
    units = minigrad.eye(y.numel(), dtype=y.dtype, device=y.device).reshape(-1, *y.shape)

    def row(unit: Tensor) -> list[Tensor]:
        return _gradients([y], places, [unit], create_graph)

    rows = vmap(row, chunk_size=chunk_size)(units)
    return [row.reshape(*y.shape, *p.shape) for row, p in zip(rows, places, strict=True)]


def jacfwd(
    func: Callable,
    argnums: int | tuple[int, ...] = 0,
    has_aux: bool = False,
    *,
    randomness: str = "error",
) -> Callable:
    """As `jacrev`, whose backward passes compute it here: there is no forward mode."""
    return jacrev(func, argnums, has_aux=has_aux)


def hessian(func: Callable, argnums: int | tuple[int, ...] = 0) -> Callable:
    """A function that returns the second derivatives of the scalar func."""
    return jacrev(jacrev(func, argnums), argnums)


def functional_call(
    module: Any,
    parameter_and_buffer_dicts: Any,
    args: Any = None,
    kwargs: Any = None,
    *,
    tie_weights: bool = True,
    strict: bool = False,
) -> Any:
    """module(*args, **kwargs) with these tensors in place of its parameters and buffers.

    parameter_and_buffer_dicts: a dictionary by name, or a sequence of them. args: the arguments, or
    the only one. tie_weights: a tensor under several names is replaced under all of them.
    Names that the module does not have are ignored. strict: none may be missing or unknown.
    """
    given = parameter_and_buffer_dicts
    parts = [given] if isinstance(given, dict) else given
    replaced = {name: value for part in parts for name, value in part.items()}
    arguments = () if args is None else args if isinstance(args, tuple) else (args,)
    with _reparametrize_module(module, replaced, tie_weights=tie_weights, strict=strict):
        return module(*arguments, **(kwargs or {}))


@contextlib.contextmanager
def _reparametrize_module(
    module: Any,
    parameters_and_buffers: dict[str, Any],
    tie_weights: bool = False,
    strict: bool = False,
) -> Iterator[None]:
    """The block in which the module has these tensors in place of its own; see `functional_call`.

    torch's name: programs use it around several calls, or calls of other methods.
    """
    replaced, own = dict(parameters_and_buffers), _tensors_of(module)
    unknown = [name for name in replaced if name not in own]
    if strict and (unknown or set(own) - set(replaced)):
        raise RuntimeError(
            f"functional_call: missing names {sorted(set(own) - set(replaced))}, unexpected names "
            f"{sorted(unknown)}"
        )
    for name in unknown:
        del replaced[name]
    if tie_weights:
        same = {id(owner[key]): replaced[n] for n, (owner, key) in own.items() if n in replaced}
        for name, (owner, key) in own.items():
            if id(owner[key]) in same and owner[key] is not None:
                replaced.setdefault(name, same[id(owner[key])])
    kept = [(owner, key, owner[key]) for name, (owner, key) in own.items() if name in replaced]
    try:
        for name, value in replaced.items():
            owner, key = own[name]
            owner[key] = value
        yield
    finally:
        for owner, key, value in kept:
            owner[key] = value


def _tensors_of(module: Any) -> dict[str, tuple[dict, str]]:
    """Where each parameter and buffer is kept, by its full name."""
    found = {}
    for prefix, part in module.named_modules(remove_duplicate=False):
        for owner in (part._parameters, part._buffers):
            for key, value in owner.items():
                if value is not None:
                    found[f"{prefix}.{key}" if prefix else key] = (owner, key)
    return found


def replace_all_batch_norm_modules_(root: Any) -> Any:
    """The module, whose batch norms from now on normalise by the batch and keep no statistics,
    which would be written in place: `vmap` refuses that."""
    for module in root.modules():
        if isinstance(module, minigrad.nn.modules.batchnorm._BatchNorm):
            module.running_mean = module.running_var = module.num_batches_tracked = None
            module.track_running_stats = False
    return root


def stack_module_state(models: Sequence[Any]) -> tuple[dict, dict]:
    """(parameters, buffers) of several modules of one architecture, stacked along a new first
    dimension: for `vmap` over `functional_call`."""
    if not models:
        raise RuntimeError("stack_module_state: Expected at least one model, got 0.")
    if len({type(m) for m in models}) > 1:
        raise RuntimeError("stack_module_state: Expected all models to be of the same class.")

    def stacked(kind: str) -> dict:
        columns = [dict(getattr(m, kind)()) for m in models]
        return {
            name: minigrad.stack([c[name].detach() for c in columns]).requires_grad_(
                columns[0][name].requires_grad
            )
            for name in columns[0]
        }

    return stacked("named_parameters"), stacked("named_buffers")


__getattr__, __dir__ = namespace(__name__)
