// Weights by name. A family's table says what each tensor is called in both worlds and how Hugging Face's
// arrangement differs from GGUF's, so that loading, checking and converting are generic.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "layers/linear.h"
#include "layers/norm.h"
#include "models/config.h"
#include "models/model.h"

namespace millrace::models {

/// What turns a Hugging Face tensor into GGUF's arrangement (which is the one used here).
enum class Transform : uint8_t {
  kNone,
  kTranspose,  ///< stored [in, out] (GPT-2's Conv1D)
  kAddOne,     ///< a norm weight stored as w - 1 (Gemma)
  kHeadsQkv,   ///< rows per head: q, k, v (GPT-NeoX, BLOOM); becomes all q, all k, all v
  kGroupsQkv,  ///< rows per KV head: its queries, k, v (Falcon's new decoder, InternLM2)
  kNegateExp,  ///< A = -exp(A_log) (Mamba)
};

/// One tensor's names, without ".weight" or ".bias"; "{}" stands for the layer, a second "{}" in the Hugging
/// Face name for one of several tensors that GGUF stacks (experts, heads).
struct NameRule {
  std::string gguf;
  std::string hf;
  Transform transform = Transform::kNone;
  std::string gguf_file;  ///< what GGUF files of this family call it, where that is not `gguf`
};

class NameTable {
 public:
  NameTable() = default;
  NameTable(std::initializer_list<NameRule> rules) : rules_(rules) {}
  /// This table with rules added; a rule for a GGUF name that is there already replaces it.
  NameTable with(std::initializer_list<NameRule> rules) const;
  const NameRule* find(std::string_view gguf) const;
  const std::vector<NameRule>& rules() const { return rules_; }

 private:
  std::vector<NameRule> rules_;
};

/// Names that most dense decoders share (Llama's in transformers).
const NameTable& llama_names();

/// Heads of the projection that a kHeadsQkv or kGroupsQkv rule rearranges.
struct QkvHeads {
  int32_t num_heads = 0, num_kv_heads = 0, head_dim = 0;
};

class Weights {
 public:
  Weights(const loaders::Checkpoint& checkpoint, const NameTable& names, const LoadOptions& options,
          ThreadPool& pool);

  bool has(std::string_view name, int layer = -1) const { return find(name, layer, ".weight") != nullptr; }
  bool has_plain(std::string_view name, int layer = -1) const { return find(name, layer, "") != nullptr; }
  /// Columns and rows of a matrix; Error(kInvalidFile) when it is missing.
  int64_t rows_of(std::string_view name, int layer = -1) const;

  struct Part {
    std::string_view name;
    int64_t rows;
  };
  /// The parts' ".weight" [rows, cols] stacked, and their ".bias" where the file has one (all parts or none).
  layers::Linear linear(std::initializer_list<Part> parts, int64_t cols, int layer = -1);
  layers::Linear linear(std::string_view name, int64_t rows, int64_t cols, int layer = -1) {
    return linear({{name, rows}}, cols, layer);
  }
  /// The ".weight" alone (a bias that something else adds).
  layers::Linear linear_without_bias(std::string_view name, int64_t rows, int64_t cols, int layer);
  /// ".weight" (and ".bias" for LayerNorm) of `count` values.
  layers::Norm norm(std::string_view name, int64_t count, ops::NormSpec::Kind kind, float epsilon,
                    int layer = -1);
  /// All values of a tensor as floats; `suffix` ".weight", ".bias" or "". Missing: Error, or empty when
  /// `optional`.
  enum class Need : uint8_t { kRequired, kOptional };
  std::vector<float> values(std::string_view name, std::string_view suffix, int64_t count, Need need,
                            int layer = -1);
  /// A required tensor of [rows, cols], as [cols, rows].
  std::vector<float> transposed(std::string_view name, std::string_view suffix, int64_t rows, int64_t cols,
                                int layer);
  /// A table left where it is, in the file's own type, for row lookups.
  TensorView table(std::string_view name, int64_t rows, int64_t cols,
                   std::shared_ptr<MappedFile>* keep_mapped);
  /// `rows` of a matrix in the order given (row i of the result is row order[i] of the file's).
  layers::Linear linear_in_order(std::string_view name, std::span<const int64_t> order, int64_t cols,
                                 int layer);
  /// The whole matrix as floats [rows, cols].
  std::vector<float> matrix_values(std::string_view name, int64_t rows, int64_t cols, int layer);
  /// Packs floats [rows, cols] made at load, as `type` (kF32 stays exact).
  ops::PackedMatrix pack_values(std::span<const float> values, int64_t rows, int64_t cols, DType type);

  /// Packs rows made at load that are encoded already.
  ops::PackedMatrix pack_encoded(std::span<const std::byte> data, int64_t rows, int64_t cols, DType type);

  /// Experts: [experts] packed matrices of [rows, cols], from one 3-D tensor (GGUF, newer Hugging Face) or
  /// one a expert.
  std::vector<ops::PackedMatrix> experts(std::initializer_list<Part> parts, int64_t num_experts, int64_t cols,
                                         int layer);

  void set_qkv_heads(const QkvHeads& heads) { heads_ = heads; }
  uint64_t packed_bytes() const { return packed_bytes_; }
  uint64_t parameters() const { return parameters_; }
  bool all_float() const { return all_float_; }
  const loaders::Checkpoint& checkpoint() const { return checkpoint_; }
  ThreadPool& pool() { return pool_; }
  const LoadOptions& options() const { return options_; }

  /// What the checkpoint calls a tensor.
  std::string file_name(std::string_view name, int layer, std::string_view suffix) const;
  /// The tensor's entry by its GGUF name; null when the file has none.
  const loaders::TensorEntry* find(std::string_view name, int layer, std::string_view suffix) const;

 private:
  struct Prepared;  // a matrix ready to pack: the mapped tensor, or a rearranged copy
  const loaders::TensorEntry& need(std::string_view name, int layer, std::string_view suffix) const;
  std::vector<float> stacked_values(const std::string& pattern, int64_t count);
  Prepared prepare(std::string_view name, int64_t rows, int64_t cols, int layer);
  void advance(uint64_t bytes);

  const loaders::Checkpoint& checkpoint_;
  const NameTable& names_;
  const LoadOptions& options_;
  ThreadPool& pool_;
  QkvHeads heads_;
  uint64_t total_bytes_ = 0, done_bytes_ = 0, packed_bytes_ = 0, parameters_ = 0;
  bool all_float_ = true;
};

}  // namespace millrace::models
