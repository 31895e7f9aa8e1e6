"""Writes what every notebook begins with, and stores the outputs of a run.

    python tests/notebooks.py               # badges and the cell that installs the project
    python tests/notebooks.py --run 17 18   # runs these from the top, and stores their outputs

Where the project can be fetched from is said here, once, for all notebooks: ADDRESS.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import nbformat

ADDRESS = ""  # "owner/name" of the repository on GitHub; without one there are no badges
BRANCH = "main"
ROOT = Path(__file__).resolve().parents[1]
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
INSTALL = """\
# Only where the project is not installed yet: {comment}
try:
    import minigrad
except ImportError:
{project}
    %pip install -q {{PROJECT}} matplotlib"""
HERE = '    PROJECT = ".."'
ELSEWHERE = """\
    import os

    PROJECT = ".." if os.path.exists("../pyproject.toml") else "git+https://github.com/{address}\""""
BADGES = {
    "Colab": (
        "https://colab.research.google.com/assets/colab-badge.svg",
        "https://colab.research.google.com/github/{address}/blob/{branch}/notebooks/{name}.ipynb",
    ),
    "Kaggle": (
        "https://kaggle.com/static/images/open-in-kaggle.svg",
        "https://kaggle.com/kernels/welcome?src="
        "https://github.com/{address}/blob/{branch}/notebooks/{name}.ipynb",
    ),
    "Binder": (
        "https://mybinder.org/badge_logo.svg",
        "https://mybinder.org/v2/gh/{address}/{branch}?labpath=notebooks%2F{name}.ipynb",
    ),
}


def install_cell(address: str = ADDRESS) -> str:
    """The first code cell."""
    if address:
        comment = "from a clone of it, or from its repository\n# (Colab, Kaggle, Binder)."
        return INSTALL.format(comment=comment, project=ELSEWHERE.format(address=address))
    comment = "from the folder above, in a clone of it."
    return INSTALL.format(comment=comment, project=HERE)


def badges(name: str, address: str = ADDRESS) -> str:
    """The line of links that open a notebook elsewhere; empty without an address."""
    if not address:
        return ""
    return " ".join(
        f"[![Open in {site}]({image})]({link.format(address=address, branch=BRANCH, name=name)})"
        for site, (image, link) in BADGES.items()
    )


def with_first_cells(notebook: Any, name: str, address: str = ADDRESS) -> Any:
    """The notebook with its badges (below the title) and the install cell for `address`."""
    title, *rest = notebook.cells[0].source.split("\n")
    text = "\n".join(line for line in rest if not line.startswith("[![Open in ")).strip("\n")
    notebook.cells[0].source = "\n\n".join(filter(None, [title, badges(name, address), text]))
    first = next(cell for cell in notebook.cells if cell.cell_type == "code")
    first.source = install_cell(address)
    return notebook


def run(notebook: Any) -> None:
    """Run all cells from the top; outputs and nothing else are kept."""
    import nbclient

    os.environ["PYTHONPATH"] = str(ROOT)
    os.environ["MPLBACKEND"] = "module://matplotlib_inline.backend_inline"
    where = {"metadata": {"path": str(ROOT / "notebooks")}}
    nbclient.NotebookClient(notebook, timeout=600, resources=where).execute()
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    for number, cell in enumerate(code, start=1):
        cell.execution_count, cell.metadata = number, nbformat.from_dict({})
        cell.outputs = _joined(cell.outputs)
        for output in cell.outputs:
            if "execution_count" in output:
                output["execution_count"] = number


def _joined(outputs: list) -> list:
    """Outputs with what was printed in several pieces as one."""
    joined: list = []
    for output in outputs:
        last = joined[-1] if joined else {}
        if output.output_type == "stream" and last.get("name") == output.name:
            last.text += output.text
        else:
            joined.append(output)
    return joined


def write(notebook: Any, path: Path) -> None:
    """Store a notebook with the metadata that viewers need, and no more."""
    notebook.metadata = nbformat.from_dict(METADATA)
    for number, cell in enumerate(notebook.cells):
        cell.id = f"cell-{number:02d}"
    nbformat.validate(notebook)
    path.write_text(nbformat.writes(notebook) + "\n")


def main(arguments: list[str]) -> None:
    wanted = tuple(arguments[1:]) if arguments[:1] == ["--run"] else ()
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        notebook = with_first_cells(nbformat.read(path, as_version=4), path.stem)
        if wanted and path.name.startswith(wanted):
            run(notebook)
        write(notebook, path)


if __name__ == "__main__":
    main(sys.argv[1:])
