// Recurrent operations of every ISA against the formulas written out in double, over ragged batches cut into
// steps.
#include "ops/ssm.h"

#include <cmath>

#include "core/random.h"
#include "testing/kernels.h"

namespace millrace::ops {
namespace {

using testing::isa_levels;
using testing::random_floats;

double largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
  EXPECT_EQ(a.size(), b.size());
  double largest = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double difference = std::fabs(double{a[i]} - b[i]) / (1 + std::fabs(b[i]));
    if (!(difference <= largest)) largest = difference;
  }
  return largest;
}

/// Sequences of given lengths, first all in one step, then cut into random pieces in several ragged steps.
/// `run` gets the step's sequences and the tokens that its rows are (sequence, token), and writes y for those
/// rows.
class Ragged {
 public:
  using Token = std::pair<size_t, int32_t>;
  Ragged(std::vector<int32_t> lengths, int64_t state_floats)
      : lengths_(std::move(lengths)), state_floats_(state_floats) {}

  /// Result rows of each sequence, and its last state, from steps that advance each sequence by `advance(i,
  /// left)` tokens.
  template <typename Run, typename Advance>
  void run(int64_t width, Run&& run_step, Advance&& advance) {
    states.assign(lengths_.size(), std::vector<float>(static_cast<size_t>(state_floats_), 0.0f));
    results.assign(lengths_.size(), {});
    std::vector<int32_t> at(lengths_.size(), 0);
    while (at != lengths_) {
      std::vector<StateSequence> step;
      std::vector<Token> rows;
      for (size_t i = 0; i < lengths_.size(); ++i) {
        const int32_t n = std::min(lengths_[i] - at[i], advance(i, lengths_[i] - at[i]));
        step.push_back({static_cast<int32_t>(rows.size()), n, states[i].data()});
        for (int32_t t = 0; t < n; ++t) rows.push_back({i, at[i] + t});
        at[i] += n;
      }
      std::vector<float> y(rows.size() * static_cast<size_t>(width), NAN);
      run_step(step, rows, y.data());
      for (size_t r = 0; r < rows.size(); ++r)
        results[rows[r].first].insert(results[rows[r].first].end(),
                                      y.begin() + static_cast<int64_t>(r) * width,
                                      y.begin() + static_cast<int64_t>(r + 1) * width);
    }
  }

  std::vector<std::vector<float>> states, results;
  const std::vector<int32_t>& lengths() const { return lengths_; }

 private:
  std::vector<int32_t> lengths_;
  int64_t state_floats_;
};

/// Rows of the step, picked from per-sequence inputs of `width` floats a token.
std::vector<float> pick(const std::vector<std::vector<float>>& input, const std::vector<Ragged::Token>& rows,
                        int64_t width) {
  std::vector<float> out;
  for (const auto& [i, t] : rows)
    out.insert(out.end(), input[i].begin() + t * width, input[i].begin() + (t + 1) * width);
  return out;
}

class SsmTest : public ::testing::TestWithParam<IsaLevel> {
 protected:
  /// Checks that `step` gives `expected` per sequence in one piece, and the same bits in many.
  template <typename Step>
  void check(const std::vector<int32_t>& lengths, int64_t state_floats, int64_t width,
             const std::vector<std::vector<float>>& expected, double tolerance, Step&& step) {
    Ragged whole(lengths, state_floats), pieces(lengths, state_floats);
    whole.run(width, step, [](size_t, int32_t left) { return left; });
    for (size_t i = 0; i < lengths.size(); ++i)
      EXPECT_LE(largest_difference(whole.results[i], expected[i]), tolerance) << "sequence " << i;
    pieces.run(width, step, [&](size_t, int32_t) {
      return static_cast<int32_t>(random_.below(4) ? random_.below(7) : 1);
    });
    EXPECT_EQ(pieces.results, whole.results) << "cutting the prompt changed the result";
    EXPECT_EQ(pieces.states, whole.states) << "cutting the prompt changed the state";
  }
  std::vector<std::vector<float>> inputs(const std::vector<int32_t>& lengths, int64_t width,
                                         float spread = 1.0f, float shift = 0.0f) {
    std::vector<std::vector<float>> all;
    for (const int32_t n : lengths) all.push_back(random_floats(random_, n * width, spread, shift));
    return all;
  }

