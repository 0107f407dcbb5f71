// What converting a family from Hugging Face to GGUF takes beside its table of tensor names: which settings
// llama.cpp reads, and whether rotated pairs lie side by side there.
#pragma once

#include <string_view>
#include <vector>

#include "compress/convert/families.h"
#include "models/model.h"

namespace millrace::convert {

using Setting = models::GgufForm::Setting;

/// The form of a family that registers it itself (models/model.h), or one from the table here with what no
/// form says.
struct Recipe {
  using Norm = models::GgufForm::Norm;
  const char* hf_class;
  const char* architecture;
  Norm norm;
  bool pairs_side_by_side = false;
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
