"""Each form of the instructions on integers and bits, against Python's integers."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tests.ptx.helpers import DTYPES, entry, evaluate, run, special_values

SIZES = (16, 32, 64)


def bits_of(kind: str) -> int:
    return int(kind[1:])


def wrapped(value: int, kind: str) -> int:
    """The value modulo 2**bits, as the type has it."""
    bits = bits_of(kind)
    value &= (1 << bits) - 1
    return value - (1 << bits) if kind[0] == "s" and value >> (bits - 1) else value


def check(form: str, result: str, kinds: tuple[str, ...], expected, more: str = "") -> None:
    """Compare the instruction with `expected` of Python integers, on awkward and random numbers."""
    inputs = [(kind, special_values(kind, seed)) for seed, kind in enumerate(kinds)]
    # The numbers of each operand in another order, so that awkward ones meet.
    inputs = [(kind, np.roll(values, 5 * k)) for k, (kind, values) in enumerate(inputs)]
    got = evaluate(form, result, *inputs, more=more)
    for row in range(64):
        given = [int(values[row]) for _, values in inputs]
        want = expected(*given)
        if result != "pred":
            want = wrapped(int(want), result)
        assert int(got[row]) == want, f"{form}{given}: {got[row]}, not {want}"


def truncated(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def all_types() -> list[str]:
    return [f"{sign}{size}" for sign in "su" for size in SIZES]


BINARY = {
    "add": lambda a, b, t: a + b,
    "sub": lambda a, b, t: a - b,
    "mul.lo": lambda a, b, t: a * b,
    "mul.hi": lambda a, b, t: a * b >> bits_of(t),
    "min": lambda a, b, t: min(a, b),
    "max": lambda a, b, t: max(a, b),
    # hardware: all ones for a division by zero, and the dividend as its remainder
    "div": lambda a, b, t: truncated(a, b) if b else -1,
    "rem": lambda a, b, t: a - truncated(a, b) * b if b else a,
}


@pytest.mark.parametrize("opcode", BINARY)
@pytest.mark.parametrize("kind", all_types())
def test_binary(opcode, kind):
    check(f"{opcode}.{kind}", kind, (kind, kind), lambda a, b: BINARY[opcode](a, b, kind))


@pytest.mark.parametrize("kind", all_types())
def test_ternary(kind):
    check(f"mad.lo.{kind}", kind, (kind,) * 3, lambda a, b, c: a * b + c)
    check(f"mad.hi.{kind}", kind, (kind,) * 3, lambda a, b, c: (a * b >> bits_of(kind)) + c)
    check(f"sad.{kind}", kind, (kind,) * 3, lambda a, b, c: c + abs(a - b))


@pytest.mark.parametrize("kind", ["s16", "u16", "s32", "u32"])
def test_wide_products(kind):
    wide = f"{kind[0]}{2 * bits_of(kind)}"
    check(f"mul.wide.{kind}", wide, (kind, kind), lambda a, b: a * b)
    check(f"mad.wide.{kind}", wide, (kind, kind, wide), lambda a, b, c: a * b + c)


def limited(x: int) -> int:
    return max(-(2**31), min(2**31 - 1, x))


def test_saturation():
    check("add.sat.s32", "s32", ("s32", "s32"), lambda a, b: limited(a + b))
    check("sub.sat.s32", "s32", ("s32", "s32"), lambda a, b: limited(a - b))
    check("mad.hi.sat.s32", "s32", ("s32",) * 3, lambda a, b, c: limited((a * b >> 32) + c))


def low24(x: int, kind: str) -> int:
    x &= 0xFFFFFF
    return x - (1 << 24) if kind == "s32" and x >> 23 else x


@pytest.mark.parametrize("kind", ["s32", "u32"])
def test_products_of_24_bits(kind):
    def product(a, b):
        return low24(a, kind) * low24(b, kind)

    check(f"mul24.lo.{kind}", kind, (kind, kind), product)
    check(f"mul24.hi.{kind}", kind, (kind, kind), lambda a, b: product(a, b) >> 16)
    check(f"mad24.lo.{kind}", kind, (kind,) * 3, lambda a, b, c: product(a, b) + c)


UNARY = {"neg": lambda a: -a, "abs": abs, "not": lambda a: ~a, "cnot": lambda a: int(a == 0)}


@pytest.mark.parametrize("size", SIZES)
def test_unary(size):
    for opcode, expected in UNARY.items():
        kind = f"s{size}" if opcode in ("neg", "abs") else f"b{size}"
        check(f"{opcode}.{kind}", kind, (kind,), expected)
    check(f"mov.b{size}", f"b{size}", (f"b{size}",), lambda a: a)


@pytest.mark.parametrize("size", SIZES)
def test_logic_and_shifts(size):
    kind = f"b{size}"
    check(f"and.{kind}", kind, (kind, kind), lambda a, b: a & b)
    check(f"or.{kind}", kind, (kind, kind), lambda a, b: a | b)
    check(f"xor.{kind}", kind, (kind, kind), lambda a, b: a ^ b)
    check(f"shl.{kind}", kind, (kind, "u32"), lambda a, b: a << min(b, size))
    for sign in "su":
        t = f"{sign}{size}"
        check(f"shr.{t}", t, (t, "u32"), lambda a, b: a >> min(b, size))


@pytest.mark.parametrize("kind", ["b32", "b64"])
def test_counts(kind):
    n = bits_of(kind)
    check(f"popc.{kind}", "u32", (kind,), lambda a: a.bit_count())
    check(f"clz.{kind}", "u32", (kind,), lambda a: n - a.bit_length())
    check(f"brev.{kind}", kind, (kind,), lambda a: int(f"{a:0{n}b}"[::-1], 2))


@pytest.mark.parametrize("kind", ["s32", "u32", "s64", "u64"])
def test_fields(kind):
    n = bits_of(kind)

    def find(a):
        return (a if a >= 0 else ~a).bit_length() - 1

    def extract(a, position, length):
        position, length = position & 0xFF, length & 0xFF
        value = a & ((1 << n) - 1)
        sign = value >> min(position + length - 1, n - 1) & 1 if kind[0] == "s" and length else 0
        taken = value >> position if position < n else 0
        there = min(length, max(n - position, 0))
        taken &= (1 << there) - 1
        return taken - (1 << there) if sign else taken

    check(f"bfind.{kind}", "u32", (kind,), find)
    check(f"bfind.shiftamt.{kind}", "u32", (kind,),
          lambda a: n - 1 - find(a) if find(a) >= 0 else -1)  # fmt: skip
    check(f"bfe.{kind}", kind, (kind, "u32", "u32"), extract)


@pytest.mark.parametrize("kind", ["b32", "b64"])
def test_insertion(kind):
    n = bits_of(kind)

    def insert(a, b, position, length):
        position, length = position & 0xFF, length & 0xFF
        if position >= n:
            return b
        mask = ((1 << min(length, n)) - 1) << position
        return (b & ~mask) | (a << position & mask)

    check(f"bfi.{kind}", kind, (kind, kind, "u32", "u32"), insert)


COMPARISONS = {
    "eq": lambda a, b: a == b, "ne": lambda a, b: a != b, "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b, "gt": lambda a, b: a > b, "ge": lambda a, b: a >= b,
}  # fmt: skip
OF_UNSIGNED = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}


@pytest.mark.parametrize("kind", all_types())
def test_comparisons(kind):
    for name, expected in COMPARISONS.items():
        check(f"setp.{name}.{kind}", "pred", (kind, kind), expected)
    if kind[0] == "u":
        for name, same in OF_UNSIGNED.items():
            check(f"setp.{name}.{kind}", "pred", (kind, kind), COMPARISONS[same])


def test_comparisons_joined_with_a_predicate():
    a, b = special_values("s32"), np.roll(special_values("s32"), 3)
    c = (np.arange(64) % 3 == 0).astype(np.uint32)
    truth, other = a < b, c != 0
    for name, joined in (("and", truth & other), ("or", truth | other), ("xor", truth ^ other)):
        got = evaluate(f"setp.lt.{name}.s32", "pred", ("s32", a), ("s32", b), ("pred", c))
        assert np.array_equal(got != 0, joined), name
    got = evaluate("selp.b32", "b32", ("b32", a.view("u4")), ("b32", b.view("u4")), ("pred", c))
    assert np.array_equal(got.view("i4"), np.where(other, a, b))


@pytest.mark.parametrize("kind", ["b16", "b64"])
def test_selection(kind):
    a, b = special_values(kind), special_values(kind, 1)
    c = (np.arange(64) % 3 == 0).astype(np.uint32)
    got = evaluate(f"selp.{kind}", kind, (kind, a), (kind, b), ("pred", c))
    assert np.array_equal(got, np.where(c, a, b))


def test_set_and_select_by_sign():
    check("set.lt.u32.s32", "u32", ("s32", "s32"), lambda a, b: -(a < b))
    check("slct.u32.s32", "u32", ("u32", "u32", "s32"), lambda a, b, c: a if c >= 0 else b)
    check("slct.b64.s32", "b64", ("b64", "b64", "s32"), lambda a, b, c: a if c >= 0 else b)


@pytest.mark.parametrize("opcode", ["and", "or", "xor", "not"])
def test_logic_of_predicates(opcode):
    a, b = (np.arange(64) % 2).astype("u4"), (np.arange(64) // 2 % 2).astype("u4")
    expected = {"and": a & b, "or": a | b, "xor": a ^ b, "not": 1 - a}[opcode]
    inputs = [("pred", a)] + ([("pred", b)] if opcode != "not" else [])
    assert np.array_equal(evaluate(f"{opcode}.pred", "pred", *inputs), expected)


def test_funnel_shifts():
    def both(a, b):
        return b << 32 | a

    for how, most in (("wrap", 31), ("clamp", 32)):

        def by(c, most=most):
            return c & 31 if most == 31 else min(c, 32)

        check(f"shf.l.{how}.b32", "b32", ("b32", "b32", "u32"),
              lambda a, b, c, by=by: both(a, b) << by(c) >> 32)  # fmt: skip
        check(f"shf.r.{how}.b32", "b32", ("b32", "b32", "u32"),
              lambda a, b, c, by=by: both(a, b) >> by(c))  # fmt: skip


def test_permutations():
    def byte(a, b, selector):
        x = (b << 32 | a) >> 8 * (selector & 7) & 0xFF
        return (0xFF if x & 0x80 else 0) if selector & 8 else x

    check("prmt.b32", "b32", ("b32", "b32", "b32"),
          lambda a, b, c: sum(byte(a, b, c >> 4 * i & 15) << 8 * i for i in range(4)))  # fmt: skip
    forms = {
        "f4e": lambda s: [s, s + 1, s + 2, s + 3],
        "b4e": lambda s: [s % 8, (s - 1) % 8, (s - 2) % 8, (s - 3) % 8],
        "rc8": lambda s: [s] * 4,
        "ecl": lambda s: [max(s, i) for i in range(4)],
        "ecr": lambda s: [min(s, i) for i in range(4)],
        "rc16": lambda s: [(s & 1) * 2, (s & 1) * 2 + 1] * 2,
    }
    for mode, chosen in forms.items():
        check(f"prmt.b32.{mode}", "b32", ("b32", "b32", "b32"),
              lambda a, b, c, chosen=chosen: sum(
                  byte(a, b, s) << 8 * i for i, s in enumerate(chosen(c & 3))))  # fmt: skip


@pytest.mark.parametrize("table", [0x80, 0xE8, 0x96, 0x1B, 0xFF, 0x00])
def test_logic_of_three(table):
    def logic(a, b, c):
        return sum((table >> ((a >> i & 1) << 2 | (b >> i & 1) << 1 | c >> i & 1) & 1) << i
                   for i in range(32))  # fmt: skip

    check("lop3.b32", "b32", ("b32",) * 3, logic, more=f", {table}")


def test_masks_and_sign_extension():
    check("bmsk.clamp.b32", "b32", ("u32", "u32"),
          lambda a, b: ((1 << min(b, 32)) - 1) << a if a < 32 else 0)  # fmt: skip
    check("bmsk.wrap.b32", "b32", ("u32", "u32"), lambda a, b: ((1 << (b & 31)) - 1) << (a & 31))

    def extended(a, b, sign):
        if b == 0:
            return 0
        x = a & ((1 << b) - 1)
        return x - (1 << b) if sign and x >> (b - 1) else x

    for kind in ("s32", "u32"):
        sign = kind == "s32"
        check(f"szext.clamp.{kind}", kind, (kind, "u32"),
              lambda a, b, sign=sign: extended(a, min(b, 32), sign))  # fmt: skip
        check(f"szext.wrap.{kind}", kind, (kind, "u32"),
              lambda a, b, sign=sign: extended(a, b & 31, sign))  # fmt: skip


def parts(x: int, size: int, signed: bool) -> list[int]:
    return [wrapped(x >> size * i, f"{'s' if signed else 'u'}{size}") for i in range(32 // size)]


@pytest.mark.parametrize("a_type, b_type", [*itertools.product(("s32", "u32"), repeat=2)])
def test_dot_products(a_type, b_type):
    signs = a_type == "s32", b_type == "s32"

    def dot4(a, b, c):
        return c + sum(x * y for x, y in zip(parts(a, 8, signs[0]), parts(b, 8, signs[1])))

    check(f"dp4a.{a_type}.{b_type}", "s32", ("u32", "u32", "s32"), dot4)
    for half, first in (("lo", 0), ("hi", 2)):
        check(
            f"dp2a.{half}.{a_type}.{b_type}", "s32", ("u32", "u32", "s32"),
            lambda a, b, c, first=first: c + sum(x * y for x, y in zip(
                parts(a, 16, signs[0]), parts(b, 8, signs[1])[first : first + 2])),
        )  # fmt: skip


@pytest.mark.parametrize("size", [32, 64])
def test_carries(size):
    """Sums and differences of numbers of two registers."""
    dtype = np.dtype(f"u{size // 8}")
    rng = np.random.default_rng(3)
    a, b = (rng.integers(0, 2**size, 64, dtype=np.uint64).astype(dtype).reshape(32, 2)
            for _ in range(2))  # fmt: skip
    a[:8, 0], b[:8, 0] = 2**size - 1, 1
    r = "%r" if size == 32 else "%d"
    out = np.zeros((32, 6), dtype)
    lines = ["mov.u32 %r30, %tid.x;", f"mul.wide.u32 %d30, %r30, {size // 4};",
             f"mul.wide.u32 %d31, %r30, {6 * size // 8};", "add.u64 %p0, %p0, %d31;",
             "add.u64 %p1, %p1, %d30;", "add.u64 %p2, %p2, %d30;",
             f"ld.global.v2.u{size} {{{r}1, {r}2}}, [%p1];",
             f"ld.global.v2.u{size} {{{r}3, {r}4}}, [%p2];",
             f"add.cc.u{size} {r}5, {r}1, {r}3;", f"addc.u{size} {r}6, {r}2, {r}4;",
             f"sub.cc.u{size} {r}7, {r}1, {r}3;", f"subc.cc.u{size} {r}8, {r}2, {r}4;",
             f"mad.lo.cc.u{size} {r}9, {r}1, {r}3, {r}2;",
             f"madc.hi.u{size} {r}10, {r}1, {r}3, 0;"]  # fmt: skip
    lines += [f"st.global.u{size} [%p0+{k * size // 8}], {r}{5 + k};" for k in range(6)]
    run(entry("\n".join([*lines, "ret;"]), 3), [out, a, b])
    whole = [[int(x[0]) | int(x[1]) << size for x in y] for y in (a, b)]
    mask = (1 << 2 * size) - 1
    for row, (x, y) in enumerate(zip(*whole)):
        low, high = int(a[row, 0]) * int(b[row, 0]), int(a[row, 1])
        for k, want in enumerate(((x + y) & mask, (x - y) & mask, (low + high) & mask)):
            got = int(out[row, 2 * k]) | int(out[row, 2 * k + 1]) << size
            assert got == want, (row, k)


def test_nth_set_bit():
    def find(mask, base, offset):
        if base > 31:
            return -1
        if offset == 0:
            return base if mask >> base & 1 else -1
        step = 1 if offset > 0 else -1
        there = [i for i in range(base, 32 if step > 0 else -1, step) if mask >> i & 1]
        return there[abs(offset) - 1] if len(there) >= abs(offset) else -1

    rng = np.random.default_rng(0)
    mask = rng.integers(0, 2**32, 64, dtype=np.uint64).astype("u4")
    base, offset = rng.integers(0, 32, 64).astype("u4"), rng.integers(-6, 7, 64).astype("i4")
    got = evaluate("fns.b32", "u32", ("b32", mask), ("u32", base), ("s32", offset))
    want = [find(int(m), int(b), int(o)) % 2**32 for m, b, o in zip(mask, base, offset)]
    assert got.tolist() == want


def test_types_of_this_file_are_those_of_ptx():
    assert DTYPES["s16"] == np.int16 and wrapped(0x8000, "s16") == -0x8000
