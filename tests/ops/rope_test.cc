// Rotary frequencies against those that transformers computes (scripts/fixtures/rope.py), and the rotation
// itself.
#include "ops/rope.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/random.h"

namespace millrace::ops {
namespace {

RopeFrequencies frequencies_of(const nlohmann::json& c) {
  const auto& p = c["parameters"];
  const std::string name = c["name"];
  const int32_t dim = c["dim"];
  const double theta = c["theta"];
  if (name == "default") return rope_default(dim, theta);
  if (name == "linear") return rope_linear(dim, theta, p["factor"]);
  if (name == "dynamic") {
    const double longest = c["max_positions"], factor = p["factor"];
    const double length = std::max(c["length"].get<double>(), longest);
    return rope_ntk(dim, theta, factor * length / longest - (factor - 1));
  }
  if (name == "yarn") {
    YarnParameters y;
    y.factor = p["factor"];
    y.original_context = p["original_max_position_embeddings"];
    y.beta_fast = p.value("beta_fast", 32.0);
    y.beta_slow = p.value("beta_slow", 1.0);
    y.attention_factor = p.value("attention_factor", 0.0);
    y.mscale = p.value("mscale", 0.0);
    y.mscale_all_dim = p.value("mscale_all_dim", 0.0);
    y.truncate = p.value("truncate", true);
    return rope_yarn(dim, theta, y);
  }
  if (name == "longrope") {
    const double original = p["original_max_position_embeddings"];
    const bool is_long = c["length"].get<double>() > original;
    const std::vector<float> factors = p[is_long ? "long_factor" : "short_factor"];
    const double magnitude = std::sqrt(1 + std::log(p["factor"].get<double>()) / std::log(original));
    return rope_factors(dim, theta, factors, static_cast<float>(magnitude));
  }
  Llama3Parameters l;
  l.factor = p["factor"];
  l.low_freq_factor = p["low_freq_factor"];
  l.high_freq_factor = p["high_freq_factor"];
  l.original_context = p["original_max_position_embeddings"];
  return rope_llama3(dim, theta, l);
}

TEST(Rope, FrequenciesAreThoseOfTransformers) {
  const auto cases = nlohmann::json::parse(testing::read_file(testing::fixture("ops/fixtures/rope.json")));
  ASSERT_GT(cases.size(), 10u);
  for (const auto& c : cases) {
    const RopeFrequencies f = frequencies_of(c);
    const std::vector<float> expected = c["inverse"];
    ASSERT_EQ(f.inverse.size(), expected.size());
    for (size_t i = 0; i < expected.size(); ++i)
      EXPECT_NEAR(f.inverse[i], expected[i], 4e-7 * expected[i]) << c["name"] << ", pair " << i;
    EXPECT_NEAR(f.magnitude, c["factor"].get<double>(), 1e-6) << c["name"];
  }
}

TEST(Rope, RotatesPairsOfEveryHeadAndLeavesTheRest) {
  Random random(testing::seed());
  ThreadPool pool(2);
  Arena arena;
  const Context context{pool, kernels::table(best_isa()), arena};
  for (const RopeLayout layout : {RopeLayout::kHalf, RopeLayout::kInterleaved})
    for (const int32_t dim : {2, 8, 24, 64}) {
      const int32_t head_dim = dim + 6, heads = 3, rows = 5;
      RopeFrequencies f = rope_default(dim, 10000.0);
      f.magnitude = 1.2f;
      const std::vector<int32_t> positions{0, 1, 7, 4000, 3};
      const RopeTable table = make_rope_table(context, f, positions);
      std::vector<float> x(static_cast<size_t>(rows * (heads * head_dim + 4)));
      for (float& v : x) v = random.normal();
      const auto before = x;
      const int64_t stride = heads * head_dim + 4;
      apply_rope(context, table, layout, x.data(), rows, stride, heads, head_dim);
      for (int64_t r = 0; r < rows; ++r)
        for (int64_t h = 0; h < heads; ++h) {
          const float* in = before.data() + r * stride + h * head_dim;
          const float* out = x.data() + r * stride + h * head_dim;
          for (int32_t i = 0; i < dim / 2; ++i) {
            const int32_t a = layout == RopeLayout::kHalf ? i : 2 * i,
                          b = layout == RopeLayout::kHalf ? i + dim / 2 : 2 * i + 1;
            const float angle =
                static_cast<float>(positions[static_cast<size_t>(r)]) * f.inverse[static_cast<size_t>(i)];
            EXPECT_NEAR(out[a], 1.2 * (in[a] * std::cos(angle) - in[b] * std::sin(angle)), 1e-5);
            EXPECT_NEAR(out[b], 1.2 * (in[b] * std::cos(angle) + in[a] * std::sin(angle)), 1e-5);
          }
          for (int32_t d = dim; d < head_dim; ++d) EXPECT_EQ(out[d], in[d]);
        }
      for (int64_t r = 0; r < rows; ++r)
        for (int64_t d = heads * head_dim; d < stride; ++d)
          EXPECT_EQ(x[static_cast<size_t>(r * stride + d)], before[static_cast<size_t>(r * stride + d)]);
    }
}

TEST(Rope, FactorsOfTheWrongLengthAreRefused) {
  EXPECT_THROW(rope_factors(64, 10000.0, std::vector<float>(16, 1.0f), 1.0f), Error);
  EXPECT_THROW(rope_yarn(64, 10000.0, {}), Error);
}

}  // namespace
}  // namespace millrace::ops
