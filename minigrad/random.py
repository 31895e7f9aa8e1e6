"""Random numbers: Philox, a counter-based generator, so the same seed gives the same numbers on
every backend and device (Salmon, Moraes, Dror and Shaw: Parallel random numbers, 2011).

A generator is a seed and a number of calls. Element i of call c depends only on (seed, c, i).
"""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from kernels import dispatch
from kernels.pointwise import Expr
from kernels.support import ahead, forks, philox
from minigrad import dtypes
from minigrad._names import namespace
from minigrad.autograd.mode import batching, mode, no_grad
from minigrad.backends import array_module, current, device_module, on_gpu
from minigrad.creation import _shape, finish, place
from minigrad.devices import CPU, device, read
from minigrad.ops.inplace import check_writable
from minigrad.tensor import Tensor, as_int, export, functions, wrap

_DEFAULT_SEED = 67280421310721  # torch's


class Generator:
    """A source of random numbers with a seed of its own; safe to share between threads."""

    def __init__(self, device: Any = "cpu") -> None:
        self.device = place(device)
        if self.device.type not in ("cpu", "cuda", "meta"):
            raise current.unknown_device(self.device.type)
        self._lock = forks.lock()
        self._seed, self._calls = _DEFAULT_SEED, 0

    def manual_seed(self, seed: int) -> Generator:
        """Restart from `seed` (an integer of up to 64 bits)."""
        if not -(2**63) <= int(seed) < 2**64:
            raise ValueError(f"Overflow when unpacking long long: seed {seed} has over 64 bits")
        with self._lock:
            self._seed, self._calls = int(seed) % 2**64, 0
        return self

    def seed(self) -> int:
        """Restart from a random seed of the operating system, and return it."""
        value = int.from_bytes(os.urandom(8), "little") >> 1
        self.manual_seed(value)
        return value

    def initial_seed(self) -> int:
        """The seed of the sequence."""
        return self._seed

    def next_call(self) -> tuple[int, int]:
        """(seed, offset) for the kernels of one call."""
        for level in batching:
            level.drawn()
        with self._lock:
            self._calls += 1
            seed, offset = self._seed, self._calls - 1
        return (seed, offset) if mode.recorder is None else mode.recorder.draw(self, seed, offset)

    def next_calls(self, count: int) -> tuple[int, int]:
        """(seed, first offset) of `count` calls at once."""
        with self._lock:
            self._calls += count
            return self._seed, self._calls - count

    def get_state(self) -> Tensor:
        """Seed and position as 16 bytes (uint8)."""
        return wrap(np.array([self._seed, self._calls], np.uint64).view(np.uint8))

    def set_state(self, new_state: Tensor) -> None:
        """Restore a state from `get_state`."""
        state = new_state._array
        if state.dtype != np.uint8 or state.shape != (16,):
            raise RuntimeError(
                f"Generator: expected a state of 16 bytes (uint8), got {list(state.shape)} of "
                f"{new_state.dtype}"
            )
        with self._lock:
            self._seed, self._calls = (int(v) for v in state.view(np.uint64))

    def __getstate__(self) -> dict:
        return {"device": self.device, "_seed": self._seed, "_calls": self._calls}

    def __setstate__(self, state: dict) -> None:
        self.__dict__.update(state)
        self._lock = forks.lock()


default_generator = Generator()


class _Thread(threading.local):
    generator: Generator | None = None  # of its own


_thread = _Thread()


def current_generator() -> Generator:
    """The default generator, or this thread's own."""
    return _thread.generator or default_generator


def use_thread_generator(seed: int) -> None:
    """Let this thread use a generator of its own from now on: threads that run at the same time
    would draw from a shared one in no fixed order."""
    _thread.generator = Generator().manual_seed(seed)


def manual_seed(seed: int) -> Generator:
    """Restart the default generator from `seed`."""
    return current_generator().manual_seed(seed)


