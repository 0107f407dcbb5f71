// Latent attention of every ISA against its formula in double; paged, ragged, cut into steps.
#include "ops/mla.h"

#include <cmath>
#include <numeric>

#include "core/random.h"
#include "testing/kernels.h"

namespace millrace::ops {
namespace {

using testing::isa_levels;
using testing::random_floats;

struct Shape {
  int32_t heads, latent, rope;
};

class MlaTest : public ::testing::TestWithParam<IsaLevel> {
 protected:
  /// Output rows of each sequence; `cut` tokens a step at most.
  std::vector<std::vector<float>> run(const Shape& s, KvFormat format, const std::vector<int32_t>& lengths,
                                      int32_t cut) {
    LatentShape shape{s.heads, s.latent, s.rope,
                      16,      format,   latent_block_bytes(format, 16, s.latent, s.rope)};
    AttentionOptions options;
    options.scale = scale_;
    int32_t blocks = 0;
    std::vector<std::vector<int32_t>> tables;
    for (const int32_t n : lengths) {
      tables.emplace_back();
      for (int32_t at = 0; at < n; at += 16) tables.back().push_back(blocks++);
    }
    for (auto& table : tables)
      for (int32_t& b : table) b = blocks - 1 - b;
    AlignedBuffer cache(static_cast<size_t>(blocks * shape.block_bytes));
    std::memset(cache.data(), 0xff, cache.size());
    std::vector<std::vector<float>> results(lengths.size());
    std::vector<int32_t> at(lengths.size(), 0);
    const int64_t ql = int64_t{s.heads} * s.latent, qr = int64_t{s.heads} * s.rope;
    while (at != lengths) {
      std::vector<AttentionSequence> step;
      std::vector<float> q_latent, q_rope, latent, k_rope;
      int32_t rows = 0;
      for (size_t i = 0; i < lengths.size(); ++i) {
        const int32_t n = std::min(cut, lengths[i] - at[i]);
        const auto append = [&](std::vector<float>& out, const std::vector<float>& in, int64_t width) {
          out.insert(out.end(), in.begin() + at[i] * width, in.begin() + (at[i] + n) * width);
        };
        append(q_latent, q_latent_[i], ql);
        append(q_rope, q_rope_[i], qr);
        append(latent, latent_[i], s.latent);
        append(k_rope, k_rope_[i], s.rope);
        at[i] += n;
        step.push_back({rows, n, at[i], tables[i]});
        rows += n;
      }
      std::vector<float> out(static_cast<size_t>(rows * ql), NAN);
      arena_.reset();
      const LatentInput input{q_latent.data(), q_rope.data(), ql,       qr,    0,
                              latent.data(),   k_rope.data(), s.latent, s.rope};
      latent_attention(context_, shape, options, step, input, cache.data(), out.data(), ql);
      for (size_t i = 0; i < step.size(); ++i)
        results[i].insert(results[i].end(), out.begin() + step[i].query_begin * ql,
                          out.begin() + (step[i].query_begin + step[i].query_length) * ql);
    }
    return results;
  }

  std::vector<float> expected(const Shape& s, size_t i, int32_t length) const {
    std::vector<float> out;
    for (int32_t p = 0; p < length; ++p)
      for (int32_t h = 0; h < s.heads; ++h) {
        std::vector<double> weights;
        double sum = 0;
        for (int32_t t = 0; t <= p; ++t) {
          double score = 0;
          for (int32_t d = 0; d < s.latent; ++d)
            score += double{q_latent_[i][static_cast<size_t>((p * s.heads + h) * s.latent + d)]} *
                     latent_[i][static_cast<size_t>(t * s.latent + d)];
          for (int32_t d = 0; d < s.rope; ++d)
            score += double{q_rope_[i][static_cast<size_t>((p * s.heads + h) * s.rope + d)]} *
                     k_rope_[i][static_cast<size_t>(t * s.rope + d)];
          weights.push_back(std::exp(score * scale_));
          sum += weights.back();
        }
        for (int32_t d = 0; d < s.latent; ++d) {
          double x = 0;
          for (int32_t t = 0; t <= p; ++t)
            x += weights[static_cast<size_t>(t)] * latent_[i][static_cast<size_t>(t * s.latent + d)];
          out.push_back(static_cast<float>(x / sum));
        }
      }
    return out;
  }

