"""The stepper's page: used in a browser as a person would, and read where scripts do not run."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from kernels import cuda, lab, raw_kernel
from kernels.lab.report import interactive

f32 = np.float32


@cuda.jit
def transpose(x, out):
    tile = cuda.shared.array((32, 32), "float32")
    i, j = cuda.grid(2)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    if i < x.shape[1] and j < x.shape[0]:
        tile[ty, tx] = x[j, i]
    # no barrier
    k, m = cuda.blockIdx.y * 32 + tx, cuda.blockIdx.x * 32 + ty
    if k < x.shape[0] and m < x.shape[1]:
        out[m, k] = tile[tx, ty]


@cuda.jit
def reverse(x, out, n):
    tile = cuda.shared.array(64, "float32")
    t = cuda.threadIdx.x
    i = cuda.grid(1)
    if i < n:
        tile[t] = x[i]
    cuda.syncthreads()
    if t >= 40:
        return
    out[i] = tile[63 - t]


def arrays(*shape: int) -> tuple[np.ndarray, np.ndarray]:
    x = np.arange(np.prod(shape), dtype=f32).reshape(shape)
    return x, np.zeros(shape[::-1], f32)


def test_a_page_is_one_file_and_shows_the_first_step_without_scripts(tmp_path):
    found = lab.step(reverse, 2, 64, *arrays(128), 100)
    found.save_html(tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]
    assert not re.search(r"""(src|href)=|@import|url\(|https?://(?!www\.w3\.org/2000/svg)""", page)
    shown = html.unescape(re.sub("<script.*?</script>", "", page, flags=re.DOTALL))
    assert "tile[t] = x[i]" in shown
    assert "executed by 64 threads" in shown
    assert len(re.findall('aria-current="step"', shown.split("</style>")[1])) == 1


def test_ten_thousand_threads_stay_small(monkeypatch):
    x, out = arrays(100, 100)
    report = lab.profile(transpose, (4, 4), (32, 32), x, out)
    assert len(interactive.page(report.trace(100_000), report.findings)) < 200_000

    @cuda.jit
    def noisy(x, out):
        i = cuda.grid(1)
        s = 0.0
        for k in range(50):
            s = s * 0.3 + x[(i * 37 + k * 11) % x.size]
            out[(i + k) % out.size] = s

    values = np.random.default_rng(1).random(1 << 20)
    trace = lab.profile(noisy, 10, 1024, values, values.copy(), blocks=1).trace(20_000)
    assert trace.cut
    whole = interactive.page(trace)
    assert len(whole) < interactive.MOST_BYTES < 2_000_000
    monkeypatch.setattr(interactive, "MOST_BYTES", 40_000)
    assert len(interactive.page(trace)) < min(len(whole), 60_000), "steps are left out"


def test_a_report_and_steps_show_themselves_in_a_notebook():
    x, out = arrays(32, 32)
    shown = lab.profile(transpose, 1, (32, 32), x, out)._repr_html_()
    assert "race" in shown
    assert "<iframe" in shown
    assert lab.step(reverse, 1, 64, *arrays(64), 64)._repr_html_().startswith("<iframe")


def test_text_of_a_kernel_is_data_and_not_markup():
    @cuda.jit
    def tricky(x):
        if x[0] < 1 and "</script><b>" != "@@DATA@@":
            x[0] = 1.0

    page = interactive.page(lab.step(tricky, 1, 1, np.zeros(1)).trace)
    assert "</script><b>" not in page
    assert html.escape('"</script><b>" != "@@DATA@@"') in page


CUDA_C = r"""
__device__ float twice(float x) {
    return 2 * x;
}
__global__ void turn(const float* x, float* out, int n) {
    __shared__ float tile[64];
    int t = threadIdx.x, i = blockIdx.x * 64 + t;
    if (i < n)
        tile[t] = twice(x[i]);
    else
        tile[t] = 0;
    __syncthreads();
    for (int k = 0; k < 2; k++)
        out[i] = tile[63 - t] + k;
}
"""


def test_a_block_of_cuda_c_line_by_line():
    """Lines, active threads, barriers, accesses with their values; the arguments stay."""
    x, out = np.arange(128, dtype=f32), np.zeros(128, f32)
    kernel = raw_kernel(CUDA_C, "turn")
    steps = lab.step(kernel, 2, 64, x, out, np.int32(100), at=(1, 0, 0)).trace.steps
    arrays = lab.step(kernel, 2, 64, x, out, np.int32(100), at=(1, 0, 0)).trace.arrays
    assert not out.any()
    lines = CUDA_C.splitlines()
    seen = [(lines[step.place[1] - 1].strip(), len(step.threads), step.epoch) for step in steps]
    order = ("if (i < n)", "return 2 * x;", "tile[t] = 0;", "__syncthreads();", "out[i] = tile")
    found = [next(n for n, one in enumerate(seen) if one[0].startswith(text)) for text in order]
    assert found == sorted(found)
    assert [seen[n][1:] for n in found] == [(64, 0), (36, 0), (28, 0), (64, 0), (64, 1)]
    assert [step.barrier for step in steps if step.barrier] == ["__syncthreads"]
    assert sum(one[0].startswith("out[i] =") for one in seen) == 2, "each iteration is a step"
    named = {array.name: number for number, array in enumerate(arrays)}
    assert set(named) == {"x", "tile", "out"}
    last = [step for step in steps if lines[step.place[1] - 1].strip().startswith("out[i]")][-1]
    touches = {(t.op, t.array, t.index): t.value for t in last.events[63].touches}
    assert touches == {("load", named["tile"], 0): 128.0, ("store", named["out"], 127): 129.0}


def test_the_page_of_a_report_in_cuda_c(tmp_path):
    racing = raw_kernel(CUDA_C.replace("    __syncthreads();\n", ""), "turn")
    report = lab.profile(racing, 2, 64, *arrays(128), np.int32(100))
    assert report.races and report.trace is not None
    report.save_html(tmp_path / "page.html")
    shown = html.unescape((tmp_path / "page.html").read_text())
    assert "kernel turn" in shown and "device function twice" in shown
    assert "executed by 64 threads" in shown
    assert "<iframe" in report._repr_html_()


@pytest.mark.parametrize("at", [2, (2, 0, 0), -1, (0, 0, 0, 0), 0.5])
def test_a_block_that_is_not_there(at):
    for kernel in (raw_kernel(CUDA_C, "turn"), reverse):
        with pytest.raises(ValueError, match=r": block .* is not in the grid"):
            lab.step(kernel, 2, 64, *arrays(128), np.int32(100), at=at)


def test_a_block_by_its_number():
    for kernel in (raw_kernel(CUDA_C, "turn"), reverse):
        assert lab.step(kernel, 2, 64, *arrays(128), np.int32(100), at=1).trace.at == (1, 0, 0)


def test_a_kernel_of_cuda_c_without_accesses():
    trace = lab.step(raw_kernel("__global__ void idle() {\n}", "idle"), 1, 32).trace
    assert [len(step.threads) for step in trace.steps] == [32]
    assert trace.arrays == []


# --- in a browser


class Browser:
    """A page in Chromium: what a person sees and does."""

    def __init__(self, driver) -> None:
        self.driver = driver

    def open(self, path: Path) -> None:
        self.driver.get(path.as_uri())
        self.wait("return document.body.dataset.ready === 'yes'")

    def wait(self, script: str) -> None:
        from selenium.webdriver.support.ui import WebDriverWait

        WebDriverWait(self.driver, 20).until(lambda driver: driver.execute_script(script))

    def find(self, css: str) -> list:
        return self.driver.find_elements("css selector", css)

    def text(self, css: str) -> str:
        return self.find(css)[0].text

    def press(self, *keys: str) -> None:
        for key in keys:
            self.find("body")[0].send_keys(key)

    def click(self, css: str, number: int = 0) -> None:
        self.find(css)[number].click()

    def line(self) -> str:
        """The code of the current line."""
        return self.text("#source tr[aria-current] code").strip()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    for argument in (
        "headless=new",
        "no-sandbox",
        "disable-dev-shm-usage",
        "window-size=1300,1100",
    ):
        options.add_argument(f"--{argument}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options)
    yield Browser(driver)
    errors = [entry for entry in driver.get_log("browser") if entry["level"] == "SEVERE"]
    driver.quit()
    assert errors == []


@pytest.mark.needs("selenium")
def test_keys_and_buttons_go_through_the_steps(browser, tmp_path):
    from selenium.webdriver.common.keys import Keys

    found = lab.step(reverse, 2, 64, *arrays(128), 100)
    found.save_html(tmp_path / "page.html")
    browser.open(tmp_path / "page.html")
    count = len(found.trace.steps)
    assert browser.text("#status").startswith(f"Step 1 of {count}")
    browser.press(*[Keys.ARROW_RIGHT] * 4)
    assert browser.line() == "tile[t] = x[i]"
    assert "4 sectors of 32 bytes, ideal 4" in browser.text("#accesses")
    assert "1 wavefront, ideal 1" in browser.text("#accesses")
    browser.press(Keys.SHIFT + Keys.ARROW_RIGHT)
    assert browser.line() == "cuda.syncthreads()"
    browser.click("#forward")
    browser.click("#forward")
    assert browser.line() == "return"
    browser.press(Keys.END)
    assert browser.line() == "out[i] = tile[63 - t]"
    assert "24 ended" in browser.text("#status")
    assert browser.text(".warp:nth-child(2) .count") == "8 active, 24 ended"
    browser.press("]")
    assert browser.text(".warp.chosen .name") == "warp 1"
    assert "8 lanes of warp 1" in browser.text("#accesses")
    cells = {cell.get_attribute("title") for cell in browser.find("#arrays td.write")}
    assert "out[39] = 24; written by thread 39" in cells
    browser.press(Keys.HOME)
    assert browser.text("#status").startswith("Step 1 of")
    assert browser.find("#arrays td.write") == []
    assert not [c for c in browser.find("#arrays td") if c.get_attribute("title") == "out[39] = 24"]


@pytest.mark.needs("selenium")
def test_a_click_on_a_line_a_lane_or_a_thread(browser, tmp_path):
    lab.step(reverse, 2, 64, *arrays(128), 100).save_html(tmp_path / "page.html")
    browser.open(tmp_path / "page.html")
    row = next(row for row in browser.find("#source tr") if "tile[63 - t]" in row.text)
    row.click()
    assert browser.line() == "out[i] = tile[63 - t]"
    browser.click(".lane", 37)
    assert browser.find("#thread")[0].get_attribute("value") == "37"
    rows = {row.text.split()[0]: row.text.split()[1] for row in browser.find("#variables tr")}
    assert (rows["t"], rows["i"], rows["n"]) == ("37", "37", "100")
    browser.driver.execute_script(
        "const t = document.getElementById('thread');"
        "t.value = 3; t.dispatchEvent(new Event('change'))"
    )
    assert browser.text(".warp.chosen .name") == "warp 0"


@pytest.mark.needs("selenium")
def test_the_keyboard_comes_to_lines_that_ran(browser, tmp_path):
    from selenium.webdriver.common.keys import Keys

    lab.step(reverse, 2, 64, *arrays(128), 100).save_html(tmp_path / "page.html")
    browser.open(tmp_path / "page.html")
    rows = {row.text.split(" ", 1)[1].strip(): row for row in browser.find("#source tr[id]")}
    assert rows["def reverse(x, out, n):"].get_attribute("tabindex") is None
    rows["return"].send_keys(Keys.ENTER)
    assert browser.line() == "return"


@pytest.mark.needs("selenium")
def test_a_page_of_cuda_c_says_that_it_has_no_variables(browser, tmp_path):
    found = lab.step(raw_kernel(CUDA_C, "turn"), 2, 64, *arrays(128), np.int32(100))
    found.save_html(tmp_path / "page.html")
    browser.open(tmp_path / "page.html")
    assert "no variables are recorded" in browser.text("#variables")


@pytest.mark.needs("selenium")
def test_races_lead_to_both_lines_and_conflicts_equal_the_profile(browser, tmp_path):
    x, out = arrays(90, 100)
    report = lab.profile(transpose, (3, 3), (32, 32), x, out, blocks=[0])
    report.save_html(tmp_path / "page.html")
    browser.open(tmp_path / "page.html")
    lines = set()
    for number in range(2):
        browser.click(".finding button", number)
        lines.add(browser.line())
    assert lines == {"tile[ty, tx] = x[j, i]", "out[m, k] = tile[tx, ty]"}
    browser.driver.execute_script("document.getElementById('last').click()")
    worst = report.at("out[m, k] =").worst_wavefronts
    assert f"{worst} wavefronts, ideal 1 ({worst}-way bank conflict)" in browser.text("#accesses")
    assert "transpose" in browser.text("#listing")


@pytest.mark.needs("selenium")
def test_a_screen_reader_hears_names_and_steps(browser, tmp_path):
    """What Chromium tells assistive technology: each control and picture has a name, and a new step
    is announced."""
    lab.step(reverse, 2, 64, *arrays(128), 100).save_html(tmp_path / "page.html")
    browser.open(tmp_path / "page.html")
    row = next(row for row in browser.find("#source tr") if "tile[t] = x[i]" in row.text)
    row.click()
    nodes = browser.driver.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
    heard = [
        (node["role"]["value"], node.get("name", {}).get("value", "").strip())
        for node in nodes
        if not node.get("ignored") and "role" in node
    ]
    controls = {"button", "slider", "combobox", "checkbox", "spinbutton", "img", "image", "toolbar"}
    named = [(role, name) for role, name in heard if role in controls]
    assert [name for role, name in named if role == "button"][:2] == ["start", "« barrier"]
    assert {"slider", "combobox", "checkbox", "spinbutton", "toolbar"} <= {
        role for role, _ in named
    }
    assert {"img", "image"} & {role for role, _ in named}, "the picture of the accesses"
    assert all(name for _, name in named), named
    status = next(node for node in nodes if node.get("role", {}).get("value") == "status")
    live = {one["name"]: one["value"]["value"] for one in status["properties"]}
    assert live["live"] == "polite"
    assert any("executed by 64 threads" in name for _, name in heard)


@pytest.mark.needs("selenium")
def test_light_and_dark_pages_differ(browser, tmp_path):
    lab.step(reverse, 2, 64, *arrays(128), 100).save_html(tmp_path / "page.html")
    browser.open(tmp_path / "page.html")
    colours = []
    for scheme in ("light", "dark"):
        feature = {"name": "prefers-color-scheme", "value": scheme}
        browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
        body = browser.find("body")[0]
        colours.append(body.value_of_css_property("background-color"))
    browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    assert colours[0] != colours[1]
