"""The table of GPUs: each figure computed again from SMs and clock; the roofline."""

from __future__ import annotations

import math

import pytest

from kernels.lab.gpu_model.gpus import GPUS, PRECISIONS, SOURCES, gpu
from kernels.lab.gpu_model.occupancy import LIMITS
from kernels.lab.gpu_model.roofline import roofline

#: multiply-adds a clock of an SM: float32, then float16 on tensor cores that add up in float32
FP32 = {(7, 0): 64, (7, 5): 64, (8, 0): 64}  # 128 on all others
FP16 = {(7, 0): 512, (7, 5): 512, (8, 0): 1024, (8, 6): 512, (8, 9): 512, (9, 0): 2048,
        (10, 0): 4096, (12, 0): 512}  # fmt: skip


def rates(card):
    """TFLOP/s by precision, from SMs x clock x rate; GeForce cards have half rate with float32
    sums, not with integers."""
    clock = 2 * card.sms * card.boost / 1e6
    tensor = FP16[card.cc] // (2 if card.kind == "consumer" else 1)
    whole = FP16[card.cc] * 2
    yield "fp32", FP32.get(card.cc, 128) * clock
    yield "fp16", tensor * clock
    yield "bf16", tensor * clock if card.cc >= (8, 0) else None
    yield "tf32", tensor / 2 * clock if card.cc >= (8, 0) else None
    yield "int8", whole * clock if card.cc > (7, 0) else None


@pytest.mark.parametrize("card", GPUS, ids=[card.name for card in GPUS])
def test_arithmetic_is_that_of_its_sms_and_clock(card):
    for precision, computed in rates(card):
        stated = card.peak(precision)
        if computed is None:
            assert stated is None, precision
        elif card.cc >= (9, 0) and card.kind == "data centre" and precision != "fp32":
            # these lower their clock for tensor cores: the datasheet has less than the product
            assert 0.9 * computed < stated < 1.01 * computed, precision
        else:
            assert stated == pytest.approx(computed, rel=0.021), precision


@pytest.mark.parametrize("card", GPUS, ids=[card.name for card in GPUS])
def test_a_row_is_plausible(card):
    assert card.kind in ("data centre", "consumer")
    assert card.cc in LIMITS
    assert 4 <= card.memory <= 200
    assert 200 <= card.bandwidth <= 8000
    assert 50 <= card.power <= 1200
    assert set(card.price) == {"$"}
    assert card.source in SOURCES.values()
    # years of chips: from 3 to 30 operations in float32 for a byte
    assert 3 < card.fp32 * 1000 / card.bandwidth < 130


def test_names_are_found_by_their_words():
    assert gpu("RTX 4090").name == "GeForce RTX 4090"
    assert gpu("h100 sxm").name == "H100 SXM 80GB"
    assert gpu("a100 80gb").memory == 80
    assert gpu("L4").name == "L4"
    assert gpu(GPUS[3]) is GPUS[3]
    assert len({card.name for card in GPUS}) == len(GPUS)
    with pytest.raises(ValueError, match="got 'GTX 285'; there are V100"):
        gpu("GTX 285")
    with pytest.raises(ValueError, match="precision: expected one of"):
        gpu("T4").peak("fp4")
    assert PRECISIONS[0] == "fp32"


def test_a_roofline_by_hand():
    """H200: 67 TFLOP/s and 4.8 TB/s meet at 13.96 operations per byte."""
    found = roofline({"add": (1e6, 12e6), "matmul": (2 * 4096**3, 3 * 4 * 4096**2)}, "H200")
    add, matmul = found.points
    assert found.ridge == pytest.approx(67e12 / 4.8e12)
    assert (found.bound(add), found.bound(matmul)) == ("memory", "arithmetic")
    assert found.attainable(add) == pytest.approx(4.8e12 / 12)
    assert found.seconds(add) == pytest.approx(12e6 / 4.8e12)
    assert found.attainable(matmul) == 67e12
    assert found.seconds(matmul) == pytest.approx(2 * 4096**3 / 67e12)
    assert "matmul: 137.44 GFLOP, 201.33 MB, 682.67 FLOP per byte: limited by arithmetic" in str(
        found
    )
    assert "add: 1 MFLOP, 12 MB, 0.08 FLOP per byte: limited by memory" in str(found)


def test_a_roofline_of_a_report_and_a_measured_time():
    class Report:
        name, flops, global_bytes = "saxpy", 2e9, 12e9

    (point,) = roofline(Report(), "RTX 4090").points
    assert (point.name, point.intensity) == ("saxpy", 1 / 6)
    half = roofline((2e9, 12e9, 2 * 12e9 / 1008e9), "RTX 4090")
    assert "50% of the roof" in str(half)
    assert roofline((5.0, 0), "T4").points[0].intensity == math.inf


def test_the_picture_stands_where_it_should():
    picture = roofline({"a": (1e9, 1e9, 1e-2), "b": (1e12, 1e9)}, "A100 SXM").picture()
    assert "Roofline: A100 SXM 80GB, fp32" in picture.title
    path = next(s for kind, s in picture.shapes if kind == "path" and s["stroke"] == "#2f6db8")
    (x0, y0), (x1, y1), (x2, y2) = path["points"]
    assert x0 < x1 < x2
    assert y0 > y1 == y2  # rises, then level
    marks = [s for kind, s in picture.shapes if kind == "rect" and s["rx"] == 4]
    assert len(marks) == 3  # two kernels under the roof, one of them measured
    assert marks[0]["x"] < marks[2]["x"]


LADDER = {"naive": (5.2e5, 8.8e6), "coalesced": (5.2e5, 1.3e6), "tiled": (5.2e5, 1.5e5)}


@pytest.mark.parametrize("card", ["T4", "RTX 4060", "H100 SXM"])
@pytest.mark.parametrize("work", [LADDER, {"a": (1e9, 1e9, 10.0)}, {"a": (1e3, 1e9)}])
def test_the_slope_of_the_roof_is_the_bandwidth(card, work):
    """A decade to the right is a decade up, and kernels that reach the roof lie on it."""
    found = roofline(work, card)
    picture = found.picture()
    path = next(s for kind, s in picture.shapes if kind == "path" and s["stroke"] == "#2f6db8")
    (x0, y0), (x1, y1), _ = path["points"]
    rules = [s["points"] for kind, s in picture.shapes if kind == "path"]
    columns = sorted(a[0] for a, b, *_ in rules if a[0] == b[0] and b[1] - a[1] > 200)
    rows = sorted(a[1] for a, b, *rest in rules if a[1] == b[1] and not rest)
    decade, up = columns[1] - columns[0], rows[1] - rows[0]
    assert (y0 - y1) / up == pytest.approx((x1 - x0) / decade)
    assert columns[0] <= x0 and y0 <= rows[-1]
    marks = [
        (s["x"] + 4, s["y"] + 4)
        for kind, s in picture.shapes
        if kind == "rect" and s["rx"] == 4 and s["fill"] == "#ffffff"
    ]
    assert len(marks) == len(work)
    for x, y in marks:
        assert y == pytest.approx(y1 + max(x1 - x, 0) * up / decade)


def test_mistakes_are_named():
    with pytest.raises(ValueError, match="V100 SXM2 32GB has no tensor cores for bf16"):
        roofline((1, 1), "V100", "bf16")
    with pytest.raises(TypeError, match=r"\(operations, bytes\[, seconds\]\)"):
        roofline(3.0, "V100")
