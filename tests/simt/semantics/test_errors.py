"""What hardware forbids and what the checked mode finds: errors that name the place."""

from __future__ import annotations

import copy
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numba import float32, float64, int32, int64

from kernels.simt import cuda
from kernels.support.errors import CompileError, LaunchError

ROOT = Path(__file__).resolve().parents[3]


@cuda.jit
def touch(a):
    a[0] = 1


@pytest.mark.parametrize(
    ("grid", "block", "word"),
    [
        (1, 1025, "1024"),
        (1, (32, 33), "1024"),
        (1, (1, 1, 65), "64"),
        ((1, 65536), 1, "65535"),
        ((1, 1, 65536), 1, "65535"),
        (2**31, 1, "2147483647"),
        (0, 1, "0"),
        (1, 0, "0"),
        (1, -3, "-3"),
    ],
)
def test_launch_limits(grid, block, word):
    with pytest.raises((ValueError, RuntimeError), match=word):
        touch[grid, block](np.zeros(1))


@pytest.mark.parametrize("grid", [(1, 1, 1, 1), "x", 1.5, None])
def test_bad_dimensions(grid):
    with pytest.raises((TypeError, ValueError)):
        touch[grid, 1](np.zeros(1))


def test_unconfigured_launch():
    with pytest.raises((ValueError, TypeError, RuntimeError), match="grid"):
        touch(np.zeros(1))


def test_wrong_number_of_arguments():
    with pytest.raises(TypeError, match="argument"):
        touch[1, 1]()
    with pytest.raises(TypeError, match="argument"):
        touch[1, 1](np.zeros(1), 2)


def test_too_much_static_shared_memory(line_of):
    def body(a):
        tile = cuda.shared.array(49 * 1024, np.uint8)  # HERE
        tile[0] = 1
        cuda.syncthreads()
        a[0] = tile[0]

    with pytest.raises(Exception, match="shared") as caught:
        cuda.jit(body)[1, 1](np.zeros(1))
    assert str(line_of(body, "# HERE")) in str(caught.value)


def test_48_kib_of_static_shared_memory_is_allowed(jit):
    @jit
    def kernel(a):
        tile = cuda.shared.array(6 * 1024, float64)
        tile[6143] = 1
        cuda.syncthreads()
        a[0] = tile[6143]

    a = np.zeros(1)
    kernel[1, 1](a)
    assert a[0] == 1


def test_shared_shape_must_be_constant(line_of):
    def body(a, n):
        tile = cuda.shared.array(n, float32)  # HERE
        tile[0] = 1
        a[0] = tile[0]

    with pytest.raises(Exception, match="constant|literal") as caught:
        cuda.jit(body)[1, 1](np.zeros(1), 5)
    assert str(line_of(body, "# HERE")) in str(caught.value)


@pytest.mark.parametrize("debug", [False, True])
def test_barrier_that_only_some_live_threads_reach(line_of, debug):
    def body(a):
        i = cuda.threadIdx.x
        if i < 16:
            a[i] = 1
            cuda.syncthreads()  # HERE
        a[i] += 1

    kernel = cuda.jit(body, debug=debug)
    with pytest.raises(RuntimeError, match="(?i)barrier|syncthreads") as caught:
        kernel[1, 32](np.zeros(32))
    assert str(line_of(body, "# HERE")) in str(caught.value)


@pytest.mark.parametrize("debug", [False, True])
def test_barrier_in_a_loop_of_unequal_length(line_of, debug):
    def body(a):
        i = cuda.threadIdx.x
        for _ in range(i):
            cuda.syncthreads()  # HERE
        a[i] += 1
        a[0] += 0

    kernel = cuda.jit(body, debug=debug)
    with pytest.raises(RuntimeError, match="(?i)barrier|syncthreads") as caught:
        kernel[1, 32](np.zeros(32))
    assert str(line_of(body, "# HERE")) in str(caught.value)


@pytest.mark.parametrize(("where", "index"), [("read", 40), ("write", 40), ("negative", -41)])
def test_out_of_bounds_names_everything(line_of, where, index):
    def read(values, k, out):
        i = cuda.grid(1)
        out[i] = values[k] if i == 37 else 0  # HERE

    def write(out, k, values):
        i = cuda.grid(1)
        if i == 37:
            values[k] = out[i]  # HERE

    if where == "write":
        body, args = write, (np.zeros(64), index, np.zeros(40))
    else:
        body, args = read, (np.zeros(40), index, np.zeros(64))
    with pytest.raises(IndexError) as caught:
        cuda.jit(body, debug=True)[2, 32](*args)
    message = str(caught.value)
    for part in ("values", str(index), "40", "block", "thread", str(line_of(body, "# HERE"))):
        assert part in message, (part, message)
    assert "(1, 0, 0)" in message  # the block
    assert "(5, 0, 0)" in message  # the thread


