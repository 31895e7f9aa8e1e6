"""The pytest plugin: CUDA programs tested without a GPU, and their kernels checked.

    pytest --cuda=cpu                                     numba.cuda and cupy run on the CPU
    pytest --cuda=cpu --cuda-check=bounds,races,...       a finding fails the test that launched
    pytest --cuda=cpu --cuda-report=DIR                   costs.json, a page per costly kernel
    pytest --cuda=cpu --cuda-baseline=FILE                what changed since another costs.json

Without `--cuda` nothing happens.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kernels import door
from kernels.support import launches

if TYPE_CHECKING:  # pytest imports this file in every project: Numba only where it is asked for
    from kernels.lab.report.measurement import Measurement

#: what can be asked for, and the findings of the lab that it means
CHECKS = {
    "bounds": {"bounds"},
    "races": {"race"},
    "uninitialised": {"uninitialised"},
    "barriers": {"barrier", "endless", "shuffle"},
}
_COUNTS = "requests sectors ideal_sectors wavefronts ideal_wavefronts".split()
_PAGES = 10  # kernels that --cuda-report describes
_OURS = ("kernels", "minigrad")


class KernelFindings(AssertionError):
    """What the checks found in the kernels that a test launched."""


@dataclass
class Watcher:
    """Runs launches under the recorder; collects findings, and counts by test and kernel."""

    kinds: set[str]
    test: str = ""
    findings: list[str] = field(default_factory=list)
    costs: dict[str, dict[str, int]] = field(default_factory=dict)
    costliest: dict[str, Measurement] = field(default_factory=dict)
    unchecked: dict[str, str] = field(default_factory=dict)

    def __call__(self, kernel: Any, grid: Any, block: Any, shared: int, args: tuple) -> bool:
        """Run a launch under the recorder; False for one that cannot be recorded."""
        import numpy as np

        from kernels.lab.record.profiler import kept, profile
        from kernels.lab.record.run import LabError

        function = getattr(kernel, "py_func", None)
        if function is not None and function.__module__.partition(".")[0] in _OURS:
            return False
        launches.watch(None)
        arrays = tuple(getattr(arg, "__host_memory__", arg) for arg in args)
        before = kept(arrays)
        try:
            report = profile(kernel, grid, block, *args, shared=shared)
        except LabError as error:
            self.unchecked[getattr(kernel, "__name__", str(kernel))] = str(error)
            return False
        finally:
            launches.watch(self)
        # the launch itself raises these errors, which the program may expect
        debug = bool(getattr(kernel, "debug", False))
        raised = {"exception", "bounds"} if debug else {"exception"}
        again = before is not None and (debug or any(f.kind == "exception" for f in report.errors))
        self._count(report)
        for finding in report.findings:
            if again and finding.kind in raised:
                continue
            if finding.kind in self.kinds or finding.kind == "exception":
                text = f"{report.name}: {finding.kind}: {finding}"
                if text not in self.findings:  # by another launch
                    self.findings.append(text)
        if again and before:
            for array, values in zip(arrays, before):
                if isinstance(array, np.ndarray):
                    array[...] = values
        return not again

    def _count(self, report: Measurement) -> None:
        totals = report.totals
        row = self.costs.setdefault(
            f"{self.test}::{report.name}", dict.fromkeys(("launches", *_COUNTS), 0)
        )
        row["launches"] += 1
        for name in _COUNTS:
            row[name] += round(getattr(totals, name) * report.scale)
        known = self.costliest.get(report.name)
        if known is None or _cost(known) < _cost(report):
            self.costliest[report.name] = report

    def take(self) -> list[str]:
        """The findings since the last call."""
        taken, self.findings = self.findings, []
        return taken


def _cost(report: Measurement) -> float:
    """Sectors of global memory and wavefronts of shared memory."""
    return (report.totals.sectors + report.totals.wavefronts) * report.scale


def _import_as_written(plugins: pytest.PytestPluginManager) -> None:
    """pytest rewrites the asserts of every module of a distribution that brings a plugin: here of
    600 modules, which took a third of the time to collect our tests. The plugin has none."""
    marked = getattr(plugins.rewrite_hook, "_must_rewrite", None)
    if isinstance(marked, set):
        marked.difference_update(_OURS)


def pytest_addoption(parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
    _import_as_written(pluginmanager)
    group = parser.getgroup("cuda", "CUDA programs without a GPU (minigrad)")
    group.addoption("--cuda", choices=["cpu"], help="run numba.cuda and cupy on the CPU")
    group.addoption(
        "--cuda-check",
        metavar="CHECKS",
        help=f"fail tests whose kernels have such mistakes: {','.join(CHECKS)}",
    )
    group.addoption(
        "--cuda-report", metavar="DIR", help="write costs.json and a page for each costly kernel"
    )
    group.addoption(
        "--cuda-baseline", metavar="FILE", help="compare the costs with an earlier costs.json"
    )


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Before a conftest imports cupy."""
    if early_config.known_args_namespace.cuda:
        door.install(force=True)


