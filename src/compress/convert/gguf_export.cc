#include "compress/convert/gguf_export.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>

#include "compress/convert/recipes.h"
#include "compress/convert/settings.h"
#include "core/error.h"
#include "loaders/dequant.h"
#include "loaders/ggml_types.h"
#include "loaders/synthetic.h"
#include "models/model.h"
#include "models/weights.h"
#include "quant/traits.h"

namespace millrace::convert {
namespace {

using loaders::Checkpoint;
using loaders::TensorEntry;
using models::NameRule;
using models::NameTable;
using models::Transform;

constexpr uint64_t kPieceBytes = uint64_t{8} << 20;

std::string fill(std::string pattern, int64_t number) {
  const size_t at = pattern.find("{}");
  if (at != std::string::npos) pattern.replace(at, 2, std::to_string(number));
  return pattern;
}

/// The family's table of names, which it shows before it reads any weight.
NameTable names_of(const Checkpoint& checkpoint, ThreadPool& pool) {
  struct Shown {
    NameTable names;
  };
  models::LoadOptions options;
  options.on_names = [](const NameTable& names) { throw Shown{names}; };
  try {
    models::load_model(checkpoint, options, pool);
  } catch (Shown& shown) {
    return std::move(shown.names);
  }
  fail(ErrorCode::kInternal, "the family of {} has no table of names", checkpoint.path.string());
}

/// A tensor by its name in the table; base models are saved without the outermost name, multi-modal ones with
/// one more.
const TensorEntry* find_tensor(const Checkpoint& checkpoint, const std::string& name) {
  if (const auto* entry = checkpoint.find(name)) return entry;
  const size_t dot = name.find('.');
  if (dot != std::string::npos && name.find('.', dot + 1) != std::string::npos)
    if (const auto* entry = checkpoint.find(name.substr(dot + 1))) return entry;
  if (const auto* entry = checkpoint.find("language_model." + name)) return entry;
  if (name.rfind("model.", 0) == 0) return checkpoint.find("model.language_model." + name.substr(6));
  return nullptr;
}

/// One tensor of the GGUF file: the checkpoint's tensors that make it, stacked, and what is done to them.
struct Plan {
  std::string name;
  std::vector<const TensorEntry*> parts;
  Transform transform = Transform::kNone;
  bool pairs_side_by_side = false;
  int64_t rotated_heads = 0;
  float factor = 1;  ///< values are multiplied by it
  DType type = DType::kF32;
  Shape shape;
  size_t id = 0;
  std::vector<float> values;  ///< exact contents instead of parts
  MadeTensor made;            ///< ... or how to make them
};

bool ends_with(const std::string& text, std::string_view end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

class Exporter {
 public:
  Exporter(const Checkpoint& checkpoint, const ExportOptions& options, ThreadPool& pool)
      : checkpoint_(checkpoint), options_(options), pool_(pool), config_(checkpoint) {}

  ExportResult run(const std::filesystem::path& path) {
    recipe_ = find_recipe(config_.architecture());
    if (!recipe_)
      fail(ErrorCode::kUnsupported, "{}: '{}' cannot be written as GGUF: expected one of {}",
           checkpoint_.path.string(), config_.architecture(), fmt::join(recipe_names(), ", "));
    if (options_.type)
      require(loaders::ggml_from_dtype(*options_.type) && quant::traits(*options_.type).encode,
              ErrorCode::kInvalidArgument, "storage type {}: expected one that GGUF files hold weights in",
              dtype_name(*options_.type));
    sizes_ = read_sizes(config_, *recipe_);
    plan(names_of(checkpoint_, pool_));
    const auto embedding = std::find_if(plans_.begin(), plans_.end(),
                                        [](const Plan& p) { return p.name == "token_embd.weight"; });
    require(embedding != plans_.end(), ErrorCode::kInvalidFile, "{}: the embedding is missing",
            checkpoint_.path.string());

    loaders::GgufWriter out(path);
    const RopeFactors factors = write_settings(config_, *recipe_, sizes_, ffn_width(), out);
    if (const auto file_type = loaders::gguf_file_type(options_.type.value_or(embedding->type)))
      out.set_u32("general.file_type", *file_type);
    out.set_u32("general.quantization_version", 2);
    out.set_u32(std::string(recipe_->architecture) + ".vocab_size",
                static_cast<uint32_t>(embedding->shape[0]));
    if (options_.write_vocabulary) options_.write_vocabulary(out, embedding->shape[0]);
    add_exact("rope_freqs.weight", factors.both);
    add_exact("rope_factors_long.weight", factors.longer);
    add_exact("rope_factors_short.weight", factors.shorter);
    for (Plan& p : plans_) p.id = out.add_tensor(p.name, p.type, p.shape);
    out.write_header();
    for (const Plan& p : plans_) p.made.name.empty() ? write(p, out) : write_made(p, out);
    out.finish();

    ExportResult result;
    result.note = factors.note;
    result.file_bytes = std::filesystem::file_size(path);
    result.tensors = plans_.size();
    for (const TensorEntry& t : checkpoint_.tensors)
      if (!used_.count(&t) && !loaders::is_scale(checkpoint_, t)) result.left_out.push_back(t.name);
    return result;
  }

 private:
  void plan(const NameTable& names) {
    const bool tied = config_.flag({nullptr, "tie_word_embeddings"}, false);
    const std::vector<NameRule>& rules = names.rules();
    for (size_t i = 0; i < rules.size(); ++i) {
      const NameRule& rule = rules[i];
      // A family's own rule for a tensor comes after the common one and takes its place.
      const auto same = [&](const NameRule& later) { return later.hf == rule.hf; };
      if (std::any_of(rules.begin() + static_cast<ptrdiff_t>(i) + 1, rules.end(), same)) continue;
      const bool layered = rule.gguf.find("{}") != std::string::npos;
      if (rule.gguf == "output" && tied) {
        mark_used(rule.hf + ".weight");
        continue;
      }
      const auto& made = recipe_->left_to_made;
      if (std::find(made.begin(), made.end(), rule.gguf) != made.end()) continue;
      for (int64_t layer = 0; layer < (layered ? sizes_.layers : 1); ++layer)
        for (const char* suffix : {".weight", ".bias", ""})  // "" as for A_log
          plan_tensor(rule, layer, suffix);
    }
    if (!recipe_->made) return;
    const Source source{checkpoint_, config_,
                        [&](const std::string& n) { return find_tensor(checkpoint_, n); }};
    for (int64_t layer = 0; layer < sizes_.layers; ++layer)
      for (MadeTensor& made : recipe_->made(source, layer)) plan_made(std::move(made));
  }

  void plan_made(MadeTensor made) {
    Plan p;
    p.name = made.name;
    p.shape = made.shape;
    for (const TensorEntry* from : made.from) used_.insert(from);
    p.parts = made.from;
    p.type = made.type;
    if (made.values) set_type(p);
    p.made = std::move(made);
    plans_.push_back(std::move(p));
  }

  void mark_used(const std::string& hf_name) {
    if (const auto* entry = find_tensor(checkpoint_, hf_name)) used_.insert(entry);
  }

  void plan_tensor(const NameRule& rule, int64_t layer, const std::string& suffix) {
    Plan p;
    p.name = fill(rule.gguf_file.empty() ? rule.gguf : rule.gguf_file, layer) + suffix;
    const std::string pattern = fill(rule.hf, layer) + suffix;
    if (pattern.find("{}") == std::string::npos) {
      if (const auto* entry = find_tensor(checkpoint_, pattern)) p.parts.push_back(entry);
    } else {
      for (int64_t i = 0; const auto* entry = find_tensor(checkpoint_, fill(pattern, i)); ++i)
        p.parts.push_back(entry);
    }
    if (p.parts.empty()) return;
    for (const TensorEntry* part : p.parts) {
      used_.insert(part);
      require(part->shape == p.parts[0]->shape && part->dtype == p.parts[0]->dtype && part->shape.ndim >= 1 &&
                  part->shape.elements() > 0,
              ErrorCode::kInvalidFile, "{}: tensor '{}' is {} {}: expected what '{}' is, {} {}",
              checkpoint_.path.string(), part->name, dtype_name(part->dtype), part->shape.to_string(),
              p.parts[0]->name, dtype_name(p.parts[0]->dtype), p.parts[0]->shape.to_string());
    }
    // A norm stored around one has its bias as it is.
    p.transform =
        rule.transform == Transform::kAddOne && suffix == ".bias" ? Transform::kNone : rule.transform;
    set_shape(p);
    set_rotation(p, rule.gguf);
    p.factor = query_factor(rule.gguf);
    set_type(p);
    plans_.push_back(std::move(p));
  }

  void set_shape(Plan& p) const {
    const Shape& one = p.parts[0]->shape;
    p.shape = one;
    if (p.transform == Transform::kTranspose && one.ndim == 2) p.shape = Shape{one[1], one[0]};
    if (p.parts.size() > 1) {
      require(one.ndim < kMaxDims, ErrorCode::kInvalidFile,
              "{}: tensor '{}' has shape {}: expected fewer dimensions", checkpoint_.path.string(),
              p.parts[0]->name, one.to_string());
      p.shape = Shape{};
      p.shape.dims[0] = static_cast<int64_t>(p.parts.size());
      std::copy_n(one.dims.begin(), one.ndim, p.shape.dims.begin() + 1);
      p.shape.ndim = one.ndim + 1;
    }
    // Depth-wise convolutions have one input channel, which GGUF leaves out; what Mamba-2 has one of per head
    // is a column there.
    if (p.shape.ndim == 3 && p.shape[1] == 1 && p.name.find("ssm_conv1d") != std::string::npos)
      p.shape = Shape{p.shape[0], p.shape[2]};
    if (p.shape.ndim == 1 && std::string_view(recipe_->architecture) == "mamba2" &&
        (ends_with(p.name, ".ssm_a") || ends_with(p.name, ".ssm_d")))
      p.shape = Shape{p.shape[0], 1};
    if (ends_with(p.name, ".ssm_norm.weight") && std::string_view(recipe_->architecture) == "mamba2") {
      const int64_t groups = config_.find_integer({nullptr, "n_groups"}, 1).value_or(1);
      if (p.shape.elements() % groups == 0) p.shape = Shape{groups, p.shape.elements() / groups};
    }
    // A matrix of one row that gates is a vector to llama.cpp.
    if (p.shape.ndim == 2 && p.shape[0] == 1 && p.name.find("ffn_gate_inp_shexp") != std::string::npos)
      p.shape = Shape{p.shape[1]};
  }

  void set_rotation(Plan& p, const std::string& name) const {
    if (!recipe_->pairs_side_by_side) return;
    const bool query = ends_with(name, ".attn_q"), key = ends_with(name, ".attn_k");
    if (!query && !key) return;
    p.pairs_side_by_side = true;
    p.rotated_heads = query ? sizes_.heads : sizes_.kv_heads;
    require(p.shape[0] == p.rotated_heads * sizes_.head_dim && sizes_.head_dim % 2 == 0,
            ErrorCode::kInvalidFile, "{}: tensor '{}' has {} rows: expected {} heads of an even size {}",
            checkpoint_.path.string(), p.parts[0]->name, p.shape[0], p.rotated_heads, sizes_.head_dim);
  }

  /// Gemma's queries are scaled by a setting of their own, for which GGUF has no key: readers take the head's
  /// size, or in the 27B models (known by their depth) the width by heads. What differs goes into the weights
  /// that make the queries.
  float query_factor(const std::string& name) const {
    const auto scalar = config_.find_number({nullptr, "query_pre_attn_scalar"});
    if (!scalar || *scalar <= 0) return 1;
    const bool normed = std::string_view(recipe_->architecture) == "gemma3";
    if (!ends_with(name, normed ? ".attn_q_norm" : ".attn_q")) return 1;
    const bool by_width = sizes_.layers == (normed ? 62 : 46);
    const float assumed = static_cast<float>(by_width ? sizes_.hidden / sizes_.heads : sizes_.head_dim);
    return std::sqrt(assumed / *scalar);
  }

  void set_type(Plan& p) const {
    DType type = p.made.name.empty() ? p.parts[0]->dtype : p.made.type;
    if (type == DType::kF8E4M3 || type == DType::kF8E5M2) type = DType::kBF16;
    const bool matrix =
        p.shape.ndim > 1 && ends_with(p.name, ".weight") && p.name.find("norm") == std::string::npos;
    const bool routes = p.name.find("ffn_gate_inp") != std::string::npos ||
                        p.name == "position_embd.weight" || p.name.find("ssm_conv1d") != std::string::npos;
    if (!matrix || routes || type == DType::kF64) {
      p.type = DType::kF32;
      return;
    }
    if (options_.type) type = *options_.type;
    if (p.name == "token_embd.weight" || p.name == "output.weight") type = loaders::type_for_output(type);
    p.type = loaders::type_for_columns(type, p.shape.back());
  }

  void add_exact(const char* name, const std::vector<float>& values) {
    if (values.empty()) return;
    Plan p;
    p.name = name;
    p.shape = Shape{static_cast<int64_t>(values.size())};
    p.values = values;
    plans_.push_back(std::move(p));
  }

  int64_t ffn_width() const {
    // The tensors say it surest; where all layers have experts, config.json does.
    for (const Plan& p : plans_)
      if (p.name == "blk.0.ffn_down.weight") return p.shape.back();
    return config_.find_integer({nullptr, "intermediate_size"}, 1).value_or(1);
  }

  /// Row of the checkpoint's tensor that becomes each row here; empty when they are the same.
  std::vector<int64_t> row_order(const Plan& p) const {
    std::vector<int64_t> order;
    const int64_t dim = sizes_.head_dim;
    const auto push = [&](int64_t first) {
      for (int64_t i = 0; i < dim; ++i) order.push_back(first + i);
    };
    if (p.pairs_side_by_side) {
      for (int64_t h = 0; h < p.rotated_heads; ++h)
        for (int64_t i = 0; i < dim; ++i) order.push_back(h * dim + i % 2 * (dim / 2) + i / 2);
    } else if (p.transform == Transform::kHeadsQkv) {
      for (int64_t part = 0; part < 3; ++part)
        for (int64_t h = 0; h < sizes_.heads; ++h) push((h * 3 + part) * dim);
    } else if (p.transform == Transform::kGroupsQkv) {
      const int64_t group = sizes_.heads / sizes_.kv_heads;
      for (int64_t g = 0; g < sizes_.kv_heads; ++g)
        for (int64_t h = 0; h < group; ++h) push((g * (group + 2) + h) * dim);
      for (int64_t part = 0; part < 2; ++part)
        for (int64_t g = 0; g < sizes_.kv_heads; ++g) push((g * (group + 2) + group + part) * dim);
    } else {
      return {};
    }
    require(static_cast<int64_t>(order.size()) == p.shape[0], ErrorCode::kInvalidFile,
            "{}: tensor '{}' has {} rows: its heads make {}", checkpoint_.path.string(), p.parts[0]->name,
            p.shape[0], order.size());
    return order;
  }

  void advance(uint64_t bytes) {
    done_ += bytes;
    if (!options_.progress) return;
    uint64_t total = 0;
    for (const TensorEntry* t : used_) total += t->bytes;
    options_.progress(std::min(done_, total), total);
  }

  void write(const Plan& p, loaders::GgufWriter& out) {
    if (!p.values.empty()) {
      out.write(p.id, 0, p.values.data(), p.values.size() * sizeof(float));
      return;
    }
    // Vectors take the way of matrices of one column: their elements are what is reordered.
    const std::vector<int64_t> order = row_order(p);
    uint64_t offset = 0;
    for (const TensorEntry* part : p.parts) {
      const uint64_t bytes = out.tensor_bytes(p.id) / p.parts.size();
      if (p.shape.ndim == 1 || p.transform == Transform::kTranspose || p.type == DType::kF32)
        write_whole(p, *part, order, offset, out);
      else
        write_rows(p, *part, order, offset, out);
      offset += bytes;
      part->file->release(part->data, part->bytes);
      advance(part->bytes);
    }
  }

  void write_made(const Plan& p, loaders::GgufWriter& out) {
    std::vector<std::byte> bytes;
    if (p.made.encoded) {
      bytes = p.made.encoded();
    } else {
      const std::vector<float> values = p.made.values();
      bytes.resize(*quant::row_bytes(p.type, values.size()));
      quant::traits(p.type).encode(values.data(), bytes.data(), static_cast<int64_t>(values.size()), nullptr);
    }
    require(bytes.size() == out.tensor_bytes(p.id), ErrorCode::kInternal, "{} makes {} bytes: expected {}",
            p.name, bytes.size(), out.tensor_bytes(p.id));
    out.write(p.id, 0, bytes.data(), bytes.size());
    for (const TensorEntry* from : p.parts) advance(from->bytes);
  }

  /// Small tensors, and those that are rearranged as a whole, through memory as floats.
  void write_whole(const Plan& p, const TensorEntry& part, const std::vector<int64_t>& order, uint64_t offset,
                   loaders::GgufWriter& out) const {
    const loaders::RowReader reader(checkpoint_, part);
    std::vector<float> values(static_cast<size_t>(part.shape.elements()));
    reader.read(0, reader.rows(), values.data());
    if (p.transform == Transform::kAddOne)
      for (float& v : values) v += 1.0f;
    if (p.transform == Transform::kNegateExp)
      for (float& v : values) v = -std::exp(v);
    for (float& v : values) v *= p.factor;
    if (p.transform == Transform::kTranspose && part.shape.ndim == 2) {
      std::vector<float> turned(values.size());
      const int64_t rows = part.shape[0], columns = part.shape[1];
      for (int64_t r = 0; r < rows; ++r)
        for (int64_t c = 0; c < columns; ++c)
          turned[static_cast<size_t>(c * rows + r)] = values[static_cast<size_t>(r * columns + c)];
      values = std::move(turned);
    }
    if (!order.empty()) {
      std::vector<float> ordered(values.size());
      const size_t width = values.size() / order.size();
      for (size_t i = 0; i < order.size(); ++i)
        std::copy_n(values.begin() + order[i] * static_cast<int64_t>(width), width,
                    ordered.begin() + static_cast<int64_t>(i * width));
      values = std::move(ordered);
    }
    const auto count = static_cast<int64_t>(values.size());
    std::vector<std::byte> bytes(*quant::row_bytes(p.type, values.size()));
    quant::traits(p.type).encode(values.data(), bytes.data(), count, nullptr);
    out.write(p.id, offset, bytes.data(), bytes.size());
  }

  void write_rows(const Plan& p, const TensorEntry& part, const std::vector<int64_t>& order, uint64_t offset,
                  loaders::GgufWriter& out) const {
    const loaders::RowReader reader(checkpoint_, part);
    const int64_t columns = reader.columns();
    const uint64_t row_bytes = *quant::row_bytes(p.type, static_cast<uint64_t>(columns));
    const bool copied = p.type == part.dtype && p.transform != Transform::kAddOne &&
                        p.transform != Transform::kNegateExp && p.factor == 1;
    const auto grain =
        static_cast<int64_t>(std::max<uint64_t>(1, kPieceBytes / (4 * static_cast<uint64_t>(columns))));
    pool_.parallel_for(reader.rows(), grain, [&](int64_t begin, int64_t end, int) {
      std::vector<float> row(static_cast<size_t>(columns));
      std::vector<std::byte> piece(static_cast<size_t>(std::min(grain, end - begin)) * row_bytes);
      for (int64_t first = begin; first < end; first += grain) {
        const int64_t last = std::min(end, first + grain);
        for (int64_t r = first; r < last; ++r) {
          const int64_t source = order.empty() ? r : order[static_cast<size_t>(r)];
          std::byte* to = piece.data() + static_cast<uint64_t>(r - first) * row_bytes;
          if (copied) {
            std::memcpy(to, part.data + static_cast<uint64_t>(source) * row_bytes, row_bytes);
            continue;
          }
          reader.read(source, 1, row.data());
          if (p.transform == Transform::kAddOne)
            for (float& v : row) v += 1.0f;
          if (p.transform == Transform::kNegateExp)
            for (float& v : row) v = -std::exp(v);
          for (float& v : row) v *= p.factor;
          quant::traits(p.type).encode(row.data(), to, columns, nullptr);
        }
        out.write(p.id, offset + static_cast<uint64_t>(first) * row_bytes, piece.data(),
                  static_cast<uint64_t>(last - first) * row_bytes);
      }
    });
  }

  const Checkpoint& checkpoint_;
  const ExportOptions& options_;
  ThreadPool& pool_;
  const models::Config config_;
  const Recipe* recipe_ = nullptr;
  Sizes sizes_;
  std::vector<Plan> plans_;
  std::set<const TensorEntry*> used_;
  uint64_t done_ = 0;
};

}  // namespace

ExportResult export_gguf(const Checkpoint& checkpoint, const ExportOptions& options,
                         const std::filesystem::path& path, ThreadPool& pool) {
  require(checkpoint.format == loaders::Format::kHuggingFace, ErrorCode::kInvalidArgument,
          "{} is a GGUF file already: expected a Hugging Face directory", checkpoint.path.string());
  return Exporter(checkpoint, options, pool).run(path);
}

}  // namespace millrace::convert
