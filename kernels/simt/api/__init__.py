"""What a program calls: `jit`, launches, and `cuda.random`, `cuda.reduce`, `cuda.vectorize`."""
