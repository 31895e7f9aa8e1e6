// CuPy's name of half precision.
#pragma once

#include "../cuda_fp16.h"

typedef __half float16;
