// Errors as OpenAI's API shows them.
#pragma once

#include <exception>
#include <string>

#include "core/error.h"

namespace millrace::server {

/// Thrown while a request is read; becomes the response.
class ApiError : public std::exception {
 public:
  ApiError(int status, std::string message, std::string param = "", std::string code = "")
      : status(status), message(std::move(message)), param(std::move(param)), code(std::move(code)) {}
  explicit ApiError(const Error& e);
  const char* what() const noexcept override { return message.c_str(); }

  int status;
  std::string message, param, code;
};

/// HTTP status of an error of the engine.
int status_of(ErrorCode code);

/// {"error": {"message", "type", "param", "code"}}
std::string error_body(int status, const std::string& message, const std::string& param = "",
                       const std::string& code = "");

}  // namespace millrace::server
