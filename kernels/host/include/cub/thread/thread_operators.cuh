#include "../../minigrad/cub.h"
