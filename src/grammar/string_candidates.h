// Which bytes may come next inside a JSON string: a superset, cheap to tell, that spares a walk over the
// vocabulary most of its steps.
#pragma once

#include <algorithm>

#include "grammar/sets.h"
#include "grammar/string_step.h"

namespace millrace::grammar {

inline void add_white(ByteSet& set) {
  for (const uint8_t b : {' ', '\n', '\t', '\r'}) set.set(b);
}

/// Adds what step_string() may take from `state` with the packed register `reg`. `may_close`: whether some
/// string may end here; `alive(target)`: whether a string may go on from there.
template <typename Alive>
void add_string_candidates(const Dfa& dfa, uint32_t state, uint64_t reg, bool may_close, Alive&& alive,
                           ByteSet& set) {
  using namespace string_phase;
  const auto hex = [&] {
    set.set_range('0', '9');
    set.set_range('a', 'f');
    set.set_range('A', 'F');
  };
  const uint32_t phase = StringRegister::unpack(reg).phase;
  switch (phase) {
    case kOpen:
      return set.set('"');
    case kChar: {
      ByteSet plain;
      bool any = false;
      for (const auto& e : dfa.out(state)) {
        if (!alive(e.target)) continue;
        any = true;
        if (e.lo < 0x80)
          plain.set_range(static_cast<uint8_t>(e.lo), static_cast<uint8_t>(std::min(e.hi, 0x7fu)));
        if (e.hi >= 0x80) plain.set_range(0xc2, 0xf4);
      }
      if (any) plain.set('\\');
      for (unsigned b = 0; b < 0x20; ++b) plain.clear(static_cast<uint8_t>(b));
      plain.clear('"');
      if (may_close) plain.set('"');
      set |= plain;
      return;
    }
    case kEscape:
      for (const uint8_t b : {'"', '\\', '/', 'b', 'f', 'n', 'r', 't', 'u'}) set.set(b);
      return;
    case kLowBackslash:
    case kLowTailBackslash:
      return set.set('\\');
    case kLowU:
    case kLowTailU:
      return set.set('u');
    default:
      if (phase >= kTail1 && phase <= kBits3) return set.set_range(0x80, 0xbf);
      return hex();
  }
}

}  // namespace millrace::grammar