  Random random_{testing::seed()};
  ThreadPool pool_{3};
  Arena arena_;
  Context context_{pool_, kernels::table(GetParam()), arena_};
};

INSTANTIATE_TEST_SUITE_P(EveryIsa, SsmTest, ::testing::ValuesIn(isa_levels()),
                         millrace::testing::isa_test_name);

TEST_P(SsmTest, ConvolutionMatchesItsFormula) {
  for (const int32_t channels : {1, 5, 64, 70, 200})
    for (const int32_t kernel : {1, 2, 4}) {
      const std::vector<int32_t> lengths{17, 1, 6};
      const auto x = inputs(lengths, channels);
      const auto w = random_floats(random_, channels * kernel), bias = random_floats(random_, channels);
      std::vector<std::vector<float>> expected;
      for (size_t i = 0; i < lengths.size(); ++i) {
        expected.emplace_back();
        for (int32_t t = 0; t < lengths[i]; ++t)
          for (int32_t c = 0; c < channels; ++c) {
            double sum = bias[static_cast<size_t>(c)];
            for (int32_t j = 0; j < kernel; ++j)
              if (const int32_t from = t - kernel + 1 + j; from >= 0)
                sum += double{w[static_cast<size_t>(j * channels + c)]} *
                       x[i][static_cast<size_t>(from * channels + c)];
            expected.back().push_back(static_cast<float>(sum / (1 + std::exp(-sum))));
          }
      }
      check(lengths, conv_state_floats(channels, kernel), channels, expected, 1e-5,
            [&](const std::vector<StateSequence>& step, const std::vector<Ragged::Token>& rows, float* y) {
              const auto in = pick(x, rows, channels);
              std::copy(in.begin(), in.end(), y);  // in place
              causal_conv1d(context_, step, y, channels, w.data(), bias.data(), channels, kernel,
                            Activation::kSilu, y, channels);
            });
    }
}

TEST_P(SsmTest, SelectiveScanMatchesItsFormula) {
  for (const int32_t channels : {3, 16, 70, 130})
    for (const int32_t size : {1, 8, 16}) {
      const std::vector<int32_t> lengths{23, 1, 9};
      const auto x = inputs(lengths, channels), b = inputs(lengths, size), c = inputs(lengths, size);
      auto dt = inputs(lengths, channels);
      for (auto& s : dt)
        for (float& f : s) f = 0.1f * std::fabs(f);
      auto a = random_floats(random_, int64_t{size} * channels);
      for (float& f : a) f = -std::fabs(f) - 0.1f;
      const auto d = random_floats(random_, channels);
      std::vector<std::vector<float>> expected;
      for (size_t i = 0; i < lengths.size(); ++i) {
        expected.emplace_back();
        std::vector<double> h(static_cast<size_t>(size * channels), 0.0);
        for (int32_t t = 0; t < lengths[i]; ++t)
          for (int32_t ch = 0; ch < channels; ++ch) {
            const double step = dt[i][static_cast<size_t>(t * channels + ch)],
                         in = x[i][static_cast<size_t>(t * channels + ch)];
            double y = d[static_cast<size_t>(ch)] * in;
            for (int32_t n = 0; n < size; ++n) {
              double& state = h[static_cast<size_t>(n * channels + ch)];
              state = std::exp(step * a[static_cast<size_t>(n * channels + ch)]) * state +
                      step * in * b[i][static_cast<size_t>(t * size + n)];
              y += state * c[i][static_cast<size_t>(t * size + n)];
            }
            expected.back().push_back(static_cast<float>(y));
          }
      }
      check(lengths, int64_t{size} * channels, channels, expected, 1e-5,
            [&](const std::vector<StateSequence>& step, const std::vector<Ragged::Token>& rows, float* y) {
              const auto xs = pick(x, rows, channels), dts = pick(dt, rows, channels),
                         bs = pick(b, rows, size), cs = pick(c, rows, size);
              const SelectiveScanInput input{xs.data(), dts.data(), bs.data(), cs.data(), channels,
                                             channels,  size,       size,      a.data(),  d.data()};
              selective_scan(context_, step, input, channels, size, y, channels);
            });
    }
}

