"""Inline PTX as calls: `asm("cp.async ...")` becomes C++ that the host's compiler takes.

Each instruction is looked up in a table of what `include/minigrad/ptx.h` has. One that is not there
becomes a call that fails to compile only in a kernel that uses it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_ASM = re.compile(r"\b(?:asm|__asm__|__asm)\b\s*(?:(?:volatile|__volatile__)\b\s*)?(?=\()")
_LITERAL = re.compile(r'"((?:\\.|[^"\\])*)"')
_OPERAND = re.compile(r'\s*(?:\[\w+\]\s*)?"([^"]*)"\s*\((.*)\)\s*\Z', re.DOTALL)
_STATEMENT = re.compile(
    r"(?:@(?P<guard>!?[%\w]+)\s+)?(?P<opcode>[a-z][\w.:]*)\s*(?P<rest>.*)", re.DOTALL
)
_TYPES = {
    "b8": "unsigned char", "u8": "unsigned char", "s8": "signed char", "b16": "unsigned short",
    "u16": "unsigned short", "s16": "short", "b32": "unsigned", "u32": "unsigned", "s32": "int",
    "f32": "float", "b64": "unsigned long long", "u64": "unsigned long long", "s64": "long long",
    "f64": "double", "pred": "bool",
}  # fmt: skip
_ELEMENTS = {
    "f16": "mgh::ptx::F16", "bf16": "mgh::ptx::Bf16", "tf32": "mgh::ptx::Tf32", "f32": "float",
    "s8": "mgh::ptx::S8", "u8": "mgh::ptx::U8", "s32": "int",
}  # fmt: skip
_SPECIAL = {
    "%laneid": "(mgh::self()->linear % 32)",
    "%warpid": "(mgh::self()->linear / 32)",
    "%smid": "0u",
    "%lanemask_eq": "(1u << mgh::self()->linear % 32)",
    "%lanemask_lt": "((1u << mgh::self()->linear % 32) - 1)",
    "%lanemask_le": "((2u << mgh::self()->linear % 32) - 1)",
    "%lanemask_gt": "(-2u << mgh::self()->linear % 32)",
    "%lanemask_ge": "(-1u << mgh::self()->linear % 32)",
    "%nsmid": "1u",
    "%nwarpid": "((mgh::self()->worker->threads + 31) / 32)",
    "%gridid": "0ull",
    "%dynamic_smem_size": "mgh::self()->worker->dynamic_shared",
    "WARP_SZ": "32",
    "%globaltimer": "mgh::globaltimer()",
    "%clock64": "clock64()",
    "%clock": "clock()",
    **{f"%{n}.{a}": f"{c}.{a}" for n, c in (("tid", "threadIdx"), ("ntid", "blockDim"),
       ("ctaid", "blockIdx"), ("nctaid", "gridDim")) for a in "xyz"},
}  # fmt: skip
_COMPARE = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_BINARY = {"add": "+", "sub": "-", "and": "&", "or": "|", "xor": "^"}
# functions of include/minigrad/ptx_scalars.h, called as the instruction is, without its type
_FUNCTIONS = set(
    "shl shr min max abs neg not popc clz brev bfe bfi prmt lop3 shf.l.wrap shf.r.wrap shf.l.clamp"
    " shf.r.clamp mul.lo mul.hi mul.wide mul mad.lo mad.hi mad.wide div rem fma add.cc addc.cc addc"
    " sub.cc subc.cc subc mad.lo.cc mad.hi.cc madc.lo.cc madc.hi.cc madc.lo madc.hi".split()
)
_NO_EFFECT = re.compile(r"prefetchu?\b.*|pmevent|griddepcontrol\..*")
_STRONG = {"volatile", "relaxed", "acquire", "release", "mmio"}  # loads and stores
_FENCE = re.compile(
    r"membar\.(cta|gl|sys)|fence\.(acq_rel|sc|acquire|release)\.(cta|cluster|gpu|sys)"
)
_ATOMICS = {
    "add": "Add", "min": "Min", "max": "Max", "and": "And", "or": "Or", "xor": "Xor",
    "exch": "Exch", "cas": "CAS", "inc": "Inc", "dec": "Dec",
}  # fmt: skip
_APPROXIMATE = {
    "ex2": "__builtin_exp2f", "lg2": "__builtin_log2f", "rcp": "1.0f / ", "sqrt": "__builtin_sqrtf",
    "rsqrt": "1.0f / __builtin_sqrtf", "tanh": "__builtin_tanhf", "sin": "__builtin_sinf",
    "cos": "__builtin_cosf",
}  # fmt: skip
_HOPPER = re.compile(
    r"wgmma|cp\.async\.bulk|mbarrier|setmaxnreg|fence\.proxy|tensormap|tcgen05|barrier\.cluster"
)


class Unknown(Exception):
    """An instruction, or a form of one, that is not supported."""


@dataclass
class _Block:
    """One asm statement: its operands' C++ expressions, and the registers that it declares."""

    operands: list[tuple[str, str]]
    registers: dict[str, str]

    def value(self, text: str) -> str:
        """An operand of PTX as a C++ expression."""
        text = text.strip()
        if match := re.fullmatch(r"%(\d+)", text):
            if int(match[1]) >= len(self.operands):
                raise Unknown(f"operand {text}, which the statement does not have")
            return f"({self.operands[int(match[1])][1]})"
        if text.replace("%%", "%") in _SPECIAL:
            return _SPECIAL[text.replace("%%", "%")]
        if text in self.registers:
            return self.registers[text]
        if re.fullmatch(r"0[fF][0-9a-fA-F]{8}", text):
            return f"__uint_as_float(0x{text[2:]}u)"
        if re.fullmatch(r"[-+]?(0[xX][0-9a-fA-F]+|\d+(\.\d*)?)U?", text):
            return text
        raise Unknown(f"operand {text!r}")

    def values(self, text: str) -> list[str]:
        """`{%0, %1}` or one operand."""
        text = text.strip()
        if text.startswith("{"):
            text = text[1:-1]
        return [self.value(one) for one in text.split(",")]

    def address(self, text: str, shared: bool) -> str:
        """`[%0]` or `[%0 + 16]` as a pointer to bytes."""
        match = re.fullmatch(r"\[\s*(.+?)\s*(?:\+\s*(%?\w+)\s*)?\]", text.strip())
        if not match:
            raise Unknown(f"address {text!r}")
        at = f"(uint64_t){self.value(match[1])}"
        if match[2]:
            at += f" + {self.value(match[2])}"
        return f"mgh_from_shared({at}, __LINE__)" if shared else f"(void*)({at})"


