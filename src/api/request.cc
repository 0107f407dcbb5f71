#include "api/request.h"

#include <nlohmann/json.hpp>

#include "core/utf8.h"

namespace millrace::api {

bool GenerationRequest::has(std::string_view field) const {
  return std::find(given.begin(), given.end(), field) != given.end();
}

int http_status(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
    case ErrorCode::kUnsupported:
    case ErrorCode::kInvalidFile:
      return 400;
    case ErrorCode::kUnauthorized:
      return 401;
    case ErrorCode::kNotFound:
      return 404;
    case ErrorCode::kDeadlineExceeded:
      return 504;
    case ErrorCode::kLimitExceeded:
      return 400;
    case ErrorCode::kCancelled:
      return 499;
    case ErrorCode::kOutOfMemory:
    case ErrorCode::kUnavailable:
      return 503;
    default:
      return 500;
  }
}

int http_status(const Error& error) {
  const auto* api = dynamic_cast<const ApiError*>(&error);
  return api != nullptr && api->status() != 0 ? api->status() : http_status(error.code());
}

const char* error_type(int status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 404:
      return "not_found_error";
    case 429:
      return "rate_limit_error";
    case 503:
      return "overloaded_error";
    case 504:
      return "timeout_error";
    default:
      return status >= 500 ? "server_error" : "invalid_request_error";
  }
}

namespace {

/// OpenAI's codes where it has one.
std::string short_code(const Error& error) {
  const auto* api = dynamic_cast<const ApiError*>(&error);
  if (api != nullptr && !api->reason().empty()) return api->reason();
  if (error.code() == ErrorCode::kLimitExceeded) return "context_length_exceeded";
  return error_code_name(error.code());
}

}  // namespace

std::string openai_error_body(const Error& error) {
  const auto* api = dynamic_cast<const ApiError*>(&error);
  nlohmann::ordered_json body;
  body["message"] = utf8::replace_invalid(error.what());
  body["type"] = error_type(http_status(error));
  body["param"] = api != nullptr && !api->param().empty()
                      ? nlohmann::ordered_json(utf8::replace_invalid(api->param()))
                      : nlohmann::ordered_json();
  body["code"] = short_code(error);
  return nlohmann::ordered_json{{"error", std::move(body)}}.dump();
}

std::string anthropic_error_body(const Error& error) {
  const int status = http_status(error);
  const char* type = status == 401   ? "authentication_error"
                     : status == 404 ? "not_found_error"
                     : status == 413 ? "request_too_large"
                     : status == 429 ? "rate_limit_error"
                     : status == 503 ? "overloaded_error"
                     : status == 504 ? "timeout_error"
                     : status >= 500 ? "api_error"
                                     : "invalid_request_error";
  nlohmann::ordered_json body;
  body["type"] = "error";
  body["error"] = {{"type", type}, {"message", utf8::replace_invalid(error.what())}};
  return body.dump();
}

}  // namespace millrace::api
