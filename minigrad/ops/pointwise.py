"""Pointwise operations: the table of `kernels.pointwise`, with torch's names and promotion.

The forward pass and each gradient are lines of that table, one kernel each. If the gradient itself
is recorded (`create_graph=True`), the same derivative text is evaluated on tensors instead, so
derivatives of every order exist.
"""

from __future__ import annotations

import ast
import itertools
import threading
from collections.abc import Callable, Sequence
from functools import cache, partial
from operator import itemgetter
from typing import Any, Self

import numpy as np

from kernels import dispatch
from kernels.pointwise import FUNCTIONS as TEXT_FUNCTIONS
from kernels.pointwise import TABLE, Expr
from minigrad import dtypes
from minigrad._foreign import reject_foreign
from minigrad._meta import MetaArray
from minigrad._meta_results import results as meta_results
from minigrad._names import kind
from minigrad._overlap import check_no_overlap
from minigrad.autograd.mode import batching, mode, unusual
from minigrad.autograd.node import (
    Op,
    OpNode,
    alias,
    check_devices,
    edges_of,
    new,
    record,
    refuse_complex,
)
from minigrad.backends import array_module
from minigrad.devices import CPU
from minigrad.tensor import Tensor, wrap

Number = bool | int | float | complex
_NUMBERS = (float, int, bool)
_SCALARS = (*_NUMBERS, complex)
COMPLEX: list[Callable] = []  # what computes a line on complex numbers: `minigrad.ops.complexes`


class _Target(threading.local):
    tensor: Tensor | None = None


_targets: list[None] = []  # one for each call of `onto` that a thread is in
_target = _Target()


def onto(target: Tensor, function: Callable, args: tuple, kwargs: dict) -> Tensor:
    """function(target, *args, **kwargs), which ends in one line of the table: it is written into
    the memory of `target` where that is possible. Then the result is `target`, or another tensor of
    its array where it is recorded, and the version of `target` is the next one."""
    _targets.append(None)
    before, _target.tensor = _target.tensor, target
    try:
        return function(target, *args, **kwargs)
    finally:
        _target.tensor = before
        _targets.pop()


def _numbers_moved(args: tuple) -> list | None:
    """The arguments with 0-dimensional tensors on the CPU moved to where the others are; None where
    all are in one place. RuntimeError for other tensors on different devices."""
    if all(a.device == b.device for a, b in itertools.pairwise(filter(_is_tensor, args))):
        return None
    number = [_is_tensor(a) and not a._array.ndim and a.device == CPU for a in args]
    check_devices([a for a, small in zip(args, number) if not small])
    where = next(a.device for a, small in zip(args, number) if _is_tensor(a) and not small)
    return [a.to(where) if small else a for a, small in zip(args, number)]


def _is_tensor(value: Any) -> bool:
    return isinstance(value, Tensor)


class Derivative:
    """The gradient of one input: a derivative line, and where its arguments come from.

    sources: per argument, -1 for the incoming gradient, which comes last, else a position among the
    saved values. of: the arguments from a list of these.
    """

    __slots__ = ("expr", "identity", "of", "params", "sources")

    def __init__(self, forward: Expr, derivative: Expr, saved: list[str]) -> None:
        self.expr = derivative
        self.sources = tuple(-1 if n == "g" else saved.index(n) for n in derivative.args)
        first = self.sources[0]
        alone = slice(first, first + 1 or None)  # a list, too
        self.of = itemgetter(*self.sources if len(self.sources) > 1 else (alone,))
        self.params = tuple(forward.params.index(name) for name in derivative.params)
        self.identity = derivative.text == "g"

    def __call__(self, values: Sequence, params: tuple, dtype: np.dtype) -> Any:
        """The gradient as an array, from the saved arrays and the incoming gradient."""
        active, expr, own, given = dispatch.active, self.expr, self.of(values), ()
        if self.params:
            given = tuple([params[i] for i in self.params])
        found = dispatch.relaunch(dispatch.tracer, active, expr, *own, *given)
        return active.pointwise(expr, *own, params=given, dtype=dtype) if found is None else found


