#include "models/weights.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "core/error.h"
#include "core/half.h"
#include "loaders/dequant.h"
#include "quant/traits.h"

namespace millrace::models {
namespace {

std::string with_layer(std::string_view pattern, int layer) {
  std::string name(pattern);
  const size_t at = name.find("{}");
  if (at != std::string::npos) name.replace(at, 2, std::to_string(layer));
  return name;
}

bool is_float_type(DType type) { return type == DType::kF32 || type == DType::kF16 || type == DType::kBF16; }

/// Source row of each row in GGUF's arrangement, for the transforms that permute rows.
std::vector<int64_t> row_order(Transform transform, const QkvHeads& heads) {
  std::vector<int64_t> order;
  const int64_t dim = heads.head_dim, group = heads.num_heads / std::max(1, heads.num_kv_heads);
  auto push = [&](int64_t first) {
    for (int64_t i = 0; i < dim; ++i) order.push_back(first + i);
  };
  if (transform == Transform::kHeadsQkv) {
    for (int64_t part = 0; part < 3; ++part)
      for (int64_t h = 0; h < heads.num_heads; ++h) push((h * 3 + part) * dim);
  } else {
    for (int64_t g = 0; g < heads.num_kv_heads; ++g)
      for (int64_t h = 0; h < group; ++h) push((g * (group + 2) + h) * dim);
    for (int64_t part = 0; part < 2; ++part)
      for (int64_t g = 0; g < heads.num_kv_heads; ++g) push((g * (group + 2) + group + part) * dim);
  }
  return order;
}

bool permutes_rows(Transform t) { return t == Transform::kHeadsQkv || t == Transform::kGroupsQkv; }

}  // namespace

NameTable NameTable::with(std::initializer_list<NameRule> rules) const {
  NameTable result = *this;
  for (const NameRule& rule : rules) {
    const auto at = std::find_if(result.rules_.begin(), result.rules_.end(),
                                 [&](const NameRule& r) { return r.gguf == rule.gguf; });
    if (at != result.rules_.end())
      *at = rule;
    else
      result.rules_.push_back(rule);
  }
  return result;
}

const NameRule* NameTable::find(std::string_view gguf) const {
  for (const NameRule& rule : rules_)
    if (rule.gguf == gguf) return &rule;
  return nullptr;
}

const NameTable& llama_names() {
  static const NameTable table = {
      {"token_embd", "model.embed_tokens"},
      {"output_norm", "model.norm"},
      {"output", "lm_head"},
      {"blk.{}.attn_norm", "model.layers.{}.input_layernorm"},
      {"blk.{}.attn_q", "model.layers.{}.self_attn.q_proj"},
      {"blk.{}.attn_k", "model.layers.{}.self_attn.k_proj"},
      {"blk.{}.attn_v", "model.layers.{}.self_attn.v_proj"},
      {"blk.{}.attn_output", "model.layers.{}.self_attn.o_proj"},
      {"blk.{}.attn_q_norm", "model.layers.{}.self_attn.q_norm"},
      {"blk.{}.attn_k_norm", "model.layers.{}.self_attn.k_norm"},
      {"blk.{}.ffn_norm", "model.layers.{}.post_attention_layernorm"},
      {"blk.{}.ffn_gate", "model.layers.{}.mlp.gate_proj"},
      {"blk.{}.ffn_up", "model.layers.{}.mlp.up_proj"},
      {"blk.{}.ffn_down", "model.layers.{}.mlp.down_proj"},
  };
  return table;
}

Weights::Weights(const loaders::Checkpoint& checkpoint, const NameTable& names, const LoadOptions& options,
                 ThreadPool& pool)
    : checkpoint_(checkpoint), names_(names), options_(options), pool_(pool) {
  if (options.on_names) options.on_names(names);
  for (const auto& t : checkpoint.tensors) {
    total_bytes_ += t.bytes;
    parameters_ += static_cast<uint64_t>(t.shape.elements());
  }
}

std::string Weights::file_name(std::string_view name, int layer, std::string_view suffix) const {
  const NameRule* rule = names_.find(name);
  std::string_view pattern = name;
  if (rule && checkpoint_.format == loaders::Format::kHuggingFace)
    pattern = rule->hf;
  else if (rule && !rule->gguf_file.empty())
    pattern = rule->gguf_file;
  return with_layer(pattern, layer) + std::string(suffix);
}

const loaders::TensorEntry* Weights::find(std::string_view name, int layer, std::string_view suffix) const {
  const std::string plain = file_name(name, layer, suffix);
  if (const auto* entry = checkpoint_.find(plain)) return entry;
  if (checkpoint_.format == loaders::Format::kGguf) return nullptr;
  // Base models are saved without the outermost name, multi-modal ones with one more.
  const size_t dot = plain.find('.');
  if (dot != std::string::npos && plain.find('.', dot + 1) != std::string::npos)
    if (const auto* entry = checkpoint_.find(plain.substr(dot + 1))) return entry;
  if (const auto* entry = checkpoint_.find("language_model." + plain)) return entry;
  if (plain.rfind("model.", 0) == 0)
    if (const auto* entry = checkpoint_.find("model.language_model." + plain.substr(6))) return entry;
  return nullptr;
}

const loaders::TensorEntry& Weights::need(std::string_view name, int layer, std::string_view suffix) const {
  const auto* entry = find(name, layer, suffix);
  require(entry != nullptr, ErrorCode::kInvalidFile,
          "{}: tensor '{}' is missing: the model's architecture needs it", checkpoint_.path.string(),
          file_name(name, layer, suffix));
  return *entry;
}

int64_t Weights::rows_of(std::string_view name, int layer) const {
  const NameRule* rule = checkpoint_.format == loaders::Format::kHuggingFace ? names_.find(name) : nullptr;
  const auto& entry = need(name, layer, ".weight");
  return rule && rule->transform == Transform::kTranspose ? entry.shape.back() : entry.shape.rows();
}

void Weights::advance(uint64_t bytes) {
  done_bytes_ = std::min(total_bytes_, done_bytes_ + bytes);
  if (options_.progress) options_.progress(done_bytes_, total_bytes_);
}

struct Weights::Prepared {
  TensorView view;
  AlignedBuffer own;  // where view.data lies when the tensor was rearranged or re-quantised
  const loaders::TensorEntry* entry = nullptr;
};

namespace {

/// Copies a matrix [cols, rows] of elements of `size` bytes to [rows, cols].
void transpose(const std::byte* from, std::byte* to, int64_t rows, int64_t cols, int64_t size) {
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < cols; ++c)
      std::memcpy(to + (r * cols + c) * size, from + (c * rows + r) * size, static_cast<size_t>(size));
}

/// A matrix in the type it will be packed from, and where it lies when that is not the file.
struct Stored {
  TensorView view;
  AlignedBuffer own;
};

/// Rows [first, first + rows) of a tensor as the file has them; FP8 becomes BF16, multiplied by the scale
/// beside it.
Stored stored_rows(const loaders::Checkpoint& checkpoint, const loaders::TensorEntry& entry, int64_t first,
                   int64_t rows, int64_t cols, ThreadPool& pool) {
  Stored s;
  s.view = {entry.data + static_cast<uint64_t>(first) *
                             quant::row_bytes(entry.dtype, static_cast<uint64_t>(cols)).value_or(0),
            entry.dtype, Shape{rows, cols}};
  if (entry.dtype != DType::kF8E4M3 && entry.dtype != DType::kF8E5M2) return s;
  const loaders::RowReader reader(checkpoint, entry);
  s.own = AlignedBuffer(static_cast<size_t>(rows * cols) * sizeof(bf16_t));
  auto* out = s.own.as<bf16_t>();
  pool.parallel_for(rows, 16, [&](int64_t begin, int64_t end, int) {
    std::vector<float> row(static_cast<size_t>(cols));
    for (int64_t r = begin; r < end; ++r) {
      reader.read(first + r, 1, row.data());
      quant::traits(DType::kBF16).encode(row.data(), out + r * cols, cols, nullptr);
    }
  });
  s.view = {s.own.data(), DType::kBF16, Shape{rows, cols}};
  return s;
}

/// Re-quantises a matrix of floats to `target` where its rows are whole blocks of it.
void quantise(Stored& s, DType target, ThreadPool& pool) {
  const int64_t rows = s.view.shape[0], cols = s.view.shape[1];
  if (target == DType::kCount || !is_float_type(s.view.dtype) || target == s.view.dtype ||
      cols % quant::traits(target).block_elements != 0)
    return;
  const auto& from = quant::traits(s.view.dtype);
  const auto& to = quant::traits(target);
  require(to.encode != nullptr, ErrorCode::kUnsupported, "cannot quantise to {}: it has no encoder",
          dtype_name(target));
  const auto row_bytes = static_cast<int64_t>(*quant::row_bytes(target, static_cast<uint64_t>(cols)));
  AlignedBuffer encoded(static_cast<size_t>(rows * row_bytes));
  const auto source_row = static_cast<int64_t>(*quant::row_bytes(s.view.dtype, static_cast<uint64_t>(cols)));
  const auto* source = static_cast<const std::byte*>(s.view.data);
  pool.parallel_for(rows, 16, [&](int64_t begin, int64_t end, int) {
    std::vector<float> row(static_cast<size_t>(cols));
    for (int64_t r = begin; r < end; ++r) {
      from.decode(source + r * source_row, row.data(), cols);
      to.encode(row.data(), encoded.data() + r * row_bytes, cols, nullptr);
    }
  });
  s.own = std::move(encoded);
  s.view = {s.own.data(), target, Shape{rows, cols}};
}

}  // namespace

