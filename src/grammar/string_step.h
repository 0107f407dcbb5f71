// One byte of a JSON string, seen through its escapes: the automaton of the string's characters moves when a
// character is complete, or as soon as every way to complete it leads to the same place (so that the many
// ways to write a character do not become many states).
#pragma once

#include <cstdint>

#include "grammar/dfa.h"

namespace millrace::grammar {

namespace string_phase {
enum : uint32_t {
  kOpen,  ///< before the opening quote
  kChar,  ///< between characters
  // The character's target is known; so many continuation bytes are left, the next one within limits.
  kTail1,
  kTail2,
  kTail3,  ///< any continuation
  kTailE0,
  kTailEd,
  kTailF0,
  kTailF4,
  // The target is open; the bits read so far are kept.
  kBits1,
  kBits2,
  kBits3,
  kEscape,  ///< after '\'
  kHex4,
  kHex3,
  kHex2,
  kHex1,
  kHexTail3,
  kHexTail2,
  kHexTail1,
  kLowBackslash,
  kLowU,
  kLow4,
  kLow3,
  kLow2,
  kLow1,  ///< the second half of a surrogate pair, bits kept
  kLowTailBackslash,
  kLowTailU,
  kLowTail4,
  kLowTail3,
};
/// Whether the automaton's state already is the one after the character being read.
constexpr bool settled(uint32_t phase) {
  return phase == kChar || (phase >= kTail1 && phase <= kTailF4) ||
         (phase >= kHexTail3 && phase <= kHexTail1) || phase >= kLowTailBackslash;
}
}  // namespace string_phase

/// What a frame inside a string holds, packed: phase (5 bits), bits (21), count of characters (38).
struct StringRegister {
  uint32_t phase = 0;
  uint32_t bits = 0;
  uint64_t count = 0;
  static StringRegister unpack(uint64_t r) {
    return {static_cast<uint32_t>(r & 31), static_cast<uint32_t>((r >> 5) & 0x1fffff), r >> 26};
  }
  uint64_t pack() const { return phase | (uint64_t{bits} << 5) | (count << 26); }
};

enum class StringResult : uint8_t { kDead, kInside, kClosed };

/// Steps `state` and `r` by `byte`. `alive(state, count)`: whether a string may go on from there;
/// `clamp(count)` normalises counts; `may_close(state, count)`: whether it may end.
template <typename Alive, typename Clamp, typename MayClose>
StringResult step_string(const Dfa& dfa, uint32_t& state, StringRegister& r, uint8_t byte, Alive&& alive,
                         Clamp&& clamp, MayClose&& may_close) {
  using namespace string_phase;
  const auto hex = [](uint8_t b) -> int {
    if (b >= '0' && b <= '9') return b - '0';
    if (b >= 'a' && b <= 'f') return b - 'a' + 10;
    if (b >= 'A' && b <= 'F') return b - 'A' + 10;
    return -1;
  };
  // Moves over the complete character c.
  const auto take = [&](uint32_t c) {
    const uint32_t t = dfa.step(state, c);
    if (t == Dfa::kDead) return StringResult::kDead;
    const uint64_t n = clamp(r.count + 1);
    if (!alive(t, n)) return StringResult::kDead;
    state = t;
    r = {kChar, 0, n};
    return StringResult::kInside;
  };
  // The characters [lo, hi] are still possible. One target for all: move now and go to phase `tail`; else
  // keep `bits` in phase `open`, as long as some character of them is possible.
  const auto narrow = [&](uint32_t lo, uint32_t hi, uint32_t tail, uint32_t open, uint32_t bits) {
    const auto list = dfa.out(state);
    size_t i = 0;
    while (i < list.size() && list[i].hi < lo) ++i;
    if (i == list.size()) return StringResult::kDead;
    if (list[i].lo <= lo && list[i].hi >= hi) {
      const uint64_t n = clamp(r.count + 1);
      if (!alive(list[i].target, n)) return StringResult::kDead;
      state = list[i].target;
      r = {tail, 0, n};
      return StringResult::kInside;
    }
    const uint64_t n = clamp(r.count + 1);
    for (; i < list.size() && list[i].lo <= hi; ++i)
      if (alive(list[i].target, n)) {
        r.phase = open;
        r.bits = bits;
        return StringResult::kInside;
      }
    return StringResult::kDead;
  };
  const auto tail = [&](uint8_t lo, uint8_t hi, uint32_t next) {
    if (byte < lo || byte > hi) return StringResult::kDead;
    r.phase = next;
    return StringResult::kInside;
  };
  const auto hex_tail = [&](uint32_t next) {
    if (hex(byte) < 0) return StringResult::kDead;
    r.phase = next;
    return StringResult::kInside;
  };

  switch (r.phase) {
    case kOpen:
      if (byte != '"') return StringResult::kDead;
      r.phase = kChar;
      return StringResult::kInside;
    case kChar:
      if (byte == '"') return may_close(state, r.count) ? StringResult::kClosed : StringResult::kDead;
      if (byte == '\\') {
        const uint64_t n = clamp(r.count + 1);
        for (const auto& e : dfa.out(state))
          if (alive(e.target, n)) {
            r.phase = kEscape;
            return StringResult::kInside;
          }
        return StringResult::kDead;
      }
      if (byte < 0x20) return StringResult::kDead;
      if (byte < 0x80) return take(byte);
      if (byte < 0xc2 || byte > 0xf4) return StringResult::kDead;
      if (byte < 0xe0)
        return narrow((byte & 0x1fu) << 6, ((byte & 0x1fu) << 6) | 0x3f, kTail1, kBits1, byte & 0x1f);
      if (byte < 0xf0) {
        const uint32_t b = byte & 0xf, lo = byte == 0xe0 ? 0x800 : b << 12;
        const uint32_t hi = byte == 0xed ? 0xd7ff : (b << 12) | 0xfff;
        return narrow(lo, hi, byte == 0xe0 ? kTailE0 : byte == 0xed ? kTailEd : kTail2, kBits2, b);
      }
      {
        const uint32_t b = byte & 7, lo = byte == 0xf0 ? 0x10000 : b << 18;
        const uint32_t hi = byte == 0xf4 ? kMaxCodepoint : (b << 18) | 0x3ffff;
        return narrow(lo, hi, byte == 0xf0 ? kTailF0 : byte == 0xf4 ? kTailF4 : kTail3, kBits3, b);
      }
    case kTail1:
      return tail(0x80, 0xbf, kChar);
    case kTail2:
      return tail(0x80, 0xbf, kTail1);
    case kTail3:
      return tail(0x80, 0xbf, kTail2);
    case kTailE0:
      return tail(0xa0, 0xbf, kTail1);
    case kTailEd:
      return tail(0x80, 0x9f, kTail1);
    case kTailF0:
      return tail(0x90, 0xbf, kTail2);
    case kTailF4:
      return tail(0x80, 0x8f, kTail2);
    case kBits1:
      if ((byte & 0xc0) != 0x80) return StringResult::kDead;
      return take((r.bits << 6) | (byte & 0x3f));
    case kBits2: {
      if ((byte & 0xc0) != 0x80) return StringResult::kDead;
      const uint32_t bits = (r.bits << 6) | (byte & 0x3f);
      if (bits < 0x20 || (bits >= 0x360 && bits <= 0x37f)) return StringResult::kDead;  // overlong, surrogate
      return narrow(bits << 6, (bits << 6) | 0x3f, kTail1, kBits1, bits);
    }
    case kBits3: {
      if ((byte & 0xc0) != 0x80) return StringResult::kDead;
      const uint32_t bits = (r.bits << 6) | (byte & 0x3f);
      if (bits < 0x10 || bits > 0x10f) return StringResult::kDead;
      return narrow(bits << 12, (bits << 12) | 0xfff, kTail2, kBits2, bits);
    }
    case kEscape:
      switch (byte) {
        case '"':
        case '\\':
        case '/':
          return take(byte);
        case 'b':
          return take('\b');
        case 'f':
          return take('\f');
        case 'n':
          return take('\n');
        case 'r':
          return take('\r');
        case 't':
          return take('\t');
        case 'u':
          r.phase = kHex4;
          return StringResult::kInside;
        default:
          return StringResult::kDead;
      }
    case kHex4: {
      const int h = hex(byte);
      if (h < 0) return StringResult::kDead;
      const uint32_t b = static_cast<uint32_t>(h);
      if (b != 0xd) return narrow(b << 12, (b << 12) | 0xfff, kHexTail3, kHex3, b);
      // d000 to d7ff, and the first halves of surrogate pairs.
      const uint64_t n = clamp(r.count + 1);
      for (const auto& e : dfa.out(state))
        if (((e.lo <= 0xd7ff && e.hi >= 0xd000) || e.hi >= 0x10000) && alive(e.target, n)) {
          r.phase = kHex3;
          r.bits = b;
          return StringResult::kInside;
        }
      return StringResult::kDead;
    }
    case kHex3: {
      const int h = hex(byte);
      if (h < 0) return StringResult::kDead;
      const uint32_t b = (r.bits << 4) | static_cast<uint32_t>(h);
      if (b >= 0xdc && b <= 0xdf) return StringResult::kDead;
      if (b >= 0xd8 && b <= 0xdb) {
        const uint32_t lo = 0x10000 + ((b - 0xd8) << 18), hi = lo | 0x3ffff;
        const uint64_t n = clamp(r.count + 1);
        for (const auto& e : dfa.out(state))
          if (e.lo <= hi && e.hi >= lo && alive(e.target, n)) {
            r.phase = kHex2;
            r.bits = b;
            return StringResult::kInside;
          }
        return StringResult::kDead;
      }
      return narrow(b << 8, (b << 8) | 0xff, kHexTail2, kHex2, b);
    }
    case kHex2: {
      const int h = hex(byte);
      if (h < 0) return StringResult::kDead;
      const uint32_t b = (r.bits << 4) | static_cast<uint32_t>(h);
      if (r.bits >= 0xd8 && r.bits <= 0xdb) {
        const uint32_t lo = 0x10000 + ((b - 0xd80) << 14), hi = lo | 0x3fff;
        const uint64_t n = clamp(r.count + 1);
        for (const auto& e : dfa.out(state))
          if (e.lo <= hi && e.hi >= lo && alive(e.target, n)) {
            r.phase = kHex1;
            r.bits = b;
            return StringResult::kInside;
          }
        return StringResult::kDead;
      }
      return narrow(b << 4, (b << 4) | 0xf, kHexTail1, kHex1, b);
    }
    case kHex1: {
      const int h = hex(byte);
      if (h < 0) return StringResult::kDead;
      const uint32_t b = (r.bits << 4) | static_cast<uint32_t>(h);
      if (b >= 0xd800 && b <= 0xdbff) {
        const uint32_t high = b - 0xd800;
        const uint32_t lo = 0x10000 + (high << 10);
        return narrow(lo, lo | 0x3ff, kLowTailBackslash, kLowBackslash, high);
      }
      return take(b);
    }
    case kHexTail3:
      return hex_tail(kHexTail2);
    case kHexTail2:
      return hex_tail(kHexTail1);
    case kHexTail1:
      return hex_tail(kChar);
    case kLowBackslash:
      return tail('\\', '\\', kLowU);
    case kLowU:
      return tail('u', 'u', kLow4);
    case kLow4:
      return hex(byte) == 0xd ? tail(byte, byte, kLow3) : StringResult::kDead;
    case kLow3: {
      const int h = hex(byte);
      if (h < 0xc) return StringResult::kDead;
      const uint32_t b = (r.bits << 2) | static_cast<uint32_t>(h - 0xc);
      const uint32_t lo = 0x10000 + (b << 8);
      return narrow(lo, lo | 0xff, kHexTail2, kLow2, b);
    }
    case kLow2: {
      const int h = hex(byte);
      if (h < 0) return StringResult::kDead;
      const uint32_t b = (r.bits << 4) | static_cast<uint32_t>(h);
      const uint32_t lo = 0x10000 + (b << 4);
      return narrow(lo, lo | 0xf, kHexTail1, kLow1, b);
    }
    case kLow1: {
      const int h = hex(byte);
      if (h < 0) return StringResult::kDead;
      return take(0x10000 + ((r.bits << 4) | static_cast<uint32_t>(h)));
    }
    case kLowTailBackslash:
      return tail('\\', '\\', kLowTailU);
    case kLowTailU:
      return tail('u', 'u', kLowTail4);
    case kLowTail4:
      return hex(byte) == 0xd ? tail(byte, byte, kLowTail3) : StringResult::kDead;
    case kLowTail3:
      return hex(byte) >= 0xc ? tail(byte, byte, kHexTail2) : StringResult::kDead;
    default:
      return StringResult::kDead;
  }
}

}  // namespace millrace::grammar