class Plan:
    """What some inputs' gradients take.

    derivatives: per input, a `Derivative` or None; empty if no input has a gradient. kept,
    kept_outputs: the inputs and the outputs to save. of: those inputs from all. launches: the
    derivatives that are not the incoming gradient itself.
    """

    __slots__ = ("derivatives", "kept", "kept_outputs", "launches", "of", "parts")

    def __init__(self, derivatives: tuple, kept: tuple, kept_outputs: tuple) -> None:
        self.derivatives, self.kept, self.kept_outputs = derivatives, kept, kept_outputs
        self.parts: dict[tuple[bool, ...], Plan] = {}
        self.launches = [d for d in derivatives if d is not None and not d.identity]
        together = kept == tuple(range(kept[0], kept[-1] + 1)) if kept else True
        part = slice(kept[0], kept[-1] + 1) if kept else slice(0)
        self.of = itemgetter(part) if together else itemgetter(*kept)

    def __call__(self, *operands: Any) -> tuple:
        """Those gradients, the last one first, from the saved arrays, the incoming gradient, in the
        dtype of which they are computed, and the parameters."""
        count = len(self.kept) + len(self.kept_outputs)
        values, params = operands[: count + 1], operands[count + 1 :]
        return tuple([d(values, params, values[-1].dtype) for d in reversed(self.launches)])

    def part(self, wanted: tuple[bool, ...]) -> Plan:
        """This plan without the gradients of some inputs, from as many saved values."""
        if wanted not in self.parts:
            chosen = tuple([d if w else None for d, w in zip(self.derivatives, wanted)])
            self.parts[wanted] = Plan(chosen, self.kept, self.kept_outputs)
        return self.parts[wanted]


class PointwiseNode(OpNode):
    """A recorded line. attrs: its parameters, and the dtype it was computed in."""

    __slots__ = ("plan",)
    copied = tuple(name for name in OpNode.copied if name != "shapes")

    plan: Plan
    shapes = None

    def with_edges(self, edges: tuple) -> Self:
        node = super().with_edges(edges)
        node.plan = self.plan.part(node.needs)
        return node

    def backward(self, grads: list[Tensor | None]) -> Sequence[Tensor | None]:
        """The gradients of the inputs, one kernel each; evaluated on tensors if they are
        recorded."""
        g: Any = grads[0]
        if mode.enabled:
            return self.recorded(g)
        if isinstance(g._array, MetaArray):
            return self.without_data()
        plan = self.plan
        if not plan.launches:
            return [d and g for d in plan.derivatives]
        array, attrs = g._array, self.attrs
        values, params, dtype = self.arrays(), attrs["params"], attrs["dtype"]
        values.append(array)
        made: list = []
        if len(plan.launches) > 1 and array.dtype is dtype:
            made += dispatch.together(plan, *values, *params)
        results: list[Tensor | None] = []
        for derivative in plan.derivatives:
            if derivative is None:
                results.append(None)
            elif derivative.identity:
                results.append(g)
            else:
                results.append(wrap(made.pop() if made else derivative(values, params, dtype)))
        return results

    def recorded(self, g: Tensor) -> list[Tensor | None]:
        """The same derivative texts, evaluated on tensors."""
        params, dtype = self.attrs["params"], self.attrs["dtype"]
        plan, values = self.plan, self.tensors()
        operands = [self.op.operand(i, v, dtype, g) for i, v in zip(plan.kept, values)]
        operands += values[len(plan.kept) :]
        results: list[Tensor | None] = []
        for derivative in plan.derivatives:
            if derivative is None:
                results.append(None)
                continue
            inputs = [g if s < 0 else operands[s] for s in derivative.sources]
            own = [params[i] for i in derivative.params]
            expr = derivative.expr
            result = on_tensors(expr.text, expr.args + expr.params)(*inputs, *own)
            if self.op.name in _PIECEWISE:
                result = Constant.apply(result, operands[0])
            results.append(result)
        return results


# Lines whose derivative is constant between kinks. Its own derivative is zeros, as in torch; the
# operations in whose text the input is only compared would give none.
_PIECEWISE = frozenset(("relu", "leaky_relu", "hardtanh", "threshold", "prelu"))


class Constant(Op):
    """`value`, recorded as computed from `x` too, with zeros as the gradient of that."""

    saves = ()

    @staticmethod
    def forward(value: Any, x: Any) -> Any:
        return value

    @staticmethod
    def vjp(ctx: Any, g: Tensor) -> tuple:
        zeros = array_module(g._array).zeros(ctx.shapes[1], g._array.dtype)
        return g, wrap(zeros) if ctx.needs[1] else None


