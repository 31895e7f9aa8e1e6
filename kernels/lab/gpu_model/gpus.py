"""A table of NVIDIA GPUs: what their makers say they can do at most.

Arithmetic is in TFLOP/s (INT8: TOP/s) at the boost clock, dense (not the doubled figures "with
sparsity"), and tensor cores add up in float32, as training needs; on GeForce cards that is half
the rate of float16 sums which advertisements quote. Memory is in 10^9 bytes, as on the box,
bandwidth in 10^9 bytes per second, the second cache level (L2) in MiB, power in watts (TGP, TDP).
None: the chip has no such unit.

The price class is a rough order, since prices of data-centre cards are not published: $ below 500
US dollars when it came out, $$ below 1000, $$$ below 3000, $$$$ below 12 000, $$$$$ above.

Each row names the document of NVIDIA's that states its figures; they were checked against public
copies of the specifications, and the tests compute the arithmetic again, as SMs x clock x rate of
an SM.
"""

from __future__ import annotations

from typing import NamedTuple

from kernels.support.names import did_you_mean


class GPU(NamedTuple):
    """One card. kind is "data centre" or "consumer", cc its compute capability, boost in MHz."""

    name: str
    kind: str
    cc: tuple[int, int]
    sms: int
    boost: int
    fp32: float
    tf32: float | None
    fp16: float | None
    bf16: float | None
    int8: float | None
    memory: float
    bandwidth: float
    l2: float
    power: int
    price: str
    source: str

    def peak(self, precision: str) -> float | None:
        """TFLOP/s in "fp32" (CUDA cores), "tf32", "fp16", "bf16" or "int8" (tensor cores)."""
        if precision not in PRECISIONS:
            raise ValueError(f"precision: expected one of {list(PRECISIONS)}, got {precision!r}")
        return getattr(self, precision)