Weights::Prepared Weights::prepare(std::string_view name, int64_t rows, int64_t cols, int layer) {
  const auto& entry = need(name, layer, ".weight");
  const NameRule* rule = checkpoint_.format == loaders::Format::kHuggingFace ? names_.find(name) : nullptr;
  const Transform transform = rule ? rule->transform : Transform::kNone;
  const bool transposed = transform == Transform::kTranspose;
  const int64_t file_rows = transposed ? cols : rows, file_cols = transposed ? rows : cols;
  require(entry.shape.rows() == file_rows && entry.shape.back() == file_cols, ErrorCode::kInvalidFile,
          "{}: tensor '{}' has shape {}: expected [{}, {}]", checkpoint_.path.string(), entry.name,
          entry.shape.to_string(), file_rows, file_cols);
  // In the file's arrangement first; a transposed matrix has its rows and columns exchanged there.
  Stored stored = stored_rows(checkpoint_, entry, 0, file_rows, file_cols, pool_);
  const auto& traits = quant::traits(stored.view.dtype);
  if (transposed || permutes_rows(transform)) {
    const auto* from = static_cast<const std::byte*>(stored.view.data);
    const uint64_t row_bytes =
        quant::row_bytes(stored.view.dtype, static_cast<uint64_t>(file_cols)).value_or(0);
    AlignedBuffer arranged(row_bytes * static_cast<uint64_t>(file_rows));
    if (transposed) {
      require(traits.block_elements == 1, ErrorCode::kUnsupported,
              "{}: tensor '{}' of type {} cannot be transposed", checkpoint_.path.string(), entry.name,
              dtype_name(entry.dtype));
      transpose(from, arranged.data(), rows, cols, traits.block_bytes);
    } else {
      const std::vector<int64_t> order = row_order(transform, heads_);
      require(static_cast<int64_t>(order.size()) == rows, ErrorCode::kInvalidFile,
              "{}: tensor '{}' has {} rows: its heads make {}", checkpoint_.path.string(), entry.name, rows,
              order.size());
      for (int64_t r = 0; r < rows; ++r)
        std::memcpy(arranged.data() + static_cast<uint64_t>(r) * row_bytes,
                    from + static_cast<uint64_t>(order[static_cast<size_t>(r)]) * row_bytes, row_bytes);
    }
    stored.own = std::move(arranged);
    stored.view = {stored.own.data(), stored.view.dtype, Shape{rows, cols}};
  }
  quantise(stored, options_.quantize, pool_);
  return {stored.view, std::move(stored.own), &entry};
}