def test_out_of_bounds_in_two_dimensions_and_in_shared_memory(line_of):
    def body(a):
        tile = cuda.shared.array((4, 6), float32)
        x, y = cuda.threadIdx.x, cuda.threadIdx.y
        tile[y, x] = a[y, x]
        cuda.syncthreads()
        a[y, x] = tile[y, x + 1]  # HERE

    with pytest.raises(IndexError) as caught:
        cuda.jit(body, debug=True)[1, (6, 4)](np.zeros((4, 6), np.float32))
    message = str(caught.value)
    for part in ("tile", "6", "(4, 6)", str(line_of(body, "# HERE"))):
        assert part in message, (part, message)


def test_out_of_bounds_in_an_atomic_and_in_a_device_function(line_of):
    def helper(counts, k):
        cuda.atomic.add(counts, k, 1)  # HERE

    device = cuda.jit(helper, device=True)

    @cuda.jit(debug=True)
    def kernel(counts):
        device(counts, cuda.grid(1))

    with pytest.raises(IndexError) as caught:
        kernel[1, 9](np.zeros(8, np.int64))
    message = str(caught.value)
    for part in ("counts", "8", str(line_of(helper, "# HERE"))):
        assert part in message, (part, message)


def test_out_of_bounds_in_what_runs_once_for_the_block(line_of):
    def body(x, lock, n):
        total = 0.0
        for j in range(n):
            total += x[j]  # HERE
        x[cuda.grid(1)] = total
        cuda.atomic.compare_and_swap(lock, 0, n)

    x, lock = np.ones(2), np.zeros(1, np.int32)
    cuda.jit(body, debug=True)[1, 2](x, lock, 2)
    assert (x == 2).all() and lock[0] == 2
    with pytest.raises(IndexError, match=f"index 2 is out of bounds.*:{line_of(body, '# HERE')}"):
        cuda.jit(body, debug=True)[1, 2](x, lock, 3)


def test_wraparound_is_not_an_error_in_the_checked_mode():
    @cuda.jit(debug=True)
    def kernel(a):
        a[cuda.threadIdx.x - 1] += 1

    a = np.zeros(4)
    kernel[1, 4](a)
    assert (a == 1).all()


def test_uninitialised_shared_memory(line_of):
    def body(a):
        tile = cuda.shared.array(32, float32)
        i = cuda.threadIdx.x
        if i != 9:
            tile[i] = a[i]
        cuda.syncthreads()
        a[i] = tile[31 - i]  # HERE

    with pytest.raises(RuntimeError, match="(?i)uninitiali") as caught:
        cuda.jit(body, debug=True)[1, 32](np.zeros(32, np.float32))
    message = str(caught.value)
    for part in ("tile", "9", str(line_of(body, "# HERE"))):
        assert part in message, (part, message)


def test_initialised_shared_memory_passes_the_check():
    @cuda.jit(debug=True)
    def kernel(a):
        tile = cuda.shared.array((32, 33), float32)  # a padding column nobody reads
        i = cuda.threadIdx.x
        for j in range(32):
            tile[i, j] = a[i, j]
        cuda.syncthreads()
        for j in range(32):
            a[i, j] = tile[j, i]

    a = np.arange(1024, dtype=np.float32).reshape(32, 32)
    expected = a.T.copy()
    kernel[1, 32](a)
    np.testing.assert_array_equal(a, expected)


def test_exception_raised_in_a_kernel(line_of):
    def body(a):
        i = cuda.grid(1)
        if a[i] < 0:
            raise ValueError("negative input")
        a[i] = 0

    with pytest.raises(ValueError, match="negative input"):
        cuda.jit(body, debug=True)[1, 8](np.array([1, 2, 3, 4, 5, -6, 7, 8.0]))


def test_assert_in_the_checked_mode():
    def body(a):
        i = cuda.grid(1)
        assert a[i] >= 0, "must not be negative"
        a[i] = 0

    with pytest.raises(AssertionError, match="must not be negative"):
        cuda.jit(body, debug=True)[1, 4](np.array([1, 2, -3, 4.0]))
    a = np.ones(4)
    cuda.jit(body)[1, 4](a)
    assert (a == 0).all()


