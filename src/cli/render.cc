// millrace render: a chat template on a context, byte for byte.
#include <CLI/CLI.hpp>
#include <charconv>
#include <cstdio>
#include <ctime>
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "cli/loaded_model.h"
#include "cli/model_template.h"
#include "cli/subcommand.h"
#include "core/config.h"
#include "core/error.h"
#include "text/template/chat_template.h"

namespace millrace::cli {
namespace {

/// Whether a context asks for tools; a context that is no object is refused later, with the renderer's
/// sentence.
bool has_tools(const std::string& context) {
  const auto json = nlohmann::json::parse(context, nullptr, false);
  return json.is_object() && json.contains("tools") && !json["tools"].is_null();
}

int run_render(int argc, char** argv) {
  CLI::App app{
      "Renders a chat template with the JSON object on standard input as its variables and writes the text, "
      "nothing added."};
  app.name("millrace render");
  std::string model, now, name;
  app.add_option("-m,--model", model, "a GGUF file, a Hugging Face directory, or a template file (.jinja)")
      ->required();
  app.add_option("--template", name, "which of the model's templates (\"default\", \"tool_use\", ...)");
  app.add_option(
      "--now", now,
      "date and time for strftime_now, like 2026-07-26T09:30 (default: SOURCE_DATE_EPOCH, or now)");
  if (parse_arguments(app, argc, argv)) return 0;

  text::RenderOptions options;
  if (!now.empty()) {
    options.now = text::LocalTime::parse(now);
    if (!options.now)
      throw UsageError("--now: expected a date and time like 2026-07-26T09:30, got '" + now + "'");
  }
  // The convention of reproducible builds, for those who cannot pass an option.
  if (const std::string epoch = config::environment("SOURCE_DATE_EPOCH"); now.empty() && !epoch.empty()) {
    int64_t seconds = 0;
    const char* end = epoch.data() + epoch.size();
    const auto [stop, error] = std::from_chars(epoch.data(), end, seconds);
    require(error == std::errc() && stop == end && seconds >= 0 && seconds < 253402300800,
            ErrorCode::kInvalidArgument, "SOURCE_DATE_EPOCH is '{}': expected seconds since 1970", epoch);
    const std::time_t time = seconds;
    std::tm tm{};
    gmtime_r(&time, &tm);
    options.now =
        text::LocalTime{tm.tm_year + 1900, tm.tm_mon + 1, tm.tm_mday, tm.tm_hour, tm.tm_min, tm.tm_sec};
  }
  std::ostringstream input;
  input << std::cin.rdbuf();
  require(!std::cin.bad(), ErrorCode::kIo, "standard input cannot be read");
  const std::string context = std::move(input).str();

  const text::TemplateSource source = open_template_source(model);
  const std::string* chosen = name.empty() ? source.choose(has_tools(context)) : nullptr;
  for (const auto& [known, text] : source.templates)
    if (known == name) chosen = &text;
  require(chosen != nullptr, ErrorCode::kNotFound, "{} has no chat template{}", model,
          name.empty() ? "" : " named '" + name + "'");
  options.fallbacks = source.special_tokens;
  const std::string text = text::ChatTemplate::parse(*chosen).render(context, options).text;
  const bool written =
      std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0;
  require(written, ErrorCode::kIo, "standard output cannot be written");
  return 0;
}

MILLRACE_SUBCOMMAND("render", 45, "render a chat template on a JSON context", run_render);

}  // namespace
}  // namespace millrace::cli