def seed() -> int:
    """Restart the default generator from a random seed of the operating system."""
    return current_generator().seed()


def initial_seed() -> int:
    """The seed of the default generator."""
    return current_generator().initial_seed()


def get_rng_state() -> Tensor:
    """The default generator's state."""
    return current_generator().get_state()


def set_rng_state(new_state: Tensor) -> None:
    """Restore the state of the default generator."""
    current_generator().set_state(new_state)


@contextmanager
def fork_rng(
    devices: Any = None,
    enabled: bool = True,
    _caller: str = "fork_rng",
    _devices_kw: str = "devices",
    device_type: str | None = None,
) -> Iterator[None]:
    """A block after which the default generator is where it was before; not if `enabled` is False.

    The generator is that of all devices, whichever `devices` are named.
    """
    if device_type not in (None, "cpu", "cuda", "meta"):
        raise RuntimeError(f"fork_rng: there is no device of type {device_type!r}")
    if not enabled or device_type == "meta":
        yield
        return
    state = get_rng_state()
    try:
        yield
    finally:
        set_rng_state(state)


def _draw(kind: str, shape: tuple, target: np.dtype, generator: Any, where: device) -> Any:
    """Random numbers from the kernel `uniform` or `normal`."""
    if where.type == "meta":
        return device_module("meta").empty(shape, target)
    seed, offset = (generator or current_generator()).next_call()
    if where is CPU:
        name, active = dispatch.named(kind, shape, target), dispatch.active
        found = dispatch.relaunch(dispatch.tracer, active, name, seed, offset)
        if found is not None:
            return found
    wide = target if target in _WIDE else np.dtype(np.float32)
    array = _random(kind, where, shape, seed, offset, wide)
    return array if wide == target else array.astype(target)


_WIDE = (np.float32, np.float64)  # what the kernels draw


def _draw_into(target: Tensor, kind: str, generator: Generator | None) -> bool:
    """Fill a tensor with numbers as the kernel `uniform` or `normal` draws them, in its memory;
    False, and nothing is drawn, where they have to be copied there."""
    array, active = target._array, dispatch.active
    if type(array) is not np.ndarray or not array.flags.carray or array.dtype not in _WIDE:
        return False
    if mode.recorder is not None or mode.observer is not None:
        return False
    check_writable(target)
    seed, offset = (generator or current_generator()).next_call()
    name = dispatch.named("into", kind)
    if dispatch.relaunch(dispatch.tracer, active, name, array, seed, offset) is None:
        args = array.shape, seed, offset, array.dtype
        if (kind, array.dtype) in _drew:
            getattr(active, kind)(*args, out=array)
        else:
            array[...] = _random(kind, CPU, *args)
    target._counter[0] += 1
    return True


def _random(kernel: str, where: device, *args: Any) -> Any:
    """Random numbers from a kernel on that device; those of the reference come from the CPU."""
    function = getattr(dispatch.active, kernel)
    if where.type == "cpu":
        key = kernel, *args[3:]
        return function(*args) if key in _drew else _first(key, function, args)
    module = device_module(where.type)
    if dispatch.backend() == "numpy":
        return module.asarray(function(*args))
    return function(*args, like=module.empty(0))


_drew: set[tuple] = set()  # kernels that have run, with their dtypes
_ALIKE = ("uniform", "philox_uint32")  # of which NumPy draws the same numbers, to the last bit
_OTHERS = ("cupy", "numpy")  # the backends of which a CPU compiles no kernels in Numba's dialect
_A_CALL = 1 << 16  # numbers that take NumPy as long as looking for the kernel
_left = 1 << 22  # how many numbers NumPy may draw, in less time than compiling takes