layers::Linear Weights::linear(std::initializer_list<Part> parts, int64_t cols, int layer) {
  std::vector<Prepared> prepared;
  std::vector<float> bias;
  int with_bias = 0;
  for (const Part& part : parts) {
    prepared.push_back(prepare(part.name, part.rows, cols, layer));
    const std::vector<float> b = values(part.name, ".bias", part.rows, Need::kOptional, layer);
    with_bias += b.empty() ? 0 : 1;
    // A part without a bias beside parts with one (Whisper-like keys) has a bias of zero.
    if (b.empty())
      bias.insert(bias.end(), static_cast<size_t>(part.rows), 0.0f);
    else
      bias.insert(bias.end(), b.begin(), b.end());
  }
  if (with_bias == 0) bias.clear();
  std::vector<ops::PackedMatrix> packed;
  std::vector<ops::MatrixSource> run;
  for (size_t i = 0; i < prepared.size(); ++i) {
    const Prepared& p = prepared[i];
    if (!is_float_type(p.view.dtype) || p.view.dtype != DType::kF32) all_float_ = false;
    ops::MatrixSource source{p.view, nullptr};
    if (p.view.data == p.entry->data) {
      auto file = p.entry->file;
      if (file) source.release = [file](const void* begin, size_t bytes) { file->release(begin, bytes); };
    }
    run.push_back(std::move(source));
    const bool last = i + 1 == prepared.size();
    bool joins = false;
    if (!last) {
      std::vector<ops::MatrixSource> longer = run;
      longer.push_back({prepared[i + 1].view, nullptr});
      joins = ops::can_stack(longer);
    }
    if (!joins) {
      packed.push_back(ops::pack_matrix(run, options_.isa, pool_));
      packed_bytes_ += packed.back().bytes();
      run.clear();
    }
  }
  for (const Prepared& p : prepared) advance(p.entry->bytes);
  return layers::Linear(std::move(packed), std::move(bias));
}