def pytest_configure(config: pytest.Config) -> None:
    option = config.option
    asked = (option.cuda_check, option.cuda_report, option.cuda_baseline)
    if not any(asked):
        return
    if not option.cuda:
        raise pytest.UsageError("--cuda-check, --cuda-report and --cuda-baseline need --cuda=cpu")
    names = [name.strip() for name in (option.cuda_check or "").split(",") if name.strip()]
    if unknown := [name for name in names if name not in CHECKS]:
        raise pytest.UsageError(f"--cuda-check: {unknown[0]!r} is none of {', '.join(CHECKS)}")
    kinds = set().union(*(CHECKS[name] for name in names))
    config.pluginmanager.register(_Session(config, Watcher(kinds)), "minigrad-cuda-session")


class _Session:
    """The hooks of a run that watches launches."""

    def __init__(self, config: pytest.Config, watcher: Watcher) -> None:
        self.config, self.watcher = config, watcher

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self.watcher.test = item.nodeid
        launches.watch(self.watcher)
        try:
            return (yield)
        finally:
            launches.watch(None)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        """A test that ends well fails if its kernels (or its fixtures') had a finding."""
        try:
            result = yield
        except BaseException:
            if found := self.watcher.take():
                item.add_report_section("call", "kernels", "\n\n".join(found))
            raise
        if found := self.watcher.take():
            raise KernelFindings("\n\n".join(found))
        return result

    def pytest_sessionfinish(self) -> None:
        worker = getattr(self.config, "workeroutput", None)
        if worker is not None:  # of pytest-xdist: the main process writes
            worker["minigrad_costs"] = self.watcher.costs
            self._pages()
        elif self.config.option.cuda_report:
            folder = Path(self.config.option.cuda_report)
            folder.mkdir(parents=True, exist_ok=True)
            costs = json.dumps(dict(sorted(self.watcher.costs.items())), indent=1)
            (folder / "costs.json").write_text(f"{costs}\n", encoding="utf-8")
            self._pages()

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """A worker of pytest-xdist has ended."""
        self.watcher.costs.update(getattr(node, "workeroutput", {}).get("minigrad_costs", {}))

    def _pages(self) -> None:
        """The lab's page for each of the costliest kernels."""
        if not self.config.option.cuda_report:
            return
        folder = Path(self.config.option.cuda_report)
        folder.mkdir(parents=True, exist_ok=True)
        reports = sorted(self.watcher.costliest.values(), key=_cost, reverse=True)
        for report in reports[:_PAGES]:
            title = "".join(c if c.isalnum() else "_" for c in report.name)
            text = f"<!doctype html><meta charset=utf-8><title>{title}</title>"
            (folder / f"{title}.html").write_text(text + report._repr_html_(), encoding="utf-8")

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        lines = [f"not checked: {name}: {why}" for name, why in self.watcher.unchecked.items()]
        if baseline := self.config.option.cuda_baseline:
            before = json.loads(Path(baseline).read_text(encoding="utf-8"))
            lines += compared(before, self.watcher.costs)
        if lines:
            terminalreporter.section("kernels")
            for line in lines:
                terminalreporter.line(line)


def compared(before: dict[str, dict], now: dict[str, dict]) -> list[str]:
    """What changed between two runs: sectors per request, and wavefronts over the ideal ones."""
    lines = []
    for key in sorted(before.keys() & now.keys()):
        for what, part, whole, unit in (
            ("global memory", "sectors", "requests", "sectors per request"),
            ("shared memory", "wavefronts", "ideal_wavefronts", "wavefronts per ideal one"),
        ):
            old, new = (
                row[part] / row[whole] if row[whole] else 0 for row in (before[key], now[key])
            )
            if abs(new - old) > 0.01 * max(old, new):
                better = "better" if new < old else "WORSE"
                lines.append(f"{key}: {what}: {old:.2f} -> {new:.2f} {unit}, {better}")
    return lines or ["no kernel's accesses to memory changed"]
