// Mirostat (Basu et al. 2021): the list is cut so that the surprise of what is drawn stays near tau bits.

#include <algorithm>
#include <cmath>

#include "engine/sampling/sampler.h"

namespace millrace::engine {
namespace {

class Mirostat : public CandidateFilter {
 public:
  Mirostat(float tau, float eta) : tau_(tau), eta_(eta), mu_(2.0 * tau) {}
  /// Surprise is that of the whole distribution, before the cut.
  void drawn(const Candidate& c) override {
    const double surprise = -std::log2(std::max(c.probability * mass_, 1e-30));
    mu_ -= eta_ * (surprise - tau_);
  }

 protected:
  void cut(Candidates& c) {
    mass_ = 0;
    for (const Candidate& x : c.all()) mass_ += static_cast<double>(x.probability);
    c.normalise();
  }

  double tau_, eta_, mu_;
  double mass_ = 1;  // probability of what is left
};

/// Version 1: the exponent of Zipf's law, fitted to the likeliest hundred, says how many candidates give that
/// surprise.
class Mirostat1 : public Mirostat {
 public:
  Mirostat1(float tau, float eta, int32_t vocab_size) : Mirostat(tau, eta), vocab_size_(vocab_size) {}
  void apply(Candidates& c, Random&) override {
    c.normalise();
    const size_t fitted = std::min<size_t>(100, c.size());
    c.sort_until(fitted);
    double tb = 0, tt = 0;
    for (size_t i = 0; i + 1 < fitted; ++i) {
      if (c[i + 1].probability <= 0) break;
      const double t = std::log(static_cast<double>(i + 2) / static_cast<double>(i + 1));
      const double b = std::log(static_cast<double>(c[i].probability) / c[i + 1].probability);
      tb += t * b;
      tt += t * t;
    }
    const double s = tt > 0 ? std::max(tb / tt, 1e-3) : 1.0;
    const double epsilon = std::abs(s - 1.0) < 1e-6 ? 1e-6 : s - 1.0;
    const double k =
        std::pow(epsilon * std::pow(2.0, mu_) / (1.0 - std::pow(vocab_size_, -epsilon)), 1.0 / s);
    const auto keep = static_cast<size_t>(std::clamp(k, 1.0, static_cast<double>(c.size())));
    c.sort_until(keep);
    c.truncate(keep);
    cut(c);
  }
  std::unique_ptr<CandidateFilter> fork() const override { return std::make_unique<Mirostat1>(*this); }

 private:
  double vocab_size_;
};

/// Version 2: what would surprise more than mu is left out.
class Mirostat2 : public Mirostat {
 public:
  using Mirostat::Mirostat;
  void apply(Candidates& c, Random&) override {
    c.normalise();
    float top = 0;
    for (const Candidate& x : c.all()) top = std::max(top, x.probability);
    const auto least = static_cast<float>(std::pow(2.0, -mu_));
    c.filter([&](const Candidate& x) { return x.probability >= least || x.probability == top; });
    cut(c);
  }
  std::unique_ptr<CandidateFilter> fork() const override { return std::make_unique<Mirostat2>(*this); }
};

}  // namespace

std::unique_ptr<CandidateFilter> make_mirostat_1(float tau, float eta, int32_t vocab_size) {
  return std::make_unique<Mirostat1>(tau, eta, vocab_size);
}
std::unique_ptr<CandidateFilter> make_mirostat_2(float tau, float eta) {
  return std::make_unique<Mirostat2>(tau, eta);
}

}  // namespace millrace::engine
