"""`minigrad.fit` and what goes with it: the history of a run, callbacks, checkpoints.

torch has no such loop; its programs write their own, which works here, too.
"""

from minigrad._names import namespace
from minigrad.training.callbacks import (
    Checkpoint,
    CSVLogger,
    EarlyStopping,
    Plot,
    TensorBoard,
)
from minigrad.training.history import History
from minigrad.training.loop import Callback, Fit, accuracy, fit

__all__ = [
    "CSVLogger",
    "Callback",
    "Checkpoint",
    "EarlyStopping",
    "Fit",
    "History",
    "Plot",
    "TensorBoard",
    "accuracy",
    "fit",
]

__getattr__, __dir__ = namespace(__name__)
