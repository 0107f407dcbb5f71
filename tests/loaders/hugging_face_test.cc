#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <vector>

#include "core/error.h"
#include "core/half.h"
#include "core/random.h"
#include "loaders/checkpoint.h"
#include "loaders/dequant.h"
#include "loaders/json_metadata.h"
#include "loaders/safetensors.h"
#include "loaders/safetensors_bytes.h"
#include "quant/traits.h"
#include "testing/testing.h"

namespace millrace::loaders {
namespace {

using millrace::testing::raw;
using millrace::testing::safetensors;
using millrace::testing::TempDir;
using millrace::testing::write_file;
using ::testing::HasSubstr;

std::string message_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& e) {
    EXPECT_NE(e.code(), ErrorCode::kInternal) << e.what();
    EXPECT_EQ(std::string(e.what()).find('\n'), std::string::npos) << e.what();
    return e.what();
  }
  return "";
}

std::string safetensors_error(const TempDir& dir, const std::string& bytes) {
  write_file(dir / "case.safetensors", bytes);
  return message_of([&] {
    std::vector<TensorEntry> tensors;
    read_safetensors(dir / "case.safetensors", tensors);
  });
}

TEST(Safetensors, ReadsEveryDtype) {
  TempDir dir;
  const std::vector<std::pair<std::string, DType>> types = {
      {"F64", DType::kF64},       {"F32", DType::kF32}, {"F16", DType::kF16}, {"BF16", DType::kBF16},
      {"I64", DType::kI64},       {"I32", DType::kI32}, {"I16", DType::kI16}, {"I8", DType::kI8},
      {"U8", DType::kI8},         {"BOOL", DType::kI8}, {"U16", DType::kI16}, {"F8_E4M3", DType::kF8E4M3},
      {"F8_E5M2", DType::kF8E5M2}};
  std::string header = "{\"__metadata__\":{\"format\":\"pt\",\"dtype\":\"x\"}";
  uint64_t at = 0;
  for (const auto& [name, type] : types) {
    const uint64_t bytes = 6 * static_cast<uint64_t>(quant::traits(type).block_bytes);
    header += fmt::format(",\"t.{}\":{{\"dtype\":\"{}\",\"shape\":[2,3],\"data_offsets\":[{},{}]}}", name,
                          name, at, at + bytes);
    at += bytes;
  }
  header += fmt::format(",\"empty\":{{\"data_offsets\":[{0},{0}],\"shape\":[0,5],\"dtype\":\"F32\"}}", at);
  header +=
      fmt::format(",\"number\":{{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[{},{}]}}", at, at + 4);
  header += fmt::format(",\"deep\":{{\"dtype\":\"I8\",\"shape\":[2,1,3,1,2],\"data_offsets\":[{},{}]}}}}    ",
                        at + 4, at + 16);
  std::string data(at, '\1');
  data += raw(std::vector<float>{2.5f}) + std::string(12, '\2');
  write_file(dir / "m.safetensors", safetensors(header, data));
  std::vector<TensorEntry> tensors;
  read_safetensors(dir / "m.safetensors", tensors);
  ASSERT_EQ(tensors.size(), types.size() + 3);
  for (size_t i = 0; i < types.size(); ++i) {
    EXPECT_EQ(tensors[i].name, "t." + types[i].first);  // in file order
    EXPECT_EQ(tensors[i].dtype, types[i].second);
    EXPECT_EQ(tensors[i].shape, (Shape{2, 3}));
  }
  EXPECT_EQ(tensors[types.size()].shape.elements(), 0);
  const TensorEntry& number = tensors[types.size() + 1];
  EXPECT_EQ(number.shape.elements(), 1);
  float value;
  quant::traits(number.dtype).decode(number.data, &value, 1);
  EXPECT_EQ(value, 2.5f);
  EXPECT_EQ(tensors[types.size() + 2].shape, (Shape{2, 3, 1, 2}));
}

