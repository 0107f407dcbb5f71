// The `millrace` program: finds the subcommand and turns what it throws into one sentence and an exit status:
// 0 success, 2 wrong usage, 1 everything else (a subcommand may document others).

#include <csignal>
#include <cstdio>
#include <exception>
#include <new>

#include "cli/subcommand.h"
#include "core/error.h"

namespace millrace::cli {
namespace {

std::vector<Subcommand>& registry() {
  static std::vector<Subcommand> list;
  return list;
}

std::string usage() {
  std::string text =
      "millrace runs and serves large language models.\n\nusage: millrace COMMAND [options]\n\ncommands:\n";
  for (const Subcommand& s : subcommands()) text += fmt::format("  {:<10} {}\n", s.name, s.summary);
  text += "\n`millrace COMMAND --help` tells more; `millrace --version` the version.\n";
  return text;
}

int dispatch(int argc, char** argv) {
  const std::string first = argc > 1 ? argv[1] : "";
  if (first.empty()) {
    std::fputs(usage().c_str(), stderr);
    return 2;
  }
  if (first == "--help" || first == "-h" || first == "help") {
    std::fputs(usage().c_str(), stdout);
    return 0;
  }
  if (first == "--version" || first == "version") {
    std::puts("millrace " MILLRACE_VERSION);
    return 0;
  }
  for (const Subcommand& s : subcommands())
    if (first == s.name) return s.run(argc - 1, argv + 1);
  throw UsageError(fmt::format("unknown command '{}': `millrace --help` lists the commands", first));
}

}  // namespace

void register_subcommand(const Subcommand& subcommand) {
  auto& list = registry();
  const auto at =
      std::find_if(list.begin(), list.end(), [&](const Subcommand& s) { return s.order > subcommand.order; });
  list.insert(at, subcommand);
}

const std::vector<Subcommand>& subcommands() { return registry(); }

}  // namespace millrace::cli

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);
  try {
    return millrace::cli::dispatch(argc, argv);
  } catch (const millrace::cli::UsageError& e) {
    fmt::print(stderr, "millrace: {}\n", e.what());
    return 2;
  } catch (const millrace::Error& e) {
    fmt::print(stderr, "millrace: {}\n", e.what());
  } catch (const std::bad_alloc&) {
    fmt::print(stderr, "millrace: out of memory\n");
  } catch (const std::exception& e) {
    fmt::print(stderr, "millrace: {}\n", e.what());
  }
  return 1;
}
