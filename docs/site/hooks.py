"""What the site has beside the pages of docs/: README.md as its first page, the notebooks with
their stored outputs, and a reference made from signatures and docstrings.
"""

from __future__ import annotations

import base64
import importlib
import inspect
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from pygments.formatters import HtmlFormatter

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
REFERENCE = (
    "kernels",
    "kernels.lab",
    "minigrad",
    "minigrad.Tensor",
    "minigrad.autograd",
    "minigrad.nn",
    "minigrad.nn.functional",
    "minigrad.nn.init",
    "minigrad.nn.utils",
    "minigrad.optim",
    "minigrad.optim.lr_scheduler",
    "minigrad.utils.data",
    "minigrad.datasets",
    "minigrad.backends",
    "minigrad.viz",
)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Fill the two sections of the navigation whose pages are made here."""
    pages = {
        "Course": [f"notebooks/{path.stem}.md" for path in NOTEBOOKS],
        "API reference": [{name: f"api/{name}.md"} for name in REFERENCE],
    }
    for section in config.nav:
        if isinstance(section, dict):
            section.update({name: pages[name] for name in section if name in pages})
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages and pictures."""
    made = {"index.md": (ROOT / "README.md").read_text()}
    made["pygments.css"] = HtmlFormatter(style="tango").get_style_defs(".codehilite")
    for path in NOTEBOOKS:
        made |= notebook_files(path)
    made |= {f"api/{name}.md": reference_page(name) for name in REFERENCE}
    for uri, content in made.items():
        files.append(File.generated(config, uri, content=content))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Links between files of the project become links between pages."""
    written_in_docs = not page.file.generated_by

    def link(found: re.Match[str]) -> str:
        target = found[2].replace("docs/", "").replace(".ipynb", ".md")
        if written_in_docs:
            target = target.removeprefix("../").replace("README.md", "index.md")
        return f"{found[1]}({target})"

    return re.sub(r"(\[[^\]\n]*\])\(([\w./-]+\.(?:md|ipynb)(?:#[\w-]+)?)\)", link, markdown)


def notebook_files(path: Path) -> dict[str, str | bytes]:
    """A notebook as Markdown, and the pictures of its outputs."""
    parts: list[str] = []
    pictures: dict[str, str | bytes] = {}
    for cell in json.loads(path.read_text())["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(unfolding(source))
            continue
        parts.append(f"~~~python\n{source}\n~~~")
        for output in cell["outputs"]:
            data = output.get("data", {})
            text = "".join(output.get("text") or data["text/plain"]).rstrip()
            if "image/png" in data:
                name = f"{path.stem}-{len(pictures)}.png"
                pictures[f"notebooks/{name}"] = base64.b64decode("".join(data["image/png"]))
                title = re.sub(r"[\[\]`]", "", text.partition("\n")[0])
                parts.append(f"![{title}]({name})")
            else:
                parts.append(f"~~~text\n{text}\n~~~")
    return {f"notebooks/{path.stem}.md": "\n\n".join(parts), **pictures}


def unfolding(source: str) -> str:
    """Hints and answers as Python-Markdown reads them: a line each, in lists indented by four."""

    def one_line(found: re.Match[str]) -> str:
        indent, kind = ("    ", "") if found[1] else ("", ' markdown="span"')
        text = " ".join(found[3].split())
        return f"{indent}<details{kind}><summary>{found[2]}</summary> {text}</details>"

    fold = r"(?ms)^( *)<details><summary>(\w+)</summary>\n\n(.*?)\n\n *</details>"
    return re.sub(r"(?m)^ {3}(?=\S)", " " * 4, re.sub(fold, one_line, source))


def resolve(name: str) -> Any:
    """The module, or the class in one, with this full name."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        module, _, attribute = name.rpartition(".")
        return getattr(importlib.import_module(module), attribute)


def reference_page(name: str) -> str:
    """The docstring of a module or class, then its public members in alphabetical order."""
    owner = resolve(name)
    parts = [f"# {name}", inspect.getdoc(owner) or ""]
    for key, value in members(owner):
        kind = "class " if inspect.isclass(value) else ""
        parts += [f"## {key}", f"~~~python\n{kind}{key}{signature(value)}\n~~~"]
        parts.append(inspect.getdoc(value) or "")
        if inspect.isclass(value):
            parts += list(methods(value))
    return "\n\n".join(parts)


def members(owner: Any) -> Iterator[tuple[str, Any]]:
    """The public functions and classes of a module, or the methods of a class."""
    find = inspect.getattr_static if inspect.isclass(owner) else getattr
    names = dir(owner) if owner.__name__ == "kernels" else getattr(owner, "__all__", dir(owner))
    for key in sorted(names):
        value = find(owner, key)
        value = getattr(value, "__func__", getattr(value, "fget", value))
        ours = str(getattr(value, "__module__", "")).startswith(("minigrad", "kernels"))
        if callable(value) and ours and not key.startswith("_") and inspect.getdoc(value):
            yield key, value


def methods(owner: type) -> Iterator[str]:
    """The methods that a class defines and documents itself."""
    for key, value in vars(owner).items():
        value = getattr(value, "__func__", value)
        if inspect.isfunction(value) and not key.startswith("_") and value.__doc__:
            yield f"**`{key}{signature(value)}`**"
            yield inspect.getdoc(value)


def signature(value: Any) -> str:
    if isinstance(value, ModuleType):
        return ""
    try:
        text = str(inspect.signature(value))
    except (TypeError, ValueError):  # of classes written in C, and of some dispatchers
        return "(...)"
    text = re.sub(r" at 0x[0-9a-f]+", "", text).replace("'", "")
    return re.sub(r"ForwardRef\(([^()]*)\)", r"\1", text)  # in the types of a NamedTuple