TEST(Safetensors, RefusesHeadersThatCannotBe) {
  TempDir dir;
  const auto with = [&](const std::string& header, size_t data = 8) {
    return safetensors_error(dir, safetensors(header, std::string(data, '\0')));
  };
  const auto one = [&](const std::string& shape, const std::string& offsets,
                       const std::string& dtype = "F32") {
    return with("{\"a\":{\"dtype\":\"" + dtype + "\",\"shape\":" + shape + ",\"data_offsets\":" + offsets +
                "}}");
  };
  EXPECT_EQ(one("[2]", "[0,8]"), "");
  EXPECT_THAT(safetensors_error(dir, ""), HasSubstr("too short"));
  EXPECT_THAT(safetensors_error(dir, std::string(7, 'x') + "\x7f"), HasSubstr("length is given as"));
  EXPECT_THAT(safetensors_error(dir, std::string("\0\0\0\0\0\0\0\x80{}", 10)),
              HasSubstr("9223372036854775808"));
  EXPECT_THAT(with("{\"a\":"), HasSubstr("malformed JSON"));
  EXPECT_THAT(with("[]"), HasSubstr("a list"));
  EXPECT_THAT(with("{\"a\":5}"), HasSubstr("'a'"));
  EXPECT_THAT(with("{\"a\":{\"dtype\":\"F32\",\"shape\":[2]}}"), HasSubstr("incomplete"));
  EXPECT_THAT(with("{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"shape\":[2],\"data_offsets\":[0,8]}}"),
              HasSubstr("twice"));
  EXPECT_THAT(with("{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"offset\":[0,8]}}"), HasSubstr("key 'offset'"));
  EXPECT_THAT(one("[2]", "[0,8]", "F3"), HasSubstr("dtype 'F3'"));
  EXPECT_THAT(one("[-2]", "[0,8]"), HasSubstr("negative"));
  EXPECT_THAT(one("[2.5]", "[0,8]"), HasSubstr("fraction"));
  EXPECT_THAT(one("[[2]]", "[0,8]"), HasSubstr("list"));
  EXPECT_THAT(one("[2]", "[0,8,9]"), HasSubstr("incomplete"));
  EXPECT_THAT(one("[2]", "[8,0]"), HasSubstr("data_offsets [8, 0]"));
  EXPECT_THAT(one("[2]", "[0,16]"), HasSubstr("within the 8 bytes"));
  EXPECT_THAT(one("[2]", "[0,18446744073709551615]"), HasSubstr("within the 8 bytes"));
  EXPECT_THAT(one("[3]", "[0,8]"), HasSubstr("make 12"));
  EXPECT_THAT(one("[4611686018427387904,4]", "[0,8]"), HasSubstr("overflow"));
  EXPECT_THAT(one("[0,4611686018427387904,4]", "[0,0]"), HasSubstr("overflow"));
  EXPECT_THAT(one("[1]", "[0,4]"), HasSubstr("4 bytes at the end"));
  EXPECT_THAT(one("[1]", "[4,8]"), HasSubstr("4 bytes before"));
  EXPECT_THAT(one("[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,2]", "[0,8]"), HasSubstr("more than 16"));
  const std::string a = "{\"a\":{\"dtype\":\"I8\",\"shape\":[6],\"data_offsets\":[0,6]},";
  EXPECT_THAT(with(a + "\"b\":{\"dtype\":\"I8\",\"shape\":[4],\"data_offsets\":[4,8]}}"),
              HasSubstr("'a' and 'b' overlap"));
  std::string deep = "{\"a\":";
  for (int i = 0; i < 100000; ++i) deep += "{\"a\":";
  EXPECT_NE(with(deep), "");
}

TEST(Safetensors, EveryTruncationIsRefused) {
  TempDir dir;
  const std::string whole =
      safetensors("{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", std::string(8, '\0'));
  for (size_t length = 0; length < whole.size(); ++length)
    EXPECT_NE(safetensors_error(dir, whole.substr(0, length)), "") << length;
  EXPECT_EQ(safetensors_error(dir, whole), "");
}

TEST(Safetensors, MutatedFilesOpenOrAreRefusedAndNothingElse) {
  TempDir dir;
  const std::string whole = safetensors(
      "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},\"b\":{\"dtype\":\"F8_E4M3\","
      "\"shape\":[2,2],"
      "\"data_offsets\":[8,12]}}",
      std::string(12, '\0'));
  Random random(millrace::testing::seed());
  const std::string alphabet = "{}[]\",:0123456789-.eabF";
  for (int64_t round = millrace::testing::scaled(800); round > 0; --round) {
    std::string mutant = whole;
    for (uint32_t edits = 1 + random.below(3); edits > 0; --edits) {
      const size_t at = random.below(static_cast<uint32_t>(mutant.size()));
      mutant[at] = random.below(4) ? alphabet[random.below(static_cast<uint32_t>(alphabet.size()))]
                                   : static_cast<char>(random.below(256));
    }
    write_file(dir / "case.safetensors", mutant);
    message_of([&] {
      std::vector<TensorEntry> tensors;
      read_safetensors(dir / "case.safetensors", tensors);
      for (const auto& t : tensors)
        for (uint64_t i = 0; i < t.bytes; ++i) ASSERT_GE(std::to_integer<int>(t.data[i]), 0);
    });
  }
}

