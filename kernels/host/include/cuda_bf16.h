#error "<cuda_bf16.h> is not here on the CPU yet: this kernel needs a GPU"
