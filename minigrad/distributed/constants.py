"""How long operations of process groups may take unless they are told."""

from __future__ import annotations

from minigrad._names import namespace
from minigrad.distributed.groups import DEFAULT_TIMEOUT as default_pg_timeout

__all__ = ["default_pg_timeout"]

__getattr__, __dir__ = namespace(__name__)
