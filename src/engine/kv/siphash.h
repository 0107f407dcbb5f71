// SipHash-2-4 (Aumasson, Bernstein 2012): a keyed hash whose collisions a client cannot make without the key.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace millrace::engine {

struct SipKey {
  uint64_t k0 = 0, k1 = 0;
};

inline uint64_t siphash(const SipKey& key, const void* data, size_t size) {
  uint64_t v0 = key.k0 ^ 0x736f6d6570736575ULL, v1 = key.k1 ^ 0x646f72616e646f6dULL;
  uint64_t v2 = key.k0 ^ 0x6c7967656e657261ULL, v3 = key.k1 ^ 0x7465646279746573ULL;
  const auto round = [&] {
    v0 += v1;
    v1 = std::rotl(v1, 13) ^ v0;
    v0 = std::rotl(v0, 32);
    v2 += v3;
    v3 = std::rotl(v3, 16) ^ v2;
    v0 += v3;
    v3 = std::rotl(v3, 21) ^ v0;
    v2 += v1;
    v1 = std::rotl(v1, 17) ^ v2;
    v2 = std::rotl(v2, 32);
  };
  const auto* bytes = static_cast<const unsigned char*>(data);
  size_t i = 0;
  for (; i + 8 <= size; i += 8) {
    uint64_t m;
    std::memcpy(&m, bytes + i, 8);
    v3 ^= m;
    round();
    round();
    v0 ^= m;
  }
  uint64_t last = static_cast<uint64_t>(size) << 56;
  for (size_t j = 0; i + j < size; ++j) last |= static_cast<uint64_t>(bytes[i + j]) << (8 * j);
  v3 ^= last;
  round();
  round();
  v0 ^= last;
  v2 ^= 0xff;
  for (int r = 0; r < 4; ++r) round();
  return v0 ^ v1 ^ v2 ^ v3;
}

}  // namespace millrace::engine
