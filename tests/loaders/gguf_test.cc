#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstring>
#include <vector>

#include "core/cpu.h"
#include "core/error.h"
#include "core/random.h"
#include "loaders/checkpoint.h"
#include "loaders/ggml_types.h"
#include "loaders/gguf_bytes.h"
#include "loaders/gguf_writer.h"
#include "quant/traits.h"
#include "testing/testing.h"

namespace millrace::loaders {
namespace {

using millrace::testing::GgufBytes;
using millrace::testing::TempDir;
using millrace::testing::write_file;
using ::testing::HasSubstr;

/// Opens bytes as a file; returns the error's sentence, or "" when it opens.
std::string error_of(const TempDir& dir, const std::string& bytes) {
  write_file(dir / "case.gguf", bytes);
  try {
    open_gguf(dir / "case.gguf");
  } catch (const Error& e) {
    EXPECT_NE(e.code(), ErrorCode::kInternal) << e.what();
    EXPECT_EQ(std::string(e.what()).find('\n'), std::string::npos) << e.what();
    return e.what();
  }
  return "";
}

/// Opens bytes and touches everything that a reader could: metadata, shapes, and all tensor data.
uint64_t open_and_touch(const std::filesystem::path& path) {
  const Checkpoint checkpoint = open_gguf(path);
  uint64_t sum = 0;
  for (const TensorEntry& t : checkpoint.tensors) {
    EXPECT_EQ(checkpoint.find(t.name), &t);
    EXPECT_GT(t.shape.elements(), 0);
    for (uint64_t i = 0; i < t.bytes; ++i) sum += std::to_integer<uint64_t>(t.data[i]);
  }
  return sum;
}

std::vector<DType> gguf_types() {
  std::vector<DType> types;
  for (size_t i = 0; i < static_cast<size_t>(DType::kCount); ++i)
    if (ggml_from_dtype(static_cast<DType>(i))) types.push_back(static_cast<DType>(i));
  return types;
}

/// A file with every metadata kind and a tensor of every type, whose bytes count up.
void write_small_file(const std::filesystem::path& path) {
  GgufWriter out(path);
  out.set_string("general.architecture", "llama");
  out.set_u32("llama.block_count", 2);
  out.set_i32("test.i32", -5);
  out.set_u64("test.u64", ~uint64_t{0});
  out.set_f32("test.f32", 0.5f);
  out.set_bool("test.bool", true);
  out.set_strings("test.strings", {"one", "", "a longer string than fits in place"});
  out.set_i32s("test.i32s", {1, -2, 3});
  out.set_f32s("test.f32s", {0.25f, -1.0f});
  out.set("test.bools", std::vector<bool>{true, false});
  std::vector<size_t> ids;
  for (const DType type : gguf_types())
    ids.push_back(out.add_tensor(fmt::format("t.{}", dtype_name(type)), type, {2, 256}));
  out.write_header();
  for (const size_t id : ids) {
    std::string bytes(out.tensor_bytes(id), '\0');
    for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * 7 + id);
    // In two pieces, the second first.
    const size_t half = bytes.size() / 2;
    out.write(id, half, bytes.data() + half, bytes.size() - half);
    out.write(id, 0, bytes.data(), half);
  }
  const uint64_t announced = out.file_bytes();
  out.finish();
  EXPECT_EQ(std::filesystem::file_size(path), announced);
}

TEST(Gguf, WhatTheWriterWritesTheReaderReads) {
  TempDir dir;
  write_small_file(dir / "small.gguf");
  EXPECT_FALSE(std::filesystem::exists(dir / "small.gguf.partial"));
  const Checkpoint c = open_checkpoint(dir / "small.gguf");
  EXPECT_EQ(c.metadata.get_string("general.architecture"), "llama");
  EXPECT_EQ(c.metadata.get_int("llama.block_count"), 2);
  EXPECT_EQ(c.metadata.get_int("test.i32"), -5);
  EXPECT_EQ(std::get<uint64_t>(*c.metadata.find("test.u64")), ~uint64_t{0});
  EXPECT_THROW(c.metadata.get_int("test.u64"), Error);
  EXPECT_EQ(c.metadata.get_float("test.f32"), 0.5);
  EXPECT_EQ(c.metadata.get_float("test.i32"), -5.0);
  EXPECT_EQ(c.metadata.find_bool("test.bool"), true);
  EXPECT_EQ(c.metadata.find_strings("test.strings")->at(2), "a longer string than fits in place");
  EXPECT_EQ(c.metadata.find_ints("test.i32s"), (std::vector<int64_t>{1, -2, 3}));
  EXPECT_EQ(c.metadata.find_ints("test.bools"), (std::vector<int64_t>{1, 0}));
  EXPECT_EQ(c.metadata.find_floats("test.f32s"), (std::vector<float>{0.25f, -1.0f}));
  EXPECT_EQ(c.metadata.find_int("absent"), std::nullopt);
  EXPECT_EQ(c.metadata.find_strings("absent"), nullptr);
  size_t id = 0;
  for (const DType type : gguf_types()) {
    const TensorEntry* t = c.find(fmt::format("t.{}", dtype_name(type)));
    ASSERT_TRUE(t);
    EXPECT_EQ(t->dtype, type);
    EXPECT_EQ(t->shape, (Shape{2, 256}));
    ASSERT_EQ(t->bytes, 2 * quant::row_bytes(type, 256).value());
    EXPECT_EQ(reinterpret_cast<uintptr_t>(t->data) % 32, 0u);
    for (uint64_t i = 0; i < t->bytes; ++i)
      ASSERT_EQ(static_cast<char>(t->data[i]), static_cast<char>(i * 7 + id)) << t->name;
    ++id;
  }
  EXPECT_EQ(id, 33u);
  EXPECT_EQ(c.find("nothing"), nullptr);
}

TEST(Gguf, ReadsAllValueTypesOfBothVersions) {
  TempDir dir;
  for (const uint32_t version : {2u, 3u}) {
    GgufBytes b(version, 0, 15);
    b.key("u8", 0).put<uint8_t>(200).key("i8", 1).put<int8_t>(-100).key("u16", 2).put<uint16_t>(60000);
    b.key("i16", 3).put<int16_t>(-30000).key("u32", 4).put(4000000000u).key("i32", 5).put(-2000000000);
    b.key("f32", 6).put(1.5f).key("bool", 7).put<uint8_t>(1).key("string", 8).text("héllo");
    b.key("u64", 10)
        .put<uint64_t>(1ull << 63)
        .key("i64", 11)
        .put<int64_t>(-(1ll << 62))
        .key("f64", 12)
        .put(1e300);
    b.array("u8s", 0, 3).put<uint8_t>(1).put<uint8_t>(2).put<uint8_t>(255);
    b.array("f64s", 12, 2).put(0.125).put(-1e-300);
    // Two arrays inside one: read as their elements in order.
    b.array("nested", 9, 2).put(5u).put<uint64_t>(2).put(7).put(-8).put(5u).put<uint64_t>(1).put(9);
    write_file(dir / "types.gguf", b.bytes());
    const Metadata m = open_gguf(dir / "types.gguf").metadata;
    EXPECT_EQ(m.get_int("u8"), 200);
    EXPECT_EQ(m.get_int("i8"), -100);
    EXPECT_EQ(m.get_int("u16"), 60000);
    EXPECT_EQ(m.get_int("i16"), -30000);
    EXPECT_EQ(m.get_int("u32"), 4000000000);
    EXPECT_EQ(m.get_int("i32"), -2000000000);
    EXPECT_EQ(m.get_float("f32"), 1.5);
    EXPECT_EQ(m.find_bool("bool"), true);
    EXPECT_EQ(m.get_string("string"), "héllo");
    EXPECT_EQ(m.get_float("u64"), 0x1p63);
    EXPECT_EQ(m.get_int("i64"), -(1ll << 62));
    EXPECT_EQ(m.get_float("f64"), 1e300);
    EXPECT_EQ(m.find_ints("u8s"), (std::vector<int64_t>{1, 2, 255}));
    EXPECT_EQ(std::get<std::vector<double>>(*m.find("f64s")), (std::vector<double>{0.125, -1e-300}));
    EXPECT_EQ(m.find_ints("nested"), (std::vector<int64_t>{7, -8, 9}));
    EXPECT_EQ(m.entries().size(), 15u);
  }
}

TEST(Gguf, MetadataErrorsNameKeyAndExpectation) {
  Metadata m("file.gguf");
  m.set("text", std::string("x"));
  m.set("number", 1.5);
  const auto message = [&](auto read) -> std::string {
    try {
      read();
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::kInvalidFile);
      return e.what();
    }
    return "";
  };
  EXPECT_EQ(message([&] { m.get_int("text"); }),
            "file.gguf: metadata key 'text' is a string: expected an integer");
  EXPECT_EQ(message([&] { m.get_int("gone"); }),
            "file.gguf: metadata key 'gone' is missing: expected an integer");
  EXPECT_EQ(message([&] { m.get_int("number"); }),
            "file.gguf: metadata key 'number' is a number: expected an integer");
  EXPECT_EQ(message([&] { m.find_strings("text"); }),
            "file.gguf: metadata key 'text' is a string: expected an array of strings");
}

