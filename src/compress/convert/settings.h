// The settings of a Hugging Face model as GGUF metadata.
#pragma once

#include <string>
#include <vector>

#include "compress/convert/recipes.h"
#include "loaders/gguf_writer.h"
#include "models/config.h"

namespace millrace::convert {

struct Sizes {
  int32_t layers = 0, hidden = 0, heads = 0, kv_heads = 0, head_dim = 0, rotary_dim = 0;
  int32_t value_dim = 0;                    ///< of a head as the cache has it
  std::vector<uint32_t> kv_heads_of_layer;  ///< where they differ: 0 in layers that do not attend
};

/// Error(kInvalidFile) for settings that are missing or contradict each other.
Sizes read_sizes(const models::Config& config, const Recipe& recipe);

/// Divisors of the rotary frequencies that GGUF keeps as tensors.
struct RopeFactors {
  std::vector<float> both, longer, shorter;  ///< rope_freqs, rope_factors_long, rope_factors_short
  std::string note;                          ///< what GGUF cannot say of them, as a sentence
};

/// Writes all settings but the vocabulary's; `ffn_width` is the dense feed-forward's.
RopeFactors write_settings(const models::Config& config, const Recipe& recipe, const Sizes& sizes,
                           int64_t ffn_width, loaders::GgufWriter& out);

}  // namespace millrace::convert
