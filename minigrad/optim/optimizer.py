"""`Optimizer`: parameter groups, state, hooks; the base of every optimiser."""

from __future__ import annotations

import functools
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from copy import deepcopy
from typing import Any

import numpy as np

import minigrad
from minigrad._meta import MetaArray
from minigrad._names import kind
from minigrad.autograd import rehearsal
from minigrad.autograd.mode import mode, sparse_gradients
from minigrad.optim.arena import Arenas, Run, start_value
from minigrad.tensor import Tensor, type_name, wrap
from minigrad.utils.hooks import Hooks, RemovableHandle, add_hook


class _Required:
    def __repr__(self) -> str:
        return "<required parameter>"


required = _Required()
_SMALL = 1 << 28  # bytes
NOTHING = nullcontext()


def _with_hooks(step: Callable[..., Any]) -> Callable[..., Any]:
    """`step` with the step hooks of the optimiser, and a flag that it was called."""

    @functools.wraps(step)
    def wrapped(self: Optimizer, *args: Any, **kwargs: Any) -> Any:
        self._opt_called = True  # checked by the learning-rate schedulers
        if "_step_pre_hooks" not in self.__dict__:  # of a class around another optimiser, which has
            return step(self, *args, **kwargs)  # them, so that it doesn't call our `__init__`
        args = (self, *args)  # as hooks see them
        for hook in [*_ALL_PRE_HOOKS.values(), *self._step_pre_hooks.values()]:
            changed = hook(self, args, kwargs)
            if changed is not None:
                if not (isinstance(changed, tuple) and len(changed) == 2):
                    raise RuntimeError(
                        f"{step} must return None or a tuple of (new_args, new_kwargs), "
                        f"but got {changed}."
                    )
                args, kwargs = changed
        if mode.recorder is None:
            result = step(*args, **kwargs)
        else:
            result = mode.recorder.optimizer_step(self, step, args[1:], kwargs)
        for hook in [*self._step_post_hooks.values(), *_ALL_POST_HOOKS.values()]:
            hook(self, args, kwargs)
        return result

    return wrapped


_ALL_PRE_HOOKS, _ALL_POST_HOOKS = Hooks(), Hooks()


def register_optimizer_step_pre_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """``hook(optimizer, args, kwargs)`` before every step of all optimisers."""
    return add_hook(_ALL_PRE_HOOKS, hook)


def register_optimizer_step_post_hook(hook: Callable[..., None]) -> RemovableHandle:
    """``hook(optimizer, args, kwargs)`` after every step of all optimisers."""
    return add_hook(_ALL_POST_HOOKS, hook)


