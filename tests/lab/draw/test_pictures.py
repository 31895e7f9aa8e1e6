"""Pictures: SVG that stands alone, the PNG and the text beside it, and what they say."""

from __future__ import annotations

import io
import itertools
import math
import re
from xml.etree import ElementTree

import numpy as np
import pytest

import minigrad
from kernels import lab
from kernels.lab.draw.canvas import (
    INK,
    MUTED,
    PAPER,
    PASTELS,
    RAMP,
    RED,
    Picture,
    fitted,
    ink_on,
    shade,
    width_of,
)  # fmt: skip
from kernels.lab.draw.frames import Frames
from kernels.lab.draw.pictures import wavefronts
from kernels.simt import cuda
from kernels.support.errors import KernelError
from kernels.support.names import counted
from minigrad import nn, viz

SVG = "{http://www.w3.org/2000/svg}"


@cuda.jit
def block_sum(x, out):
    partial = cuda.shared.array(16, np.float32)
    t = cuda.threadIdx.x
    partial[t] = x[cuda.grid(1)]
    cuda.syncthreads()
    step = 8
    while step > 0:
        if t < step:
            partial[t] += partial[t + step]
        cuda.syncthreads()
        step //= 2
    if t == 0:
        out[cuda.blockIdx.x] = partial[0]


@cuda.jit
def some_miss_the_barrier(out):
    if cuda.threadIdx.x < 8:
        cuda.syncthreads()
    out[cuda.threadIdx.x] = 1


def step_graph():
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(16, 3))
    with minigrad.backends.use("numpy"):
        output = model(minigrad.zeros(2, 1, 4, 4))
        return nn.functional.cross_entropy(output, minigrad.zeros(2, dtype=minigrad.int64)), model


@cuda.jit
def add_ten(x, out):
    i = cuda.grid(1)
    if i < x.size:
        out[i] = x[i] + np.float32(10)


@cuda.jit
def warp_sum(x, out):
    value = x[cuda.threadIdx.x]
    for step in (16, 8, 4, 2, 1):
        value += cuda.shfl_down_sync(0xFFFFFFFF, value, step)
    if cuda.threadIdx.x == 0:
        out[0] = value


@cuda.jit
def online(x, out):
    top, total = np.float32(-3e38), np.float32(0)
    for j in range(x.size):
        value = x[j]
        larger = max(top, value)
        total = total * math.exp(top - larger) + math.exp(value - larger)
        top = larger
    out[0] = total


def explained():
    """The pictures that explain, from recorded runs, by name."""
    x, out = np.arange(14, dtype=np.float32), np.zeros(14, np.float32)
    added = lab.profile(add_ten, 2, 8, x, out, records=10_000)
    summed = lab.profile(block_sum, 1, 16, np.ones(16, np.float32), out, records=10_000)
    tree = lab.step(warp_sum, 1, 32, np.arange(32, dtype=np.float32), out)
    loop = lab.step(online, 1, 1, np.array([1, 3, 2, 4], np.float32), out)
    return {
        "threads": lab.thread_map(added, "x"),
        "phases": lab.between_barriers(summed, "partial"),
        "footprint": lab.footprint(summed, ["partial", "out"]),
        "shuffles": lab.shuffle_tree(tree),
        "history": lab.history(loop, "value", "top", "total"),
    }


def all_pictures():
    """One of each kind."""
    yield lab.occupancy(40, 2048, 256, 8.6).picture()
    yield lab.roofline({"a & b": (1e9, 1e9, 1e-2)}, "T4").picture()
    yield lab.roofline({name: (1e9, 1e9 + n) for n, name in enumerate("abcdefgh")}, "T4").picture()
    yield lab.occupancy(40, 2048, 256, 8.6).sm_picture()
    yield from explained().values()
    yield lab.launch_picture((4, 4), (16, 8), (30, 60))
    yield lab.launch_picture(4, 64, 250)
    yield lab.sectors_picture(np.arange(32) * 33)
    yield lab.banks_picture(np.arange(32) * 32)
    yield lab.heat_map(np.arange(48).reshape(6, 8), "counts", "sectors")
    yield lab.tile_walk(20, 30, 40, (8, 8, 8), (1, 2)).strip()
    yield lab.barrier_frames(block_sum, 1, 16, np.ones(16), np.zeros(1)).strip()
    loss, model = step_graph()
    yield viz.graph(loss, model)
    with minigrad.backends.use("numpy"), viz.timeline() as timeline:
        (minigrad.ones(3) + 1).sum()
    yield timeline.picture()


