"""The public interface: `jit`, launches, and `cuda.random`, `cuda.reduce`, `cuda.vectorize`."""
