#include "server/errors.h"

#include <nlohmann/json.hpp>

#include "core/utf8.h"

namespace millrace::server {
namespace {

const char* type_of(int status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 404:
      return "not_found_error";
    case 429:
      return "rate_limit_error";
    case 503:
      return "overloaded_error";
    default:
      return status >= 500 ? "server_error" : "invalid_request_error";
  }
}

std::string code_of(const Error& e) {
  switch (e.code()) {
    case ErrorCode::kLimitExceeded:
      return "context_length_exceeded";
    case ErrorCode::kDeadlineExceeded:
      return "deadline_exceeded";
    default:
      return "";
  }
}

}  // namespace

ApiError::ApiError(const Error& e) : status(status_of(e.code())), message(e.what()), code(code_of(e)) {}

int status_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
    case ErrorCode::kUnsupported:
    case ErrorCode::kInvalidFile:
    case ErrorCode::kLimitExceeded:
      return 400;
    case ErrorCode::kUnauthorized:
      return 401;
    case ErrorCode::kNotFound:
      return 404;
    case ErrorCode::kUnavailable:
    case ErrorCode::kOutOfMemory:
      return 503;
    case ErrorCode::kDeadlineExceeded:
      return 504;
    case ErrorCode::kCancelled:
      return 499;
    case ErrorCode::kIo:
    case ErrorCode::kInternal:
      return 500;
  }
  return 500;
}

std::string error_body(int status, const std::string& message, const std::string& param,
                       const std::string& code) {
  const auto or_null = [](const std::string& s) {
    return s.empty() ? nlohmann::json(nullptr) : nlohmann::json(s);
  };
  const nlohmann::json body = {{"error",
                                {{"message", utf8::replace_invalid(message)},
                                 {"type", type_of(status)},
                                 {"param", or_null(utf8::replace_invalid(param))},
                                 {"code", or_null(code)}}}};
  return body.dump();
}

}  // namespace millrace::server
