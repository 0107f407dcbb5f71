#include "engine/request.h"

#include <cmath>
#include <limits>

#include "core/error.h"

namespace millrace::engine {
namespace {

/// NaN fails every comparison, so each range is written as what must hold.
void in_range(const char* name, float value, float low, float high) {
  require(value >= low && value <= high, ErrorCode::kInvalidArgument,
          "{} is {}, but must be between {} and {}", name, value, low, high);
}

void above_zero(const char* name, float value, float high) {
  require(value > 0 && value <= high, ErrorCode::kInvalidArgument,
          "{} is {}, but must be above 0 and at most {}", name, value, high);
}

void in_count(const char* name, int64_t value, int64_t low, int64_t high) {
  require(value >= low && value <= high, ErrorCode::kInvalidArgument,
          "{} is {}, but must be between {} and {}", name, value, low, high);
}

void known_token(const char* name, TokenId token, int32_t vocab_size) {
  require(token >= 0 && token < vocab_size, ErrorCode::kInvalidArgument,
          "{} holds token {}, but the vocabulary has tokens 0 to {}", name, token, vocab_size - 1);
}

constexpr int64_t kMaxInt = std::numeric_limits<int32_t>::max();

void validate_generation(const GenerationParams& p, int32_t vocab_size, const RequestLimits& limits) {
  in_count("max_tokens", p.max_tokens, -1, kMaxInt);
  in_count("min_tokens", p.min_tokens, 0, kMaxInt);
  require(p.max_tokens < 0 || p.min_tokens <= p.max_tokens, ErrorCode::kInvalidArgument,
          "min_tokens is {}, but must not exceed max_tokens, which is {}", p.min_tokens, p.max_tokens);
  in_count("n", p.n, 1, limits.max_n);
  in_count("best_of", p.best_of, 0, limits.max_n);
  require(p.best_of == 0 || p.best_of >= p.n, ErrorCode::kInvalidArgument,
          "best_of is {}, but must not be below n, which is {}", p.best_of, p.n);
  in_count("beam_width", p.beam_width, 0, limits.max_beam_width);
  require(p.beam_width == 0 || (p.n <= p.beam_width && p.best_of == 0), ErrorCode::kInvalidArgument,
          "beam_width is {}, but must not be below n, which is {}, and excludes best_of", p.beam_width, p.n);
  in_range("length_penalty", p.length_penalty, -10.0f, 10.0f);
  in_count("stop tokens", static_cast<int64_t>(p.stop_token_ids.size()), 0, limits.max_stop_tokens);
  for (const TokenId t : p.stop_token_ids) known_token("stop_token_ids", t, vocab_size);
  for (const TokenId t : p.end_tokens) known_token("end_tokens", t, vocab_size);
}

}  // namespace

void validate(const SamplingParams& p, int32_t vocab_size, const RequestLimits& limits) {
  in_range("temperature", p.temperature, 0.0f, 100.0f);
  in_count("top_k", p.top_k, -1, kMaxInt);
  above_zero("top_p", p.top_p, 1.0f);
  in_range("min_p", p.min_p, 0.0f, 1.0f);
  above_zero("typical_p", p.typical_p, 1.0f);
  in_count("mirostat", p.mirostat, 0, 2);
  above_zero("mirostat_tau", p.mirostat_tau, 100.0f);
  above_zero("mirostat_eta", p.mirostat_eta, 1.0f);
  in_range("xtc_probability", p.xtc_probability, 0.0f, 1.0f);
  in_range("xtc_threshold", p.xtc_threshold, 0.0f, 1.0f);
  in_range("dry_multiplier", p.dry_multiplier, 0.0f, 100.0f);
  in_range("dry_base", p.dry_base, 1.0f, 100.0f);
  in_count("dry_allowed_length", p.dry_allowed_length, 0, kMaxInt);
  in_count("dry_penalty_last_n", p.dry_penalty_last_n, -1, kMaxInt);
  in_count("dry_sequence_breakers", static_cast<int64_t>(p.dry_sequence_breakers.size()), 0, 1024);
  for (const auto& breaker : p.dry_sequence_breakers) {
    in_count("a DRY sequence breaker's length", static_cast<int64_t>(breaker.size()), 1, 64);
    for (const TokenId t : breaker) known_token("dry_sequence_breakers", t, vocab_size);
  }
  above_zero("repetition_penalty", p.repetition_penalty, 100.0f);
  in_range("presence_penalty", p.presence_penalty, -2.0f, 2.0f);
  in_range("frequency_penalty", p.frequency_penalty, -2.0f, 2.0f);
  in_count("penalty_last_n", p.penalty_last_n, -1, kMaxInt);
  in_count("logit_bias entries", static_cast<int64_t>(p.logit_bias.size()), 0, limits.max_logit_bias);
  for (const auto& [token, bias] : p.logit_bias) {
    known_token("logit_bias", token, vocab_size);
    in_range("a logit_bias value", bias, -100.0f, 100.0f);
  }
  in_count("logprobs", p.logprobs, -1, limits.max_logprobs);
  in_count("prompt_logprobs", p.prompt_logprobs, -1, limits.max_logprobs);
}

void validate(const Request& r, int32_t vocab_size, const RequestLimits& limits) {
  require(!r.prompt.empty(), ErrorCode::kInvalidArgument,
          "the prompt is empty, but must have at least one token");
  for (const TokenId t : r.prompt) known_token("the prompt", t, vocab_size);
  validate(r.sampling, vocab_size, limits);
  validate_generation(r.generation, vocab_size, limits);
  require(r.deadline_seconds >= 0 && r.deadline_seconds <= 1e9, ErrorCode::kInvalidArgument,
          "the deadline is {} seconds away, but must be 0 (none) to 1e9", r.deadline_seconds);
  in_count("max_queued_events", r.max_queued_events, 0, kMaxInt);
}

const char* finish_reason_name(FinishReason reason) {
  switch (reason) {
    case FinishReason::kNone:
      return "none";
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kCancelled:
      return "cancelled";
    case FinishReason::kDeadline:
      return "deadline";
  }
  return "none";
}

}  // namespace millrace::engine
