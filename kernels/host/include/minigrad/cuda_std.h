// cuda::std is the C++ library that devices have: on a CPU the compiler's own.
#pragma once

namespace cuda::std {
using namespace ::std;
}
