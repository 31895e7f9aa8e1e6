// Asynchronous copies to shared memory by primitives: poison until they are waited for.
#pragma once

#define __pipeline_memcpy_async(to, from, ...) mgh::copy_async(__LINE__, to, from, __VA_ARGS__)
#define __pipeline_commit() mgh_copy_commit()
#define __pipeline_wait_prior(groups) mgh_copy_wait(groups)

namespace mgh {
inline void copy_async(int line, void* to, const void* from, size_t bytes, size_t zeros = 0) {
    mgh_copy_async(to, from, bytes, bytes - zeros, line);
}
}  // namespace mgh
