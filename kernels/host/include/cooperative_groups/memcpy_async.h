#error "<cooperative_groups/memcpy_async.h> is not here on the CPU yet: this kernel needs a GPU"
