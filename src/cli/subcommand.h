// Every subcommand is one file of this folder that registers itself; main.cc knows none of them.
#pragma once

#include <string>
#include <vector>

namespace millrace::cli {

struct Subcommand {
  const char* name;     ///< "run"
  const char* summary;  ///< one line for `millrace --help`
  int order;            ///< place in `millrace --help`, smallest first
  /// argv[0] is the subcommand's name. Returns the exit status; an Error thrown out of it becomes one
  /// sentence on standard error and status 1 (2 for kUsage below).
  int (*run)(int argc, char** argv);
};

void register_subcommand(const Subcommand& subcommand);
const std::vector<Subcommand>& subcommands();

/// Wrong usage of the command line: exit status 2.
class UsageError : public std::exception {
 public:
  explicit UsageError(std::string message) : message_(std::move(message)) {}
  const char* what() const noexcept override { return message_.c_str(); }

 private:
  std::string message_;
};

struct SubcommandRegistration {
  explicit SubcommandRegistration(const Subcommand& s) { register_subcommand(s); }
};

}  // namespace millrace::cli

#define MILLRACE_SUBCOMMAND(name, order, summary, function)                        \
  static const ::millrace::cli::SubcommandRegistration registration_of_##function( \
      {name, summary, order, function})
