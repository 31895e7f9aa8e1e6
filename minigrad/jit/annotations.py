"""Names of `typing` that programs for torch.jit import from here."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Tuple, Union  # noqa: UP035 - that is what they ask for

__all__ = ["Any", "Dict", "List", "Optional", "Tuple", "Union"]