/// A folder with config.json and two shards.
void write_sharded(const TempDir& dir) {
  write_file(dir / "config.json",
             "{\"architectures\":[\"LlamaForCausalLM\"],\"hidden_size\":64,\"rope_scaling\":{\"factor\":2.5,"
             "\"type\":\"linear\"},\"eos_token_id\":[1,2],\"nothing\":null,\"tie\":true,\"layers\":[{\"a\":1}"
             ",{\"a\":-2}]}");
  write_file(dir / "generation_config.json", "{\"temperature\":0.6,\"top_k\":20}");
  const std::string header = "\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}";
  write_file(dir / "model-1.safetensors", safetensors("{\"a" + header, raw(std::vector<float>{1, 2})));
  write_file(dir / "model-2.safetensors", safetensors("{\"b" + header, raw(std::vector<float>{3, 4})));
  write_file(dir / "model.safetensors.index.json",
             "{\"metadata\":{\"total_size\":16},\"weight_map\":{\"a\":\"model-1.safetensors\",\"b\":\"model-"
             "2.safetensors\"}}");
}

TEST(HuggingFace, ReadsConfigurationAndShards) {
  TempDir dir;
  write_sharded(dir);
  const Checkpoint c = open_checkpoint(dir.path());
  EXPECT_EQ(c.format, Format::kHuggingFace);
  EXPECT_EQ(c.metadata.get_int("hidden_size"), 64);
  EXPECT_EQ(c.metadata.get_float("rope_scaling.factor"), 2.5);
  EXPECT_EQ(c.metadata.get_string("rope_scaling.type"), "linear");
  EXPECT_EQ(c.metadata.find_strings("architectures")->front(), "LlamaForCausalLM");
  EXPECT_EQ(c.metadata.find_ints("eos_token_id"), (std::vector<int64_t>{1, 2}));
  EXPECT_FALSE(c.metadata.has("nothing"));
  EXPECT_EQ(c.metadata.find_bool("tie"), true);
  EXPECT_EQ(c.metadata.get_int("layers.1.a"), -2);
  EXPECT_EQ(c.metadata.get_float("generation.temperature"), 0.6);
  EXPECT_EQ(c.find("b")->view().shape, (Shape{2}));
  float values[2];
  quant::traits(DType::kF32).decode(c.find("b")->data, values, 2);
  EXPECT_EQ(values[1], 4.0f);
}

TEST(HuggingFace, RefusesFoldersThatContradictThemselves) {
  TempDir dir;
  const auto error = [&] { return message_of([&] { open_checkpoint(dir.path()); }); };
  EXPECT_THAT(error(), HasSubstr("no config.json"));
  write_file(dir / "config.json", "{}");
  EXPECT_THAT(error(), HasSubstr("no model.safetensors"));
  write_sharded(dir);
  ASSERT_EQ(error(), "");
  std::filesystem::remove(dir / "model-2.safetensors");
  EXPECT_THAT(error(), HasSubstr("shard 'model-2.safetensors' is missing"));
  write_sharded(dir);
  const auto index = [&](const std::string& map) {
    write_file(dir / "model.safetensors.index.json", "{\"weight_map\":" + map + "}");
    return error();
  };
  EXPECT_THAT(index("{}"), HasSubstr("weight_map"));
  EXPECT_THAT(index("{\"a\":\"model-1.safetensors\",\"c\":\"model-2.safetensors\"}"),
              HasSubstr("tensor 'c' is not in"));
  EXPECT_THAT(index("{\"a\":\"model-2.safetensors\",\"b\":\"model-1.safetensors\"}"), HasSubstr("is not in"));
  EXPECT_THAT(index("{\"a\":\"../model-1.safetensors\"}"), HasSubstr("not the name of a file beside it"));
  EXPECT_THAT(index("{\"a\":5}"), HasSubstr("not the name"));
  EXPECT_THAT(index("{\"a\":\"model-1.safetensors\",\"a\":\"model-1.safetensors\"}"), HasSubstr("twice"));
  write_sharded(dir);
  const std::string header = "\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}";
  write_file(dir / "model-2.safetensors", safetensors("{\"a" + header, raw(std::vector<float>{3, 4})));
  EXPECT_NE(error(), "");
  write_sharded(dir);
  for (const char* config : {"", "[1]", "5", "{\"a\":1,\"a\":2}", "{\"a\":", "{\"a\":1}x", "\xff\xfe"}) {
    write_file(dir / "config.json", config);
    EXPECT_THAT(error(), HasSubstr("config.json")) << config;
  }
  write_file(dir / "config.json", std::string(200000, '['));
  EXPECT_NE(error(), "");
}

