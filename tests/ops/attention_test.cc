// Paged attention of every ISA this CPU has, against attention written out over plain arrays in double.
#include "ops/attention.h"

#include <cmath>
#include <numeric>

#include "core/half.h"
#include "core/random.h"
#include "testing/kernels.h"

namespace millrace::ops {
namespace {

using testing::random_floats;

struct SequencePlan {
  int32_t past, length;
};

struct Case {
  int32_t heads = 4, kv_heads = 2, key_dim = 32, value_dim = 32, block_size = 16;
  KvFormat format = KvFormat::kF32;
  AttentionOptions options;
  std::vector<SequencePlan> plans;
};

/// Owns a cache and the whole history of K and V of some sequences.
class Fixture {
 public:
  Fixture(const Case& c, const kernels::Table& table, int threads, uint64_t seed)
      : case_(c), pool_(threads), context_{pool_, table, arena_}, random_(seed) {
    shape_ = {c.heads,
              c.kv_heads,
              c.key_dim,
              c.value_dim,
              c.block_size,
              c.format,
              kv_block_bytes(c.format, c.block_size, c.kv_heads, c.key_dim, c.value_dim) + 64};
    int32_t blocks = 1;
    for (const SequencePlan& p : c.plans) blocks += (p.past + p.length + c.block_size - 1) / c.block_size;
    std::vector<int32_t> free(static_cast<size_t>(blocks));
    std::iota(free.begin(), free.end(), 0);
    for (size_t i = free.size(); i > 1; --i)
      std::swap(free[i - 1], free[random_.below(static_cast<uint32_t>(i))]);
    cache_ = AlignedBuffer(static_cast<size_t>(blocks * shape_.block_bytes));
    std::memset(cache_.data(), 0xff,
                cache_.size());  // NaN in every float format: what an earlier owner may leave
    for (const SequencePlan& p : c.plans) {
      const int32_t total = p.past + p.length;
      std::vector<int32_t> table;
      for (int32_t at = 0; at < total; at += c.block_size) {
        table.push_back(free.back());
        free.pop_back();
      }
      tables_.push_back(table);
      q_.push_back(random_floats(random_, int64_t{total} * c.heads * c.key_dim));
      k_.push_back(random_floats(random_, int64_t{total} * c.kv_heads * c.key_dim));
      v_.push_back(random_floats(random_, int64_t{total} * c.kv_heads * c.value_dim));
    }
  }

  /// Runs tokens [from[i], to[i]) of every sequence in one step; returns the outputs per sequence.
  /// With `store` false the cache is read as another layer left it.
  std::vector<std::vector<float>> step(const std::vector<int32_t>& from, const std::vector<int32_t>& to,
                                       bool store = true) {
    std::vector<AttentionSequence> sequences;
    std::vector<float> q, k, v;
    int32_t rows = 0;
    const int64_t qn = int64_t{case_.heads} * case_.key_dim, kn = int64_t{case_.kv_heads} * case_.key_dim,
                  vn = int64_t{case_.kv_heads} * case_.value_dim, on = int64_t{case_.heads} * case_.value_dim;
    for (size_t i = 0; i < q_.size(); ++i) {
      sequences.push_back({rows, to[i] - from[i], to[i], tables_[i]});
      rows += to[i] - from[i];
      const auto append = [&](std::vector<float>& out, const std::vector<float>& in, int64_t n) {
        out.insert(out.end(), in.begin() + from[i] * n, in.begin() + to[i] * n);
      };
      append(q, q_[i], qn);
      append(k, k_[i], kn);
      append(v, v_[i], vn);
    }
    std::vector<float> out(static_cast<size_t>(rows * on), NAN);
    arena_.reset();
    paged_attention(context_, shape_, case_.options, sequences, q.data(), qn, store ? k.data() : nullptr, kn,
                    store ? v.data() : nullptr, vn, cache_.data(), out.data(), on);
    std::vector<std::vector<float>> result;
    for (const AttentionSequence& s : sequences)
      result.emplace_back(out.begin() + s.query_begin * on,
                          out.begin() + (s.query_begin + s.query_length) * on);
    return result;
  }

