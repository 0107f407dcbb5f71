// A model's chat template wherever it is kept, for the commands that render one.
#pragma once

#include <filesystem>

#include "loaders/metadata.h"
#include "text/template/template_source.h"

namespace millrace::cli {

/// From GGUF metadata: "tokenizer.chat_template", "tokenizer.chat_template.NAME" and the special tokens'
/// texts.
text::TemplateSource template_from_metadata(const loaders::Metadata& metadata);

/// Of a GGUF file, a Hugging Face directory, or a file that is a template itself (.jinja, .j2, .txt).
/// Errors: kNotFound, and those of the readers.
text::TemplateSource open_template_source(const std::filesystem::path& path);

}  // namespace millrace::cli
