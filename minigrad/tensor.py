"""Tensor: an array, a version counter and a place in the graph.

This file holds what a tensor *is*: storage, properties, conversions, hooks. The operations on
tensors are defined in `minigrad.ops`, one file per family; the decorators at the end of this file
turn its functions into methods of this class.
"""

from __future__ import annotations

import operator
import warnings
import weakref
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from minigrad import dlpack, dtypes, layouts
from minigrad._meta import MetaArray
from minigrad._names import numpys_words
from minigrad._view import View
from minigrad.autograd.mode import (
    Unversioned,
    inferring,
    mode,
    new_counter,
    sparse_gradients,
    unusual,
)
from minigrad.backends import current
from minigrad.backends.memory import root_of
from minigrad.devices import CPU, META, address, device, move_array, read
from minigrad.dtypes import dtype
from minigrad.size import Size
from minigrad.utils.hooks import Hooks, RemovableHandle, add_hook

if TYPE_CHECKING:
    from minigrad._methods import Methods  # what `export` adds, for type checkers
else:
    Methods = object


BACKWARD: list[Callable] = []  # that of `minigrad.autograd`


def wrap(array: Any) -> Tensor:
    """A tensor of this array (not a copy), with its own version counter and no graph."""
    tensor = _new(Tensor)
    tensor._array = array
    tensor._counter = [0] if not inferring else new_counter()
    return tensor


_new: Callable[[type], Any] = object.__new__
_new_tuple = tuple.__new__  # a shape is one of integers: `Size` would look at each


def type_name(tensor: Tensor) -> str:
    """The legacy name of a tensor's type, such as `minigrad.FloatTensor`."""
    place = "" if isinstance(tensor._array, np.ndarray) else "cuda."
    return f"minigrad.{place}{tensor.dtype.legacy_name}"


