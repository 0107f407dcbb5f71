// The dense-decoder skeleton that most families share, described as data: a family's file fills a DecoderSpec
// from the checkpoint's configuration and names its tensors; building and running are generic.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "layers/mixer.h"
#include "layers/norm.h"
#include "layers/rope.h"
#include "models/config.h"
#include "models/model.h"
#include "models/weights.h"

namespace millrace::models {

/// What one block is made of.
struct BlockSpec {
  // Attention
  int32_t num_heads = 0, num_kv_heads = 0, key_dim = 0, value_dim = 0;
  float attention_scale = 0;  ///< 0: 1/sqrt(key_dim)
  float attention_softcap = 0;
  int32_t window = 0, chunk = 0;
  int32_t rope = 0;  ///< index into DecoderSpec::ropes; -1: none
  enum class QkNorm : uint8_t { kNone, kPerHead, kAllHeads, kOwnPerHead } qk_norm = QkNorm::kNone;
  ops::NormSpec::Kind qk_norm_kind = ops::NormSpec::Kind::kRms;
  bool norm_after_rope = false;
  bool gated_attention = false;
  bool sinks = false;
  bool alibi = false;
  float alibi_max_bias = 8.0f;
  bool alibi_scaled = false;  ///< the bias is scaled with the scores (Falcon)
  float clip_qkv = 0;
  // Norms
  bool attn_norm = true, post_attn_norm = false, ffn_norm = true, post_ffn_norm = false;
  bool parallel = false;  ///< attention and feed-forward read the same x; ffn_norm false: the same norm too
  // Feed-forward
  int32_t ffn_width = 0;
  ops::Activation activation = ops::Activation::kSilu;
  bool gated = true;
  /// Makes the feed-forward when it is not the dense MLP described above (experts).
  std::function<std::unique_ptr<layers::FeedForward>(Weights&, int layer)> make_ffn;
  /// Makes the mixer when it is not the attention described above (latent attention, state space).
  std::function<std::unique_ptr<layers::Mixer>(Weights&, int layer, const layers::Rope*,
                                               const ops::RopeTable*)>
      make_mixer;
  bool no_ffn = false;
};

struct DecoderSpec {
  int32_t vocab_size = 0, hidden_size = 0, context_length = 0;
  ops::NormSpec::Kind norm = ops::NormSpec::Kind::kRms;
  float norm_epsilon = 1e-5f;
  bool norm_weights = true;  ///< false: norms have neither weight nor bias (OLMo 1)
  float embedding_scale = 1, residual_scale = 1, logit_scale = 1, logit_softcap = 0;
  bool embedding_norm = false;     ///< a norm right after the embedding (BLOOM)
  bool learned_positions = false;  ///< "position_embd" is added
  int32_t position_offset = 0;     ///< OPT's table begins with two unused rows
  bool output_norm = true;
  std::vector<layers::Rope> ropes;
  std::vector<BlockSpec> blocks;
};

/// The settings every family has, read from their usual keys: sizes, heads, norm epsilon, context, and one
/// BlockSpec per layer with heads, dims and ffn width filled in. Families then change what is theirs.
DecoderSpec read_common(const Config& config, const Weights& weights);

/// For families without grouped heads and with a plain MLP: as many KV heads as heads, and the width that the
/// first layer's matrix has (older configurations leave both out, or carry keys that their modelling code
/// never reads).
void use_plain_blocks(DecoderSpec& spec, const Weights& weights);

/// The feed-forward's function from its usual keys in config.json; `fallback` where there is none (and in
/// GGUF, where the architecture implies it). Error(kUnsupported) for a name nobody here knows.
ops::Activation read_activation(const Config& config, ops::Activation fallback);

/// Which layers look at a window only: config.json's layer_types, or every layer but each `period`-th.
std::vector<bool> local_layers(const Config& config, size_t num_layers, int32_t period);

/// Whether YaRN's ramp begins and ends at whole dimensions, where the file does not say ("truncate").
enum class YarnRamp : uint8_t { kWhole, kExact };

/// Rotary parameters from the usual keys: base, scaling of every published kind, partial factor. `part` names
/// a nested set in config.json ("full_attention"); `base_key` another key of the base.
layers::Rope read_rope(const Config& config, Weights& weights, int32_t head_dim, ops::RopeLayout layout,
                       const std::string& part = "", Key base_key = {"rope.freq_base", "rope_theta"},
                       YarnRamp ramp = YarnRamp::kWhole);

/// Reads all weights and returns the model.
std::unique_ptr<Model> make_decoder(const Config& config, Weights& weights, DecoderSpec spec);

}  // namespace millrace::models
