"""Kernels that are needed soon are compiled by another process meanwhile."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import pytest

from kernels.support import cache

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="children are forked on Linux only")

_START = """
import os, time
import numpy as np
import minigrad
from kernels.simt import cuda
from kernels.simt.driver import specialise
from kernels.support import ahead, processor

processor.cores = lambda: 2
compiled, compile_ = [], specialise.Specialisation._compile


def _compile(self, *args):
    compiled.append(self.kernel.__name__)
    compile_(self, *args)


specialise.Specialisation._compile = _compile


@cuda.jit
def unrelated(a):
    a[0] = 1


def wait():
    limit = time.monotonic() + 150
    while ahead._children and time.monotonic() < limit:
        time.sleep(0.01)
        ahead._reap()


def compile_something():  # with a new child, which knows all that is recorded so far
    wait()
    unrelated[1, 1](np.zeros(1))


w = minigrad.ones(40, 30, requires_grad=True)
x = minigrad.full((20, 40), 0.01)
"""


def run(folder, program, threads="2"):
    """What a program prints that begins with an empty cache."""
    environment = {**os.environ, "MINIGRAD_CACHE_DIR": str(folder), "MINIGRAD_NUM_THREADS": threads}
    done = subprocess.run(
        [sys.executable, "-c", _START + textwrap.dedent(program)],
        capture_output=True, text=True, timeout=200, env=environment, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.split("\n")[:-1]


BACKWARD = """
loss = (x @ w).tanh().sum()
compile_something()
print(len(ahead._children))
wait()
compiled.clear()
loss.backward()
print(*compiled)
print(np.allclose(w.grad.numpy(), 20 * 0.01 / np.cosh(0.4) ** 2))
"""


def test_a_backward_pass_finds_its_kernels_compiled(tmp_path):
    children, compiled, right = run(tmp_path, BACKWARD)
    assert (children, compiled) == ("1", "")
    assert right == "True"


REST_OF_A_CALL = """
from minigrad import nn

with minigrad.no_grad():
    layers = nn.Linear(30, 30, bias=False), nn.Tanh(), Own(), nn.Softmax(1)
    model = nn.Sequential(*layers)
    wait()
    counting = specialise.Specialisation._compile

    def compile_and_wait(self, *args):
        counting(self, *args)
        wait()

    specialise.Specialisation._compile = compile_and_wait
    compiled.clear()
    model(x.new_zeros(20, 30))
print(*compiled)
"""


def test_the_rest_of_a_call_is_compiled_too(tmp_path):
    own = "Own = minigrad.nn.Sigmoid\n"
    (compiled,) = run(tmp_path, own + REST_OF_A_CALL)
    assert compiled.split()[-1].startswith("matmul"), compiled


def test_the_rest_of_a_call_that_is_recorded_is_compiled_too(tmp_path):
    """By a process whose first kernel is one of a compiled step: it imports Numba then."""
    program = "Own = minigrad.nn.Sigmoid\n" + REST_OF_A_CALL.replace("    model(x", "    step(x")
    program = program.replace("    wait()\n", "    step = minigrad.compile(model)\n", 1)
    (compiled,) = run(tmp_path, program)
    names = compiled.split()
    assert names[0].startswith("matmul") and not any("softmax" in name for name in names), names


def test_an_optimiser_s_step_is_compiled_too(tmp_path):
    program = BACKWARD.replace("loss =", "adam = minigrad.optim.Adam([w]); loss =")
    program = program.replace(
        "loss.backward()", "loss.backward(); adam.step(); print(len(adam.state))"
    )
    assert run(tmp_path, program) == ["1", "1", "", "True"]


RANDOM = """
wait()
compiled.clear()
minigrad.manual_seed(3)
first, few = minigrad.rand(1001), minigrad.randint(2**31, (7,))
print(*compiled)
compile_something()
wait()
minigrad.manual_seed(3)
again = minigrad.rand(1001), minigrad.randint(2**31, (7,))
print(*compiled, bool((first == again[0]).all()), bool((few == again[1]).all()))
"""


def test_random_numbers_do_not_wait_for_their_kernels(tmp_path):
    first, second = run(tmp_path, RANDOM)
    assert "uniform32" not in first and "philox_words" not in first
    assert "uniform32" not in second and second.endswith("True True")
    assert list(tmp_path.rglob("uniform32*.o")) and list(tmp_path.rglob("philox_words*.o"))


def test_random_numbers_wait_for_their_kernels_where_no_child_can_make_them(tmp_path):
    first, _ = run(tmp_path, RANDOM, threads="1")
    assert "uniform32 philox_words" in first


REPLACED = """
from kernels.launchers import matmul

