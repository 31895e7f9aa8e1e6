"""minigrad: a small autograd engine whose operations are CUDA kernels that you can read.

Names, argument orders, defaults and errors are those of torch, so that programs run with
`import minigrad as torch`. A name of torch that minigrad does not have raises an AttributeError.
"""

# ruff: noqa: F401 - names are imported to be found here

from __future__ import annotations

import math as _math
from typing import TYPE_CHECKING as _TYPE_CHECKING

from minigrad import (
    _kernels,  # first: it tells whether another package is imported as `kernels`
    autograd,  # then this: it brings tensor and the graph in the right order
    backends,
    creation,
    dtypes,
    ops,
    printing,
    random,
)
from minigrad._foreign import tensors_only as _tensors_only
from minigrad._names import namespace as _namespace
from minigrad._out import NAMES as _TAKE_OUT
from minigrad.autograd import (
    enable_grad,
    inference_mode,
    is_grad_enabled,
    is_inference_mode_enabled,
    no_grad,
    set_grad_enabled,
)
from minigrad.batching.vmap import vmap
from minigrad.creation import LEGACY as _LEGACY
from minigrad.devices import device, get_default_device, set_default_device
from minigrad.dtypes import (
    bfloat16,
    can_cast,
    cdouble,
    cfloat,
    complex64,
    complex128,
    double,
    dtype,
    finfo,
    float16,
    float32,
    float64,
    get_default_dtype,
    half,
    iinfo,
    int8,
    int16,
    int32,
    int64,
    long,
    promote_types,
    set_default_dtype,
    short,
    uint8,
    uint16,
    uint32,
    uint64,
)
from minigrad.layouts import (
    channels_last,
    channels_last_3d,
    contiguous_format,
    layout,
    memory_format,
    preserve_format,
    sparse_coo,
    sparse_csr,
    strided,
)
from minigrad.printing import set_printoptions
from minigrad.random import (
    Generator,
    default_generator,
    get_rng_state,
    initial_seed,
    manual_seed,
    seed,
    set_rng_state,
)
from minigrad.tensor import FUNCTIONS as _FUNCTIONS
from minigrad.tensor import Size, Tensor

__version__ = "0.1.0"

qint8 = int8  # what `quantization.quantize_dynamic` rounds weights to
pi, e, inf, nan = _math.pi, _math.e, _math.inf, _math.nan
newaxis = None

if _TYPE_CHECKING:  # what is added below, and what is imported at its first use
    from minigrad._functions import *  # noqa: F403
    from minigrad.creation import tensor as tensor
globals().update(
    {n: _tensors_only(fn, n in _TAKE_OUT, f"minigrad.{n}") for n, fn in _FUNCTIONS.items()}
)
globals().update(_LEGACY)
globals().update(dtypes.ABSENT)
globals().update({"float": dtypes.float32, "int": dtypes.int32, "bool": dtypes.bool_})

# Imported at their first use, so that `import minigrad` stays fast.
_LAZY = (
    "accelerator", "amp", "ao", "compiler", "cuda", "datasets", "distributed", "distributions",
    "estimate", "fft", "func", "functional", "functorch", "futures", "fx", "hub", "jit", "library",
    "linalg", "models", "multiprocessing", "nn", "onnx", "optim", "overrides", "profiler",
    "quantization", "safetensors", "serialization", "signal", "sparse", "special", "storage",
    "testing", "training", "types", "utils", "version", "vision", "viz",
)  # fmt: skip
_LAZY_NAMES = {
    "Event": "minigrad.cuda",
    "Stream": "minigrad.cuda",
    "SymBool": "minigrad.types",
    "SymFloat": "minigrad.types",
    "SymInt": "minigrad.types",
    "Future": "minigrad.futures",
    "GradScaler": "minigrad.amp",
    "OutOfMemoryError": "minigrad.backends.current",
    "PyTorchFileReader": "minigrad._C",
    "ScriptModule": "minigrad.jit",
    "TypedStorage": "minigrad.storage",
    "UntypedStorage": "minigrad.storage",
    "as_torch": "minigrad._torch_names",
    "autocast": "minigrad.amp.autocast_mode",
    "is_anomaly_check_nan_enabled": "minigrad.autograd.anomaly_mode",
    "is_anomaly_enabled": "minigrad.autograd.anomaly_mode",
    "lu": "minigrad.factors",
    "lu_solve": "minigrad.factors",
    "lu_unpack": "minigrad.factors",
    "ormqr": "minigrad.factors",
    "pca_lowrank": "minigrad.lowrank",
    "svd_lowrank": "minigrad.lowrank",
    "fake_quantize_per_channel_affine": "minigrad.quantization",
    "fake_quantize_per_tensor_affine": "minigrad.quantization",
    "to_dlpack": "minigrad.utils.dlpack",
    "compile": "minigrad.compiler",
    "fit": "minigrad.training",
    "save": "minigrad.serialization",
    "load": "minigrad.serialization",
    "get_num_threads": "kernels.simt",
    "set_num_threads": "kernels.simt",
    "get_float32_matmul_precision": "kernels.launchers.matmul",
    "set_float32_matmul_precision": "kernels.launchers.matmul",
}
_LAZY_NAMES |= dict.fromkeys(
    (
        "are_deterministic_algorithms_enabled",
        "get_deterministic_debug_mode",
        "is_deterministic_algorithms_warn_only_enabled",
        "set_deterministic_debug_mode",
        "use_deterministic_algorithms",
    ),
    "kernels.launchers.determinism",
)


