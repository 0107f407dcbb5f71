// Grammars made to explode, given to `millrace grammar check` in a process of its own with a limit on its
// processor time and on its memory: it must refuse them with a sentence (status 3) or compile them (status
// 0).
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "testing/testing.h"

namespace millrace {
namespace {

struct Outcome {
  int status = -1;     ///< exit status; -1: killed
  double seconds = 0;  ///< processor time
  size_t peak = 0;     ///< bytes resident at most
  std::string said;
};

// Runs the program with at most `memory` bytes of heap (0: as many as there are) and twenty seconds of
// processor time.
Outcome run(const std::vector<std::string>& arguments, const std::filesystem::path& folder, size_t memory) {
  const std::string said = folder / "said";
  const pid_t child = fork();
  if (child == 0) {
    rlimit time{20, 21};
    setrlimit(RLIMIT_CPU, &time);
    if (memory > 0) {
      rlimit data{memory, memory};
      setrlimit(RLIMIT_DATA, &data);
    }
    const int out = open(said.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    dup2(out, 1);
    dup2(out, 2);
    std::vector<char*> argv;
    for (const std::string& a : arguments) argv.push_back(const_cast<char*>(a.c_str()));
    argv.push_back(nullptr);
    execv(argv[0], argv.data());
    _exit(127);
  }
  Outcome o;
  int status = 0;
  rusage used{};
  wait4(child, &status, 0, &used);
  if (WIFEXITED(status)) o.status = WEXITSTATUS(status);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  o.seconds = seconds(used.ru_utime) + seconds(used.ru_stime);
  o.peak = static_cast<size_t>(used.ru_maxrss) * 1024;
  std::ifstream in(said);
  std::getline(in, o.said);
  return o;
}

std::string repeated(const std::string& s, int n) {
  std::string out;
  for (int i = 0; i < n; ++i) out += s;
  return out;
}

struct Bomb {
  const char* name;
  const char* option;
  std::string text;
};

std::vector<Bomb> bombs() {
  std::string chain = "root ::= r0\n", left, refs = R"({"$ref":"#/$defs/d0","$defs":{)", doubling = refs, all,
              numbers;
  for (int i = 0; i < 5000; ++i)
    chain += "r" + std::to_string(i) + " ::= r" + std::to_string(i + 1) + " \"x\"?\n";
  chain += "r5000 ::= \"a\"\n";
  for (int i = 0; i < 5000; ++i)
    left += (i ? "r" + std::to_string(i) : "root") +
            " ::= " + (i < 4999 ? "r" + std::to_string(i + 1) : "root") + " \"x\" | \"a\"\n";
  for (int i = 0; i < 5000; ++i)
    refs += "\"d" + std::to_string(i) + R"(":{"$ref":"#/$defs/d)" + std::to_string(i + 1) + "\"},";
  refs += R"("d5000":{"type":"integer"}}})";
  for (int i = 0; i < 40; ++i) {
    const std::string next = R"({"$ref":"#/$defs/d)" + std::to_string(i + 1) + "\"}";
    doubling += "\"d" + std::to_string(i) + R"(":{"oneOf":[{"type":"array","items":)" + next +
                R"(},{"properties":{"a":)" + next + "}}]},";
  }
  doubling += R"("d40":true}})";
  for (int i = 0; i < 24; ++i)
    all += std::string(i ? "," : "") + R"({"anyOf":[{"required":["a)" + std::to_string(i) +
           R"("]},{"required":["b)" + std::to_string(i) + "\"]}]}";
  for (int i = 0; i < 200'000; ++i) numbers += (i ? ",\"value " : "\"value ") + std::to_string(i) + "\"";
  return {
      {"groups", "--gbnf", "root ::= " + repeated("(", 60'000) + "\"a\"" + repeated(")", 60'000)},
      {"chain of rules", "--gbnf", chain},
      {"left recursion", "--gbnf", left},
      {"empty loop", "--gbnf", "root ::= (\"a\"*)*"},
      {"only itself", "--gbnf", "root ::= root"},
      {"counted rules", "--gbnf", "root ::= a{1,65535}\na ::= b{1,65535}\nb ::= [ab]{1,65535}"},
      {"ambiguous", "--gbnf", "root ::= root root root | \"a\" | \"\""},
      {"lark groups", "--lark", "start: " + repeated("(", 60'000) + "\"a\"" + repeated(")", 60'000)},
      {"lark chain of terminals", "--lark", "start: A\nA: A"},
      {"nested quantifiers", "--regex", "(a+)+b"},
      {"deep quantifiers", "--regex", repeated("(", 300) + "a" + repeated("+)*", 300)},
      {"repeat", "--regex", "a{1,65535}"},
      {"repeats of repeats", "--regex", "((a{1,65535}){1,65535}){1,65535}"},
      {"subsets", "--regex", "(a|b)*a(a|b){24}"},
      {"regex groups", "--regex", repeated("(", 60'000) + "a" + repeated(")", 60'000)},
      {"open groups", "--regex", repeated("(", 60'000)},
      {"dots", "--regex", "(.*.*.*.*.*.*.*.*a){40}"},
      {"alternatives", "--regex", repeated("abcdefgh|", 100'000) + "x"},
      {"reference to itself", "--json-schema", R"({"$ref":"#"})"},
      {"circle", "--json-schema",
       R"({"$ref":"#/$defs/a","$defs":{"a":{"$ref":"#/$defs/b"},"b":{"$ref":"#/$defs/a"}}})"},
      {"chain of references", "--json-schema", refs},
      {"doubling references", "--json-schema", doubling},
      {"product of anyOf", "--json-schema", R"({"type":"object","allOf":[)" + all + "]}"},
      {"product of oneOf", "--json-schema", R"({"oneOf":[)" + all + "]}"},
      {"huge enum", "--json-schema", "{\"enum\":[" + numbers + "]}"},
      {"long strings", "--json-schema", R"({"type":"string","minLength":99999,"maxLength":100000})"},
      {"counted pattern", "--json-schema",
       R"({"type":"string","pattern":"^(a{1,65535}b){1,65535}$","maxLength":4294967295})"},
      {"many items", "--json-schema",
       R"({"type":"array","items":{"type":"integer"},"minItems":100000,"maxItems":100000})"},
      {"unevaluated", "--json-schema", R"({"anyOf":[)" + all + R"(],"unevaluatedProperties":false})"},
      {"brackets", "--json-schema", repeated("[", 60'000)},
      {"nested schemas", "--json-schema", repeated(R"({"items":)", 20'000) + "true" + repeated("}", 20'000)},
      {"ten megabytes", "--json-schema", R"({"description":")" + std::string(10 << 20, 'x') + "\"}"},
      {"no text", "--choices", "[\"" + repeated("a\",\"", 300'000) + "b\"]"},
  };
}

TEST(GrammarBombs, ProcessStaysWithinItsLimits) {
  testing::TempDir folder;
  const std::string program = testing::millrace_binary();
  // Sanitizers take memory of their own.
  const bool limited = testing::slowness() == 1;
  std::ofstream(folder / "small") << "a";
  const Outcome plain = run({program, "grammar", "check", "--regex", folder / "small"}, folder.path(), 0);
  ASSERT_EQ(plain.status, 0) << plain.said;
  for (const Bomb& bomb : bombs()) {
    const std::string file = folder / "bomb";
    std::ofstream(file) << bomb.text;
    // What the program takes without a grammar, the text itself, and 64 MiB.
    const size_t memory = plain.peak + 2 * bomb.text.size() + (size_t{64} << 20);
    const Outcome o =
        run({program, "grammar", "check", bomb.option, file}, folder.path(), limited ? memory : 0);
    EXPECT_TRUE(o.status == 0 || o.status == 3)
        << bomb.name << ": status " << o.status << " " << o.said.substr(0, 200);
    EXPECT_LT(o.seconds - plain.seconds, 1.0 * testing::slowness())
        << bomb.name << ": " << o.said.substr(0, 200);
    if (o.status == 3) {
      EXPECT_NE(o.said.find("refused"), std::string::npos) << bomb.name << ": " << o.said.substr(0, 200);
    }
  }
}

}  // namespace
}  // namespace millrace
