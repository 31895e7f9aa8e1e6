"""From a kernel's Python source to its normal form."""
