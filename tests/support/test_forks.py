"""`os.fork` while other threads compute."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from kernels.support import forks

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")

_START = """
import os, signal, sys, threading, time
from kernels.support import forks, interrupts


def in_child(function, seconds=150):
    pid = os.fork()
    if pid == 0:
        try:
            signal.alarm(seconds)
            os._exit(0 if function() else 4)
        finally:
            os._exit(3)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
"""


def run(program, **variables):
    """What a program prints that runs in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", _START + textwrap.dedent(program)],
        capture_output=True, text=True, timeout=200, env={**os.environ, **variables}, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_a_fork_waits_for_what_is_done_as_a_whole():
    program = """
    begun, over = threading.Event(), []

    def work():
        with interrupts.deferred():
            begun.set()
            time.sleep(0.3)
            over.append(1)

    threading.Thread(target=work).start()
    begun.wait()
    print(in_child(lambda: over == [1] and not forks._whole))
    """
    assert run(program) == ["0"]


def test_what_begins_during_a_fork_waits_for_it():
    program = """
    late = []
    forks._before()
    thread = threading.Thread(target=lambda: (forks.begin(), late.append(1), forks.end()))
    thread.start()
    time.sleep(0.2)
    print(late)
    forks._after()
    thread.join()
    print(late)
    """
    assert run(program) == ["[]", "[1]"]


def test_locks_of_other_threads_are_free_in_a_child():
    program = """
    locks, held, end = [forks.lock(), forks.rlock()], threading.Event(), threading.Event()
    mine = forks.rlock()

    def hold():
        for lock in locks:
            lock.acquire()
        held.set()
        end.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    with mine:
        print(in_child(lambda: all(lock.acquire(timeout=1) for lock in locks) and mine._is_owned()))
    print(any(lock.acquire(timeout=0.01) for lock in locks))
    end.set()
    thread.join()
    """
    assert run(program) == ["0", "False"]


def test_no_lock_stays_taken_in_a_child():
    """Locks come from here. Not those that are held inside of `deferred` only, of one launch, or of
    threads and connections that a child does not have."""
    others = {"forks.py", "thread_pool.py", "schedule.py", "store.py"}
    root = Path(forks.__file__).parents[2]
    files = [path for part in ("kernels", "minigrad") for path in (root / part).rglob("*.py")]
    found = {path.name for path in files if re.search(r"threading\.R?Lock\(", path.read_text())}
    assert found == others


def test_an_interrupt_that_another_thread_waits_with_is_not_the_childs():
    program = """
    forks._PATIENCE = 0.1
    plain = signal.getsignal(signal.SIGINT)
    codes = []

    def child():
        return interrupts._outermost is None and signal.getsignal(signal.SIGINT) is plain

    def interrupted():
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            return True

    with interrupts.deferred():
        both = lambda: codes.extend([in_child(child), in_child(interrupted)])
        thread = threading.Thread(target=both)
        thread.start()
        thread.join()
        codes.append(in_child(lambda: interrupts._outermost is not None))
    print(*codes)
    """
    assert run(program) == ["0", "0", "0"]


@pytest.mark.parametrize("moment", ["_before", "_after"])
def test_an_interrupt_during_a_fork_comes_after_it(moment):
    """It would leave the fork's lock taken."""
    program = f"""
    class Lock:  # that the functions around a fork use, at the moments to be interrupted
        lock = forks._one_fork

        def acquire(self):
            self.lock.acquire()
            if "{moment}" == "_before":
                signal.raise_signal(signal.SIGINT)

        def release(self):
            if "{moment}" == "_after" and os.getpid() == parent:
                signal.raise_signal(signal.SIGINT)
            self.lock.release()

    parent, forks._one_fork = os.getpid(), Lock()
    try:
        print(in_child(lambda: time.sleep(0.3) or True))
        time.sleep(5)
    except KeyboardInterrupt:
        print("interrupted")
    forks._one_fork = Lock.lock
    print(in_child(lambda: True), forks._forking, interrupts._outermost)
    """
    out = run(program)
    assert "interrupted" in out and out[-3:] == ["0", "None", "None"], out


def test_a_kernel_of_a_child_takes_interrupts_of_its_own():
    program = """
    from kernels.simt.backend import entry
    from kernels.support import limits

    words = entry.report()
    words[limits.STOP] = 1

    def renewed():
        return words[limits.STOP] == 0 and words[limits.MAIN] == threading.get_ident()

    codes = []
    thread = threading.Thread(target=lambda: codes.append(in_child(renewed)))
    thread.start()
    thread.join()
    print(*codes, words[limits.STOP])
    """
    assert run(program) == ["0", "1"]


