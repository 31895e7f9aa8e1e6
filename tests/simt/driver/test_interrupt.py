"""Ctrl-C ends a launch, a compilation and training within a second, and the next call works.

The signal goes to a child process, which says when it begins what is to be interrupted.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import jupyter_client
import pytest

FIRST = int(os.environ.get("MINIGRAD_TEST_SEED", "0"))
HERE = Path(__file__).parent


def seconds(child: subprocess.Popen) -> float:
    """The CPU time of a child, on which a busy machine has no influence; off Linux the time."""
    try:
        fields = Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return time.monotonic()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def interrupted(*calls: str, folder: Path | str = "", within: float = 1) -> None:
    """Interrupts each call in one process; each must end in time."""
    child = subprocess.Popen(
        [sys.executable, str(HERE / "interrupted_calls.py"), *calls],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "FOLDER": str(folder)},
    )
    try:
        for call in calls:
            assert child.stdout.readline() == "ready\n", f"{call}: {child.stderr.read()}"
            time.sleep(0.15)
            began = seconds(child)
            child.send_signal(signal.SIGINT)
            told = child.stdout.readline()
            assert told == "fine\n", f"{call}: {child.stderr.read()}"
            assert seconds(child) - began < within, call
        _, messages = child.communicate(timeout=20)
        assert child.returncode == 0, messages
    finally:
        child.kill()
        child.wait()


def test_kernels_that_do_not_end():
    names = "no_increment", "checked", "barriers", "threads_disagree", "function", "grid"
    interrupted(*names, "long_for")


def test_kernels_without_checks():
    interrupted("unchecked", "unchecked_for")


def test_on_several_os_threads():
    names = "no_increment, 3 threads", "checked, 3 threads", "barriers, 3 threads"
    interrupted(*names, within=3)
    interrupted(*["other_block, 3 threads"] * 4)


def test_kernels_of_this_project():
    interrupted("matmul", "small_launches")
    interrupted("matmul, 2 threads", within=2)


@pytest.mark.slow
def test_in_a_notebook(tmp_path):
    """The kernel of a notebook stays alive, and its next cell works."""
    with jupyter_client.run_kernel(kernel_name="python3") as client:

        def cell(code: str, interrupted: bool = False) -> str:
            message, seen = client.execute(code), ""
            while True:
                got = client.get_iopub_msg(timeout=30)
                if got["parent_header"].get("msg_id") != message:
                    continue
                content = got["content"]
                seen += content.get("text", "") + content.get("ename", "")
                if content.get("text") == "begins\n" and interrupted:
                    client.session.send(client.control_channel.socket, "interrupt_request", {})
                if content.get("execution_state") == "idle":
                    return seen

        assert cell(NOTEBOOK) == "ready\n"
        for debug in (None, False, True):
            code = f"print('begins', flush=True); loop[{debug}][1, 32](np.zeros(5))"
            assert cell(code, True) == "begins\nKeyboardInterrupt"
            assert cell("fine[1, 32](x); print(x[3])") == "3.0\n"


NOTEBOOK = f"""
import sys; sys.path.insert(0, {str(HERE.parents[2])!r})
import numpy as np
from kernels import cuda
def endless(x):
    i = cuda.grid(1)
    while i < x.size:
        x[i] += 1
loop = {{debug: cuda.jit(debug=debug)(endless) for debug in (None, False, True)}}
for kernel in loop.values():
    kernel.specialise((32, 1, 1), (np.zeros(5),))
@cuda.jit
def fine(x):
    i = cuda.grid(1)
    if i < x.size:
        x[i] = i
x = np.zeros(10)
fine[1, 32](x)
print("ready")
"""


def test_a_compilation(tmp_path):
    interrupted("compilation", folder=tmp_path)


def test_handlers_of_the_program():
    """One that returns lets the launch go on; one that raises ends it by its own exception."""
    interrupted("own_exception")
    interrupted("handler_that_returns", within=20)


@pytest.mark.parametrize("count", [1, pytest.param(60, marks=pytest.mark.slow)])
def test_random_moments(count, tmp_path):
    """Imports, compilations, training, saving: whatever is interrupted, the same process begins
    again and computes what it computes undisturbed."""
    for seed in range(FIRST, FIRST + count):
        print(f"seed {seed}")
        moments = random.Random(seed)
        cache = tmp_path / str(seed)
        cache.mkdir(mode=0o700)
        child = subprocess.Popen(
            [sys.executable, str(HERE / "interrupted_program.py")],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **({"MINIGRAD_CACHE_DIR": str(cache)} if seed % 2 else {})},
        )
        try:
            assert child.stdout.readline() == "ready\n"
            for _ in range(moments.randint(1, 6)):
                time.sleep(moments.random() * moments.choice([0.05, 0.2, 1, 3]))
                if child.poll() is None:
                    child.send_signal(signal.SIGINT)
            told, messages = child.communicate(timeout=120)
            assert told == "right\n" and child.returncode == 0, f"seed {seed}: {messages}"
        finally:
            child.kill()
            child.wait()