TEST_P(SsmTest, HeadScanMatchesItsFormula) {
  struct {
    int32_t heads, dim, size, groups;
  } const shapes[] = {{1, 1, 1, 1}, {4, 6, 20, 2}, {6, 64, 128, 1}, {2, 32, 16, 2}, {2, 100, 24, 1}};
  for (const auto& shape : shapes) {
    const std::vector<int32_t> lengths{51, 1, 16};
    const int64_t width = int64_t{shape.heads} * shape.dim, bc = int64_t{shape.groups} * shape.size;
    const auto x = inputs(lengths, width), b = inputs(lengths, bc), c = inputs(lengths, bc);
    auto dt = inputs(lengths, shape.heads);
    // Strong decays too.
    const float spread = shape.dim == 6 || shape.size == 16 ? 6.0f : 0.2f;
    for (auto& s : dt)
      for (float& f : s) f = spread * std::fabs(f);
    auto a = random_floats(random_, shape.heads);
    for (float& f : a) f = -std::fabs(f);
    const auto d = random_floats(random_, shape.heads);
    std::vector<std::vector<float>> expected;
    for (size_t i = 0; i < lengths.size(); ++i) {
      expected.emplace_back();
      std::vector<double> h(static_cast<size_t>(width * shape.size), 0.0);
      for (int32_t t = 0; t < lengths[i]; ++t)
        for (int32_t head = 0; head < shape.heads; ++head) {
          const int64_t group = head / (shape.heads / shape.groups);
          const double step = dt[i][static_cast<size_t>(t * shape.heads + head)];
          for (int32_t p = 0; p < shape.dim; ++p) {
            const double in = x[i][static_cast<size_t>(t * width + head * shape.dim + p)];
            double y = d[static_cast<size_t>(head)] * in;
            for (int32_t n = 0; n < shape.size; ++n) {
              double& state = h[static_cast<size_t>((head * shape.dim + p) * shape.size + n)];
              state = std::exp(step * a[static_cast<size_t>(head)]) * state +
                      step * in * b[i][static_cast<size_t>(t * bc + group * shape.size + n)];
              y += state * c[i][static_cast<size_t>(t * bc + group * shape.size + n)];
            }
            expected.back().push_back(static_cast<float>(y));
          }
        }
    }
    check(lengths, head_scan_floats({shape.heads, shape.dim, shape.size, shape.groups}), width, expected,
          3e-5,
          [&](const std::vector<StateSequence>& step, const std::vector<Ragged::Token>& rows, float* y) {
            const auto xs = pick(x, rows, width), dts = pick(dt, rows, shape.heads), bs = pick(b, rows, bc),
                       cs = pick(c, rows, bc);
            const HeadScanInput input{xs.data(),   dts.data(), bs.data(), cs.data(), width,
                                      shape.heads, bc,         bc,        a.data(),  d.data()};
            head_scan(context_, step, {shape.heads, shape.dim, shape.size, shape.groups}, input, y, width);
          });
  }
}

