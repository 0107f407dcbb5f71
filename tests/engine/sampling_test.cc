// Every sampler against a plain implementation that sorts everything.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "core/error.h"
#include "core/random.h"
#include "engine/sampling/chain.h"
#include "engine/sampling/logprobs.h"
#include "testing/testing.h"

namespace millrace::engine {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();

std::vector<float> random_logits(Random& random, size_t n, float spread = 4) {
  std::vector<float> logits(n);
  for (float& x : logits) x = random.normal() * spread;
  // Ties, so that their order is seen too.
  for (size_t i = 0; i + 7 < n; i += 5) logits[i + 7] = logits[i];
  return logits;
}

std::vector<std::pair<double, int32_t>> sorted_probabilities(const std::vector<float>& logits,
                                                             double temperature) {
  std::vector<std::pair<double, int32_t>> p;
  double top = *std::max_element(logits.begin(), logits.end()), sum = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    p.emplace_back(std::exp((logits[i] - top) / temperature), static_cast<int32_t>(i));
    sum += p.back().first;
  }
  for (auto& x : p) x.first /= sum;
  std::stable_sort(p.begin(), p.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  return p;
}

std::set<int32_t> tokens_of(Candidates& c) {
  std::set<int32_t> tokens;
  for (const Candidate& x : c.all()) tokens.insert(x.token);
  return tokens;
}

TEST(Sampling, TopKKeepsTheLargestInAllSizes) {
  Random random(millrace::testing::seed());
  for (int round = 0; round < 200; ++round) {
    const size_t n = 1 + random.below(3000);
    const auto logits = random_logits(random, n);
    const auto k = 1 + static_cast<int32_t>(random.below(static_cast<uint32_t>(n) + 10));
    Candidates c;
    c.collect(logits, k, 100.0f);  // hot, so that nothing is negligible
    const auto all = sorted_probabilities(logits, 100.0);
    std::set<int32_t> expected;
    for (size_t i = 0; i < std::min(n, static_cast<size_t>(k)); ++i) expected.insert(all[i].second);
    ASSERT_EQ(tokens_of(c), expected) << "n " << n << " k " << k;
  }
}

TEST(Sampling, TopPKeepsTheSmallestSetThatReachesP) {
  Random random(millrace::testing::seed());
  for (int round = 0; round < 200; ++round) {
    const auto logits = random_logits(random, 1 + random.below(2000), 1 + 4 * random.uniform());
    const float p = 0.05f + 0.9f * random.uniform();
    Candidates c;
    c.collect(logits, 0, 1.0f);
    make_top_p(p)->apply(c, random);
    const auto all = sorted_probabilities(logits, 1.0);
    double mass = 0;
    size_t count = 0;
    while (count < all.size() && mass < p) mass += all[count++].first;
    // Rounding may move the border by one candidate.
    ASSERT_NEAR(static_cast<double>(c.size()), static_cast<double>(count), 1.0);
    std::set<int32_t> expected;
    for (size_t i = 0; i < c.size(); ++i) expected.insert(all[i].second);
    ASSERT_EQ(tokens_of(c), expected);
    // Told beforehand what is enough, less is looked at, and the outcome is the same.
    for (const float share : {0.0f, 0.02f}) {
      Candidates told;
      told.collect(logits, 0, 1.0f, {static_cast<double>(p), share});
      make_top_p(p)->apply(told, random);
      if (share > 0) make_min_p(share)->apply(told, random);
      Candidates whole;
      whole.collect(logits, 0, 1.0f);
      make_top_p(p)->apply(whole, random);
      if (share > 0) make_min_p(share)->apply(whole, random);
      ASSERT_NEAR(static_cast<double>(told.size()), static_cast<double>(whole.size()), 1.0);
      if (told.size() == whole.size()) {
        ASSERT_EQ(tokens_of(told), tokens_of(whole));
      }
    }
  }
}

TEST(Sampling, DrawingFromAllNeedsNoList) {
  Random random(millrace::testing::seed());
  for (int round = 0; round < 300; ++round) {
    const auto logits = random_logits(random, 1 + random.below(5000), 3);
    const float temperature = 0.05f + 2 * random.uniform();
    const double u = random.uniform_double();
    Candidates c;
    c.collect(logits, 0, temperature);
    const int32_t drawn = c.draw_from(logits, temperature, u);
    // The sums differ in rounding, so that a neighbour may be meant.
    const auto near = [&](double at) { return c[c.draw(std::clamp(at, 0.0, 0.9999999))].token; };
    ASSERT_TRUE(drawn == near(u) || drawn == near(u - 1e-5) || drawn == near(u + 1e-5)) << drawn;
  }
  Candidates c;
  const std::vector<float> none(100, kNever), nan(100, std::nanf(""));
  for (const auto& logits : {none, nan}) {
    EXPECT_EQ(c.draw_from(logits, 1.0f, 0.5), -1);
    EXPECT_EQ(c.likeliest(logits), -1);
    c.collect(logits, 5, 1.0f);
    EXPECT_TRUE(c.empty());
  }
  const std::vector<float> two = {kNever, 3, kNever, 3};
  EXPECT_EQ(c.likeliest(two), 1);
  EXPECT_EQ(c.draw_from(two, 1e-38f, 0.4), 1);
  EXPECT_EQ(c.draw_from(two, 1e-38f, 0.6), 3);
}

TEST(Sampling, TopPOfAFlatDistributionNeedsNoList) {
  Random random(millrace::testing::seed());
  int flat = 0;
  for (int round = 0; round < 100; ++round) {
    // Rounded logits are often equal, so that the border is among equals.
    auto logits = random_logits(random, 3000 + random.below(20000), 0.1f + 2.5f * random.uniform());
    if (round % 2)
      for (float& x : logits) x = std::round(x * 4) / 4;
    if (round % 5 == 0)
      for (size_t i = 0; i < logits.size(); i += 3) logits[i] = kNever;
    const float temperature = 0.6f + random.uniform();
    const double mass = 0.05 + 0.9 * random.uniform_double(), u = random.uniform_double();
    Candidates c;
    const auto drawn = c.draw_flat(logits, temperature, mass, u);
    c.collect(logits, 0, temperature);
    double all = 0;
    for (const Candidate& x : c.all()) all += static_cast<double>(x.probability);
    if (std::fabs(all - 8) > 0.1) {
      EXPECT_EQ(drawn.has_value(), all > 8) << all;
    }
    if (!drawn) continue;
    ++flat;
    c.keep_mass(mass);
    c.normalise();
    const auto near = [&](double at) { return c[c.draw(std::clamp(at, 0.0, 0.9999999))].token; };
    bool found = false;
    for (int step = -4; step <= 4; ++step) found |= *drawn == near(u + 1e-4 * step / 4);
    ASSERT_TRUE(found) << "round " << round << ": " << *drawn << " instead of " << near(u);
    // Never one that the list leaves out, but for the border's own.
    std::set<int32_t> kept = tokens_of(c);
    for (int i = 0; i < 20; ++i) {
      Candidates again;
      const int32_t token = *again.draw_flat(logits, temperature, mass, random.uniform_double());
      float least = std::numeric_limits<float>::infinity();
      for (const Candidate& x : c.all()) least = std::min(least, logits[static_cast<size_t>(x.token)]);
      ASSERT_TRUE(kept.count(token) != 0 || logits[static_cast<size_t>(token)] >= least - 1e-3f);
    }
  }
  EXPECT_GT(flat, 20);
}

TEST(Sampling, MinPAndTypicalKeepWhatTheirDefinitionsSay) {
  Random random(millrace::testing::seed());
  for (int round = 0; round < 100; ++round) {
    const auto logits = random_logits(random, 2 + random.below(800), 2);
    const auto all = sorted_probabilities(logits, 1.0);
    const float min_p = 0.01f + 0.5f * random.uniform();
    Candidates c;
    c.collect(logits, 0, 1.0f);
    make_min_p(min_p)->apply(c, random);
    for (const auto& [p, token] : all) {
      const bool kept = tokens_of(c).contains(token);
      if (std::abs(p / all[0].first - min_p) > 1e-4) {
        ASSERT_EQ(kept, p >= min_p * all[0].first);
      }
      if (round > 5) break;
    }

    c.collect(logits, 0, 1.0f);
    const double typical = 0.1 + 0.8 * random.uniform();
    make_typical(static_cast<float>(typical))->apply(c, random);
    double entropy = 0;
    for (const auto& x : all) entropy -= x.first > 0 ? x.first * std::log(x.first) : 0;
    auto by_distance = all;
    std::stable_sort(by_distance.begin(), by_distance.end(), [&](const auto& a, const auto& b) {
      return std::abs(-std::log(a.first) - entropy) < std::abs(-std::log(b.first) - entropy);
    });
    double mass = 0;
    size_t count = 0;
    while (count < all.size() && mass < typical) mass += by_distance[count++].first;
    ASSERT_NEAR(static_cast<double>(c.size()), static_cast<double>(count), 6.0);  // ties share a distance
    const double furthest = std::abs(-std::log(by_distance[count - 1].first) - entropy);
    for (const Candidate& x : c.all())
      ASSERT_LE(std::abs(-std::log(static_cast<double>(x.probability)) - entropy), furthest + 1e-2);
  }
}

TEST(Sampling, XtcLeavesTheLeastLikelyOfTheLikely) {
  Random random(1);
  const std::vector<float> logits = {std::log(0.4f), std::log(0.3f), std::log(0.2f), std::log(0.1f)};
  Candidates c;
  c.collect(logits, 0, 1.0f);
  make_xtc(1.0f, 0.15f)->apply(c, random);
  EXPECT_EQ(tokens_of(c), (std::set<int32_t>{2, 3}));
  c.collect(logits, 0, 1.0f);
  make_xtc(0.0f, 0.15f)->apply(c, random);
  EXPECT_EQ(c.size(), 4u);
  c.collect(logits, 0, 1.0f);
  make_xtc(1.0f, 0.35f)->apply(c, random);  // only one is likely: it stays
  EXPECT_EQ(c.size(), 4u);
}

TEST(Sampling, FrequenciesFollowTheDistribution) {
  Random random(millrace::testing::seed());
  const auto logits = random_logits(random, 40, 1.5f);
  SamplingParams p;
  p.temperature = 0.8f;
  p.top_k = 20;
  const uint64_t draws = 40000;
  SamplerChain chain(p, 42, 1, 40, {});
  SampleScratch scratch;
  std::map<int32_t, double> seen;
  for (uint64_t i = 0; i < draws; ++i) {
    auto copy = logits;
    ++seen[chain.sample(copy, {}, {}, {}, scratch).token];
  }
  auto all = sorted_probabilities(logits, 0.8);
  all.resize(20);
  double sum = 0, chi = 0;
  for (const auto& x : all) sum += x.first;
  for (const auto& [q, token] : all) {
    const double expected = q / sum * static_cast<double>(draws);
    const double difference = seen[token] - expected;
    chi += difference * difference / expected;
    seen.erase(token);
  }
  EXPECT_TRUE(seen.empty());
  EXPECT_LT(chi, 50.0);  // 19 degrees of freedom: p below 1e-4
}

TEST(Sampling, MirostatKeepsTheSurpriseNearTau) {
  Random random(millrace::testing::seed());
  for (const int32_t version : {1, 2}) {
    for (const float tau : {4.0f, 6.0f}) {  // the likeliest word alone has 2.5 bits
      SamplingParams p;
      p.mirostat = version;
      p.mirostat_tau = tau;
      SamplerChain chain(p, 7, 1, 4000, {});
      SampleScratch scratch;
      double surprise = 0;
      const int count = 1500;
      for (int i = 0; i < count; ++i) {
        // Zipf's law, as words follow it.
        std::vector<float> logits(4000);
        for (size_t v = 0; v < logits.size(); ++v)
          logits[v] = -1.1f * std::log(static_cast<float>(v) + 1.0f) + 0.05f * random.normal();
        const double sum = log_sum_exp(logits);
        auto copy = logits;
        const int32_t token = chain.sample(copy, {}, {}, {}, scratch).token;
        if (i >= 300) surprise -= (logits[static_cast<size_t>(token)] - sum) / std::log(2.0);
      }
      surprise /= count - 300;
      EXPECT_NEAR(surprise, tau, 0.15 * tau) << "version " << version;
    }
  }
}

TEST(Sampling, PenaltiesFollowTheirFormulasOverTheWindow) {
  Random random(millrace::testing::seed());
  for (const int32_t window : {-1, 1, 5, 12}) {
    SamplingParams p;
    p.temperature = 0;
    p.repetition_penalty = 1.3f;
    p.presence_penalty = 0.7f;
    p.frequency_penalty = -0.4f;
    p.penalty_last_n = window;
    std::vector<int32_t> tokens;
    for (int i = 0; i < 9; ++i) tokens.push_back(static_cast<int32_t>(random.below(10)));
    const size_t prompt = tokens.size();
    const auto processor = make_penalties(p, tokens);
    for (int step = 0; step < 30; ++step) {
      const auto logits = random_logits(random, 10);
      auto changed = logits;
      processor->apply(changed, tokens);
      const size_t first = window < 0 || tokens.size() < static_cast<size_t>(window)
                               ? 0
                               : tokens.size() - static_cast<size_t>(window);
      for (int32_t v = 0; v < 10; ++v) {
        const auto seen = std::count(tokens.begin() + static_cast<ptrdiff_t>(first), tokens.end(), v);
        const auto own =
            std::count(tokens.begin() + static_cast<ptrdiff_t>(std::max(first, prompt)), tokens.end(), v);
        float x = logits[static_cast<size_t>(v)];
        if (seen > 0) x = x > 0 ? x / 1.3f : x * 1.3f;
        if (own > 0) x -= 0.7f - 0.4f * static_cast<float>(own);
        ASSERT_FLOAT_EQ(changed[static_cast<size_t>(v)], x);
      }
      tokens.push_back(static_cast<int32_t>(random.below(10)));
      processor->accept(tokens);
    }
  }
}

TEST(Sampling, DryPenalisesWhatWouldRepeat) {
  Random random(millrace::testing::seed());
  for (int round = 0; round < 200; ++round) {
    SamplingParams p;
    p.dry_multiplier = 0.8f;
    p.dry_base = 1.75f;
    p.dry_allowed_length = static_cast<int32_t>(random.below(4));
    p.dry_penalty_last_n = random.below(2) ? -1 : 20;
    if (random.below(2)) p.dry_sequence_breakers = {{3}, {1, 2}};
    std::vector<int32_t> tokens;
    for (uint32_t i = 0; i < 2 + random.below(60); ++i)
      tokens.push_back(static_cast<int32_t>(random.below(5)));
    std::vector<float> logits(5, 0.0f);
    make_dry(p)->apply(logits, tokens);

    std::vector<int32_t> text = tokens;
    if (p.dry_penalty_last_n > 0 && text.size() > 20) text.erase(text.begin(), text.end() - 20);
    const auto n = static_cast<int32_t>(text.size());
    const auto has_breaker = [&](int32_t begin, int32_t end) {
      for (const auto& b : p.dry_sequence_breakers)
        for (int32_t i = begin; i + static_cast<int32_t>(b.size()) <= end; ++i)
          if (std::equal(b.begin(), b.end(), text.begin() + i)) return true;
      return false;
    };
    for (int32_t v = 0; v < 5; ++v) {
      int32_t longest = 0;
      for (int32_t at = 1; at < n; ++at) {  // text[at] == v would continue the repeat of what ends before it
        if (text[static_cast<size_t>(at)] != v) continue;
        int32_t length = 0;
        while (length < at &&
               text[static_cast<size_t>(at - 1 - length)] == text[static_cast<size_t>(n - 1 - length)])
          ++length;
        // Only so much of the text's end as holds no breaker, nor begins right behind the last token of one.
        int32_t reach = 0;
        while (reach < n) {
          bool ends_here = false;
          for (const auto& b : p.dry_sequence_breakers) {
            const auto size = static_cast<int32_t>(b.size());
            if (n - reach >= size && std::equal(b.begin(), b.end(), text.begin() + (n - reach - size)))
              ends_here = true;
          }
          if (ends_here) break;
          ++reach;
        }
        EXPECT_FALSE(has_breaker(n - reach, n));
        longest = std::max(longest, std::min(length, reach));
      }
      const float expected = longest > 0 && longest >= p.dry_allowed_length
                                 ? -0.8f * std::pow(1.75f, static_cast<float>(longest - p.dry_allowed_length))
                                 : 0.0f;
      ASSERT_NEAR(logits[static_cast<size_t>(v)], expected, 1e-3 * std::abs(expected) + 1e-5);
    }
  }
}

TEST(Sampling, MaskBiasAndBanned) {
  SamplingParams p;
  p.temperature = 0;
  p.logit_bias = {{2, 50.0f}, {3, -100.0f}};
  SamplerChain chain(p, 0, 1, 70, {});
  SampleScratch scratch;
  std::vector<float> logits(70, 0.0f);
  logits[3] = 100;
  logits[69] = 40;
  auto copy = logits;
  EXPECT_EQ(chain.sample(copy, {}, {}, {}, scratch).token, 2);
  copy = logits;
  const int32_t banned[] = {2};
  EXPECT_EQ(chain.sample(copy, {}, {}, banned, scratch).token, 69);
  copy = logits;
  const uint64_t mask[] = {0b1001, 0};
  EXPECT_EQ(chain.sample(copy, {}, mask, {}, scratch).token, 0);
  copy = logits;
  const uint64_t short_mask[] = {0b1000};
  EXPECT_EQ(chain.sample(copy, {}, short_mask, {}, scratch).token, -1);
  std::vector<float> nothing(70, std::nanf(""));
  EXPECT_EQ(chain.sample(nothing, {}, {}, {}, scratch).token, -1);
  p.temperature = 1;
  SamplerChain warm(p, 0, 1, 70, {});
  EXPECT_EQ(warm.sample(nothing, {}, {}, {}, scratch).token, -1);
  std::vector<float> infinite(70, kNever);
  EXPECT_EQ(warm.sample(infinite, {}, {}, {}, scratch).token, -1);
}

TEST(Sampling, GreedyTakesTheFirstOfEqualLogits) {
  SamplingParams p;
  p.temperature = 0;
  SamplerChain chain(p, 0, 1, 100, {});
  SampleScratch scratch;
  std::vector<float> logits(100, -1.0f);
  logits[70] = logits[31] = logits[32] = 5;
  EXPECT_EQ(chain.sample(logits, {}, {}, {}, scratch).token, 31);
}

TEST(Sampling, LogprobsSumAndOrder) {
  Random random(millrace::testing::seed());
  const auto logits = random_logits(random, 5000);
  const double sum = log_sum_exp(logits);
  const auto all = sorted_probabilities(logits, 1.0);
  const auto top = top_logprobs(logits, 20, sum);
  ASSERT_EQ(top.size(), 20u);
  for (size_t i = 0; i < 20; ++i) {
    EXPECT_EQ(top[i].token, all[i].second);
    EXPECT_NEAR(top[i].logprob, std::log(all[i].first), 1e-5);
  }
}

TEST(Sampling, EveryFieldIsChecked) {
  const auto refused = [](auto change) {
    SamplingParams p;
    change(p);
    try {
      validate(p, 100);
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::kInvalidArgument);
      return true;
    }
    return false;
  };
  EXPECT_FALSE(refused([](SamplingParams&) {}));
  const float nan = std::nanf(""), infinity = std::numeric_limits<float>::infinity();
  for (float SamplingParams::*field :
       {&SamplingParams::temperature, &SamplingParams::top_p, &SamplingParams::min_p,
        &SamplingParams::typical_p, &SamplingParams::mirostat_tau, &SamplingParams::mirostat_eta,
        &SamplingParams::xtc_probability, &SamplingParams::xtc_threshold, &SamplingParams::dry_multiplier,
        &SamplingParams::dry_base, &SamplingParams::repetition_penalty, &SamplingParams::presence_penalty,
        &SamplingParams::frequency_penalty})
    for (const float bad : {nan, infinity, -infinity, -3.0f, 1e30f})
      EXPECT_TRUE(refused([&](SamplingParams& p) { p.*field = bad; })) << bad;
  for (int32_t SamplingParams::*field :
       {&SamplingParams::top_k, &SamplingParams::mirostat, &SamplingParams::dry_allowed_length,
        &SamplingParams::dry_penalty_last_n, &SamplingParams::penalty_last_n, &SamplingParams::logprobs,
        &SamplingParams::prompt_logprobs})
    EXPECT_TRUE(refused([&](SamplingParams& p) { p.*field = -2; }));
  EXPECT_TRUE(refused([&](SamplingParams& p) { p.logit_bias = {{100, 0.0f}}; }));
  EXPECT_TRUE(refused([&](SamplingParams& p) { p.logit_bias = {{1, nan}}; }));
  EXPECT_TRUE(refused([&](SamplingParams& p) { p.dry_sequence_breakers = {{}}; }));
  EXPECT_TRUE(refused([&](SamplingParams& p) { p.top_p = 0; }));
  Request r;
  EXPECT_THROW(validate(r, 100), Error);
  r.prompt = {1};
  EXPECT_NO_THROW(validate(r, 100));
  r.generation.n = 3;
  r.generation.best_of = 2;
  EXPECT_THROW(validate(r, 100), Error);
  r.generation.best_of = 0;
  r.deadline_seconds = std::nan("");
  EXPECT_THROW(validate(r, 100), Error);
}

}  // namespace
}  // namespace millrace::engine