class Tensor(Methods):
    """A multi-dimensional array that records how it was computed.

    `minigrad.tensor(data)` makes one from numbers; `Tensor(2, 3)` and `Tensor([1, 2])` are the
    legacy constructors (default dtype; sizes give uninitialised memory).

    `_array` is the NumPy or CuPy array, `_counter` the version counter that views share: a list
    of one integer, incremented by every in-place change.
    """

    _array: Any
    _counter: list[int]
    _requires_grad = False
    _grad: Tensor | None = None
    _node: Any = None
    _index = 0
    _view: View | None = None
    _reshaped = 0  # the version at which an operation in place has given it another shape
    _hooks: Hooks | None = None
    _accumulate_hooks: Hooks | None = None
    __array_priority__ = 1000  # numpy_array * tensor calls Tensor.__rmul__

    def __new__(cls, *args: Any, device: Any = None) -> Any:
        from minigrad.creation import legacy_array

        instance = _new(cls)
        instance._array = legacy_array(args, dtypes.default_numpy(), device)
        instance._counter = new_counter()
        return instance

    @staticmethod
    def _make_subclass(cls: type, data: Tensor, require_grad: bool = False) -> Any:
        """An object of class `cls` that shares data's array and version counter."""
        instance = _new(cls)
        instance._array = data._array
        instance._counter = data._counter
        if require_grad:
            instance.requires_grad = True
        return instance

    def as_subclass(self, cls: type) -> Any:
        """The same tensor, with its graph, as an object of another class."""
        found = Tensor.view_as(self, self)
        found.__class__ = cls
        return found

    # --- properties ---

    @property
    def shape(self) -> Size:
        """The length of each dimension."""
        return _new_tuple(Size, self._array.shape)

    @property
    def dtype(self) -> dtype:
        """The type of the elements."""
        return dtypes.from_numpy_dtype(self._array.dtype)

    @property
    def device(self) -> device:
        """Where the elements are: `cpu`, `cuda:0`, or `meta` (nowhere)."""
        array = self._array
        if isinstance(array, np.ndarray):
            return CPU
        return META if isinstance(array, MetaArray) else device("cuda", array.device.id)

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return self._array.ndim

    @property
    def itemsize(self) -> int:
        """The bytes of one element."""
        return self._array.itemsize

    @property
    def nbytes(self) -> int:
        """The bytes of all elements."""
        return self._array.nbytes

    @property
    def is_cuda(self) -> bool:
        """Whether the elements are on a GPU."""
        return not isinstance(self._array, (np.ndarray, MetaArray))

    @property
    def is_cpu(self) -> bool:
        """Whether the elements are in the memory of the CPU."""
        return isinstance(self._array, np.ndarray)

    @property
    def is_meta(self) -> bool:
        """Whether there are no elements, only a shape and a dtype."""
        return isinstance(self._array, MetaArray)

    is_sparse = is_sparse_csr = is_quantized = is_xpu = is_mps = is_nested = False
    is_xla = is_ipu = is_mtia = is_maia = is_vulkan = is_mkldnn = False
    layout = layouts.strided

    def size(self, dim: int | None = None) -> Size | int:
        """The shape, or the length of one dimension."""
        if dim is None:
            return _new_tuple(Size, self._array.shape)
        return self._array.shape[normalize_dim(dim, self._array.ndim)]

    def dim(self) -> int:
        """The number of dimensions."""
        return self._array.ndim

    ndimension = dim

    def numel(self) -> int:
        """The number of elements."""
        return self._array.size

    nelement = numel

    def element_size(self) -> int:
        """Bytes per element."""
        return self._array.itemsize

    def stride(self, dim: int | None = None) -> tuple[int, ...] | int:
        """Per dimension, the distance between neighbours in memory, in elements."""
        strides = tuple(s // self._array.itemsize for s in self._array.strides)
        return strides if dim is None else strides[normalize_dim(dim, len(strides))]

    def storage_offset(self) -> int:
        """The position of the first element in the underlying memory, in elements."""
        root, start, _ = root_of(self._array)
        first = wrap(root).data_ptr() + start * root.itemsize
        return (self.data_ptr() - first) // self._array.itemsize

    def data_ptr(self) -> int:
        """The address of the first element."""
        return address(self._array)

    def is_contiguous(self, memory_format: Any = None) -> bool:
        """Whether elements lie in memory in row-major order."""
        return self._array.flags.c_contiguous

    def is_floating_point(self) -> bool:
        """Whether the dtype is floating."""
        return dtypes.category(self._array.dtype) == dtypes.FLOATING

    def is_complex(self) -> bool:
        """Whether the dtype is complex."""
        return self._array.dtype.kind == "c"

    def is_signed(self) -> bool:
        """Whether the dtype has negative numbers."""
        return self.dtype.is_signed

    def is_shared(self) -> bool:
        """False: memory is not shared between processes."""
        return False

    def is_distributed(self) -> bool:
        """False: tensors lie on one device."""
        return False

    def sparse_dim(self) -> int:
        """The number of dimensions of which a sparse tensor keeps positions; 0 of others."""
        return 0

    def dense_dim(self) -> int:
        """The number of the other dimensions."""
        return self.ndim - self.sparse_dim()

    def get_device(self) -> int:
        """The GPU's number, -1 on the CPU."""
        return -1 if isinstance(self._array, np.ndarray) else self._array.device.id

    def is_set_to(self, tensor: Tensor) -> bool:
        """Whether both are the same view of the same memory."""
        a, b = self, tensor
        return (a.data_ptr(), a.shape, a.stride()) == (b.data_ptr(), b.shape, b.stride())

    # --- autograd ---

    @property
    def requires_grad(self) -> bool:
        """Whether operations on this tensor are recorded."""
        view = self._view
        if view is not None and not (self._requires_grad and view.version == self._counter[0]):
            view.refresh(self)
        return self._requires_grad

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        if not isinstance(value, bool):
            raise RuntimeError("requires_grad must be a bool")
        if self._node is not None:
            if value:
                return
            raise RuntimeError(
                "you can only change requires_grad flags of leaf variables. If you want to use a "
                "computed variable in a subgraph that doesn't require differentiation use "
                "var_no_grad = var.detach()."
            )
        if value and not (self.is_floating_point() or self.is_complex()):
            raise RuntimeError(
                "only Tensors of floating point and complex dtype can require gradients"
            )
        if value and type(self._counter) is Unversioned:
            self._counter.check_write("Setting requires_grad=True on inference tensor")
        self._requires_grad = value

    def requires_grad_(self, requires_grad: bool = True) -> Tensor:
        """Set whether operations on this leaf are recorded; returns itself."""
        if requires_grad and not (self.is_floating_point() or self.is_complex()):
            raise RuntimeError("only Tensors of floating point dtype can require gradients")
        self.requires_grad = requires_grad
        return self

    @property
    def is_leaf(self) -> bool:
        """Whether no recorded operation computed this tensor."""
        return self.grad_fn is None

    @property
    def grad_fn(self) -> Any:
        """The node that computed this tensor, or None for a leaf."""
        if self._view is not None:
            self._view.refresh(self)
        return None if self._node is None else self._node.shown()

    @property
    def output_nr(self) -> int:
        """Which of the results of `grad_fn` this tensor is."""
        return self._index

    @property
    def grad(self) -> Tensor | None:
        """The accumulated gradient of a leaf (or of a tensor with `retain_grad()`)."""
        if self._grad is None and self._node is not None and not self.retains_grad:
            warnings.warn(
                "The .grad attribute of a Tensor that is not a leaf Tensor is being accessed. Its "
                ".grad attribute won't be populated during autograd.backward(). If you indeed want "
                "the .grad field to be populated for a non-leaf Tensor, use .retain_grad() on the "
                "non-leaf Tensor.",
                UserWarning,
                stacklevel=2,
            )
        return self._grad

    @grad.setter
    def grad(self, value: Tensor | None) -> None:
        if value is not None:
            if not isinstance(value, Tensor):
                raise TypeError(
                    f"assigned grad expected to be a Tensor or None but got {type(value)}"
                )
            if value.shape != self.shape:
                raise RuntimeError(
                    f"attempting to assign a gradient of size '{list(value.shape)}' to a tensor of "
                    f"size '{list(self.shape)}'. Please ensure that the gradient and the tensor "
                    "are the same size"
                )
            if value.dtype is not self.dtype:
                raise RuntimeError(
                    f"attempting to assign a gradient with dtype '{value.dtype}' to a tensor with "
                    f"dtype '{self.dtype}'. Please ensure that the gradient and the tensor have "
                    "the same dtype"
                )
            if value.is_sparse:
                sparse_gradients[:] = [True]
        self._grad = value

    @grad.deleter
    def grad(self) -> None:
        self._grad = None

    @property
    def _version(self) -> int:
        if type(self._counter) is Unversioned:
            raise RuntimeError("Inference tensors do not track version counter.")
        return self._counter[0]

    @property
    def _base(self) -> Tensor | None:
        return None if self._view is None else self._view.base

    def _is_view(self) -> bool:
        return self._view is not None

    def detach(self) -> Tensor:
        """A tensor of the same memory without a graph; in-place changes are visible in both."""
        result = wrap(self._array)
        result._counter = self._counter
        return result

    def detach_(self) -> Tensor:
        """Remove this tensor from its graph; returns itself."""
        if self._view is not None:
            raise RuntimeError("Can't detach views in-place. Use detach() instead.")
        self._requires_grad, self._node, self._index = False, None, 0
        return self

    @property
    def data(self) -> Tensor:
        """A tensor of the same memory without a graph, with its own version counter."""
        return wrap(self._array)

    @data.setter
    def data(self, value: Tensor) -> None:
        if not isinstance(value, Tensor):
            raise TypeError(f"Variable data has to be a tensor, but got {type(value).__name__}")
        if self._requires_grad and not (value.is_floating_point() or value.is_complex()):
            raise RuntimeError(
                "data set to a tensor that requires gradients must be floating point or complex "
                "dtype"
            )
        self._array = value._array

    def retain_grad(self) -> None:
        """Let backward store `.grad` of this tensor although it is not a leaf."""
        if not self.requires_grad:
            raise RuntimeError("can't retain_grad on Tensor that has requires_grad=False")
        node = self._node
        if node is not None:
            node.retained = node.retained or {}
            node.retained[self._index] = weakref.ref(self)

    @property
    def retains_grad(self) -> bool:
        """Whether `retain_grad` was called."""
        node = self._node
        return node is not None and bool(node.retained) and self._index in node.retained

    def register_hook(self, hook: Callable) -> RemovableHandle:
        """Call `hook(grad)` when this tensor's gradient is known; a returned tensor replaces it.

        Returns a handle whose `remove()` removes the hook.
        """
        if not self.requires_grad:
            raise RuntimeError("cannot register a hook on a tensor that doesn't require gradient")
        node = self._node
        if node is not None:
            return node.add_hook(self._index, hook)
        if self._hooks is None:
            self._hooks = Hooks()
        return add_hook(self._hooks, hook)

    def register_post_accumulate_grad_hook(self, hook: Callable) -> RemovableHandle:
        """Call `hook(tensor)` after a backward pass has added to this leaf's `.grad`."""
        if not self.requires_grad:
            raise RuntimeError("cannot register a hook on a tensor that doesn't require gradient")
        if self.grad_fn is not None:
            raise RuntimeError(
                "post accumulate grad hooks cannot be registered on non-leaf tensors"
            )
        if self._accumulate_hooks is None:
            self._accumulate_hooks = Hooks()
        return add_hook(self._accumulate_hooks, hook)

    def backward(
        self,
        gradient: Tensor | None = None,
        retain_graph: bool | None = None,
        create_graph: bool = False,
        inputs: Any = None,
    ) -> None:
        """Add the gradient of this tensor with respect to every leaf into its `.grad`.

        gradient: the gradient of a scalar with respect to this tensor, with its shape; optional if
            this tensor is a scalar.
        retain_graph: keep the saved tensors, so that backward can run again (default:
        create_graph). create_graph: record the computation of the gradient, for higher derivatives.
        inputs: the only tensors whose `.grad` is to be added to (default: all leaves).
        """
        BACKWARD[0](self, gradient, retain_graph, create_graph, None, inputs)

    # --- conversions ---

    def lu(self, pivot: bool = True, get_infos: bool = False) -> tuple:
        """(L and U in one matrix, pivots from 1), as `minigrad.lu`."""
        from minigrad.factors import lu

        return lu(self, pivot, get_infos)

    def item(self) -> Any:
        """The value of a tensor of one element as a Python number."""
        if self._array.size != 1:
            raise RuntimeError(
                f"a Tensor with {self._array.size} elements cannot be converted to Scalar"
            )
        if unusual and mode.observer is not None:
            mode.observer.read(self)
        value = read(self._array, "item")
        return value if isinstance(value, (int, float, complex)) else float(value)  # bfloat16

    def tolist(self) -> Any:
        """Nested lists of Python numbers."""
        array = self._array
        if dtypes.category(array.dtype) == dtypes.FLOATING and array.itemsize == 2:
            array = array.astype(np.float32)  # exact; bfloat16 items are not Python floats
        return read(array, "tolist")

    def numpy(self, *, force: bool = False) -> np.ndarray:
        """The NumPy array behind a CPU tensor (shared memory); `force` detaches and copies."""
        if force:
            return self.detach().cpu()._array
        if mode.enabled and self.requires_grad:
            raise RuntimeError(
                "Can't call numpy() on Tensor that requires grad. "
                "Use tensor.detach().numpy() instead."
            )
        if not isinstance(self._array, np.ndarray):
            raise TypeError(
                f"can't convert {self.device} device type tensor to numpy. Use Tensor.cpu() to "
                "copy the tensor to host memory first."
            )
        return self._array if mode.recorder is None else np.asarray(self._array)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        array = self.numpy()
        if dtype is not None and array.dtype != dtype:
            return array.astype(dtype)
        return array.copy() if copy else array

    def __array_wrap__(self, array: Any, context: Any = None, return_scalar: bool = False) -> Any:
        """The result of a NumPy function of a tensor: a tensor if minigrad has the dtype."""
        return array if array.dtype.kind in "OSUMm" else wrap(np.asarray(array))

    def __dlpack__(self, *, stream: Any = None, **kwargs: Any) -> Any:
        if self.requires_grad:
            raise BufferError(
                "Can't export tensors that require gradient, use tensor.detach() instead"
            )
        if isinstance(self._array, np.ndarray):
            return dlpack.capsule_of(self._array, stream=stream, **kwargs)
        return self._array.__dlpack__(stream=stream, **kwargs)

    def __dlpack_device__(self) -> tuple:
        return self._array.__dlpack_device__()

    @property
    def __cuda_array_interface__(self) -> dict:
        if isinstance(self._array, np.ndarray):
            raise AttributeError("__cuda_array_interface__: this tensor is on the CPU")
        return self._array.__cuda_array_interface__

    def cpu(self, memory_format: Any = None) -> Tensor:
        """This tensor on the CPU (itself if it is there)."""
        return self.to(CPU)

    def cuda(
        self, device: Any = None, non_blocking: bool = False, memory_format: Any = None
    ) -> Tensor:
        """This tensor on a GPU; RuntimeError without one."""
        return self.to("cuda" if device is None else device, non_blocking=non_blocking)

    def share_memory_(self) -> Tensor:
        """Itself: tensors are pickled to move them between processes."""
        return self

    def __bool__(self) -> bool:
        size = self._array.size
        if size != 1:
            count = "more than one value" if size else "no values"
            raise RuntimeError(f"Boolean value of Tensor with {count} is ambiguous")
        if unusual and mode.observer is not None:
            mode.observer.read(self)
        return bool(read(self._array, "item"))

    def _scalar(self) -> float | int | bool:
        if self._array.size != 1:
            raise ValueError("only one element tensors can be converted to Python scalars")
        value = self.item()
        return dtypes.fitting(value, np.dtype(float)) if type(value) is complex else value

    def __float__(self) -> float:
        return float(self._scalar())

    def __int__(self) -> int:
        return int(self._scalar())

    def __index__(self) -> int:
        if self._array.size != 1 or self._array.dtype.kind not in "biu":
            raise TypeError("only integer tensors of a single element can be converted to an index")
        return int(self.item())

    def __len__(self) -> int:
        if self._array.ndim == 0:
            raise TypeError("len() of a 0-d tensor")
        return self._array.shape[0]

    def __iter__(self) -> Iterator[Tensor]:
        if self._array.ndim == 0:
            raise TypeError("iteration over a 0-d tensor")
        return iter(self.unbind(0))

    def __reversed__(self) -> Tensor:
        return self.flip(0) if self._array.ndim else self

    def __contains__(self, element: Any) -> bool:
        if not isinstance(element, Tensor | np.generic | int | float | complex):
            raise RuntimeError(
                "Tensor.__contains__ only supports Tensor or scalar, but you passed in a "
                f"{type(element)}."
            )
        return bool((self == element).any())

    def __delitem__(self, index: Any) -> None:
        raise TypeError("Tensor does not support deleting items")

    def __hash__(self) -> int:
        return id(self)

    def __format__(self, spec: str) -> str:
        if self._array.ndim == 0:
            return self.item().__format__(spec)
        return object.__format__(self, spec)

    def __repr__(self) -> str:
        from minigrad.printing import format_tensor

        return format_tensor(self)

    def __copy__(self) -> Tensor:
        """A leaf of the same memory, attributes and `requires_grad`."""
        result = _new(type(self))
        skipped = (*_NOT_PICKLED, "_grad", "_index")
        result.__dict__.update({k: v for k, v in self.__dict__.items() if k not in skipped})
        result._requires_grad = self.requires_grad
        result._counter = self._counter
        return result

    def __deepcopy__(self, memo: dict) -> Tensor:
        if self.grad_fn is not None:
            raise RuntimeError(
                "Only Tensors created explicitly by the user (graph leaves) support the deepcopy "
                "protocol at the moment; use x.detach() or x.clone()"
            )
        if id(self) in memo:
            return memo[id(self)]
        result = _new(type(self))
        memo[id(self)] = result
        result.__dict__.update(_deepcopied(self.__dict__, memo))
        result._array = self._array.copy()
        result._counter = new_counter()
        return result

    def __getstate__(self) -> dict:
        state = {k: v for k, v in self.__dict__.items() if k not in (*_NOT_PICKLED, "_index")}
        state["_requires_grad"] = self.requires_grad
        where = self.device
        array = move_array(self._array, CPU)
        state["_array"] = np.ascontiguousarray(array).reshape(array.shape)
        return state if where == CPU else {**state, "_where": where}

    def __setstate__(self, state: dict) -> None:
        state = dict(state)
        where = state.pop("_where", CPU)
        self.__dict__.update(state)
        self._array = move_array(self._array, where)
        self._counter = new_counter()


_NOT_PICKLED = ("_counter", "_view", "_hooks", "_accumulate_hooks", "_node")


def _deepcopied(attributes: dict, memo: dict) -> dict:
    from copy import deepcopy

    skipped = (*_NOT_PICKLED, "_array")
    return {k: deepcopy(v, memo) for k, v in attributes.items() if k not in skipped}


def as_int(name: str, value: Any) -> int:
    """The value as an integer (by `__index__`); TypeError with the argument's name otherwise."""
    try:
        if not isinstance(value, bool):
            return operator.index(value)
    except TypeError:
        pass
    raise TypeError(f"{name} must be an int, not {type(value).__name__}")


def check_flag(name: str, argument: str, value: Any) -> None:
    """TypeError for a number in place of a bool: `x.sum(0, 1)` has one dimension and a flag."""
    if not isinstance(value, bool | np.bool_):
        raise TypeError(f"{name}(): argument '{argument}' must be bool, not {type(value).__name__}")


def normalize_dim(dim: int, ndim: int) -> int:
    """A dimension in 0 .. ndim-1; IndexError outside (a 0-dimensional tensor accepts 0 and -1)."""
    n = ndim or 1
    if type(dim) is not int:
        dim = as_int("dim", dim)
    if not -n <= dim < n:
        raise IndexError(
            f"Dimension out of range (expected to be in range of [{-n}, {n - 1}], but got {dim})"
        )
    return dim + n if dim < 0 else dim


FUNCTIONS: dict[str, Callable] = {}
F = TypeVar("F", bound=Callable)


class _Exported:
    """The functions of FUNCTIONS as attributes: `functions.cat` is `minigrad.cat`."""

    def __getattr__(self, name: str) -> Callable:
        try:
            return FUNCTIONS[name]
        except KeyError:
            raise AttributeError(f"no function {name!r} is exported") from None


functions = _Exported()  # for files composed of many others, which cannot import minigrad


current.CLASSES.append(Tensor)

# Of any tensor, the engine's too; `vars` of a `Parameter` shows those that programs gave it
every_attribute = vars(Tensor)["__dict__"].__get__


def export(*names: str, method: bool = True, function: bool = True) -> Callable[[F], F]:
    """Decorator: export a function as `minigrad.name` and `Tensor.name`, also under aliases."""

    def register(fn: F) -> F:
        for name in (fn.__name__, *names):
            if function:
                FUNCTIONS[name] = fn
            if method:
                setattr(Tensor, name, numpys_words(fn))
        return fn

    return register