TEST(Gguf, RefusesWhatIsNoGgufFile) {
  TempDir dir;
  EXPECT_THAT(error_of(dir, ""), HasSubstr("ends at byte 0"));
  EXPECT_THAT(error_of(dir, "GGUF"), HasSubstr("ends at byte 4"));
  EXPECT_THAT(error_of(dir, "GGML and more"), HasSubstr("not a GGUF file"));
  EXPECT_THAT(error_of(dir, GgufBytes(1).bytes()), HasSubstr("version 1: expected 2 or 3"));
  EXPECT_THAT(error_of(dir, GgufBytes(0x03000000).bytes()), HasSubstr("big-endian"));
  try {
    open_checkpoint(dir / "missing.gguf");
    ADD_FAILURE();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kNotFound);
  }
}

TEST(Gguf, RefusesCountsAndLengthsBeyondTheFile) {
  TempDir dir;
  EXPECT_THAT(error_of(dir, GgufBytes(3, ~uint64_t{0}, 0).bytes()), HasSubstr("announces"));
  EXPECT_THAT(error_of(dir, GgufBytes(3, 0, uint64_t{1} << 60).bytes()), HasSubstr("announces"));
  EXPECT_THAT(error_of(dir, GgufBytes(3, 0, 1).put(uint64_t{1} << 32).zeros(64).bytes()),
              HasSubstr("length of 4294967296"));
  EXPECT_THAT(error_of(dir, GgufBytes(3, 0, 1).key("s", 8).put(uint64_t{1} << 32).zeros(64).bytes()),
              HasSubstr("length of 4294967296"));
  EXPECT_THAT(error_of(dir, GgufBytes(3, 0, 1).array("a", 10, uint64_t{1} << 61).zeros(64).bytes()),
              HasSubstr("more than the"));
  EXPECT_THAT(error_of(dir, GgufBytes(3, 0, 1).array("a", 8, 1000).zeros(64).bytes()),
              HasSubstr("more than the"));
  EXPECT_THAT(error_of(dir, GgufBytes(3, 0, 1).array("a", 13, 1).zeros(64).bytes()),
              HasSubstr("value type 13"));
  EXPECT_THAT(error_of(dir, GgufBytes(3, 0, 1).key("b", 7).put<uint8_t>(2).bytes()),
              HasSubstr("expected 0 or 1"));
  EXPECT_THAT(error_of(dir, GgufBytes(3, 0, 1).key("", 0).put<uint8_t>(2).bytes()), HasSubstr("0 bytes"));
  EXPECT_THAT(
      error_of(dir, GgufBytes(3, 0, 2).key("k", 0).put<uint8_t>(2).key("k", 0).put<uint8_t>(2).bytes()),
      HasSubstr("'k' appears twice"));
  GgufBytes deep(3, 0, 1);
  deep.key("deep", 9);
  for (int i = 0; i < 50; ++i) deep.put(9u).put<uint64_t>(1);
  EXPECT_THAT(error_of(dir, deep.zeros(64).bytes()), HasSubstr("deeper than 8"));
}