  float scale_ = 0.1f;
  Random random_{testing::seed()};
  std::vector<std::vector<float>> q_latent_, q_rope_, latent_, k_rope_;
  ThreadPool pool_{3};
  Arena arena_;
  Context context_{pool_, kernels::table(GetParam()), arena_};
};

INSTANTIATE_TEST_SUITE_P(EveryIsa, MlaTest, ::testing::ValuesIn(isa_levels()),
                         millrace::testing::isa_test_name);

TEST_P(MlaTest, MatchesItsFormulaAndDoesNotDependOnTheCut) {
  for (const Shape& s : {Shape{1, 16, 4}, Shape{4, 24, 10}, Shape{7, 40, 3}, Shape{16, 128, 64}}) {
    const std::vector<int32_t> lengths{70, 1, 33};
    q_latent_.clear(), q_rope_.clear(), latent_.clear(), k_rope_.clear();
    for (const int32_t n : lengths) {
      q_latent_.push_back(random_floats(random_, int64_t{n} * s.heads * s.latent));
      q_rope_.push_back(random_floats(random_, int64_t{n} * s.heads * s.rope));
      latent_.push_back(random_floats(random_, int64_t{n} * s.latent));
      k_rope_.push_back(random_floats(random_, int64_t{n} * s.rope));
    }
    for (const KvFormat format : {KvFormat::kF32, KvFormat::kBF16}) {
      const auto whole = run(s, format, lengths, 1000);
      for (size_t i = 0; i < lengths.size(); ++i) {
        const auto right = expected(s, i, lengths[i]);
        ASSERT_EQ(whole[i].size(), right.size());
        for (size_t j = 0; j < right.size(); ++j)
          ASSERT_NEAR(whole[i][j], right[j], format == KvFormat::kF32 ? 2e-5 : 0.03)
              << s.heads << " heads, latent " << s.latent << ", rope " << s.rope << ", sequence " << i;
      }
      EXPECT_EQ(run(s, format, lengths, 1), whole);
      EXPECT_EQ(run(s, format, lengths, 7), whole);
    }
  }
}

// 576 values of 2 bytes a token and layer, where 128 heads of K and V would take 81,920 bytes.
TEST_P(MlaTest, LatentsAreReadBackAsTheyWereStored) {
  ThreadPool pool(2);
  Arena arena;
  const Context context{pool, kernels::table(GetParam()), arena};
  Random random{testing::seed()};
  for (const KvFormat format : {KvFormat::kF32, KvFormat::kBF16}) {
    const int32_t latent = 40, rope = 6, tokens = 37;
    const LatentShape shape{2, latent, rope, 32, format, latent_block_bytes(format, 32, latent, rope)};
    const std::vector<int32_t> table{1, 0};
    AlignedBuffer cache(static_cast<size_t>(2 * shape.block_bytes));
    auto from = random_floats(random, int64_t{tokens} * latent),
         key = random_floats(random, int64_t{tokens} * rope);
    if (format == KvFormat::kBF16)
      for (auto* values : {&from, &key})
        for (float& f : *values) f = std::nearbyint(f * 16) / 16;  // what eight bits of mantissa hold
    for (const auto& [begin, end] : {std::pair{0, 21}, std::pair{21, tokens}}) {
      LatentInput input;
      input.latent = from.data() + begin * latent;
      input.k_rope = key.data() + begin * rope;
      input.latent_stride = latent;
      input.k_rope_stride = rope;
      const AttentionSequence sequence{0, end - begin, end, table};
      store_latents(context, shape, {&sequence, 1}, input, cache.data());
    }
    std::vector<float> read(from.size()), read_key(key.size());
    read_latents(context, shape, table, tokens, cache.data(), read.data(), read_key.data());
    EXPECT_EQ(read, from);
    EXPECT_EQ(read_key, key);
  }
}

TEST(Mla, CacheHoldsTheLatentOnly) {
  EXPECT_EQ(latent_block_bytes(KvFormat::kBF16, 16, 512, 64), 16 * (512 + 64) * 2);
  EXPECT_EQ(latent_block_bytes(KvFormat::kF32, 16, 512, 64), 16 * (512 + 64) * 4);
}

}  // namespace
}  // namespace millrace::ops