TEST_P(SsmTest, DeltaRuleMatchesItsFormula) {
  struct {
    int32_t key_heads, value_heads, key_dim, value_dim;
  } const shapes[] = {{1, 1, 4, 3}, {2, 4, 16, 16}, {1, 2, 24, 40}, {2, 2, 128, 128}};
  for (const auto& shape : shapes) {
    const std::vector<int32_t> lengths{49, 1, 16};
    const int64_t kw = int64_t{shape.key_heads} * shape.key_dim,
                  vw = int64_t{shape.value_heads} * shape.value_dim;
    const auto q = inputs(lengths, kw), k = inputs(lengths, kw), v = inputs(lengths, vw);
    auto decay = inputs(lengths, shape.value_heads), beta = inputs(lengths, shape.value_heads);
    const float spread = shape.key_heads == 2 ? 6.0f : 0.3f;
    for (auto& s : decay)
      for (float& f : s) f = -spread * std::fabs(f);
    for (auto& s : beta)
      for (float& f : s) f = 1.0f / (1.0f + std::exp(-f));
    const double scale = 1.0 / std::sqrt(static_cast<double>(shape.key_dim));
    std::vector<std::vector<float>> expected;
    for (size_t i = 0; i < lengths.size(); ++i) {
      expected.emplace_back();
      std::vector<double> state(static_cast<size_t>(shape.value_heads * shape.key_dim * shape.value_dim),
                                0.0);
      for (int32_t t = 0; t < lengths[i]; ++t)
        for (int32_t h = 0; h < shape.value_heads; ++h) {
          const int32_t from = h / (shape.value_heads / shape.key_heads);
          double* s = state.data() + int64_t{h} * shape.key_dim * shape.value_dim;
          const float* qt = q[i].data() + t * kw + from * shape.key_dim;
          const float* kt = k[i].data() + t * kw + from * shape.key_dim;
          double qn = 1e-6, kn = 1e-6;
          for (int32_t d = 0; d < shape.key_dim; ++d) {
            qn += double{qt[d]} * qt[d];
            kn += double{kt[d]} * kt[d];
          }
          const double g = std::exp(double{decay[i][static_cast<size_t>(t * shape.value_heads + h)]});
          for (int32_t e = 0; e < shape.value_dim; ++e) {
            double recalled = 0, y = 0;
            for (int32_t d = 0; d < shape.key_dim; ++d)
              recalled += (s[d * shape.value_dim + e] *= g) * kt[d] / std::sqrt(kn);
            const double correction =
                beta[i][static_cast<size_t>(t * shape.value_heads + h)] *
                (v[i][static_cast<size_t>(t * vw + h * shape.value_dim + e)] - recalled);
            for (int32_t d = 0; d < shape.key_dim; ++d)
              y += (s[d * shape.value_dim + e] += correction * kt[d] / std::sqrt(kn)) * qt[d] /
                   std::sqrt(qn) * scale;
            expected.back().push_back(static_cast<float>(y));
          }
        }
    }
    check(lengths, delta_rule_floats({shape.key_heads, shape.value_heads, shape.key_dim, shape.value_dim}),
          vw, expected, 1e-5,
          [&](const std::vector<StateSequence>& step, const std::vector<Ragged::Token>& rows, float* y) {
            const auto qs = pick(q, rows, kw), ks = pick(k, rows, kw), vs = pick(v, rows, vw),
                       gs = pick(decay, rows, shape.value_heads), bs = pick(beta, rows, shape.value_heads);
            DeltaRuleInput input{qs.data(), ks.data(), vs.data(), gs.data(),         bs.data(),
                                 kw,        kw,        vw,        shape.value_heads, shape.value_heads};
            input.scale = static_cast<float>(scale);
            input.l2_epsilon = 1e-6f;
            gated_delta_rule(context_, step,
                             {shape.key_heads, shape.value_heads, shape.key_dim, shape.value_dim}, input, y,
                             vw);
          });
  }
}

