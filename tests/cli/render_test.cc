// millrace render, as others call it: the text on standard output and nothing else, or status 1 and one
// sentence.
#include <nlohmann/json.hpp>

#include "testing/testing.h"

namespace millrace {
namespace {

using Json = nlohmann::ordered_json;

testing::ProcessResult render(const std::filesystem::path& model, const std::string& context,
                              const std::vector<std::string>& more = {}) {
  std::vector<std::string> argv = {testing::millrace_binary().string(), "render", "-m", model.string()};
  argv.insert(argv.end(), more.begin(), more.end());
  return testing::run_process(argv, context);
}

TEST(Render, WritesTheTextAndNothingElse) {
  const testing::TempDir folder;
  testing::write_file(folder / "t.jinja",
                      "{{ bos_token }}{% for m in messages %}<{{ m.role }}>{{ m.content }}\n{% endfor %}");
  const auto r =
      render(folder / "t.jinja", R"({"messages": [{"role": "user", "content": "Grüße"}], "bos_token": "B"})");
  EXPECT_EQ(r.exit_status, 0);
  EXPECT_EQ(r.out, "B<user>Grüße\n");
  EXPECT_EQ(r.err, "");
}

TEST(Render, RefusalsAreOneSentenceAndStatusOne) {
  const testing::TempDir folder;
  testing::write_file(folder / "raises.jinja", "\n{{ raise_exception('roles must alternate') }}");
  testing::write_file(folder / "includes.jinja", "{% include 'x' %}");
  EXPECT_EQ(render(folder / "raises.jinja", "{}").err,
            "millrace: chat template, line 2: roles must alternate\n");
  EXPECT_EQ(render(folder / "raises.jinja", "{}").exit_status, 1);
  EXPECT_EQ(render(folder / "includes.jinja", "{}").exit_status, 1);
  EXPECT_EQ(render(folder / "raises.jinja", "[").exit_status, 1);
  EXPECT_EQ(render(folder / "nothing.jinja", "{}").exit_status, 1);
  EXPECT_EQ(render(folder / "raises.jinja", "{}", {"--now", "yesterday"}).exit_status, 2);
}

TEST(Render, FindsTheTemplatesOfADirectory) {
  const testing::TempDir folder;
  testing::write_file(folder / "tokenizer_config.json",
                      R"({"bos_token": {"content": "<s>"}, "eos_token": "</s>", "chat_template": [
                          {"name": "default", "template": "D{{ bos_token }}{{ eos_token }}"},
                          {"name": "tool_use", "template": "T{{ tools | length }}"}]})");
  EXPECT_EQ(render(folder.path(), "{}").out, "D<s></s>");
  EXPECT_EQ(render(folder.path(), R"({"bos_token": "mine"})").out, "Dmine</s>");
  EXPECT_EQ(render(folder.path(), R"({"tools": [1, 2]})").out, "T2");
  EXPECT_EQ(render(folder.path(), R"({"tools": [1]})", {"--template", "default"}).out, "D<s></s>");
  testing::write_file(folder / "chat_template.jinja", "file{{ bos_token }}");
  EXPECT_EQ(render(folder.path(), "{}").out, "file<s>");
  testing::write_file(folder / "tokenizer_config.json", R"({"chat_template": 5})");
  EXPECT_EQ(render(folder.path(), "{}").exit_status, 1);
}

TEST(Render, NamedTemplatesComeFromTheListTheFolderOrTheOlderFile) {
  const testing::TempDir folder;
  testing::write_file(folder / "chat_template.json", R"({"chat_template": "older"})");
  EXPECT_EQ(render(folder.path(), "{}").out, "older");
  testing::write_file(folder / "tokenizer_config.json", R"({"chat_template": [
      {"name": "rag", "template": "R{{ documents | length }}"}, {"name": "tool_use", "template": "T"}]})");
  EXPECT_EQ(render(folder.path(), R"({"documents": [1]})", {"--template", "rag"}).out, "R1");
  EXPECT_EQ(render(folder.path(), R"({"tools": []})").out, "T");
  EXPECT_EQ(render(folder.path(), R"({"tools": null})").out, "older");
  std::filesystem::create_directory(folder / "additional_chat_templates");
  testing::write_file(folder / "additional_chat_templates" / "tool_use.jinja", "from the folder");
  EXPECT_EQ(render(folder.path(), R"({"tools": [1]})").out, "from the folder");
  testing::write_file(folder / "chat_template.jinja", "newest");
  EXPECT_EQ(render(folder.path(), "{}").out, "newest");
  EXPECT_NE(render(folder.path(), "{}", {"--template", "nosuch"}).err.find("named 'nosuch'"),
            std::string::npos);
}

TEST(Render, SeveralTemplatesWithoutADefaultAreNotGuessed) {
  const testing::TempDir folder;
  testing::write_file(folder / "tokenizer_config.json", R"({"chat_template": [
      {"name": "rag", "template": "R"}, {"name": "tool_use", "template": "T"}]})");
  EXPECT_EQ(render(folder.path(), "{}").exit_status, 1);
  EXPECT_EQ(render(folder.path(), R"({"tools": [1]})").out, "T");
}

TEST(Render, TakesTheClockFromItsOption) {
  const testing::TempDir folder;
  testing::write_file(folder / "t.jinja", "{{ strftime_now('%A %d %B %Y %H:%M') }}");
  EXPECT_EQ(render(folder / "t.jinja", "{}", {"--now", "2026-07-26T09:30"}).out, "Sunday 26 July 2026 09:30");
}

TEST(Render, PublishedTemplatesByteForByte) {
  MILLRACE_NEED_SHARED(folder, "chat-templates");
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".jinja") continue;
    std::filesystem::path golden = entry.path();
    golden.replace_extension(".golden.json");
    const Json c = Json::parse(testing::read_file(golden)).at(0);
    const auto r = render(entry.path(), c.at("context").dump(), {"--now", "2026-07-26T09:30"});
    EXPECT_EQ(r.out, c.value("output", "")) << entry.path();
    EXPECT_EQ(r.exit_status, c.contains("output") ? 0 : 1) << entry.path();
  }
}

}  // namespace
}  // namespace millrace
