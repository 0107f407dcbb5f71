// The published templates against Python's Jinja2 (optional data), and this project's own fixture:
// expressions and templates in the styles of many models, rendered by Jinja2
// (scripts/fixtures/make_template_fixtures.py).
#include "text/template/chat_template.h"

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <thread>

#include "core/error.h"
#include "testing/testing.h"

namespace millrace::text {
namespace {

using Json = nlohmann::ordered_json;

RenderOptions fixed_time() {
  RenderOptions options;
  options.now = LocalTime{2026, 7, 26, 9, 30, 0};
  return options;
}

/// The rendering, or "error: ..." where the template refuses.
std::string render(const std::string& source, const Json& context) {
  try {
    return ChatTemplate::parse(source).render(context.dump(), fixed_time()).text;
  } catch (const Error& e) {
    return std::string("error: ") + e.what();
  }
}

std::string render(const std::string& source) { return render(source, Json::object()); }

bool is_error(const std::string& rendered) { return rendered.rfind("error: ", 0) == 0; }

TEST(ChatTemplate, PublishedTemplatesRenderAsJinja2DoesByteForByte) {
  MILLRACE_NEED_SHARED(folder, "chat-templates");
  int templates = 0, contexts = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".jinja") continue;
    ++templates;
    const std::string source = testing::read_file(entry.path());
    std::filesystem::path golden = entry.path();
    golden.replace_extension(".golden.json");
    for (const Json& c : Json::parse(testing::read_file(golden))) {
      ++contexts;
      const std::string got = render(source, c.at("context"));
      if (c.contains("output")) {
        EXPECT_EQ(got, c.at("output").get<std::string>()) << entry.path();
      } else {
        const std::string error = c.at("error").get<std::string>();
        ASSERT_TRUE(is_error(got)) << entry.path();
        // What the template itself says is passed on.
        if (error.rfind("TemplateError: ", 0) == 0) {
          EXPECT_NE(got.find(error.substr(15)), std::string::npos) << got;
        }
      }
    }
  }
  EXPECT_GE(templates, 14);
  EXPECT_GE(contexts, 14 * 8);
}

/// Renders every case of a fixture and compares; returns how many there were.
int check_fixture(const std::filesystem::path& path) {
  int cases = 0;
  const Json fixture = Json::parse(testing::read_file(path));
  const Json& contexts = fixture.at("contexts");
  for (const Json& c : fixture.at("cases")) {
    const std::string source = c.at("template").get<std::string>();
    for (const Json& r : c.at("results")) {
      ++cases;
      const std::string got = render(source, contexts.at(r.at("context").get<std::string>()));
      if (r.contains("output")) {
        EXPECT_EQ(got, r.at("output").get<std::string>()) << source << "\nwith " << r.at("context");
      } else {
        EXPECT_TRUE(is_error(got)) << source << "\nwith " << r.at("context") << "\ngave " << got
                                   << "\nJinja2: " << r.at("error");
      }
    }
  }
  return cases;
}

TEST(ChatTemplate, ExpressionsAndStatementsRenderAsInJinja2) {
  EXPECT_GE(check_fixture(testing::fixture("text/template/expressions.json")), 850);
}

TEST(ChatTemplate, TemplatesInManyModelsStylesRenderAsInJinja2) {
  EXPECT_GE(check_fixture(testing::fixture("text/template/styles.json")), 400);
}

TEST(ChatTemplate, RandomTemplatesRenderAsInJinja2) {
  EXPECT_GE(check_fixture(testing::fixture("text/template/random.json")), 1500);
}

TEST(ChatTemplate, MoreCasesOnRequest) {
  const char* path = std::getenv("MILLRACE_TEMPLATE_CASES");
  if (path == nullptr) GTEST_SKIP() << "skipped: MILLRACE_TEMPLATE_CASES names no file of cases";
  EXPECT_GT(check_fixture(path), 0);
}

std::string load_error(const std::string& source) {
  try {
    ChatTemplate::parse(source);
    return "";
  } catch (const Error& e) {
    return std::string(error_code_name(e.code())) + ": " + e.what();
  }
}

