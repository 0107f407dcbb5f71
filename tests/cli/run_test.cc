// millrace run as others call it.
#include "testing/testing.h"

namespace millrace {
namespace {

testing::ProcessResult run(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {testing::millrace_binary().string(), "run"});
  return testing::run_process(arguments);
}

TEST(Run, TheAuthorsTextAtEveryIsaAndThreadCount) {
  MILLRACE_NEED_SHARED(model, "models/stories260K.gguf");
  const std::string expected = testing::read_file(testing::shared_data("models/stories260K.greedy.txt"));
  for (const char* isa : {"auto", "scalar"}) {
    for (const char* threads : {"1", "2"}) {
      const auto result = run(
          {"-m", model, "", "--temperature", "0", "--max-tokens", "256", "--threads", threads, "--isa", isa});
      EXPECT_EQ(result.exit_status, 0) << result.err;
      EXPECT_EQ(result.out, expected) << isa << ", " << threads << " threads";
    }
  }
}

TEST(Run, TheEmbeddedModelNeedsNoFile) {
  const auto result = run({"Once upon a time", "--temperature", "0", "--max-tokens", "20"});
  EXPECT_EQ(result.exit_status, 0) << result.err;
  EXPECT_EQ(result.out.rfind("Once upon a time", 0), 0u);
  EXPECT_GT(result.out.size(), 40u);
  EXPECT_NE(result.err.find("tokens/s"), std::string::npos);
}

TEST(Run, WrongUsageIsStatusTwoAndOneSentence) {
  for (const std::vector<std::string>& arguments :
       std::vector<std::vector<std::string>>{{"hi", "--temperature", "nan"},
                                             {"hi", "--top-p", "2"},
                                             {"hi", "--threads", "many"},
                                             {"hi", "--isa", "sse9"},
                                             {"hi", "--no-such-option"}}) {
    const auto result = run(arguments);
    EXPECT_EQ(result.exit_status, 2) << arguments[1];
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
    EXPECT_TRUE(result.out.empty()) << result.out;
  }
}

TEST(Run, BadInputIsStatusOneAndOneSentence) {
  const testing::TempDir folder;
  testing::write_file(folder / "four", "GGUF");
  testing::write_file(folder / "magic", std::string(64, 'X'));
  for (const std::string& path : {(folder / "missing.gguf").string(), folder.path().string(),
                                  (folder / "four").string(), (folder / "magic").string()}) {
    const auto result = run({"-m", path, "hi"});
    EXPECT_EQ(result.exit_status, 1) << path;
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
    EXPECT_NE(result.err.find(path), std::string::npos) << result.err;
  }
  EXPECT_EQ(run({"\xff\xfe"}).exit_status, 1);
  std::string longer;
  for (int i = 0; i < 2000; ++i) longer += "again ";
  EXPECT_EQ(run({longer, "--max-tokens", "2"}).exit_status, 1);
}

}  // namespace
}  // namespace millrace
