// The vector intrinsics. GCC 12 takes the deliberately undefined operands inside its own AVX-512 intrinsics
// for uninitialised variables of ours when it optimises; the warning is judged where the header was read.
#pragma once

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif
