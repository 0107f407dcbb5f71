#include <algorithm>

#include "core/error.h"
#include "models/config.h"
#include "models/model.h"

namespace millrace::models {
namespace {

std::vector<Family>& list() {
  static std::vector<Family> families;
  return families;
}

/// Quantised checkpoints whose matrices are no tensors that a family could look for.
void refuse_unread_quantisation(const loaders::Metadata& metadata) {
  for (const std::string prefix : {"quantization_config.", "text_config.quantization_config."}) {
    std::string method;
    if (const auto* name = metadata.find_string(prefix + "quant_method")) method = *name;
    if (method.empty() && metadata.find_bool(prefix + "load_in_4bit").value_or(false))
      method = "bitsandbytes";
    if (method.empty()) continue;
    const auto is = [&](const char* key, std::string_view value) {
      const auto* text = metadata.find_string(prefix + key);
      return text && *text == value;
    };
    const bool read =
        method == "fp8" || method == "fbgemm_fp8" || method == "mxfp4" ||
        (method == "compressed-tensors" &&
         (is("format", "float-quantized") || is("format", "naive-quantized") || is("format", "dense"))) ||
        (method == "modelopt" && is("quant_algo", "FP8"));
    require(read, ErrorCode::kUnsupported,
            "{}: '{}quant_method' is '{}'{}: expected FP8 (fp8, fbgemm_fp8, compressed-tensors with format "
            "float-quantized, modelopt FP8) or mxfp4; a 16-bit checkpoint or a GGUF file of the model can be "
            "loaded",
            metadata.origin(), prefix, method,
            metadata.find_string(prefix + "format")
                ? " of format '" + *metadata.find_string(prefix + "format") + "'"
                : std::string());
  }
}

}  // namespace

void register_family(const Family& family) { list().push_back(family); }
const std::vector<Family>& families() { return list(); }

std::unique_ptr<Model> load_model(const loaders::Checkpoint& checkpoint, const LoadOptions& options,
                                  ThreadPool& pool) {
  const Config config(checkpoint);
  if (!config.gguf()) refuse_unread_quantisation(checkpoint.metadata);
  std::vector<std::string> known;
  for (const Family& family : list()) {
    const auto& names = config.gguf() ? family.gguf_names : family.hf_names;
    if (std::find(names.begin(), names.end(), config.architecture()) != names.end())
      return family.load(checkpoint, options, pool);
    known.insert(known.end(), names.begin(), names.end());
  }
  std::sort(known.begin(), known.end());
  fail(ErrorCode::kUnsupported, "{}: architecture '{}' is not supported: expected one of {}",
       checkpoint.path.string(), config.architecture(), fmt::join(known, ", "));
}

}  // namespace millrace::models
