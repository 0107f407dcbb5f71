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

}  // namespace

void register_family(const Family& family) { list().push_back(family); }
const std::vector<Family>& families() { return list(); }

std::unique_ptr<Model> load_model(const loaders::Checkpoint& checkpoint, const LoadOptions& options,
                                  ThreadPool& pool) {
  const Config config(checkpoint);
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
