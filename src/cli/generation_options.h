// Sampling options shared by run and chat.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/request.h"

namespace CLI {
class App;
}

namespace millrace::cli {

struct GenerationArguments {
  engine::SamplingParams sampling;
  engine::GenerationParams generation;
  std::vector<std::string> stop;
  std::vector<std::string> logit_bias;  ///< "id:bias"
  int64_t seed = -1;
};

void add_generation_options(CLI::App& app, GenerationArguments& arguments);

/// Turns texts into their values: seed, logit bias. UsageError for a malformed one.
void finish_generation_options(GenerationArguments& arguments);

}  // namespace millrace::cli
