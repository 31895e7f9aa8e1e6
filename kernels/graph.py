"""Launches on a GPU that one call starts: a CUDA graph.

`Graph` captures launches in a stream and makes a graph of them, which `run` launches on CuPy's
current stream. A graph keeps the arguments that it was captured with: the arrays must stay where
they are. Numbers among them may change between runs (`writer`): the launches that take one are
captured again, into a graph that is thrown away, and the parameters of its nodes become those
of the nodes in the graph (the driver's cuGraphExecKernelNodeSetParams). Runs that were started
before keep the old numbers.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from contextlib import contextmanager
from typing import Any

from kernels.sequence import Launch
from kernels.support.errors import LaunchError


class Graph:
    """Launches on arrays of one GPU, in order; `run` starts all of them."""

    def __init__(self, launches: list[Launch]) -> None:
        import cupy
        from cuda.bindings import driver

        self._driver, self._current = driver, cupy.cuda.get_current_stream
        self._args = [list(launch.args) for launch in launches]
        self._bound = [
            launch.kernel.bind_on_gpu(launch.grid, launch.block, *launch.args)
            for launch in launches
        ]
        self._changed: dict[int, None] = {}
        self._stream = cupy.cuda.Stream(non_blocking=True)  # where launches are captured
        with self._capture() as graphs:
            self._nodes = [self._captured(i) for i in range(len(launches))]
        self._graph = graphs[0]  # its nodes name those of `_executable`
        self._executable = self._call("cuGraphInstantiate", self._graph, 0)
        weakref.finalize(self, _destroy, driver, self._graph, self._executable).atexit = False

    def writer(self, launch: int, argument: int) -> Callable[[Any], None]:
        """A function that gives a launch another number as an argument, from the next run on."""
        args, changed = self._args[launch], self._changed

        def write(value: Any) -> None:
            if args[argument] != value:
                args[argument] = value
                changed[launch] = None

        return write

    def run(self) -> None:
        """Start all launches on CuPy's current stream."""
        if self._changed:
            self._refresh()
        self._call("cuGraphLaunch", self._executable, self._current().ptr)

    def _refresh(self) -> None:
        """Give the nodes of launches whose numbers have changed their new parameters."""
        with self._capture() as graphs:
            for number in self._changed:
                node = self._captured(number)
                parameters = self._call("cuGraphKernelNodeGetParams", node)
                self._call(
                    "cuGraphExecKernelNodeSetParams",
                    *(self._executable, self._nodes[number], parameters),
                )
        self._call("cuGraphDestroy", graphs[0])
        self._changed.clear()

    @contextmanager
    def _capture(self) -> Any:
        """Launches of the block become nodes of a graph, the only element of a list at its end."""
        graphs: list[Any] = []
        mode = self._driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
        with self._stream:
            self._call("cuStreamBeginCapture", self._stream.ptr, mode)
            try:
                yield graphs
            except BaseException:
                self._driver.cuStreamEndCapture(self._stream.ptr)
                raise
            graphs.append(self._call("cuStreamEndCapture", self._stream.ptr))

    def _captured(self, number: int) -> Any:
        """The node that a launch becomes: the newest of the stream that captures."""
        self._bound[number](*self._args[number])
        _, _, _, nodes, *_ = self._call("cuStreamGetCaptureInfo", self._stream.ptr)
        return nodes[0]

    def _call(self, name: str, *args: Any) -> Any:
        error, *results = getattr(self._driver, name)(*args)
        if error:
            _, text = self._driver.cuGetErrorString(error)
            raise LaunchError(f"{name}: {error.name} ({(text or b'').decode()})")
        return results[0] if len(results) == 1 else results


def _destroy(driver: Any, graph: Any, executable: Any) -> None:
    driver.cuGraphExecDestroy(executable)
    driver.cuGraphDestroy(graph)