layers::Linear Weights::linear_without_bias(std::string_view name, int64_t rows, int64_t cols, int layer) {
  std::vector<int64_t> order(static_cast<size_t>(rows));
  std::iota(order.begin(), order.end(), 0);
  return linear_in_order(name, order, cols, layer);
}

layers::Linear Weights::linear_in_order(std::string_view name, std::span<const int64_t> order, int64_t cols,
                                        int layer) {
  Prepared p = prepare(name, static_cast<int64_t>(order.size()), cols, layer);
  const uint64_t row_bytes = *quant::row_bytes(p.view.dtype, static_cast<uint64_t>(cols));
  AlignedBuffer ordered(row_bytes * order.size());
  for (size_t r = 0; r < order.size(); ++r)
    std::memcpy(ordered.data() + r * row_bytes,
                static_cast<const std::byte*>(p.view.data) + static_cast<uint64_t>(order[r]) * row_bytes,
                row_bytes);
  if (p.view.dtype != DType::kF32) all_float_ = false;
  const ops::MatrixSource source{{ordered.data(), p.view.dtype, p.view.shape}, nullptr};
  std::vector<ops::PackedMatrix> packed;
  packed.push_back(ops::pack_matrix({&source, 1}, options_.isa, pool_));
  packed_bytes_ += packed.back().bytes();
  advance(p.entry->bytes);
  return layers::Linear(std::move(packed));
}

std::vector<float> Weights::matrix_values(std::string_view name, int64_t rows, int64_t cols, int layer) {
  const auto& entry = need(name, layer, ".weight");
  require(entry.shape.elements() == rows * cols, ErrorCode::kInvalidFile,
          "{}: tensor '{}' has shape {}: expected [{}, {}]", checkpoint_.path.string(), entry.name,
          entry.shape.to_string(), rows, cols);
  std::vector<float> out(static_cast<size_t>(rows * cols));
  const loaders::RowReader reader(checkpoint_, entry);
  reader.read(0, reader.rows(), out.data());
  if (entry.dtype != DType::kF32) all_float_ = false;
  advance(entry.bytes);
  return out;
}

