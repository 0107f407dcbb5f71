// Multi-head latent attention (DeepSeek-V2 and V3), absorbed: the cache keeps one latent and one rotated key
// per token; queries are carried into the latent space and results out of it.
#pragma once

#include <vector>

#include "layers/linear.h"
#include "layers/mixer.h"
#include "layers/norm.h"
#include "layers/rope.h"

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
  std::vector<ops::PackedMatrix> value_up;  ///< per head [value, latent]
  Linear output;

  CacheSpec cache_spec() const override { return CacheSpec::latent(latent_dim, rope_dim); }
  uint64_t weight_bytes() const override;
  void add_forms(std::vector<ops::InputForm>& forms) const override;
  void forward(const Step& step, int layer, ops::MatmulInput& x, float* y,
               const ops::Epilogue& epilogue) const override;
};

}  // namespace millrace::layers
