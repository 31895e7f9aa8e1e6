#error "<cooperative_groups/reduce.h> is not here on the CPU yet: this kernel needs a GPU"
