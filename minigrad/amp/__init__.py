"""Mixed precision: `autocast` and `GradScaler`, with torch.amp's names and arguments."""

from minigrad._names import namespace
from minigrad.amp.autocast_mode import autocast, is_autocast_available
from minigrad.amp.functions import custom_bwd, custom_fwd
from minigrad.amp.grad_scaler import GradScaler

__all__ = ["GradScaler", "autocast", "custom_bwd", "custom_fwd", "is_autocast_available"]

__getattr__, __dir__ = namespace(__name__)
