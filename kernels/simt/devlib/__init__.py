"""Device functions: what compiled kernels call, written as LLVM IR."""