ops::PackedMatrix Weights::pack_values(std::span<const float> values, int64_t rows, int64_t cols,
                                       DType type) {
  if (type == DType::kF32) return pack_encoded(std::as_bytes(values), rows, cols, type);
  std::vector<std::byte> encoded(*quant::row_bytes(type, static_cast<uint64_t>(rows * cols)));
  quant::traits(type).encode(values.data(), encoded.data(), rows * cols, nullptr);
  return pack_encoded(encoded, rows, cols, type);
}

ops::PackedMatrix Weights::pack_encoded(std::span<const std::byte> data, int64_t rows, int64_t cols,
                                        DType type) {
  if (type != DType::kF32) all_float_ = false;
  const ops::MatrixSource source{{data.data(), type, Shape{rows, cols}}, nullptr};
  ops::PackedMatrix packed = ops::pack_matrix({&source, 1}, options_.isa, pool_);
  packed_bytes_ += packed.bytes();
  return packed;
}

layers::Norm Weights::norm(std::string_view name, int64_t count, ops::NormSpec::Kind kind, float epsilon,
                           int layer) {
  layers::Norm norm;
  norm.kind = kind;
  norm.epsilon = epsilon;
  norm.present = true;
  norm.weight = values(name, ".weight", count, Need::kRequired, layer);
  if (kind == ops::NormSpec::Kind::kLayer) norm.bias = values(name, ".bias", count, Need::kOptional, layer);
  return norm;
}

std::vector<float> Weights::transposed(std::string_view name, std::string_view suffix, int64_t rows,
                                       int64_t cols, int layer) {
  const std::vector<float> stored = values(name, suffix, rows * cols, Need::kRequired, layer);
  std::vector<float> out(stored.size());
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < cols; ++c)
      out[static_cast<size_t>(c * rows + r)] = stored[static_cast<size_t>(r * cols + c)];
  return out;
}

std::vector<float> Weights::values(std::string_view name, std::string_view suffix, int64_t count,
                                   Need need_it, int layer) {
  const auto* entry = find(name, layer, suffix);
  const std::string stacked = entry ? "" : file_name(name, layer, suffix);
  if (stacked.find("{}") != std::string::npos) {
    if (need_it == Need::kOptional && !checkpoint_.find(with_layer(stacked, 0))) return {};
    return stacked_values(stacked, count);
  }
  if (!entry && need_it == Need::kOptional) return {};
  const auto& tensor = entry ? *entry : need(name, layer, suffix);
  require(tensor.shape.elements() == count, ErrorCode::kInvalidFile,
          "{}: tensor '{}' has shape {}: expected {} values", checkpoint_.path.string(), tensor.name,
          tensor.shape.to_string(), count);
  std::vector<float> out(static_cast<size_t>(count));
  const loaders::RowReader reader(checkpoint_, tensor);
  reader.read(0, reader.rows(), out.data());
  const NameRule* rule = checkpoint_.format == loaders::Format::kHuggingFace ? names_.find(name) : nullptr;
  if (rule && rule->transform == Transform::kAddOne && suffix != ".bias")
    for (float& v : out) v += 1.0f;
  if (rule && rule->transform == Transform::kNegateExp)
    for (float& v : out) v = -std::exp(v);
  if (rule && permutes_rows(rule->transform)) {
    const std::vector<int64_t> order = row_order(rule->transform, heads_);
    check(order.size() == out.size(), "{} heads' rows for {} values", order.size(), out.size());
    std::vector<float> ordered(out.size());
    for (size_t i = 0; i < out.size(); ++i) ordered[i] = out[static_cast<size_t>(order[i])];
    out = std::move(ordered);
  }
  advance(tensor.bytes);
  return out;
}

