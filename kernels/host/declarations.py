"""The declarations of a CUDA C source, and which of them a kernel needs."""

from __future__ import annotations

import re
from dataclasses import dataclass

from .source import closing, masked

_DEVICE = re.compile(r"\b(__global__|__device__|__constant__|__shared__|__managed__)\b")
_HOST_ONLY = re.compile(
    r"<<<|\bmain\s*\(|\b(?:cuda[A-Z]|cublas|cudnn|cufft|curand(?=[A-RT-Z]|S[^t])|cusparse|cusolver|nccl)\w*"
    r"|\bstd::(?:cout|cerr|vector|string|chrono|unique_ptr)\b"
)
_TYPE = re.compile(r"\s*(?:template\s*<[^;{}()]*>\s*)?(?:struct|class|union|enum|using|typedef)\b")
_NAMESPACE = re.compile(r"(?:inline\s+)?namespace\b[\w:\s]*\Z|extern\s*\Z")
_WORD = re.compile(r"[A-Za-z_]\w*")
_ATTRIBUTE = re.compile(
    r"\b(?:__launch_bounds__|__cluster_dims__|__maxnreg__|__attribute__|alignas|__align__)\s*\("
)
_FEATURES = (
    (r"\btex(?:1D|2D|3D|Cubemap)\w*|\bcudaTextureObject_t\b|\btexture\s*<", "textures"),
    (r"\bsurf(?:1D|2D|3D)\w*|\bcudaSurfaceObject_t\b", "surfaces"),
    (r"\bcluster_group\b|\bthis_cluster\b|__cluster_dims__", "thread block clusters"),
    (
        r"\bcurandState(?:Mtgp32|(?:Scrambled)?Sobol)\w*|\bcurand_(?:poisson|discrete)\w*",
        "cuRAND beyond XORWOW, Philox and MRG32k3a, uniform and normal numbers",
    ),
    (
        r"\bcub::(?:Device|Dispatch|Agent|Warp(?:MergeSort|Exchange|Load|Store)|Block(?:RunLength|Topk"
        r"|RadixRank|LoadToShared)|\w*Iterator)\w*",
        "CUB beyond its collectives of a block and a warp",
    ),
    (r"\bthrust::(?!complex\b)", "Thrust"),
    (r"\bcutlass::|\bcute::", "CUTLASS"),
    (r"\b__nv_fp8\w*", "8-bit floating point"),
    (r"<<<", "a kernel that launches kernels (dynamic parallelism)"),
)


@dataclass(frozen=True)
class Declaration:
    """A function, type or variable outside of functions: characters and lines of the source."""

    name: str
    first: int
    end: int
    lines: range
    text: str


def declarations(code: str) -> list[Declaration]:
    """The declarations of `code`, those in namespaces one by one."""
    text = re.sub(r"^[ \t]*#(?:\\\n|[^\n])*", lambda m: _blank(m.group()), masked(code), flags=re.M)
    found: list[Declaration] = []
    _collect(text, 0, len(text), found)
    return found


def _collect(text: str, at: int, end: int, found: list[Declaration]) -> None:
    first = at
    while at < end:
        c = text[at]
        if c in "([":
            at = closing(text, at) + 1
        elif c == "{" and _NAMESPACE.search(text[first:at].strip()):
            last = closing(text, at)
            _collect(text, at + 1, min(last, end), found)
            at = first = last + 1
        elif c == "{":
            at = closing(text, at) + 1
            if "(" in text[first:at].partition("{")[0]:  # a function: no semicolon follows
                first = _add(text, first, at, found)
        elif c in ";}":
            at += 1
            first = _add(text, first, at, found)
        else:
            at += 1


def _add(text: str, first: int, end: int, found: list[Declaration]) -> int:
    body = text[first:end]
    if body.strip(" \t\r\n;"):
        first += len(body) - len(body.lstrip())
        lines = range(text.count("\n", 0, first) + 1, text.count("\n", 0, end) + 2)
        found.append(Declaration(_name(text[first:end]), first, end, lines, text[first:end]))
    return end


def _name(text: str) -> str:
    """What a declaration declares, or ""."""
    if re.match(r"\s*using\s+namespace\b", text):
        return ""
    head = re.sub(r"\btemplate\s*<[^;{}()]*>(?=\s*[A-Za-z_])", " ", text)
    while match := _ATTRIBUTE.search(head):
        head = head[: match.start()] + head[closing(head, match.end() - 1) + 1 :]
    if match := re.match(r"\s*(?:typedef\s+)?(?:struct|class|union|enum|using)\s+(\w+)", head):
        return match[1]
    words = _WORD.findall(re.split(r"[(=\[;{]", head.lstrip(), maxsplit=1)[0])
    return words[-1] if words else ""


def needed(code: str, kernels: set[str]) -> set[str]:
    """The words in what the kernels use, directly or through other declarations and macros."""
    macro = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)((?:\\\n|[^\n])*)", re.MULTILINE)
    waiting = [(one.name, one.text) for one in declarations(code)] + macro.findall(masked(code))
    words = set(kernels)
    while used := [text for name, text in waiting if name in words]:
        waiting = [(name, text) for name, text in waiting if name not in words]
        words.update(word for text in used for word in _WORD.findall(text))
    return words


def is_for_the_host(declaration: Declaration) -> bool:
    """Whether it is a function that only the host can call, or a variable of the host's libraries.

    The missing qualifier alone does not tell: a source for NVRTC may leave it out.
    """
    head = declaration.text.partition("{")[0]
    if _DEVICE.search(head) or _TYPE.match(head):
        return False
    return bool(_HOST_ONLY.search(declaration.text))


def without(code: str, left_out: list[Declaration]) -> str:
    """`code` with blanks for some declarations; the lines stay where they are."""
    for one in left_out:
        code = code[: one.first] + _blank(code[one.first : one.end]) + code[one.end :]
    return code


def without_lines(code: str, lines: set[int]) -> str:
    """`code` with empty lines for some, such as an `#include` of what is not there."""
    kept = code.split("\n")
    return "\n".join("" if number in lines else line for number, line in enumerate(kept, 1))


def unsupported(code: str, lines: list[int]) -> str:
    """What the lines use that is not available on the CPU, or ""."""
    text = masked(code).split("\n")
    for line in lines:
        for pattern, feature in _FEATURES:
            if 0 < line <= len(text) and re.search(pattern, text[line - 1]):
                return f"line {line}: {feature}: not available on the CPU, needs a GPU"
    return ""


def _blank(text: str) -> str:
    return re.sub(r"[^\n]", " ", text)
