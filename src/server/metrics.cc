#include "server/metrics.h"

#include "api/grammar_service.h"
#include "core/cpu.h"

namespace millrace::server {
namespace {

class Text {
 public:
  explicit Text(const std::string& model) {
    for (const char c : model) {
      if (c == '"' || c == '\\') label_ += '\\';
      label_ += c == '\n' ? ' ' : c;
    }
    label_ = "model_name=\"" + label_ + "\"";
  }

  template <typename T>
  void value(const char* name, const char* type, const char* help, T value, const std::string& more = "") {
    if (last_ != name) out += fmt::format("# HELP {} {}\n# TYPE {} {}\n", name, help, name, type);
    last_ = name;
    out += fmt::format("{}{{{}{}}} {}\n", name, label_, more, value);
  }

  void histogram(const char* name, const char* help, const engine::Histogram& h) {
    out += fmt::format("# HELP {} {}\n# TYPE {} histogram\n", name, help, name);
    last_ = name;
    uint64_t below = 0;
    for (size_t i = 0; i < h.bounds().size(); ++i) {
      below += h.counts()[i];
      out += fmt::format("{}_bucket{{{},le=\"{}\"}} {}\n", name, label_, h.bounds()[i], below);
    }
    out += fmt::format("{}_bucket{{{},le=\"+Inf\"}} {}\n{}_sum{{{}}} {}\n{}_count{{{}}} {}\n", name, label_,
                       h.count(), name, label_, h.sum(), name, label_, h.count());
  }

  std::string out;

