// The only place that reads the environment.
#pragma once

#include <filesystem>
#include <string>

namespace millrace::config {

/// Value of an environment variable, or `fallback`.
std::string environment(const char* name, const std::string& fallback = "");

/// Where caches and chat history go: $XDG_CACHE_HOME/millrace or ~/.cache/millrace.
std::filesystem::path cache_dir();

/// Whether standard error is a terminal on which progress may be drawn.
bool interactive_stderr();

}  // namespace millrace::config
