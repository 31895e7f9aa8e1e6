"""Text that a step prints or logs: a replay would leave it out, so such a step is not recorded.

Output is noticed where it happens, so a line that is not reached costs nothing. Files and streams
that code names are found by `guards.Watch`.
"""

from __future__ import annotations

import builtins
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from minigrad.compiler.arrays import stop


def _noticed(function: Callable, what: str) -> Callable:
    def call(*args: Any, **kwargs: Any) -> Any:
        stop(what)
        return function(*args, **kwargs)

    return call


@contextmanager
def noticed_output() -> Iterator[None]:
    """Stop the recorder of a thread that prints, asks or logs."""
    printing, asking, record = builtins.print, builtins.input, logging.getLogRecordFactory()
    builtins.print = _noticed(printing, "print()")
    builtins.input = _noticed(asking, "input()")
    logging.setLogRecordFactory(_noticed(record, "a message to a logger"))
    try:
        yield
    finally:
        builtins.print, builtins.input = printing, asking
        logging.setLogRecordFactory(record)