def _first(key: tuple, function: Callable, args: tuple) -> Any:
    """Random numbers from a kernel that may have to be compiled: the program waits only where it
    draws many."""
    global _left
    size, unseen = math.prod(np.atleast_1d(args[0])) + _A_CALL, dispatch.runs_unseen()
    if key[0] not in _ALIKE or size > _left or not unseen or dispatch.backend() in _OTHERS:
        result = function(*args)
    else:
        try:
            shape = 1 if key[1:] == () else (1,)
            with ahead.postponing(key, lambda: function(shape, *args[1:])):
                result = function(*args)
        except ahead.Busy:
            _left -= size
            with dispatch.timed(key[0], "numpy"):
                return _by_numpy(*args)
    _drew.add(key)
    ahead.postponed.pop(key, None)
    return result


def _by_numpy(shape: Any, seed: int, offset: int, dtype: Any = None) -> Any:
    if dtype is None:
        return philox.words(shape, seed, offset)
    return philox.uniform(math.prod(shape), seed, offset, dtype).reshape(shape)


def words(count: int, generator: Generator | None, where: device = CPU) -> Any:
    """`count` random 32-bit words."""
    seed, offset = (generator or current_generator()).next_call()
    if where is CPU:
        name, active = dispatch.named("philox_uint32", count), dispatch.active
        found = dispatch.relaunch(dispatch.tracer, active, name, seed, offset)
        if found is not None:
            return found
    return _random("philox_uint32", where, count, seed, offset)


def _floating(name: str, dtype: Any) -> np.dtype:
    target = dtypes.default_numpy() if dtype is None else dtypes.to_numpy_dtype(dtype)
    if dtypes.category(target) != dtypes.FLOATING:
        legacy = dtypes.from_numpy_dtype(target).legacy_name.removesuffix("Tensor")
        raise NotImplementedError(f"\"{name}\" not implemented for '{legacy}'")
    return target


def _drawn(name: str, kind: str, shape: tuple, dtype: Any, generator: Any, where: device) -> Any:
    """Random numbers; complex ones have random parts (normal ones a variance of 1 in all)."""
    if dtype is None or not dtype.is_complex:
        return _draw(kind, shape, _floating(name, dtype), generator, where)
    parts = _draw(kind, (*shape, 2), dtype.to_real().numpy, generator, where)
    scale = 0.5**0.5 if kind == "normal" else 1
    return (parts[..., 0] + 1j * parts[..., 1]).astype(dtype.numpy) * dtype.numpy.type(scale)


def _sampler(name: str, kind: str, what: str) -> None:
    def function(
        *size: Any,
        generator: Generator | None = None,
        dtype: Any = None,
        device: Any = None,
        requires_grad: bool = False,
        layout: Any = None,
        pin_memory: bool = False,
        **named: Any,
    ) -> Tensor:
        given = named.pop("size", None) if named else None
        if named:
            raise TypeError(f"{name}() got an unexpected keyword argument '{next(iter(named))}'")
        shape = _shape(size, given)
        where = place(device)
        if dtype is None and where is CPU:
            array = _draw(kind, shape, dtypes.default_numpy(), generator, where)
        else:
            with current.at(where):
                array = _drawn(name, kind, shape, dtype, generator, where)
        return finish(array, requires_grad, pin_memory, layout)

    def like(
        input: Tensor,
        *,
        dtype: Any = None,
        layout: Any = None,
        device: Any = None,
        requires_grad: bool = False,
        memory_format: Any = None,
        generator: Generator | None = None,
    ) -> Tensor:
        return function(
            input._array.shape,
            dtype=dtype or input.dtype,
            layout=layout,
            device=device or input.device,
            requires_grad=requires_grad,
            generator=generator,
        )

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"{what}; sizes one by one or as a sequence."
    like.__name__ = like.__qualname__ = f"{name}_like"
    like.__doc__ = f"{what}, with the shape and dtype of another tensor."
    export(method=False)(function)
    export(method=False)(like)


_sampler("rand", "uniform", "Uniform random numbers in [0, 1)")
_sampler("randn", "normal", "Standard normal random numbers")


