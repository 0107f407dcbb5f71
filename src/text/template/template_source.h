// Where a model keeps its chat template(s): one or several by name, and the special tokens that templates
// print.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace millrace::text {

struct TemplateSource {
  std::vector<std::pair<std::string, std::string>>
      templates;  ///< name ("default", "tool_use", ...) and source
  std::vector<std::pair<std::string, std::string>> special_tokens;  ///< "bos_token" and its text, ...

  /// The template that transformers takes: "tool_use" when there are tools and it exists, else "default",
  /// else the only one. Null when there is none.
  const std::string* choose(bool has_tools) const;
};

/// Reads chat_template.jinja, additional_chat_templates/*.jinja, chat_template.json and tokenizer_config.json
/// of a Hugging Face directory, in the order in which transformers prefers them. No template at all is no
/// error. Errors: kInvalidFile naming file and key, kIo.
TemplateSource template_from_directory(const std::filesystem::path& folder);

}  // namespace millrace::text