def test_environment_variable_turns_the_checked_mode_on(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        "import numpy as np\n"
        "from kernels.simt import cuda\n"
        "@cuda.jit\n"
        "def kernel(a):\n"
        "    a[cuda.grid(1) + 1] = 1\n"
        "kernel[1, 4](np.zeros(4))\n"
    )
    env = {**os.environ, "MINIGRAD_CUDA_DEBUG": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, str(program)], env=env, capture_output=True, text=True, timeout=120
    )
    assert done.returncode != 0
    assert "IndexError" in done.stderr
    assert "5" in done.stderr


def test_a_thread_that_spins_for_a_later_one_is_reported(tmp_path):
    # In a process of its own: if the limit fails, the loop never ends.
    program = tmp_path / "program.py"
    program.write_text(
        "import numpy as np\n"
        "from kernels.simt import cuda\n"
        "@cuda.jit\n"
        "def kernel(flag, out):\n"
        "    i = cuda.threadIdx.x\n"
        "    if i == 0:\n"
        "        while cuda.atomic.add(flag, 0, 0) == 0:\n"
        "            pass\n"
        "        out[0] = 1\n"
        "    else:\n"
        "        cuda.atomic.add(flag, 0, 1)\n"
        "out = np.zeros(1)\n"
        "kernel[1, 32](np.zeros(1, np.int32), out)\n"
        "print('out', out[0])\n"
    )
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, str(program)], env=env, capture_output=True, text=True, timeout=120
    )
    # Either the threads are scheduled so that it ends, or an error says what happened and where.
    if done.returncode == 0:
        assert done.stdout.split() == ["out", "1.0"]
    else:
        assert "line 7" in done.stderr or "program.py:7" in done.stderr, done.stderr
        assert "step" in done.stderr or "spin" in done.stderr, done.stderr


REJECTED = [
    "a[0] = [x for x in range(3)][0]",
    "a[0] = {1: 2}[1]",
    "a[0] = 1 in {1, a[0]}",
    "a[0] = sum(x for x in range(3))",
    "a[0] = undefined_name",
    "a[0] = 'text'",
    "a.append(1)",
    "with open('x') as f: pass",
    "class C: pass",
    "yield a[0]",
    "x, *y = 1, 2, 3",
    "a[0] = sorted(a)[0]",
    "a[0] = (lambda x: {x: 1})(a[0])[1]",
    "a[0] = random.random()",
    "a[0] = np.random.rand()",
]


def rejected(statement: str, tmp_path: Path):
    """A kernel whose line 6 is the statement."""
    head = "import random\nimport numpy as np\nfrom kernels.simt import cuda\n"
    source = f"{head}@cuda.jit\ndef kernel(a):\n    {statement}\n"
    path = tmp_path / "rejected.py"
    path.write_text(source)
    scope = {}
    exec(compile(source, str(path), "exec"), scope)
    return scope["kernel"]


@pytest.mark.parametrize("statement", REJECTED)
def test_what_numba_cuda_rejects_is_rejected(statement, tmp_path):
    kernel = rejected(statement, tmp_path)
    with pytest.raises(Exception, match=r"rejected\.py:6|rejected\.py.*line 6|\(6\)") as caught:
        kernel[1, 1](np.zeros(1))
    assert not isinstance(caught.value, OSError)  # it did not run


@pytest.mark.needs("numba_cuda")
@pytest.mark.parametrize("statement", REJECTED)
def test_numba_cuda_rejects_it(statement, tmp_path):
    kernel = rejected(statement, tmp_path)
    with pytest.raises(Exception):  # noqa: B017 - numba-cuda's errors have no common class
        kernel.ptx("void(float64[::1])")


def test_unsupported_argument_type():
    with pytest.raises((TypeError, ValueError)) as caught:
        touch[1, 1](object())
    assert "touch" in str(caught.value) or "object" in str(caught.value)


def test_array_of_python_objects():
    with pytest.raises(TypeError, match=r"touch, argument 'a': an array of Python objects"):
        touch[1, 1](np.array([None]))


def test_records_with_16_bit_floats():
    with pytest.raises(TypeError, match="argument 'a': records with 16-bit floats"):
        touch[1, 1](np.zeros(1, [("x", np.float16)]))


def test_a_name_that_libdevice_has():
    with pytest.raises(AttributeError, match=r"no 'rsqrt'; it has cuda\.libdevice\.rsqrt"):
        cuda.rsqrt  # noqa: B018


def test_what_only_a_gpu_has_says_so():
    with pytest.raises(CompileError, match=r"lab\.compiled\(touch"):
        touch.inspect_sass()
    with pytest.raises(AttributeError, match="touch has no 'tuoch' on the CPU$"):
        touch.tuoch  # noqa: B018
    a = np.zeros(1)
    copy.copy(touch).specialize(a)[1, 1](a)
    assert a[0] == 1


