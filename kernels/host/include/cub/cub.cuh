#error "<cub/cub.cuh> is not here on the CPU yet: this kernel needs a GPU"