std::vector<float> Weights::stacked_values(const std::string& pattern, int64_t count) {
  std::vector<float> out;
  for (int part = 0; static_cast<int64_t>(out.size()) < count; ++part) {
    const std::string single = with_layer(pattern, part);
    const auto* tensor = checkpoint_.find(single);
    require(tensor != nullptr, ErrorCode::kInvalidFile,
            "{}: tensor '{}' is missing: the model's architecture needs it", checkpoint_.path.string(),
            single);
    const auto& traits = quant::traits(tensor->dtype);
    const int64_t n = tensor->shape.elements();
    require(traits.decode && n > 0 && static_cast<int64_t>(out.size()) + n <= count, ErrorCode::kInvalidFile,
            "{}: tensor '{}' has shape {}: expected a part of {} values", checkpoint_.path.string(), single,
            tensor->shape.to_string(), count);
    out.resize(out.size() + static_cast<size_t>(n));
    traits.decode(tensor->data, out.data() + out.size() - n, n);
    advance(tensor->bytes);
  }
  return out;
}

TensorView Weights::table(std::string_view name, int64_t rows, int64_t cols,
                          std::shared_ptr<MappedFile>* keep_mapped) {
  const auto& entry = need(name, -1, ".weight");
  require(entry.shape.rows() == rows && entry.shape.back() == cols, ErrorCode::kInvalidFile,
          "{}: tensor '{}' has shape {}: expected [{}, {}]", checkpoint_.path.string(), entry.name,
          entry.shape.to_string(), rows, cols);
  require(quant::traits(entry.dtype).decode != nullptr, ErrorCode::kInvalidFile,
          "{}: tensor '{}' has type {}: expected numbers", checkpoint_.path.string(), entry.name,
          dtype_name(entry.dtype));
  *keep_mapped = entry.file;
  return entry.view();
}

std::vector<ops::PackedMatrix> Weights::experts(std::initializer_list<Part> parts, int64_t num_experts,
                                                int64_t cols, int layer) {
  std::vector<ops::PackedMatrix> result;
  for (int64_t e = 0; e < num_experts; ++e) {
    std::vector<AlignedBuffer> kept;  // what the sources point into until they are packed
    std::vector<ops::MatrixSource> sources;
    for (const Part& part : parts) {
      // A name with a second "{}" has a tensor for each expert; otherwise one tensor holds all.
      const std::string all = file_name(part.name, layer, "");
      const std::string single = with_layer(all, static_cast<int>(e));
      const auto* own = single != all ? checkpoint_.find(single + ".weight") : nullptr;
      const auto& entry = own ? *own
                              : (has_plain(part.name, layer) ? need(part.name, layer, "")
                                                             : need(part.name, layer, ".weight"));
      const int64_t rows = own ? part.rows : part.rows * num_experts;
      require(entry.shape.rows() == rows && entry.shape.back() == cols, ErrorCode::kInvalidFile,
              "{}: tensor '{}' has shape {}: expected {} rows of {}", checkpoint_.path.string(), entry.name,
              entry.shape.to_string(), rows, cols);
      const uint64_t bytes = entry.bytes / static_cast<uint64_t>(own ? 1 : num_experts);
      ops::MatrixSource source;
      Stored stored = stored_rows(checkpoint_, entry, own ? 0 : e * part.rows, part.rows, cols, pool_);
      quantise(stored, options_.quantize, pool_);
      source.view = stored.view;
      auto file = entry.file;
      if (stored.own.size() > 0)
        kept.push_back(std::move(stored.own));
      else if (file)
        source.release = [file](const void* begin, size_t n) { file->release(begin, n); };
      if (source.view.dtype != DType::kF32) all_float_ = false;
      sources.push_back(std::move(source));
      advance(bytes);
    }
    require(ops::can_stack(sources), ErrorCode::kUnsupported,
            "{}: the experts of layer {} have gate and up weights of different types",
            checkpoint_.path.string(), layer);
    result.push_back(ops::pack_matrix(sources, options_.isa, pool_));
    packed_bytes_ += result.back().bytes();
  }
  return result;
}

}  // namespace millrace::models
