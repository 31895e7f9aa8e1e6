"""Kernels in PTX, written in a test or by NVIDIA's compilers, run on NumPy arrays."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np

from kernels import ptx

HEAD = ".version 8.5\n.target sm_80\n.address_size 64\n"


def entry(body: str, parameters: int = 1, name: str = "k", before: str = "") -> str:
    """A module with one kernel, whose parameters p0, p1 ... are pointers in %p0, %p1 ..."""
    declared = ", ".join(f".param .u64 p{i}" for i in range(parameters))
    loads = "".join(f"    ld.param.u64 %p{i}, [p{i}];\n" for i in range(parameters))
    registers = "    .reg .u64 %p<9>;\n    .reg .pred %q<9>;\n    .reg .b16 %h<19>;\n"
    registers += "    .reg .b32 %r<39>;\n    .reg .b64 %d<39>;\n    .reg .f32 %f<19>;\n"
    registers += "    .reg .f64 %g<19>;\n"
    return f"{HEAD}{before}.visible .entry {name}({declared}) {{\n{registers}{loads}{body}\n}}\n"


def run(
    text: str,
    arrays: Sequence[np.ndarray],
    grid: int | tuple[int, ...] = 1,
    block: int | tuple[int, ...] = 32,
    shared: int = 0,
    **more: object,
) -> None:
    """Launch the first kernel of a module; `arrays` are its parameters and all its memory."""
    module = ptx.load(text)
    params = struct.pack(f"<{len(arrays)}Q", *(a.ctypes.data for a in arrays))
    allocations = [(a.ctypes.data, a.nbytes) for a in arrays]
    module.launch(module.kernels[0], grid, block, shared, params, allocations=allocations, **more)


# -- single instructions -----------------------------------------------------------------------

DTYPES = {
    **{f"{k}{b}": np.dtype(f"{n}{b}") for k, n in (("s", "int"), ("u", "uint"), ("b", "uint"))
       for b in (8, 16, 32, 64)},
    "f32": np.dtype(np.float32), "f64": np.dtype(np.float64), "f16": np.dtype(np.float16),
    "bf16": np.dtype(np.uint16), "f16x2": np.dtype(np.uint32), "bf16x2": np.dtype(np.uint32),
    "pred": np.dtype(np.uint32),
}  # fmt: skip


def special_values(kind: str, seed: int = 0) -> np.ndarray:
    """64 numbers of a type: the awkward ones, and random ones."""
    rng, dtype = np.random.default_rng(seed), DTYPES[kind]
    if dtype.kind == "f":
        info = np.finfo(dtype)
        awkward = [0.0, -0.0, 1, -1, 0.5, 2.5, -1.5, 3.75, np.inf, -np.inf, np.nan]
        tiny = info.smallest_subnormal
        awkward += [info.max, info.min, info.tiny, tiny, -tiny]
        drawn = rng.standard_normal(64 - len(awkward)) * 10.0 ** rng.integers(-3, 4)
        return np.concatenate([awkward, drawn]).astype(dtype)
    if kind in ("bf16", "f16x2", "bf16x2"):
        return rng.integers(0, np.iinfo(dtype).max, 64, dtype)
    info = np.iinfo(dtype)
    awkward = [0, 1, 2, 3, 31, 32, 33, info.max, info.max - 1, info.min, info.min + 1, 0x55, 64, 7]
    drawn = rng.integers(info.min, info.max, 25, dtype, endpoint=True)
    small = rng.integers(0, 40, 25).astype(dtype)
    return np.concatenate([np.array(awkward, dtype), drawn, small])


def evaluate(form: str, result: str, *inputs: tuple[str, np.ndarray], more: str = "") -> np.ndarray:
    """What `form r, a, b, ...;` gives for each element of the inputs, (type, values).

    `more` stands behind the operands. A result or an input of type pred is 0 or 1 in memory.
    """
    count = len(inputs[0][1])
    lines = ["mov.u32 %r30, %tid.x;", "cvt.u64.u32 %d30, %r30;"]
    names = []
    for k, (kind, values) in enumerate(inputs):
        size = DTYPES[kind].itemsize
        bits = "b32" if kind == "pred" else f"b{8 * size}"
        lines += [f".reg .{bits} %in{k};", f"mad.lo.u64 %d31, %d30, {size}, %p{k + 1};",
                  f"ld.global.{bits} %in{k}, [%d31];"]  # fmt: skip
        if kind == "pred":
            lines += [f".reg .pred %truth{k};", f"setp.ne.u32 %truth{k}, %in{k}, 0;"]
        names.append(f"%truth{k}" if kind == "pred" else f"%in{k}")
        assert values.dtype == DTYPES[kind] and len(values) == count
    size = DTYPES[result].itemsize
    to = "%result"
    lines.append(f".reg .{'pred' if result == 'pred' else f'b{8 * size}'} {to};")
    lines.append(f"{form} {', '.join([to, *names])}{more};")
    if result == "pred":
        lines += [".reg .b32 %stored;", f"selp.b32 %stored, 1, 0, {to};"]
        to = "%stored"
    lines += [
        f"mad.lo.u64 %d31, %d30, {size}, %p0;",
        f"st.global.b{8 * size} [%d31], {to};",
        "ret;",
    ]
    out = np.zeros(count, DTYPES[result])
    run(
        entry("\n".join([*lines, "ret;"]), len(inputs) + 1),
        [out, *(v for _, v in inputs)],
        block=count,
    )
    return out