  /// What the last tokens [from, to) of sequence i must give.
  std::vector<float> expected(size_t i, int32_t from, int32_t to) const {
    const Case& c = case_;
    std::vector<float> out;
    for (int32_t p = from; p < to; ++p)
      for (int32_t h = 0; h < c.heads; ++h) {
        const int32_t g = h / (c.heads / c.kv_heads);
        std::vector<double> scores, weights;
        int32_t begin = 0, end = c.options.causal ? p + 1 : to;
        if (c.options.causal && c.options.window) begin = std::max(begin, p - c.options.window + 1);
        if (c.options.causal && c.options.chunk)
          begin = std::max(begin, p / c.options.chunk * c.options.chunk);
        double largest = c.options.sinks ? c.options.sinks[h] : -INFINITY;
        for (int32_t t = begin; t < end; ++t) {
          double score = 0;
          for (int32_t d = 0; d < c.key_dim; ++d)
            score += static_cast<double>(q_[i][static_cast<size_t>((p * c.heads + h) * c.key_dim + d)]) *
                     k_[i][static_cast<size_t>((t * c.kv_heads + g) * c.key_dim + d)];
          score *= c.options.scale;
          if (c.options.softcap != 0) score = c.options.softcap * std::tanh(score / c.options.softcap);
          if (c.options.alibi_slopes) score -= c.options.alibi_slopes[h] * (p - t);
          scores.push_back(score);
          largest = std::max(largest, score);
        }
        double sum = c.options.sinks ? std::exp(c.options.sinks[h] - largest) : 0;
        for (double& s : scores) sum += s = std::exp(s - largest);
        for (int32_t d = 0; d < c.value_dim; ++d) {
          double x = 0;
          for (int32_t t = begin; t < end; ++t)
            x += scores[static_cast<size_t>(t - begin)] *
                 v_[i][static_cast<size_t>((t * c.kv_heads + g) * c.value_dim + d)];
          out.push_back(static_cast<float>(x / sum));
        }
      }
    return out;
  }

  size_t size() const { return q_.size(); }

 private:
  Case case_;
  ThreadPool pool_;
  Arena arena_;
  Context context_;
  Random random_;
  AttentionShape shape_;
  AlignedBuffer cache_;
  std::vector<std::vector<int32_t>> tables_;
  std::vector<std::vector<float>> q_, k_, v_;
};

double largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
  EXPECT_EQ(a.size(), b.size());
  double largest = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double difference = std::fabs(double{a[i]} - b[i]);
    if (!(difference <= largest)) largest = difference;  // NaN stays
  }
  return largest;
}

struct NamedTable {
  std::string name;
  kernels::Table table;
};

/// Every set of kernels this CPU can run, those included that it would not choose.
const std::vector<NamedTable>& tables() {
  static const std::vector<NamedTable> all = [] {
    std::vector<NamedTable> made{{"scalar", kernels::table(IsaLevel::kScalar)}};
    for (const IsaLevel level : {IsaLevel::kAvx2, IsaLevel::kAvx512}) {
      if (best_isa() < level) continue;
      made.push_back({std::string(isa_name(level)), kernels::table(level)});
      kernels::Table expanding = kernels::table(level);
      expanding.attention_bf16 = expanding.attention;  // as without bfloat16 instructions
      expanding.attention.attend_int8 = expanding.attention_bf16.attend_int8 = nullptr;
      made.push_back({made.back().name + " expanding", expanding});
    }
    if (fastest_isa() >= IsaLevel::kAmx) made.push_back({"amx", kernels::table(IsaLevel::kAmxInt8)});
    return made;
  }();
  return all;
}

/// Values are standard normal, so an output is at most a few; what each format's rounding of K and V
/// explains.
double tolerance(KvFormat format) {
  switch (format) {
    case KvFormat::kF32:
      return 2e-5;
    case KvFormat::kBF16:
      return 0.03;
    case KvFormat::kInt8:
      return 0.06;
    case KvFormat::kInt4:
      return 0.6;
  }
  return 0;
}

/// Prefills the past in one step, then the rest; checks the last step.
void check_case(const Case& c, uint64_t seed, const std::string& what) {
  std::vector<int32_t> zero, past, total;
  for (const SequencePlan& p : c.plans) {
    zero.push_back(0);
    past.push_back(p.past);
    total.push_back(p.past + p.length);
  }
  std::vector<std::vector<float>> expected;
  for (const NamedTable& kernels : tables())
    for (const int threads : {1, 3}) {
      if (threads == 3 && kernels.table.isa < best_isa()) continue;
      Fixture setup(c, kernels.table, threads, seed);
      if (expected.empty())
        for (size_t i = 0; i < total.size(); ++i) expected.push_back(setup.expected(i, past[i], total[i]));
      setup.step(zero, past);
      const auto out = setup.step(past, total);
      for (size_t i = 0; i < out.size(); ++i)
        EXPECT_LE(largest_difference(out[i], expected[i]), tolerance(c.format))
            << what << ", " << kernels.name << ", " << threads << " threads, sequence " << i;
    }
}

