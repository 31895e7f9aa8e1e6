"""Products of matrices in the registers of a warp, laid out as the manual draws them."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from kernels.lab.gpu_model import nvrtc
from tests.ptx.helpers import entry, run

DTYPES = {
    "f16": np.dtype(np.float16), "bf16": np.dtype(ml_dtypes.bfloat16), "tf32": np.dtype(np.float32),
    "f32": np.dtype(np.float32), "f64": np.dtype(np.float64), "s8": np.dtype(np.int8),
    "u8": np.dtype(np.uint8), "s32": np.dtype(np.int32),
}  # fmt: skip


def place(role: str, rows: int, per: int, lane: int, k: int) -> tuple[int, int]:
    """The row and column of element k of a lane's registers, `per` of them in each: the figures of
    "Matrix Fragments for mma" in the PTX manual."""
    group, thread = lane // 4, lane % 4
    register, i = divmod(k, per)
    if role == "c":
        return group + 8 * (k // 2), 2 * thread + k % 2
    if role == "b":
        return thread * per + i + 4 * per * register, group
    if rows == 8:
        return group, thread + 4 * register
    return group + 8 * (register % 2), thread * per + i + 4 * per * (register // 2)


def spread(matrix: np.ndarray, role: str, rows: int, per: int) -> np.ndarray:
    """The elements of a matrix by lane, as registers hold them."""
    count = matrix.size // 32
    return np.array([[matrix[place(role, rows, per, lane, k)] for k in range(count)]
                     for lane in range(32)], matrix.dtype)  # fmt: skip


MMA = [
    ("m16n8k8", "f32", "f16", "f16"), ("m16n8k16", "f32", "f16", "f16"),
    ("m16n8k16", "f16", "f16", "f16"), ("m16n8k8", "f32", "bf16", "bf16"),
    ("m16n8k16", "f32", "bf16", "bf16"), ("m16n8k4", "f32", "tf32", "tf32"),
    ("m16n8k8", "f32", "tf32", "tf32"), ("m8n8k4", "f64", "f64", "f64"),
    ("m16n8k16", "s32", "s8", "s8"), ("m16n8k32", "s32", "u8", "s8"),
    ("m16n8k32", "s32", "u8", "u8"),
]  # fmt: skip


@pytest.mark.parametrize("shape, d, a, b", MMA, ids="-".join)
def test_mma(shape, d, a, b):
    rows, columns, depth = (int(n) for n in shape[1:].replace("n", " ").replace("k", " ").split())
    rng = np.random.default_rng(0)
    low = 0 if "u8" in (a, b) else -4
    x = rng.integers(low, 5, (rows, depth)).astype(DTYPES[a])
    y = rng.integers(0, 5, (depth, columns)).astype(DTYPES[b])
    z = rng.integers(-9, 9, (rows, columns)).astype(DTYPES[d])
    per = 1 if a == "f64" else 4 // DTYPES[a].itemsize
    size = 8 if d == "f64" else 4
    parts = [spread(x, "a", rows, per), spread(y, "b", rows, per),
             spread(z, "c", rows, 4 // DTYPES[d].itemsize if d != "f64" else 1)]  # fmt: skip
    out = np.zeros_like(parts[2])
    register = "%d" if size == 8 else "%r"
    lines, names, number = ["mov.u32 %r30, %tid.x; cvt.u64.u32 %d30, %r30;"], [], 1
    for k, part in enumerate(parts):
        count = part[0].nbytes // size
        own = [f"{register}{number + i}" for i in range(count)]
        number += count
        names.append("{" + ", ".join(own) + "}")
        lines.append(f"mad.lo.u64 %d31, %d30, {count * size}, %p{k + 1};")
        lines += [f"ld.global.b{8 * size} {r}, [%d31+{size * i}];" for i, r in enumerate(own)]
    lines.append(f"mma.sync.aligned.{shape}.row.col.{d}.{a}.{b}.{d} {names[2]}, {names[0]},"
                 f" {names[1]}, {names[2]};")  # fmt: skip
    results = names[2][1:-1].split(", ")
    lines.append(f"mad.lo.u64 %d31, %d30, {len(results) * size}, %p0;")
    lines += [f"st.global.b{8 * size} [%d31+{size * i}], {r};" for i, r in enumerate(results)]
    run(entry("\n".join([*lines, "ret;"]), 4), [out, *map(np.ascontiguousarray, parts)])
    want = x.astype(np.float64) @ y.astype(np.float64) + z.astype(np.float64)
    wanted = spread(want.astype(DTYPES[d]), "c", rows, 1)
    assert np.array_equal(out, wanted)


@pytest.mark.parametrize("trans", [False, True])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_ldmatrix_and_stmatrix(count, trans):
    x = np.arange(64 * count, dtype=np.uint16).reshape(count, 8, 8)
    out, back = np.zeros((32, count, 2), np.uint16), np.zeros_like(x)
    names = ", ".join(f"%r{k + 5}" for k in range(count))
    t = ".trans" if trans else ""
    copies = 2 * count
    body = f"""mov.u32 %r30, %tid.x; cvt.u64.u32 %d30, %r30; mov.u32 %r20, tile;
        mad.lo.u64 %d1, %d30, {4 * count}, %p1;
        mad.lo.u32 %r21, %r30, {2 * copies}, %r20;
        {" ".join(f"ld.global.u32 %r9, [%d1+{4 * k}]; st.shared.u32 [%r21+{4 * k}], %r9;" for k in range(count))}
        bar.sync 0;
        and.b32 %r22, %r30, {8 * count - 1}; mad.lo.u32 %r23, %r22, 16, %r20;
        ldmatrix.sync.aligned.m8n8.x{count}{t}.shared.b16 {{{names}}}, [%r23];
        mad.lo.u64 %d2, %d30, {4 * count}, %p0;
        {" ".join(f"st.global.u32 [%d2+{4 * k}], %r{k + 5};" for k in range(count))}
        bar.sync 0;
        stmatrix.sync.aligned.m8n8.x{count}{t}.shared.b16 [%r23+512], {{{names}}};
        bar.sync 0;
        mad.lo.u64 %d3, %d30, {4 * count}, %p2;
        {" ".join(f"ld.shared.u32 %r9, [%r21+{512 + 4 * k}]; st.global.u32 [%d3+{4 * k}], %r9;" for k in range(count))}
        ret;"""  # noqa: E501
    run(entry(body, 3, before=".shared .align 16 .b8 tile[1024];\n"), [out, x, back])
    for lane in range(32):
        for m in range(count):
            row = x[m].T[lane // 4] if trans else x[m][lane // 4]
            assert out[lane, m].tolist() == row[2 * (lane % 4) :][:2].tolist()
    assert np.array_equal(back, x)


def test_movmatrix():
    x = np.arange(64, dtype=np.uint16)
    out = np.zeros_like(x)
    body = """mov.u32 %r30, %tid.x; cvt.u64.u32 %d30, %r30; mad.lo.u64 %d1, %d30, 4, %p1;
        ld.global.u32 %r1, [%d1]; movmatrix.sync.aligned.m8n8.trans.b16 %r2, %r1;
        mad.lo.u64 %d2, %d30, 4, %p0; st.global.u32 [%d2], %r2; ret;"""
    run(entry(body, 2), [out, x])
    assert np.array_equal(out.reshape(8, 8), x.reshape(8, 8).T)


WMMA = """
#include <mma.h>
#include <cuda_bf16.h>
using namespace nvcuda::wmma;
template <class> constexpr bool by_rows = false;
template <> constexpr bool by_rows<row_major> = true;
template <class T, class A, class Acc, int M, int N, int K, class LA, class LB>
__global__ void product(const T* a, const T* b, const Acc* c, Acc* d) {
    fragment<matrix_a, M, N, K, A, LA> fa;
    fragment<matrix_b, M, N, K, A, LB> fb;
    fragment<accumulator, M, N, K, Acc> fc;
    load_matrix_sync(fa, a, by_rows<LA> ? K : M);
    load_matrix_sync(fb, b, by_rows<LB> ? N : K);
    load_matrix_sync(fc, c, N, mem_row_major);
    for (int i = 0; i < fc.num_elements; ++i) fc.x[i] += fc.x[i];
    mma_sync(fc, fa, fb, fc);
    store_matrix_sync(d, fc, M, mem_col_major);
}
"""
FRAGMENTS = [
    ("__half", "__half", "float", 16, 16, 16), ("__half", "__half", "__half", 16, 16, 16),
    ("__half", "__half", "float", 32, 8, 16), ("__half", "__half", "float", 8, 32, 16),
    ("__nv_bfloat16", "__nv_bfloat16", "float", 16, 16, 16),
    ("__nv_bfloat16", "__nv_bfloat16", "float", 32, 8, 16),
    ("float", "precision::tf32", "float", 16, 16, 8), ("double", "double", "double", 8, 8, 4),
    ("signed char", "signed char", "int", 16, 16, 16),
    ("unsigned char", "unsigned char", "int", 8, 32, 16),
]  # fmt: skip
OF_C = {"__half": "f16", "__nv_bfloat16": "bf16", "float": "f32", "double": "f64",
        "signed char": "s8", "unsigned char": "u8", "int": "s32"}  # fmt: skip


@pytest.mark.needs("cuda.bindings")
def test_wmma():
    """Fragments of every type and shape, in both layouts, through NVRTC."""
    names = [
        f"product<{t}, {a}, {acc}, {m}, {n}, {k}, {la}_major, {lb}_major>"
        for t, a, acc, m, n, k in FRAGMENTS
        for la, lb in (("row", "col"), ("col", "row"))
    ]
    entries, _, text, _ = nvrtc.translate(WMMA, names, "compute_80")
    from kernels import ptx

    module, rng = ptx.load(text), np.random.default_rng(0)
    for number, entry_name in enumerate(entries):
        t, _, acc, m, n, k = FRAGMENTS[number // 2]
        a = rng.integers(0, 5, (m, k)).astype(DTYPES[OF_C[t]])
        b = rng.integers(0, 5, (k, n)).astype(DTYPES[OF_C[t]])
        c = rng.integers(-9, 9, (m, n)).astype(DTYPES[OF_C[acc]])
        d = np.zeros((n, m), c.dtype)
        first = number % 2 == 0
        given = [a if first else a.T, b.T if first else b, c, d]
        given = [*map(np.ascontiguousarray, given)]
        d = given[3]
        params = b"".join(x.ctypes.data.to_bytes(8, "little") for x in given)
        module.launch(entry_name, 1, 32, 0, params,
                      allocations=[(x.ctypes.data, x.nbytes) for x in given])  # fmt: skip
        want = a.astype(np.float64) @ b.astype(np.float64) + 2 * c.astype(np.float64)
        assert np.array_equal(d.T.astype(np.float64), want), names[number]