def edits(code: str, text: str) -> tuple[list[tuple[int, int, str]], list[str]]:
    """The edits that replace the asm statements of `code`, and declarations to go before it all.

    `text` is `code` with comments and literals blanked.
    """
    found: list[tuple[int, int, str]] = []
    declarations: list[str] = []
    for match in _ASM.finditer(text):
        close = _closing(text, match.end())
        line = code.count("\n", 0, match.start()) + 1
        try:
            made = _statement(code[match.end() + 1 : close], text[match.end() + 1 : close])
        except Unknown as error:
            refused = f"mgh_refused_{len(declarations)}"
            message = f"line {line}: inline PTX: {error}".replace("\\", "").replace('"', "'")
            message = " ".join(message.split())  # a literal has one line
            declarations.append(f'extern "C" void {refused}() __attribute__((error("{message}")));')
            made = f"{refused}()"
        if "\\\n" in code[match.start() : close]:  # in a macro of several lines
            made += "\\\n" * code.count("\n", match.start(), close)
        found.append((match.start(), close + 1, made))
    return found, ['#include "minigrad/ptx.h"', *declarations] if found else []


def _statement(code: str, text: str) -> str:
    """The C++ of one asm statement, whose parentheses hold `code`."""
    sections = _sections(code, text)
    template = _template(sections[0])
    operands = [
        _operand(one) for section in sections[1:3] for one in _pieces(section) if one.strip()
    ]
    block = _Block(operands, {})
    lines = []
    for statement in _statements(template):
        lines.append(_instruction(statement, block))
    return "({ " + " ".join(lines) + " })"


def _sections(code: str, text: str) -> list[str]:
    """What stands between the colons that are in no bracket."""
    sections, depth, start = [], 0, 0
    for i, c in enumerate(text):
        depth += (c in "([{") - (c in ")]}")
        if c == ":" and depth == 0:
            sections.append(code[start:i])
            start = i + 1
    return [s.replace("\\\n", "\n") for s in (*sections, code[start:])]


