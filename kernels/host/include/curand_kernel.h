#error "<curand_kernel.h> is not here on the CPU yet: this kernel needs a GPU"
