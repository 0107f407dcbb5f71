#include "core/half.h"

#include <bit>
#include <cmath>

#include "core/utf8.h"
#include "testing/testing.h"

namespace millrace {
namespace {

TEST(Half, EveryFp16RoundTrips) {
  for (uint32_t h = 0; h < 0x10000; ++h) {
    const float f = fp16_to_float(static_cast<fp16_t>(h));
    if (std::isnan(f)) {
      EXPECT_TRUE(std::isnan(fp16_to_float(float_to_fp16(f))));
    } else {
      ASSERT_EQ(float_to_fp16(f), h);
    }
  }
}

// Clang knows the type on x86-64 from version 15 on.
#if !defined(__clang__) || __clang_major__ >= 15
TEST(Half, Fp16MatchesTheCompilersOwnConversion) {
  for (uint32_t i = 0; i < 0xffffffffu - 9973; i += 9973) {
    const float f = std::bit_cast<float>(i);
    if (std::isnan(f)) continue;
    const auto hardware = static_cast<_Float16>(f);
    ASSERT_EQ(float_to_fp16(f), std::bit_cast<uint16_t>(hardware)) << "bits " << i;
  }
}
#endif

TEST(Half, Bf16RoundsToNearestEven) {
  EXPECT_EQ(float_to_bf16(1.0f), 0x3f80);
  EXPECT_EQ(float_to_bf16(std::bit_cast<float>(0x3f808000u)), 0x3f80);
  EXPECT_EQ(float_to_bf16(std::bit_cast<float>(0x3f818000u)), 0x3f82);
  EXPECT_TRUE(std::isnan(bf16_to_float(float_to_bf16(NAN))));
  for (uint32_t b = 0; b < 0x10000; ++b) {
    const float f = bf16_to_float(static_cast<bf16_t>(b));
    if (!std::isnan(f)) {
      ASSERT_EQ(float_to_bf16(f), b);
    }
  }
}

TEST(Utf8, FindsIllFormedBytes) {
  EXPECT_EQ(utf8::find_invalid("héllo 世界 🙂"), std::string_view::npos);
  EXPECT_EQ(utf8::find_invalid("ab\xff"), 2u);
  EXPECT_EQ(utf8::find_invalid("\xc0\x80"), 0u);          // overlong
  EXPECT_EQ(utf8::find_invalid("\xed\xa0\x80"), 0u);      // surrogate
  EXPECT_EQ(utf8::find_invalid("\xf4\x90\x80\x80"), 0u);  // beyond U+10FFFF
  EXPECT_EQ(utf8::find_invalid("x\xe4\xb8"), 1u);         // cut short
}

TEST(Utf8, CompletePrefixHoldsBackOnlyWhatCanStillBecomeACharacter) {
  const std::string text = "a🙂世";
  for (size_t n = 0; n <= text.size(); ++n) {
    const size_t kept = utf8::complete_prefix(text.substr(0, n));
    EXPECT_TRUE(kept == 0 || kept == 1 || kept == 5 || kept == 8) << n;
    EXPECT_LE(kept, n);
  }
  EXPECT_EQ(utf8::complete_prefix("a\xff"), 2u);
  EXPECT_EQ(utf8::complete_prefix("a\x80\x80"), 3u);
}

TEST(Utf8, AppendAndNextAreInverse) {
  for (uint32_t c = 0; c < 0x110000; c += 7) {
    if (c >= 0xd800 && c < 0xe000) continue;
    std::string s;
    utf8::append(s, c);
    size_t at = 0;
    ASSERT_EQ(utf8::next(s, at), c);
    ASSERT_EQ(at, s.size());
  }
}

}  // namespace
}  // namespace millrace
