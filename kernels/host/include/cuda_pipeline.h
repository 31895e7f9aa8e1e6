#error "<cuda_pipeline.h> is not here on the CPU yet: this kernel needs a GPU"
