// `millrace synth` takes names as people write them.
#include <gtest/gtest.h>

#include "testing/testing.h"

namespace millrace {
namespace {

testing::ProcessResult synth(const std::string& shape, const std::string& type, const std::string& path) {
  return testing::run_process(
      {testing::millrace_binary().string(), "synth", shape, type, path, "--layers", "1", "--threads", "1"});
}

TEST(SynthCommand, NamesInAnyCaseWriteTheSameFile) {
  const testing::TempDir folder;
  const std::string plain = (folder / "plain.gguf").string(), other = (folder / "other.gguf").string();
  ASSERT_EQ(synth("tinyllama-1.1b", "q4_k", plain).exit_status, 0);
  for (const auto& [shape, type] : std::vector<std::pair<std::string, std::string>>{
           {"TinyLlama-1.1B", "Q4_K"}, {"tinyllama_1.1b", "q4_k_m"}}) {
    const auto run = synth(shape, type, other);
    ASSERT_EQ(run.exit_status, 0) << run.err;
    EXPECT_TRUE(testing::read_file(plain) == testing::read_file(other)) << shape << " " << type;
  }
}

TEST(SynthCommand, TheSizeAloneMayNameAShape) {
  const testing::TempDir folder;
  const std::string path = (folder / "x.gguf").string();
  const auto run = synth("3.1-8B", "IQ2_XXS_M", path);  // no such type: the shape is not what fails
  EXPECT_EQ(run.exit_status, 2) << run.err;
  EXPECT_NE(run.err.find("IQ2_XXS_M"), std::string::npos) << run.err;
  const auto unknown = synth("llama-9-1b", "q4_0", path);
  EXPECT_EQ(unknown.exit_status, 1);
  EXPECT_NE(unknown.err.find("llama-3.2-1b"), std::string::npos) << unknown.err;
}

}  // namespace
}  // namespace millrace