TEST(Gguf, RefusesTensorsThatCannotBe) {
  TempDir dir;
  const auto with = [&](auto... tensor) {
    return error_of(dir, GgufBytes(3, 1, 0).tensor(tensor...).pad().zeros(4096).bytes());
  };
  using Sizes = std::initializer_list<uint64_t>;
  EXPECT_EQ(with("t", Sizes{64, 2}, 0u, uint64_t{0}), "");
  EXPECT_THAT(with("t", Sizes{}, 0u, uint64_t{0}), HasSubstr("0 dimensions"));
  EXPECT_THAT(with("t", Sizes{1, 1, 1, 1, 1}, 0u, uint64_t{0}), HasSubstr("5 dimensions"));
  EXPECT_THAT(with("t", Sizes{64, 0}, 0u, uint64_t{0}), HasSubstr("size 0"));
  EXPECT_THAT(with("t", Sizes{uint64_t{1} << 40, uint64_t{1} << 40}, 0u, uint64_t{0}), HasSubstr("product"));
  EXPECT_THAT(with("t", Sizes{uint64_t{1} << 62}, 28u, uint64_t{0}), HasSubstr("2^64"));
  EXPECT_THAT(with("t", Sizes{65}, 12u, uint64_t{0}), HasSubstr("multiple of 256"));
  EXPECT_THAT(with("t", Sizes{64}, 4u, uint64_t{0}), HasSubstr("storage type number 4"));
  EXPECT_THAT(with("t", Sizes{64}, 4000u, uint64_t{0}), HasSubstr("storage type number 4000"));
  EXPECT_THAT(with("t", Sizes{64}, 0u, uint64_t{4}), HasSubstr("multiple of the alignment"));
  EXPECT_THAT(with("t", Sizes{64}, 0u, uint64_t{4096}), HasSubstr("beyond the file's end"));
  EXPECT_THAT(with("t", Sizes{64}, 0u, ~uint64_t{31}), HasSubstr("beyond the file's end"));
  EXPECT_THAT(with("", Sizes{64}, 0u, uint64_t{0}), HasSubstr("name"));
  const auto two = [&](const char* name, uint64_t offset) {
    return error_of(
        dir,
        GgufBytes(3, 2, 0).tensor("a", {64}, 0, 0).tensor(name, {64}, 0, offset).pad().zeros(4096).bytes());
  };
  EXPECT_EQ(two("b", 256), "");
  EXPECT_THAT(two("b", 224), HasSubstr("'a' and 'b' overlap"));
  EXPECT_THAT(two("a", 256), HasSubstr("'a' appears twice"));
}

