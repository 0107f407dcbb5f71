// A model: a forward pass over a packed batch, and what its layers keep. Families register themselves by
// architecture name; nothing outside this folder names one.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/arena.h"
#include "layers/batch.h"
#include "layers/cache_spec.h"
#include "layers/kv_cache.h"
#include "loaders/checkpoint.h"
#include "ops/context.h"

namespace millrace::models {

class NameTable;

/// Whether weights of so many bytes are read in no time, so that the most exact arithmetic costs nothing.
inline bool is_small(uint64_t weight_bytes) { return weight_bytes < (16u << 20); }

struct ModelInfo {
  std::string architecture;
  std::string name;
  int32_t vocab_size = 0;
  int32_t context_length = 0;  ///< longest context the model was made for (0: not bounded)
  bool fixed_context =
      false;  ///< a table of positions ends there; otherwise it is what the model was trained for
  /// Texts of more tokens than this rotate otherwise from their first token on (LongRoPE, dynamic NTK), so
  /// that shorter ones share no cache with them; 0: none do.
  int32_t rope_switch = 0;
  bool rope_by_length = false;  ///< ... each length in its own way (dynamic NTK)
  int32_t hidden_size = 0;
  int32_t num_layers = 0;
  uint64_t num_parameters = 0;
  uint64_t weight_bytes = 0;   ///< packed, as resident
  bool float_weights = false;  ///< all matrices are F32
  /// Where no cache type is asked for: F32 beside weights that are F32 or so few that the cache costs nothing
  /// to read.
  bool wants_float_cache() const { return float_weights || is_small(weight_bytes); }
};

struct LoadOptions {
  IsaLevel isa = best_isa();
  /// Quantise 16- and 32-bit matrices to this type while loading; kCount: keep.
  DType quantize = DType::kCount;
  /// Called with (done, total) bytes as weights are packed.
  std::function<void(uint64_t, uint64_t)> progress;
  /// Called with the family's table of tensor names before any weight is read; may throw to stop there
  /// (converters do).
  std::function<void(const NameTable&)> on_names;
};

/// What forward() may write beside the cache.
struct Outputs {
  float* logits = nullptr;  ///< [batch.logit_rows, vocab_size], or null
  float* hidden = nullptr;  ///< [batch.logit_rows, hidden_size]: states after the final norm, or null
};

class Model {
 public:
  virtual ~Model() = default;
  const ModelInfo& info() const { return info_; }
  /// One spec per layer.
  virtual std::vector<layers::CacheSpec> cache_specs() const = 0;
  /// Computes the batch: cache written, outputs filled. All step memory comes from context.arena, which the
  /// caller resets.
  virtual void forward(const ops::Context& context, const layers::Batch& batch, layers::KvCache& cache,
                       const Outputs& outputs) = 0;

  /// Mixture of experts: for each layer the rows that each of its experts got since the start (empty for
  /// layers without experts). May be called from any thread.
  virtual std::vector<std::vector<uint64_t>> expert_load() const { return {}; }

 protected:
  ModelInfo info_;
};

/// Makes the model that the checkpoint describes. Errors: kUnsupported for an unknown architecture (the known
/// ones are named), kInvalidFile for a missing tensor, a wrong shape or a contradictory configuration.
std::unique_ptr<Model> load_model(const loaders::Checkpoint& checkpoint, const LoadOptions& options,
                                  ThreadPool& pool);

/// What writing a family as GGUF takes beside its table of tensor names.
struct GgufForm {
  enum class Norm : uint8_t { kRms, kLayer };
  /// A setting written as ARCHITECTURE.gguf when config.json has it.
  struct Setting {
    enum class Kind : uint8_t { kUnsigned, kFloat, kBool };
    const char* gguf;
    const char* hf;
    Kind kind;
  };
  const char* hf_class;      ///< in "architectures" of config.json
  const char* architecture;  ///< general.architecture
  Norm norm = Norm::kRms;
  /// Rows of Q and K are reordered so that the two values a rotation mixes lie side by side.
  bool pairs_side_by_side = false;
  /// Every head has keys and values of its own, whatever config.json says.
  bool plain_heads = false;
  std::vector<Setting> settings = {};
};

/// Registration: `gguf_names` are values of general.architecture, `hf_names` values of "architectures" in
/// config.json.
struct Family {
  std::vector<std::string> gguf_names;
  std::vector<std::string> hf_names;
  std::unique_ptr<Model> (*load)(const loaders::Checkpoint&, const LoadOptions&, ThreadPool&);
  std::vector<GgufForm> gguf_forms = {};  ///< how it is written as GGUF; empty: it cannot be
};
void register_family(const Family& family);
const std::vector<Family>& families();

struct FamilyRegistration {
  explicit FamilyRegistration(const Family& f) { register_family(f); }
};

}  // namespace millrace::models
