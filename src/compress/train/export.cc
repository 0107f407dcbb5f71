#include "compress/train/export.h"

#include <fmt/format.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/error.h"
#include "loaders/gguf_writer.h"
#include "quant/traits.h"

namespace millrace::train {
namespace {

using nlohmann::json;

void write_entry(loaders::GgufWriter& out, const std::string& name, const json& entry) {
  const std::string type = entry.at("type").get<std::string>();
  const json& value = entry.at("value");
  if (type == "string")
    out.set_string(name, value.get<std::string>());
  else if (type == "u32")
    out.set_u32(name, value.get<uint32_t>());
  else if (type == "f32")
    out.set_f32(name, value.get<float>());
  else if (type == "bool")
    out.set_bool(name, value.get<bool>());
  else if (type == "strings")
    out.set_strings(name, value.get<std::vector<std::string>>());
  else if (type == "i32s")
    out.set_i32s(name, value.get<std::vector<int32_t>>());
  else
    fail(ErrorCode::kInvalidArgument, "GGUF metadata: '{}' has the unknown type '{}'", name, type);
}

void write_shape(loaders::GgufWriter& out, const ModelShape& s) {
  const auto count = [&](const char* key, int value) { out.set_u32(key, static_cast<uint32_t>(value)); };
  out.set_string("general.architecture", "llama");
  count("general.file_type", 7);  // mostly Q8_0
  count("general.quantization_version", 2);
  count("llama.block_count", s.num_layers);
  count("llama.embedding_length", s.dim);
  count("llama.feed_forward_length", s.feed_forward);
  count("llama.attention.head_count", s.num_heads);
  count("llama.attention.head_count_kv", s.num_kv_heads);
  count("llama.attention.key_length", s.head_dim);
  count("llama.attention.value_length", s.head_dim);
  out.set_f32("llama.attention.layer_norm_rms_epsilon", s.norm_epsilon);
  out.set_f32("llama.rope.freq_base", s.rope_theta);
  count("llama.rope.dimension_count", s.head_dim);
  count("llama.vocab_size", s.vocab_size);
  if (s.num_experts) {
    count("llama.expert_count", s.num_experts);
    count("llama.expert_used_count", s.experts_per_token);
  }
}

bool stays_float(const TensorInfo& t) {
  return t.is_norm() || t.name.find("ffn_gate_inp") != std::string::npos;
}

/// The tensor's bytes as the file holds them.
std::string encode(Model& model, const TensorInfo& t) {
  std::vector<float> values(static_cast<size_t>(t.size()));
  const int64_t matrix = t.shape.size() == 3 ? t.shape[1] * t.shape[2] : t.size();
  for (int64_t from = 0, expert = 0; from < t.size(); from += matrix, ++expert)
    std::copy_n(model.parameters().data() + t.offset + expert * t.stride, matrix, values.data() + from);
  if (stays_float(t)) return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
  const quant::Traits& q8 = quant::traits(DType::kQ8_0);
  std::string out(
      values.size() / static_cast<size_t>(q8.block_elements) * static_cast<size_t>(q8.block_bytes), '\0');
  q8.encode(values.data(), out.data(), static_cast<int64_t>(values.size()), nullptr);
  return out;
}

json read_metadata(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  require(in.good(), ErrorCode::kNotFound, "GGUF metadata '{}' cannot be opened", path.string());
  try {
    return json::parse(in);
  } catch (const json::exception& e) {
    fail(ErrorCode::kInvalidArgument, "GGUF metadata '{}' is not valid JSON: {}", path.string(), e.what());
  }
}

}  // namespace

uint64_t export_gguf(Model& model, const std::filesystem::path& metadata, const std::filesystem::path& path) {
  const json given = read_metadata(metadata);
  loaders::GgufWriter out(path);
  write_shape(out, model.shape());
  try {
    for (const auto& item : given.items()) write_entry(out, item.key(), item.value());
  } catch (const json::exception& e) {
    fail(ErrorCode::kInvalidArgument, "GGUF metadata '{}' is malformed: {}", metadata.string(), e.what());
  }
  for (const TensorInfo& t : model.tensors()) {
    Shape shape;
    for (const int64_t extent : t.shape) shape.dims[static_cast<size_t>(shape.ndim++)] = extent;
    out.add_tensor(t.name, stays_float(t) ? DType::kF32 : DType::kQ8_0, shape);
  }
  out.write_header();
  for (size_t i = 0; i < model.tensors().size(); ++i) {
    const std::string bytes = encode(model, model.tensors()[i]);
    out.write(i, 0, bytes.data(), bytes.size());
  }
  out.finish();
  return out.file_bytes();
}

}  // namespace millrace::train
