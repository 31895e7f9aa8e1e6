"""CUDA C as text: which kernels it defines, and the little that a C++ compiler does not take."""

from __future__ import annotations

import bisect
import functools
import re
from collections.abc import Callable, Iterator

from . import ptx

_SKIPPED = re.compile(
    r"//(?:\\\n|[^\n])*|/\*.*?\*/|R\"(?P<tag>[^(\s]*)\(.*?\)(?P=tag)\""
    r"|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])+'",
    re.DOTALL,
)
_LAUNCH_BOUNDS = re.compile(
    r"__(?:launch_bounds|cluster_dims|maxnreg)__\s*\([^()]*(?:\([^()]*\)[^()]*)*\)"
)
_ALIGNMENT = re.compile(r"(?:__align__|alignas|__attribute__)\s*(\((?:[^()]|\([^()]*\))*\))+")
_ALIGNAS = re.compile(r"\balignas\s*(\((?:[^()]|\([^()]*\))*\))")
_KERNEL = re.compile(r"__global__\b(?P<between>[^;{}()]*?)\b(?P<name>[A-Za-z_]\w*)\s*\(")
_VARIABLE = re.compile(r"\b(?:__constant__|__device__|__managed__)\b")
_NOINLINE = re.compile(r"\b__noinline__\b(?!\s*\))")
_UNROLL = re.compile(r"^([ \t]*#[ \t]*pragma[ \t]+)unroll\b[ \t]*(\(?[^\n]*)", re.MULTILINE)
_FOR = re.compile(r"\s*for\s*\(")
_SKIP_PRAGMAS = re.compile(r"(?:\s*#[^\n]*\n)*")
_SHARED = re.compile(r"\b__shared__\b")
_DYNAMIC = re.compile(
    r"\s*(?P<type>.*?)(?P<name>\w+)\s*\[[^\]]*\](?P<inner>(?:\s*\[[^\]]*\])*)\s*", re.DOTALL
)
_NESTING = re.compile(r"[([{)\]}]|^[ \t]*#[ \t]*(?P<directive>if|elif|else|endif)", re.MULTILINE)
_DIRECTIVE = re.compile(r"^[ \t]*#(?:\\\n|[^\n])*", re.MULTILINE)
_MACRO = re.compile(r"\s*#\s*define\s+(?P<name>\w+)\((?P<of>[^()]*)\)(?P<body>.*)", re.DOTALL)
_NAMED_BY_MACRO = re.compile(r"__global__\b[^;{}()]*?([\w# ]*\w)\s*\(")
_BUILTIN = re.compile(r"\b(?:threadIdx|blockIdx|blockDim|gridDim)\b")
_DECLARED = re.compile(r"[\w>*&]\s*\Z")  # what stands before a name that is declared
_NO_TYPE = re.compile(r"\b(?:return|case|else|do|sizeof|typename|goto|throw)\s*\Z")
_LOOP = re.compile(r"\b(?:(?P<do>do)\b|(?P<kind>while|for)\s*(?=\())")
_ASM = re.compile(r"\b(?:asm|__asm__|__asm)\s+(?:volatile|__volatile__)\b")
_VOLATILE = re.compile(r"\bvolatile\b[^;(){}=,]*?\b(\w+)\s*(?=[,;)=\[{])")
_VOLATILE_MACRO = re.compile(r"^[ \t]*#\s*define\s+(\w+)(?:\\\n|[^\n])*\bvolatile\b", re.MULTILINE)
_FUNCTION = re.compile(r"\b(?!(?:if|for|while|switch)\b)(?P<name>\w+)\s*(?=\()")
_NAMESPACE = re.compile(r"\s*(?:inline\s+)?(?:namespace(?:\s+([\w:]+))?|extern)\s*")
_SPACE = re.compile(r"\s*")
_ASSIGNED = re.compile(r"\s*(\+|-|\*|/|%|&|\||\^|<<|>>)?=(?!=)")
_STATEMENT = re.compile(r"(?:\A|[;{})]|\belse)\s*\Z")  # what stands before a statement
_UNROLL_COUNT = 32  # for `#pragma unroll` without a number: g++ wants one


