#include "compress/train/export.h"

#include <fmt/format.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/error.h"
#include "quant/traits.h"

namespace millrace::train {
namespace {

using nlohmann::json;

// Numbers of the GGUF specification.
enum GgufType : uint32_t { kU32 = 4, kI32 = 5, kF32 = 6, kBool = 7, kString = 8, kArray = 9 };
constexpr uint32_t kGgmlF32 = 0, kGgmlQ8 = 8;
constexpr uint64_t kAlignment = 32;

class Writer {
 public:
  template <typename T>
  void number(T value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  void text(const std::string& value) {
    number<uint64_t>(value.size());
    bytes_ += value;
  }
  void key(const std::string& name, GgufType type) {
    text(name);
    number<uint32_t>(type);
    ++keys;
  }
  void u32(const std::string& name, uint32_t value) {
    key(name, kU32);
    number(value);
  }
  void f32(const std::string& name, float value) {
    key(name, kF32);
    number(value);
  }
  void align() { bytes_.resize((bytes_.size() + kAlignment - 1) / kAlignment * kAlignment, '\0'); }
  const std::string& bytes() const { return bytes_; }

  uint64_t keys = 0;

 private:
  std::string bytes_;
};

void write_entry(Writer& out, const std::string& name, const json& entry) {
  const std::string type = entry.at("type").get<std::string>();
  const json& value = entry.at("value");
  if (type == "string") {
    out.key(name, kString);
    out.text(value.get<std::string>());
  } else if (type == "u32") {
    out.u32(name, value.get<uint32_t>());
  } else if (type == "f32") {
    out.f32(name, value.get<float>());
  } else if (type == "bool") {
    out.key(name, kBool);
    out.number<uint8_t>(value.get<bool>() ? 1 : 0);
  } else if (type == "strings" || type == "i32s") {
    out.key(name, kArray);
    out.number<uint32_t>(type == "strings" ? kString : kI32);
    out.number<uint64_t>(value.size());
    for (const json& item : value) {
      if (type == "strings")
        out.text(item.get<std::string>());
      else
        out.number<int32_t>(item.get<int32_t>());
    }
  } else {
    fail(ErrorCode::kInvalidArgument, "GGUF metadata: '{}' has the unknown type '{}'", name, type);
  }
}

void write_shape(Writer& out, const ModelShape& s) {
  out.key("general.architecture", kString);
  out.text("llama");
  out.u32("general.file_type", 7);  // mostly Q8_0
  out.u32("general.quantization_version", 2);
  out.u32("llama.block_count", static_cast<uint32_t>(s.num_layers));
  out.u32("llama.embedding_length", static_cast<uint32_t>(s.dim));
  out.u32("llama.feed_forward_length", static_cast<uint32_t>(s.feed_forward));
  out.u32("llama.attention.head_count", static_cast<uint32_t>(s.num_heads));
  out.u32("llama.attention.head_count_kv", static_cast<uint32_t>(s.num_kv_heads));
  out.u32("llama.attention.key_length", static_cast<uint32_t>(s.head_dim));
  out.u32("llama.attention.value_length", static_cast<uint32_t>(s.head_dim));
  out.f32("llama.attention.layer_norm_rms_epsilon", s.norm_epsilon);
  out.f32("llama.rope.freq_base", s.rope_theta);
  out.u32("llama.rope.dimension_count", static_cast<uint32_t>(s.head_dim));
  out.u32("llama.vocab_size", static_cast<uint32_t>(s.vocab_size));
  if (s.num_experts) {
    out.u32("llama.expert_count", static_cast<uint32_t>(s.num_experts));
    out.u32("llama.expert_used_count", static_cast<uint32_t>(s.experts_per_token));
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
  Writer entries;
  write_shape(entries, model.shape());
  try {
    const json given = read_metadata(metadata);
    for (const auto& item : given.items()) write_entry(entries, item.key(), item.value());
  } catch (const json::exception& e) {
    fail(ErrorCode::kInvalidArgument, "GGUF metadata '{}' is malformed: {}", metadata.string(), e.what());
  }
  Writer head, data;
  head.number<uint32_t>(0x46554747);  // "GGUF"
  head.number<uint32_t>(3);
  head.number<uint64_t>(model.tensors().size());
  head.number<uint64_t>(entries.keys);
  std::string body = head.bytes() + entries.bytes();
  Writer table;
  std::string contents;
  for (const TensorInfo& t : model.tensors()) {
    table.text(t.name);
    table.number<uint32_t>(static_cast<uint32_t>(t.shape.size()));
    for (size_t i = t.shape.size(); i-- > 0;) table.number<uint64_t>(static_cast<uint64_t>(t.shape[i]));
    table.number<uint32_t>(stays_float(t) ? kGgmlF32 : kGgmlQ8);
    table.number<uint64_t>(contents.size());
    contents += encode(model, t);
    contents.resize((contents.size() + kAlignment - 1) / kAlignment * kAlignment, '\0');
  }
  body += table.bytes();
  body.resize((body.size() + kAlignment - 1) / kAlignment * kAlignment, '\0');
  body += contents;
  std::ofstream out(path, std::ios::binary);
  out.write(body.data(), static_cast<std::streamsize>(body.size()));
  out.flush();
  require(out.good(), ErrorCode::kIo, "model '{}' could not be written", path.string());
  return body.size();
}

}  // namespace millrace::train
