"""PTX on the CPU: the text that numba-cuda and NVRTC write for a GPU, executed instruction by
instruction.

    module = kernels.ptx.load(image)
    module.launch(name, grid, block, shared_bytes, params, allocations=[(base, bytes), ...])

The text is parsed (`parser`, `nodes`), each instruction becomes an operation of a machine
(`lowering`, and by opcode `arithmetic`, `memory`, `control`, `tensors`), and the machine
(`machine/*.h`, C++ that is compiled once) executes operations for the 32 lanes of a warp together,
as hardware does. Nothing is compiled for a kernel: it runs some milliseconds after it is loaded.
"""

from kernels.ptx.module import OPCODES, Module, load

__all__ = ["OPCODES", "Module", "load"]
