// The description of a kernel's parameters that Python reads.
#pragma once

#include <type_traits>

namespace mgh {

// A type in one word: its kind and its bytes. Vector types are `v` with their element's kind.
template <class T, bool = std::is_enum_v<T>>
struct Kind {
    static constexpr char kind = 'x', element = 'x';
};
template <class T>
struct Kind<T, true> : Kind<std::underlying_type_t<T>> {};
#define MGH_KIND(T, k)                              \
    template <>                                     \
    struct Kind<T> {                                \
        static constexpr char kind = k, element = k; \
    };
MGH_KIND(void, 'p')
MGH_KIND(bool, 'b')
MGH_KIND(char, 'i')
MGH_KIND(signed char, 'i')
MGH_KIND(short, 'i')
MGH_KIND(int, 'i')
MGH_KIND(long, 'i')
MGH_KIND(long long, 'i')
MGH_KIND(unsigned char, 'u')
MGH_KIND(unsigned short, 'u')
MGH_KIND(unsigned int, 'u')
MGH_KIND(unsigned long, 'u')
MGH_KIND(unsigned long long, 'u')
MGH_KIND(float, 'f')
MGH_KIND(double, 'f')
#undef MGH_KIND

template <char of>
struct Vector {
    static constexpr char kind = 'v', element = of;
};
#define MGH_KIND(base, k)                           \
    template <> struct Kind<base##1> : Vector<k> {}; \
    template <> struct Kind<base##2> : Vector<k> {}; \
    template <> struct Kind<base##3> : Vector<k> {}; \
    template <> struct Kind<base##4> : Vector<k> {};
MGH_KIND(char, 'i')
MGH_KIND(uchar, 'u')
MGH_KIND(short, 'i')
MGH_KIND(ushort, 'u')
MGH_KIND(int, 'i')
MGH_KIND(uint, 'u')
MGH_KIND(long, 'i')
MGH_KIND(ulong, 'u')
MGH_KIND(longlong, 'i')
MGH_KIND(ulonglong, 'u')
MGH_KIND(float, 'f')
MGH_KIND(double, 'f')
#undef MGH_KIND

struct Parameter {  // mirrored by kernels/host/arguments.py
    int pointer, constant, kind, element, bytes, element_bytes, align;
};

template <class T> struct Plain { using type = T; static constexpr int constant = 0; };
template <class T> struct Plain<const T> { using type = T; static constexpr int constant = 1; };
template <class T> struct Plain<volatile T> : Plain<T> {};
template <class T> struct Plain<const volatile T> : Plain<const T> {};

template <class T> struct Bytes { static constexpr int size = sizeof(T), align = alignof(T); };
template <> struct Bytes<void> { static constexpr int size = 1, align = 1; };

template <class T> struct ElementBytes { static constexpr int value = Bytes<T>::size; };
#define MGH_ELEMENT(base)                                                                   \
    template <> struct ElementBytes<base##2> { static constexpr int value = sizeof(base##1); }; \
    template <> struct ElementBytes<base##3> { static constexpr int value = sizeof(base##1); }; \
    template <> struct ElementBytes<base##4> { static constexpr int value = sizeof(base##1); };
MGH_ELEMENT(char)
MGH_ELEMENT(uchar)
MGH_ELEMENT(short)
MGH_ELEMENT(ushort)
MGH_ELEMENT(int)
MGH_ELEMENT(uint)
MGH_ELEMENT(long)
MGH_ELEMENT(ulong)
MGH_ELEMENT(longlong)
MGH_ELEMENT(ulonglong)
MGH_ELEMENT(float)
MGH_ELEMENT(double)
#undef MGH_ELEMENT

template <class T>
struct Describe {
    static constexpr Parameter value = {0, 0, Kind<T>::kind, Kind<T>::element, (int)sizeof(T),
                                        ElementBytes<T>::value, (int)alignof(T)};
};
template <class T>
struct Describe<T*> {
    using Plainly = Plain<T>;
    using E = typename Plainly::type;
    static constexpr Parameter value = {1, Plainly::constant, Kind<E>::kind, Kind<E>::element,
                                        Bytes<E>::size, ElementBytes<E>::value, Bytes<E>::align};
};

}  // namespace mgh