def masked(code: str) -> str:
    """`code` with comments and literals blanked; every other character stays where it was."""

    def blank(match: re.Match) -> str:
        return re.sub(r"[^\n]", " ", match.group())

    return _SKIPPED.sub(blank, code)


def kernels(code: str) -> dict[str, list[str]]:
    """The kernels that `code` defines, in order, each with its parameters as written."""
    text = masked(code)
    text = _LAUNCH_BOUNDS.sub(lambda match: " " * len(match.group()), text)
    found: dict[str, list[str]] = {}
    for match in _KERNEL.finditer(text):
        close = closing(text, match.end() - 1)
        parameters = split(text[match.end() : close])
        found.setdefault(match["name"], [" ".join(p.split()) for p in parameters])
    return found


def extent(code: str, name: str) -> tuple[int, int]:
    """The first and the last line of the kernel `name` (of its definition: where it has a body)."""
    text = masked(code)
    plain = re.sub(r"<.*", "", name).rpartition("::")[2].strip()
    for found, start, _, parameters in declared_kernels(text):
        body = re.compile(r"\s*\{").match(text, closing(text, parameters) + 1)
        if found == plain and body:
            last = closing(text, body.end() - 1)
            return text.count("\n", 0, start) + 1, text.count("\n", 0, last) + 1
    return 1, text.count("\n") + 1  # a macro writes it


def declared_kernels(text: str) -> Iterator[tuple[str, int, int, int]]:
    """Of each kernel that the masked text declares: its name, and where the declaration,
    `__global__` and the list of parameters begin."""
    text = _LAUNCH_BOUNDS.sub(lambda match: " " * len(match.group()), text)
    for match in _KERNEL.finditer(text):
        start = match.start() - len(_lead(text, match.start()).lstrip())
        yield match["name"], start, match.start(), match.end() - 1


def waits_for_grid(code: str, name: str) -> bool:
    """Whether a kernel has a barrier of the whole grid, which needs a cooperative launch."""
    first, last = extent(code, name)
    return "this_grid" in "\n".join(masked(code).splitlines()[first - 1 : last])


def plain_kernels(code: str) -> list[str]:
    """The kernels that are no templates, with their namespaces; also those that macros write."""
    text = _LAUNCH_BOUNDS.sub(lambda match: " " * len(match.group()), masked(code))
    names = []
    macros = dict(_macros(text))
    text = _DIRECTIVE.sub(lambda match: re.sub(r"[^\n]", " ", match.group()), text)
    for match in re.finditer(r"\b(\w+)\s*\(", text) if macros else ():
        if match[1] in macros:
            given = split(text[match.end() : closing(text, match.end() - 1)])
            names.append("::".join([*(_scope(text, match.start()) or []), macros[match[1]](given)]))
    for match in _KERNEL.finditer(text):
        scope = _scope(text, match.start()) or []
        if not re.search(r"\btemplate\b", _lead(text, match.start())):
            names.append("::".join([*scope, match["name"]]))
    return list(dict.fromkeys(names))


def _macros(text: str) -> Iterator[tuple[str, Callable[[list[str]], str]]]:
    """The macros that write a kernel, each with what makes the kernel's name of its arguments."""
    for directive in _DIRECTIVE.finditer(text):
        macro = _MACRO.match(directive.group())
        kernel = _NAMED_BY_MACRO.search(macro["body"]) if macro else None
        if macro is None or kernel is None or re.search(r"\btemplate\b", macro["body"]):
            continue
        name = re.split(r"(?<!#)\s+(?!\s*#)", kernel[1].strip())[-1]

        def make(given: list[str], name: str = name, parameters: str = macro["of"]) -> str:
            of = dict(zip([p.strip() for p in parameters.split(",")], given))
            return "".join(of.get(word.strip(), word).strip() for word in name.split("##"))

        yield macro["name"], make


