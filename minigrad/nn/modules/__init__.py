"""The layers, one file per family; the `__all__` of each file says which classes are public."""

# ruff: noqa: F403

from types import ModuleType
from typing import TYPE_CHECKING

from minigrad._names import namespace
from minigrad.nn.modules.activation import *
from minigrad.nn.modules.adaptive import *
from minigrad.nn.modules.attention import *
from minigrad.nn.modules.batchnorm import *
from minigrad.nn.modules.container import *
from minigrad.nn.modules.conv import *
from minigrad.nn.modules.distance import *
from minigrad.nn.modules.dropout import *
from minigrad.nn.modules.flatten import *
from minigrad.nn.modules.fold import *
from minigrad.nn.modules.lazy import *
from minigrad.nn.modules.linear import *
from minigrad.nn.modules.loss import *
from minigrad.nn.modules.module import *
from minigrad.nn.modules.normalization import *
from minigrad.nn.modules.padding import *
from minigrad.nn.modules.pixelshuffle import *
from minigrad.nn.modules.pooling import *
from minigrad.nn.modules.rnn import *
from minigrad.nn.modules.sparse import *
from minigrad.nn.modules.transformer import *
from minigrad.nn.modules.upsampling import *

if not TYPE_CHECKING:  # mypy cannot compute it: to it, all names above are public
    __all__ = [
        name
        for file in globals().values()
        if isinstance(file, ModuleType) and hasattr(file, "__all__")
        for name in file.__all__
    ]

__getattr__, __dir__ = namespace(__name__)
