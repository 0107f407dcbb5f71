// What may come next: a short list of tokens with their logits, cut down by one sampler after the other.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace millrace::engine {

struct Candidate {
  int32_t token = 0;
  float logit = 0;
  float probability = 0;  ///< valid after normalise()
};

class Candidates {
 public:
  /// Takes the `top_k` largest logits (0: all), divided by `temperature`. Without top_k, tokens whose
  /// probability is below e^-24 of the likeliest are left out: together they weigh less than 1e-5 for any
  /// vocabulary. The order of equal logits is that of their ids, so that a result never depends on how the
  /// list was found.
  void collect(std::span<const float> logits, int32_t top_k, float temperature);

  bool empty() const { return list_.empty(); }
  size_t size() const { return list_.size(); }
  std::span<Candidate> all() { return list_; }
  Candidate& operator[](size_t i) { return list_[i]; }

  /// Probabilities over the list, summing to 1. Exponentials are taken once; later calls only scale.
  void normalise();

  /// Puts the likeliest in front, in order, as far as `sum of probabilities >= mass` or `count` needs, by
  /// sorting growing parts and never the whole of a long list; returns how many are in order. Call after
  /// normalise().
  size_t sort_until(double mass, size_t count);

  /// Keeps the first n.
  void truncate(size_t n) { list_.resize(n < list_.size() ? n : list_.size()); }
  /// Drops the first n (the list must be in order so far).
  void drop_front(size_t n);
  /// Keeps what `keep` says, in order.
  template <typename Keep>
  void filter(Keep keep) {
    size_t out = 0;
    for (const Candidate& c : list_)
      if (keep(c)) list_[out++] = c;
    list_.resize(out);
    if (sorted_ > out) sorted_ = out;
  }
  /// Index drawn with u uniform in [0, 1) by the probabilities (which need not sum to 1).
  size_t draw(double u) const;

 private:
  std::vector<Candidate> list_;
  size_t sorted_ = 0;  // the first so many are in order
  bool has_probabilities_ = false;
};

}  // namespace millrace::engine