TEST(ChatTemplate, WhatCannotBeRunIsRefusedAtLoadWithLineAndPlace) {
  EXPECT_EQ(load_error("a\nb\n{% include 'x' %}"),
            "unsupported: chat template, line 3: the statement 'include' cannot be run here");
  EXPECT_EQ(load_error("{{ x | prettify }}"),
            "unsupported: chat template, line 1: unknown filter 'prettify'");
  // Jinja2 has these, so a template that may reach them is refused too.
  for (const std::string what : {"x | random", "x | urlize", "x.encode('utf-8')", "self.title()"})
    EXPECT_EQ(
        load_error("{% if x %}{{ " + what + " }}{% endif %}").rfind("unsupported: chat template, line 1", 0),
        0u)
        << what;
  EXPECT_EQ(load_error("\n{{ x is nosuch }}"), "unsupported: chat template, line 2: unknown test 'nosuch'");
  EXPECT_EQ(load_error("{{ lipsum() }}").rfind("unsupported: chat template, line 1: lipsum()", 0), 0u);
  EXPECT_EQ(load_error("{% if x %}\n{{ y"),
            "invalid_file: chat template, line 2: expected '}}', found the end of the template");
  EXPECT_EQ(
      load_error("{% for x in y %}\n\n"),
      "invalid_file: chat template, line 2: the template ends where 'endfor' or 'else' is still missing");
  EXPECT_EQ(load_error("{{ 1 + }}"), "invalid_file: chat template, line 1: unexpected '}}'");
  EXPECT_EQ(
      load_error("{{ 99999999999999999999 }}").rfind("invalid_file: chat template, line 1: the integer", 0),
      0u);
  EXPECT_NE(load_error("\xff"), "");
  // Jinja2 itself leaves unknown filters inside an if until they are reached.
  EXPECT_EQ(load_error("{% if x %}{{ y | nosuch }}{% endif %}"), "");
}

TEST(ChatTemplate, ErrorsOfTheTemplateCarryItsWordsAndTheLine) {
  EXPECT_EQ(render("a\n{{ raise_exception('roles must alternate') }}"),
            "error: chat template, line 2: roles must alternate");
  EXPECT_EQ(render("{{ nope.x }}"), "error: chat template, line 1: 'nope' is undefined");
  try {
    ChatTemplate::parse("x").render("[1]");
    FAIL() << "an array was taken as a context";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kInvalidArgument);
  }
  EXPECT_THROW(ChatTemplate::parse("x").render("{"), Error);
  EXPECT_THROW(ChatTemplate::parse("x").render(std::string(100000, '[')), Error);
}

/// Every way to ask for too much ends in kLimitExceeded soon.
TEST(ChatTemplate, BombsEndInALimitWithinASecond) {
  const std::string deep_parentheses =
      "{{ " + std::string(50000, '(') + "1" + std::string(50000, ')') + " }}";
  std::string deep_ifs, chain = "{{ x", sums = "{{ 1", nots = "{{ ", lists = "{{ ";
  for (int i = 0; i < 20000; ++i) {
    deep_ifs += "{% if 1 %}";
    chain += ".a";
    sums += " + 1";
    nots += "not ";
    lists += "[";
  }
  const std::string bombs[] = {
      "{% for a in range(99999) %}{% for b in range(99999) %}{{ b }}{% endfor %}{% endfor %}",
      "{{ range(10**9) | list }}",
      "{{ 'x' * 10**12 }}",
      "{{ 'x' * 10**8 }}{{ ('x' * 10**8) | upper }}",
      "{{ [0] * 10**10 }}",
      "{% set ns = namespace(x='ab') %}{% for i in range(64) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}{{ "
      "ns.x }}",
      "{% set ns = namespace(x=[1]) %}{% for i in range(64) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ "
      "ns.x }}",
      "{% set ns = namespace(x=[1]) %}{% for i in range(99999) %}{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x "
      "}}",
      "{% set ns = namespace(x={}) %}{% for i in range(99999) %}{% set ns.x = {'a': ns.x} %}{% endfor %}",
      "{% set ns = namespace(x=[1], y=[1]) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}"
      "{% set ns.y = [ns.y, ns.y] %}{% endfor %}{{ ns.x == ns.y }}",
      "{% set ns = namespace(x=(1,)) %}{% for i in range(60) %}{% set ns.x = (ns.x, ns.x) %}{% endfor %}{{ "
      "{ns.x: 1} }}",
      "{% set ns = namespace() %}{% set ns.x = ns %}{{ ns }}",
      "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
      "{% macro m(x) %}{{ m(x) ~ m(x) }}{% endmacro %}{{ m(1) }}",
      "{% macro m(x) %}" + std::string("{{ 0") + " + 0 + m(x) | int }}{% endmacro %}{{ m(1) }}",
      "{% for x in [[1]] recursive %}{{ loop([[x]]) }}{% endfor %}",
      "{{ '%0999999999d' % 1 }}",
      "{{ '{:>999999999}'.format(1) }}",
      "{{ 'x'.ljust(10**12) }}",
      "{{ 'x'.center(10**9) }}",
      "{{ '7'.zfill(10**11) }}",
      "{{ ('a' * 10**6).replace('', 'b' * 10**6) }}",
      "{{ ('a,' * 10**6).split(',') | map('list') | list }}{% for i in range(99999) %}{{ ('a' * 10**5) | "
      "upper }}{% endfor %}",
      "{{ 2 ** 64 }}",
      "{{ 2 ** 10 ** 10 }}",
      "{{ ('a' * 10**5) | indent(10**9) }}",
      "{{ ('\n' * 10**5) | indent(10**5, blank=true) }}",
      "{{ [1] | batch(10**12, 0) | list }}",
      "{{ [1] | slice(10**12) | list }}",
      "{% for i in range(99999) %}{{ ('ab' * 100000).count('ba') }}{% endfor %}",
      "{% for i in range(99999) %}{% macro m() %}{% endmacro %}{% set ns = namespace(a=m) %}{% endfor %}" +
          std::string("{% for i in range(99999) %}{% macro m() %}{% endmacro %}{% for i in range(99999) %}{% "
                      "endfor %}{% endfor %}"),
      deep_parentheses,
      deep_ifs,
      chain + " }}",
      sums + " }}",
      nots + "1 }}",
      lists,
  };
  for (const std::string& bomb : bombs) {
    const auto start = std::chrono::steady_clock::now();
    try {
      ChatTemplate::parse(bomb).render("{}");
      ADD_FAILURE() << "rendered: " << bomb.substr(0, 200);
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::kLimitExceeded) << e.what() << "\n" << bomb.substr(0, 200);
    }
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
#if defined(__SANITIZE_ADDRESS__)
    EXPECT_LT(seconds, 40) << bomb.substr(0, 200);
#else
    EXPECT_LT(seconds, 3) << bomb.substr(0, 200);  // a second on a machine of its own
#endif
  }
}

