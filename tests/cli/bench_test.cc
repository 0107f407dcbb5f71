// The form of `millrace bench`, which scripts read, and that its figures hang together.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "core/cpu.h"
#include "testing/testing.h"

namespace millrace {
namespace {

using nlohmann::json;

TEST(BenchCommand, JsonHasEveryTestAndTheMachine) {
  MILLRACE_NEED_SHARED(model, "models/stories260K.gguf");
  const testing::TempDir folder;
  const auto run = testing::run_process({testing::millrace_binary().string(),
                                         "bench",
                                         "-m",
                                         model.string(),
                                         "--json",
                                         "--prompt",
                                         "8,16",
                                         "--decode",
                                         "3",
                                         "--depth",
                                         "0,5",
                                         "--sequences",
                                         "1,2",
                                         "--threads",
                                         "1",
                                         "--isa",
                                         std::string(isa_name(fastest_isa())),
                                         "--plot",
                                         (folder / "plot.svg").string(),
                                         "--profile",
                                         (folder / "trace.json").string()});
  ASSERT_EQ(run.exit_status, 0) << run.err;
  const json array = json::parse(run.out);
  std::set<std::string> seen;
  int machines = 0;
  for (const json& test : array) {
    if (test.at("test") == "machine") {
      ++machines;
      EXPECT_GT(test.at("read_bytes_per_second").get<double>(), 0);
      EXPECT_GT(test.at("f32_operations_per_second").get<double>(), 0);
      EXPECT_EQ(test.at("threads"), 1);
      EXPECT_EQ(test.contains("amx_bf16_gflops"), cpu_features().amx);
      continue;
    }
    EXPECT_GT(test.at("tokens_per_second").get<double>(), 0);
    EXPECT_GT(test.at("share_of_limit").get<double>(), 0);
    EXPECT_GT(test.at("limit_tokens_per_second").get<double>(), 0);
    // The best rates are at least those measured beside any one step.
    EXPECT_GT(test.at("share_of_best_limit").get<double>(), 0);
    EXPECT_LE(test.at("share_of_best_limit").get<double>(), test.at("share_of_limit").get<double>() * 1.0001);
    EXPECT_EQ(test.contains("share_of_matrix_limit"), cpu_features().amx);
    seen.insert(fmt::format("{} {} {} {}", test.at("test").get<std::string>(), test.at("tokens").get<int>(),
                            test.at("depth").get<int>(), test.at("sequences").get<int>()));
  }
  EXPECT_EQ(machines, 1);
  EXPECT_EQ(seen, (std::set<std::string>{"prompt 8 0 1", "prompt 16 0 1", "prompt 8 5 1", "prompt 16 5 1",
                                         "decode 3 0 1", "decode 3 0 2", "decode 3 5 1", "decode 3 5 2"}));
  const json trace = json::parse(testing::read_file(folder / "trace.json"));
  EXPECT_GT(trace.at("traceEvents").size(), seen.size());
  EXPECT_NE(testing::read_file(folder / "plot.svg").find("</svg>"), std::string::npos);
  EXPECT_NE(run.err.find("bound by"), std::string::npos);  // the summary keeps out of the JSON
}

TEST(BenchCommand, WrongUsageIsStatus2) {
  const auto binary = testing::millrace_binary().string();
  EXPECT_EQ(testing::run_process({binary, "bench", "--prompt", "many"}).exit_status, 2);
  EXPECT_EQ(testing::run_process({binary, "bench", "-m", "x.gguf", "--sequences", "0"}).exit_status, 2);
  EXPECT_EQ(testing::run_process({binary, "bench", "-m", "missing.gguf"}).exit_status, 1);
}

}  // namespace
}  // namespace millrace