def test_kernel_must_not_return_a_value():
    def kernel(a):
        return a[0]

    with pytest.raises(Exception, match="(?i)return|none|void"):
        cuda.jit(kernel)[1, 1](np.zeros(1))


def test_error_in_one_launch_does_not_poison_the_next():
    @cuda.jit(debug=True)
    def kernel(a, k):
        tile = cuda.shared.array(8, int64)
        i = cuda.threadIdx.x
        tile[i] = i
        cuda.syncthreads()
        a[i + k] = tile[7 - i]

    with pytest.raises(IndexError):
        kernel[1, 8](np.zeros(8, np.int64), 1)
    a = np.zeros(8, np.int64)
    kernel[1, 8](a, 0)
    assert a.tolist() == list(range(8))[::-1]


def test_barrier_mistake_of_the_tutorials_is_reported(line_of):
    # A guard around the whole body, barrier included, with threads left over.
    def body(a, n):
        tile = cuda.shared.array(32, float32)
        t = cuda.threadIdx.x
        i = cuda.grid(1)
        if i < n:
            tile[t] = a[i]
            cuda.syncthreads()  # HERE
            a[i] = tile[t]
        a[0] += 0

    with pytest.raises(RuntimeError, match="(?i)barrier|syncthreads") as caught:
        cuda.jit(body, debug=True)[2, 32](np.zeros(40, np.float32), 40)
    message = str(caught.value)
    assert str(line_of(body, "# HERE")) in message


def guarded(a, n):
    tile = cuda.shared.array(32, float32)
    t = cuda.threadIdx.x
    if cuda.grid(1) < n:
        tile[t] = a[t]
        cuda.syncthreads()  # HERE


def strided(a, n):
    i = cuda.threadIdx.x
    while i < n:
        a[i] += 1
        cuda.syncthreads()  # HERE
        i += cuda.blockDim.x


def returning(a, n):
    tile = cuda.shared.array(32, float32)
    t = cuda.threadIdx.x
    if cuda.grid(1) >= n:
        return
    tile[t] = a[t]
    cuda.syncthreads()
    while True:
        cuda.syncthreads()
        t += 32
        if t >= n:
            return


@pytest.mark.parametrize("kernel", [guarded, strided, returning], ids=lambda k: k.__name__)
def test_a_barrier_before_the_end_that_some_threads_do_not_come_to(kernel, line_of):
    """The hardware waits for no thread that has ended; CUDA allows that for a `return` only."""
    cuda.jit(kernel)[2, 32](np.zeros(64, np.float32), 40)
    if kernel is returning:
        cuda.jit(kernel, debug=True)[2, 32](np.zeros(64, np.float32), 40)
        return
    with pytest.raises(RuntimeError, match="reached by only some") as caught:
        cuda.jit(kernel, debug=True)[2, 32](np.zeros(64, np.float32), 40)
    assert str(line_of(kernel, "# HERE")) in str(caught.value)


@pytest.mark.parametrize("operation", ["add", "exch"])
def test_an_atomic_operation_on_unwritten_shared_memory(operation):
    def body(a):
        count = cuda.shared.array(4, int32)
        if operation == "add":
            cuda.atomic.add(count, cuda.threadIdx.x, 1)
        else:
            cuda.atomic.exch(count, cuda.threadIdx.x, 1)
        a[cuda.threadIdx.x] = count[cuda.threadIdx.x]

    kernel, a = cuda.jit(body, debug=True), np.zeros(4)
    if operation == "exch":  # which may be the first
        kernel[1, 4](a)
        assert (a == 1).all()
        return
    with pytest.raises(RuntimeError, match="uninitialised shared memory: 'count'"):
        kernel[1, 4](a)


def test_a_type_error_says_where_and_why_in_two_lines():
    @cuda.jit
    def adds(x):
        cuda.atomic.add(x, 0, 1)

    with pytest.raises(CompileError) as caught:
        adds[1, 1](np.zeros(3, np.int8))
    line = adds.py_func.__code__.co_firstlineno + 2
    kernel, reason = str(caught.value).splitlines()
    assert kernel == "kernel 'adds' does not type-check:"
    assert reason.startswith(f"{__file__}:{line}: atomic.add: CUDA has no such atomic for int8")


@pytest.mark.parametrize("bounds", [64, (64, 2)])
def test_more_threads_than_launch_bounds_allow(bounds):
    @cuda.jit(launch_bounds=bounds)
    def kernel(x):
        x[cuda.grid(1)] = 1

    x = np.zeros(128)
    kernel[2, 64](x)
    assert x.all()
    with pytest.raises(LaunchError, match="128 threads per block, but launch_bounds allows 64"):
        kernel[1, 128](x)
