// Multi-head attention with everything that published dense decoders put into it: grouped heads, biases,
// QK-norm in its forms, partial or no rotation, windows, soft-caps, sinks, ALiBi, gates.
#pragma once

#include <cstdint>
#include <vector>

#include "layers/linear.h"
#include "layers/mixer.h"
#include "layers/norm.h"
#include "layers/rope.h"

namespace millrace::layers {

struct AttentionConfig {
  int32_t num_heads = 0;
  int32_t num_kv_heads = 0;
  int32_t key_dim = 0;
  int32_t value_dim = 0;
  float scale = 1.0f;
  float softcap = 0.0f;
  int32_t window = 0;
  int32_t chunk = 0;
  float clip_qkv = 0.0f;       ///< q, k, v clamped to [-clip, clip]; 0: not
  const Rope* rope = nullptr;  ///< owned by the model; null: none
  const ops::RopeTable* rope_table =
      nullptr;                   ///< this step's table, filled by the model before its layers run
  bool norm_after_rope = false;  ///< QK-norm follows the rotation
  bool gated = false;  ///< q has a gate beside each head's query (Qwen3-Next): output *= sigmoid(gate)
  bool causal = true;
  int32_t shared_layer = -1;  ///< reads K and V of an earlier layer
};

class Attention final : public Mixer {
 public:
  AttentionConfig config;
  Linear qkv;  ///< rows: q (with gates if gated), k, v
  Linear output;
  Norm query_norm, key_norm;  ///< over a head's vector; RMS with a longer weight: over all heads; LayerNorm
                              ///< with one: a row of it per head
  std::vector<float> sinks;
  std::vector<float> alibi_slopes;

  CacheSpec cache_spec() const override;
  uint64_t weight_bytes() const override { return qkv.bytes() + output.bytes(); }
  void add_forms(std::vector<ops::InputForm>& forms) const override { qkv.add_forms(forms); }
  void forward(const Step& step, int layer, ops::MatmulInput& x, float* y,
               const ops::Epilogue& epilogue) const override;
};

/// Slopes of ALiBi (Press et al. 2022) for any number of heads. `max_bias` is 8 in the paper.
std::vector<float> alibi_slopes(int32_t num_heads, float max_bias);

}  // namespace millrace::layers
