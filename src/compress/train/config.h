// What `millrace train CONFIG` reads: one JSON object, every key of it documented in docs/training.md.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "compress/train/kernels.h"

namespace millrace::train {

/// A dense or mixture-of-experts decoder of the Llama family: RMSNorm, grouped-query attention with rotary
/// positions on neighbouring pairs, SwiGLU.
struct ModelShape {
  int vocab_size = 0;
  int dim = 0;
  int num_layers = 0;
  int num_heads = 0;
  int num_kv_heads = 0;
  int head_dim = 0;
  int feed_forward = 0;  ///< hidden width of the MLP, or of one expert
  int num_experts = 0;   ///< 0: dense
  int experts_per_token = 0;
  float rope_theta = 10000.0f;
  float norm_epsilon = 1e-5f;

  int query_dim() const { return num_heads * head_dim; }
  int kv_dim() const { return num_kv_heads * head_dim; }
};

struct TrainConfig {
  ModelShape model;

  std::filesystem::path data;        ///< tokens to learn from (train/dataset.h)
  std::filesystem::path validation;  ///< held-out tokens; may be empty
  std::filesystem::path output;      ///< folder for checkpoints, curve and exported model
  std::filesystem::path metadata;    ///< JSON of GGUF metadata (tokenizer, general.*) for the export

  Arithmetic arithmetic = Arithmetic::kFloat32;
  bool recompute_activations = false;
  int threads = 0;
  uint64_t seed = 1;

  int context = 256;  ///< longest document; longer ones are cut
  int steps = 0;
  int batch_tokens = 4096;        ///< tokens of one optimiser step
  int micro_batch_tokens = 1024;  ///< tokens held at once; gradients of a batch's parts add up
  float prompt_weight = 1.0f;     ///< share of the loss for tokens that the data marks as prompt

  float learning_rate = 1e-3f;
  float final_rate = 0.1f;  ///< learning rate at the end, as a share of learning_rate
  int warmup_steps = 50;
  float beta1 = 0.9f, beta2 = 0.95f, epsilon = 1e-8f;
  float weight_decay = 0.05f;
  float clip = 1.0f;                  ///< largest norm of the gradient; 0: no clipping
  bool orthogonal_attention = false;  ///< attention matrices take orthogonalised updates instead of AdamW's
  float balance = 0.01f;              ///< weight of the experts' load-balancing loss
  float init_std = 0.02f;
  bool similar_attention_start = false;  ///< see Model::initialise
  std::filesystem::path start_from;  ///< config of a trained model whose weights are the start; may be empty

  double save_every_minutes = 3;
  int validate_every_steps = 200;
  int validation_tokens = 32768;
};

/// Error(kNotFound / kInvalidArgument) names the key that is wrong. Paths are relative to the config's
/// folder.
TrainConfig load_config(const std::filesystem::path& path);
TrainConfig parse_config(const std::string& json, const std::filesystem::path& folder);

}  // namespace millrace::train