_LAZY_NAMES |= dict.fromkeys(("_weight_norm", "norm_except_dim"), "minigrad.nn.utils.weight_norm")
_LAZY_NAMES |= dict.fromkeys(
    ("_sample_dirichlet", "_standard_gamma", "binomial", "poisson"), "minigrad.variates"
)
_LAZY_NAMES |= dict.fromkeys(
    (
        "clear_autocast_cache get_autocast_cpu_dtype get_autocast_dtype get_autocast_gpu_dtype"
        " is_autocast_cache_enabled is_autocast_cpu_enabled is_autocast_enabled"
        " set_autocast_cache_enabled set_autocast_dtype set_autocast_enabled"
    ).split(),
    "minigrad.amp.autocast_mode",
)
_LAZY_NAMES |= dict.fromkeys(
    (
        "affine_grid_generator alpha_dropout alpha_dropout_ batch_norm bilinear"
        " binary_cross_entropy_with_logits channel_shuffle constant_pad_nd conv_tbc"
        " cosine_embedding_loss ctc_loss feature_alpha_dropout feature_alpha_dropout_"
        " feature_dropout feature_dropout_ frobenius_norm grid_sampler group_norm"
        " hinge_embedding_loss instance_norm kl_div layer_norm margin_ranking_loss"
        " max_pool1d_with_indices nuclear_norm pairwise_distance pdist pixel_shuffle"
        " pixel_unshuffle poisson_nll_loss rms_norm rrelu rrelu_ triplet_margin_loss"
    ).split(),
    "minigrad.nn.torch_level",
)
_LAZY_NAMES |= {name: f"minigrad.{name}" for name in (*_LAZY, "_C", "_dynamo", "_utils")}
__getattr__, _ = _namespace(__name__, _LAZY_NAMES)


def set_num_interop_threads(num: int) -> None:
    """Nothing: operations run one after another here."""


def get_num_interop_threads() -> int:
    """1: operations run one after another."""
    return 1


def set_flush_denormal(mode: bool) -> bool:
    """Whether results of kernels on the CPU that would be subnormal numbers are 0 from now on, in
    this thread. Returns whether the processor can do that: those of x86 can. RuntimeError for what
    is not a bool.

    A step in which many numbers are subnormal takes longer: moments of units that have died, or
    gradients that vanish. The default is to keep them, as on a GPU. Operands that are subnormal
    already count as they are (torch takes them as 0, too).
    """
    from kernels.simt.backend.control import flush_subnormals

    if mode is not True and mode is not False:
        name = type(mode).__name__
        raise RuntimeError(f"flush_denormal expects a bool, but got {name}")
    return flush_subnormals(mode)


def set_default_tensor_type(t: type | str) -> None:
    """The dtype and device of tensors that are made without: of a class such as `FloatTensor` or
    `cuda.HalfTensor`, or its name ("torch.cuda.FloatTensor"). TypeError for another type."""
    name = t if isinstance(t, str) else getattr(t, "__name__", "")
    where = "cuda" if ".cuda." in f".{name}" else getattr(t, "place", "cpu")
    found = _LEGACY.get(name.rpartition(".")[2])
    if found is None or not found.dtype.is_floating_point:
        raise TypeError("only floating-point types are supported as the default type")
    set_default_dtype(found.dtype)
    set_default_device(None if where == "cpu" else where)


def __dir__() -> list[str]:
    from types import ModuleType

    public = {"autograd", "backends", "random"}
    public.update(name for name in _LAZY_NAMES if not name.startswith("_"))
    for name, value in globals().items():
        if not name.startswith("_") and name != "annotations" and not isinstance(value, ModuleType):
            public.add(name)
    return sorted(public)
