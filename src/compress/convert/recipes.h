// What converting a family from Hugging Face to GGUF takes beside its table of tensor names: which settings
// llama.cpp reads, and whether rotated pairs lie side by side there.
#pragma once

#include <string_view>
#include <vector>

#include "compress/convert/families.h"

namespace millrace::convert {

/// A setting written as ARCHITECTURE.gguf when config.json has it.
struct Setting {
  enum class Kind { kUnsigned, kFloat, kBool };
  const char* gguf;
  const char* hf;
  Kind kind;
};

struct Recipe {
  enum class Norm { kRms, kLayer };
  const char* hf_class;      ///< in "architectures" of config.json
  const char* architecture;  ///< general.architecture
  Norm norm;
  /// Rows of Q and K are reordered so that the two values a rotation mixes lie side by side.
  bool pairs_side_by_side = false;
  /// Every head has keys and values of its own, whatever config.json says.
  bool plain_heads = false;
  std::vector<Setting> settings;
  /// What has its own arrangement or is computed; null where the table of names and `settings` say it all.
  std::vector<MadeTensor> (*made)(const Source& source, int64_t layer) = nullptr;
  std::vector<std::string_view> left_to_made = {};  ///< rules (GGUF names) whose tensors `made` writes
  void (*more_settings)(const models::Config& config, const Sizes& sizes, const std::string& arch,
                        loaders::GgufWriter& out) = nullptr;
  /// What attends: heads in all layers, one latent for all heads, none, or in some layers only (Jamba).
  enum class Heads { kAll, kLatent, kNone, kSome } heads = Heads::kAll;
};

/// Null when there is none.
const Recipe* find_recipe(std::string_view hf_class);
std::vector<std::string_view> recipe_names();

}  // namespace millrace::convert
