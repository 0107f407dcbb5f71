// A tiny "model" whose next token depends on every token before it, but only through the cache it wrote
// itself: a wrong block, a lost copy or a stale state changes the answer. reference_*() compute the same
// without any cache.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include "models/model.h"

namespace millrace::engine::testing {

inline uint64_t mix(uint64_t a, uint64_t b) {
  uint64_t x = a * 0x9e3779b97f4a7c15ULL + b + 0x632be59bd9b4e019ULL;
  x ^= x >> 29;
  x *= 0xbf58476d1ce4e5b9ULL;
  x ^= x >> 32;
  return x;
}

struct FakeOptions {
  bool full = true;
  int32_t window = 0;  ///< > 0: a windowed layer
  bool state = false;  ///< a recurrent layer
  bool kinds =
      false;  ///< a prompt's row leaves something else in the cache than an answer's (Batch::prompt_rows)
  int32_t vocab_size = 61;
  int32_t context_length = 4096;
  double seconds_per_step = 0;
  double seconds_per_row = 0;
};

class FakeModel : public models::Model {
 public:
  static constexpr int32_t kHidden = 8;

  explicit FakeModel(const FakeOptions& options) : options_(options) {
    info_.architecture = "fake";
    info_.vocab_size = options.vocab_size;
    info_.context_length = options.context_length;
    info_.hidden_size = kHidden;
    info_.float_weights = true;
  }

  std::vector<layers::CacheSpec> cache_specs() const override {
    std::vector<layers::CacheSpec> specs;
    if (options_.full) specs.push_back(layers::CacheSpec::full(1, 8, 8));
    if (options_.window > 0) specs.push_back(layers::CacheSpec::windowed(1, 8, 8, options_.window));
    if (options_.state) specs.push_back(layers::CacheSpec::recurrent(64));
    return specs;
  }

  void forward(const ops::Context&, const layers::Batch& batch, layers::KvCache& cache,
               const models::Outputs& outputs) override {
    const auto specs = cache_specs();
    const int32_t block_size = cache.layout().block_size;
    size_t wanted = 0;
    for (const layers::BatchSequence& s : batch.sequences) {
      for (int32_t i = 0; i < s.query_length; ++i) {
        const auto row = static_cast<size_t>(s.query_begin + i);
        const int32_t position = batch.positions[row];
        const bool row_of_prompt = static_cast<int64_t>(row) < batch.prompt_rows;
        uint64_t context = 0;
        for (size_t l = 0; l < specs.size(); ++l) {
          const auto group = static_cast<size_t>(cache.layout().group_of_layer[l]);
          const auto table = s.block_tables[group];
          const int layer = static_cast<int>(l);
          const auto place = [&](int32_t p) {
            const int32_t block = table[static_cast<size_t>(p / block_size)];
            return cache.layer_data(layer) + cache.layer_block_bytes(layer) * block + 8 * (p % block_size);
          };
          if (specs[l].kind == layers::CacheSpec::Kind::kRecurrent) {
            std::byte* at = cache.layer_data(layer) + cache.layer_block_bytes(layer) * table[0];
            uint64_t state;
            std::memcpy(&state, at, 8);
            state = mix(state, static_cast<uint64_t>(told(batch.tokens[row], row_of_prompt)));
            std::memcpy(at, &state, 8);
            context = mix(context, state);
            continue;
          }
          const uint64_t own = value(told(batch.tokens[row], row_of_prompt), position);
          std::memcpy(place(position), &own, 8);
          const bool window = specs[l].kind == layers::CacheSpec::Kind::kWindow;
          const int32_t first = window ? std::max(0, position - specs[l].window + 1) : 0;
          uint64_t sum = 0;
          for (int32_t p = first; p <= position; ++p) {
            uint64_t x;
            std::memcpy(&x, place(p), 8);
            sum = mix(sum, x);
          }
          context = mix(context, sum);
        }
        if (wanted < batch.logit_rows.size() && batch.logit_rows[wanted] == static_cast<int32_t>(row)) {
          if (outputs.logits)
            write_logits(context, outputs.logits + wanted * static_cast<size_t>(info_.vocab_size));
          if (outputs.hidden)
            for (int32_t c = 0; c < kHidden; ++c)
              outputs.hidden[wanted * kHidden + static_cast<size_t>(c)] =
                  noise(context, static_cast<uint64_t>(c));
          ++wanted;
        }
      }
    }
    const double seconds =
        options_.seconds_per_step + options_.seconds_per_row * static_cast<double>(batch.num_rows());
    if (seconds > 0) std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
  }

  /// Logits after `tokens`, of which the first `prompt` were given (-1: all), computed without a cache.
  std::vector<float> reference_logits(std::span<const int32_t> tokens, int32_t prompt = -1) const {
    uint64_t context = 0;
    const auto length = static_cast<int32_t>(tokens.size());
    for (const layers::CacheSpec& spec : cache_specs()) {
      uint64_t sum = 0;
      const bool window = spec.kind == layers::CacheSpec::Kind::kWindow;
      const int32_t first = window ? std::max(0, length - spec.window) : 0;
      for (int32_t p = first; p < length; ++p) {
        const int32_t token = told(tokens[static_cast<size_t>(p)], prompt < 0 || p < prompt);
        sum = mix(sum, spec.kind == layers::CacheSpec::Kind::kRecurrent ? static_cast<uint64_t>(token)
                                                                        : value(token, p));
      }
      context = mix(context, sum);
    }
    std::vector<float> logits(static_cast<size_t>(info_.vocab_size));
    write_logits(context, logits.data());
    return logits;
  }

  std::vector<int32_t> reference_greedy(std::vector<int32_t> tokens, int32_t count) const {
    std::vector<int32_t> answer;
    const auto prompt = static_cast<int32_t>(tokens.size());
    for (int32_t i = 0; i < count; ++i) {
      const auto logits = reference_logits(tokens, prompt);
      answer.push_back(static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin()));
      tokens.push_back(answer.back());
    }
    return answer;
  }

 private:
  int32_t told(int32_t token, bool of_prompt) const {
    return options_.kinds && of_prompt ? token + options_.vocab_size : token;
  }
  static uint64_t value(int32_t token, int32_t position) {
    return mix(static_cast<uint64_t>(token) + 1, static_cast<uint64_t>(position));
  }
  static float noise(uint64_t context, uint64_t i) {
    return static_cast<float>(mix(context, i) >> 40) * 0x1p-24f * 8.0f - 4.0f;
  }
  void write_logits(uint64_t context, float* logits) const {
    for (int32_t v = 0; v < info_.vocab_size; ++v) logits[v] = noise(context, static_cast<uint64_t>(v));
  }

  FakeOptions options_;
};

}  // namespace millrace::engine::testing
