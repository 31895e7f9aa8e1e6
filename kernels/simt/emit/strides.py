"""The function for a kernel whose neighbouring blocks run a grid-stride loop together: `_j` counts
the blocks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from kernels.simt.emit.block import BlockPrinter
from kernels.simt.emit.rows import RowPrinter, WriteRow
from kernels.simt.plan.parts import BlockPlan, RegionPlan, StridePlan
from kernels.simt.transforms.fission import Item, Region, Scalars


class StridePrinter(BlockPrinter):
    """Writes the function for a kernel with a StridePlan."""

    def __init__(self, plan: BlockPlan, strides: StridePlan) -> None:
        super().__init__(plan)
        self.strides = strides
        version = plan.regions[strides.region].every_thread
        assert version is not None  # of which `strides` has the parts
        self.rows = RowPrinter(self, version)

    def write_blocks(self) -> None:
        line, strides = self.writer.line, self.strides
        with self.writer.block(f"for _piece in range(_first, _last, {strides.together}):"):
            self.polls.between_blocks()
            line(f"_joined = _min({strides.together}, _last - _piece)")
            with self.each_block("range(_joined - 1, -1, -1)"):  # so the first one comes last
                self.write(strides.before)
                self._write_rows(strides.head)
            self._loop()
            with self.each_block("range(_joined)"):
                self.write(self.plan.items)

    @contextmanager
    def each_block(self, blocks: str) -> Iterator[None]:
        with self.writer.block(f"for _j in {blocks}:"):
            self.writer.line("_block = _piece + _j")
            self.block_coordinates()
            for name in self.strides.arrays:
                self.writer.line(f"{name} = _all_{name}[_u(_j)]")
            yield

    def _loop(self) -> None:
        """The loop, for as long as no block is at the end. Meanwhile its counter is that of the
        last block."""
        line, strides, base = self.writer.line, self.strides, self.strides.base
        line(f"_begun = {base}")
        line(f"_across = (_joined - 1) * {strides.apart}")
        line(f"{base} = {base} + _across")
        line("_in_line = _bx + _joined <= _gx")  # else some blocks are in the next line of the grid
        test = self.expressions.text(strides.loop.test)
        with self.writer.block(f"while _in_line and {test}:"):
            self.polls.block_while(strides.loop, self.program.threads * strides.together)
            line(f"_front = {base}")
            with self.each_block("range(_joined)"):
                line(f"{base} = _front - _across + _j * {strides.apart}")
                self._write_rows(strides.loop.body[:-1])
            self.write(strides.loop.body[-1:])
        line(f"_done = {base} - _across - _begun")

    def _write_rows(self, items: list[Item]) -> None:
        with self.writer.closing():
            self.open_rows()
            self.rows.write(items)

    def write_versions(
        self, item: Region, plan: RegionPlan, write_row: WriteRow | None = None
    ) -> None:
        if item is not self.strides.region:
            super().write_versions(item, plan, write_row)
            return
        self.writer.line(f"# threads, from line {item.line}, where all blocks have come to")
        self.write([part for part in self.strides.head if isinstance(part, Scalars)])
        self.writer.line(f"{self.strides.base} = {self.strides.base} + _done")
        self._write_rows(self.strides.tail)
