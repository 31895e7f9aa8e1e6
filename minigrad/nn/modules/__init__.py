"""The layers, one file per family; the `__all__` of each file says which classes are public."""

# ruff: noqa: F403

from minigrad._names import namespace
from minigrad.nn.modules import (
    activation,
    attention,
    batchnorm,
    container,
    conv,
    distance,
    dropout,
    flatten,
    fold,
    lazy,
    linear,
    loss,
    module,
    normalization,
    padding,
    pixelshuffle,
    pooling,
    rnn,
    sparse,
    transformer,
    upsampling,
)
from minigrad.nn.modules.activation import *
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

__all__: list[str] = []
__all__ += activation.__all__
__all__ += attention.__all__
__all__ += batchnorm.__all__
__all__ += container.__all__
__all__ += conv.__all__
__all__ += distance.__all__
__all__ += dropout.__all__
__all__ += flatten.__all__
__all__ += fold.__all__
__all__ += lazy.__all__
__all__ += linear.__all__
__all__ += loss.__all__
__all__ += module.__all__
__all__ += normalization.__all__
__all__ += padding.__all__
__all__ += pixelshuffle.__all__
__all__ += pooling.__all__
__all__ += rnn.__all__
__all__ += sparse.__all__
__all__ += transformer.__all__
__all__ += upsampling.__all__

__getattr__, __dir__ = namespace(__name__)
