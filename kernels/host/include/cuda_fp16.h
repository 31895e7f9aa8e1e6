#error "<cuda_fp16.h> is not here on the CPU yet: this kernel needs a GPU"