def test_a_fork_waits_for_imports(tmp_path):
    (tmp_path / "slowly.py").write_text("import time; time.sleep(0.5); value = 7")
    program = """
    thread = threading.Thread(target=lambda: __import__("slowly"))
    thread.start()
    time.sleep(0.2)
    print(in_child(lambda: sys.modules["slowly"].value == 7, 10))
    thread.join()
    """
    assert run(program, PYTHONPATH=f"{tmp_path}:{os.getcwd()}") == ["0"]


def test_a_child_imports_what_another_thread_had_begun(tmp_path):
    """Between the fork's look at the imports and the fork, or after its patience."""
    (tmp_path / "slowly.py").write_text("import time; time.sleep(0.5); value = 7")
    program = """
    forks._PATIENCE = 0
    thread = threading.Thread(target=lambda: __import__("slowly"))
    thread.start()
    time.sleep(0.2)
    print(in_child(lambda: __import__("slowly").value == 7, 10))
    thread.join()
    print(__import__("slowly").value, forks._module_locks())
    """
    assert run(program, PYTHONPATH=f"{tmp_path}:{os.getcwd()}") == ["0", "7", "{}"]


def test_a_child_imports_a_package_of_which_a_part_was_imported(tmp_path):
    package = tmp_path / "slowly"
    package.mkdir()
    (package / "part.py").write_text("value = 7")
    lines = "import slowly.part, time; time.sleep(0.5); value = slowly.part.value"
    (package / "__init__.py").write_text(lines)
    program = """
    forks._PATIENCE = 0
    thread = threading.Thread(target=lambda: __import__("slowly"))
    thread.start()
    time.sleep(0.2)
    print(in_child(lambda: __import__("slowly").value == 7, 10))
    thread.join()
    """
    assert run(program, PYTHONPATH=f"{tmp_path}:{os.getcwd()}") == ["0"]


def test_a_fork_in_an_import_does_not_wait_for_those_who_wait_for_it(tmp_path):
    (tmp_path / "forking.py").write_text(
        "import time; from __main__ import *; begin.set(); time.sleep(0.3); "
        "print(in_child(lambda: True, 10), time.monotonic() - start < 10)"
    )
    (tmp_path / "waiting.py").write_text("import forking")
    program = """
    begin, start = threading.Event(), time.monotonic()
    thread = threading.Thread(target=lambda: (begin.wait(), __import__("waiting")))
    thread.start()
    import forking
    thread.join()
    """
    assert run(program, PYTHONPATH=f"{tmp_path}:{os.getcwd()}") == ["0", "True"]


def test_a_launch_in_an_import_does_not_wait_for_a_fork(tmp_path):
    (tmp_path / "working.py").write_text(
        "import time; from __main__ import *; begin.set(); time.sleep(0.3)\n"
        "with interrupts.deferred(): value = 7"
    )
    program = """
    begin, start = threading.Event(), time.monotonic()
    thread = threading.Thread(target=lambda: __import__("working"))
    thread.start()
    begin.wait()
    print(in_child(lambda: sys.modules["working"].value == 7, 10), time.monotonic() - start < 10)
    thread.join()
    """
    assert run(program, PYTHONPATH=f"{tmp_path}:{os.getcwd()}") == ["0", "True"]


def test_a_fork_waits_before_it_takes_the_lock_of_logging():
    """Which a compilation wants, too: both would wait until the fork's patience ends."""
    program = """
    import logging

    begun = threading.Event()

    def work():
        with interrupts.deferred():
            begun.set()
            time.sleep(0.5)
            logging.getLogger("numba").debug("compiling")

    thread = threading.Thread(target=work)
    thread.start()
    begun.wait()
    start = time.monotonic()
    print(in_child(lambda: True), time.monotonic() - start < 10)
    thread.join()
    """
    assert run(program) == ["0", "True"]


def test_children_compute_while_threads_compile_and_launch(tmp_path):
    program = """
    import minigrad

    over = False

    def work(n):
        x = minigrad.rand(n, n)
        while not over:
            (x.relu() * 0.5 + x).sum()

    def compute():
        x = minigrad.rand(70, 70, requires_grad=True)
        minigrad.tanh(x * x).sum().backward()
        return x.grad.isfinite().all().item()

    threads = [threading.Thread(target=work, args=(n,)) for n in (64, 900)]
    for thread in threads:
        thread.start()
    codes = []
    for _ in range(5):
        time.sleep(0.2)
        codes.append(in_child(compute))
    over = True
    for thread in threads:
        thread.join()
    print(*codes)
    """
    variables = {"MINIGRAD_CACHE_DIR": str(tmp_path), "MINIGRAD_NUM_THREADS": "2"}
    assert run(program, **variables) == ["0"] * 5
