// What may come next: a short list of tokens with their logits, cut down by one sampler after the other.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/cpu.h"
#include "kernels/table.h"
#include "ops/topk.h"

namespace millrace::engine {

struct Candidate {
  int32_t token = 0;
  float logit = 0;
  float probability = 0;  ///< in any unit before normalise()
};

class Candidates {
 public:
  explicit Candidates(const kernels::Table& kernels = kernels::table(best_isa())) : kernels_(&kernels) {}

  /// What the first filter will ask for, so that less than all is collected: the mass of top-p, the share of
  /// the likeliest of min-p.
  struct Enough {
    double mass = 1;
    float share = 0;
  };

  /// Takes the `top_k` largest logits (0: all), divided by `temperature`. Without top_k, tokens whose
  /// probability is below e^-24 of the likeliest are left out: together they weigh less than 1e-5 for any
  /// vocabulary. In the order of their ids, so that a result never depends on how the list was found.
  void collect(std::span<const float> logits, int32_t top_k, float temperature) {
    collect(logits, top_k, temperature, Enough());
  }
  void collect(std::span<const float> logits, int32_t top_k, float temperature, Enough enough);

  /// The largest logit's token, the smaller id of two equal ones; -1 where none is finite.
  int32_t likeliest(std::span<const float> logits) const;

  /// The token drawn with u uniform in [0, 1) from all of the distribution: collect(logits, 0, temperature),
  /// normalise() and draw(u) without a list. -1 where no logit is finite.
  int32_t draw_from(std::span<const float> logits, float temperature, double u);

  /// The token drawn with u from the fewest, the likeliest, that hold `mass` of the distribution: what
  /// collect(logits, 0, temperature), keep_mass(mass), normalise() and draw(u) give, without a list. Only for
  /// a distribution so flat that its list would be long; nullopt for another.
  std::optional<int32_t> draw_flat(std::span<const float> logits, float temperature, double mass, double u);

  const kernels::Table& kernels() const { return *kernels_; }
  bool empty() const { return list_.empty(); }
  size_t size() const { return list_.size(); }
  std::span<Candidate> all() { return list_; }
  Candidate& operator[](size_t i) { return list_[i]; }

  /// Probabilities over the list, summing to 1.
  void normalise();

  /// Keeps the fewest candidates, the likeliest, that hold `mass` of the distribution (at least one).
  void keep_mass(double mass);

  /// Puts the likeliest `count` in front, in order.
  void sort_until(size_t count);

  /// Keeps the first n.
  void truncate(size_t n) { list_.resize(n < list_.size() ? n : list_.size()); }
  /// Drops the first n.
  void drop_front(size_t n);
  /// Keeps what `keep` says, in order.
  template <typename Keep>
  void filter(Keep keep) {
    size_t out = 0;
    for (const Candidate& c : list_)
      if (keep(c)) list_[out++] = c;
    list_.resize(out);
  }
  /// Index drawn with u uniform in [0, 1) by the probabilities (which need not sum to 1).
  size_t draw(double u) const;

 private:
  /// ids_ and values_: all within `distance` of the largest, divided by the temperature; returns how many.
  size_t collect_near(std::span<const float> logits, float top, float temperature, float distance);
  /// weights_: of all logits, as shares of the likeliest's.
  void weigh_all(std::span<const float> logits, float top, float temperature);
  /// The index drawn with u from the first n weights_ of at least `least`; -1 where none is.
  int32_t draw_weight(size_t n, float least, double u);
  /// Of weights_ the fewest, the likeliest, that hold `wanted` are those of at least what is returned: others
  /// that are as large are set to 0.
  float keep_weights(std::span<const float> logits, double wanted);
  /// weights_: exponentials of the first `count` values_; returns their sum.
  double weigh(size_t count);

  const kernels::Table* kernels_;
  std::vector<Candidate> list_;
  double rest_ =
      0;  // of the distribution's mass, in units of the list's probabilities, what is not in the list
  ops::TopKScratch scratch_;
  std::vector<int32_t> ids_;
  std::vector<float> values_, weights_;
  std::vector<double> blocks_;
  std::vector<Candidate> border_;
  std::vector<double> bins_;
};

}  // namespace millrace::engine