def _may_share(a: Any, b: Any) -> bool:
    """Whether two arrays, not the same one, may have memory in common."""
    owned = a.base is None and b.base is None  # by two arrays
    return not owned and array_module(b).may_share_memory(a, b)


# torch's names of nodes that are not those of the lines.
_NODES = {
    "axpy": "AddBackward0",
    "clamp": "ClampBackward1",
    "clamp_above": "ClampBackward0",
    "clamp_below": "ClampBackward0",
    "clamp_between": "ClampBackward0",
    "clamp_max": "ClampBackward1",
    "clamp_min": "ClampBackward1",
    "cube": "PowBackward0",
    "div_floor": "DivBackward2",
    "div_trunc": "DivBackward2",
    "gelu_tanh": "GeluBackward0",
    "log1p": "Log1PBackward0",
    "logsigmoid": "LogSigmoidBackward0",
    "prelu": "PreluKernelBackward0",
    "softsign": "DivBackward0",
    "square": "PowBackward0",
}


class Pointwise:
    """A line of the table as an operation on tensors and Python numbers."""

    __slots__ = (
        *("_plans", "domain", "expr", "grad_name", "into", "keeps_dtype", "masks", "name"),
        "plain",
    )

    def __init__(self, expr: Expr) -> None:
        self.expr = expr
        self.into = dispatch.named("into", expr)  # as `kernels.launchers.relaunch` knows it
        self.name = expr.name
        own = "".join(w.capitalize() for w in expr.name.split("_")) + "Backward0"
        self.grad_name = _NODES.get(expr.name, own)
        self.masks = frozenset(i for i, a in enumerate(expr.args) if a in expr.masks)
        self.domain = expr.domain
        self.plain = expr.domain != "int" and not expr.masks
        self.keeps_dtype = expr.result == "same"
        self._plans: dict[int, Plan] = {}  # by which inputs require a gradient, as bits

    def __call__(self, *args: Tensor | Number, params: tuple = ()) -> Tensor:
        """Compute, and record if an input requires a gradient.

        args: tensors that broadcast together, or numbers. params: the line's parameters.
        """
        arrays: list[Any] = []
        edges: list[Any] = []  # and `needs`, as `edges_of` gives them, if it is recorded
        needs, bit, enabled = 0, 1, mode.enabled
        for a in args:
            if isinstance(a, Tensor):
                arrays.append(a._array)
                if not enabled:
                    continue
                if a._requires_grad if a._view is None else a.requires_grad:
                    node = a._node
                    edges.append(a if node is None else (node, a._index) if a._index else node)
                    needs += bit
                else:
                    edges.append(None)
            else:
                arrays.append(a)
                edges.append(None)
            bit += bit
        target = _target.tensor if _targets else None
        if target is not None and self._may_write(target, args, needs):
            return self._onto(target, args, arrays, params, tuple(edges), needs)
        found = None
        if not unusual or mode.observer is None:  # which is told the dtype to compute in
            active = dispatch.active
            found = dispatch.relaunch(dispatch.tracer, active, self.expr, *arrays, *params)
        if found is None:
            return self._first(args, arrays, params)
        tensor = wrap(found)
        if needs:
            self.record(args, params, found.dtype, tuple(edges), needs, tensor)
        return tensor

    def _may_write(self, target: Tensor, args: tuple, needs: int) -> bool:
        """Whether the result may take the memory of an argument, `target`: its old value isn't
        needed any more, and no other argument shares that memory."""
        array, given = target._array, False
        if mode.recorder is not None or not self.keeps_dtype:
            return False
        if unusual and mode.observer is not None:
            return False
        for a in args:
            if a is target:
                given = True
            elif isinstance(a, Tensor) and _may_share(a._array, array):
                return False
        if batching or not given or not getattr(array.flags, "writeable", True):
            return False
        if not needs:
            return True
        plan = self._plan(needs)
        kept = any(args[i] is target for i in plan.kept)
        return not kept and not (plan.kept_outputs and target._view is not None)

    def _onto(
        self, target: Tensor, args: tuple, arrays: list, params: tuple, edges: tuple, needs: int
    ) -> Tensor:
        """As a call, into the memory of `target`."""
        _target.tensor = None
        array, active = target._array, dispatch.active
        found = dispatch.relaunch(dispatch.tracer, active, self.into, array, *arrays, *params)
        if found is None:
            return self._first(args, arrays, params, target)
        target._counter[0] += 1
        if not needs:
            return target
        tensor = alias(target)
        self.record(args, params, found.dtype, edges, needs, tensor)
        return tensor  # also without a node: the gradient of the old value is zero

    def _first(
        self, args: tuple, arrays: list, params: tuple, target: Tensor | None = None
    ) -> Tensor:
        """As a call, with all checks: for operands like which none were seen, or that are large.
        target: whose memory the result takes if it has its shape and dtype."""
        if mode.recorder is not None:
            args = tuple(map(mode.recorder.number, args))
            arrays = [a._array if isinstance(a, Tensor) else a for a in args]
        for value in params:
            if type(value) not in _NUMBERS:
                params = tuple([number(self.name, p) for p in params])
                break
        dtype = self._plain_dtype(arrays)
        if dtype is None:
            dtype = self.compute_dtype(args)
            check_broadcast(arrays)
            if self.name in COMPARED and any(is_narrow(a) for a in arrays if hasattr(a, "dtype")):
                arrays = [_in_dtype(a, dtype) for a in arrays]
            if dtype.kind == "c":
                return COMPLEX[0](self, args, arrays, params, dtype)
            if dtype.kind in "iu":
                arrays = [a if hasattr(a, "dtype") else in_integers(a, dtype) for a in arrays]
                params = tuple([in_integers(p, dtype) for p in params])
        into = {}  # not for what records launches, which gets no target
        if target is not None:
            array = target._array
            check_no_overlap(array)
            if dtype == array.dtype and check_broadcast(arrays) == array.shape:
                into = {"out": array}
        try:
            pointwise = dispatch.active.pointwise
            made = pointwise(self.expr, *arrays, params=params, dtype=dtype, **into)
        except Exception:
            refuse_complex(self.name, args)
            moved = _numbers_moved(args)
            if moved is not None:
                return self(*moved, params=params)
            if not any(isinstance(a, MetaArray) for a in arrays):
                raise
            made = meta_results(partial(pointwise, self.expr, params=params, dtype=dtype), arrays)
            into = {}
        tensor = wrap(made)
        if target is not None and into:
            tensor._counter = target._counter
            tensor._counter[0] += 1
        if mode.observer is not None:
            mode.observer(self, args, {"params": params, "dtype": dtype}, (tensor,))
        if mode.enabled:
            edges, needs = edges_of(args)
            if needs:
                self.record(args, params, dtype, edges, needs, tensor)
        return tensor

    def _plain_dtype(self, arrays: list) -> np.dtype | None:
        """The dtype in the common case: one floating dtype, one shape; else None."""
        dtype = shape = None
        for a in arrays:
            if type(a) in _NUMBERS:
                continue
            if type(a) is complex:
                return None
            if dtype is None:
                dtype, shape = getattr(a, "dtype", None), getattr(a, "shape", None)
            elif getattr(a, "dtype", None) is not dtype or a.shape != shape:
                return None
        plain = self.plain and isinstance(dtype, np.dtype) and dtype.kind == "f"
        return dtype if plain else None

    def record(
        self,
        args: tuple,
        params: tuple,
        dtype: np.dtype,
        edges: tuple,
        needs: int,
        tensor: Tensor,
        kind: type[PointwiseNode] = PointwiseNode,
    ) -> None:
        """Add a call to the graph as a node of a kind, if the line has a gradient of the inputs
        that need one (`edges_of`)."""
        plan = self._plans.get(needs) or self._plan(needs)
        if not plan.derivatives:
            return
        node: Any = new(kind)
        node.op, node.plan, node.outputs = self, plan, plan.kept_outputs
        node.attrs = {"params": params, "dtype": dtype}
        record(node, edges, plan.of(args), (tensor,))

    def forward(self, *arrays: Any, params: tuple, dtype: np.dtype) -> Any:
        """The result from arrays and numbers, in the compute dtype."""
        return dispatch.active.pointwise(self.expr, *arrays, params=params, dtype=dtype)

    def operand(self, i: int, value: Any, dtype: np.dtype, like: Tensor) -> Tensor:
        """Input i as a tensor of the compute dtype."""
        if i in self.masks:
            return value
        if isinstance(value, Tensor):
            return value if value._array.dtype == dtype else value.to(dtype)
        return wrap(array_module(like._array).asarray(value, dtype))

    def compute_dtype(self, args: tuple) -> np.dtype:
        """The NumPy type to compute in, by torch's promotion and the domain of the line."""
        found = None
        for i, a in enumerate(args):
            if type(a) is complex:
                return self._promoted(args)
            if i in self.masks or type(a) in _NUMBERS:
                continue
            if not isinstance(a, Tensor):
                raise TypeError(f"{self.name}(): argument must be Tensor, not {kind(a)}")
            if found is None:
                found = a._array.dtype
            elif a._array.dtype != found:
                return self._promoted(args)
        if found is not None and found.kind == "f" and self.domain != "int":
            return found  # numbers don't change a floating type
        if found is None and len(args) == 1:
            raise TypeError(f"{self.name}(): argument 'input' must be Tensor, not {kind(args[0])}")
        return self._promoted(args)

    def _promoted(self, args: tuple) -> np.dtype:
        classes: list[np.dtype | None] = [None, None, None]
        for i, a in enumerate(args):
            if i in self.masks:
                continue
            if isinstance(a, Tensor):
                rank, dtype = (0 if a._array.ndim else 1), a._array.dtype
            else:
                rank, dtype = 2, dtypes.scalar_dtype(a)
            known = classes[rank]
            classes[rank] = dtype if known is None else dtypes.promote(known, dtype)
        dtype = dtypes.combine(*classes)
        floating = dtypes.category(dtype) >= dtypes.FLOATING
        if ("f" if floating else dtype.kind) in self.expr.refuses:
            raise dtypes.refused(self.name, dtype)
        if self.domain == "float" and not floating:
            return dtypes.default_numpy()
        return dtype

    def _plan(self, needs: int) -> Plan:
        """What the gradients of some inputs take, by their bits."""
        known = self._plans.get(needs)
        if known is not None:
            return known
        exprs = [self.expr.vjp(i) if needs >> i & 1 else None for i in range(len(self.expr.args))]
        used = {name for expr in exprs if expr for name in expr.args}
        kept = tuple([i for i, name in enumerate(self.expr.args) if name in used])
        names = [self.expr.args[i] for i in kept] + ["y"]
        derivatives = [e and Derivative(self.expr, e, names) for e in exprs]
        plan = Plan(tuple(derivatives) if any(exprs) else (), kept, (0,) if "y" in used else ())
        self._plans[needs] = plan
        return plan


