#include "loaders/synthetic.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "core/error.h"
#include "loaders/checkpoint.h"
#include "quant/traits.h"
#include "testing/testing.h"

namespace millrace::loaders {
namespace {

TEST(Synthetic, VocabularyIsCompleteAndConsistent) {
  for (const int32_t size : {260, 1000, 32000, 128256, 262208}) {
    const SyntheticVocabulary v = make_synthetic_vocabulary(size);
    ASSERT_EQ(v.tokens.size(), static_cast<size_t>(size));
    ASSERT_EQ(v.types.size(), v.tokens.size());
    const std::set<std::string> tokens(v.tokens.begin(), v.tokens.end());
    ASSERT_EQ(tokens.size(), v.tokens.size());
    ASSERT_EQ(v.merges.size() + 260, v.tokens.size());
    for (const std::string& merge : v.merges) {
      const size_t space = merge.find(' ');
      ASSERT_TRUE(tokens.count(merge.substr(0, space)) && tokens.count(merge.substr(space + 1))) << merge;
      ASSERT_TRUE(tokens.count(merge.substr(0, space) + merge.substr(space + 1))) << merge;
    }
    EXPECT_EQ(v.tokens[v.turn_end], "<|im_end|>");
  }
  EXPECT_THROW(make_synthetic_vocabulary(259), Error);
  EXPECT_THROW(make_synthetic_vocabulary(1 << 20), Error);
}

TEST(Synthetic, FilesHaveTheShapeAndSensibleValues) {
  testing::TempDir dir;
  ThreadPool pool(2);
  SyntheticOptions options;
  options.layers = 1;
  for (const DType type : {DType::kQ4_K, DType::kQ8_0, DType::kBF16}) {
    options.type = type;
    const SyntheticShape& shape = find_synthetic_shape("smollm2-135m");
    const uint64_t size = write_synthetic(shape, options, dir / "m.gguf", pool);
    EXPECT_EQ(std::filesystem::file_size(dir / "m.gguf"), size);
    const Checkpoint c = open_gguf(dir / "m.gguf");
    EXPECT_EQ(c.metadata.get_int("llama.block_count"), 1);
    EXPECT_EQ(c.metadata.find_strings("tokenizer.ggml.tokens")->size(), 49152u);
    const TensorEntry* q = c.find("blk.0.attn_q.weight");
    ASSERT_TRUE(q);
    EXPECT_EQ(q->shape, (Shape{576, 576}));
    // 576 columns are no whole number of 256-element blocks.
    EXPECT_EQ(q->dtype, type == DType::kQ4_K ? DType::kQ5_0 : type);
    for (const TensorEntry& t : c.tensors) {
      std::vector<float> values(static_cast<size_t>(std::min<int64_t>(t.shape.elements(), 1 << 16)));
      quant::traits(t.dtype).decode(t.data, values.data(), static_cast<int64_t>(values.size()));
      double sum = 0, squares = 0;
      for (const float v : values) {
        ASSERT_TRUE(std::isfinite(v)) << t.name;
        sum += v;
        squares += static_cast<double>(v) * v;
      }
      const auto n = static_cast<double>(values.size());
      const bool norm = t.name.find("norm") != std::string::npos;
      EXPECT_NEAR(sum / n, norm ? 1 : 0, 0.03) << t.name;
      if (norm) continue;
      EXPECT_LT(std::sqrt(squares / n), 0.05) << t.name;
      EXPECT_GT(std::sqrt(squares / n), 0.005) << t.name;
    }
  }
}

TEST(Synthetic, SeedsRepeatAndDiffer) {
  testing::TempDir dir;
  ThreadPool one(1), two(2);
  SyntheticOptions options;
  options.layers = 1;
  const SyntheticShape& shape = find_synthetic_shape("smollm2-135m");
  write_synthetic(shape, options, dir / "a.gguf", one);
  write_synthetic(shape, options, dir / "b.gguf", two);
  options.seed = 2;
  write_synthetic(shape, options, dir / "c.gguf", two);
  const std::string a = testing::read_file(dir / "a.gguf");
  EXPECT_TRUE(a == testing::read_file(dir / "b.gguf"));
  EXPECT_FALSE(a == testing::read_file(dir / "c.gguf"));
}

TEST(Synthetic, RefusesWhatItCannotWrite) {
  testing::TempDir dir;
  ThreadPool pool(1);
  SyntheticOptions options;
  EXPECT_THROW(find_synthetic_shape("llama-9"), Error);
  options.type = DType::kF8E4M3;
  EXPECT_THROW(write_synthetic(find_synthetic_shape("smollm2-135m"), options, dir / "m.gguf", pool), Error);
  options.type = DType::kI32;
  EXPECT_THROW(write_synthetic(find_synthetic_shape("smollm2-135m"), options, dir / "m.gguf", pool), Error);
  options.type = DType::kF32;
  options.layers = 31;
  EXPECT_THROW(write_synthetic(find_synthetic_shape("smollm2-135m"), options, dir / "m.gguf", pool), Error);
  EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
  EXPECT_EQ(type_for_columns(DType::kQ4_K, 576), DType::kQ5_0);
  EXPECT_EQ(type_for_columns(DType::kQ4_K, 100), DType::kF16);
  EXPECT_EQ(type_for_columns(DType::kIQ2_S, 96), DType::kIQ4_NL);
  EXPECT_EQ(type_for_output(DType::kQ4_K), DType::kQ6_K);
  EXPECT_EQ(type_for_output(DType::kQ4_0), DType::kQ4_0);
}

}  // namespace
}  // namespace millrace::loaders
