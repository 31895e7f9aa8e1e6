#error "<cuda_fp8.h> is not here on the CPU yet: this kernel needs a GPU"