def _template(section: str) -> str:
    rest = _LITERAL.sub("", section)
    if rest.strip():
        raise Unknown(f"text that is no literal: {rest.strip()}")
    joined = "".join(_LITERAL.findall(section))
    return joined.replace("\\n", "\n").replace("\\t", " ").replace("\\r", "")


def _pieces(section: str) -> list[str]:
    pieces, depth, quoted, start = [], 0, False, 0
    for i, c in enumerate(section):
        quoted ^= c == '"'
        depth += 0 if quoted else (c in "([{") - (c in ")]}")
        if c == "," and depth == 0 and not quoted:
            pieces.append(section[start:i])
            start = i + 1
    return [*pieces, section[start:]]


def _operand(text: str) -> tuple[str, str]:
    match = _OPERAND.match(text)
    if not match:
        raise Unknown(f"operand {text.strip()!r}")
    return match[1], " ".join(match[2].split())


def _statements(template: str) -> list[str]:
    """The instructions of a template, without comments and the braces of scopes."""
    template = re.sub(r"//[^\n]*|/\*.*?\*/", " ", template, flags=re.DOTALL)
    statements = []
    for piece in template.split(";"):
        plain = re.sub(r"\A[\s{}]+", "", piece)
        if plain.strip():
            statements.append(" ".join(plain.split()))
    return statements


def _arguments(rest: str) -> list[str]:
    """Operands between the commas outside of braces."""
    return [a for a in (p.strip() for p in _pieces(rest)) if a]


def _instruction(text: str, block: _Block) -> str:
    """One PTX instruction as C++ statements."""
    if text.startswith(".reg"):
        return _declare(text, block)
    match = _STATEMENT.fullmatch(text)
    if not match:
        raise Unknown(text)
    opcode, arguments = match["opcode"], _arguments(match["rest"])
    if _HOPPER.match(opcode):
        raise Unknown(f"{opcode} needs a GPU: it is not available on the CPU")
    made = None
    try:
        for table in (_copies, _matrices, _memory, _atomics, _votes, _scalars, _functions):
            made = made or table(opcode, arguments, block)
    except (IndexError, KeyError, ValueError):
        made = None
    if made is None:
        raise Unknown(f"{opcode} is not available on the CPU")
    if match["guard"]:
        guard = match["guard"]
        condition = block.value(guard.lstrip("!"))
        made = f"if ({'!' if guard.startswith('!') else ''}{condition}) {{ {made} }}"
    return made


def _declare(text: str, block: _Block) -> str:
    match = re.fullmatch(r"\.reg\s*\.(\w+)\s+([\w%, ]+)", text)
    if not match or match[1] not in _TYPES:
        raise Unknown(text)
    names = [name.strip() for name in match[2].split(",")]
    block.registers |= {name: "mgh_r_" + re.sub(r"\W", "_", name) for name in names}
    return f"{_TYPES[match[1]]} {', '.join(block.registers[name] for name in names)};"


def _copies(opcode: str, arguments: list[str], block: _Block) -> str | None:
    if opcode == "cp.async.commit_group":
        return "mgh_copy_commit();"
    if opcode == "cp.async.wait_group":
        return f"mgh_copy_wait({block.value(arguments[0])});"
    if opcode == "cp.async.wait_all":
        return "mgh_copy_commit(); mgh_copy_wait(0);"
    if re.fullmatch(r"cp\.async\.c[ag]\.shared(::cta)?\.global(\.L2::\d+B)?", opcode):
        to = block.address(arguments[0], shared=True)
        source = block.address(arguments[1], shared=False)
        size = block.value(arguments[2])
        present = block.value(arguments[3]) if len(arguments) > 3 else size
        return f"mgh_copy_async({to}, {source}, {size}, {present}, __LINE__);"
    return None