def whole_numbers(dtype: np.dtype) -> tuple[int, int, int]:
    """The least and the largest integer of a dtype, and the one below which `random_` stays."""
    if dtype.kind == "c":
        raise dtypes.refused("random_kernel_cpu", dtype)
    if dtype.kind == "b":
        return 0, 1, 2
    if dtype.kind in "iu":
        whole = np.iinfo(dtype)
        return int(whole.min), int(whole.max), int(whole.max)
    limits = dtypes.finfo(dtypes.from_numpy_dtype(dtype))
    return -int(limits.max), int(limits.max), int(2 / limits.eps)


_IN_C = {
    "uint8": "unsigned char", "int8": "signed char", "int16": "short int", "int32": "int",
    "float16": "c10::Half", "bfloat16": "c10::BFloat16",
}  # fmt: skip


def check_range(low: int, high: int, dtype: np.dtype) -> None:
    """RuntimeError for integers from low to below high that a dtype does not have."""
    least, most, _ = whole_numbers(dtype)
    for text, value in (("from", low), ("to - 1", high - 1)):
        if low < high and not least <= value <= most:
            name = _IN_C.get(dtype.name, dtype.name)
            raise RuntimeError(f"{text} is out of bounds for {name}")


def _integers(low: int, high: int, shape: tuple, generator: Generator | None, where: device) -> Any:
    """int64 in [low, high): a random word (two for wide ranges) modulo the range, as torch does."""
    if low >= high:
        raise RuntimeError(
            f"random_ expects 'from' to be less than 'to', but got from={low} >= to={high}"
        )
    if where.type == "meta":
        return device_module("meta").empty(shape, np.dtype(np.int64))
    count = math.prod(shape)
    if high - low > 2**32:
        pairs = words(2 * count, generator, where).astype(np.uint64)
        values = (pairs[::2] << np.uint64(32)) | pairs[1::2]
    else:
        values = words(count, generator, where).astype(np.uint64)
    values %= np.uint64(high - low)
    found = values.view(np.int64)  # modulo 2**64, as the sum is
    if low:
        found += low
    return found.reshape(shape)


@export(method=False)
def randint(
    *bounds: Any,
    low: int | None = None,
    high: int | None = None,
    size: Any = None,
    generator: Generator | None = None,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
) -> Tensor:
    """Random integers in [low, high), int64 unless given; `randint(high, size)` starts at 0.

    bounds: `randint(low, high, size)`, or without the first or the last of these."""
    low, high, size = _randint_bounds(bounds, low, high, size)
    where = place(device)
    target = np.dtype(np.int64) if dtype is None else dtypes.to_numpy_dtype(dtype)
    if dtype is not None:
        check_range(low, high, target)
    with current.at(where):
        array = _integers(low, high, _shape((size,)), generator, where)
        return finish(array.astype(target, copy=False), requires_grad, pin_memory, layout)


def _randint_bounds(bounds: tuple, low: Any, high: Any, size: Any) -> tuple:
    """The numbers and the size that `randint` was given."""
    if size is None and bounds and isinstance(bounds[-1], tuple | list):
        bounds, size = bounds[:-1], bounds[-1]
    if len(bounds) == 2 and low is high is None:
        low, high = bounds
    elif len(bounds) == 1 and high is None:
        low, high = 0 if low is None else low, bounds[0]
    elif len(bounds) == 1 and low is None:
        low = bounds[0]
    elif bounds:
        raise TypeError("randint() received an invalid combination of arguments")
    if high is None or size is None:
        missing = "high" if high is None else "size"
        raise TypeError(f'randint() missing 1 required positional argument: "{missing}"')
    if not isinstance(size, tuple | list):
        raise TypeError(
            f"randint(): argument 'size' must be tuple of ints, not {type(size).__name__}"
        )
    return (
        as_int("randint(): low", 0 if low is None else low),
        as_int("randint(): high", high),
        size,
    )


