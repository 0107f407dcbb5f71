#include "cli/generation_options.h"

#include <CLI/CLI.hpp>
#include <charconv>

#include "cli/subcommand.h"

namespace millrace::cli {

void add_generation_options(CLI::App& app, GenerationArguments& a) {
  engine::SamplingParams& s = a.sampling;
  engine::GenerationParams& g = a.generation;
  const std::string group = "Sampling";
  auto number = [&](const char* name, auto& value, const char* help) {
    app.add_option(name, value, help)->group(group)->type_name("");
  };
  app.add_option("-n,--max-tokens", g.max_tokens,
                 "tokens to generate at most (default: what the context leaves)")
      ->type_name("N");
  app.add_option("--stop", a.stop, "end at this text (may be given several times)")->type_name("TEXT");
  app.add_flag("--ignore-eos", g.ignore_eos, "go on after the end token");
  app.add_option("--seed", a.seed, "seed of the sampling (default: drawn)")->type_name("N");
  number("--temperature", s.temperature, "0 is greedy (default 1)");
  number("--top-k", s.top_k, "keep the k likeliest");
  number("--top-p", s.top_p, "keep the likeliest that together reach p");
  number("--min-p", s.min_p, "drop what is less likely than p times the likeliest");
  number("--typical-p", s.typical_p, "locally typical sampling");
  number("--mirostat", s.mirostat, "1 or 2; with --mirostat-tau, --mirostat-eta");
  app.add_option("--mirostat-tau", s.mirostat_tau)->group("");
  app.add_option("--mirostat-eta", s.mirostat_eta)->group("");
  number("--xtc-probability", s.xtc_probability,
         "leave out the likeliest now and then; with --xtc-threshold");
  app.add_option("--xtc-threshold", s.xtc_threshold)->group("");
  number("--dry-multiplier", s.dry_multiplier,
         "DRY penalty; with --dry-base, --dry-allowed-length, --dry-last-n");
  app.add_option("--dry-base", s.dry_base)->group("");
  app.add_option("--dry-allowed-length", s.dry_allowed_length)->group("");
  app.add_option("--dry-last-n", s.dry_penalty_last_n)->group("");
  number("--repetition-penalty", s.repetition_penalty, "above 1 discourages seen tokens");
  number("--presence-penalty", s.presence_penalty, "subtracted from generated tokens once");
  number("--frequency-penalty", s.frequency_penalty, "subtracted as often as generated");
  app.add_option("--penalty-last-n", s.penalty_last_n)->group("");
  number("--logit-bias", a.logit_bias, "ID:BIAS (may be given several times)");
  number("--logprobs", s.logprobs, "log-probabilities of the N likeliest (with --json)");
  number("--beams", g.beam_width, "beam search of this width; with --length-penalty");
  app.add_option("--length-penalty", g.length_penalty)->group("");
}

void finish_generation_options(GenerationArguments& a) {
  if (a.seed >= 0) a.sampling.seed = static_cast<uint64_t>(a.seed);
  for (const std::string& text : a.logit_bias) {
    const size_t colon = text.find(':');
    int32_t id = 0;
    float bias = 0;
    bool ok = colon != std::string::npos;
    if (ok) {
      const auto first = std::from_chars(text.data(), text.data() + colon, id);
      const auto second = std::from_chars(text.data() + colon + 1, text.data() + text.size(), bias);
      ok = first.ec == std::errc() && first.ptr == text.data() + colon && second.ec == std::errc() &&
           second.ptr == text.data() + text.size();
    }
    if (!ok) throw UsageError(fmt::format("--logit-bias '{}' is malformed: expected ID:BIAS", text));
    a.sampling.logit_bias.emplace_back(id, bias);
  }
}

}  // namespace millrace::cli