def variables(code: str) -> list[str]:
    """The names of the `__constant__` and `__device__` variables outside of functions."""
    text = _ALIGNMENT.sub(lambda match: " " * len(match.group()), masked(code))
    names = []
    for match in _VARIABLE.finditer(text):
        last = _end_of_declaration(text, match.end())
        declared = text[match.end() : last]
        scope = _scope(text, match.start())
        if last < 0 or scope is None or re.match(r"[^;={\[]*\(", declared):
            continue
        if re.search(r"\b(template|extern|__global__)\b", _lead(text, match.start())):
            continue
        for piece in split(re.sub(r"\b(__align__|const|volatile|static)\b", " ", declared)):
            name = _declared(piece)
            if name:
                names.append("::".join([*scope, name]))
    return list(dict.fromkeys(names))


def parameter_name(parameter: str, index: int) -> str:
    """The name in a parameter such as `const float* __restrict__ A`; its number if it has none."""
    words = re.findall(r"[A-Za-z_]\w*", re.sub(r"\[.*|=.*", "", parameter))
    return words[-1] if len(words) > 1 else f"parameter {index + 1}"


def rewrite(code: str, gnu: bool) -> tuple[str, list[str]]:
    """`code` as the host's compiler takes it, on the same lines, and declarations to go before it.

    Shared variables are announced to the runtime, which poisons them; `extern __shared__` arrays
    become pointers; `#pragma unroll` is spelt as g++ spells it (`gnu`); inline PTX becomes calls;
    loops that may wait for another thread let it run.
    """
    text = masked(code)
    edits, declarations = ptx.edits(code, text)
    for match in _SHARED.finditer(text):
        first = max(text.rfind(c, 0, match.start()) for c in ";{}>") + 1
        first = max(first, _end_of_directive(text, match.start()))
        last = _end_of_declaration(text, match.end())
        if last < 0:
            continue
        local = _scope(text, match.start()) is None
        edits += _shared(text, first, match.span(), last, local)
    edits += _renamed(text)
    edits += _polls(text)
    edits += _in_step(text)
    # No macro: the C++ library's headers have the word in attributes of theirs.
    edits += [(*match.span(), "__attribute__((noinline))") for match in _NOINLINE.finditer(text)]
    if gnu:
        edits += _unroll(text)
    pieces, at = [], 0
    for first, last, replacement in sorted(edits):
        lines = code.count("\n", first, last) - replacement.count("\n")
        pieces += [code[at:first], replacement, "\n" * max(0, lines)]
        at = last
    return "".join([*pieces, code[at:]]), declarations


def _renamed(text: str) -> list[tuple[int, int, str]]:
    """The edits for parameters, variables and members that are called like a built-in variable:
    ours are macros."""
    places: set[tuple[int, int]] = set()
    for match in _BUILTIN.finditer(text):
        before = text[max(0, match.start() - 80) : match.start()]
        at = _after_space(text, match.end())
        after = text[at : at + 1]
        if not _DECLARED.search(before) or _NO_TYPE.search(before) or after not in ",)=;[{(":
            continue
        start, end = _block_of(text, match.start())
        for other in re.compile(rf"\b{match.group()}\b").finditer(text):
            member = re.search(r"(\.|->)\s*\Z", text[max(0, other.start() - 20) : other.start()])
            if start <= other.start() < end or member:
                places.add(other.span())
    return [(first, last, f"mgh_n_{text[first:last]}") for first, last in sorted(places)]


