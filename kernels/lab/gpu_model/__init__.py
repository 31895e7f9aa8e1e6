"""Facts about GPUs and what their compilers make of a kernel, without a GPU."""
