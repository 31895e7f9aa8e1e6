#error "<cooperative_groups.h> is not here on the CPU yet: this kernel needs a GPU"
