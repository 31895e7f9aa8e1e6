// threadIdx, blockIdx, blockDim, gridDim, warpSize.
#pragma once

#define threadIdx (*(const uint3*)&mgh::self()->thread)
#define blockIdx (*(const uint3*)&mgh::self()->worker->block)
#define blockDim (*(const dim3*)&mgh::self()->worker->block_dim)
#define gridDim (*(const dim3*)&mgh::self()->worker->grid_dim)

constexpr int warpSize = 32;