@export(method=False)
def randint_like(
    input: Tensor,
    low: int = 0,
    high: int | None = None,
    *,
    generator: Generator | None = None,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    memory_format: Any = None,
) -> Tensor:
    """Random integers in [low, high) with the shape and dtype of another tensor."""
    low, high = (0, low) if high is None else (low, high)
    return randint(
        *(low, high, input._array.shape),
        generator=generator,
        dtype=dtype or input.dtype,
        layout=layout,
        device=device or input.device,
        requires_grad=requires_grad,
    )


@export(method=False)
def randperm(
    n: int,
    *,
    generator: Generator | None = None,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
) -> Tensor:
    """0 .. n-1 in random order (int64): the permutation that sorts random 64-bit keys."""
    if n < 0:
        raise RuntimeError(f"randperm: expected n >= 0, got {n}")
    target = np.dtype(np.int64) if dtype is None else dtypes.to_numpy_dtype(dtype)
    if target.kind in "bc":
        raise dtypes.refused("randperm", target)
    if n and target.kind in "iu" and n - 1 > np.iinfo(target).max:
        raise RuntimeError(f"value cannot be converted to type {target.name}_t without overflow")
    where = place(device)
    if where.type == "meta":
        return finish(device_module("meta").empty((n,), target), requires_grad, layout=layout)
    with current.at(where):
        pairs = words(2 * n, generator, where).astype(np.uint64)
        keys = (pairs[:n] << np.uint64(32)) | pairs[n:]
        order = _order(keys).astype(target, copy=False)
    return finish(order, requires_grad, pin_memory, layout)


def _order(keys: Any) -> Any:
    """The stable order of random 64-bit keys. NumPy sorts few by 16 bits in linear time; in the
    order that this leaves, only short runs have to be merged. It sorts many in vector code with
    their positions in the lower bits, if the upper ones differ."""
    if on_gpu(keys):
        return array_module(keys).argsort(keys, kind="stable")
    if len(keys) > 1 << 13:
        bits = np.uint64(len(keys).bit_length())
        places = np.arange(len(keys), dtype=np.uint64)
        found = np.sort((keys >> bits << bits) | places)
        upper = found >> bits
        if (upper[1:] != upper[:-1]).all():
            return (found ^ (upper << bits)).view(np.int64)
    order = (keys >> np.uint64(48)).astype(np.uint16).argsort(kind="stable")
    return order[keys[order].argsort(kind="stable")]


@export(method=False)
def normal(
    mean: Any = 0.0,
    std: Any = 1.0,
    size: Any = None,
    *,
    generator: Generator | None = None,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
) -> Tensor:
    """mean + std * standard normal numbers; mean and std are numbers (with `size`) or tensors."""
    if not isinstance(std, Tensor) and std < 0:
        raise RuntimeError(f"normal expects std >= 0.0, but found std {std}")
    if isinstance(mean, Tensor) or isinstance(std, Tensor):
        wide = mean + 0 * std if isinstance(mean, Tensor) else std
        with current.at(wide.device):
            noise = _draw("normal", wide._array.shape, wide._array.dtype, generator, wide.device)
        with no_grad():
            return mean + std * wrap(noise)
    if size is None:
        raise TypeError("normal() missing the argument 'size'")
    target = _floating("normal", dtype)
    where = place(device)
    with current.at(where):
        array = _draw("normal", _shape((size,)), target, generator, where)
        made = array * target.type(std) + target.type(mean)
        return finish(made, requires_grad, pin_memory, layout)


@export()
def bernoulli(
    input: Tensor, p: float | None = None, *, generator: Generator | None = None
) -> Tensor:
    """1 with the probability given by each element (or by p), else 0."""
    kind = input._array.dtype.kind
    if input._array.size and (kind == "c" or (p is None and kind in "biu")):
        name = "bernoulli_tensor_cpu_p_" if p is None else "bernoulli_scalar_cpu_"
        raise dtypes.refused(name, input._array.dtype)
    probability = input._array if p is None else p
    if input.is_meta:
        return input.detach().clone()
    if p is None and input._array.size and not ((probability >= 0) & (probability <= 1)).all():
        raise RuntimeError("Expected p_in >= 0 && p_in <= 1 to be true, but got false.")
    target = input._array.dtype
    u = _draw("uniform", input._array.shape, np.dtype(np.float64), generator, input.device)
    return wrap((u < probability).astype(target))


