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
      return 408;
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

const char* error_type(ErrorCode code) {
  switch (http_status(code)) {
    case 401:
      return "authentication_error";
    case 404:
      return "not_found_error";
    case 408:
      return "timeout_error";
    case 503:
      return "overloaded_error";
    case 500:
      return "server_error";
    default:
      return "invalid_request_error";
  }
}

std::string openai_error_body(const Error& error) {
  const auto* api = dynamic_cast<const ApiError*>(&error);
  nlohmann::ordered_json body;
  body["message"] = utf8::replace_invalid(error.what());
  body["type"] = error_type(error.code());
  body["param"] = api != nullptr && !api->param().empty() ? nlohmann::ordered_json(api->param())
                                                          : nlohmann::ordered_json();
  body["code"] = api != nullptr && !api->reason().empty() ? api->reason() : error_code_name(error.code());
  return nlohmann::ordered_json{{"error", std::move(body)}}.dump();
}

std::string anthropic_error_body(const Error& error) {
  const int status = http_status(error.code());
  const char* type = status == 401   ? "authentication_error"
                     : status == 404 ? "not_found_error"
                     : status == 503 ? "overloaded_error"
                     : status >= 500 ? "api_error"
                                     : "invalid_request_error";
  nlohmann::ordered_json body;
  body["type"] = "error";
  body["error"] = {{"type", type}, {"message", utf8::replace_invalid(error.what())}};
  return body.dump();
}

}  // namespace millrace::api
