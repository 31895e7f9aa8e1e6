"""`numba.cuda.cudadecl`, `cudaimpl` and `models`: where extensions register types and lowerings."""

from __future__ import annotations

from numba import extending
from numba.core.datamodel.models import *  # noqa: F403 - the classes of data models
from numba.core.imputils import lower_constant  # noqa: F401
from numba.core.typing.templates import builtin_registry

registry = builtin_registry
register_model = extending.register_model
lower = extending.lower_builtin
lower_attr, lower_attr_generic = extending.lower_getattr, extending.lower_getattr_generic