TEST(Gguf, AlignmentIsRead) {
  TempDir dir;
  GgufWriter out(dir / "aligned.gguf", 4096);
  const size_t a = out.add_tensor("a", DType::kF32, {3}), b = out.add_tensor("b", DType::kF32, {2});
  out.write_header();
  const float values[] = {1, 2, 3};
  out.write(a, 0, values, 12);
  out.write(b, 0, values, 8);
  out.finish();
  const Checkpoint c = open_gguf(dir / "aligned.gguf");
  EXPECT_EQ(reinterpret_cast<uintptr_t>(c.find("b")->data) % 4096, 0u);
  EXPECT_EQ(c.find("b")->view().f32()[1], 2.0f);
  for (const uint32_t wrong : {0u, 3u, 4u, 48u, 0x80000000u})
    EXPECT_THAT(error_of(dir, GgufBytes(3, 0, 1).key("general.alignment", 4).put(wrong).bytes()),
                HasSubstr("general.alignment"));
  EXPECT_THAT(error_of(dir, GgufBytes(3, 0, 1).key("general.alignment", 8).text("x").bytes()),
              HasSubstr("expected an integer"));
}

TEST(Gguf, EveryTruncationIsRefused) {
  TempDir dir;
  write_small_file(dir / "small.gguf");
  const std::string whole = millrace::testing::read_file(dir / "small.gguf");
  // The padding after the last tensor is no data; without it the file is still complete.
  uint64_t end = 0;
  {
    const Checkpoint c = open_gguf(dir / "small.gguf");
    const TensorEntry& last = c.tensors.back();
    end = static_cast<uint64_t>(last.data + last.bytes - last.file->bytes().data());
  }
  // From the end down, so that each case is a truncation of the last; deep in the data, a step is as good as
  // a byte.
  for (size_t length = end - 1; length > 0; length -= std::min<size_t>(length, length > 4096 ? 23 : 1)) {
    std::filesystem::resize_file(dir / "small.gguf", length);
    EXPECT_THROW(open_gguf(dir / "small.gguf"), Error) << length;
  }
  EXPECT_EQ(error_of(dir, whole), "");
}