def _block_of(text: str, at: int) -> tuple[int, int]:
    """Where a name that is declared at `at` is known: the rest of its block, or its function."""
    depth = 0
    for i in range(at, len(text)):
        depth += (text[i] in "([{") - (text[i] in ")]}")
        if depth < 0 and text[i] == "}":
            return at, i
        if depth < 0:  # a parameter: as far as the function's body
            body = re.compile(r"[^;{}]*\{").match(text, i + 1)
            return at, closing(text, body.end() - 1) if body else i
    return at, len(text)


def _polls(text: str) -> list[tuple[int, int, str]]:
    """The edits for loops that may wait for what another thread stores in a volatile variable:
    those of an empty body, and those without a count that read such a variable."""
    names = _volatile_names(text)
    text = _DIRECTIVE.sub(lambda match: re.sub(r"[^\n]", " ", match.group()), text)
    edits, ends_of_do = [], set()
    for loop in _LOOP.finditer(text):
        if loop.start() in ends_of_do:
            continue
        close = loop.end() if loop["do"] else closing(text, loop.end()) + 1
        body = _after_space(text, close)
        end = _end_of_statement(text, body)
        if loop["do"]:
            end = text.find("while", end)
            ends_of_do.add(end)
            end = closing(text, text.find("(", end))
        empty = re.compile(r";|\{\s*;?\s*\}").match(text, body)
        counts = loop["kind"] == "for" and not re.search(r";\s*\)\Z", text[loop.end() : close])
        reads = names.intersection(re.findall(r"\w+", text[loop.start() : end]))
        if (empty or reads) and not counts:
            edits.append((body, body, "if (mgh::poll()) {} else "))
    return edits


def _in_step(text: str) -> list[tuple[int, int, str]]:
    """The edits for `s[t] += s[t + 16];` with a volatile `s`, as reductions of a warp were written
    before `__syncwarp()`: the lanes that are there read, and then they write."""
    if not re.search(r"\bvolatile\b", text):
        return []
    lists = [(first, closing(text, first)) for *_, first in declared_kernels(text)]
    found = _VOLATILE.finditer(_ASM.sub(lambda match: " " * len(match.group()), text))
    # What a kernel is given is no shared memory.
    own = {m[1] for m in found if not any(a < m.start() < b for a, b in lists)}
    names = "|".join(sorted(own))
    if not names:
        return []
    edits: list[tuple[int, int, str]] = []
    element = re.compile(rf"(?<![\w.>&*])(?:{names})\s*(?=\[)")
    for match in element.finditer(text):
        index = closing(text, match.end())
        assigned = _ASSIGNED.match(text, index + 1)
        end = _end_of_declaration(text, match.end())
        first = _STATEMENT.search(text[max(0, match.start() - 80) : match.start()])
        if not assigned or end < 0 or not first:
            continue
        given, place = text[assigned.end() : end], "".join(text[match.start() : index + 1].split())
        others = (
            "".join(given[read.start() : closing(given, read.end()) + 1].split())
            for read in element.finditer(given)
        )
        if all(other == place for other in others) or len(split(given)) > 1:
            continue
        value = f"mgh_a {assigned[1]} (" if assigned[1] else "("
        step = f"mgh::in_step(__LINE__ + ({len(edits) // 3 % 1024} << 20));"
        edits += [
            (match.start(), match.start(), "{ auto& mgh_a = "),
            (*assigned.span(), f"; const auto mgh_v = {value}"),
            (end, end + 1, f"); {step} mgh_a = mgh_v; {step} }}"),
        ]
    return edits


def _volatile_names(text: str) -> set[str]:
    """`volatile`, and the names of variables, functions and macros by which one is accessed."""
    plain = _ASM.sub(lambda match: " " * len(match.group()), text)
    if not re.search(r"\bvolatile\b", plain):
        return set()
    names = {"volatile", *_VOLATILE.findall(plain), *_VOLATILE_MACRO.findall(plain)}
    for match in _FUNCTION.finditer(plain):
        body = re.compile(r"\s*(?:const\s*)?\{").match(plain, closing(plain, match.end()) + 1)
        if body and re.search(r"\bvolatile\b", plain[match.end() : closing(plain, body.end() - 1)]):
            names.add(match["name"])
    return names


