"""The older name of `hub.load_state_dict_from_url`."""

from minigrad._names import namespace
from minigrad.hub import load_state_dict_from_url as load_url

__all__ = ["load_url"]

__getattr__, __dir__ = namespace(__name__)
