// Filters that keep part of the distribution: top-p, min-p, typical, XTC. (Top-k is done while candidates are
// collected.)

#include <algorithm>
#include <cmath>

#include "engine/sampling/sampler.h"

namespace millrace::engine {
namespace {

/// Nucleus sampling (Holtzman et al. 2020).
class TopP : public CandidateFilter {
 public:
  explicit TopP(float p) : p_(p) {}
  void apply(Candidates& c, Random&) override { c.keep_mass(p_); }
  std::unique_ptr<CandidateFilter> fork() const override { return std::make_unique<TopP>(*this); }

 private:
  double p_;
};

/// Min-p (Nguyen et al. 2024).
class MinP : public CandidateFilter {
 public:
  explicit MinP(float p) : p_(p) {}
  void apply(Candidates& c, Random&) override {
    float top = -std::numeric_limits<float>::infinity();
    for (const Candidate& x : c.all()) top = std::max(top, x.logit);
    const float threshold = top + std::log(p_);
    c.filter([&](const Candidate& x) { return x.logit >= threshold || x.logit == top; });
  }
  std::unique_ptr<CandidateFilter> fork() const override { return std::make_unique<MinP>(*this); }

 private:
  float p_;
};

/// Locally typical sampling (Meister et al. 2022): tokens whose surprise is nearest to the entropy, until
/// they hold p.
class Typical : public CandidateFilter {
 public:
  explicit Typical(float p) : p_(p) {}
  void apply(Candidates& c, Random&) override {
    c.normalise();
    double entropy = 0;
    for (const Candidate& x : c.all())
      if (x.probability > 0) entropy -= x.probability * std::log(static_cast<double>(x.probability));
    order_.clear();
    for (size_t i = 0; i < c.size(); ++i) {
      const double surprise = -std::log(std::max(static_cast<double>(c[i].probability), 1e-300));
      order_.push_back({std::abs(surprise - entropy), c[i].token, c[i].probability});
    }
    double mass = 0;
    size_t sorted = 0, step = 64, kept = 0;
    while (kept < order_.size() && (kept == 0 || mass < p_)) {
      if (kept == sorted) {
        sorted = std::min(order_.size(), sorted + step);
        std::partial_sort(order_.begin() + static_cast<ptrdiff_t>(kept),
                          order_.begin() + static_cast<ptrdiff_t>(sorted), order_.end());
        step *= 8;
      }
      mass += order_[kept++].probability;
    }
    const Entry last = order_[kept - 1];
    c.filter([&](const Candidate& x) {
      const double surprise = -std::log(std::max(static_cast<double>(x.probability), 1e-300));
      const Entry entry{std::abs(surprise - entropy), x.token, x.probability};
      return !(last < entry);
    });
  }
  std::unique_ptr<CandidateFilter> fork() const override { return std::make_unique<Typical>(*this); }

 private:
  struct Entry {
    double distance;
    int32_t token;
    float probability;
    bool operator<(const Entry& o) const {
      return distance < o.distance || (distance == o.distance && token < o.token);
    }
  };
  double p_;
  std::vector<Entry> order_;
};

/// Exclude top choices: with the given chance, of the candidates at least `threshold` likely only the least
/// likely stays.
class Xtc : public CandidateFilter {
 public:
  Xtc(float probability, float threshold) : probability_(probability), threshold_(threshold) {}
  void apply(Candidates& c, Random& random) override {
    // The draw is made always, so that the stream of random numbers does not depend on the candidates.
    const bool now = random.uniform() < probability_;
    if (!now) return;
    c.normalise();
    size_t likely = 0;
    for (const Candidate& x : c.all()) likely += x.probability >= threshold_;
    if (likely < 2) return;
    c.sort_until(likely);
    c.drop_front(likely - 1);
  }
  std::unique_ptr<CandidateFilter> fork() const override { return std::make_unique<Xtc>(*this); }

 private:
  float probability_, threshold_;
};

}  // namespace

std::unique_ptr<CandidateFilter> make_top_p(float p) { return std::make_unique<TopP>(p); }
std::unique_ptr<CandidateFilter> make_min_p(float p) { return std::make_unique<MinP>(p); }
std::unique_ptr<CandidateFilter> make_typical(float p) { return std::make_unique<Typical>(p); }
std::unique_ptr<CandidateFilter> make_xtc(float probability, float threshold) {
  return std::make_unique<Xtc>(probability, threshold);
}

}  // namespace millrace::engine