TEST(Json, MemoryIsBounded) {
  std::string text = "{\"a\":{";
  for (int i = 0; i < 800000; ++i) text += fmt::format("{}\"{:x}\":1", i ? "," : "", i);
  text += "}}";
  Metadata out("x");
  EXPECT_THAT(message_of([&] { add_json(out, text, "x.json"); }), HasSubstr("memory"));
}

/// A checkpoint of one FP8 matrix [rows, columns] and a scale of the given shape.
void check_fp8(const std::string& suffix, int64_t rows, int64_t columns,
               const std::vector<int64_t>& scale_shape, const std::string& config,
               const std::function<int64_t(int64_t, int64_t)>& scale_index) {
  TempDir dir;
  write_file(dir / "config.json", config);
  Random random(millrace::testing::seed());
  std::vector<float> exact(static_cast<size_t>(rows * columns)), scales;
  for (float& v : exact) v = static_cast<float>(static_cast<int>(random.below(15)) - 7);  // exact in E4M3
  int64_t count = 1;
  for (const int64_t n : scale_shape) count *= n;
  for (int64_t i = 0; i < count; ++i) scales.push_back(0.25f + static_cast<float>(i));
  std::string codes(exact.size(), '\0');
  quant::traits(DType::kF8E4M3)
      .encode(exact.data(), codes.data(), static_cast<int64_t>(exact.size()), nullptr);
  const auto bytes = static_cast<int64_t>(codes.size());
  write_file(
      dir / "model.safetensors",
      safetensors(
          fmt::format("{{\"w\":{{\"dtype\":\"F8_E4M3\",\"shape\":[{},{}],\"data_offsets\":[0,{}]}},\"w{}\":{{"
                      "\"dtype\":\"F32\",\"shape\":[{}],\"data_offsets\":[{},{}]}}}}",
                      rows, columns, bytes, suffix, fmt::join(scale_shape, ","), bytes, bytes + count * 4),
          codes + raw(scales)));
  const Checkpoint c = open_hugging_face(dir.path());
  const RowReader reader(c, *c.find("w"));
  EXPECT_TRUE(reader.scaled());
  EXPECT_TRUE(is_scale(c, *c.find("w" + suffix)));
  EXPECT_FALSE(is_scale(c, *c.find("w")));
  ASSERT_EQ(reader.rows(), rows);
  ASSERT_EQ(reader.columns(), columns);
  std::vector<float> row(static_cast<size_t>(columns * 2));
  for (int64_t r = 0; r + 1 < rows; r += 2) {
    reader.read(r, 2, row.data());
    for (int64_t i = 0; i < 2 * columns; ++i)
      ASSERT_EQ(row[static_cast<size_t>(i)],
                exact[static_cast<size_t>(r * columns + i)] *
                    scales[static_cast<size_t>(scale_index(r + i / columns, i % columns))])
          << r << " " << i;
  }
}

TEST(Dequant, Fp8ScalesOfEveryArrangement) {
  check_fp8("_scale", 6, 10, {}, "{}", [](int64_t, int64_t) { return 0; });
  check_fp8("_scale", 6, 10, {1}, "{}", [](int64_t, int64_t) { return 0; });
  check_fp8("_scale", 6, 10, {6}, "{}", [](int64_t r, int64_t) { return r; });
  check_fp8("_scale", 6, 10, {6, 1}, "{}", [](int64_t r, int64_t) { return r; });
  check_fp8("_scale_inv", 200, 300, {2, 3}, "{}", [](int64_t r, int64_t c) { return r / 128 * 3 + c / 128; });
  check_fp8("_scale_inv", 6, 10, {2, 3}, "{\"quantization_config\":{\"weight_block_size\":[4,4]}}",
            [](int64_t r, int64_t c) { return r / 4 * 3 + c / 4; });
}

TEST(Dequant, RefusesScalesThatDoNotFit) {
  EXPECT_THAT(message_of([] {
                check_fp8("_scale", 6, 10, {4, 5, 7}, "{}", [](int64_t, int64_t) { return 0; });
              }),
              HasSubstr("expected one number, one a row or one a block"));
}

}  // namespace
}  // namespace millrace::loaders
