"""What the innermost loops of all kernels consist of, in machine code for a GPU; no GPU is needed.

    python -m benchmarks.gpu_loops [--cc 8.0] [--out FILE] [matmul ...]

For each row of the catalog, of the kernels that its family declares to be compiled: instructions in
the longest innermost loop, how many of 100 multiply and add (FFMA, or HMMA on tensor cores), and
how many compute integers of 64 bits, as indices do; both in the loop with most multiply-adds, the
longest where there are none. The kernel with most integers of 64 bits counts.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from kernels import lab
from kernels.lab.gpu_model import nvrtc, resources, sass


def machine_code(dialect: str, launches: list, cc: tuple[int, int]) -> list[str]:
    """SASS of what a row of the catalog launches, each kernel once."""
    if dialect == "numba":
        made = {k: lab.compiled(k, *args, cc=cc, lines=False) for k, args in launches}
        return [one.sass() for one in made.values()]
    texts = []
    for raw in dict.fromkeys(kernel.instance(*args) for kernel, args in launches):
        fit, own = nvrtc.targets(raw.code), f"{cc[0]}{cc[1]}"
        *_, cubin = nvrtc.translate(raw.code, [raw.name], f"sm_{own if own in fit else fit[0]}")
        texts.append(sass.sass(cubin))
    return texts


def rows(cc: tuple[int, int], families: list[str]) -> list[tuple]:
    """(family, version, dialect, instructions, share of FFMA or HMMA, share of 64 bits)."""
    found = []
    for dialect in ("numba", "cupy"):
        for (family, version), launches in resources.launched(dialect).items():
            if families and family not in families:
                continue
            texts = machine_code(dialect, launches[:4], cc)
            text = max(texts, key=sass.wide_share)
            length = max((loop.total() for loop in sass.innermost_loops(text)), default=0)
            adds = max(sass.share(text, name) for name in ("FFMA", "HMMA", "HGMMA"))
            found.append((family, version, dialect, length, adds, sass.wide_share(text)))
    return sorted(found)


def page(found: list[tuple], cc: tuple[int, int]) -> str:
    lines = [
        "# The innermost loops of the kernels",
        "",
        f"Machine code for compute capability {cc[0]}.{cc[1]} (`wgmma`: 9.0), of each row of the",
        "catalog the kernel with the most integers of 64 bits in its innermost loop with most",
        "multiply-adds. Written by `python -m benchmarks.gpu_loops`.",
        "",
        "| family | version | dialect | instructions | multiply-adds | 64-bit integers |",
        "| --- | --- | --- | ---: | ---: | ---: |",
    ]
    lines += [
        f"| {family} | {version} | {dialect} | {length} | {adds:.0%} | {wide:.0%} |"
        for family, version, dialect, length, adds, wide in found
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--cc", default="8.0")
    parser.add_argument("--out", type=Path)
    parser.add_argument("families", nargs="*", help="default: all")
    options = parser.parse_args()
    major, minor = map(int, options.cc.split("."))
    text = page(rows((major, minor), options.families), (major, minor))
    if options.out:
        options.out.write_text(text)
    else:
        print(text)


if __name__ == "__main__":
    main()
