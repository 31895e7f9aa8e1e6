#error "<mma.h> is not here on the CPU yet: this kernel needs a GPU"