PRECISIONS = ("fp32", "tf32", "fp16", "bf16", "int8")
SOURCES = {
    "volta": "NVIDIA Tesla V100 GPU Architecture (whitepaper)",
    "turing": "NVIDIA Turing GPU Architecture (whitepaper)",
    "a100": "NVIDIA A100 Tensor Core GPU Architecture (whitepaper), A100 datasheet",
    "ga102": "NVIDIA Ampere GA102 GPU Architecture (whitepaper)",
    "ada": "NVIDIA Ada GPU Architecture (whitepaper)",
    "hopper": "NVIDIA H100 Tensor Core GPU Architecture (whitepaper), H100 datasheet",
    "rtx50": "NVIDIA RTX Blackwell GPU Architecture (whitepaper)",
    "sheet": "NVIDIA datasheet of the card (figures with sparsity halved)",
    "board": "NVIDIA HGX B200 datasheet (an eighth of the board, figures with sparsity halved)",
    "page": "NVIDIA product page; arithmetic: its SMs and clock times the rate of an SM in the "
    "whitepaper of its generation",
}
_TABLE = """
data centre             cc SMs  MHz  fp32  tf32  fp16  bf16  int8  GB  GB/s  L2    W price source
V100 SXM2 32GB         7.0  80 1530  15.7     -   125     -     -  32   900   6  300 $$$$  volta
T4                     7.5  40 1590   8.1     -    65     -   130  16   320   4   70 $$$   turing
A100 PCIe 40GB         8.0 108 1410  19.5   156   312   312   624  40  1555  40  250 $$$$  a100
A100 SXM 80GB          8.0 108 1410  19.5   156   312   312   624  80  2039  40  400 $$$$$ a100
A10                    8.6  72 1695  31.2  62.5   125   125   250  24   600   6  150 $$$$  sheet
A40                    8.6  84 1740  37.4  74.8 149.7 149.7 299.3  48   696   6  300 $$$$  sheet
RTX A6000              8.6  84 1800  38.7  77.4 154.8 154.8 309.7  48   768   6  300 $$$$  sheet
L4                     8.9  58 2040  30.3    60   121   121 242.5  24   300  48   72 $$$   sheet
L40S                   8.9 142 2520  91.6   183   362   362   733  48   864  96  350 $$$$  sheet
H100 PCIe 80GB         9.0 114 1755    51   378   756   756  1513  80  2000  50  350 $$$$$ hopper
H100 SXM 80GB          9.0 132 1980    67 494.5   989   989  1979  80  3350  50  700 $$$$$ hopper
H200 SXM 141GB         9.0 132 1980    67 494.5   989   989  1979 141  4800  50  700 $$$$$ sheet
B200 SXM 180GB        10.0 148 1980    75  1125  2250  2250  4500 180  7700 126 1000 $$$$$ board
consumer                cc SMs  MHz  fp32  tf32  fp16  bf16  int8  GB  GB/s  L2    W price source
GeForce RTX 2080 Ti    7.5  68 1545  13.4     -  53.8     - 215.2  11   616 5.5  250 $$    turing
GeForce RTX 3060 12GB  8.6  28 1777  12.7  12.7  25.5  25.5 101.9  12   360   3  170 $     page
GeForce RTX 3080 10GB  8.6  68 1710  29.8  29.8  59.5  59.5   238  10   760   5  320 $$    ga102
GeForce RTX 3090       8.6  82 1695  35.6  35.6    71    71   284  24   936   6  350 $$$   ga102
GeForce RTX 4060       8.9  24 2460  15.1  15.1  30.2  30.2 120.9   8   272  24  115 $     page
GeForce RTX 4070       8.9  46 2475  29.1  29.1  58.3  58.3 233.2  12   504  36  200 $$    page
GeForce RTX 4080       8.9  76 2505  48.7  48.7  97.5  97.5 389.9  16 716.8  64  320 $$$   ada
GeForce RTX 4090       8.9 128 2520  82.6  82.6 165.2 165.2 660.6  24  1008  72  450 $$$   ada
GeForce RTX 5070      12.0  48 2512  30.9  30.9  61.7  61.7 246.9  12   672  48  250 $$    rtx50
GeForce RTX 5080      12.0  84 2617  56.3  56.3 112.6 112.6 450.2  16   960  64  360 $$    rtx50
GeForce RTX 5090      12.0 170 2407 104.8 104.8 209.5 209.5   838  32  1792  96  575 $$$   rtx50
"""


def _rows() -> list[GPU]:
    """The table, read: fourteen columns after the name; `-` is None."""
    rows, kind = [], ""
    for line in _TABLE.strip().splitlines():
        words = line.split()
        name, (cc, sms, boost, *numbers) = " ".join(words[:-14]), words[-14:]
        if cc == "cc":
            kind = name
            continue
        *figures, power, price, source = numbers
        peaks = [None if f == "-" else float(f) for f in figures]
        capability = tuple(map(int, cc.split(".")))
        row = (name, kind, capability, int(sms), int(boost), *peaks, int(power), price)
        rows.append(GPU(*row, SOURCES[source]))
    return rows


GPUS = tuple(_rows())


def gpu(name: str | GPU) -> GPU:
    """The GPU whose name has all words of `name`: "RTX 4090", "a100 80gb".

    Where several have them, the first of the table that has no further word, else the shortest
    name. Raises ValueError that lists the names.
    """
    if isinstance(name, GPU):
        return name
    words = str(name).lower().split()
    found = [one for one in GPUS if set(words) <= set(one.name.lower().split())]
    if not words or not found:
        names = [one.name for one in GPUS]
        short = [one.removeprefix("GeForce ") for one in names]
        near = did_you_mean(str(name), [*names, *short]) or f"; there are {', '.join(names)}"
        raise ValueError(f"gpu: expected a name of the table, got {name!r}{near}")
    return min(found, key=lambda one: len(one.name.split()))
