// Hugging Face checkpoints written as GGUF: the same logits from both, and the same settings.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>

#include "compress/convert/gguf_export.h"
#include "compress/convert/recipes.h"
#include "core/error.h"
#include "loaders/checkpoint.h"
#include "models/model.h"
#include "models/sequence_runner.h"
#include "quant/traits.h"
#include "testing/testing.h"

namespace millrace {
namespace {

/// Logits of every position of a fixed sequence.
std::vector<float> logits_of(const loaders::Checkpoint& checkpoint, ThreadPool& pool, size_t length = 40) {
  models::LoadOptions options;
  const auto model = models::load_model(checkpoint, options, pool);
  models::SequenceRunner runner(*model, pool, options.isa, layers::KvType::kF32, 64);
  std::vector<int32_t> tokens(length);
  for (size_t i = 0; i < tokens.size(); ++i)
    tokens[i] = static_cast<int32_t>((i * i * 7 + i * 3 + 1) % static_cast<size_t>(model->info().vocab_size));
  std::vector<float> all;
  auto collect = [&](int32_t, int32_t rows, const float* logits) {
    all.insert(all.end(), logits, logits + int64_t{rows} * model->info().vocab_size);
  };
  const models::SequenceRunner::LogitsVisitor visitor(collect);
  runner.append(tokens, &visitor);
  return all;
}

/// Largest difference as a share of the logits' spread.
double difference(const std::vector<float>& a, const std::vector<float>& b) {
  EXPECT_EQ(a.size(), b.size());
  const auto [low, high] = std::minmax_element(a.begin(), a.end());
  double worst = 0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i)
    worst = std::max(worst, std::isnan(b[i]) ? INFINITY : std::fabs(static_cast<double>(a[i]) - b[i]));
  return worst / (*high - *low);
}

std::vector<std::string> convertible_fixtures() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(testing::fixture("models/fixtures"))) {
    if (!std::filesystem::exists(entry.path() / "config.json")) continue;
    const auto checkpoint = loaders::open_checkpoint(entry.path());
    if (convert::find_recipe(checkpoint.metadata.find_strings("architectures")->front()))
      names.push_back(entry.path().filename());
  }
  std::sort(names.begin(), names.end());
  return names;
}

class Convert : public ::testing::TestWithParam<std::string> {};

TEST_P(Convert, GgufGivesTheSameLogits) {
  ThreadPool pool(2);
  testing::TempDir dir;
  const auto source = loaders::open_checkpoint(testing::fixture("models/fixtures") / GetParam());
  convert::ExportOptions options;
  options.write_vocabulary = [](loaders::GgufWriter& out, int64_t) {
    out.set_string("tokenizer.ggml.model", "none");
  };
  const convert::ExportResult result = convert::export_gguf(source, options, dir / "m.gguf", pool);
  // Dynamic scaling begins beyond the trained context; GGUF has no form for it.
  EXPECT_EQ(result.note.empty(), GetParam().rfind("rope-dynamic", 0) != 0) << result.note;
  const size_t length = result.note.empty() ? 40 : 32;
  EXPECT_EQ(result.file_bytes, std::filesystem::file_size(dir / "m.gguf"));
  EXPECT_THAT(result.left_out, ::testing::IsEmpty());
  const auto converted = loaders::open_checkpoint(dir / "m.gguf");
  EXPECT_LT(difference(logits_of(source, pool, length), logits_of(converted, pool, length)), 1e-5);
}

INSTANTIATE_TEST_SUITE_P(All, Convert, ::testing::ValuesIn(convertible_fixtures()), [](const auto& info) {
  std::string name = info.param;
  std::replace_if(
      name.begin(), name.end(), [](char c) { return !std::isalnum(c); }, '_');
  return name;
});

