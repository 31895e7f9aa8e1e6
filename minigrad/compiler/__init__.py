"""`minigrad.compile`: a function or a module whose calls are recorded once and then replayed.

    step = minigrad.compile(step)       # a whole training step, or any function of tensors
    model = minigrad.compile(model)     # a module with the same parameters

The first call with arguments of new shapes, dtypes and flags runs on arrays that report what is
done with them (`record`). What was written down is fused (chains in `fuse`, epilogues and prologues
in `attach`), gets memory (`plan`) and is replayed by later calls (`program`): on the CPU without
Python between launches, on a GPU as a CUDA graph. A recording is valid while the Python state that
it depends on is the same (`guards`); seeds, options and step counts of optimisers are taken anew at
each replay (`late`).
"""

from minigrad._names import namespace
from minigrad.compiler.api import (
    Compiled,
    CompiledModule,
    allow_in_graph,
    assume_constant_result,
    compile,
    cudagraph_mark_step_begin,
    disable,
    is_compiling,
    is_dynamo_compiling,
    is_exporting,
    reset,
)
from minigrad.compiler.graph import Unsupported
from minigrad.compiler.stance import set_stance

__all__ = [
    "Compiled",
    "CompiledModule",
    "Unsupported",
    "allow_in_graph",
    "assume_constant_result",
    "compile",
    "cudagraph_mark_step_begin",
    "disable",
    "is_compiling",
    "is_dynamo_compiling",
    "is_exporting",
    "reset",
    "set_stance",
]

__getattr__, __dir__ = namespace(__name__)
