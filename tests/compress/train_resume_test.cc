// The training loop: exact resumption, learning at all, and refusals.

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "compress/train/export.h"
#include "compress/train/trainer.h"
#include "core/error.h"
#include "core/random.h"
#include "testing/testing.h"

namespace millrace::train {
namespace {

/// Documents in which a run of tokens comes twice: learnable, and different every time.
void write_tokens(const std::filesystem::path& path, uint64_t seed) {
  Random random(seed);
  std::vector<uint32_t> lengths;
  std::vector<uint16_t> tokens;
  for (int document = 0; document < 200; ++document) {
    const uint32_t half = 4 + random.below(12);
    const auto start = static_cast<uint16_t>(random.below(40));
    for (uint32_t i = 0; i < 2 * half; ++i) tokens.push_back(static_cast<uint16_t>((start + i % half) % 64));
    lengths.push_back(2 * half);
  }
  std::ofstream out(path, std::ios::binary);
  const uint32_t header[4] = {1, 64, static_cast<uint32_t>(lengths.size()), 0};
  out.write("MRTOKENS", 8);
  out.write(reinterpret_cast<const char*>(header), sizeof header);
  out.write(reinterpret_cast<const char*>(lengths.data()), static_cast<std::streamsize>(lengths.size() * 4));
  out.write(reinterpret_cast<const char*>(tokens.data()), static_cast<std::streamsize>(tokens.size() * 2));
  out << std::string(tokens.size(), '\1');
}

std::string config_text(const std::string& output, const std::string& extra = "") {
  return R"({"data": "train.bin", "validation": "train.bin", "output": ")" + output +
         R"(", "steps": 20, "batch_tokens": 256, "micro_batch_tokens": 128, "context": 64, "warmup_steps": 4,
            "learning_rate": 0.01, "threads": 2, "validate_every_steps": 0, )" +
         extra +
         R"("model": {"vocab_size": 64, "dim": 64, "layers": 2, "heads": 2, "kv_heads": 1, "head_dim": 32,
            "feed_forward": 96}})";
}

class TrainRun : public ::testing::Test {
 protected:
  void SetUp() override { write_tokens(folder_ / "train.bin", 5); }

  TrainConfig config(const std::string& output, const std::string& extra = "") {
    return parse_config(config_text(output, extra), folder_.path());
  }

  testing::TempDir folder_;
  ThreadPool pool_{2};
};

TEST_F(TrainRun, ResumingGivesTheSameBits) {
  for (const std::string extra : {"", R"("arithmetic": "bf16", "orthogonal_attention": true, )"}) {
    Trainer whole(config("whole", extra), pool_, /*resume=*/false);
    whole.run();
    {
      Trainer first(config("parts", extra), pool_, /*resume=*/false);
      first.run(/*until=*/10);
      EXPECT_EQ(first.step(), 10);
    }
    Trainer second(config("parts", extra), pool_, /*resume=*/true);
    EXPECT_EQ(second.step(), 10);
    second.run();
    const auto a = whole.model().parameters(), b = second.model().parameters();
    ASSERT_EQ(a.size(), b.size());
    EXPECT_EQ(std::memcmp(a.data(), b.data(), a.size_bytes()), 0) << "resumed weights differ with " << extra;
    ASSERT_EQ(whole.curve().training.size(), second.curve().training.size());
    EXPECT_EQ(whole.curve().training.back().loss, second.curve().training.back().loss);
  }
}

TEST_F(TrainRun, LossFallsWellBelowThatOfGuessing) {
  Trainer trainer(config("learn", R"("arithmetic": "bf16", )"), pool_, /*resume=*/false);
  const double before = trainer.validate();
  EXPECT_NEAR(before, std::log(64.0), 0.3);
  trainer.run();
  EXPECT_LT(trainer.validate(), 0.7 * before);
}

TEST_F(TrainRun, DamagedCheckpointsAreRefused) {
  Trainer trainer(config("damaged"), pool_, /*resume=*/false);
  trainer.run(/*until=*/1);
  const auto path = folder_ / "damaged/checkpoint.bin";
  const std::string good = testing::read_file(path);
  for (const size_t keep : {size_t{0}, size_t{7}, size_t{40}, good.size() / 2, good.size() - 1}) {
    testing::write_file(path, good.substr(0, keep));
    EXPECT_THROW(Trainer(config("damaged"), pool_, /*resume=*/true), Error)
        << keep << " bytes of " << good.size();
  }
  std::string wrong = good;
  wrong[0] ^= 1;
  testing::write_file(path, wrong);
  EXPECT_THROW(Trainer(config("damaged"), pool_, /*resume=*/true), Error);
}

TEST_F(TrainRun, DamagedTokenFilesAreRefused) {
  const std::string good = testing::read_file(folder_ / "train.bin");
  for (const size_t keep : {size_t{0}, size_t{10}, size_t{30}, good.size() - 1}) {
    testing::write_file(folder_ / "train.bin", good.substr(0, keep));
    EXPECT_THROW(Dataset(folder_ / "train.bin"), Error) << keep << " bytes of " << good.size();
  }
  std::string beyond = good;
  beyond[24 + 200 * 4 + 1] = 1;  // first token becomes 256 or more of a vocabulary of 64
  testing::write_file(folder_ / "train.bin", beyond);
  EXPECT_THROW(Dataset(folder_ / "train.bin"), Error);
}

TEST_F(TrainRun, ConfigsAreCheckedKeyByKey) {
  const auto refuses = [&](const std::string& text, const std::string& named) {
    try {
      parse_config(text, folder_.path());
      ADD_FAILURE() << "accepted " << text;
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find(named), std::string::npos) << e.what();
    }
  };
  refuses("{", "JSON");
  refuses("[]", "object");
  refuses(config_text("x", R"("learning_rat": 1, )"), "learning_rat");
  refuses(config_text("x", R"("weight_decay": -1, )"), "weight_decay");
  refuses(config_text("x", R"("seed": 1.5, )"), "seed");
  refuses(config_text("x", R"("arithmetic": "fp8", )"), "fp8");
  std::string text = config_text("x");
  text.replace(text.find("\"dim\": 64"), 9, "\"dim\": 65");
  refuses(text, "model.dim");
}

TEST_F(TrainRun, ExportedFileHasEveryTensor) {
  Trainer trainer(config("export"), pool_, /*resume=*/false);
  testing::write_file(folder_ / "meta.json", R"({"general.name": {"type": "string", "value": "tiny"}})");
  const uint64_t bytes = export_gguf(trainer.model(), folder_ / "meta.json", folder_ / "tiny.gguf");
  const std::string file = testing::read_file(folder_ / "tiny.gguf");
  EXPECT_EQ(file.size(), bytes);
  EXPECT_EQ(file.substr(0, 4), "GGUF");
  for (const TensorInfo& t : trainer.model().tensors())
    EXPECT_NE(file.find(t.name), std::string::npos) << t.name;
  testing::write_file(folder_ / "meta.json", R"({"general.name": {"type": "word", "value": "tiny"}})");
  EXPECT_THROW(export_gguf(trainer.model(), folder_ / "meta.json", folder_ / "tiny.gguf"), Error);
}

}  // namespace
}  // namespace millrace::train