TEST(ConvertTypes, QuantisesMatricesOnly) {
  ThreadPool pool(2);
  testing::TempDir dir;
  const auto source = loaders::open_checkpoint(testing::fixture("models/fixtures/llama"));
  for (const DType type : {DType::kQ8_0, DType::kBF16, DType::kQ4_K}) {
    convert::ExportOptions options;
    options.type = type;
    convert::export_gguf(source, options, dir / "m.gguf", pool);
    const auto c = loaders::open_checkpoint(dir / "m.gguf");
    // Rows of 32 fit Q8_0 and no K-quant: a 32-element type stands in.
    EXPECT_EQ(c.find("blk.0.attn_q.weight")->dtype, type == DType::kQ4_K ? DType::kQ5_0 : type);
    EXPECT_EQ(c.find("blk.0.attn_norm.weight")->dtype, DType::kF32);
    EXPECT_LT(difference(logits_of(source, pool), logits_of(c, pool)), type == DType::kQ4_K ? 0.4 : 0.1);
  }
}

/// The llama fixture with its matrices in FP8 and a scale for every `block` x `block` values.
void write_fp8_copy(const std::filesystem::path& from, const std::filesystem::path& to, int64_t block) {
  const auto source = loaders::open_checkpoint(from);
  std::string header, data;
  const auto put = [&](const std::string& name, const char* dtype, const std::vector<int64_t>& shape,
                       const std::string& bytes) {
    header += fmt::format("{}\"{}\":{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}}",
                          header.empty() ? "{" : ",", name, dtype, fmt::join(shape, ","), data.size(),
                          data.size() + bytes.size());
    data += bytes;
  };
  for (const auto& t : source.tensors) {
    std::vector<float> x(static_cast<size_t>(t.shape.elements()));
    quant::traits(t.dtype).decode(t.data, x.data(), t.shape.elements());
    if (t.shape.ndim != 2 || t.name.find("proj") == std::string::npos) {
      const std::vector<int64_t> shape(t.shape.dims.begin(), t.shape.dims.begin() + t.shape.ndim);
      put(t.name, "F32", shape, std::string(reinterpret_cast<const char*>(x.data()), x.size() * 4));
      continue;
    }
    const int64_t rows = t.shape[0], cols = t.shape[1];
    const int64_t down = (rows + block - 1) / block, across = (cols + block - 1) / block;
    std::vector<float> scales(static_cast<size_t>(down * across));
    for (size_t i = 0; i < scales.size(); ++i) scales[i] = 0.001f * static_cast<float>(i % 5 + 1);
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < cols; ++c)
        x[static_cast<size_t>(r * cols + c)] /= scales[static_cast<size_t>(r / block * across + c / block)];
    std::string codes(x.size(), '\0');
    quant::traits(DType::kF8E4M3).encode(x.data(), codes.data(), static_cast<int64_t>(x.size()), nullptr);
    put(t.name, "F8_E4M3", {rows, cols}, codes);
    put(t.name + "_scale_inv", "F32", {down, across},
        std::string(reinterpret_cast<const char*>(scales.data()), scales.size() * 4));
  }
  header += "}";
  const uint64_t length = header.size();
  testing::write_file(to / "model.safetensors",
                      std::string(reinterpret_cast<const char*>(&length), 8) + header + data);
  std::string config = testing::read_file(from / "config.json");
  config.insert(config.find('{') + 1,
                fmt::format("\"quantization_config\":{{\"weight_block_size\":[{},{}]}},", block, block));
  testing::write_file(to / "config.json", config);
}

TEST(ConvertFp8, ScalesAreAppliedWhereverFp8IsRead) {
  ThreadPool pool(2);
  testing::TempDir dir;
  const auto exact = loaders::open_checkpoint(testing::fixture("models/fixtures/llama"));
  write_fp8_copy(testing::fixture("models/fixtures/llama"), dir.path(), 16);
  const auto fp8 = loaders::open_checkpoint(dir.path());
  const std::vector<float> expected = logits_of(exact, pool), got = logits_of(fp8, pool);
  EXPECT_LT(difference(expected, got), 0.45);  // three mantissa bits; wrong scales give more than 1
  const auto result = convert::export_gguf(fp8, {}, dir / "m.gguf", pool);
  EXPECT_THAT(result.left_out, ::testing::IsEmpty());
  const auto converted = loaders::open_checkpoint(dir / "m.gguf");
  EXPECT_EQ(converted.find("blk.0.attn_q.weight")->dtype, DType::kBF16);
  EXPECT_LT(difference(got, logits_of(converted, pool)), 1e-5);
}