def _unroll(text: str) -> list[tuple[int, int, str]]:
    """The edits for `#pragma unroll`. Kept for a loop that is in no other such loop, and that does
    more than run another loop: the rest g++ unrolls when it likes, and makes vectors of. Of those
    unrolled before it looks it makes scalars: a register-blocked matmul took twice as long."""
    edits = []
    outer = 0  # where the loop of the last pragma kept ends
    for match in _UNROLL.finditer(text):
        count = match[2].strip(" \t\r()")
        if not count.isdigit():  # g++ takes no template parameter either
            count = str(_UNROLL_COUNT)
        body = _FOR.match(text, match.end())
        body = _SKIP_PRAGMAS.match(text, closing(text, body.end() - 1) + 1) if body else None
        if match.start() < outer or (body and _FOR.match(text, body.end())):
            edits.append((*match.span(), ""))
        else:
            edits.append((*match.span(), f"{match[1]}GCC unroll {count}"))
        outer = max(outer, _end_of_statement(text, match.end()))
    return edits


def _end_of_statement(text: str, start: int) -> int:
    """Where the loop or other statement at `start` ends."""
    head = re.compile(r"\s*(?:#[^\n]*\n\s*)*(?:(?:for|while|if)\s*(?=\()|do\b|else\b)?")
    match = head.match(text, start)
    at = match.end()
    if text[at : at + 1] == "(" and match.group().strip():
        return _end_of_statement(text, closing(text, at) + 1)
    if text[at : at + 1] == "{":
        return closing(text, at)
    return _end_of_declaration(text, at)


def _shared(
    text: str, first: int, word: tuple[int, int], last: int, local: bool
) -> list[tuple[int, int, str]]:
    """The edits for one `__shared__` declaration in `text[first:last]`, without its semicolon."""
    before, after = text[first : word[0]], text[word[1] : last]
    if re.search(r"\bextern\b", before + after):
        plain = _ALIGNMENT.sub(" ", re.sub(r"\b(extern|static)\b", " ", before + after))
        array = _DYNAMIC.fullmatch(plain)
        if not array:
            return []
        kind, name = " ".join(array["type"].split()), array["name"]
        if array["inner"].strip():  # each element is an array
            kind = f"typename mgh::Same<{kind}{array['inner'].strip()}>::type"
        if local:
            pointer = f"{kind}* const {name} = ({kind}*)mgh::dynamic_shared()"
        else:
            pointer = f"MGH_DYNAMIC_SHARED({name}, {kind})"
        lead = len(before) - len(before.lstrip())
        return [(first + lead, last, pointer)]
    edits = [
        (first + found.start(), first + found.end(), "")
        for found in re.finditer(r"\bstatic\b", before)
    ]
    edits += [
        (word[1] + found.start(), word[1] + found.end(), "")
        for found in re.finditer(r"\bstatic\b", after)
    ]
    # g++ takes `alignas` at the beginning of a declaration only, and of no type.
    edits += [
        (start + found.start(), start + found.end(), f"__attribute__((aligned{found[1]}))")
        for start, part in ((first, before), (word[1], after))
        for found in _ALIGNAS.finditer(part)
    ]
    names = [_declared(piece) for piece in split(after)]
    macro = "MGH_SHARED" if local else "MGH_FILE_SHARED"
    edits.append((*word, "typedef"))  # what is declared becomes the type of the variable
    at = 0
    for name in filter(None, names):
        at = re.compile(rf"\b{name}\b(?=\s*(?:\[|=|,|\Z|\{{))").search(after, at).start()
        edits.append((word[1] + at, word[1] + at, "mgh_d_"))
    announced = " ".join(f"{macro}({name})" for name in names if name)
    edits.append((last + 1, last + 1, " " + announced))
    return edits


