// The official clients, out of their registries (tests/server/clients/install brings them before ctest runs
// this).
#include <fstream>

#include "served.h"

namespace millrace::server {
namespace {

std::filesystem::path installed(const std::string& name) {
  const std::filesystem::path folder = MILLRACE_CLIENTS;
  return std::filesystem::exists(folder / (name + ".installed")) ? folder / name : std::filesystem::path();
}

std::string address(const Served& s) { return fmt::format("http://127.0.0.1:{}", s.port()); }

TEST(Clients, OpenAiForPython) {
  const auto python = installed("python");
  if (python.empty())
    GTEST_SKIP() << "skipped: the Python clients are not installed (tests/server/clients/install)";
  Served s("");
  millrace::testing::TempDir folder;
  const auto thinks = folder.path() / "thinks.jinja";
  millrace::testing::write_file(thinks,
                                "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
                                "{% if add_generation_prompt %}assistant: <think>\n{% endif %}");
  Served thinker("", {"--chat-template", thinks.string(), "--reasoning-format", "think"});
  const auto run =
      millrace::testing::run_process({(python / "bin/python").string(),
                                      millrace::testing::fixture("server/clients/openai_client.py").string(),
                                      address(s) + "/v1", address(thinker) + "/v1"});
  EXPECT_EQ(run.exit_status, 0) << run.out << run.err;
  for (int i = 0; i < 100 && metric(s.port(), "vllm:num_requests_running") > 0; ++i)
    std::this_thread::sleep_for(20ms);
  EXPECT_EQ(metric(s.port(), "vllm:num_requests_running"), 0) << "what the client cancelled still runs";
}

TEST(Clients, AnthropicForPython) {
  const auto python = installed("python");
  if (python.empty())
    GTEST_SKIP() << "skipped: the Python clients are not installed (tests/server/clients/install)";
  Served s(""), many("", {"--tool-format", "json"});
  const auto run = millrace::testing::run_process(
      {(python / "bin/python").string(),
       millrace::testing::fixture("server/clients/anthropic_client.py").string(), address(s), address(many)});
  EXPECT_EQ(run.exit_status, 0) << run.out << run.err;
}

TEST(Clients, OpenAiForJavaScript) {
  const auto folder = installed("javascript");
  if (folder.empty())
    GTEST_SKIP() << "skipped: the JavaScript client is not installed (tests/server/clients/install)";
  // Modules are looked for beside the script.
  const auto script = folder / "openai_client.mjs";
  std::filesystem::copy_file(millrace::testing::fixture("server/clients/openai_client.mjs"), script,
                             std::filesystem::copy_options::overwrite_existing);
  Served s("");
  const auto run = millrace::testing::run_process({"node", script.string(), address(s) + "/v1"});
  EXPECT_EQ(run.exit_status, 0) << run.out << run.err;
}

}  // namespace
}  // namespace millrace::server
