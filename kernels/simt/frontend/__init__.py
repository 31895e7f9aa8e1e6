"""The front end: a kernel's Python source becomes its normal form."""
