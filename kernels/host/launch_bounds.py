"""`__launch_bounds__` of a CUDA C source: how many threads a block of each kernel may have.

The number is any constant expression of the source, of a template's parameters too, so the C++
compiler evaluates it: a variable beside each kernel, a template where the kernel is one.
"""

from __future__ import annotations

import re

from .source import closing, declared_kernels, masked, split

_TEMPLATE = re.compile(r"template\b.*>", re.DOTALL)
_SPECIAL = re.compile(r"\btemplate\s*<\s*>[^;{}]*\b(\w+)\s*<")
_WORD = re.compile(r"__launch_bounds__\s*\(")


def bounded(code: str) -> dict[str, tuple[int, str]]:
    """By the name of a kernel: where its definition ends, and what is to be put there.

    A name that several kernels have (overloads, specialisations) is left out, and what a macro
    writes.
    """
    text = masked(code)
    found: dict[str, tuple[int, str]] = {}
    several = {match[1] for match in _SPECIAL.finditer(text)}
    for name, start, word, parameters in declared_kernels(text):
        body = re.compile(r"\s*\{").match(text, closing(text, parameters) + 1)
        bound = _WORD.search(text, start, parameters)
        if not body or not bound:
            continue
        several.update([name] if name in found else [])
        template = _TEMPLATE.match(text, start, min(word, bound.start()))
        head = code[start : template.end()] if template else ""
        written = split(text[bound.end() : closing(text, bound.end() - 1)])
        line = text[text.rfind("\n", 0, start) + 1 : start]
        if written and masked(head) == head and not line.lstrip().startswith("#"):
            declared = f" {head} constexpr unsigned mgh_bound_of_{name} = ({written[0]});"
            found[name] = closing(text, body.end() - 1) + 1, re.sub(r"\s+", " ", declared)
    return {name: place for name, place in found.items() if name not in several}


def with_bounds(code: str) -> str:
    """`code` with those variables."""
    for at, declared in sorted(bounded(code).values(), reverse=True):
        code = code[:at] + declared + code[at:]
    return code


def export(number: int, kernel: str, bounded: dict[str, tuple[int, str]]) -> str:
    """What exports the number of threads for a kernel as it is named (`ns::k<float>`), or ""."""
    match = re.fullmatch(r"((?:\w+::)*)(\w+)\s*(<.*)?", kernel.strip(), re.DOTALL)
    if not match or match[2] not in bounded:
        return ""
    return f"MGH_BOUND({number}, {match[1]}mgh_bound_of_{match[2]}{match[3] or ''})"
