#pragma once

#include "../minigrad/complex.h"
