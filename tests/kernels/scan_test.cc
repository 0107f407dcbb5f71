// Every ISA's recurrences by chunks and convolutions against the plain ones, and each against itself in
// pieces.
#include "kernels/scan.h"

#include <cmath>

#include "core/random.h"
#include "kernels/table.h"
#include "testing/kernels.h"

namespace millrace::kernels {
namespace {

std::vector<IsaLevel> scan_levels() {
  std::vector<IsaLevel> all;
  if (best_isa() >= IsaLevel::kAvx2) all.push_back(IsaLevel::kAvx2);
  if (best_isa() >= IsaLevel::kAvx512) all.push_back(IsaLevel::kAvx512);
  return all;
}

class ScanTest : public ::testing::TestWithParam<IsaLevel> {
 protected:
  std::vector<float> floats(int64_t n, float spread = 1.0f) {
    std::vector<float> x(static_cast<size_t>(n));
    for (float& f : x) f = spread * random_.normal();
    return x;
  }
  static void expect_close(const std::vector<float>& got, const std::vector<float>& expected,
                           const std::string& what) {
    ASSERT_EQ(got.size(), expected.size());
    for (size_t i = 0; i < got.size(); ++i)
      ASSERT_NEAR(got[i], expected[i], 1e-4 * (1 + std::fabs(expected[i]))) << what << ", element " << i;
  }

  Random random_{testing::seed()};
  const ScanKernels& fast_ = table(GetParam()).scan;
  const ScanKernels& plain_ = table(IsaLevel::kScalar).scan;
};

INSTANTIATE_TEST_SUITE_P(EveryIsa, ScanTest, ::testing::ValuesIn(scan_levels()),
                         millrace::testing::isa_test_name);

/// A chunk's memory: what lies behind each row is a guard that a kernel may neither use nor change.
struct ChunkMemory {
  static constexpr int64_t kGap = 3;
  static constexpr float kGuard = 1e30f;
  int64_t size, columns;
  std::vector<float> state, keys, factor, mix, values, y;