TEST(Attention, MatchesPlainAttentionOnRandomShapes) {
  Random random(testing::seed());
  const int32_t dims[] = {8, 16, 32, 40, 64, 80, 96, 128, 256, 7};
  const KvFormat formats[] = {KvFormat::kF32, KvFormat::kBF16, KvFormat::kInt8, KvFormat::kInt4};
  const int64_t rounds = testing::scaled(16);
  for (int64_t round = 0; round < rounds; ++round) {
    Case c;
    c.kv_heads = 1 + static_cast<int32_t>(random.below(3));
    c.heads = c.kv_heads * (1 + static_cast<int32_t>(random.below(9)));
    c.key_dim = dims[random.below(10)];
    c.value_dim = random.below(3) ? c.key_dim : dims[random.below(10)];
    c.block_size = 16 * (1 + static_cast<int32_t>(random.below(3)));
    c.format = formats[round % 4];
    c.options.scale = 1.0f / std::sqrt(static_cast<float>(c.key_dim));
    if (random.below(4) == 0) c.options.softcap = 2.0f;
    if (random.below(4) == 0) c.options.window = 1 + static_cast<int32_t>(random.below(100));
    if (random.below(6) == 0) c.options.chunk = 1 + static_cast<int32_t>(random.below(100));
    std::vector<float> sinks = random_floats(random, c.heads), slopes = random_floats(random, c.heads);
    for (float& s : slopes) s = 0.1f * std::fabs(s);
    if (random.below(4) == 0) c.options.sinks = sinks.data();
    if (random.below(4) == 0) c.options.alibi_slopes = slopes.data();
    c.options.causal = random.below(6) != 0;
    const uint32_t sequences = 1 + random.below(4);
    for (uint32_t i = 0; i < sequences; ++i)
      c.plans.push_back({static_cast<int32_t>(random.below(4) ? random.below(150) : random.below(1000)),
                         static_cast<int32_t>(random.below(2) ? 1 : 1 + random.below(60))});
    check_case(
        c, random.next64(),
        fmt::format(
            "round {}: {} heads, {} kv, dims {}/{}, block {}, format {}, window {}, chunk {}, cap {}, "
            "causal {}",
            round, c.heads, c.kv_heads, c.key_dim, c.value_dim, c.block_size, static_cast<int>(c.format),
            c.options.window, c.options.chunk, c.options.softcap, c.options.causal));
  }
}

// A row's bits must not depend on what else is in the step, how the prompt was cut, or the number of threads.
TEST(Attention, ResultIsTheSameHoweverTheStepIsCut) {
  Random random(testing::seed() + 1);
  for (const KvFormat format : {KvFormat::kF32, KvFormat::kBF16, KvFormat::kInt8, KvFormat::kInt4})
    for (size_t round = 0; round < 2 * tables().size(); ++round) {
      const NamedTable& kernels = tables()[round / 2];
      const bool wide = round % 2;
      Case c;
      c.heads = 6;
      c.kv_heads = 2;
      c.key_dim = wide ? 64 : 24;
      c.value_dim = wide ? 64 : 16;
      c.format = format;
      c.options.scale = 0.15f;
      c.options.window = random.below(2) ? 300 : 0;
      c.plans = {{0, 1100}, {0, 77}, {0, 560}};
      const uint64_t seed = random.next64();
      Fixture whole(c, kernels.table, 1, seed);
      const auto expected = whole.step({0, 0, 0}, {1100, 77, 560});
      // The same tokens in ragged pieces, the sequences advancing at different speeds, on three threads.
      Fixture pieces(c, kernels.table, 3, seed);
      std::vector<int32_t> at{0, 0, 0};
      const std::vector<int32_t> end{1100, 77, 560};
      std::vector<std::vector<float>> out(3);
      while (at != end) {
        std::vector<int32_t> to = at;
        for (size_t i = 0; i < 3; ++i) {
          const uint32_t kind = random.below(4);
          const int32_t n = kind == 0 ? 0 : kind == 1 ? 1 : static_cast<int32_t>(random.below(200));
          to[i] = std::min(end[i], at[i] + n);
        }
        const auto part = pieces.step(at, to);
        for (size_t i = 0; i < 3; ++i) out[i].insert(out[i].end(), part[i].begin(), part[i].end());
        at = to;
      }
      for (size_t i = 0; i < 3; ++i)
        EXPECT_EQ(largest_difference(out[i], expected[i]), 0.0)
            << kernels.name << (wide ? ", wide" : "") << ", format " << static_cast<int>(format)
            << ", sequence " << i;
    }
}

TEST(Attention, CacheSharedByTwoLayersIsReadWithoutStoring) {
  Case c;
  c.plans = {{0, 50}};
  Fixture setup(c, kernels::table(best_isa()), 2, testing::seed());
  const auto stored = setup.step({0}, {50});
  EXPECT_EQ(setup.step({0}, {50}, false), stored);
  EXPECT_LE(largest_difference(stored[0], setup.expected(0, 0, 50)), 2e-5);
}

TEST(Attention, BlockBytesAreWhatTheFormatNeeds) {
  EXPECT_EQ(kv_block_bytes(KvFormat::kF32, 16, 8, 64, 64), 16 * 8 * 128 * 4);
  EXPECT_EQ(kv_block_bytes(KvFormat::kBF16, 16, 8, 64, 64), 16 * 8 * 128 * 2);
  EXPECT_EQ(kv_block_bytes(KvFormat::kInt8, 16, 8, 128, 128), 16 * 8 * (256 + 8));
  EXPECT_EQ(kv_block_bytes(KvFormat::kInt4, 16, 8, 128, 128), 16 * 8 * (128 + 32));
}

}  // namespace
}  // namespace millrace::ops