def _matrices(opcode: str, arguments: list[str], block: _Block) -> str | None:
    if match := re.fullmatch(
        r"(ld|st)matrix\.sync\.aligned\.m8n8\.x([124])(\.trans)?\.shared(::cta)?\.b16", opcode
    ):
        count, trans = int(match[2]), "true" if match[3] else "false"
        loads = match[1] == "ld"
        registers = block.values(arguments[0 if loads else 1])
        at = block.address(arguments[1 if loads else 0], shared=True)
        if count < 4:  # the other lanes' addresses are not looked at
            at = f"(mgh::self()->linear % 32 < {8 * count} ? {at} : nullptr)"
        if len(registers) != count:
            raise Unknown(f"{opcode} with {len(registers)} registers")
        if loads:
            taken = " ".join(f"{r} = mgh_m[{i}];" for i, r in enumerate(registers))
            return (
                f"unsigned mgh_m[{count}]; mgh::ptx::ldmatrix<{count}, {trans}>(mgh_m, {at},"
                f" __LINE__); {taken}"
            )
        given = ", ".join(f"(unsigned){r}" for r in registers)
        return (
            f"unsigned mgh_m[{count}] = {{{given}}}; mgh::ptx::stmatrix<{count}, {trans}>(mgh_m,"
            f" {at}, __LINE__);"
        )
    match = re.fullmatch(
        r"mma\.sync\.aligned\.m16n8k(\d+)\.row\.col(?:\.satfinite)?"
        r"\.(\w+)\.(\w+)\.(\w+)\.(\w+)", opcode
    )  # fmt: skip
    if not match:
        return None
    k, (d, a, b, c) = match[1], match.groups()[1:]
    ds, as_, bs, cs = (block.values(one) for one in arguments)
    total = "unsigned" if d == "f16" else _ELEMENTS[d]
    if c != d or len(ds) != len(cs):
        raise Unknown(f"{opcode}: C and D of different types")
    given = [", ".join(f"mgh::ptx::bits({x})" for x in xs) for xs in (as_, bs)]
    taken = " ".join(f"{x} = mgh_d[{i}];" for i, x in enumerate(ds))
    return (
        f"unsigned mgh_a[] = {{{given[0]}}}, mgh_b[] = {{{given[1]}}};"
        f" {total} mgh_d[] = {{{', '.join(f'({total}){x}' for x in cs)}}};"
        f" mgh::ptx::mma<{k}, {_ELEMENTS[a]}, {_ELEMENTS[b]}, {_ELEMENTS[d]}>(mgh_a, mgh_b, mgh_d,"
        f" __LINE__); {taken}"
    )


def _memory(opcode: str, arguments: list[str], block: _Block) -> str | None:
    """Loads and stores, whatever their cache hints."""
    words = re.sub(r"\.(L1|L2)::\w+", "", opcode).split(".")
    if words[0] not in ("ld", "st") or words[-1] not in _TYPES:
        return None
    spaces = [w for w in words if w in ("global", "shared", "shared::cta", "const")]
    shared = bool(spaces) and spaces[0].startswith("shared")
    kind = _TYPES[words[-1]]
    strong = "" if _STRONG.isdisjoint(words) else "volatile "
    registers, at = (arguments[0], arguments[1]) if words[0] == "ld" else arguments[::-1]
    values = block.values(registers)
    pointer = f"{strong}{kind}* mgh_p = ({kind}*){block.address(at, shared)};"
    if words[0] == "ld":
        if strong:  # perhaps it waits for what another thread stores
            pointer += " mgh::poll();"
        moves = " ".join(f"mgh::ptx::set({v}, ({kind})mgh_p[{i}]);" for i, v in enumerate(values))
    else:
        moves = " ".join(
            f"{{ {kind} mgh_v; mgh::ptx::set(mgh_v, {v}); mgh_p[{i}] = mgh_v; }}"
            for i, v in enumerate(values)
        )
    return f"{{ {pointer} {moves} }}"


def _atomics(opcode: str, arguments: list[str], block: _Block) -> str | None:
    """`atom` gives the old value, `red` does not; whatever their scopes and orders."""
    words = opcode.split(".")
    if words[0] not in ("atom", "red") or words[-1] not in _TYPES:
        return None
    (operation,) = [_ATOMICS[word] for word in words if word in _ATOMICS]
    kind = _TYPES[words[-1]]
    shared = any(word.startswith("shared") for word in words)
    place, *given = arguments[words[0] == "atom" :]
    values = ", ".join(f"({kind})({block.value(one)})" for one in given)
    call = f"atomic{operation}(({kind}*){block.address(place, shared)}, {values})"
    return (
        f"mgh::ptx::set({block.value(arguments[0])}, {call});" if words[0] == "atom" else f"{call};"
    )


def _votes(opcode: str, arguments: list[str], block: _Block) -> str | None:
    if opcode == "activemask.b32":
        return f"{block.value(arguments[0])} = __activemask();"
    match = re.fullmatch(r"vote\.sync\.(all|any|ballot)\.(?:pred|b32)", opcode)
    if not match:
        return None
    to, given, mask = (block.value(one) for one in arguments)
    return f"{to} = __{match[1]}_sync({mask}, {given});"


