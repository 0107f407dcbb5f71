// What particular families need beyond a table of names and settings: tensors that GGUF arranges differently,
// and settings that are computed.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/thread_pool.h"
#include "loaders/checkpoint.h"
#include "loaders/gguf_writer.h"
#include "models/config.h"

namespace millrace::convert {

struct Sizes;

/// One tensor of the GGUF file that is made rather than copied.
struct MadeTensor {
  std::string name;
  Shape shape;
  DType type = DType::kF32;  ///< what the values were stored as; with `encoded`, what they are written as
  std::vector<const loaders::TensorEntry*> from;
  std::function<std::vector<float>()> values;       ///< either these, quantised as asked,
  std::function<std::vector<std::byte>()> encoded;  ///< or these, written as they are
};

using TensorFinder = std::function<const loaders::TensorEntry*(const std::string& name)>;

struct Source {
  const loaders::Checkpoint& checkpoint;
  const models::Config& config;
  TensorFinder find;
};

/// DeepSeek: kv_b of every head taken apart, as the absorbed form wants it.
std::vector<MadeTensor> latent_tensors(const Source& source, int64_t layer);
void latent_settings(const models::Config& config, const Sizes& sizes, const std::string& arch,
                     loaders::GgufWriter& out);

/// gpt-oss: gate and up apart, matrices turned or MXFP4 blocks rearranged.
std::vector<MadeTensor> gpt_oss_tensors(const Source& source, int64_t layer);

void mamba_settings(const models::Config& config, const Sizes& sizes, const std::string& arch,
                    loaders::GgufWriter& out);
void mamba2_settings(const models::Config& config, const Sizes& sizes, const std::string& arch,
                     loaders::GgufWriter& out);
void jamba_settings(const models::Config& config, const Sizes& sizes, const std::string& arch,
                    loaders::GgufWriter& out);
void qwen3_next_settings(const models::Config& config, const Sizes& sizes, const std::string& arch,
                         loaders::GgufWriter& out);

}  // namespace millrace::convert
