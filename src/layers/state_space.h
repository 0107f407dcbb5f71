// Mixers that keep a state of fixed size instead of K and V: Mamba (Gu & Dao 2023), Mamba-2 (Dao & Gu 2024)
// and Gated DeltaNet (Yang et al. 2024). A sequence's state lies in its slot of the cache: the convolution's
// last inputs, then the recurrence.
#pragma once

#include <limits>
#include <vector>

#include "layers/linear.h"
#include "layers/mixer.h"
#include "layers/norm.h"
#include "ops/ssm.h"

namespace millrace::layers {

class Mamba final : public Mixer {
 public:
  int32_t inner = 0, state_size = 0, kernel = 0, dt_rank = 0;
  Linear input;                               ///< rows: x, z
  std::vector<float> conv_weight, conv_bias;  ///< [kernel, inner], [inner] or empty
  Linear parameters;                          ///< rows: dt, b, c
  Norm dt_norm, b_norm, c_norm;               ///< Jamba
  Linear dt;                                  ///< [inner, dt_rank], its bias in dt_bias
  std::vector<float> dt_bias, a, d;           ///< a [state_size, inner]
  Linear output;

  CacheSpec cache_spec() const override;
  uint64_t weight_bytes() const override {
    return input.bytes() + parameters.bytes() + dt.bytes() + output.bytes();
  }
  void add_forms(std::vector<ops::InputForm>& forms) const override { input.add_forms(forms); }
  void forward(const Step& step, int layer, ops::MatmulInput& x, float* y,
               const ops::Epilogue& epilogue) const override;
};

class Mamba2 final : public Mixer {
 public:
  ops::HeadScanShape shape{};
  int32_t kernel = 0;
  Linear input;  ///< rows: z, x, b, c, dt
  std::vector<float> conv_weight, conv_bias;
  std::vector<float> dt_bias, a, d;  ///< [heads]
  float dt_low = 0, dt_high = std::numeric_limits<float>::infinity();
  std::vector<float> norm_weight;  ///< [inner]
  float norm_epsilon = 1e-5f;
  int64_t norm_group = 0;
  Linear output;

  CacheSpec cache_spec() const override;
  uint64_t weight_bytes() const override { return input.bytes() + output.bytes(); }
  void add_forms(std::vector<ops::InputForm>& forms) const override { input.add_forms(forms); }
  void forward(const Step& step, int layer, ops::MatmulInput& x, float* y,
               const ops::Epilogue& epilogue) const override;
};

class GatedDeltaNet final : public Mixer {
 public:
  ops::DeltaRuleShape shape{};
  int32_t kernel = 0;
  Linear input;           ///< rows: q, k, v, z
  Linear beta_and_decay;  ///< rows: b, a
  std::vector<float> conv_weight, conv_bias;
  std::vector<float> dt_bias, a;   ///< [value_heads], a = -exp(A_log)
  std::vector<float> norm_weight;  ///< [value_dim]
  float norm_epsilon = 1e-6f;
  Linear output;

  CacheSpec cache_spec() const override;
  uint64_t weight_bytes() const override { return input.bytes() + beta_and_decay.bytes() + output.bytes(); }
  void add_forms(std::vector<ops::InputForm>& forms) const override {
    input.add_forms(forms);
    beta_and_decay.add_forms(forms);
  }
  void forward(const Step& step, int layer, ops::MatmulInput& x, float* y,
               const ops::Epilogue& epilogue) const override;
};

}  // namespace millrace::layers
