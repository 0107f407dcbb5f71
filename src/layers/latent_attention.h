// Multi-head latent attention (DeepSeek-V2 and V3): the cache keeps one latent and one rotated key per token.
// Answers are computed in absorbed form: queries are carried into the latent space and results out of it.
// Prompts are computed in expanded form: every head's keys and values are made of the latents, which takes a
// third of the operations once many queries read them.
#pragma once

#include <vector>

#include "layers/linear.h"
#include "layers/mixer.h"
#include "layers/norm.h"
#include "layers/rope.h"
#include "ops/mla.h"

namespace millrace::layers {

class LatentAttention final : public Mixer {
 public:
  int32_t num_heads = 0, latent_dim = 0, rope_dim = 0, nope_dim = 0, value_dim = 0;
  float scale = 1.0f;
  const Rope* rope = nullptr;
  const ops::RopeTable* rope_table = nullptr;

  Linear query_down;  ///< empty: `query` reads the input itself
  Norm query_norm;
  Linear query;    ///< rows: heads x (nope, rope)
  Linear kv_down;  ///< rows: latent, shared rotated key
  Norm latent_norm;
  std::vector<ops::PackedMatrix> key_up;  ///< per head [latent, nope]: carries a query into the latent space
  std::vector<ops::PackedMatrix>
      key_expand;                           ///< per head [nope, latent]: its transpose, makes keys of latents
  std::vector<ops::PackedMatrix> value_up;  ///< per head [value, latent]
  Linear output;

  CacheSpec cache_spec() const override { return CacheSpec::latent(latent_dim, rope_dim); }
  uint64_t weight_bytes() const override;
  void add_forms(std::vector<ops::InputForm>& forms) const override;
  void forward(const Step& step, int layer, ops::MatmulInput& x, float* y,
               const ops::Epilogue& epilogue) const override;

 private:
  /// Rows of the step, projected and rotated.
  struct Projected {
    float* q = nullptr;   ///< [rows, heads x (nope, rope)]
    float* kv = nullptr;  ///< [rows, (latent, rotated key)]
  };
  Projected project(const Step& step, ops::MatmulInput& x) const;
  ops::LatentShape latent_shape(const Step& step, int layer) const;
  /// Attends for `rows` rows of q to what the cache has (null kv), or stores kv first; values [rows, heads x
  /// value].
  void attend_absorbed(const Step& step, int layer, std::span<const ops::AttentionSequence> sequences,
                       int64_t rows, const float* q, const float* kv, float* values) const;
  /// The same for the first `sequence.query_length` rows of one sequence, whose latents are stored.
  void attend_expanded(const Step& step, int layer, const ops::AttentionSequence& sequence, const float* q,
                       float* values) const;
};

}  // namespace millrace::layers
