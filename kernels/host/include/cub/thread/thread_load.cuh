// cub::ThreadLoad and cub::ThreadStore: their cache modifiers change nothing here.
#pragma once

#include "../../minigrad/cub.h"

namespace cub {

enum CacheLoadModifier {
    LOAD_DEFAULT, LOAD_CA, LOAD_CG, LOAD_CS, LOAD_CV, LOAD_LDG, LOAD_VOLATILE
};
enum CacheStoreModifier {
    STORE_DEFAULT, STORE_WB, STORE_CG, STORE_CS, STORE_WT, STORE_VOLATILE
};

template <CacheLoadModifier, class Iterator>
auto ThreadLoad(Iterator from) {
    auto value = *from;
    return value;
}
template <CacheStoreModifier, class Iterator, class T>
void ThreadStore(Iterator to, T value) {
    *to = value;
}

}  // namespace cub