@pytest.fixture(scope="module")
def drawn():
    return list(all_pictures())


def test_each_svg_stands_alone(drawn):
    ids = []
    for picture in drawn:
        text = picture.svg()
        root = ElementTree.fromstring(text)
        assert root.tag == f"{SVG}svg"
        assert root.find(f"{SVG}title").text == picture.title
        tags = {element.tag.removeprefix(SVG) for element in root.iter()}
        assert tags <= {"svg", "title", "desc", "rect", "path", "text"}
        assert not re.search(r"style=|<script|class=|href|url\(|NaN|nan|None", text)
        ids += [element.get("id") for element in root.iter() if element.get("id")]
        assert root.get("aria-labelledby") == ids[-1]
        assert len(text) < 60_000
        assert len(picture.text) > 40
        assert str(picture) == picture.text
    assert len(set(ids)) == len(ids) == len(drawn)


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(a: str, b: str) -> float:
    """As the Web Content Accessibility Guidelines define it; 4.5 is enough for small text."""
    light, dark = sorted((luminance(a), luminance(b)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def test_text_is_readable_whatever_the_page(drawn):
    """Each picture brings its own background, and its texts contrast with it."""
    for picture in drawn:
        kind, first = picture.shapes[0]
        assert (kind, first["fill"]) == ("rect", PAPER)
        assert first["width"] >= picture.width - 1
        assert first["height"] >= picture.height - 1
        inks = {shape["fill"] for kind, shape in picture.shapes if kind == "text"}
        assert min(contrast(ink, PAPER) for ink in inks - {"#ffffff"}) > 4.5
    assert min(contrast(INK, fill) for fill in PASTELS) > 7
    assert contrast("#ffffff", RAMP[5]) > 4.5
    assert contrast(INK, RAMP[4]) > 4.5
    assert contrast(MUTED, PAPER) > 4.5


def test_nothing_is_drawn_outside_the_page(drawn):
    for picture in drawn:
        for kind, shape in picture.shapes:
            if kind == "text":
                points = [(shape["x"], shape["y"])]
            elif kind == "rect":
                points = [(shape["x"] + shape["width"], shape["y"] + shape["height"])]
            elif kind == "boxes":
                points = [(x + w, y + h) for x, y, w, h in shape["boxes"]]
            else:
                points = shape["points"]
            for x, y in points:
                assert -1 <= x <= picture.width + 1, (picture.title, kind, shape)
                assert -1 <= y <= picture.height + 1, (picture.title, kind, shape)


def test_png_and_files(drawn, tmp_path):
    for ending, start in ((".png", b"\x89PNG"), (".svg", b"<svg"), (".txt", b"Occupancy")):
        drawn[0].save(tmp_path / f"a{ending}")
        assert (tmp_path / f"a{ending}").read_bytes().startswith(start)
    for picture in (drawn[6], drawn[9]):
        data = picture.png(scale=1)
        width, height = (int.from_bytes(data[i : i + 4], "big") for i in (16, 20))
        assert (width, height) == (int(picture.width), int(picture.height))
    assert set(drawn[0]._repr_mimebundle_()) == {"image/svg+xml", "image/png", "text/plain"}
    with pytest.raises(ValueError, match=r"saved as \.svg, \.png or \.txt, not \.gif"):
        drawn[0].save(tmp_path / "a.gif")


def test_in_a_notebook_facts_are_shown_as_pictures_with_their_text():
    for fact in (lab.occupancy(40, 0, 256, 8.0), lab.roofline((1e9, 1e9), "T4")):
        bundle = fact._repr_mimebundle_()
        assert bundle["text/plain"] == str(fact)
        assert bundle["image/svg+xml"] == fact.picture().svg()


def test_without_matplotlib_the_svg_remains(monkeypatch, drawn):
    monkeypatch.setitem(__import__("sys").modules, "matplotlib.figure", None)
    assert set(drawn[0]._repr_mimebundle_()) == {"image/svg+xml", "text/plain"}
    with pytest.raises(RuntimeError, match=r"pip install 'minigrad\[plot\]'"):
        drawn[0].png()


def test_ten_thousand_threads_are_a_small_file():
    for picture in (
        lab.launch_picture((4096, 4096), (32, 32), (100_000, 131_072)),
        lab.launch_picture(1 << 20, 1024, 10**9),
        lab.heat_map(np.random.default_rng(0).random((2000, 3000)), "reads"),
    ):
        assert len(picture.svg()) < 130_000  # noise, of which no two cells are alike
    table = [[PASTELS[(i // 50 + j // 50) % 2] for j in range(100)] for i in range(100)]
    page = Picture(300, 300, "cells")
    page.cells(10, 30, 2, table)
    assert len(page.svg()) < 6_000


def test_markup_in_texts_is_escaped():
    page = Picture(200, 100, "a < b & c", "x > y")
    page.label(10, 50, "<script>", 10)
    root = ElementTree.fromstring(page.svg())
    assert [t.text for t in root.iter(f"{SVG}text")] == ["a < b & c", "<script>"]
    assert fitted("a long line", 20, 10).endswith("…")
    assert [shade(v, 8) for v in (0, 8)] == [RAMP[0], RAMP[-1]]


# what the pictures say


def test_pictures_that_explain_say_what_was_recorded():
    pictures = explained()
    said = {name: picture.text for name, picture in pictures.items()}
    assert "thread 13 reads x[13]" in said["threads"]
    assert "threads without an element: 14, 15" in said["threads"]
    phases = said["phases"].split("-- barrier --")
    assert len(phases) == 6
    assert "thread 7 reads partial[15]" in phases[1] and "thread 7 writes partial[7]" in phases[1]
    assert "thread 4 " not in phases[2]
    assert "partial (shared): 14 accesses, 5 elements" in said["footprint"]
    assert "down 16" in said["shuffles"] and "lane 0 gets 16 from lane 16" in said["shuffles"]
    assert "lane 0 gets 256 from lane 1" in said["shuffles"]
    assert "lane 1 gets" not in said["shuffles"].partition("down 1\n")[2]
    assert "value: 1, 3, 2, 4\ntop: 1, 3, 3, 4\n" in said["history"]
    values = np.array([1, 3, 2, 4.0])
    last = float(said["history"].rpartition(", ")[2])
    assert last == pytest.approx(np.exp(values - 4).sum(), abs=0.01)
    assert all(picture.width <= 1000 for picture in pictures.values())
    filled = lab.occupancy(64, 0, 384, 9.0).sm_picture().text
    assert "2 blocks of 12 warps: 24 of 64" in filled
    assert "registers: 49,152 of 65,536, 75% used" in filled


def test_names_in_a_roofline_do_not_touch():
    picture = lab.roofline({name * 9: (1e9, 1e9) for name in "abcdefgh"}, "T4").picture()
    names = [shape for kind, shape in picture.shapes if kind == "text" and len(shape["text"]) == 9]
    heights = sorted(shape["y"] for shape in names if shape["text"][0] * 9 == shape["text"])
    assert len(heights) == 8 and min(np.diff(heights)) >= 13


def test_too_much_for_a_picture_that_explains_is_refused():
    x = np.ones(64, np.float32)
    report = lab.profile(add_ten, 2, 32, x, x.copy(), records=10_000)
    with pytest.raises(ValueError, match="at most 40 threads and elements, got 64"):
        lab.thread_map(report, "x")
    steps = lab.step(add_ten, 1, 32, x, x.copy())
    with pytest.raises(ValueError, match="warp 0 of add_ten executes no shuffle"):
        lab.shuffle_tree(steps)
    with pytest.raises(ValueError, match="thread 0 of add_ten never assigns 'total'"):
        lab.history(steps, "total")
    with pytest.raises(ValueError, match="name the variables"):
        lab.history(steps)


def test_a_launch_says_what_has_no_element():
    text = lab.launch_picture(4, 64, 250).text
    assert "4 blocks of 64 threads over 250 elements" in text
    assert "6 threads have no element: the kernel needs a guard" in text
    assert "50 elements have no thread" in lab.launch_picture(2, 100, 250).text
    assert "every thread has an element" in lab.launch_picture((2, 2), (8, 8)).text
    along = lab.launch_picture((4, 4), (16, 16), (64, 64)).text
    across = lab.launch_picture((4, 4), (16, 16), (64, 64), x_axis=0).text
    assert "warp 0 touches 2 rows of 16 elements" in along
    assert "warp 0 touches 2 columns of 16 elements" in across
    with pytest.raises(ValueError, match="an array of 1 or 2 dimensions"):
        lab.launch_picture(1, 1, (2, 2, 2))


@pytest.mark.parametrize(
    ("indices", "itemsize", "sectors", "share"),
    [
        (np.arange(32), 4, 4, 100),
        (np.arange(32) + 1, 4, 5, 80),
        (np.arange(32) * 2, 4, 8, 50),
        (np.arange(32) * 32, 4, 32, 12),
        (np.zeros(32, int), 4, 1, 12),
        (np.arange(32), 8, 8, 100),
        (np.arange(8), 16, 4, 100),
    ],
)
def test_sectors_of_a_request(indices, itemsize, sectors, share):
    text = lab.sectors_picture(indices, itemsize).text
    assert f"{counted(sectors, 'sector')} of 32 bytes" in text
    assert f"{share}% of the bytes" in text


@pytest.mark.parametrize(
    ("indices", "itemsize", "turns"),
    [
        (np.arange(32), 4, 1),
        (np.arange(32) * 2, 4, 2),
        (np.arange(32) * 4, 4, 4),
        (np.arange(32) * 32, 4, 32),
        (np.arange(32) * 33, 4, 1),
        (np.zeros(32, int), 4, 1),
        (np.arange(32) // 2 * 32, 4, 16),
        (np.arange(32), 8, 2),
        (np.arange(32), 16, 4),
        (np.arange(32), 1, 1),
        (np.arange(5), 4, 1),
    ],
)
def test_wavefronts_of_a_request(indices, itemsize, turns):
    found = wavefronts(indices, itemsize)
    assert len(found) == turns
    served = sorted({lane for turn in found for lanes in turn.values() for lane in lanes})
    assert served == list(range(len(indices)))
    assert f"{turns} wavefront" in lab.banks_picture(indices, itemsize).text


def test_mistakes_of_requests_are_named():
    with pytest.raises(ValueError, match="1 to 32 lanes, got 33"):
        lab.sectors_picture(range(33))
    with pytest.raises(ValueError, match="1, 2, 4, 8 or 16 bytes, got 3"):
        lab.banks_picture(range(4), 3)
    with pytest.raises(ValueError, match="a table of counts"):
        lab.heat_map(np.zeros((2, 2, 2)), "t")
    with pytest.raises(ValueError, match="finite"):
        lab.heat_map([[1, math.nan]], "t")


def test_a_heat_map_takes_means_of_areas():
    text = lab.heat_map(np.ones((130, 64)), "reads").text
    assert "130x64, from 1 to 1" in text
    assert "means of 3x1" in text


def test_long_names_of_columns_do_not_touch():
    picture = lab.heat_map(np.eye(3), "t", columns=[f"column number {i}" for i in range(3)])
    names = [one for kind, one in picture.shapes if kind == "text" and "col" in one["text"]]
    assert len(names) == 3
    gap = min(b["x"] - a["x"] for a, b in itertools.pairwise(names))
    assert all(width_of(one["text"], 11) < gap for one in names)


def test_merged_blocks_end_above_the_words_below():
    """100 rows of blocks are drawn as 15 of 7."""
    picture = lab.launch_picture((100, 100), (32, 32), (3000, 3000))
    words = next(o for kind, o in picture.shapes if kind == "text" and o["text"][:3] == "red")
    boxes = [box for kind, one in picture.shapes if kind == "boxes" for box in one["boxes"]]
    assert max(y + high for x, y, _, high in boxes if x < 320) < words["y"] - 9


def test_the_walk_over_tiles():
    frames = lab.tile_walk(64, 48, 96, (16, 16, 16), (1, 2))
    assert len(frames) == 4  # the first three steps and the last of six
    assert "16x16, depth 16: block (1, 2) takes 6 steps" in frames.text
    assert "4 FLOP per byte" in frames.text
    assert "load a[16:32, 80:96] and b[80:96, 32:48]" in frames[-1].text
    assert "load a[16:20, 8:12]" in lab.tile_walk(20, 9, 12, (8, 8, 8), (2, 0))[1].text
    with pytest.raises(ValueError, match="block \\(4, 0\\) is not one of 4 x 3"):
        lab.tile_walk(64, 48, 96, (16, 16, 16), (4, 0))


def test_a_block_passes_its_barriers():
    x, out = np.arange(32, dtype=np.float32), np.zeros(2, np.float32)
    found = lab.step(block_sum, 2, 16, x, out, at=(1, 0, 0))
    assert out.tolist() == [0, 0]  # a copy was computed on
    assert [s.waiting for s in found] == [16] * 5 + [0]
    partial = [s.shared["partial"] for s in found]
    assert partial[0].tolist() == x[16:].tolist()
    assert partial[1][:8].tolist() == (x[16:24] + x[24:]).tolist()
    assert partial[-1][0] == x[16:].sum()
    assert found[0].changed == {}
    assert found[-1].changed == {"out": 1}
    frames = lab.barrier_frames(block_sum, 2, 16, x, out, at=(1, 0, 0))
    assert "barrier 2 of 5: 16 threads wait at line" in frames[1].text
    assert "changed in global memory so far: 1 element of out" in frames[-1].text
    html = frames.html()
    assert html.count("<svg") == 6
    assert html.count("display:none") == 5  # without a script, the first is what one sees
    assert "http" not in html.replace("http://www.w3.org/2000/svg", "")


def test_any_threads_variables_can_be_looked_at():
    found = lab.step(block_sum, 2, 16, np.ones(32, np.float32), np.zeros(2), at=(1,))
    assert [s.thread(3)["t"] for s in found] == [3] * 6
    assert [s.thread(0)["step"] for s in found[1:]] == [8, 4, 2, 1, 0]
    assert "step" not in found[0].thread(0)  # the line that makes it is still to come
    assert set(found[0].thread(0)) == {"t"}  # arrays are not variables of a thread
    text = str(found[0])
    assert text.startswith(f"at line {found[0].line}: 16 threads wait\n  partial = [1. 1.")
    assert "thread 2: t = 2" in text
    assert "see thread(x, y, z)" in text
    with pytest.raises(IndexError, match=r"thread \(16, 0, 0\) is not in a block of \(16, 1, 1\)"):
        found[0].thread(16)


def test_dynamic_shared_memory_and_local_arrays_and_two_dimensions():
    @cuda.jit
    def kernel(out):
        dynamic = cuda.shared.array(0, np.float32)
        local = cuda.local.array(2, np.int32)
        x, y = cuda.threadIdx.x, cuda.threadIdx.y
        local[0], local[1] = x, y
        dynamic[y * 4 + x] = x + 10 * y
        cuda.syncthreads()
        out[y, x] = dynamic[(1 - y) * 4 + x]

    first, end = lab.step(kernel, 1, (4, 2), np.zeros((2, 4)), shared=32)
    assert first.shared["dynamic"].tolist() == [0, 1, 2, 3, 10, 11, 12, 13]
    assert first.thread(3, 1)["local"].tolist() == [3, 1]
    assert first.thread(3, 1)["x"] == 3
    assert end.changed == {"out": 7}  # out[1, 0] becomes 0, which it was


def test_large_shared_arrays_show_their_first_values():
    @cuda.jit
    def kernel(out):
        long = cuda.shared.array(20, np.int32)
        wide = cuda.shared.array((32, 33), np.float64)
        deep = cuda.shared.array((2, 3, 4), np.float32)
        t = cuda.threadIdx.x
        if t < 19:
            long[t] = t - 1  # -1, too, has been written
        wide[t, 2] = 0.5
        cuda.syncthreads()
        deep[1, 2, 3] = 7
        out[0] = long[0]

    first, end = lab.barrier_frames(kernel, 1, 32, np.ones(1))
    rows = first.text.splitlines()
    at = rows.index("long (20):")
    assert rows[at + 1].split() == [str(i) for i in range(-1, 15)]
    assert rows[at + 2].split() == ["15", "16", "17", "·"]
    at = rows.index("wide (32, 33), its first 16 x 16:")
    assert rows[at + 1].split()[:4] == ["·", "·", "0.5", "·"]
    rows = end.text.splitlines()
    assert rows[rows.index("deep (2, 3, 4):") + 6].split() == ["·", "·", "·", "7"]
    lab.barrier_frames(kernel, 1, 32, np.ones(1)).png(scale=1)


def test_a_breakpoint_in_a_kernel_stops_there(monkeypatch):
    stops = []
    monkeypatch.setattr("sys.breakpointhook", lambda: stops.append(len(stops)))

    @cuda.jit
    def kernel(out):
        if cuda.threadIdx.x == 2:
            breakpoint()
        out[cuda.threadIdx.x] = 1

    lab.step(kernel, 1, 4, np.zeros(4))
    assert stops == [0]


def test_barriers_that_fail_and_blocks_that_are_not_there():
    with pytest.raises(KernelError, match="barrier"):
        lab.barrier_frames(some_miss_the_barrier, 1, 16, np.zeros(16))
    with pytest.raises(ValueError, match=r"block \(3, 0, 0\) is not in the grid"):
        lab.barrier_frames(block_sum, 2, 16, np.ones(32), np.ones(2), at=(3, 0, 0))
    with pytest.raises(ValueError, match="at least one picture"):
        Frames([])


def test_the_graph_names_operations_shapes_leaves_and_kernels():
    loss, model = step_graph()
    lines = viz.graph(loss, model).text.splitlines()
    assert lines[0] == f"Autograd graph: {len(lines) - 1} operations"
    assert (
        "Conv2d -> (2, 4, 2, 2) float32  from data (2, 1, 4, 4), 0.weight (4, 1, 3, 3)" in lines[1]
    )
    assert "kernels: conv2d; gradient: conv2d_backward_weight, reduce.sum" in lines[1]
    assert "kernels: a view: no kernel; gradient: no kernel" in lines[3]
    assert "3.weight (3, 16)" in lines[4]
    assert "kernels: matmul; gradient: reduce.sum, matmul" in lines[4]
    assert "gradient: cross_entropy_backward" in lines[5]


def test_the_gradient_of_a_broadcast_bias_is_a_sum():
    x, bias = minigrad.zeros(4, 3, requires_grad=True), minigrad.zeros(3, requires_grad=True)
    add, bias_alone = (viz.graph(y).text.splitlines()[1] for y in (x + bias, bias + 1))
    assert "kernels: pointwise.add; gradient: reduce.sum" in add
    assert "kernels: pointwise.add; gradient: no kernel" in bias_alone


def test_the_kernels_of_the_graph_are_those_that_run():
    """What the boxes name is what a traced backward pass launches."""
    import kernels

    loss, model = step_graph()
    named = set()
    for node in viz._ordered(loss._node):
        named |= set(viz.families(node)[1])
    with minigrad.backends.use("numpy"), kernels.trace() as trace:
        loss.backward()
    ran = {family for family, _ in trace.rows}
    assert {name.partition(".")[0] for name in named} == ran
    freed = viz.graph(loss, model)  # the shapes are still there
    assert "gradient: no kernel" in freed.text


def test_branches_large_graphs_and_custom_functions():
    class Twice(minigrad.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            raise AssertionError("a picture runs no code of the user's")

    with minigrad.backends.use("numpy"):
        x = minigrad.ones(3, requires_grad=True)
        y = x.exp()
        text = viz.graph((Twice.apply(y) + y).sum(), {"x": x}).text
        assert "Twice -> (3,) float32  from #" in text
        assert "your own Function" in text
        assert "from x (3,) float32" in text
        for _ in range(400):
            y = y + x
    picture = viz.graph(y.sum())
    assert len(picture.text.splitlines()) == 403
    assert any("the last 200 are drawn" in s.get("text", "") for _, s in picture.shapes)
    assert len(picture.svg()) < 250_000
    with pytest.raises(RuntimeError, match="it has no graph"):
        viz.graph(minigrad.ones(3))


def test_no_arrow_passes_behind_a_box():
    with minigrad.backends.use("numpy"):
        x = minigrad.ones(3, 3, requires_grad=True).exp()
        a, b, c = x.sin().cos(), x.tanh().exp().sqrt() * x, (x @ x).relu() + x
        y = ((a @ b) + x).softmax(-1) @ c + a
    layout = viz._Layout(viz._ordered(y._node), {})
    assert len(layout.columns) > 1
    assert len(layout.lanes) > 2
    for source, node in layout.edges:
        points = layout.route(source, node)
        for (x0, y0), (x1, y1) in itertools.pairwise(points):
            assert x0 == x1 or y0 == y1
            for other in layout.nodes:
                left, top = layout.corner(other)
                across = max(x0, x1) > left and min(x0, x1) < left + viz.BOX
                down = max(y0, y1) > top and min(y0, y1) < top + viz.TALL
                assert not (across and down)


def test_a_timeline_keeps_launches_in_order():
    import kernels

    with minigrad.backends.use("numpy"), kernels.trace() as outer:
        with viz.timeline() as found:
            (minigrad.ones(1000) + 1).exp().sum()
        (minigrad.ones(3) * 2).sum()
    assert [e.family for e in found.events] == ["pointwise", "pointwise", "reduce"]
    starts = [e.start for e in found.events]
    assert starts == sorted(starts)
    assert all(e.start + e.seconds <= found.seconds for e in found.events)
    assert 0 < found.busy < found.seconds
    assert outer.rows["pointwise", "numpy"][0] == 3  # a trace around it has all of them
    assert "3 launches" in str(found)
    bars = [s for kind, s in found.picture().shapes if kind == "rect" and s["tip"]]
    assert len(bars) == 3


def test_text_on_the_ramp_has_contrast():
    def light(colour: str) -> float:
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [p / 12.92 if p <= 0.04 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    for fill in RAMP:
        pair = sorted((light(fill), light(ink_on(fill))))
        assert (pair[1] + 0.05) / (pair[0] + 0.05) >= 4.5, fill


def test_a_png_has_a_palette_that_keeps_its_colours():
    from PIL import Image

    picture = Picture(300, 120, "Colours")
    colours = (*PASTELS, *RAMP, RED)
    for i, colour in enumerate(colours):
        picture.rect(10 + i * 15, 40, 12, 40, colour)
    image = Image.open(io.BytesIO(picture.png()))
    assert image.mode == "P" and image.size == (600, 240)
    for i, colour in enumerate(colours):
        there = image.convert("RGB").getpixel((2 * (16 + i * 15), 120))
        wanted = [int(colour[k : k + 2], 16) for k in (1, 3, 5)]
        assert max(abs(a - b) for a, b in zip(there, wanted)) <= 6, colour


def test_a_name_close_to_the_axis_of_a_roofline_is_above_it():
    picture = lab.roofline({"low": (0.06, 1.0), "high": (3.0, 1.0)}, "RTX 4060").picture()
    (y,) = (s["y"] for kind, s in picture.shapes if kind == "text" and s["text"] == "low")
    axis = max(s["y"] for kind, s in picture.shapes if kind == "text" and s["text"] == "10 G")
    assert y < axis - 12