@cache
def on_tensors(text: str, names: tuple[str, ...]) -> Callable:
    """An expression text of a table as a function of tensors and numbers called `names`."""
    tree = _Logistic().visit(ast.parse(text, mode="eval"))
    return eval(f"lambda {', '.join(names)}: {ast.unparse(tree)}", _tensor_namespace())


class _Logistic(ast.NodeTransformer):
    """a / (1 + exp(b)) as a * sigmoid(-b), whose derivative is 0 where exp(b) is infinite."""

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        self.generic_visit(node)
        match node:
            case ast.BinOp(
                over,
                ast.Div(),
                ast.BinOp(
                    ast.Constant(1), ast.Add(), ast.Call(ast.Name("exp"), [ast.expr() as power])
                ),
            ):
                sigmoid = ast.Call(ast.Name("sigmoid"), [ast.UnaryOp(ast.USub(), power)], [])
                return ast.BinOp(over, ast.Mult(), sigmoid)
        return node


@cache
def _tensor_namespace() -> dict[str, Any]:
    renamed = {"rint": "round"}
    space: dict[str, Any] = {n: POINTWISE[renamed.get(n, n)] for n in TEXT_FUNCTIONS}
    return {**space, "sigmoid": POINTWISE["sigmoid"], "__builtins__": {}, "__name__": __name__}