  ChunkScan scan(int64_t first, int64_t end, bool all_keys = false) {
    ChunkScan s{};
    s.first = first;
    s.end = end;
    s.size = size;
    s.columns = columns;
    s.state = state.data();
    s.key_stride = size + kGap;
    s.keys = keys.data() + (all_keys ? 0 : first * s.key_stride);
    s.factor = factor.data();
    s.mix = mix.data();
    s.values = values.data();
    s.value_stride = s.y_stride = columns + kGap;
    s.y = y.data() + first * s.y_stride;
    return s;
  }
};

TEST_P(ScanTest, ChunksMatchThePlainKernels) {
  for (int round = 0; round < 60; ++round) {
    ChunkMemory m;
    m.size = 1 + static_cast<int64_t>(random_.below(round % 2 ? 140 : 9));
    m.columns = round % 3 ? 1 + static_cast<int64_t>(random_.below(kScanStrip)) : kScanStrip;
    const int64_t first = static_cast<int64_t>(random_.below(kScanChunk)),
                  end = first + 1 + static_cast<int64_t>(random_.below(kScanChunk - first));
    const std::string what = fmt::format("[{} x {}], tokens {} to {}", m.size, m.columns, first, end);
    m.state = floats(m.size * m.columns);
    m.keys = floats(kScanChunk * (m.size + ChunkMemory::kGap), 0.1f);
    m.factor = floats(kScanChunk, 0.5f);
    m.mix = floats(kScanChunk * kScanChunk, 0.1f);
    m.values = floats(kScanChunk * (m.columns + ChunkMemory::kGap));
    m.y.assign(m.values.size(), ChunkMemory::kGuard);
    // Nobody reads what later tokens will leave.
    for (size_t i = static_cast<size_t>(end * (m.columns + ChunkMemory::kGap)); i < m.values.size(); ++i)
      m.values[i] = NAN;
    ChunkMemory a = m, b = m, pieces = m;
    const auto both = [&](auto kernel, bool all_keys) {
      (fast_.*kernel)(a.scan(first, end, all_keys));
      (plain_.*kernel)(b.scan(first, end, all_keys));
    };
    both(&ScanKernels::read, false);
    expect_close(a.y, b.y, "read " + what);
    both(&ScanKernels::solve, false);
    for (int64_t t = first; t < end; ++t) fast_.read(pieces.scan(t, t + 1));
    for (int64_t t = first; t < end; ++t) fast_.solve(pieces.scan(t, t + 1));
    EXPECT_EQ(pieces.y, a.y) << "read token by token " << what;
    const auto used = static_cast<int64_t>(end * (m.columns + ChunkMemory::kGap));
    const auto head = [used](const std::vector<float>& x) {
      return std::vector<float>(x.begin(), x.begin() + used);
    };
    EXPECT_EQ(head(pieces.values), head(a.values)) << "solve token by token " << what;
    expect_close(head(a.values), head(b.values), "solve " + what);
    b.values = a.values;
    both(&ScanKernels::update, true);
    expect_close(a.state, b.state, "update " + what);
  }
}

TEST_P(ScanTest, PairsMatchThePlainKernel) {
  for (int round = 0; round < 40; ++round) {
    const int64_t size = 1 + static_cast<int64_t>(random_.below(round % 2 ? 140 : 9)), stride = size + 3;
    const int64_t first = static_cast<int64_t>(random_.below(kScanChunk)),
                  end = first + 1 + static_cast<int64_t>(random_.below(kScanChunk - first));
    const auto rows = floats((end - first) * stride), keys = floats(end * stride);  // nothing behind the last
    std::vector<float> a(kScanChunk * kScanChunk), b = a, alone = a;
    fast_.pairs({first, end, size, rows.data(), stride, keys.data(), stride, a.data()});
    plain_.pairs({first, end, size, rows.data(), stride, keys.data(), stride, b.data()});
    for (int64_t t = first; t < end; ++t)
      fast_.pairs(
          {t, t + 1, size, rows.data() + (t - first) * stride, stride, keys.data(), stride, alone.data()});
    for (int64_t t = first; t < end; ++t)
      for (int64_t s = 0; s <= t; ++s) {
        const auto at = static_cast<size_t>(t * kScanChunk + s);
        EXPECT_NEAR(a[at], b[at], 1e-4 * (1 + std::fabs(b[at]))) << t << " with " << s << ", size " << size;
        EXPECT_EQ(a[at], alone[at]) << t << " with " << s << " alone, size " << size;
      }
  }
}

TEST_P(ScanTest, ConvolutionsMatchThePlainKernel) {
  for (const int64_t taps : {1, 2, 3, 4, 5, 9})
    for (const int64_t channels : {1, 7, 16, 33, 100}) {
      const int64_t tokens = 1 + static_cast<int64_t>(random_.below(13)), stride = channels + 5;
      const auto x = floats(tokens * stride), weight = floats(taps * stride), bias = floats(channels);
      const auto state = floats(std::max<int64_t>(taps - 1, 1) * stride);
      const bool silu = random_.below(2) == 0, biased = random_.below(2) == 0;
      const auto run = [&](const ScanKernels& kernels, std::vector<float>& past, std::vector<float>& y,
                           int64_t from, int64_t to) {
        CausalConv conv{};
        conv.tokens = to - from;
        conv.channels = channels;
        conv.taps = taps;
        conv.x = conv.y = y.data() + from * stride;  // in place
        conv.x_stride = conv.y_stride = conv.weight_stride = conv.state_stride = stride;
        conv.weight = weight.data();
        conv.bias = biased ? bias.data() : nullptr;
        conv.silu = silu;
        conv.state = past.data();
        kernels.conv(conv);
      };
      auto past = state, plain_past = state, cut_past = state, y = x, plain_y = x, cut_y = x;
      run(fast_, past, y, 0, tokens);
      run(plain_, plain_past, plain_y, 0, tokens);
      for (int64_t t = 0; t < tokens; ++t) run(fast_, cut_past, cut_y, t, t + 1);
      const std::string what = fmt::format("{} taps, {} channels, {} tokens", taps, channels, tokens);
      expect_close(y, plain_y, what);
      EXPECT_EQ(past, plain_past) << what;
      EXPECT_EQ(cut_y, y) << what;
      EXPECT_EQ(cut_past, past) << what;
    }
}

}  // namespace
}  // namespace millrace::kernels