@export()
def multinomial(
    input: Tensor,
    num_samples: int,
    replacement: bool = False,
    *,
    generator: Generator | None = None,
) -> Tensor:
    """Positions (int64) drawn with probability proportional to each row's weights.

    Without replacement by Efraimidis and Spirakis (Weighted random sampling with a reservoir,
    2006): the elements with the largest log(u) / weight. Those of weight zero come last.
    """
    xp, shape = array_module(input._array), input._array.shape
    if len(shape) not in (1, 2):
        raise RuntimeError("prob_dist must be 1 or 2 dim")
    if not input.is_floating_point():
        name = input.dtype.legacy_name.removesuffix("Tensor")
        raise RuntimeError(
            f"multinomial only supports floating-point dtypes for input, got: {name}"
        )
    if num_samples <= 0:
        raise RuntimeError("cannot sample n_sample <= 0 samples")
    if input.is_meta:
        return functions.empty(*shape[:-1], num_samples, dtype=dtypes.int64, device=input.device)
    rows = input._array.astype(np.float64).reshape(-1, shape[-1])
    if rows.size:
        _check_weights(wrap(rows))
    elif len(rows):
        raise RuntimeError(_NO_WEIGHT)
    seed, offset = (generator or current_generator()).next_call()
    if replacement:
        u = _random("uniform", input.device, (len(rows), num_samples), seed, offset, np.float64)
        cumulative = rows.cumsum(1)
        wanted = u * cumulative[:, -1:]
        if type(rows) is np.ndarray and rows.size * num_samples <= _FEW:  # NumPy takes row by row
            index = (cumulative[:, None] <= wanted[:, :, None]).sum(2)
        else:
            index = functions.searchsorted(wrap(cumulative), wrap(wanted), right=True)._array
        index = xp.minimum(index, rows.shape[1] - 1)
    else:
        if num_samples > rows.shape[1]:
            raise RuntimeError(
                "cannot sample n_sample > prob_dist.size(-1) samples without replacement"
            )
        u = _random("uniform", input.device, rows.shape, seed, offset, np.float64)
        keys = dispatch.active.pointwise(_KEYS, rows, u, params=(-math.inf,))
        if num_samples == 1:
            index = keys.argmax(1)
        else:
            index = functions.topk(wrap(keys), num_samples, 1).indices._array
    return wrap(index.astype(np.int64, copy=False).reshape(*shape[:-1], num_samples))


_KEYS = Expr(
    "sampling_keys", ("weight", "u"), "where(weight > 0, log(maximum(u, 1e-300)) / weight, last)",
    params=("last",),
)  # fmt: skip
_FEW = 1 << 12  # comparisons that take less time than a search
_NO_WEIGHT = "invalid multinomial distribution (sum of probabilities <= 0)"


def _check_weights(rows: Tensor) -> None:
    """Raise for weights of which there is nothing to draw; a GPU is waited for once."""
    array = rows._array
    if type(array) is np.ndarray:
        least, most = array.item(array.argmin()), array.item(array.argmax())  # NaN, if there is one
        if least > 0 and most < math.inf:
            return
    with no_grad():
        found = rows.amin(), rows.amax(), rows.sum(1).amin()
        least, most, least_sum = read(functions.stack(found)._array, "tolist")
    if not least >= 0 or not most < math.inf:  # NaN too
        raise RuntimeError("probability tensor contains either `inf`, `nan` or element < 0")
    if least_sum <= 0:
        raise RuntimeError(_NO_WEIGHT)


__getattr__, __dir__ = namespace(__name__)