def _declared(declarator: str) -> str | None:
    """The variable's name in `float tile[16][17]`, `*p` or `alignas(8) int x = 1`."""
    text = re.sub(r"\{.*\}", " ", _ALIGNMENT.sub(" ", declarator), flags=re.DOTALL)
    words = re.findall(r"[A-Za-z_]\w*", re.sub(r"[\[=].*", "", text, flags=re.DOTALL))
    return words[-1] if words else None


def closing(text: str, opening: int) -> int:
    """Where the bracket at `opening` is closed. Each branch of an `#if` may open the same scope, so
    that the first one counts."""
    depth = skipped = 0
    for match in _NESTING.finditer(text, opening):
        directive = match["directive"]
        if skipped:
            skipped += (directive == "if") - (directive == "endif")
        elif directive:
            skipped = directive in ("elif", "else")
        else:
            depth += 1 if match[0] in "([{" else -1
            if depth == 0:
                return match.start()
    return len(text)


def split(text: str) -> list[str]:
    """The pieces between the commas that are in no bracket."""
    pieces, depth, start = [], 0, 0
    for i, c in enumerate(text):
        depth += (c in "([{<") - (c in ")]}>")
        if c == "," and depth <= 0:
            pieces.append(text[start:i])
            start = i + 1
    pieces.append(text[start:])
    return [piece for piece in pieces if piece.strip() not in ("", "void")]


def _end_of_declaration(text: str, start: int) -> int:
    depth = 0
    for i in range(start, len(text)):
        depth += (text[i] in "([{") - (text[i] in ")]}")
        if text[i] == ";" and depth == 0:
            return i
    return -1


def _after_space(text: str, start: int) -> int:
    """The first place from `start` on that is no white space."""
    found = _SPACE.match(text, start)
    return found.end() if found else start


def _end_of_directive(text: str, before: int) -> int:
    """The end of the last preprocessor line that ends before `before`, or 0."""
    ends = _ends_of_directives(text)
    return ends[bisect.bisect_right(ends, before) - 1]


@functools.lru_cache(maxsize=4)
def _ends_of_directives(text: str) -> list[int]:
    """0, and where the lines of preprocessor directives end, those that go on too."""
    return [0] + [
        directive.start() + newline.end()
        for directive in re.finditer(r"^[ \t]*#(?:\\\n|[^\n])*\n", text, re.MULTILINE)
        for newline in re.finditer(r"\n", directive.group())
    ]


def _lead(text: str, end: int) -> str:
    """What stands before `end`, since the last declaration, statement or directive."""
    start = _end_of_directive(text, end)
    return text[max(start, 1 + max(text.rfind(c, start, end) for c in ";{}")) : end]


def _scope(text: str, end: int) -> list[str] | None:
    """The namespaces open at `end`; None where a brace of another kind is open."""
    places, scopes = _scopes(text)
    return scopes[bisect.bisect_left(places, end)]


@functools.lru_cache(maxsize=4)
def _scopes(text: str) -> tuple[list[int], list[list[str] | None]]:
    """Where braces stand, and what is open before the first of them and after each."""
    places: list[int] = []
    scopes: list[list[str] | None] = [[]]
    open_braces: list[str | None] = []
    last = -1  # the end of the last statement, bracket or template argument
    for match in re.finditer(r"[;{}>)]", text):
        if match.group() == "}" and open_braces:
            open_braces.pop()
        elif match.group() == "{":
            start = max(last + 1, _end_of_directive(text, match.start()))
            outer = _NAMESPACE.fullmatch(text[start : match.start()].rstrip())
            open_braces.append((outer[1] or "") if outer else None)
        last = match.start()
        if match.group() in "{}":
            places.append(last)
            inside = None in open_braces
            scopes.append(None if inside else [name for name in open_braces if name])
    return places, scopes