class Optimizer:
    """Base class of all optimisers.

    An optimiser of this package defines its flat state (`_state_names`) and the update of one run
    of parameters (`_update`).  Others may override `step` instead.

    Args:
        params: parameters, ``(name, parameter)`` pairs, or dicts with "params" and options.
        defaults: the options of groups that don't set their own.

    Attributes:
        param_groups: list of dicts: "params" and the options.
        state: per parameter, a dict of the optimiser's state.
    """

    _counts_steps = True

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "step" in cls.__dict__:
            cls.step = _with_hooks(cls.__dict__["step"])

    def __init__(self, params: Iterable[Any], defaults: dict[str, Any]) -> None:
        if isinstance(params, Tensor):
            raise TypeError(
                "params argument given to the optimizer should be an iterable of Tensors or "
                f"dicts, but got {type_name(params)}"
            )
        self.defaults = defaults
        self.state: defaultdict[Tensor, dict[str, Any]] = defaultdict(dict)
        self.param_groups: list[dict[str, Any]] = []
        self._forget_transient()
        groups = list(params)
        if not groups:
            raise ValueError("optimizer got an empty parameter list")
        if not isinstance(groups[0], dict):
            groups = [{"params": groups}]
        for group in groups:
            self.add_param_group(dict(group))

    def _forget_transient(self) -> None:
        """Reset everything that is neither state nor options."""
        self._arenas = Arenas()
        self._opt_called = False
        self._step_pre_hooks = Hooks()
        self._step_post_hooks = Hooks()
        self._state_dict_pre_hooks = Hooks()
        self._state_dict_post_hooks = Hooks()
        self._load_state_dict_pre_hooks = Hooks()
        self._load_state_dict_post_hooks = Hooks()

    def __getstate__(self) -> dict[str, Any]:
        return {
            "defaults": self.defaults,
            "state": self.state,
            "param_groups": self.param_groups,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if "_arenas" not in self.__dict__:
            self._forget_transient()
        for group in self.param_groups:
            for name, value in self.defaults.items():
                group.setdefault(name, value)

    def __repr__(self) -> str:
        lines = [f"{type(self).__name__} ("]
        for i, group in enumerate(self.param_groups):
            lines += ["", f"Parameter Group {i}"] if i else [f"Parameter Group {i}"]
            lines += [f"    {key}: {group[key]}" for key in sorted(group) if key != "params"]
        return "\n".join(lines) + "\n)"

    # ---------------------------------------------------------------- groups

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group: {"params": ..., options}; missing options come from the defaults."""
        if not isinstance(param_group, dict):
            raise TypeError(f"param_group must be a dict, but got {type(param_group)}")
        params = param_group["params"]
        if isinstance(params, Tensor):
            params = [params]
        elif isinstance(params, set):
            raise TypeError(
                "optimizer parameters need to be organized in ordered collections, but "
                "the ordering of tensors in sets will change between runs. "
                "Please use a list instead."
            )
        params = list(params)
        named = [isinstance(param, tuple) for param in params]
        if any(named):
            if not all(named):
                raise ValueError(
                    "all optimizer params should be with/without names. "
                    "Some param names are missing"
                )
            param_group["param_names"] = [name for name, _ in params]
            params = [param for _, param in params]
        if any(("param_names" in group) != any(named) for group in self.param_groups):
            how = "with" if any(named) else "without"
            raise ValueError(
                "all optimizer param groups should be with/without names. "
                f"cannot add param group {how} names to the optimizer"
            )
        param_group["params"] = params
        self._check_params(params)
        for name, default in self.defaults.items():
            if default is required and name not in param_group:
                raise ValueError(
                    "parameter group didn't specify a value of required optimization "
                    f"parameter {name}"
                )
            param_group.setdefault(name, default)
        self.param_groups.append(param_group)

    def _check_params(self, params: list[Any]) -> None:
        for param in params:
            if not isinstance(param, Tensor):
                raise TypeError(
                    f"optimizer can only optimize Tensors, but one of the params is {kind(param)}"
                )
            if not (param.is_leaf or param.retains_grad):
                raise ValueError("can't optimize a non-leaf Tensor")
        seen = {id(param) for group in self.param_groups for param in group["params"]}
        if not seen.isdisjoint(map(id, params)):
            raise ValueError("some parameters appear in more than one parameter group")
        if len({id(param) for param in params}) != len(params):
            warnings.warn(
                "optimizer contains a parameter group with duplicate parameters; in future, "
                "this will cause an error",
                stacklevel=4,
            )

    # ---------------------------------------------------------------- stepping

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clear the gradients of all parameters: None, or zeros when `set_to_none` is False."""
        for group in self.param_groups:
            for param in group["params"]:
                if set_to_none:
                    param.grad = None
                elif param.grad is not None:
                    param.grad.detach_().zero_()

    def _state_names(self, group: dict[str, Any]) -> Sequence[str]:
        """The kinds of state that `_update` needs, each with the size of the parameters."""
        raise NotImplementedError

    def _initial(self, group: dict[str, Any]) -> float:
        """The initial value of that state."""
        return 0.0

    def _first_state(self, group: dict[str, Any], param: Tensor) -> dict[str, Tensor]:
        """The state of a parameter before its first step, which a checkpoint is loaded into."""
        initial = start_value(self._initial(group), param.is_complex())
        state = {name: minigrad.full_like(param, initial) for name in self._state_names(group)}
        return {"step": minigrad.tensor(0.0), **state} if self._counts_steps else state

    def _update(self, group: dict[str, Any], run: Run) -> None:
        """Update the flat parameters of `run` from its flat gradients."""
        raise NotImplementedError

    @_with_hooks
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update every parameter that has a gradient; one kernel launch per group (see `arena`).

        closure: recomputes the loss and the gradients; its value is returned.
        """
        loss = None
        if closure is not None:
            with minigrad.enable_grad():
                loss = closure()
        with minigrad.no_grad(), self._dense_gradients() if sparse_gradients else NOTHING:
            for group, run in self._runs():
                with run:
                    if run.param.size and type(run.param) is not MetaArray:
                        self._update(group, run)
        return loss

    _takes_sparse = False  # whether a step with a sparse gradient is that with the dense one

    @contextmanager
    def _dense_gradients(self) -> Iterator[None]:
        """A block in which no parameter has a sparse gradient. RuntimeError where the step would
        not be torch's."""
        params = [p for g in self.param_groups for p in g["params"]]
        sparse = [(p, p._grad) for p in params if p._grad is not None and p._grad.is_sparse]
        if sparse and not self._takes_sparse:
            name = type(self).__name__
            other = ", please consider SparseAdam instead" if "Adam" in name else ""
            raise RuntimeError(f"{name} does not support sparse gradients{other}")
        if sparse and any(group.get("weight_decay") for group in self.param_groups):
            raise RuntimeError("weight_decay option is not compatible with sparse gradients")
        for param, grad in sparse:
            param._grad = grad.to_dense()
        try:
            yield
        finally:
            for param, grad in sparse:
                param._grad = grad

    def _runs(self) -> Iterator[tuple[dict[str, Any], Run]]:
        """The runs that a step updates, each with its group."""
        for group in self.param_groups:
            names, initial = self._state_names(group), self._initial(group)
            counted = self._counts_steps
            for run in self._arenas.runs(group["params"], self.state, names, initial, counted):
                yield group, run

    # ---------------------------------------------------------------- saving

    def state_dict(self) -> dict[str, Any]:
        """{"state": {number: state}, "param_groups": [options with numbers as "params"]}.

        The tensors share storage with the optimiser.
        """
        for hook in list(self._state_dict_pre_hooks.values()):
            hook(self)
        numbers: dict[int, int] = {}
        groups = []
        for group in self.param_groups:
            packed = {key: value for key, value in group.items() if key != "params"}
            for param in group["params"]:
                numbers.setdefault(id(param), len(numbers))
            packed["params"] = [numbers[id(param)] for param in group["params"]]
            groups.append(packed)
        state = {
            (numbers[id(key)] if isinstance(key, Tensor) else key): value
            for key, value in self.state.items()
        }
        result = {"state": state, "param_groups": groups}
        for hook in list(self._state_dict_post_hooks.values()):
            changed = hook(self, result)
            result = result if changed is None else changed
        return result

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load state and options from `state_dict`; parameters are matched by position.

        Raises:
            ValueError: the groups differ in number or size.
        """
        state_dict = dict(state_dict)
        for hook in list(self._load_state_dict_pre_hooks.values()):
            changed = hook(self, state_dict)
            state_dict = state_dict if changed is None else changed
        groups, saved = self.param_groups, deepcopy(state_dict["param_groups"])
        if len(groups) != len(saved):
            raise ValueError("loaded state dict has a different number of parameter groups")
        pairs = list(zip(groups, saved, strict=True))
        if any(len(old["params"]) != len(new["params"]) for old, new in pairs):
            raise ValueError(
                "loaded state dict contains a parameter group "
                "that doesn't match the size of optimizer's group"
            )
        params = {
            number: param
            for old, new in pairs
            for number, param in zip(new["params"], old["params"], strict=True)
        }
        state: defaultdict[Tensor, dict[str, Any]] = defaultdict(dict)
        for key, value in state_dict["state"].items():
            if key in params:
                state[params[key]] = _cast_state(params[key], value)
            else:
                state[key] = value
        for old, new in pairs:
            new["params"] = old["params"]
            if "param_names" in old:
                new.setdefault("param_names", old["param_names"])
        self.__setstate__({"state": state, "param_groups": saved})
        for hook in list(self._load_state_dict_post_hooks.values()):
            hook(self)

    # ---------------------------------------------------------------- hooks

    def _has_step_hooks(self) -> bool:
        """Whether a step calls hooks, its own or those of all optimisers."""
        own = self._step_pre_hooks or self._step_post_hooks
        return bool(own or _ALL_PRE_HOOKS or _ALL_POST_HOOKS)

    def register_step_pre_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """``hook(optimizer, args, kwargs)`` before every step."""
        return add_hook(self._step_pre_hooks, hook)

    def register_step_post_hook(self, hook: Callable[..., None]) -> RemovableHandle:
        """``hook(optimizer, args, kwargs)`` after every step."""
        return add_hook(self._step_post_hooks, hook)

    def register_state_dict_pre_hook(
        self, hook: Callable[..., None], prepend: bool = False
    ) -> RemovableHandle:
        """``hook(optimizer)`` before `state_dict`."""
        return add_hook(self._state_dict_pre_hooks, hook, prepend=prepend)

    def register_state_dict_post_hook(
        self, hook: Callable[..., Any], prepend: bool = False
    ) -> RemovableHandle:
        """``hook(optimizer, state_dict)`` after `state_dict`; may return another one."""
        return add_hook(self._state_dict_post_hooks, hook, prepend=prepend)

    def register_load_state_dict_pre_hook(
        self, hook: Callable[..., Any], prepend: bool = False
    ) -> RemovableHandle:
        """``hook(optimizer, state_dict)`` before a load; may return another one."""
        return add_hook(self._load_state_dict_pre_hooks, hook, prepend=prepend)

    def register_load_state_dict_post_hook(
        self, hook: Callable[..., None], prepend: bool = False
    ) -> RemovableHandle:
        """``hook(optimizer)`` after a load."""
        return add_hook(self._load_state_dict_post_hooks, hook, prepend=prepend)


def _cast_state(param: Tensor, value: Any, key: str | None = None) -> Any:
    """A copy of loaded state: floating tensors in the parameter's dtype and on its device."""
    if isinstance(value, Tensor):
        if key == "step":
            return value.clone()
        dtype = param.dtype if param.is_floating_point() else value.dtype
        return value.detach().to(device=param.device, dtype=dtype).clone()
    if isinstance(value, dict):
        return {name: _cast_state(param, entry, name) for name, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_cast_state(param, entry) for entry in value)
    return value


def number(value: Any) -> Any:
    """An option that may be a tensor, such as `lr`, as a number."""
    return value.item() if isinstance(value, Tensor) else value


def one_number(name: str, value: Any) -> Any:
    """As `number`; ValueError for a tensor of other than one element."""
    if isinstance(value, Tensor) and value.numel() != 1:
        raise ValueError(f"Tensor {name} must be 1-element")
    return number(value)


def real_parts(tensor: Tensor) -> Tensor:
    """Complex numbers as pairs of real ones, each of which optimisers update by itself."""
    return minigrad.view_as_real(tensor) if tensor.is_complex() else tensor


def check_not_negative(**values: Any) -> None:
    """Raise ValueError for the first value below zero; underscores in names print as spaces."""
    texts = {"lr": "learning rate", "eps": "epsilon value", "weight_decay": "weight_decay value"}
    for name, value in values.items():
        if not 0.0 <= one_number(name, value):
            raise ValueError(f"Invalid {texts.get(name, name + ' value')}: {value}")


def check_flags(name: str, foreach: Any, fused: Any, differentiable: Any, capturable: Any) -> None:
    """`foreach` and `fused` have no effect (every update is fused); the others are not
    available."""
    if fused and foreach:
        raise RuntimeError("`fused` and `foreach` cannot be `True` together.")
    for flag, value in (("differentiable", differentiable), ("capturable", capturable)):
        if value:
            raise NotImplementedError(f"{name}: {flag}=True is not available in minigrad")


def _rehearse(optimizer: Optimizer) -> None:
    """A step of one of this package's optimisers in a child that only compiles, where that calls
    none of the program's functions and a copy of the parameters is small."""
    parameters = [one for group in optimizer.param_groups for one in group["params"]]
    own = type(optimizer).__module__.startswith("minigrad.optim.")
    if (
        own
        and not optimizer._has_step_hooks()
        and sum(one._array.nbytes for one in parameters) < _SMALL
    ):
        for one in parameters:
            one.grad = wrap(np.empty_like(one._array))
        optimizer.step()


rehearsal.steps[Optimizer] = _rehearse