 private:
  std::string label_;
  std::string last_;
};

void grammar_text(const api::GrammarService& grammars, Text& t) {
  const api::GrammarCounters& g = grammars.counters();
  const char* help = "Grammars asked for by requests.";
  t.value("millrace:grammars_total", "counter", help, g.compiled.load(), ",result=\"ready\"");
  t.value("millrace:grammars_total", "counter", help, g.refused.load(), ",result=\"refused\"");
  t.value("millrace:grammar_wait_seconds_total", "counter", "Time that requests waited for their grammars.",
          static_cast<double>(g.compile_micros.load()) * 1e-6);
  t.value("millrace:grammar_masks_total", "counter", "Token masks.", g.masks.load());
  t.value("millrace:grammar_mask_seconds_total", "counter", "Time in token masks.",
          static_cast<double>(g.mask_nanos.load()) * 1e-9);
  t.value("millrace:grammar_slow_masks_total", "counter", "Masks that took over a millisecond.",
          g.slow_masks.load());
  t.value("millrace:grammars_cached", "gauge", "Compiled grammars that are kept.",
          grammars.cached_grammars());
  t.value("millrace:memory_bytes", "gauge", "Memory by use.", grammars.cached_bytes(), ",use=\"grammars\"");
}

}  // namespace

std::string prometheus_text(const engine::Stats& s, const HttpCounters& http, const GoodputCounters& goodput,
                            const ServedModel* model) {
  Text t(model != nullptr ? model->id : "");
  t.value("vllm:num_requests_running", "gauge", "Sequences computed together now.", s.running);
  t.value("vllm:num_requests_waiting", "gauge", "Sequences waiting.", s.waiting);
  t.value("vllm:num_requests_swapped", "gauge", "Sequences in the host area.", s.swapped);
  const double usage =
      s.blocks_total > 0 ? static_cast<double>(s.blocks_used) / static_cast<double>(s.blocks_total) : 0;
  t.value("vllm:kv_cache_usage_perc", "gauge", "Share of the cache blocks in use, 0 to 1.", usage);
  t.value("vllm:gpu_cache_usage_perc", "gauge", "The same under its older name.", usage);
  t.value("vllm:prefix_cache_queries_total", "counter", "Tokens looked up in the prefix cache.",
          s.prefix_queried_tokens);
  t.value("vllm:prefix_cache_hits_total", "counter", "Tokens found there.", s.prefix_hit_tokens);
  t.value("millrace:prefix_cache_hit_ratio", "gauge", "Found of looked up, since the start, 0 to 1.",
          s.prefix_queried_tokens > 0
              ? static_cast<double>(s.prefix_hit_tokens) / static_cast<double>(s.prefix_queried_tokens)
              : 0.0);
  if (model != nullptr)
    t.value("vllm:cache_config_info", "gauge", "How the cache is laid out.", 1,
            fmt::format(
                ",block_size=\"{}\",cache_dtype=\"{}\",enable_prefix_caching=\"{}\",num_blocks=\"{}\"",
                model->engine->options().block_size, engine::kv_type_name(*model->engine->options().kv_type),
                model->engine->options().prefix_cache ? "True" : "False", s.blocks_total));
  t.value("vllm:num_preemptions_total", "counter", "Preemptions.",
          s.preemptions_recompute + s.preemptions_swap);
  t.value("vllm:prompt_tokens_total", "counter", "Prompt tokens, found ones included.", s.prompt_tokens);
  t.value("vllm:generation_tokens_total", "counter", "Tokens generated.", s.generation_tokens);
  t.value("millrace:jumped_tokens_total", "counter",
          "Of these, forced by a grammar without a step of their own.", s.jumped_tokens);
  const char* finished = "vllm:request_success_total";
  const char* finished_help = "Answers by what ended them.";
  t.value(finished, "counter", finished_help, s.finished_stop, ",finished_reason=\"stop\"");
  t.value(finished, "counter", finished_help, s.finished_length, ",finished_reason=\"length\"");
  t.value(finished, "counter", finished_help, s.finished_cancelled, ",finished_reason=\"abort\"");
  t.value(finished, "counter", finished_help, s.finished_deadline, ",finished_reason=\"deadline\"");
  t.value(finished, "counter", finished_help, s.finished_error, ",finished_reason=\"error\"");
  t.histogram("vllm:time_to_first_token_seconds", "From arrival to the first token.", s.ttft);
  t.histogram("vllm:time_per_output_token_seconds", "Between two tokens of an answer.",
              s.time_between_tokens);
  t.histogram("vllm:inter_token_latency_seconds", "The same under its newer name.", s.time_between_tokens);
  t.histogram("vllm:request_time_per_output_token_seconds", "Mean over an answer, after its first token.",
              s.time_per_output_token);
  t.histogram("vllm:request_queue_time_seconds", "From arrival to the first step.", s.queue);
  t.histogram("vllm:e2e_request_latency_seconds", "From arrival to the end.", s.end_to_end);
  t.histogram("vllm:request_prefill_time_seconds", "From the first step to the first token.", s.prefill);
  t.histogram("vllm:request_decode_time_seconds", "From the first token to the end.", s.decode);
  t.histogram("vllm:request_inference_time_seconds", "From the first step to the end.", s.inference);
  t.histogram("vllm:request_params_n", "Answers asked for.", s.wanted_answers);
  t.histogram("vllm:request_params_max_tokens", "Tokens that an answer may have.", s.wanted_tokens);
  t.histogram("vllm:iteration_tokens_total", "Tokens of a step.", s.step_tokens);
  t.histogram("vllm:request_prompt_tokens", "Tokens of prompts.", s.prompt_length);
  t.histogram("vllm:request_generation_tokens", "Tokens of answers.", s.generation_length);

  t.value("millrace:requests_paused", "gauge", "Requests whose reader is behind.", s.paused);
  t.value("millrace:requests_dropped_total", "counter", "Requests whose reader took nothing for too long.",
          s.stalled_dropped);
  t.value("millrace:kv_blocks", "gauge", "Cache blocks.", s.blocks_total, ",state=\"total\"");
  t.value("millrace:kv_blocks", "gauge", "Cache blocks.", s.blocks_used, ",state=\"used\"");
  t.value("millrace:kv_blocks", "gauge", "Cache blocks.", s.blocks_cached, ",state=\"cached\"");
  t.value("millrace:kv_waste_ratio", "gauge", "Empty token places in the blocks held, 0 to 1.", s.kv_waste);
  t.value("millrace:batch_tokens", "gauge", "Tokens of the last step.", s.batch_tokens);
  t.value("millrace:batch_sequences", "gauge", "Sequences of the last step.", s.batch_sequences);
  t.value("millrace:preemptions_total", "counter", "Preemptions by kind.", s.preemptions_recompute,
          ",kind=\"recompute\"");
  t.value("millrace:preemptions_total", "counter", "Preemptions by kind.", s.preemptions_swap,
          ",kind=\"swap\"");
  t.value("millrace:memory_bytes", "gauge", "Memory by use.", s.weight_bytes, ",use=\"weights\"");
  t.value("millrace:memory_bytes", "gauge", "Memory by use.", s.kv_bytes, ",use=\"kv\"");
  t.value("millrace:memory_bytes", "gauge", "Memory by use.", s.activation_bytes, ",use=\"activations\"");
  t.value("millrace:memory_bytes", "gauge", "Memory by use.", s.swap_bytes_used, ",use=\"swap\"");
  t.value("millrace:memory_bytes", "gauge", "Memory by use.", resident_bytes(), ",use=\"resident\"");
  t.value("millrace:steps_total", "counter", "Steps of the engine.", s.steps);
  t.value("millrace:busy_seconds_total", "counter", "Time in steps.", s.busy_seconds);
  t.value("millrace:forward_seconds_total", "counter", "Of this, in the model.", s.forward_seconds);
  for (size_t layer = 0; layer < s.expert_tokens.size(); ++layer)
    for (size_t expert = 0; expert < s.expert_tokens[layer].size(); ++expert)
      t.value("millrace:expert_tokens_total", "counter", "Rows that each expert of a layer got.",
              s.expert_tokens[layer][expert], fmt::format(",layer=\"{}\",expert=\"{}\"", layer, expert));
  t.histogram("millrace:step_seconds", "Time of a step.", s.step);
  t.value("millrace:goodput_requests_total", "counter", "Requests by whether they met the service level.",
          goodput.met.load(), ",met=\"true\"");
  t.value("millrace:goodput_requests_total", "counter", "Requests by whether they met the service level.",
          goodput.missed.load(), ",met=\"false\"");
  t.value("millrace:goodput_tokens_total", "counter", "Tokens of requests that met it.",
          goodput.tokens_met.load());
  t.value("millrace:http_connections", "gauge", "Open connections.", http.connections);
  t.value("millrace:http_requests_total", "counter", "HTTP requests.", http.requests);
  t.value("millrace:http_refused_total", "counter", "Connections beyond the limit.", http.refused);
  t.value("millrace:http_timeouts_total", "counter", "Requests that did not arrive in time.", http.timeouts);
  if (model != nullptr && model->grammars) grammar_text(*model->grammars, t);
  return std::move(t.out);
}

}  // namespace millrace::server
