// Rotary position embedding (Su et al. 2021) and its scalings. The table of cosines and sines is per position
// and made once per step, shared by all layers that have the same parameters.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ops/context.h"

namespace millrace::ops {

enum class RopeLayout : uint8_t {
  kInterleaved,  ///< pairs (0,1), (2,3), ...: GPT-J, Llama in GGUF
  kHalf,         ///< pairs (i, i + dim/2): GPT-NeoX, Hugging Face
};

/// Everything a scaling comes down to: one frequency per pair and one factor on cosine and sine. The
/// functions below give them for each published scaling; LongRoPE has two sets, chosen by the context's
/// length.
struct RopeFrequencies {
  std::vector<float> inverse;  ///< [dim / 2]
  float magnitude = 1.0f;      ///< "attention factor" of YaRN and LongRoPE
};

RopeFrequencies rope_default(int32_t dim, double base);
RopeFrequencies rope_linear(int32_t dim, double base, double factor);
/// NTK-aware: base grown by factor^(dim/(dim-2)). `dynamic` NTK calls it with the factor of the current
/// length.
RopeFrequencies rope_ntk(int32_t dim, double base, double factor);
struct YarnParameters {
  double factor = 1, beta_fast = 32, beta_slow = 1;
  double original_context = 0;
  double attention_factor = 0;  ///< 0: 0.1 ln(factor) + 1, or from the mscale pair
  double mscale = 0, mscale_all_dim = 0;
  bool truncate = true;
};
RopeFrequencies rope_yarn(int32_t dim, double base, const YarnParameters& parameters);
struct Llama3Parameters {
  double factor = 8, low_freq_factor = 1, high_freq_factor = 4, original_context = 8192;
};
RopeFrequencies rope_llama3(int32_t dim, double base, const Llama3Parameters& parameters);
/// Frequencies divided by `factors` [dim / 2] (LongRoPE's short or long set; GGUF's rope_freqs tensor).
RopeFrequencies rope_factors(int32_t dim, double base, std::span<const float> factors, float magnitude);

/// Cosines and sines of this step's rows: [rows, dim / 2] each, from the arena.
struct RopeTable {
  const float* cosine = nullptr;
  const float* sine = nullptr;
  int32_t dim = 0;
};
RopeTable make_rope_table(const Context& context, const RopeFrequencies& frequencies,
                          std::span<const int32_t> positions);

/// Rotates the first table.dim values of each head of x [rows, heads, head_dim], row stride in floats, in
/// place.
void apply_rope(const Context& context, const RopeTable& table, RopeLayout layout, float* x, int64_t rows,
                int64_t row_stride, int32_t heads, int32_t head_dim);

}  // namespace millrace::ops
