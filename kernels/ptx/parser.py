"""PTX text to nodes. Bodies of functions are parsed at their first use: a module has many."""

from __future__ import annotations

import re
import struct
from bisect import bisect_right
from functools import lru_cache

from kernels.ptx.nodes import (
    TYPES,
    Address,
    Body,
    Function,
    Group,
    Immediate,
    Instruction,
    Label,
    Location,
    Negated,
    Operand,
    Pair,
    Program,
    Register,
    Symbol,
    Type,
    Variable,
    Vector,
)
from kernels.support.errors import CompileError

_COMMENT = re.compile(r'("[^"\n]*")|//[^\n]*|/\*.*?\*/', re.DOTALL)
_NAME = r"[%$_a-zA-Z][\w$%@]*"
_SPACES = ("reg", "param", "shared", "local", "global", "const")
_DECLARATION = re.compile(rf"\.({'|'.join(_SPACES)})\b(?:::\w+)?")
_VARIABLE = re.compile(
    rf"(?:\.align\s+(?P<align>\d+)\s+|\.attribute\s*\([^)]*\)\s*)*(?:\.(?P<vector>v[248])\s+)?"
    rf"\.(?P<type>\w+)\s+(?:\.ptr\b(?:\s*\.(?:global|shared|const|local))?(?:\s*\.align\s+\d+)?\s+)?"
    rf"(?P<rest>{_NAME}.*)",
    re.DOTALL,
)
_ITEM = re.compile(rf"(?P<name>{_NAME})(?P<family><\d+>)?(?P<shape>(?:\s*\[[^\]]*\])*)\s*\Z")
_STATEMENT = re.compile(
    r"(?:@\s*(?P<not>!?)\s*(?P<guard>[%\w$]+)\s+)?(?P<opcode>[a-z][\w.]*(?:::\w+[\w.]*)*)\s*"
    r"(?P<rest>.*)\Z",
    re.DOTALL,
)
_LABEL = re.compile(rf"({_NAME})\s*:(?!:)")
_INTEGER = re.compile(r"[-+~]?\s*(?:0[xX][0-9a-fA-F]+|0[bB][01]+|\d+)U?\Z")
_FLOAT = re.compile(r"0[fF]([0-9a-fA-F]{8})\Z|0[dD]([0-9a-fA-F]{16})\Z")
_DECIMAL = re.compile(r"[-+]?(?:\d+\.\d*|\.\d+|\d+(?=[eE]))(?:[eE][-+]?\d+)?\Z")
_TABLE = re.compile(r"\s*\.(branchtargets|calltargets|callprototype)\b([^;]*);")
_FUNCTION = re.compile(r"\.(entry|func)\b")


def parse(text: str) -> Program:
    """The module of a PTX text. Raises CompileError with the line of what it does not know."""
    text = _COMMENT.sub(_blank, text.partition("\0")[0])
    return _Reader(text).program()


def _blank(match: re.Match) -> str:
    if match[1]:
        return match[0]
    return "\n" * match[0].count("\n") or " "


def integer(text: str) -> int:
    """An integer as PTX writes it: decimal, 0x, 0b or octal, perhaps with a U."""
    text = text.replace(" ", "").rstrip("U")
    sign = -1 if text.startswith("-") else 1
    digits = text.lstrip("+-~")
    if re.fullmatch(r"0[0-7]+", digits):
        value = int(digits, 8)
    else:
        value = int(digits, 0)
    return ~value if text.startswith("~") else sign * value