rng = np.random.default_rng(2)
made = lambda *shape: minigrad.tensor(rng.standard_normal(shape, dtype=np.float32))
a, b, few, bias = made(128, 140), made(128, 150), made(128, 3), made(150)
a[:, 0], b[:, 0] = -1e-30, 1e-30  # their product rounds to -0
minigrad.nn.functional.linear(a.T.contiguous(), b.T.contiguous(), bias)


def products():
    return [x.numpy().view(np.uint32) for x in (a.T @ b, a.T @ b.T.contiguous().T, few.T @ b)]


def own():
    plans = matmul._plans.values()
    return [one.has_run for one in plans if type(one) is matmul.ReplacedAtFirst]


wait()
compiled.clear()
matmul.MOST_SECONDS = MOST
early, first = products(), own()
limit = time.monotonic() + 100
while not all(own()) and time.monotonic() < limit:
    time.sleep(0.1)
    products()
late = products()
print(*compiled)
print(*first)
print(*own())
print(all(np.array_equal(x, y) for x, y in zip(early, late)))
"""


def test_products_do_not_wait_for_their_kernels(tmp_path):
    """Others give the same bits meanwhile; in the end, each runs its own."""
    lines = run(tmp_path, REPLACED.replace("= MOST", "= 100"))
    assert lines == ["", "True False False False", "True True True True", "True"]


def test_products_wait_for_their_kernels_where_no_child_can_make_them(tmp_path):
    compiled, first, own, _ = run(tmp_path, REPLACED.replace("= MOST", "= 100"), threads="1")
    assert len(compiled.split()) == 3, compiled
    assert first == own == "True True True True"


def test_products_do_not_wait_for_ever(tmp_path):
    """For children that cannot be forked, or can keep nothing."""
    program = REPLACED.replace("= MOST", "= 1") + "print(len(ahead.postponed))"
    lines = run(tmp_path, program.replace("\nwait()", "\nwait()\nahead.start = lambda: False"))
    compiled, *rest = lines
    assert len(compiled.split()) == 3, compiled
    assert rest == ["True False False False", "True True True True", "True", "0"]


def test_a_child_ends_where_the_program_s_code_begins(tmp_path):
    own = """
class Own(minigrad.nn.Module):
    def forward(self, x):
        with open(os.path.join(os.environ["MINIGRAD_CACHE_DIR"], "called"), "a") as file:
            file.write("forward ")
        return x