TEST(Gguf, EveryTruncationOfARealFileIsRefused) {
  MILLRACE_NEED_SHARED(path, "models/stories260K.gguf");
  const std::string whole = millrace::testing::read_file(path);
  TempDir dir;
  write_file(dir / "case.gguf", whole);
  // From the end down, so that each case is one truncation of the last.
  const size_t step = 1999;
  for (size_t length = whole.size() - 1; length > 0; length -= std::min(length, length > 12000 ? step : 7)) {
    std::filesystem::resize_file(dir / "case.gguf", length);
    EXPECT_THROW(open_gguf(dir / "case.gguf"), Error) << length;
  }
}

TEST(Gguf, MutatedHeadersOpenOrAreRefusedAndNothingElse) {
  TempDir dir;
  write_small_file(dir / "small.gguf");
  const std::string whole = millrace::testing::read_file(dir / "small.gguf");
  Random random(millrace::testing::seed());
  const uint64_t odd[] = {0,
                          1,
                          0x7f,
                          0xff,
                          0xffff,
                          0x7fffffff,
                          0xffffffff,
                          uint64_t{1} << 32,
                          uint64_t{1} << 63,
                          ~uint64_t{0},
                          ~uint64_t{0} - 31};
  int refused = 0;
  const int64_t rounds = millrace::testing::scaled(1000);
  for (int64_t round = 0; round < rounds; ++round) {
    std::string mutant = whole;
    for (uint32_t edits = 1 + random.below(3); edits > 0; --edits) {
      const size_t at = random.below(2400);  // the header and the first tensors
      const uint32_t width = 1u << random.below(4);
      const uint64_t value = random.below(2) ? odd[random.below(11)] : random.next64();
      std::memcpy(mutant.data() + at, &value, width);
    }
    write_file(dir / "case.gguf", mutant);
    try {
      open_and_touch(dir / "case.gguf");
    } catch (const Error& e) {
      ASSERT_NE(e.code(), ErrorCode::kInternal) << e.what();
      ++refused;
    }
  }
  EXPECT_GT(refused, rounds / 4);
}

TEST(Gguf, MemoryStaysWithinTwiceTheFile) {
  // Four million empty strings: 32 MB of file that would be 128 MB of std::string.
  TempDir dir;
  constexpr uint64_t kCount = 4'000'000;
  const uint64_t before = peak_resident_bytes();
  {
    const std::string bytes = GgufBytes(3, 0, 1).array("a", 8, kCount).zeros(kCount * 8).bytes();
    write_file(dir / "case.gguf", bytes);
  }
  const uint64_t written = peak_resident_bytes();
  EXPECT_THROW(open_gguf(dir / "case.gguf"), Error);
  // What the refusal took is at most the limit (and the pages of the map that were read).
  EXPECT_LT(peak_resident_bytes(), std::max(before, written) + 3 * kCount * 8 + (16u << 20));
  // Bytes as 64-bit integers are eight times the file as well.
  EXPECT_THAT(error_of(dir, GgufBytes(3, 0, 1).array("a", 0, 30'000'000).zeros(30'000'000).bytes()),
              HasSubstr("more memory than twice the file"));
}

TEST(Gguf, AVocabularyFitsTheBudget) {
  TempDir dir;
  GgufWriter out(dir / "vocabulary.gguf");
  std::vector<std::string> tokens, merges;
  for (int i = 0; i < 262144; ++i) tokens.push_back(fmt::format("t{}", i));
  for (int i = 0; i < 515000; ++i) merges.push_back(fmt::format("a{} b{}", i % 700, i / 700));
  out.set_strings("tokenizer.ggml.tokens", tokens);
  out.set_strings("tokenizer.ggml.merges", merges);
  out.set_f32s("tokenizer.ggml.scores", std::vector<float>(262144));
  out.set_i32s("tokenizer.ggml.token_type", std::vector<int32_t>(262144, 1));
  out.finish();
  EXPECT_EQ(open_gguf(dir / "vocabulary.gguf").metadata.find_strings("tokenizer.ggml.tokens")->size(),
            262144u);
}