POINTWISE: dict[str, Pointwise] = {name: Pointwise(expr) for name, expr in TABLE.items()}


def number(name: str, value: Any) -> Number:
    """A number or a 0-dimensional tensor as a Python number; TypeError for anything else."""
    if isinstance(value, _SCALARS):
        return value if mode.recorder is None else mode.recorder.number(value)
    if isinstance(value, np.generic) or (isinstance(value, Tensor) and not value._array.ndim):
        return value.item()
    raise TypeError(f"{name}(): expected a number, not {kind(value)}")


def factor(name: str, value: Number, dtype: np.dtype) -> Number:
    """A number that tensors of a dtype are multiplied with. RuntimeError where the dtype has no
    such number: a fraction for integers, a number over its range."""
    floating = dtypes.category(dtype) == dtypes.FLOATING
    if isinstance(value, complex if floating else float | complex) and dtype.kind != "c":
        kind = "a complex" if floating else "a floating point"
        of = "non-complex" if floating else "integral"
        raise RuntimeError(f"For {of} input tensors, argument {name} must not be {kind} number.")
    return dtypes.fitting(value, dtype)


def in_integers(value: Number, dtype: np.dtype) -> int:
    """A number as one of an integer dtype: as in torch, integers wrap around and fractions are cut
    off; RuntimeError for NaN and infinity."""
    if type(value) is int and -128 <= value < 128 and dtype.kind == "i":
        return value
    try:
        return int(np.asarray(int(value)).astype(dtype))
    except (ValueError, OverflowError) as error:
        raise RuntimeError(
            f"value {value} cannot be converted to type {dtype.name}_t without overflow"
        ) from error