TEST(ChatTemplate, LimitsAreTheCallers) {
  const ChatTemplate parsed = ChatTemplate::parse("{% for i in range(1000) %}0123456789{% endfor %}");
  RenderOptions options;
  EXPECT_EQ(parsed.render("{}", options).text.size(), 10000u);
  options.limits.output_bytes = 9999;
  EXPECT_THROW(parsed.render("{}", options), Error);
  options.limits.output_bytes = 10000;
  EXPECT_EQ(parsed.render("{}", options).text.size(), 10000u);
  options.limits.steps = 500;
  EXPECT_THROW(parsed.render("{}", options), Error);
}

TEST(ChatTemplate, LongConversationsFitIntoTheDefaultLimits) {
  Json context;
  context["messages"] = Json::array();
  for (int i = 0; i < 2000; ++i)
    context["messages"].push_back(
        {{"role", i % 2 == 0 ? "user" : "assistant"}, {"content", std::string(2000, 'x')}});
  const std::string got = render(
      "{% set ns = namespace(text='') %}{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + "
      "m.content | trim + "
      "'<|im_end|>\\n' }}{% endfor %}",
      context);
  EXPECT_GT(got.size(), 4000000u) << got.substr(0, 200);
}

TEST(ChatTemplate, GenerationBlocksAreReported) {
  const RenderedChat chat = ChatTemplate::parse(
                                "user{% generation %}reply{% endgeneration %}!"
                                "{% generation %}two{% endgeneration %}")
                                .render("{}");
  EXPECT_EQ(chat.text, "userreply!two");
  ASSERT_EQ(chat.generated.size(), 2u);
  EXPECT_EQ(chat.text.substr(chat.generated[0].first, chat.generated[0].second - chat.generated[0].first),
            "reply");
  EXPECT_EQ(chat.generated[1], (std::pair<size_t, size_t>{10, 13}));
}

TEST(ChatTemplate, OneTemplateRendersOnManyThreads) {
  const ChatTemplate parsed =
      ChatTemplate::parse("{% set s = 'wörd' %}{{ s | length }}{{ s[1] }}{{ m | tojson }}");
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 200; ++i)
        if (parsed.render("{\"m\": [1, \"a\"]}").text != "4ö[1, \"a\"]") ++wrong;
    });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(wrong, 0);
}

TEST(LocalTime, ParsesWhatItDocuments) {
  EXPECT_TRUE(LocalTime::parse("2026-07-26"));
  EXPECT_EQ(LocalTime::parse("2026-07-26T09:30")->minute, 30);
  EXPECT_EQ(LocalTime::parse("2026-07-26 09:30:15")->second, 15);
  for (const char* wrong :
       {"", "2026", "2026-13-01", "2026-07-26T", "2026-07-26T24:00", "2026-07-26 09:30:15x", "x"})
    EXPECT_FALSE(LocalTime::parse(wrong)) << wrong;
}

}  // namespace
}  // namespace millrace::text
