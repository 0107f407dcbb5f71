// OpenAI's request bodies, read into the engine's terms.

#include <cmath>

#include "core/utf8.h"
#include "server/call.h"
#include "server/errors.h"
#include "server/fields.h"

namespace millrace::server {

using nlohmann::json;

namespace {

[[noreturn]] void refuse(const std::string& message, const char* param) {
  throw ApiError(400, message, param);
}

void read_logit_bias(Fields& f, engine::SamplingParams& p) {
  const json* bias = f.find("logit_bias");
  if (bias == nullptr) return;
  if (!bias->is_object()) refuse("'logit_bias' must be an object of token ids and numbers", "logit_bias");
  for (const auto& [key, value] : bias->items()) {
    size_t used = 0;
    long id = -1;
    try {
      id = std::stol(key, &used);
    } catch (const std::exception&) {
    }
    if (used != key.size() || key.empty() || id < 0 || id > std::numeric_limits<int32_t>::max() ||
        !value.is_number())
      refuse(
          fmt::format(
              "'logit_bias' has the entry '{}', but must have token ids as keys and numbers as values", key),
          "logit_bias");
    p.logit_bias.emplace_back(static_cast<int32_t>(id), static_cast<float>(value.get<double>()));
  }
}

void read_stops(Fields& f, CompletionRequest& r, const RequestBounds& bounds) {
  const auto add = [&](const json& s) {
    if (!s.is_string() || s.get_ref<const std::string&>().empty())
      refuse("'stop' must be a non-empty string or an array of such", "stop");
    if (s.get_ref<const std::string&>().size() > static_cast<size_t>(bounds.stop_string_bytes))
      refuse(fmt::format("a stop string may have at most {} bytes", bounds.stop_string_bytes), "stop");
    r.stops.push_back(s.get<std::string>());
  };
  if (const json* stop = f.find("stop")) {
    if (stop->is_array()) {
      if (stop->size() > static_cast<size_t>(bounds.stop_strings))
        refuse(fmt::format("'stop' has {} strings, but at most {} are allowed", stop->size(),
                           bounds.stop_strings),
               "stop");
      for (const json& s : *stop) add(s);
    } else {
      add(*stop);
    }
  }
  if (const json* ids = f.find("stop_token_ids")) {
    if (!ids->is_array()) refuse("'stop_token_ids' must be an array of token ids", "stop_token_ids");
    for (const json& id : *ids) {
      if (!id.is_number_integer()) refuse("'stop_token_ids' must hold integers", "stop_token_ids");
      const auto value = id.get<int64_t>();
      r.generation.stop_token_ids.push_back(
          value < 0 || value > std::numeric_limits<int32_t>::max() ? -1 : static_cast<int32_t>(value));
    }
  }
}

/// What completions and chat have in common.
void read_common(Fields& f, CompletionRequest& r, const ServedModel& model, const RequestBounds& bounds) {
  const std::string name = f.text("model", model.id);
  if (name != model.id && name != "default")
    throw ApiError(404, fmt::format("The model '{}' does not exist: this server has '{}'", name, model.id),
                   "model", "model_not_found");
  engine::SamplingParams& s = r.sampling;
  s.temperature = f.number("temperature", 1.0f);
  s.top_k = f.integer("top_k", 0);
  s.top_p = f.number("top_p", 1.0f);
  s.min_p = f.number("min_p", 0.0f);
  s.typical_p = f.number("typical_p", 1.0f);
  s.mirostat = f.integer("mirostat", 0);
  s.mirostat_tau = f.number("mirostat_tau", 5.0f);
  s.mirostat_eta = f.number("mirostat_eta", 0.1f);
  s.xtc_probability = f.number("xtc_probability", 0.0f);
  s.xtc_threshold = f.number("xtc_threshold", 0.1f);
  s.dry_multiplier = f.number("dry_multiplier", 0.0f);
  s.dry_base = f.number("dry_base", 1.75f);
  s.dry_allowed_length = f.integer("dry_allowed_length", 2);
  s.dry_penalty_last_n = f.integer("dry_penalty_last_n", -1);
  if (const json* breakers = f.find("dry_sequence_breakers")) {
    if (!breakers->is_array() || breakers->size() > 64)
      refuse("'dry_sequence_breakers' must be an array of at most 64 strings", "dry_sequence_breakers");
    for (const json& b : *breakers) {
      if (!b.is_string()) refuse("'dry_sequence_breakers' must hold strings", "dry_sequence_breakers");
      auto ids = model.tokenizer->encode(b.get<std::string>(), {false, false});
      if (!ids.empty()) s.dry_sequence_breakers.push_back(std::move(ids));
    }
  }
  s.repetition_penalty = f.number("repetition_penalty", 1.0f);
  s.presence_penalty = f.number("presence_penalty", 0.0f);
  s.frequency_penalty = f.number("frequency_penalty", 0.0f);
  s.penalty_last_n = f.integer("penalty_last_n", -1);
  if (const auto seed = f.big_integer("seed")) s.seed = static_cast<uint64_t>(*seed);
  s.prompt_logprobs = f.integer("prompt_logprobs", -1);
  read_logit_bias(f, s);
  read_stops(f, r, bounds);

  engine::GenerationParams& g = r.generation;
  g.n = f.integer("n", 1);
  g.best_of = f.integer("best_of", 0);
  g.min_tokens = f.integer("min_tokens", 0);
  g.ignore_eos = f.boolean("ignore_eos", false);
  if (f.boolean("use_beam_search", false)) {
    g.beam_width = g.best_of > 0 ? g.best_of : std::max(2, g.n);
    g.best_of = 0;
  }
  g.beam_width = f.integer("beam_width", g.beam_width);
  g.length_penalty = f.number("length_penalty", 1.0f);
  g.early_stopping = f.boolean("early_stopping", false);
  g.end_tokens = model.tokenizer->end_of_generation();
  r.include_stop = f.boolean("include_stop_str_in_output", false);
  r.token_ids = f.boolean("return_token_ids", false);

  r.priority = f.integer("priority", 0);
  const double deadline = f.real("deadline_ms", 0);
  if (f.has("deadline_ms") && !(deadline > 0 && deadline <= 1e12))
    refuse("'deadline_ms' must be above 0 and at most 1e12", "deadline_ms");
  r.deadline_seconds = deadline / 1000;
  if (bounds.seconds > 0 && (r.deadline_seconds == 0 || r.deadline_seconds > bounds.seconds))
    r.deadline_seconds = bounds.seconds;
  r.cache_salt = f.text("cache_salt");
  r.pin_prefix = f.boolean("cache_pin", false);
  r.stream = f.boolean("stream", false);
  if (const json* options = f.find("stream_options")) {
    if (!options->is_object()) refuse("'stream_options' must be an object", "stream_options");
    if (!r.stream) refuse("'stream_options' is only allowed when 'stream' is true", "stream_options");
    Fields inner(*options);
    r.include_usage = inner.boolean("include_usage", false);
    inner.ignore({"include_obfuscation", "continuous_usage_stats"});
    inner.refuse_unknown();
  }
  // Fields of OpenAI's that ask for nothing this server could do differently.
  f.ignore({"user", "store", "metadata", "service_tier", "safety_identifier", "prompt_cache_key",
            "skip_special_tokens", "spaces_between_special_tokens", "prompt_cache_retention", "verbosity"});
}

void limit_tokens(CompletionRequest& r, const RequestBounds& bounds, const char* param) {
  int32_t& most = r.generation.max_tokens;
  if (most < -1) refuse(fmt::format("'{}' is {}, but must not be negative", param, most), param);
  if (bounds.max_tokens > 0 && most > bounds.max_tokens)
    refuse(fmt::format("'{}' is {}, but this server allows at most {}", param, most, bounds.max_tokens),
           param);
  if (bounds.max_tokens > 0 && most < 0) most = bounds.max_tokens;
}

Prompt text_prompt(std::string text, const ServedModel& model, bool add_special) {
  Prompt p;
  p.tokens = model.tokenizer->encode(text, {add_special, true});
  // An empty prompt begins where every text does.
  if (p.tokens.empty() && model.tokenizer->bos()) p.tokens.push_back(*model.tokenizer->bos());
  p.text = std::move(text);
  return p;
}

Prompt token_prompt(const json& ids, const ServedModel& model, const char* param) {
  Prompt p;
  for (const json& id : ids) {
    if (!id.is_number_integer())
      refuse(fmt::format("'{}' must hold strings, or token ids, not a mixture", param), param);
    const auto value = id.get<int64_t>();
    if (value < 0 || value >= model.engine->model_info().vocab_size)
      refuse(fmt::format("'{}' has the token id {}, but the vocabulary has 0 to {}", param, value,
                         model.engine->model_info().vocab_size - 1),
             param);
    p.tokens.push_back(static_cast<int32_t>(value));
  }
  p.text = model.tokenizer->decode(p.tokens);
  return p;
}

/// A string, an array of strings, of token ids, or of arrays of token ids.
std::vector<Prompt> read_prompts(const json& value, const ServedModel& model, const RequestBounds& bounds,
                                 const char* param) {
  std::vector<Prompt> prompts;
  if (value.is_string()) {
    prompts.push_back(text_prompt(value.get<std::string>(), model, true));
  } else if (value.is_array() && !value.empty() && value[0].is_number()) {
    prompts.push_back(token_prompt(value, model, param));
  } else if (value.is_array() && !value.empty()) {
    if (value.size() > static_cast<size_t>(bounds.prompts))
      refuse(
          fmt::format("'{}' has {} entries, but at most {} are allowed", param, value.size(), bounds.prompts),
          param);
    for (const json& p : value) {
      if (p.is_string())
        prompts.push_back(text_prompt(p.get<std::string>(), model, true));
      else if (p.is_array() && !p.empty())
        prompts.push_back(token_prompt(p, model, param));
      else
        refuse(fmt::format("'{}' must hold strings or non-empty arrays of token ids", param), param);
    }
  } else {
    refuse(fmt::format("'{}' must be a string, an array of strings, or token ids", param), param);
  }
  return prompts;
}

/// Messages as templates expect them: text parts joined, the arguments of tool calls as objects.
json template_messages(const json& messages, const RequestBounds& bounds) {
  if (!messages.is_array() || messages.empty()) refuse("'messages' must be a non-empty array", "messages");
  if (messages.size() > static_cast<size_t>(bounds.messages))
    refuse(fmt::format("'messages' has {} entries, but at most {} are allowed", messages.size(),
                       bounds.messages),
           "messages");
  json out = json::array();
  for (size_t i = 0; i < messages.size(); ++i) {
    json m = messages[i];
    const std::string at = fmt::format("messages[{}]", i);
    if (!m.is_object() || !m.contains("role") || !m["role"].is_string())
      refuse(fmt::format("'{}' must be an object with a 'role'", at), "messages");
    if (m["role"] == "developer") m["role"] = "system";
    if (m.contains("content") && m["content"].is_array()) {
      std::string text;
      for (const json& part : m["content"]) {
        const std::string type = part.is_object() ? part.value("type", "text") : "";
        if (type != "text" && type != "refusal")
          refuse(fmt::format("'{}' has content of type '{}', but this model takes text only", at, type),
                 "messages");
        const auto text_of = part.find("text");
        if (text_of == part.end() || !text_of->is_string())
          refuse(fmt::format("'{}' has a text part without 'text'", at), "messages");
        text += text_of->get<std::string>();
      }
      m["content"] = text;
    } else if (!m.contains("content")) {
      if (!m.contains("tool_calls")) refuse(fmt::format("'{}' has no 'content'", at), "messages");
      m["content"] = nullptr;
    } else if (!m["content"].is_string() && !m["content"].is_null()) {
      refuse(fmt::format("'{}.content' must be a string or an array of parts", at), "messages");
    }
    if (m.contains("tool_calls") && m["tool_calls"].is_array())
      for (json& call : m["tool_calls"]) {
        if (!call.is_object() || !call.contains("function") || !call["function"].is_object()) continue;
        json& arguments = call["function"]["arguments"];
        if (!arguments.is_string()) continue;
        json parsed = json::parse(arguments.get<std::string>(), nullptr, false);
        if (parsed.is_object()) arguments = std::move(parsed);
      }
    out.push_back(std::move(m));
  }
  return out;
}

void read_tools(Fields& f, CompletionRequest& r, json& context, const RequestBounds& bounds) {
  const json* tools = f.find("tools");
  const json* choice = f.find("tool_choice");
  f.ignore({"parallel_tool_calls"});
  if (tools == nullptr) return;
  if (!tools->is_array() || tools->size() > static_cast<size_t>(bounds.tools))
    refuse(fmt::format("'tools' must be an array of at most {} tools", bounds.tools), "tools");
  for (const json& t : *tools) {
    if (!t.is_object() || t.value("type", "") != "function" || !t.contains("function") ||
        !t["function"].is_object() || !t["function"].contains("name") || !t["function"]["name"].is_string())
      refuse("'tools' must hold objects of type 'function' with a function's 'name'", "tools");
    const json& function = t["function"];
    api::Tool tool;
    tool.name = function["name"].get<std::string>();
    if (const auto d = function.find("description"); d != function.end() && d->is_string())
      tool.description = d->get<std::string>();
    if (const auto p = function.find("parameters"); p != function.end() && p->is_object())
      tool.parameters = p->dump();
    r.tools.push_back(std::move(tool));
  }
  if (choice != nullptr && choice->is_string()) {
    const std::string c = choice->get<std::string>();
    if (c == "none") {
      r.tools.clear();
      return;
    }
    if (c != "auto") refuse("'tool_choice' may be 'auto' or 'none' on this server", "tool_choice");
  } else if (choice != nullptr) {
    refuse("'tool_choice' may be 'auto' or 'none' on this server", "tool_choice");
  }
  if (!tools->empty()) context["tools"] = *tools;
}

}  // namespace

CompletionRequest read_completion(const std::string& body, const ServedModel& model,
                                  const RequestBounds& bounds) {
  const json object = parse_body(body);
  Fields f(object);
  CompletionRequest r;
  read_common(f, r, model, bounds);
  r.echo = f.boolean("echo", false);
  r.sampling.logprobs = f.integer("logprobs", -1);
  // OpenAI's default is 16.
  r.generation.max_tokens = f.integer("max_tokens", 16);
  if (r.echo && r.sampling.logprobs >= 0 && r.sampling.prompt_logprobs < 0)
    r.sampling.prompt_logprobs = r.sampling.logprobs;
  if (const json* suffix = f.find("suffix");
      suffix != nullptr && !(suffix->is_string() && suffix->get<std::string>().empty()))
    refuse("'suffix' is not supported by this model", "suffix");
  limit_tokens(r, bounds, "max_tokens");
  const json* prompt = f.find("prompt");
  f.refuse_unknown();
  if (prompt == nullptr) refuse("'prompt' is missing", "prompt");
  r.prompts = read_prompts(*prompt, model, bounds, "prompt");
  return r;
}

CompletionRequest read_chat(const std::string& body, const ServedModel& model, const RequestBounds& bounds) {
  const json object = parse_body(body);
  Fields f(object);
  CompletionRequest r;
  r.chat = true;
  read_common(f, r, model, bounds);
  const bool logprobs = f.boolean("logprobs", false);
  const int32_t top = f.integer("top_logprobs", 0);
  if (top != 0 && !logprobs) refuse("'top_logprobs' needs 'logprobs' to be true", "top_logprobs");
  r.sampling.logprobs = logprobs ? top : -1;
  r.generation.max_tokens = f.integer("max_completion_tokens", f.integer("max_tokens", -1));
  f.ignore({"reasoning_effort", "modalities"});
  limit_tokens(r, bounds, "max_completion_tokens");
  json context = {{"add_generation_prompt", f.boolean("add_generation_prompt", true)}};
  if (const json* more = f.find("chat_template_kwargs")) {
    if (!more->is_object()) refuse("'chat_template_kwargs' must be an object", "chat_template_kwargs");
    context.update(*more);
  }
  if (const json* format = f.find("response_format")) {
    if (!format->is_object() || format->value("type", "") != "text")
      refuse("'response_format' may be {\"type\": \"text\"} only on this server", "response_format");
  }
  read_tools(f, r, context, bounds);
  const json* messages = f.find("messages");
  f.refuse_unknown();
  if (messages == nullptr) refuse("'messages' is missing", "messages");
  context["messages"] = template_messages(*messages, bounds);

  const std::string* source = model.chat.choose(!r.tools.empty());
  if (source == nullptr)
    throw ApiError(400, "this model has no chat template: use /v1/completions", "messages",
                   "no_chat_template");
  text::RenderOptions options;
  options.fallbacks = model.chat.special_tokens;
  try {
    Prompt p;
    p.text = text::ChatTemplate::parse(*source).render(context.dump(), options).text;
    p.tokens = model.tokenizer->encode(p.text, {false, true});
    r.starts_in_reasoning = api::prompt_opens_reasoning(model.format, p.text);
    r.prompts.push_back(std::move(p));
  } catch (const Error& e) {
    throw ApiError(400, fmt::format("the chat template refuses the messages: {}", e.what()), "messages");
  }
  return r;
}

EmbeddingRequest read_embedding(const std::string& body, const ServedModel& model,
                                const RequestBounds& bounds) {
  const json object = parse_body(body);
  Fields f(object);
  EmbeddingRequest r;
  const std::string name = f.text("model", model.id);
  if (name != model.id && name != "default")
    throw ApiError(404, fmt::format("The model '{}' does not exist: this server has '{}'", name, model.id),
                   "model", "model_not_found");
  const std::string format = f.text("encoding_format", "float");
  if (format != "float" && format != "base64")
    refuse("'encoding_format' must be 'float' or 'base64'", "encoding_format");
  r.base64 = format == "base64";
  const std::string pooling = f.text("pooling", "mean");
  if (pooling == "mean")
    r.pooling = engine::Pooling::kMean;
  else if (pooling == "last")
    r.pooling = engine::Pooling::kLast;
  else if (pooling == "cls")
    r.pooling = engine::Pooling::kFirst;
  else
    refuse("'pooling' must be 'mean', 'last' or 'cls'", "pooling");
  const int32_t width = model.engine->model_info().hidden_size;
  r.dimensions = f.integer("dimensions", width);
  if (r.dimensions < 1 || r.dimensions > width)
    refuse(fmt::format("'dimensions' is {}, but must be between 1 and {}", r.dimensions, width),
           "dimensions");
  f.ignore({"user"});
  const json* input = f.find("input");
  f.refuse_unknown();
  if (input == nullptr) refuse("'input' is missing", "input");
  r.prompts = read_prompts(*input, model, bounds, "input");
  return r;
}

}  // namespace millrace::server
