"""`Module`: a named tree of parameters, buffers and submodules with a `forward`.

Each module has three dictionaries (`_parameters`, `_buffers`, `_modules`).  `__setattr__` puts
values into them by type; `__getattr__`, which Python calls only when the normal lookup fails, reads
them. Python takes most of a microsecond to fail, so the names in these dictionaries also become
attributes of the class (`_Member`). The other methods traverse the tree.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any

import minigrad
from minigrad._names import missing_attribute
from minigrad._tracebacks import trim
from minigrad.nn.modules import _global_hooks
from minigrad.nn.modules._backward_hooks import call_with_backward_hooks
from minigrad.nn.modules._global_hooks import (  # noqa: F401 - torch has them here
    register_module_backward_hook,
    register_module_buffer_registration_hook,
    register_module_forward_hook,
    register_module_forward_pre_hook,
    register_module_full_backward_hook,
    register_module_full_backward_pre_hook,
    register_module_module_registration_hook,
    register_module_parameter_registration_hook,
    registered,
)
from minigrad.nn.modules._state import (  # noqa: F401 - as torch
    _EXTRA_STATE_KEY_SUFFIX,
    StateDictMixin,
    _IncompatibleKeys,
)
from minigrad.nn.parameter import Buffer, Parameter, is_lazy
from minigrad.tensor import Tensor, type_name
from minigrad.utils.hooks import RemovableHandle, add_hook, every_call

__all__ = ["Module"]


def typename(value: Any) -> str:
    """Type name for error messages: ``int``, ``minigrad.nn.modules.linear.Linear``,
    ``minigrad.FloatTensor``."""
    if isinstance(value, Tensor):
        return type_name(value)
    cls = type(value)
    if cls.__module__ in ("builtins", ""):
        return cls.__qualname__
    return f"{cls.__module__}.{cls.__qualname__}"


class _Member:
    """An attribute of a class of modules that reads the dictionaries of an instance.

    table: the dictionary in which the name was last.
    """

    def __init__(self, name: str) -> None:
        self.name, self.table = name, "_parameters"

    def __get__(self, module: Any, kind: type | None = None) -> Any:
        try:
            return module.__dict__[self.table][self.name]
        except (KeyError, AttributeError):  # None has no `__dict__`
            return self._search(module, kind)

    def _search(self, module: Any, kind: Any) -> Any:
        own = {} if module is None else module.__dict__
        for table in ("_parameters", "_modules", "_buffers"):
            if self.name in own.get(table, ()):  # empty before `Module.__init__` has run
                self.table = table
                return own[table][self.name]
        return self._behind(module, kind)

    def _behind(self, module: Any, kind: Any) -> Any:
        """What a lookup finds that passes by all such attributes; AttributeError for nothing."""
        for base in kind.__mro__:
            found = vars(base).get(self.name, self)
            if not isinstance(found, _Member):
                get = getattr(type(found), "__get__", None)
                return found if get is None else get(found, module, kind)
        raise AttributeError(f"type object '{kind.__name__}' has no attribute '{self.name}'")


class Module(StateDictMixin):
    """Base class of all networks and layers.

    Subclasses call ``super().__init__()``, assign parameters, buffers and submodules as
    attributes, and define ``forward``; ``module(*args)`` runs ``forward`` and the hooks.

    Attributes:
        training: True in training mode (dropout drops, batch norm uses the batch), see `train`.
    """

    training: bool
    _version: int = 1
    call_super_init = False  # whether the arguments go on to the next class, of several bases
    _is_full_backward_hook: bool | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if kwargs and not self.call_super_init:
            raise TypeError(
                f"{type(self).__name__}.__init__() got an unexpected keyword argument "
                f"'{next(iter(kwargs))}'"
            )
        if args and not self.call_super_init:
            raise TypeError(
                f"{type(self).__name__}.__init__() takes 1 positional argument but "
                f"{len(args) + 1} were given"
            )
        # Written to __dict__, because __setattr__ needs these to exist.
        self.__dict__.update(
            training=True,
            _parameters={},
            _buffers={},
            _non_persistent_buffers_set=set(),
            _modules={},
            _forward_pre_hooks=OrderedDict(),
            _forward_pre_hooks_with_kwargs=OrderedDict(),
            _forward_hooks=OrderedDict(),
            _forward_hooks_with_kwargs=OrderedDict(),
            _forward_hooks_always_called=OrderedDict(),
            _backward_pre_hooks=OrderedDict(),
            _backward_hooks=OrderedDict(),
            _state_dict_pre_hooks=OrderedDict(),
            _state_dict_hooks=OrderedDict(),
            _load_state_dict_pre_hooks=OrderedDict(),
            _load_state_dict_post_hooks=OrderedDict(),
        )
        if self.call_super_init:
            super().__init__(*args, **kwargs)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The computation; every subclass defines it."""
        raise NotImplementedError(
            f'Module [{type(self).__name__}] is missing the required "forward" function'
        )

    # ---------------------------------------------------------------- registration

    def register_buffer(self, name: str, tensor: Tensor | None, persistent: bool = True) -> None:
        """Add state that is not trained; `state_dict` includes it if `persistent`."""
        self._check_new_name("buffer", name, self._buffers)
        if tensor is not None and not isinstance(tensor, Tensor):
            raise TypeError(
                f"cannot assign '{typename(tensor)}' object to buffer '{name}' "
                "(minigrad Tensor or None required)"
            )
        self._buffers[name] = registered(_global_hooks.buffers, self, name, tensor)
        if persistent:
            self._non_persistent_buffers_set.discard(name)
        else:
            self._non_persistent_buffers_set.add(name)

    def register_parameter(self, name: str, param: Parameter | None) -> None:
        """Add a parameter; None reserves the name (``bias=False``)."""
        self._check_new_name("parameter", name, self._parameters)
        if param is not None and not isinstance(param, Parameter):
            raise TypeError(
                f"cannot assign '{typename(param)}' object to parameter '{name}' "
                "(minigrad.nn.Parameter or None required)"
            )
        if param is not None and param.grad_fn is not None:
            raise ValueError(
                f"Cannot assign non-leaf Tensor to parameter '{name}'. Model parameters must be "
                f"created explicitly. To express '{name}' as a function of another Tensor, "
                "compute the value in the forward() method."
            )
        if param is not None:
            param = registered(_global_hooks.parameters, self, name, param)
        self._parameters[name] = param

    def add_module(self, name: str, module: Module | None) -> None:
        """Add a submodule under `name`."""
        if module is not None and not isinstance(module, Module):
            raise TypeError(f"{typename(module)} is not a Module subclass")
        if not isinstance(name, str):
            raise TypeError(f"module name should be a string. Got {typename(name)}")
        if hasattr(self, name) and name not in self._modules:
            raise KeyError(f"attribute '{name}' already exists")
        if "." in name:
            raise KeyError(f'module name can\'t contain ".", got: {name}')
        if name == "":
            raise KeyError('module name can\'t be empty string ""')
        self._modules[name] = registered(_global_hooks.modules, self, name, module)

    register_module = add_module

    def _check_new_name(self, kind: str, name: str, table: dict[str, Any]) -> None:
        if "_parameters" not in self.__dict__:
            raise AttributeError(f"cannot assign {kind} before Module.__init__() call")
        if not isinstance(name, str):
            raise TypeError(f"{kind} name should be a string. Got {typename(name)}")
        if "." in name:
            raise KeyError(f'{kind} name can\'t contain "."')
        if name == "":
            raise KeyError(f'{kind} name can\'t be empty string ""')
        if hasattr(self, name) and name not in table:
            raise KeyError(f"attribute '{name}' already exists")

    # ---------------------------------------------------------------- attributes

    def __setattr__(self, name: str, value: Any) -> None:
        own = self.__dict__
        parameters = own.get("_parameters")
        if parameters is None:
            for cls, kind in ((Parameter, "parameters"), (Module, "module"), (Buffer, "buffer")):
                if isinstance(value, cls):
                    raise AttributeError(f"cannot assign {kind} before Module.__init__() call")
            object.__setattr__(self, name, value)
            return
        if isinstance(value, Parameter):
            self._forget(name, own, self._buffers, self._modules)
            self.register_parameter(name, value)
        elif name in parameters:
            self._check_kind(value, name, "parameter", "minigrad.nn.Parameter or None")
            parameters[name] = None
        elif isinstance(value, Module):
            self._forget(name, own, parameters, self._buffers)
            self._modules[name] = registered(_global_hooks.modules, self, name, value)
        elif name in self._modules:
            self._check_kind(value, name, "child module", "minigrad.nn.Module or None")
            self._modules[name] = None
        elif isinstance(value, Buffer):
            self._forget(name, own, parameters, self._modules)
            self.register_buffer(name, value, value.persistent)
        elif name in self._buffers:
            if not isinstance(value, Tensor):
                self._check_kind(
                    value, name, "buffer", "minigrad.nn.Buffer, minigrad.Tensor or None"
                )
            self._buffers[name] = value
        else:
            object.__setattr__(self, name, value)

    def _forget(self, name: str, *tables: dict[str, Any]) -> None:
        for table in tables:
            table.pop(name, None)
        if tables[1] is self._buffers or tables[2] is self._buffers:
            self._non_persistent_buffers_set.discard(name)

    @staticmethod
    def _check_kind(value: Any, name: str, kind: str, wanted: str) -> None:
        if value is not None:
            raise TypeError(
                f"cannot assign '{typename(value)}' as {kind} '{name}' ({wanted} expected)"
            )

    def __getattr__(self, name: str) -> Any:
        own = self.__dict__
        for table in ("_parameters", "_buffers", "_modules"):
            if table in own and name in own[table]:
                if not hasattr(type(self), name) and type(self).__getattr__ is Module.__getattr__:
                    setattr(type(self), name, _Member(name))  # for the next lookup
                return own[table][name]
        raise missing_attribute(self, name)

    def __delattr__(self, name: str) -> None:
        for table in (self._parameters, self._buffers, self._modules):
            if name in table:
                del table[name]
                self._non_persistent_buffers_set.discard(name)
                return
        object.__delattr__(self, name)

    def __dir__(self) -> list[str]:
        kinds = [vars(base) for base in type(self).__mro__]
        others = {n for own in kinds for n, value in own.items() if isinstance(value, _Member)}
        names = {*super().__dir__()} - others
        names |= {*self._parameters, *self._buffers, *self._modules}
        return sorted(name for name in names if not name[:1].isdigit())

    # ---------------------------------------------------------------- call and hooks

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        try:
            if (
                self._forward_hooks
                or self._forward_pre_hooks
                or self._backward_hooks
                or self._backward_pre_hooks
                or every_call
            ):
                return self._call_with_hooks(args, kwargs)
            return self.forward(*args, **kwargs)
        except Exception as error:
            trim(error)
            raise

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Record and replay this module's forward, in place; arguments as `minigrad.compile`."""
        method = type(self).forward.__get__(self)
        self.__dict__["forward"] = minigrad.compile(method, *args, **kwargs)

    def _call_with_hooks(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        with_kwargs = self._forward_pre_hooks_with_kwargs
        both = (*_global_hooks.forward_pre_hooks.items(), *self._forward_pre_hooks.items())
        for number, hook in both:
            if number in with_kwargs:
                changed = hook(self, args, kwargs)
                if changed is not None:
                    if not (isinstance(changed, tuple) and len(changed) == 2):
                        raise RuntimeError(
                            "forward pre-hook must return None or a tuple of "
                            f"(new_args, new_kwargs), but got {changed}."
                        )
                    args, kwargs = changed
            else:
                changed = hook(self, args)
                if changed is not None:
                    args = changed if isinstance(changed, tuple) else (changed,)
        every = _global_hooks.backward_hooks or _global_hooks.backward_pre_hooks
        if self._backward_hooks or self._backward_pre_hooks or every:
            return call_with_backward_hooks(self, self._forward_and_hooks, args, kwargs)
        return self._forward_and_hooks(args, kwargs)

    def _forward_and_hooks(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        every, result = _global_hooks, None
        waiting = [*every.forward_hooks.items(), *self._forward_hooks.items()]
        with_kwargs = {*every.forward_hooks_with_kwargs, *self._forward_hooks_with_kwargs}
        try:
            result = self.forward(*args, **kwargs)
            while waiting:
                number, hook = waiting.pop(0)
                extra = (kwargs, result) if number in with_kwargs else (result,)
                changed = hook(self, args, *extra)
                if changed is not None:
                    result = changed
        except Exception:
            always = {*every.forward_hooks_always_called, *self._forward_hooks_always_called}
            for number, hook in waiting:
                if number in always:
                    hook(self, args, *((kwargs, result) if number in with_kwargs else (result,)))
            raise
        return result

    def register_forward_pre_hook(
        self, hook: Callable[..., Any], *, prepend: bool = False, with_kwargs: bool = False
    ) -> RemovableHandle:
        """``hook(module, args)`` before `forward`; a returned value replaces the arguments."""
        marks = [self._forward_pre_hooks_with_kwargs] if with_kwargs else []
        return add_hook(self._forward_pre_hooks, hook, prepend=prepend, marks=marks)

    def register_forward_hook(
        self,
        hook: Callable[..., Any],
        *,
        prepend: bool = False,
        with_kwargs: bool = False,
        always_call: bool = False,
    ) -> RemovableHandle:
        """``hook(module, args, output)`` after `forward`; a returned value replaces the output.

        With `always_call` also if `forward` or an earlier hook raises (`output` may be None)."""
        marks = [self._forward_hooks_with_kwargs] if with_kwargs else []
        marks += [self._forward_hooks_always_called] if always_call else []
        return add_hook(self._forward_hooks, hook, prepend=prepend, marks=marks)

    def register_full_backward_pre_hook(
        self, hook: Callable[..., Any], prepend: bool = False
    ) -> RemovableHandle:
        """``hook(module, grad_output)`` before the module's backward; may replace it."""
        return add_hook(self._backward_pre_hooks, hook, prepend=prepend)

    def register_full_backward_hook(
        self, hook: Callable[..., Any], prepend: bool = False
    ) -> RemovableHandle:
        """``hook(module, grad_input, grad_output)``; a returned value replaces `grad_input`."""
        self._set_kind_of_backward_hooks(True)
        return add_hook(self._backward_hooks, hook, prepend=prepend)

    def register_backward_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Deprecated in torch: ``hook(module, grad_input, grad_output)`` of the last operation of
        `forward` alone; `register_full_backward_hook` has the gradients of the module's inputs."""
        self._set_kind_of_backward_hooks(False)
        return self.register_forward_hook(_global_hooks.last_operation(hook))

    def _set_kind_of_backward_hooks(self, full: bool) -> None:
        if self._is_full_backward_hook is (not full):
            raise RuntimeError(
                "Cannot use both regular backward hooks and full backward hooks on a single "
                "Module. Please use only one of them."
            )
        self._is_full_backward_hook = full

    # ---------------------------------------------------------------- walking the tree

    def named_modules(
        self, memo: set[Module] | None = None, prefix: str = "", remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Module]]:
        """Yield ``(dotted name, module)`` for this module and all below it, each once."""
        memo = set() if memo is None else memo
        if self in memo:
            return
        if remove_duplicate:
            memo.add(self)
        yield prefix, self
        for name, module in self._modules.items():
            if module is not None:
                path = f"{prefix}.{name}" if prefix else name
                yield from module.named_modules(memo, path, remove_duplicate)

    def modules(self, remove_duplicate: bool = True) -> Iterator[Module]:
        """This module and all below it, each once."""
        for _, module in self.named_modules(remove_duplicate=remove_duplicate):
            yield module

    def named_children(self) -> Iterator[tuple[str, Module]]:
        """Direct submodules with their names, each once."""
        seen: set[Module] = set()
        for name, module in self._modules.items():
            if module is not None and module not in seen:
                seen.add(module)
                yield name, module

    def children(self) -> Iterator[Module]:
        """Direct submodules, each once."""
        for _, module in self.named_children():
            yield module

    def _named_members(
        self, table: str, prefix: str, recurse: bool, remove_duplicate: bool
    ) -> Iterator[tuple[str, Any]]:
        seen: set[int] = set()
        modules = (
            self.named_modules(prefix=prefix, remove_duplicate=remove_duplicate)
            if recurse
            else [(prefix, self)]
        )
        for path, module in modules:
            for name, member in module.__dict__[table].items():
                if member is None or id(member) in seen:
                    continue
                if remove_duplicate:
                    seen.add(id(member))
                yield (f"{path}.{name}" if path else name), member

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Parameter]]:
        """Yield ``(dotted name, parameter)``; a shared parameter once."""
        return self._named_members("_parameters", prefix, recurse, remove_duplicate)

    def parameters(self, recurse: bool = True) -> Iterator[Parameter]:
        """All parameters, each once."""
        for _, param in self.named_parameters(recurse=recurse):
            yield param

    def named_buffers(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Tensor]]:
        """Yield ``(dotted name, buffer)``; a shared buffer once."""
        return self._named_members("_buffers", prefix, recurse, remove_duplicate)

    def buffers(self, recurse: bool = True) -> Iterator[Tensor]:
        """All buffers, each once."""
        for _, buffer in self.named_buffers(recurse=recurse):
            yield buffer

    def get_submodule(self, target: str) -> Module:
        """The submodule at the dotted path `target`; AttributeError if there is none."""
        module: Module = self
        for atom in target.split(".") if target else ():
            if not hasattr(module, atom):
                raise AttributeError(module._get_name() + f" has no attribute `{atom}`")
            module = getattr(module, atom)
            if not isinstance(module, Module):
                raise AttributeError(f"`{atom}` is not an nn.Module")
        return module

    def get_parameter(self, target: str) -> Parameter:
        """The parameter at the dotted path `target`."""
        module, name = self._owner(target)
        param = getattr(module, name)
        if not isinstance(param, Parameter):
            raise AttributeError(f"`{name}` is not an nn.Parameter")
        return param

    def get_buffer(self, target: str) -> Tensor:
        """The buffer at the dotted path `target`."""
        module, name = self._owner(target)
        if name not in module._buffers:
            raise AttributeError(f"`{name}` is not a buffer")
        return module._buffers[name]

    def _owner(self, target: str) -> tuple[Module, str]:
        """The submodule that the dotted path `target` leads to, and the name of its attribute."""
        path, _, name = target.rpartition(".")
        module = self.get_submodule(path)
        if not hasattr(module, name):
            raise AttributeError(module._get_name() + f" has no attribute `{name}`")
        return module, name

    # ---------------------------------------------------------------- changing the tree

    def set_submodule(self, target: str, module: Module, strict: bool = False) -> None:
        """Put `module` at the dotted path `target`; if `strict`, only in the place of another."""
        if target == "":
            raise ValueError("Cannot set the submodule without a target name!")
        path, _, name = target.rpartition(".")
        parent = self.get_submodule(path)
        if not isinstance(module, Module):
            raise ValueError(f'"module" is not an nn.Module, found {typename(module)}')
        if strict or hasattr(parent, name):
            parent.get_submodule(name)
        setattr(parent, name, module)

    def apply(self, fn: Callable[[Module], None]) -> Module:
        """Call `fn` on every submodule, children first, then on this module."""
        for module in self.children():
            module.apply(fn)
        fn(self)
        return self

    def train(self, mode: bool = True) -> Module:
        """Set training mode of this module and its submodules."""
        if not isinstance(mode, bool):
            raise ValueError("training mode is expected to be boolean")
        self.training = mode
        for module in self.children():
            module.train(mode)
        return self

    def eval(self) -> Module:
        """``train(False)``."""
        return self.train(False)

    def requires_grad_(self, requires_grad: bool = True) -> Module:
        """Freeze (False) or unfreeze every parameter."""
        for param in self.parameters():
            param.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clear the gradients of all parameters: None, or zeros when `set_to_none` is False."""
        for param in self.parameters():
            if param.grad is None:
                continue
            if set_to_none:
                param.grad = None
            else:
                param.grad.detach_().zero_()

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Module:
        """Replace the storage of every parameter, its gradient and every buffer by `fn` of it.

        Parameters remain the same objects, so that existing optimisers still work.
        """
        if recurse:
            for module in self.children():
                module._apply(fn)
        with minigrad.no_grad():
            for param in self._parameters.values():
                if param is None:
                    continue
                grad = param.grad
                param.grad = None
                param.data = fn(param.data)
                if grad is not None:
                    param.grad = fn(grad.data).requires_grad_(grad.requires_grad)
            for name, buffer in self._buffers.items():
                if is_lazy(buffer):
                    buffer.data = fn(buffer.data)
                elif buffer is not None:
                    self._buffers[name] = fn(buffer)
        return self

    def to(self, *args: Any, **kwargs: Any) -> Module:
        """Move and/or cast in place: ``to(device)``, ``to(dtype)``, ``to(tensor)``.

        A dtype must be floating or complex, and only floating or complex tensors are cast.
        """
        device, dtype = _parse_to(*args, **kwargs)
        if dtype is not None and not (dtype.is_floating_point or dtype.is_complex):
            raise TypeError(
                "nn.Module.to only accepts floating point or complex dtypes, "
                f"but got desired dtype={dtype}"
            )

        def convert(tensor: Tensor) -> Tensor:
            if tensor.is_meta and device is not None and minigrad.device(device).type != "meta":
                raise NotImplementedError(
                    "Cannot copy out of meta tensor; no data! Please use "
                    "minigrad.nn.Module.to_empty() instead of minigrad.nn.Module.to() when "
                    "moving module from meta to a different device."
                )
            if tensor.is_floating_point() or tensor.is_complex():
                return tensor.to(device=device, dtype=dtype)
            return tensor.to(device=device)

        return self._apply(convert)

    def to_empty(self, *, device: Any, recurse: bool = True) -> Module:
        """Replace parameters and buffers by uninitialised ones on a device: for a module that was
        made on the device "meta"."""
        return self._apply(lambda tensor: minigrad.empty_like(tensor, device=device))

    def cpu(self) -> Module:
        """Move all parameters and buffers to the CPU."""
        return self._apply(lambda tensor: tensor.cpu())

    def cuda(self, device: Any = None) -> Module:
        """Move all parameters and buffers to a GPU."""
        return self._apply(lambda tensor: tensor.cuda(device))

    def type(self, dst_type: Any) -> Module:
        """Cast all parameters and buffers to `dst_type`."""
        return self._apply(lambda tensor: tensor.type(dst_type))

    def share_memory(self) -> Module:
        """Itself: tensors are copied to other processes, see `Tensor.share_memory_`."""
        return self._apply(lambda tensor: tensor.share_memory_())

    def float(self) -> Module:
        """Cast floating parameters and buffers to float32."""
        return self._cast_floating(minigrad.float32)

    def double(self) -> Module:
        """Cast floating parameters and buffers to float64."""
        return self._cast_floating(minigrad.float64)

    def half(self) -> Module:
        """Cast floating parameters and buffers to float16."""
        return self._cast_floating(minigrad.float16)

    def bfloat16(self) -> Module:
        """Cast floating parameters and buffers to bfloat16."""
        return self._cast_floating(minigrad.bfloat16)

    def _cast_floating(self, dtype: Any) -> Module:
        return self._apply(lambda t: t.to(dtype) if t.is_floating_point() else t)

    # ---------------------------------------------------------------- text and copying

    def _get_name(self) -> str:
        return type(self).__name__

    def extra_repr(self) -> str:
        """The text between the parentheses of `repr`; subclasses override it."""
        return ""

    def _described_children(self) -> Iterator[tuple[str, str]]:
        """Per line of the repr, the name and the repr of a child."""
        return ((name, repr(module)) for name, module in self._modules.items())

    def __repr__(self) -> str:
        extra = self.extra_repr()
        extra_lines = extra.split("\n") if extra else []
        child_lines = [
            f"({name}): " + text.replace("\n", "\n  ") for name, text in self._described_children()
        ]
        if not child_lines and len(extra_lines) <= 1:
            return f"{self._get_name()}({extra})"
        body = "\n  ".join(extra_lines + child_lines)
        return f"{self._get_name()}(\n  {body}\n)"


def _parse_to(*args: Any, **kwargs: Any) -> tuple[Any, Any]:
    """Parse the arguments of `to`: (device, dtype), (dtype,), (tensor,), keywords."""
    unknown = set(kwargs) - {"device", "dtype", "tensor", "non_blocking", "memory_format", "copy"}
    if unknown:
        raise TypeError(f"to() got an unexpected keyword argument '{sorted(unknown)[0]}'")
    device, dtype = kwargs.get("device"), kwargs.get("dtype")
    for arg in (*args, kwargs.get("tensor")):
        if isinstance(arg, Tensor):
            device, dtype = arg.device, arg.dtype
        elif isinstance(arg, minigrad.dtype):
            dtype = arg
        elif isinstance(arg, (str, minigrad.device)) or type(arg) is int:
            device = arg
        elif arg is not None and not isinstance(arg, bool):
            raise TypeError(
                f"to(): expected a device, a dtype or a Tensor, got {type(arg).__name__}"
            )
    return device, dtype
