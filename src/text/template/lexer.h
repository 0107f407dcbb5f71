// Source text to tokens, with the white-space rules that transformers sets for chat templates: trim_blocks,
// lstrip_blocks, one trailing newline of the source dropped, all line ends as "\n".
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace millrace::text::jinja {

enum class TokenType : uint8_t {
  kData,           ///< text outside tags; `text` holds it
  kVariableBegin,  ///< {{
  kVariableEnd,    ///< }}
  kBlockBegin,     ///< {%
  kBlockEnd,       ///< %}
  kName,
  kString,  ///< `text` holds the value, escapes resolved
  kInteger,
  kFloat,
  kOperator,
  kEnd,
};

struct Token {
  TokenType type = TokenType::kEnd;
  std::string text;
  int64_t integer = 0;
  double real = 0;
  int line = 1;

  /// As messages show it.
  std::string describe() const;
};

/// Errors: kInvalidFile with the line and what was found.
std::vector<Token> tokenize(std::string_view source);

/// Error of reading a template: "chat template, line 3: ...".
[[noreturn]] void syntax_error(int line, const std::string& message);
/// The same for what Jinja has and this interpreter refuses.
[[noreturn]] void unsupported_error(int line, const std::string& message);

}  // namespace millrace::text::jinja
