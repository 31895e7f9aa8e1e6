"""The part of `Module` for saving and loading: `state_dict`, `load_state_dict` and their hooks."""

from __future__ import annotations

import functools
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import minigrad
from minigrad.nn.parameter import Parameter, is_lazy
from minigrad.tensor import Tensor
from minigrad.utils.hooks import Hooks, RemovableHandle, add_hook

_EXTRA_STATE_KEY_SUFFIX = "_extra_state"


class _IncompatibleKeys(NamedTuple):
    """The result of `load_state_dict`: missing and unexpected keys."""

    missing_keys: list[str]
    unexpected_keys: list[str]

    def __str__(self) -> str:
        if not self.missing_keys and not self.unexpected_keys:
            return "<All keys matched successfully>"
        return (
            f"_IncompatibleKeys(missing_keys={self.missing_keys}, "
            f"unexpected_keys={self.unexpected_keys})"
        )

    def __repr__(self) -> str:
        return str(self)


class StateDictMixin:
    """`state_dict`, `load_state_dict` and the hooks around them."""

    _version: int
    _parameters: dict[str, Parameter | None]
    _buffers: dict[str, Tensor | None]
    _non_persistent_buffers_set: set[str]
    _modules: dict[str, Any]  # of Modules, or None
    _state_dict_pre_hooks: Hooks
    _state_dict_hooks: Hooks
    _load_state_dict_pre_hooks: Hooks
    _load_state_dict_post_hooks: Hooks

    def get_extra_state(self) -> Any:
        """State other than tensors for `state_dict`; define it together with `set_extra_state`."""
        raise RuntimeError(
            "Reached a code path in Module.get_extra_state() that should never be called."
        )

    def set_extra_state(self, state: Any) -> None:
        """Restore the result of `get_extra_state`."""
        raise RuntimeError(
            "Reached a code path in Module.set_extra_state() that should never be called."
        )

    def _has_extra_state(self) -> bool:
        return type(self).get_extra_state is not StateDictMixin.get_extra_state

    # ---------------------------------------------------------------- saving

    def state_dict(
        self,
        *,
        destination: OrderedDict[str, Any] | None = None,
        prefix: str = "",
        keep_vars: bool = False,
    ) -> OrderedDict[str, Any]:
        """Parameters and persistent buffers by dotted name.

        The tensors share storage with the module; they are detached unless `keep_vars`.
        Its attribute ``_metadata`` holds each module's version.
        """
        if destination is None:
            destination = OrderedDict()
            destination._metadata = OrderedDict()
        metadata = {"version": self._version}
        if hasattr(destination, "_metadata"):
            destination._metadata[prefix[:-1]] = metadata
        for hook in list(self._state_dict_pre_hooks.values()):
            hook(self, prefix, keep_vars)
        self._save_to_state_dict(destination, prefix, keep_vars)
        for name, module in self._modules.items():
            if module is not None:
                module.state_dict(
                    destination=destination, prefix=f"{prefix}{name}.", keep_vars=keep_vars
                )
        for hook in list(self._state_dict_hooks.values()):
            if hook(self, destination, prefix, metadata) is not None:
                raise RuntimeError("state_dict post-hook must return None")
        return destination

    def _save_to_state_dict(
        self, destination: dict[str, Any], prefix: str, keep_vars: bool
    ) -> None:
        for name, value in self._own_state().items():
            destination[prefix + name] = value if keep_vars else value.detach()
        if self._has_extra_state():
            destination[prefix + _EXTRA_STATE_KEY_SUFFIX] = self.get_extra_state()

    def _own_state(self) -> dict[str, Tensor]:
        state = {name: param for name, param in self._parameters.items() if param is not None}
        for name, buffer in self._buffers.items():
            if buffer is not None and name not in self._non_persistent_buffers_set:
                state[name] = buffer
        return state

    # ---------------------------------------------------------------- loading

    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False
    ) -> _IncompatibleKeys:
        """Copy the tensors of `state_dict` into this module.

        Args:
            state_dict: dotted names to tensors.
            strict: raise when keys are missing or unexpected; otherwise only report them.
            assign: use the given tensors (with their dtype and device) instead of copying.
        Raises:
            RuntimeError: listing all missing and unexpected keys and all shape mismatches.
        """
        if not isinstance(state_dict, Mapping):
            raise TypeError(f"Expected state_dict to be dict-like, got {type(state_dict)}.")
        metadata = getattr(state_dict, "_metadata", None)
        state = OrderedDict(state_dict)
        if metadata is not None:
            state._metadata = metadata
        missing: list[str] = []
        unexpected: list[str] = []
        errors: list[str] = []
        self._load_tree(state, "", metadata or {}, assign, strict, missing, unexpected, errors)
        if strict:
            for kind, keys in (("Unexpected", unexpected), ("Missing", missing)):
                if keys:
                    listed = ", ".join(f'"{key}"' for key in keys)
                    errors.insert(0, f"{kind} key(s) in state_dict: {listed}. ")
        if errors:
            listed = "\n\t".join(errors)
            raise RuntimeError(
                f"Error(s) in loading state_dict for {type(self).__name__}:\n\t{listed}"
            )
        return _IncompatibleKeys(missing, unexpected)

    def _load_tree(
        self,
        state: Mapping[str, Any],
        prefix: str,
        metadata: Mapping[str, Any],
        assign: bool,
        strict: bool,
        missing: list[str],
        unexpected: list[str],
        errors: list[str],
    ) -> None:
        local = dict(metadata.get(prefix[:-1], {}))
        if assign:
            local["assign_to_params_buffers"] = True
        self._load_from_state_dict(state, prefix, local, True, missing, unexpected, errors)
        for name, child in self._modules.items():
            if child is not None:
                path = f"{prefix}{name}."
                below = {key: value for key, value in state.items() if key.startswith(path)}
                child._load_tree(below, path, metadata, assign, strict, missing, unexpected, errors)
        for hook in list(self._load_state_dict_post_hooks.values()):
            if hook(self, _IncompatibleKeys(missing, unexpected)) is not None:
                raise AssertionError(
                    "Hooks registered with ``register_load_state_dict_post_hook`` are not "
                    "expected to return new values, if incompatible_keys need to be modified, "
                    "it should be done inplace."
                )

    def _load_from_state_dict(
        self,
        state_dict: Mapping[str, Any],
        prefix: str,
        local_metadata: dict[str, Any],
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        """Load this module's own tensors (not its children's); subclasses may override."""
        for hook in list(self._load_state_dict_pre_hooks.values()):
            hook(
                *(self, state_dict, prefix, local_metadata, strict),
                *(missing_keys, unexpected_keys, error_msgs),
            )
        assign = local_metadata.get("assign_to_params_buffers", False)
        for name, target in self._own_state().items():
            key = prefix + name
            if key in state_dict:
                self._load_one(name, key, target, state_dict[key], assign, error_msgs)
            elif strict:
                missing_keys.append(key)
        extra = prefix + _EXTRA_STATE_KEY_SUFFIX
        if type(self).set_extra_state is not StateDictMixin.set_extra_state:
            if extra in state_dict:
                self.set_extra_state(state_dict[extra])
            elif strict:
                missing_keys.append(extra)
        elif strict and extra in state_dict:
            unexpected_keys.append(extra)
        if strict:
            self._collect_unexpected(state_dict, prefix, unexpected_keys)

    def _load_one(
        self,
        name: str,
        key: str,
        target: Tensor,
        value: Any,
        assign: bool,
        errors: list[str],
    ) -> None:
        if is_lazy(target) and is_lazy(value):
            return  # neither has a shape
        if not isinstance(value, Tensor):
            errors.append(
                f'While copying the parameter named "{key}", expected minigrad.Tensor or '
                f"Tensor-like object from checkpoint but received {type(value)}"
            )
        elif value.shape != target.shape:
            errors.append(
                f"size mismatch for {key}: copying a param with shape {value.shape} from "
                f"checkpoint, the shape in current model is {target.shape}."
            )
        elif assign:
            if isinstance(target, Parameter):
                wanted = target.requires_grad
                if not isinstance(value, Parameter):
                    value = Parameter(value, requires_grad=wanted)
                value.requires_grad_(wanted)
            setattr(self, name, value)
        else:
            with minigrad.no_grad():
                target.copy_(value)

    def _collect_unexpected(
        self, state: Mapping[str, Any], prefix: str, unexpected: list[str]
    ) -> None:
        own = self._own_state()
        for key in state:
            if not key.startswith(prefix) or key == prefix + _EXTRA_STATE_KEY_SUFFIX:
                continue
            first, *rest = key[len(prefix) :].split(".", 1)
            if rest:
                if first not in self._modules:
                    unexpected.append(key)
            elif first not in own:
                unexpected.append(key)

    # ---------------------------------------------------------------- hooks

    def register_state_dict_pre_hook(self, hook: Callable[..., None]) -> RemovableHandle:
        """``hook(module, prefix, keep_vars)`` before `state_dict` collects."""
        return add_hook(self._state_dict_pre_hooks, hook)

    def register_state_dict_post_hook(self, hook: Callable[..., None]) -> RemovableHandle:
        """``hook(module, state_dict, prefix, local_metadata)`` after it; changes in place."""
        return add_hook(self._state_dict_hooks, hook)

    def register_load_state_dict_pre_hook(self, hook: Callable[..., None]) -> RemovableHandle:
        """``hook(module, state_dict, prefix, local_metadata, strict, *lists)`` before a load.

        The lists are the missing keys, the unexpected keys and the error messages.
        """
        return add_hook(self._load_state_dict_pre_hooks, hook)

    def register_load_state_dict_post_hook(self, hook: Callable[..., None]) -> RemovableHandle:
        """``hook(module, incompatible_keys)`` after a load; may change the lists in place."""
        return add_hook(self._load_state_dict_post_hooks, hook)

    # torch's older names, which models from its first years use.

    def _register_load_state_dict_pre_hook(
        self, hook: Callable[..., None], with_module: bool = False
    ) -> RemovableHandle:
        """`register_load_state_dict_pre_hook` for a hook that doesn't take the module."""
        if with_module:
            return self.register_load_state_dict_pre_hook(hook)
        return self.register_load_state_dict_pre_hook(functools.partial(_without_module, hook))

    def _register_state_dict_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        return add_hook(self._state_dict_hooks, hook)


def _without_module(hook: Callable[..., None], module: Any, *args: Any) -> None:
    hook(*args)  # of this file, not a lambda: modules are pickled with their hooks
