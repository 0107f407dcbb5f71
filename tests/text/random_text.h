// Random texts for tokenizer tests: mixtures of what makes them go wrong.
#pragma once

#include <string>

#include "core/random.h"
#include "core/utf8.h"

namespace millrace::testing {

/// One random code point, mostly of the kinds that pre-tokenisers tell apart.
inline uint32_t random_code_point(Random& random) {
  static constexpr uint32_t kChosen[] = {
      ' ',     ' ',     ' ',    '\t',   '\n',     '\r',   '\n',   '\'',   '\'',    's',     'S',     't',
      'r',     'L',     'l',    'v',    'e',      'm',    'd',    '0',    '7',     '9',     '.',     ',',
      '!',     '-',     '/',    '_',    '$',      '=',    '~',    '^',    '|',     '`',     '(',     0xa0,
      0x85,    0x200b,  0x2028, 0x3000, 0x180e,   0x0,    0x7f,   0x17f,  0x130,   0x131,   0xdf,    0xe9,
      0x301,   0x300,   0x5d0,  0x5b0,  0x627,    0x64b,  0x661,  0x967,  0x93f,   0x939,   0xe01,   0xe34,
      0x1100,  0xac00,  0x4e00, 0x3005, 0x3007,   0x3042, 0x30a2, 0x30fc, 0x2160,  0xbd,    0x1c5,   0x2b0,
      0x2e80,  0x20ac,  0x2019, 0x201c, 0xff01,   0xff21, 0xff11, 0xfb01, 0x1f600, 0x1f3fd, 0x200d,  0xfe0f,
      0x20000, 0x16ff0, 0xe000, 0x378,  0x10ffff, 0xfffd, 0x2581, 0x3002, 0x60c,   0x661,   0x1d7d8, 0x10400};
  switch (random.below(8)) {
    case 0:
    case 1:
      return 0x20 + random.below(0x5f);
    case 2:
      return random.below(0x250);
    case 3: {
      const uint32_t c = random.below(0x30000);
      return c >= 0xd800 && c < 0xe000 ? 'x' : c;
    }
    default: {
      const uint32_t c = kChosen[random.below(sizeof(kChosen) / sizeof(kChosen[0]))];
      return c > 0x10ffff || (c >= 0xd800 && c < 0xe000) ? 'r' : c;
    }
  }
}

inline std::string random_text(Random& random, size_t most_characters) {
  std::string text;
  const size_t count = random.below(static_cast<uint32_t>(most_characters + 1));
  while (text.size() < count) {
    const uint32_t c = random_code_point(random);
    // Runs, so that counted repetitions and lookahead meet their borders.
    const uint32_t repeat = random.below(4) == 0 ? 1 + random.below(6) : 1;
    for (uint32_t i = 0; i < repeat; ++i) utf8::append(text, c);
  }
  return text;
}

inline std::string random_bytes(Random& random, size_t most) {
  std::string bytes(random.below(static_cast<uint32_t>(most + 1)), '\0');
  for (char& c : bytes) c = static_cast<char>(random.below(random.below(2) == 0 ? 256 : 128));
  return bytes;
}

}  // namespace millrace::testing