def rounded_once(function: Callable, input: Tensor, *args: Any) -> Tensor:
    """The result of `function`, which consists of several operations, for 16-bit tensors: computed
    in float32 and rounded at the end, as torch's kernels do."""
    narrow = input.dtype

    def widened(value: Any) -> Any:
        return value.float() if isinstance(value, Tensor) and value.dtype == narrow else value

    return function(input.float(), *map(widened, args)).to(narrow)


# Of tensors of 16 bits these take a number as the number of that dtype next to it, as in torch: a
# float16 may be equal to 0.1. Other lines take numbers as float32.
COMPARED = frozenset("eq ne lt le gt ge remainder fmod".split())


def beside(array: Any, value: Any) -> Any:
    """A number as what is `COMPARED` takes it beside an array."""
    if array.dtype.itemsize != 2 or type(value) not in (int, float) or not is_narrow(array):
        return value
    with np.errstate(over="ignore"):
        return float(array.dtype.type(value))


def _in_dtype(array: Any, dtype: np.dtype) -> Any:
    return array.astype(dtype, copy=False) if hasattr(array, "dtype") else array


def is_narrow(array: Any) -> bool:
    """Whether an array has a floating dtype of 16 bits."""
    return array.dtype.itemsize == 2 and dtypes.category(array.dtype) == dtypes.FLOATING


def check_floating(name: str, *tensors: Tensor) -> None:
    """NotImplementedError unless all are of floating dtypes."""
    for x in tensors:
        if not x.is_floating_point():
            raise dtypes.refused(name, x._array.dtype)


def check_broadcast(arrays: list) -> tuple[int, ...]:
    """The common shape of arrays (numbers have none); RuntimeError if there is none."""
    shape: tuple[int, ...] | None = None
    for array in arrays:
        if type(array) in _SCALARS:
            continue
        if shape is None:
            shape = array.shape
        elif array.shape != shape:
            shape = broadcast_shape(shape, array.shape)
    return shape or ()


def broadcast_shape(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
    """The shape that two shapes broadcast to."""
    if a == b:
        return a
    ndim = max(len(a), len(b))
    full_a, full_b = (1,) * (ndim - len(a)) + a, (1,) * (ndim - len(b)) + b
    result = []
    for dim, (m, n) in enumerate(zip(full_a, full_b, strict=True)):
        if m != n and m != 1 and n != 1:
            raise RuntimeError(
                f"The size of tensor a ({m}) must match the size of tensor b ({n}) "
                f"at non-singleton dimension {dim}"
            )
        result.append(n if m == 1 else m)
    return tuple(result)


def operand(value: Any) -> Any:
    """A value as an operand: a tensor or a number; arrays become tensors. None for other types."""
    if isinstance(value, Tensor) or type(value) in _SCALARS:
        return value
    if mode.recorder is not None and isinstance(value, float):
        return mode.recorder.number(value)
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        dtypes.from_numpy_dtype(value.dtype)
        return wrap(value)
    reject_foreign("operand", value)
    return None