def _functions(opcode: str, arguments: list[str], block: _Block) -> str | None:
    """Instructions that are functions of numbers: their name, what does not matter, their type."""
    if _NO_EFFECT.fullmatch(opcode):
        return "(void)0;"
    *words, kind = opcode.split(".")
    floating = kind in ("f32", "f64")
    name = ".".join(word for word in words if not (floating and word in ("rn", "ftz")))
    if kind not in _TYPES or name not in _FUNCTIONS:
        return None
    to, *given = (block.value(one) for one in arguments)
    function = {"not": "not_"}.get(name, name.replace(".", "_"))
    return f"mgh::ptx::set({to}, mgh::ptx::{function}<{_TYPES[kind]}>({', '.join(given)}));"


def _scalars(opcode: str, arguments: list[str], block: _Block) -> str | None:
    words = opcode.split(".")
    if opcode in ("mov.b64", "mov.b32") and any(a.startswith("{") for a in arguments):
        return _packed(opcode, arguments, block)
    name, kind = words[0], _TYPES.get(words[-1])
    values = [block.value(a) for a in arguments if not a.startswith(("{", "["))]
    if name in ("cvta", "mov") and len(values) == 2 and len(arguments) == 2:
        return f"mgh::ptx::set({values[0]}, {values[1]});"
    if opcode == "cvt.u32.u64":
        return f"{values[0]} = (unsigned)(uint64_t){values[1]};"
    if opcode == "cvt.rna.tf32.f32":
        return f"mgh::ptx::set({values[0]}, mgh::ptx::round_to_tf32({values[1]}));"
    if _FENCE.fullmatch(opcode):
        return "__threadfence();"
    if opcode == "nanosleep.u32":
        return f"__nanosleep({values[0]});"
    if opcode in ("bar.sync", "barrier.sync") and values == ["0"]:
        return "mgh_barrier(__LINE__);"
    if opcode == "bar.warp.sync":
        return f"mgh::syncwarp(__LINE__, {values[0]});"
    if opcode == "trap":
        return 'mgh_trap("trap", "", __LINE__);'
    if kind is None:
        return None
    if name == "setp" and len(words) == 3 and len(values) == 3:
        return f"{values[0]} = ({kind}){values[1]} {_COMPARE[words[1]]} ({kind}){values[2]};"
    if name == "selp":
        return f"{values[0]} = {values[3]} ? {values[1]} : {values[2]};"
    if name in _BINARY and set(words[1:-1]) <= {"rn", "ftz"}:
        return f"{values[0]} = ({kind}){values[1]} {_BINARY[name]} ({kind}){values[2]};"
    if name in _APPROXIMATE and words[1] == "approx" and kind == "float":
        return f"{values[0]} = {_APPROXIMATE[name]}((float){values[1]});"
    return None


def _packed(opcode: str, arguments: list[str], block: _Block) -> str:
    """`mov.b64 d, {low, high}`, and back."""
    half = "unsigned" if opcode == "mov.b64" else "unsigned short"
    whole = "unsigned long long" if opcode == "mov.b64" else "unsigned"
    to, source = arguments
    parts = block.values(to if to.startswith("{") else source)
    if to.startswith("{"):
        moves = " ".join(f"mgh::ptx::set({one}, mgh_h[{i}]);" for i, one in enumerate(parts))
        return (
            f"{{ {half} mgh_h[2]; {whole} mgh_w; mgh::ptx::set(mgh_w, {block.value(source)});"
            f" memcpy(mgh_h, &mgh_w, sizeof(mgh_w)); {moves} }}"
        )
    moves = " ".join(f"mgh::ptx::set(mgh_h[{i}], {one});" for i, one in enumerate(parts))
    return (
        f"{{ {half} mgh_h[2]; {whole} mgh_w; {moves} memcpy(&mgh_w, mgh_h, sizeof(mgh_w));"
        f" mgh::ptx::set({block.value(to)}, mgh_w); }}"
    )


def _closing(text: str, opening: int) -> int:
    depth = 0
    for i in range(opening, len(text)):
        depth += (text[i] in "([{") - (text[i] in ")]}")
        if depth == 0:
            return i
    return len(text)