class _Reader:
    """Reads a text from front to back."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.lines = [match.start() for match in re.finditer("\n", text)]

    def line(self, at: int) -> int:
        return bisect_right(self.lines, at - 1) + 1

    def error(self, at: int, problem: str) -> CompileError:
        return CompileError(f"PTX line {self.line(at)}: {problem}")

    def program(self) -> Program:
        text, at = self.text, 0
        functions: dict[str, Function] = {}
        variables: dict[str, Variable] = {}
        files: dict[int, str] = {}
        target = ""
        word = re.compile(r"\s*(\.\w+|\S)")
        while match := word.match(text, at):
            start = match.start(1)
            head = match[1]
            if head == ".target":
                found = re.compile(r"\.target\s+([\w]+)").match(text, start)
                target = found[1] if found else ""
                at = self.end_of_line(start)
            elif head in (".version", ".address_size", ".loc", ".pragma"):
                at = self.end_of_line(start)
            elif head == ".file":
                found = re.compile(r'\.file\s+(\d+)\s+"([^"]*)"[^\n]*').match(text, start)
                if not found:
                    raise self.error(start, "a .file directive that is not known")
                files[int(found[1])] = found[2]
                at = found.end()
            elif head == ".section":
                at = self.closing(text.index("{", start)) + 1
            elif head in (".alias",):
                at = text.index(";", start) + 1
            else:
                at = self.declaration(start, functions, variables)
        return Program(target, functions, variables, files, text)

    def end_of_line(self, at: int) -> int:
        end = self.text.find("\n", at)
        return len(self.text) if end < 0 else end

    def closing(self, opening: int) -> int:
        """Where the brace that opens at a place closes."""
        depth = 0
        for match in re.compile(r'"[^"\n]*"|[{}]').finditer(self.text, opening):
            depth += {"{": 1, "}": -1}.get(match[0], 0)
            if depth == 0:
                return match.start()
        raise self.error(opening, "a brace that is not closed")

    def declaration(
        self, start: int, functions: dict[str, Function], variables: dict[str, Variable]
    ) -> int:
        """Read a variable or a function; where it ends."""
        text = self.text
        head = re.compile(r"(?:\s*\.(?:extern|visible|weak|common|unique))*\s*").match(text, start)
        at = head.end()
        if _FUNCTION.match(text, at):
            return self.function(at, functions)
        end = self.statement_end(at)
        match = _DECLARATION.match(text, at)
        if not match:
            shown = text[at : at + 40].split("\n")[0]
            raise self.error(at, f"{shown!r} is not known here")
        for variable in self.variables(match[1], text[match.end() : end], at, ".extern" in head[0]):
            if variable.name not in variables or not variable.external:
                variables[variable.name] = variable
        return end + 1

    def statement_end(self, at: int) -> int:
        for match in re.compile(r'"[^"\n]*"|;').finditer(self.text, at):
            if match[0] == ";":
                return match.start()
        raise self.error(at, "a declaration without an end")

    def variables(self, space: str, text: str, at: int, external: bool) -> list[Variable]:
        """The variables of a declaration, after its state space."""
        match = _VARIABLE.match(text.strip())
        if not match or match["type"] not in TYPES:
            raise self.error(at, f"declaration .{space} {text.strip()[:60]!r} is not known")
        kind = TYPES[match["type"]]
        width = int(match["vector"][1:]) if match["vector"] else 1
        found = []
        for item in pieces(match["rest"]):
            declared, _, initial = item.partition("=")
            one = _ITEM.match(declared.strip())
            if not one:
                raise self.error(at, f"declaration of {declared.strip()!r} is not known")
            values = tuple(_values(initial)) if initial else ()
            count = width
            for size in re.findall(r"\[([^\]]*)\]", one["shape"]):
                count *= integer(size) if size.strip() else max(len(values), 0)
            align = int(match["align"] or kind.bytes * width)
            size = count * kind.bytes
            found.append(
                Variable(space, kind, one["name"], size, align, values, external, self.line(at))
            )
        return found

    def function(self, at: int, functions: dict[str, Function]) -> int:
        text = self.text
        pattern = re.compile(
            rf"\.(?P<kind>entry|func)\s*(?:\((?P<results>[^)]*)\)\s*)?(?P<name>{_NAME})\s*"
            r"(?:\((?P<parameters>[^)]*)\))?(?P<directives>[^{;]*)(?P<end>[{;])"
        )
        match = pattern.match(text, at)
        if not match:
            raise self.error(at, "a function that is not known")
        body, end = None, match.end()
        if match["end"] == "{":
            end = self.closing(match.end() - 1) + 1
            body = text[match.end() : end - 1]
        line = self.line(match.end())
        function = Function(
            match["name"],
            match["kind"] == "entry",
            self.parameters(match["parameters"], at),
            self.parameters(match["results"], at),
            body,
            line,
            " ".join(match["directives"].split()),
        )
        if body is not None or function.name not in functions:
            functions[function.name] = function
        return end

    def parameters(self, text: str | None, at: int) -> tuple[Variable, ...]:
        found: list[Variable] = []
        for item in pieces(text or ""):
            match = _DECLARATION.match(item)
            if not match:
                raise self.error(at, f"parameter {item!r} is not known")
            found += self.variables(match[1], item[match.end() :], at, False)
        return tuple(found)


def pieces(text: str) -> list[str]:
    """What stands between the commas outside of brackets."""
    if "{" not in text and "(" not in text and "[" not in text:
        return [one.strip() for one in text.split(",") if one.strip()]
    found, depth, start = [], 0, 0
    for i, c in enumerate(text):
        if c in "([{<":
            depth += 1
        elif c in ")]}>":
            depth -= 1
        elif c == "," and depth == 0:
            found.append(text[start:i].strip())
            start = i + 1
    found.append(text[start:].strip())
    return [one for one in found if one]


def _values(text: str) -> list[Immediate | Symbol]:
    """The initial values of a variable, in order, whatever its braces."""
    found: list[Immediate | Symbol] = []
    for item in re.split(r"[{},]", text):
        item = item.strip()
        if not item:
            continue
        masked = re.fullmatch(r"0[xX]([fF]+)\s*\((.*)\)", item)  # one byte of an address
        inner = re.fullmatch(r"generic\s*\((.*)\)(.*)", masked[2] if masked else item)
        if masked:
            raise CompileError(f"initial value {item!r}: bytes of addresses are not known")
        found.append(operand(inner[1] + inner[2] if inner else item))
    return found


@lru_cache(maxsize=1 << 14)
def operand(text: str) -> Operand:
    """An operand of an instruction."""
    text = text.strip()
    if text.startswith("[") and text.endswith("]"):
        return _address(text[1:-1].strip())
    if text.startswith("{"):
        return Vector(tuple(operand(one) for one in pieces(text[1:-1])))
    if text.startswith("("):
        return Group(tuple(operand(one) for one in pieces(text[1:-1])))
    if "|" in text:
        first, second = text.split("|")
        return Pair(operand(first), operand(second))
    if text.startswith("!"):
        return Negated(text[1:].strip())
    if _INTEGER.match(text):
        return Immediate(integer(text))
    if match := _FLOAT.match(text.lstrip("-")):
        bits = int(match[1] or match[2], 16)
        width = 32 if match[1] else 64
        if text.startswith("-"):
            bits ^= 1 << (width - 1)
        packed = bits.to_bytes(width // 8, "little")
        return Immediate(struct.unpack("<f" if match[1] else "<d", packed)[0], bits, width)
    if _DECIMAL.match(text):
        return Immediate(float(text))
    if match := re.fullmatch(rf"({_NAME}(?:\.\w+)?)\s*(?:([-+])\s*(\w+))?", text):
        if match[2]:
            return Symbol(match[1], integer(match[2] + match[3]))
        return Register(match[1])  # or a symbol: the lowering knows
    raise CompileError(f"operand {text!r} is not known")


def _address(text: str) -> Address:
    match = re.fullmatch(rf"({_NAME})\s*(?:([-+])\s*(-?\w+))?", text)
    if match:
        offset = integer(match[3]) * (-1 if match[2] == "-" else 1) if match[2] else 0
        return Address(Register(match[1]), offset)
    if _INTEGER.match(text):
        return Address(Immediate(integer(text)))
    raise CompileError(f"address [{text}] is not known")


class _BodyReader:
    """Reads what stands between a function's braces."""

    def __init__(self, function: Function, files: dict[int, str]) -> None:
        self.reader = _Reader(function.text)
        self.first = function.line
        self.files = files
        self.body = Body({}, {}, [], [], {}, [])
        self.scopes: list[dict[str, str]] = [{}]
        self.count = 0
        self.where = -1
        self.known: dict[Location, int] = {}

    def line(self, at: int) -> int:
        return self.first + self.reader.line(at) - 1

    def read(self) -> Body:
        text, at = self.reader.text, 0
        blank = re.compile(r"[\s;]*")
        while (at := blank.match(text, at).end()) < len(text):
            c = text[at]
            if c == "{":
                self.scopes.append(dict(self.scopes[-1]))
                at += 1
            elif c == "}":
                self.scopes.pop()
                at += 1
            elif c == ".":
                at = self.directive(at)
            elif match := _LABEL.match(text, at):
                at = self.label(match)
            else:
                end = text.find(";", at)
                if end < 0:
                    raise self.error(at, "an instruction without an end")
                self.instruction(text[at:end], at)
                at = end + 1
        return self.body

    def error(self, at: int, problem: str) -> CompileError:
        return CompileError(f"PTX line {self.line(at)}: {problem}")

    def label(self, match: re.Match) -> int:
        text, at = self.reader.text, match.end()
        table = _TABLE.match(text, at)
        if table:
            if table[1] == "branchtargets":
                self.body.tables[match[1]] = tuple(pieces(table[2]))
            return table.end()
        self.body.statements.append(Label(match[1]))
        return at

    def directive(self, at: int) -> int:
        text = self.reader.text
        if text.startswith((".loc\t", ".loc "), at):
            return self.location(at)
        match = _DECLARATION.match(text, at)
        end = self.reader.statement_end(at)
        if not match:
            if re.match(r"\.(pragma|noreturn|abi_preserve)", text[at:end]):
                return end + 1
            raise self.error(at, f"{text[at:end].split()[0]} is not known")
        declared = text[match.end() : end]
        if match[1] == "reg":
            self.declare_registers(declared, at)
        else:
            try:
                found = self.reader.variables(match[1], declared, at, False)
            except CompileError as error:
                raise self.error(at, str(error).partition(": ")[2]) from None
            for variable in found:
                name = self.rename(variable.name)
                self.body.variables.append(
                    Variable(
                        variable.space, variable.type, name, variable.bytes, variable.align,
                        variable.values, line=self.line(at),
                    )
                )  # fmt: skip
        return end + 1

    def declare_registers(self, text: str, at: int) -> None:
        match = _VARIABLE.match(text.strip())
        if not match or match["type"] not in TYPES or match["vector"]:
            raise self.error(at, f".reg{text.rstrip()} is not known")
        kind = TYPES[match["type"]]
        for item in pieces(match["rest"]):
            one = _ITEM.match(item)
            if not one:
                raise self.error(at, f"register {item!r} is not known")
            if one["family"]:
                self.body.families[one["name"]] = kind
                continue
            self.body.registers[self.rename(one["name"], kind)] = kind

    def rename(self, name: str, kind: Type | None = None) -> str:
        """The name of what an inner scope declares: one of its own, where another has it."""
        if len(self.scopes) == 1 or (kind is not None and self.body.registers.get(name) == kind):
            return name
        self.count += 1
        self.scopes[-1][name] = f"{name}@{self.count}"
        return self.scopes[-1][name]

    def location(self, at: int) -> int:
        end = self.reader.end_of_line(at)
        match = re.compile(r"\.loc\s+(\d+)\s+(\d+)").match(self.reader.text, at)
        if match:
            here = Location(self.files.get(int(match[1]), ""), int(match[2]))
            if here not in self.known:
                self.known[here] = len(self.body.locations)
                self.body.locations.append(here)
            self.where = self.known[here]
        return end

    def instruction(self, text: str, at: int) -> None:
        renamed = self.scopes[-1]
        match = _STATEMENT.match(text)
        if not match:
            raise self.error(at, f"{text.strip()!r} is not known")
        if renamed:
            text = re.sub(r"[%$\w]+", lambda m: renamed.get(m[0], m[0]), match["rest"])
        else:
            text = match["rest"]
        guard = None
        if match["guard"]:
            name = renamed.get(match["guard"], match["guard"])
            guard = Negated(name) if match["not"] else Register(name)
        opcode, *modifiers = match["opcode"].split(".")
        try:
            operands = tuple(operand(one) for one in pieces(text.strip()))
        except CompileError as error:
            raise self.error(at, f"{match['opcode']}: {error}") from None
        self.body.statements.append(
            Instruction(opcode, tuple(modifiers), operands, guard, self.line(at), self.where)
        )


def body(function: Function, files: dict[int, str]) -> Body:
    """The statements of a function. Raises CompileError with the line of what is not known."""
    return _BodyReader(function, files).read()
