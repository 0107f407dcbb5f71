// Typed errors. Whatever comes from outside (file, request, command line) and is wrong becomes an Error: a
// code, and one sentence that says what was wrong, where, and what was expected. Nothing from outside may end
// the process.
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace millrace {

enum class ErrorCode {
  kInvalidArgument,   ///< a value from the caller is out of its range or malformed
  kNotFound,          ///< a file, model or id does not exist
  kInvalidFile,       ///< a file's contents break its format
  kUnsupported,       ///< well formed, but nothing here can run it
  kLimitExceeded,     ///< a configured limit: size, depth, tokens, time
  kOutOfMemory,       ///< memory or cache blocks ran out
  kUnavailable,       ///< overloaded or shutting down; try again
  kDeadlineExceeded,  ///< the request's deadline cannot be or was not met
  kCancelled,         ///< the client went away or asked to stop
  kUnauthorized,      ///< missing or wrong key
  kIo,                ///< the operating system refused a read, write or map
  kInternal,          ///< a mistake of this program
};

/// Lower-case name of a code, as logs and JSON show it: "invalid_argument".
const char* error_code_name(ErrorCode code);

class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  ErrorCode code() const { return code_; }

 private:
  ErrorCode code_;
};

/// Throws Error(code) with the formatted sentence.
template <typename... Args>
[[noreturn]] void fail(ErrorCode code, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(code, fmt::format(format, std::forward<Args>(args)...));
}

/// Throws Error(code) unless `condition`.
template <typename... Args>
void require(bool condition, ErrorCode code, fmt::format_string<Args...> format, Args&&... args) {
  if (!condition) [[unlikely]]
    throw Error(code, fmt::format(format, std::forward<Args>(args)...));
}

/// For invariants of this program itself: throws kInternal. Never for input.
template <typename... Args>
void check(bool condition, fmt::format_string<Args...> format, Args&&... args) {
  if (!condition) [[unlikely]]
    throw Error(ErrorCode::kInternal, "internal error: " + fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace millrace