/// Logits of the weights that the bytes mean, from PyTorch (scripts/fixtures/quantised_models.py).
TEST(ConvertFp8, EveryKindOfScaleIsExactInFloats) {
  ThreadPool pool(2);
  int checked = 0;
  for (const auto& entry : std::filesystem::directory_iterator(testing::fixture("models/quantised"))) {
    const auto source = loaders::open_checkpoint(entry.path());
    if (source.metadata.has("quantization_config.modules_to_not_convert")) continue;  // MXFP4 stays as it is
    const auto json = nlohmann::json::parse(testing::read_file(entry.path() / "reference.json"));
    testing::TempDir dir;
    convert::ExportOptions options;
    options.type = DType::kF32;
    const auto result = convert::export_gguf(source, options, dir / "m.gguf", pool);
    for (const std::string& name : result.left_out) EXPECT_THAT(name, ::testing::EndsWith("input_scale"));
    const auto converted = loaders::open_checkpoint(dir / "m.gguf");
    const auto model = models::load_model(converted, {}, pool);
    models::SequenceRunner runner(*model, pool, best_isa(), layers::KvType::kF32, 64);
    const auto last = json["logits"].back().get<std::vector<float>>();
    const float* got = runner.append(json["prompt"].get<std::vector<int32_t>>());
    double worst = 0;
    for (size_t i = 0; i < last.size(); ++i)
      worst = std::max(worst, std::fabs(static_cast<double>(got[i]) - last[i]));
    EXPECT_LT(worst / json["spread"].get<double>(), 1e-4) << entry.path().filename();
    ++checked;
  }
  EXPECT_GE(checked, 5);
}

TEST(ConvertErrors, NameWhatCannotBeWritten) {
  ThreadPool pool(1);
  testing::TempDir dir;
  const auto opt = loaders::open_checkpoint(testing::fixture("models/fixtures/opt"));  // llama.cpp has none
  EXPECT_THROW(convert::export_gguf(opt, {}, dir / "m.gguf", pool), Error);
  auto llama = loaders::open_checkpoint(testing::fixture("models/fixtures/llama"));
  convert::ExportOptions options;
  options.type = DType::kF8E4M3;
  EXPECT_THROW(convert::export_gguf(llama, options, dir / "m.gguf", pool), Error);
  llama.metadata.set("num_key_value_heads", int64_t{3});
  EXPECT_THROW(convert::export_gguf(llama, {}, dir / "m.gguf", pool), Error);
  EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
}

/// A reader of the file would take the usual setting, so none is written.
TEST(ConvertErrors, SettingsThatGgufLacksAreRefusedByName) {
  ThreadPool pool(1);
  const std::pair<const char*, const char*> cases[] = {
      {"llama-gelu", "'hidden_act' is 'gelu'"},
      {"gpt2-scale-by-layer", "'scale_attn_by_inverse_layer_idx' is true"},
      {"mpt-softmax-scale", "'attn_config.softmax_scale' is set"},
      {"phi-heads-8-qk-norm", "'qk_layernorm' is true"},
      {"falcon-alibi", "'alibi' is true"},
      {"olmoe-norm-clip", "'norm_topk_prob' is true"},
      {"qwen3_next-4-keys-dense-layer", "'mlp_only_layers' leaves layers without experts"},
      {"olmo3-yarn", "sliding_attention.rope_theta' is 20000 beside 10000"},
      {"deepseek_v3-not-interleaved", "'rope_interleave' is false"}};
  for (const auto& [name, says] : cases) {
    testing::TempDir dir;
    const auto source = loaders::open_checkpoint(testing::fixture("models/configurations") / name);
    std::string sentence;
    try {
      convert::export_gguf(source, {}, dir / "m.gguf", pool);
    } catch (const Error& e) {
      sentence = e.what();
    }
    EXPECT_NE(sentence.find(says), std::string::npos) << name << ": " << sentence;
    EXPECT_TRUE(std::filesystem::is_empty(dir.path())) << name;
  }
}

}  // namespace
}  // namespace millrace