"""
    (compiled,) = run(tmp_path, own + REST_OF_A_CALL)
    first, second = compiled.split()[-2:]
    assert first.startswith("matmul") and second.startswith("softmax"), compiled
    assert (tmp_path / "called").read_text() == "forward "


def test_a_child_does_not_write_to_memory_that_it_shares(tmp_path):
    program = """
    import mmap

    shared = mmap.mmap(-1, 4096)
    ahead.begin = lambda: shared.write(b"written")
    compile_something()
    wait()
    print(bytes(shared[:7]) == bytes(7))
    """
    assert run(tmp_path, program) == ["True"]


def test_a_traced_program_has_children_too(tmp_path):
    traced = BACKWARD.replace("loss.backward()", "with kernels.trace():\n    loss.backward()")
    program = "import kernels\nwith kernels.trace():\n" + textwrap.indent(traced, "    ")
    children, compiled, right = run(tmp_path, program)
    assert (children, compiled, right) == ("1", "", "True")


def test_one_thread_makes_no_children(tmp_path):
    children, compiled, _ = run(tmp_path, BACKWARD, threads="1")
    assert children == "0" and "matmul" in compiled


def test_a_child_leaves_the_program_s_files_and_functions_alone(tmp_path):
    program = """
    import gc, tempfile

    def called(what):
        with open(os.path.join(os.environ["MINIGRAD_CACHE_DIR"], "called"), "a") as file:
            file.write(what)

    class Own(minigrad.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            called("backward ")
            return g * 2

    class Cycle:
        def __init__(self):
            self.me = self

        def __del__(self):
            called("garbage ")

    y = Own.apply(x @ w)
    y.register_hook(lambda g: called("hook "))
    y = y.exp()
    file = tempfile.TemporaryFile()
    file.write(b"written once")
    print("not flushed", end=" ")
    leave = ahead.leave
    ahead.leave = lambda: (gc.collect(), leave())
    wait()
    gc.disable()
    Cycle()
    compile_something()
    print(len(ahead._children))
    wait()
    Cycle.__del__ = lambda self: None
    file.flush()
    print(os.fstat(file.fileno()).st_size)
    """
    assert run(tmp_path, program) == ["not flushed 1", "12"]
    assert not (tmp_path / "called").exists()


def test_a_child_that_is_about_to_end_makes_room(tmp_path):
    """Who has waited for its last kernel comes to the next one before the child is gone."""
    program = """
    leave, folder = ahead.leave, cache.cache_folder()


    def leave_late():
        (folder / str(os.getpid())).touch()
        time.sleep(0.02)
        leave()


    ahead.leave = leave_late
    loss = (x @ w).tanh().sum()
    compile_something()
    (child,) = ahead._children
    while not (folder / str(child)).exists():
        time.sleep(0.001)


    @cuda.jit
    def another(a):
        a[0] = 2


    another[1, 1](np.zeros(1))
    print(child in ahead._children, len(ahead._children))
    """
    given = "from kernels.support import cache\n" + textwrap.dedent(program)
    assert run(tmp_path, given) == ["False 1"]


def test_a_child_that_is_killed_costs_only_time(tmp_path):
    program = """
    loss = (x @ w).tanh().sum()
    compile_something()
    (child,) = ahead._children
    time.sleep(0.5)  # it compiles
    os.kill(child, 9)
    loss.backward()
    print(w.grad.shape, len(compiled) > 2)
    wait()
    print(ahead._children)
    """
    assert run(tmp_path, program) == ["minigrad.Size([40, 30]) True", "set()"]


def test_children_end_with_the_process(tmp_path):
    program = """
    loss = (x @ w).tanh().sum()
    compile_something()
    print(*ahead._children)
    time.sleep(0.5)  # it compiles
    """
    (child,) = run(tmp_path, program)
    with pytest.raises(ProcessLookupError):
        os.kill(int(child), 0)
    assert not list(tmp_path.rglob("*.lock"))


def test_a_lock_that_another_holds(tmp_path, monkeypatch):
    monkeypatch.setattr(cache, "_PATIENCE", 0.05)
    path = tmp_path / "kernel"
    with cache.alone(path) as first:
        with cache.alone(path, waits=False) as second:
            assert (first, second) == (True, False)
        with cache.alone(path) as third:  # the other may be stopped: it waits no longer
            assert third
    with cache.alone(path, waits=False) as again:
        assert again
    assert not list(tmp_path.iterdir())


# A child leaves no trace in the program

LEAVES = """
from minigrad import nn

def called(what):
    with open(os.path.join(os.environ["MINIGRAD_CACHE_DIR"], "called"), "a") as file:
        file.write(f"{what} {os.getpid() == program}\\n")

program = os.getpid()
"""


def calls(folder):
    """What the program's code wrote about its calls, each with whether it ran in the program."""
    file = folder / "called"
    return file.read_text().split("\n")[:-1] if file.exists() else []


def test_signals_call_the_program_s_handlers_in_the_program_only(tmp_path):
    program = """
    import signal
    signal.signal(signal.SIGUSR1, lambda number, frame: called("handler"))
    loss = (x @ w).tanh().sum()
    compile_something()
    (child,) = ahead._children
    os.kill(child, signal.SIGUSR1)
    wait()
    print(signal.pthread_sigmask(signal.SIG_BLOCK, ()))
    """
    assert run(tmp_path, LEAVES + textwrap.dedent(program)) == ["set()"]
    assert calls(tmp_path) == []


@pytest.mark.parametrize("name", ["profile", None])
def test_a_module_of_the_program_with_a_name_of_python_s(tmp_path, name):
    program = f"""
    source = '''
    class Own(nn.Module):
        def forward(self, x):
            file = open(os.path.join(os.environ["MINIGRAD_CACHE_DIR"], "called"), "a")
            file.write("forward " + str(os.getpid() == program) + chr(10))
            file.close()
            return x
    '''
    module = {{"__name__": {name!r}, "nn": nn, "os": os, "program": program}}
    exec(compile(textwrap.dedent(source), "/home/someone/profile.py", "exec"), module)
    wait()
    try:
        nn.Sequential(nn.Linear(40, 30), module["Own"](), nn.Tanh())(x)
    except BaseException:
        called("a handler")
    wait()
    """
    run(tmp_path, LEAVES + "import textwrap\n" + textwrap.dedent(program))
    assert calls(tmp_path) == ["forward True"]


def test_finalizers_of_python_s_library_change_nothing(tmp_path):
    program = """
    import shutil, tempfile, weakref

    class Resource:
        pass

    resource, folder = Resource(), tempfile.mkdtemp()
    weakref.finalize(resource, shutil.rmtree, folder, ignore_errors=True)
    temporary = tempfile.NamedTemporaryFile()
    begin, kept = ahead.begin, [resource, temporary]
    name = temporary.name
    del resource, temporary

    def drop_and_begin():
        kept.clear()
        begin()

    ahead.begin = drop_and_begin
    loss = (x @ w).tanh().sum()
    wait()
    print(os.path.exists(folder), os.path.exists(name), bool(kept))
    """
    assert run(tmp_path, program) == ["True True True"]


def test_a_step_of_the_program_s_is_not_rehearsed(tmp_path):
    program = """
    sgd = minigrad.optim.SGD([w], 0.1)
    step = sgd.step
    sgd.step = lambda: called("step")
    loss = (x @ w).tanh().sum()
    compile_something()
    wait()
    """
    run(tmp_path, LEAVES + textwrap.dedent(program))
    assert calls(tmp_path) == []


WAITS = """
loss = (x @ w).tanh().sum()
compile_something()
before = len(ahead._children)
own = os.fork()
if not own:
    time.sleep(0.5)
    os._exit(7)
wait = lambda: None
loss.backward()
print(before, os.wait() == (own, 7 << 8), ahead._children)
"""


def test_a_program_that_waits_for_any_child_gets_its_own(tmp_path):
    assert run(tmp_path, WAITS) == ["1 True set()"]


def test_a_program_that_hears_of_children_hears_of_its_own(tmp_path):
    program = """
    import signal, subprocess
    heard = []
    signal.signal(signal.SIGCHLD, lambda number, frame: heard.append(1))
    (x @ w).tanh().sum().backward()
    print(len(heard), subprocess.run(["false"]).returncode, len(heard))
    """
    assert run(tmp_path, program) == ["0 1 1"]


def test_no_child_is_made_while_another_thread_compiles_with_numba(tmp_path):
    program = """
    import threading
    from numba.core.compiler_lock import global_compiler_lock

    held, done = threading.Event(), threading.Event()

    def hold():
        with global_compiler_lock:
            held.set()
            done.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    print(ahead.start(), len(ahead._children))
    done.set()
    thread.join()
    print(ahead.start(), len(ahead._children))
    """
    assert run(tmp_path, "wait()\nloss = (x @ w).sum()\nwait()\n" + textwrap.dedent(program)) == [
        "False 0",
        "False 1",
    ]


def test_a_fork_that_is_refused_is_no_error(tmp_path):
    program = """
    import sys

    def refuse(event, args):
        if event == "os.fork":
            raise RuntimeError("no forks here")

    sys.addaudithook(refuse)
    (x @ w).tanh().sum().backward()
    print(w.grad.shape, ahead._children)
    """
    assert run(tmp_path, program) == ["minigrad.Size([40, 30]) set()"]
