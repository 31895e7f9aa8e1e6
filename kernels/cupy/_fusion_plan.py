"""What a fused function computes, as a graph, and the kernels that compute it.

Operations between arrays of one shape are one ElementwiseKernel. A reduction is a ReductionKernel
that computes its operand as it goes; where nothing but operations on its result follows, they are
in it too. An operation that has no expression in CUDA C is called by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from . import _trace
from ._array import SCALARS, fresh, ndarray, view
from ._elementwise import ElementwiseKernel, ReductionKernel
from ._expressions import c_type
from ._fusion_code import PREAMBLE, REDUCTIONS, computed_type, expression, literal
from ._ufunc import _takes, dtype_of, ufunc


@dataclass(eq=False)
class Node:
    """A value. kind: input (an argument, by number), constant, op (with its expression), call (of
    `value`, on whole arrays), reduce (over axes), view (an index). weak: the type of a number of
    Python's, which decides no result's dtype."""

    kind: str
    dtype: np.dtype
    shape: tuple[int, ...] = ()
    args: list[Node] = field(default_factory=list)
    is_number: bool = False
    weak: type | None = None
    name: str = ""
    value: Any = None  # a constant, an argument's number, axes, an index, a function
    types: list[np.dtype] = field(default_factory=list)  # of the operands
    text: str = ""

    ndim = property(lambda self: len(self.shape))


def given(number: int, arg: Any) -> Node:
    """An argument of the function."""
    if isinstance(arg, ndarray):
        return Node("input", arg.dtype, arg.shape, value=number)
    weak = type(arg) if type(arg) in SCALARS else None
    return Node("input", np.asarray(arg).dtype, is_number=True, weak=weak, value=number)


def constant(value: Any) -> Node:
    weak = type(value) if type(value) in SCALARS else None
    return Node("constant", np.asarray(value).dtype, is_number=True, weak=weak, value=value)


def operation(
    name: str, function: Any, args: list[Node], dtype: np.dtype | None = None,
    shape: tuple[int, ...] | None = None,
) -> list[Node]:  # fmt: skip
    """The results of an operation; `dtype` and `shape` are given for a cast. Raises TypeError where
    the operation does not take the types, ValueError where the shapes do not fit."""
    if name == "divmod":
        return [
            operation(part, _ufunc_named(part), args)[0] for part in ("floor_divide", "remainder")
        ]
    if shape is None:
        shape = np.broadcast_shapes(*(node.shape for node in args))
    number = all(node.is_number for node in args) and not shape
    if dtype is not None:
        (node,) = args
        text = _cast_text(node.dtype, dtype)
        return [Node("op", dtype, shape, args, number, None, name, None, [node.dtype], text)]
    dtypes = _result_types(function, args)
    types = _operand_types(name, function, args, dtypes[0])
    known = expression(name, types, dtypes[0]) if len(dtypes) == 1 else None
    if known is not None:
        return [Node("op", dtypes[0], shape, args, number, None, name, None, types, known)]
    return [
        Node("call", one, shape, args, False, None, name, (function, number_))
        for number_, one in enumerate(dtypes)
    ]


def _ufunc_named(name: str) -> ufunc:
    from ._methods import ufunc_named

    return ufunc_named(name)


def _sample(node: Node) -> Any:
    if node.weak is not None:
        return node.weak(1)
    return node.dtype.type(1) if node.is_number else fresh(np.ones(1, node.dtype))


def _result_types(function: Callable, args: list[Node]) -> list[np.dtype]:
    """The dtypes of the results: those that the function gives for arrays of one element."""
    with _trace.into(None):
        found = function(*map(_sample, args))
    return [np.dtype(one.dtype) for one in (found if isinstance(found, tuple) else (found,))]


def _operand_types(name: str, function: Any, args: list[Node], result: np.dtype) -> list[np.dtype]:
    """The types in which the operands are read."""
    if isinstance(function, ufunc):
        key = [node.weak or node.dtype for node in args]
        for entry in function.types:
            ins, outs = entry.split("->")
            if dtype_of(outs[0]) == result and all(map(_takes, ins, key)):
                return [dtype_of(char) for char in ins]
    if name == "where":
        return [np.dtype(bool), result, result]
    if len(args) == 1:
        return [result if name == "rsqrt" else args[0].dtype]
    return [result] * len(args)


def _cast_text(source: np.dtype, target: np.dtype) -> str:
    if source.kind == "c" and target.kind == "b":
        return "a != A(0)"
    return "a.real()" if source.kind == "c" and target.kind != "c" else "a"


def reduced(name: str, arg: Node, axis: Any, dtype: Any) -> Node:
    """A reduction over an axis, several, or all. Raises AxisError."""
    axes = range(arg.ndim) if axis is None else axis if isinstance(axis, tuple | list) else (axis,)
    for one in axes:
        if not -arg.ndim <= one < arg.ndim:
            raise np.exceptions.AxisError(one, arg.ndim)
    axes = tuple(one % arg.ndim for one in axes)
    if name in ("all", "any"):
        (arg,) = operation("astype", None, [arg], np.dtype(bool))
    elif name in ("nansum", "nanprod"):
        neutral = constant(arg.dtype.type(name == "nanprod"))
        if arg.dtype.kind in "fc":
            (missing,) = operation("isnan", _ufunc_named("isnan"), [arg])
            (arg,) = operation("where", _where, [missing, neutral, arg])
    if dtype is not None:
        (arg,) = operation("astype", None, [arg], np.dtype(dtype))
    result = np.dtype(dtype) if dtype is not None else arg.dtype
    if dtype is None and name in ("sum", "prod", "nansum", "nanprod") and result.kind in "biu":
        result = np.dtype(np.uint64 if result.kind == "u" else np.int64)
    shape = tuple(n for a, n in enumerate(arg.shape) if a not in axes)
    return Node("reduce", result, shape, [arg], name=name, value=axes)


def _where(condition: Any, x: Any, y: Any) -> Any:
    from ._functions import where

    return where(condition, x, y)


def viewed(arg: Node, index: tuple) -> Node:
    """Basic indexing. Raises IndexError."""
    shape = np.broadcast_to(np.empty(()), arg.shape)[index].shape
    return Node("view", arg.dtype, shape, [arg], value=index)


# --- kernels


class _Code:
    """The statements of a kernel for some nodes; `leaves` are what it reads, by name."""

    def __init__(self, stops: set[Node]) -> None:
        self.stops = stops
        self.leaves: dict[Node, str] = {}
        self.lines: list[str] = []
        self._names: dict[Node, str] = {}

    def name(self, node: Node) -> str:
        """The variable of a node, whose statements are added."""
        if node in self._names:
            return self._names[node]
        if node.kind == "constant":
            made = literal(node.value, node.dtype)
        elif node.kind == "op" and node not in self.stops:
            made = self._operation(node)
        else:
            self.leaves[node] = f"v{len(self.leaves)}"
            made = self.leaves[node]
            if node.dtype.char == "e":
                made = f"(float){made}"
        self._names[node] = made
        return made

    def _operation(self, node: Node) -> str:
        operands = [self.name(arg) for arg in node.args]
        made = f"w{len(self._names)}"
        kind = computed_type(node.dtype)
        declared = ""
        for letter, operand, arg, dtype in zip("abc", operands, node.args, node.types):
            kind_of, upper = computed_type(dtype), letter.upper()
            cast = f"({operand})" + (".real()" if arg.dtype.kind == "c" != dtype.kind else "")
            declared += f"typedef {kind_of} {upper}; const {upper} {letter} = ({upper}){cast}; "
        rounded = "(float)(float16)" if node.dtype.char == "e" else f"({kind})"
        self.lines.append(
            f"{kind} {made}; {{ typedef {kind} R; {declared}{made} = {rounded}({node.text}); }}"
        )
        return made

    def arguments(self, env: dict[Node, Any]) -> list[Any]:
        return [env[node] for node in self.leaves]

    def parameters(self) -> str:
        return ", ".join(f"{node.dtype} {name}" for node, name in self.leaves.items())


class Plan:
    """The kernels of a fused function for arguments of some dtypes (and shapes: `by_shape`)."""

    def __init__(
        self, name: str, outputs: list[Node], stores: dict[int, Node], kind: str, args: tuple
    ) -> None:
        self.name = name if name.isidentifier() else "fused"
        self.outputs, self.stores, self.kind = outputs, stores, kind
        self._steps: list[Callable[[dict[Node, Any]], None]] = []
        self._stops: set[Node] = set()
        roots = [*outputs, *stores.values()]
        nodes = list(_reachable(roots))
        self._uses = dict.fromkeys(nodes, 0)
        for node in nodes:
            for arg in node.args:
                self._uses[arg] += 1
        for node in outputs:
            self._uses[node] += 1
        self.inputs = [node for node in nodes if node.kind == "input"]
        self.by_shape = any(node.kind in ("reduce", "view", "call") for node in nodes)
        self.kernels: list[Any] = []
        if not (self.by_shape and self._ends_in_reduction(roots)):
            self._elementwise(roots)

    def __call__(self, args: tuple) -> Any:
        env: dict[Any, Any] = {node: args[node.value] for node in self.inputs}
        arrays = [arg for arg in args if isinstance(arg, ndarray)]
        env[None] = (args, np.broadcast_shapes(*(one.shape for one in arrays)), arrays)
        for step in self._steps:
            step(env)
        if self.kind == "none":
            return None
        found = env["results"][: len(self.outputs)]
        return tuple(found) if self.kind == "tuple" else found[0]

    # --- what is computed before

    def _compute(self, nodes: Iterable[Node]) -> None:
        """Add the steps for reductions, views and calls that the nodes need."""
        for node in _reachable(nodes):  # operands first
            if node in self._stops or node.kind not in ("reduce", "view", "call"):
                continue
            self._stops.add(node)
            if node.kind == "reduce":
                self._materialise(node.args[0], shared=True)
                self._steps.append(self._reduction(node, []))
            elif node.kind == "view":
                self._materialise(node.args[0])
                self._steps.append(_view_step(node))
            else:
                for arg in node.args:
                    self._materialise(arg)
                self._steps.append(_call_step(node))

    def _materialise(self, node: Node, shared: bool = False) -> None:
        """Let the value of an operation be in memory; if `shared`, only where others need it."""
        if node.kind != "op" or node in self._stops or (shared and self._uses[node] < 2):
            return
        run = self._kernel([node])

        def step(env: dict) -> None:
            env[node] = fresh(np.empty(node.shape, node.dtype))
            run(env, [env[node]])

        self._steps.append(step)
        self._stops.add(node)

    # --- reductions

    def _ends_in_reduction(self, roots: list[Node]) -> bool:
        """Add one reduction that computes all, if there is one."""
        reductions = [node for node in _reachable(roots) if node.kind == "reduce"]
        others = any(node.kind in ("view", "call") for node in _reachable(roots))
        if len(reductions) != 1 or others or self.stores:
            return False
        (node,) = reductions
        code = _Code({node})
        for root in roots:
            code.name(root)
        if node not in code.leaves or any(
            leaf is not node and not leaf.is_number for leaf in code.leaves
        ):
            return False
        self._steps.append(self._reduction(node, roots))
        return True

    def _reduction(self, node: Node, roots: list[Node]) -> Callable:
        """The kernel of a reduction, with what is computed of its result (`roots`)."""
        before, after = _Code(self._stops), _Code({node})
        operand = before.name(node.args[0])
        kind, held = c_type(node.dtype), computed_type(node.dtype)
        after.leaves[node] = after._names[node] = "a_"
        values = [after.name(root) for root in roots] or ["a_"]
        passed = [leaf for leaf in after.leaves if leaf is not node]
        numbers = [leaf for leaf in passed if leaf not in before.leaves]
        names = {**before.leaves, **{leaf: f"n{i}" for i, leaf in enumerate(numbers)}}
        targets = {f"o{i}": one.dtype for i, one in enumerate(roots or [node])}
        post = [f"const {c_type(leaf.dtype)}& {after.leaves[leaf]}" for leaf in passed]
        post += [f"{c_type(dtype)}& {name}" for name, dtype in targets.items()]
        read = [f"const {c_type(leaf.dtype)}& {name}" for leaf, name in before.leaves.items()]
        stores = [f"{o} = ({c_type(t)})({v});" for (o, t), v in zip(targets.items(), values)]
        lines = [
            f"__device__ inline {held} mg_pre_map({', '.join(read)}) {{",
            *before.lines,
            f"return ({held})({operand});\n}}",
            f"__device__ inline void mg_post_map({', '.join([f'const {held}& b_', *post])}) {{",
            f"const {held} a_ = ({held})({kind})b_;",
            *after.lines,
            *stores,
            "}\n",
        ]
        identity, combined = REDUCTIONS[node.name]
        kernel = ReductionKernel(
            ", ".join(f"{leaf.dtype} {name}" for leaf, name in names.items()),
            ", ".join(f"{dtype} {name}" for name, dtype in targets.items()),
            f"mg_pre_map({', '.join(before.leaves.values())})",
            combined,
            f"mg_post_map({', '.join(['a', *(names[leaf] for leaf in passed), *targets])})",
            identity,
            self.name,
            held,
            preamble=PREAMBLE + "\n".join(lines),
        )
        self.kernels.append(kernel)
        leaves, axes, wide = list(names), node.value, node.args[0].shape

        def step(env: dict) -> None:
            args = [env[leaf] for leaf in leaves]
            first = next(i for i, leaf in enumerate(leaves) if not leaf.is_number)
            if args[first].shape != wide:  # the loop is as wide as the operand
                args[first] = view(args[first], np.broadcast_to(args[first]._array, wide))
            found = kernel(*args, axis=axes)
            if roots:
                env["results"] = list(found) if isinstance(found, tuple) else [found]
            else:
                env[node] = found

        return step

    # --- element by element

    def _kernel(self, roots: list[Node]) -> Callable:
        """A kernel that computes some nodes: run(env, arrays)."""
        self._compute(roots)
        code = _Code(self._stops)
        values = [code.name(root) for root in roots]
        outs = ", ".join(f"{one.dtype} o{i}" for i, one in enumerate(roots))
        stored = "".join(
            f"\no{i} = ({c_type(one.dtype)})({value});"
            for i, (one, value) in enumerate(zip(roots, values))
        )
        preamble = PREAMBLE if any("mg_" in line for line in code.lines) else ""
        kernel = ElementwiseKernel(
            code.parameters(), outs, "\n".join(code.lines) + stored, self.name, preamble=preamble
        )
        self.kernels.append(kernel)
        return lambda env, arrays: kernel(*code.arguments(env), *arrays)

    def _elementwise(self, roots: list[Node]) -> None:
        """Add the kernels of the outputs and of what is written to, one for each shape."""
        if not roots:
            return
        self._compute(roots)
        groups: dict[Any, list[int]] = {}
        common = np.broadcast_shapes(*(node.shape for node in self.inputs))
        made: set[Node] = set()  # what is a result as it is
        for number, root in enumerate(roots):
            stored = number >= len(self.outputs)
            if root.kind in ("reduce", "call") and not stored and root not in made:
                made.add(root)
                continue
            shape = root.shape if self.by_shape or stored else common
            groups.setdefault(shape, []).append(number)
        direct = len(groups) == 1
        kernels = [
            (numbers, self._kernel([roots[n] for n in numbers])) for numbers in groups.values()
        ]
        written = list(self.stores)

        def step(env: dict) -> None:
            args, common, arrays = env[None]
            results: list[Any] = [env[root] if root in made else None for root in roots]
            for number in sorted(number for numbers, _ in kernels for number in numbers):
                root = roots[number]
                if number >= len(self.outputs):
                    target = args[written[number - len(self.outputs)]]
                    if direct and not _overlaps(target, arrays):
                        results[number] = target
                        continue
                    shape = target.shape
                else:
                    shape = root.shape if self.by_shape else common
                results[number] = fresh(np.empty(shape, root.dtype))
            for numbers, run in kernels:
                run(env, [results[n] for n in numbers])
            for number, argument in enumerate(written, len(self.outputs)):
                if results[number] is not args[argument]:
                    args[argument]._array[...] = results[number]._array
            env["results"] = results

        self._steps.append(step)


def _overlaps(target: ndarray, arrays: list[ndarray]) -> bool:
    """Whether another array has some of the memory of `target`, element for element or not."""
    return any(
        one is not target and np.may_share_memory(one._array, target._array) for one in arrays
    )


def _view_step(node: Node) -> Callable:
    (source,) = node.args

    def step(env: dict) -> None:
        env[node] = env[source][node.value]

    return step


def _call_step(node: Node) -> Callable:
    function, number = node.value

    def step(env: dict) -> None:
        args = [arg.value if arg.kind == "constant" else env[arg] for arg in node.args]
        found = function(*args)
        env[node] = found[number] if isinstance(found, tuple) else found

    return step


def _reachable(roots: Iterable[Node]) -> Iterable[Node]:
    """The nodes that the roots need, operands first, each once."""
    seen: set[Node] = set()
    order: list[Node] = []
    waiting = [(root, False) for root in reversed(list(roots))]
    while waiting:
        node, ready = waiting.pop()
        if ready:
            order.append(node)
        elif node not in seen:
            seen.add(node)
            waiting.append((node, True))
            waiting += [(arg, False) for arg in reversed(node.args)]
    return order
