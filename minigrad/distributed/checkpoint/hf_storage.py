"""Readers and writers of checkpoints in safetensors files, which minigrad has none of."""

from minigrad._absent import absent
from minigrad._names import namespace

_ADVICE = "minigrad writes checkpoints in its own files; fix: minigrad.safetensors.save_file"
HuggingFaceStorageReader = absent("HuggingFaceStorageReader", _ADVICE)
HuggingFaceStorageWriter = absent("HuggingFaceStorageWriter", _ADVICE)

__all__ = ["HuggingFaceStorageReader", "HuggingFaceStorageWriter"]

__getattr__, __dir__ = namespace(__name__)