TEST(Gguf, SplitFilesAreReadAsOne) {
  TempDir dir;
  const auto write_part = [&](uint16_t number, uint16_t count, const char* tensor, const char* name) {
    GgufBytes b(3, 1, 3);
    b.key("split.no", 2).put(number).key("split.count", 2).put(count).key("split.tensors.count", 5).put(3);
    b.tensor(tensor, {8}, 0, 0).pad();
    for (int i = 0; i < 8; ++i) b.put(static_cast<float>(number * 10 + i));
    write_file(dir / name, b.bytes());
  };
  write_part(0, 3, "a", "m-00001-of-00003.gguf");
  write_part(1, 3, "b", "m-00002-of-00003.gguf");
  EXPECT_THROW(open_gguf(dir / "m-00001-of-00003.gguf"), Error);  // the third is missing
  write_part(2, 3, "c", "m-00003-of-00003.gguf");
  for (const char* name : {"m-00001-of-00003.gguf", "m-00002-of-00003.gguf"}) {
    const Checkpoint c = open_gguf(dir / name);
    ASSERT_EQ(c.tensors.size(), 3u);
    EXPECT_EQ(c.find("a")->view().f32()[1], 1.0f);
    EXPECT_EQ(c.find("c")->view().f32()[7], 27.0f);
  }
  write_part(1, 3, "a", "m-00002-of-00003.gguf");
  EXPECT_THROW(open_gguf(dir / "m-00001-of-00003.gguf"), Error);  // 'a' twice
  write_part(2, 3, "b", "m-00002-of-00003.gguf");
  EXPECT_THROW(open_gguf(dir / "m-00001-of-00003.gguf"), Error);  // says it is the third
  write_part(0, 3, "a", "odd-name.gguf");
  EXPECT_THROW(open_gguf(dir / "odd-name.gguf"), Error);
}

TEST(Gguf, AHundredGigabytesOpenWithoutTouchingWeights) {
  TempDir dir;
  constexpr uint64_t kColumns = 8192, kRows = 3'200'000;  // 105 GB of F32
  GgufBytes b(3, 1, 0);
  b.tensor("huge", {kColumns, kRows}, 0, 0).pad();
  write_file(dir / "huge.gguf", b.bytes());
  std::error_code error;
  std::filesystem::resize_file(dir / "huge.gguf", b.bytes().size() + kColumns * kRows * 4, error);
  if (error)
    GTEST_SKIP() << "skipped: the file system here takes no sparse file of 105 GB: " << error.message();
  const uint64_t before = resident_bytes();
  const Checkpoint c = open_gguf(dir / "huge.gguf");
  EXPECT_EQ(c.tensors[0].bytes, kColumns * kRows * 4);
  EXPECT_LT(resident_bytes(), before + (4u << 20));
}

TEST(GgufWriter, RefusesMistakesAndLeavesNothingBehind) {
  TempDir dir;
  {
    GgufWriter out(dir / "x.gguf");
    out.set_u32("a", 1);
    EXPECT_THROW(out.set_u32("a", 2), Error);
    EXPECT_THROW(out.add_tensor("t", DType::kF8E4M3, {4}), Error);
    EXPECT_THROW(out.add_tensor("t", DType::kQ4_K, {4, 100}), Error);
    EXPECT_THROW(out.add_tensor("t", DType::kF32, {4, 0}), Error);
    const size_t t = out.add_tensor("t", DType::kF32, {4});
    EXPECT_THROW(out.add_tensor("t", DType::kF32, {4}), Error);
    const float data[4] = {};
    EXPECT_THROW(out.write(t, 0, data, 16), Error);  // before the header
    out.write_header();
    EXPECT_THROW(out.write(t, 4, data, 16), Error);
    out.write(t, 0, data, 8);
    EXPECT_THROW(out.finish(), Error);  // half the data
    EXPECT_THROW(out.set_u32("late", 1), Error);
  }
  EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
  EXPECT_THROW(GgufWriter(dir / "no-such-folder/x.gguf"), Error);
}

}  // namespace
}  // namespace millrace::loaders