/// A decay that leaves nothing, and right after it ones that leave nearly all: differences of sums over the
/// chunk would have lost these.
TEST_P(SsmTest, WeakDecaysAfterStrongOnesKeepTheirDigits) {
  const HeadScanShape shape{1, 8, 16, 1};
  const int32_t tokens = 40;
  const auto x = random_floats(random_, tokens * 8), b = random_floats(random_, tokens * 16),
             c = random_floats(random_, tokens * 16);
  std::vector<float> dt(tokens, 0.001f), y(tokens * 8), state(static_cast<size_t>(head_scan_floats(shape)));
  for (const size_t strong : {3u, 17u, 18u, 33u}) dt[strong] = 3e6f;
  const float a = -1.0f;
  // What the strong token leaves is its own input times dt: inputs of the weak ones are as large.
  std::vector<float> large = x;
  for (size_t t = 0; t < dt.size(); ++t)
    for (size_t p = 0; p < 8; ++p) large[t * 8 + p] /= dt[t];
  std::vector<double> h(8 * 16, 0.0);
  std::vector<float> expected;
  for (size_t t = 0; t < dt.size(); ++t)
    for (size_t p = 0; p < 8; ++p) {
      double sum = 0;
      for (size_t n = 0; n < 16; ++n) {
        double& value = h[p * 16 + n];
        value = std::exp(double{dt[t]} * a) * value + double{dt[t]} * large[t * 8 + p] * b[t * 16 + n];
        sum += value * c[t * 16 + n];
      }
      expected.push_back(static_cast<float>(sum));
    }
  const HeadScanInput input{large.data(), dt.data(), b.data(), c.data(), 8, 1, 16, 16, &a, nullptr};
  const StateSequence sequence{0, tokens, state.data()};
  head_scan(context_, {&sequence, 1}, shape, input, y.data(), 8);
  EXPECT_LE(largest_difference(y, expected), 1e-5);
}

TEST_P(SsmTest, RowOperationsMatchTheirFormulas) {
  const int64_t rows = 5, n = 75;
  const auto x = random_floats(random_, rows * n, 8.0f), gate = random_floats(random_, rows * n, 3.0f),
             bias = random_floats(random_, n), weight = random_floats(random_, n);
  std::vector<float> y(x.size()), expected;
  softplus_rows(context_, x.data(), n, bias.data(), y.data(), n, rows, n, 0.001f, 9.0f);
  for (size_t i = 0; i < x.size(); ++i)
    expected.push_back(
        static_cast<float>(std::clamp(std::log1p(std::exp(double{x[i]} + bias[i % n])), 0.001, 9.0)));
  EXPECT_LE(largest_difference(y, expected), 1e-6);

  y = x;
  sigmoid_mul_rows(context_, y.data(), n, gate.data(), n, rows, n);
  for (size_t i = 0; i < x.size(); ++i)
    expected[i] = static_cast<float>(x[i] / (1 + std::exp(-double{gate[i]})));
  EXPECT_LE(largest_difference(y, expected), 1e-6);
  sigmoid_rows(context_, x.data(), n, y.data(), n, rows, n);
  for (size_t i = 0; i < x.size(); ++i) expected[i] = static_cast<float>(1 / (1 + std::exp(-double{x[i]})));
  EXPECT_LE(largest_difference(y, expected), 1e-6);

  for (const GateOrder order : {GateOrder::kBeforeNorm, GateOrder::kAfterNorm})
    for (const int64_t group : {25, 75}) {
      y = x;
      gated_rms_norm(context_, y.data(), n, gate.data(), n, weight.data(), n, 1e-5f, rows, n, group, order);
      for (int64_t at = 0; at < rows * n; at += group) {
        double squares = 0;
        std::vector<double> values;
        for (int64_t i = at; i < at + group; ++i) {
          const double g = gate[static_cast<size_t>(i)], silu = g / (1 + std::exp(-g));
          values.push_back(x[static_cast<size_t>(i)] * (order == GateOrder::kBeforeNorm ? silu : 1.0));
          squares += values.back() * values.back();
        }
        for (int64_t i = at; i < at + group; ++i) {
          const double g = gate[static_cast<size_t>(i)], silu = g / (1 + std::exp(-g));
          expected[static_cast<size_t>(i)] = static_cast<float>(
              values[static_cast<size_t>(i - at)] / std::sqrt(squares / static_cast<double>(group) + 1e-5) *
              weight[static_cast<size_t>(i % n)] * (order == GateOrder::kAfterNorm ? silu : 1.0));
        }
      }
      EXPECT_LE(largest_difference(y, expected), 5e-6);
    }
}

}  // namespace
}  // namespace millrace::ops
