#include "api/fields.h"
#include "api/openai.h"

namespace millrace::api {

namespace {

constexpr int64_t kMaxInt = INT32_MAX;

/// Reads a number into `target` and notes that it was given.
template <typename T>
void read_number(Fields& f, const char* name, double low, double high, T& target, GenerationRequest& r) {
  if (const auto value = f.number(name, low, high)) {
    target = static_cast<T>(*value);
    r.given.emplace_back(name);
  }
}

template <typename T>
void read_integer(Fields& f, const char* name, int64_t low, int64_t high, T& target, GenerationRequest& r) {
  if (const auto value = f.integer(name, low, high)) {
    target = static_cast<T>(*value);
    r.given.emplace_back(name);
  }
}

std::vector<engine::TokenId> token_ids(const Json& array, const std::string& path) {
  std::vector<engine::TokenId> ids;
  for (const Json& id : array) {
    if (!id.is_number_integer() || id < 0 || id > kMaxInt)
      bad_request(path, "'{}' must hold token ids, found {}", path, id.dump().substr(0, 60));
    ids.push_back(id.get<engine::TokenId>());
  }
  return ids;
}

void read_stop(Fields& f, const SchemaLimits& limits, GenerationRequest& r) {
  if (const Json* stop = f.find("stop")) {
    const Json list = stop->is_string() ? Json::array({*stop}) : *stop;
    if (!list.is_array())
      bad_request("stop", "'stop' must be a string or an array of strings, found {}", json_kind(list));
    if (list.size() > limits.max_stop_strings)
      bad_request("stop", "'stop' has {} strings, at most {} are allowed", list.size(),
                  limits.max_stop_strings);
    for (const Json& s : list) {
      if (!s.is_string() || s.get_ref<const std::string&>().empty())
        bad_request("stop", "'stop' must hold strings that are not empty, found {}", s.dump().substr(0, 60));
      if (s.get_ref<const std::string&>().size() > limits.max_stop_bytes)
        bad_request("stop", "'stop' has a string of more than {} bytes", limits.max_stop_bytes);
      r.stop.push_back(s.get<std::string>());
    }
  }
  if (const Json* ids = f.array("stop_token_ids", 1024))
    r.generation.stop_token_ids = token_ids(*ids, "stop_token_ids");
  r.include_stop = f.boolean("include_stop_str_in_output").value_or(false);
  r.token_ids = f.boolean("return_token_ids").value_or(false);
}

void read_logit_bias(Fields& f, const SchemaLimits& limits, GenerationRequest& r) {
  const Json* bias = f.object("logit_bias");
  if (bias == nullptr) return;
  if (bias->size() > limits.max_logit_bias)
    bad_request("logit_bias", "'logit_bias' has {} entries, at most {} are allowed", bias->size(),
                limits.max_logit_bias);
  for (const auto& [key, value] : bias->items()) {
    const bool digits =
        !key.empty() && key.size() <= 10 && key.find_first_not_of("0123456789") == std::string::npos;
    if (!digits || std::stoll(key) > kMaxInt)
      bad_request("logit_bias", "'logit_bias' has the key '{}': expected a token id", key.substr(0, 60));
    if (!value.is_number() || !(value.get<double>() >= -100 && value.get<double>() <= 100))
      bad_request("logit_bias", "'logit_bias.{}' must be a number from -100 to 100, found {}", key,
                  value.dump().substr(0, 60));
    r.sampling.logit_bias.emplace_back(static_cast<engine::TokenId>(std::stoll(key)), value.get<float>());
  }
}

void read_sampling(Fields& f, const SchemaLimits& limits, GenerationRequest& r) {
  engine::SamplingParams& s = r.sampling;
  read_number(f, "temperature", 0, 2, s.temperature, r);
  read_number(f, "top_p", 1e-6, 1, s.top_p, r);
  read_integer(f, "top_k", -1, kMaxInt, s.top_k, r);
  read_number(f, "min_p", 0, 1, s.min_p, r);
  read_number(f, "typical_p", 1e-6, 1, s.typical_p, r);
  read_number(f, "presence_penalty", -2, 2, s.presence_penalty, r);
  read_number(f, "frequency_penalty", -2, 2, s.frequency_penalty, r);
  read_number(f, "repetition_penalty", 0.01, 100, s.repetition_penalty, r);
  read_integer(f, "penalty_last_n", -1, kMaxInt, s.penalty_last_n, r);
  read_integer(f, "mirostat", 0, 2, s.mirostat, r);
  read_number(f, "mirostat_tau", 0.01, 100, s.mirostat_tau, r);
  read_number(f, "mirostat_eta", 1e-4, 1, s.mirostat_eta, r);
  read_number(f, "xtc_probability", 0, 1, s.xtc_probability, r);
  read_number(f, "xtc_threshold", 0, 1, s.xtc_threshold, r);
  read_number(f, "dry_multiplier", 0, 100, s.dry_multiplier, r);
  read_number(f, "dry_base", 1, 100, s.dry_base, r);
  read_integer(f, "dry_allowed_length", 0, kMaxInt, s.dry_allowed_length, r);
  read_integer(f, "dry_penalty_last_n", -1, kMaxInt, s.dry_penalty_last_n, r);
  if (const Json* breakers = f.array("dry_sequence_breakers", 64))
    for (const Json& b : *breakers) {
      if (!b.is_string() || b.get_ref<const std::string&>().size() > 64)
        bad_request("dry_sequence_breakers", "'dry_sequence_breakers' must hold strings of at most 64 bytes");
      r.dry_breakers.push_back(b.get<std::string>());
    }
  if (const auto seed = f.integer("seed", INT64_MIN, INT64_MAX)) s.seed = static_cast<uint64_t>(*seed);
  if (const auto n = f.integer("prompt_logprobs", 0, limits.max_logprobs))
    s.prompt_logprobs = static_cast<int32_t>(*n);
  read_logit_bias(f, limits, r);

  engine::GenerationParams& g = r.generation;
  read_integer(f, "n", 1, limits.max_n, g.n, r);
  read_integer(f, "best_of", 1, limits.max_n, g.best_of, r);
  if (g.best_of != 0 && g.best_of < g.n)
    bad_request("best_of", "'best_of' ({}) must not be less than 'n' ({})", g.best_of, g.n);
  read_integer(f, "min_tokens", 0, limits.max_tokens, g.min_tokens, r);
  g.ignore_eos = f.boolean("ignore_eos").value_or(false);
  if (f.boolean("use_beam_search").value_or(false)) {
    g.beam_width = g.best_of > 0 ? g.best_of : std::max(2, g.n);
    g.best_of = 0;
  }
  read_integer(f, "beam_width", 0, 64, g.beam_width, r);
  read_number(f, "length_penalty", -10, 10, g.length_penalty, r);
  g.early_stopping = f.boolean("early_stopping").value_or(false);
}

std::string schema_text(const Json& schema, const std::string& path) {
  if (schema.is_string()) {
    if (!Json::accept(schema.get_ref<const std::string&>()))
      bad_request(path, "'{}' is not valid JSON", path);
    return schema.get<std::string>();
  }
  if (!schema.is_object() && !schema.is_boolean())
    bad_request(path, "'{}' must be a JSON schema, found {}", path, json_kind(schema));
  return schema.dump();
}

/// GBNF has "::=" between a rule's name and its body, the Lark-like form a colon.
TextConstraint::Kind grammar_kind(const std::string& text) {
  return text.find("::=") != std::string::npos ? TextConstraint::Kind::kGbnf : TextConstraint::Kind::kLark;
}

constexpr size_t kMaxGrammar = 1 << 20;

void constrain(GenerationRequest& r, TextConstraint::Kind kind, std::string text, const std::string& param) {
  if (r.constraint.kind != TextConstraint::Kind::kNone)
    bad_request(param, "'{}': the answer has another constraint already ('{}')", param, r.constraint.param);
  r.constraint.kind = kind;
  r.constraint.text = std::move(text);
  r.constraint.param = param;
}

void read_response_format(const Json& format, GenerationRequest& r, const std::string& path) {
  Fields f(format, path);
  const auto type = f.word("type", {"text", "json_object", "json_schema", "grammar"});
  if (!type) bad_request(f.path("type"), "'{}' is missing", f.path("type"));
  if (*type == "json_object") constrain(r, TextConstraint::Kind::kJsonObject, "", f.path("type"));
  if (*type == "grammar") {
    const auto grammar = f.text("grammar", kMaxGrammar);
    if (!grammar) bad_request(f.path("grammar"), "'{}' is missing", f.path("grammar"));
    constrain(r, grammar_kind(*grammar), *grammar, f.path("grammar"));
  }
  if (*type == "json_schema") {
    // Chat has the schema in a member of its own, responses beside the type.
    const Json* inner = f.object("json_schema");
    Fields s(inner != nullptr ? *inner : format, inner != nullptr ? f.path("json_schema") : path);
    const Json* schema = s.find("schema");
    if (schema == nullptr) bad_request(s.path("schema"), "'{}' is missing", s.path("schema"));
    const auto name = s.text("name", 256);
    if (!name) bad_request(s.path("name"), "'{}' is missing", s.path("name"));
    constrain(r, TextConstraint::Kind::kJsonSchema, schema_text(*schema, s.path("schema")), s.path("schema"));
    r.constraint.strict = s.boolean("strict").value_or(false);
    s.ignore({"description", "type"});
    s.finish();
    f.ignore({"name", "schema", "strict", "description"});
  }
  f.finish();
}

void read_choices(const Json& choices, GenerationRequest& r, const std::string& path) {
  constrain(r, TextConstraint::Kind::kChoice, "", path);
  if (choices.empty()) bad_request(path, "'{}' is empty", path);
  for (const Json& choice : choices) {
    if (!choice.is_string()) bad_request(path, "'{}' must hold strings, found {}", path, json_kind(choice));
    r.constraint.choices.push_back(choice.get<std::string>());
  }
}

void read_constraints(Fields& f, GenerationRequest& r) {
  if (const Json* format = f.object("response_format")) read_response_format(*format, r, "response_format");
  if (const Json* schema = f.find("guided_json"))
    constrain(r, TextConstraint::Kind::kJsonSchema, schema_text(*schema, "guided_json"), "guided_json");
  if (const auto regex = f.text("guided_regex", kMaxGrammar))
    constrain(r, TextConstraint::Kind::kRegex, *regex, "guided_regex");
  if (const Json* choices = f.array("guided_choice", 10000)) read_choices(*choices, r, "guided_choice");
  if (const auto grammar = f.text("guided_grammar", kMaxGrammar))
    constrain(r, grammar_kind(*grammar), *grammar, "guided_grammar");
  if (const auto grammar = f.text("grammar", kMaxGrammar); grammar && !grammar->empty())
    constrain(r, TextConstraint::Kind::kGbnf, *grammar, "grammar");
  if (const Json* schema = f.find("json_schema"))
    constrain(r, TextConstraint::Kind::kJsonSchema, schema_text(*schema, "json_schema"), "json_schema");
  if (const Json* outputs = f.object("structured_outputs")) {
    Fields o(*outputs, "structured_outputs");
    if (const Json* schema = o.find("json"))
      constrain(r, TextConstraint::Kind::kJsonSchema, schema_text(*schema, o.path("json")), o.path("json"));
    if (const auto regex = o.text("regex", kMaxGrammar))
      constrain(r, TextConstraint::Kind::kRegex, *regex, o.path("regex"));
    if (const Json* choices = o.array("choice", 10000)) read_choices(*choices, r, o.path("choice"));
    if (const auto grammar = o.text("grammar", kMaxGrammar))
      constrain(r, grammar_kind(*grammar), *grammar, o.path("grammar"));
    if (o.boolean("json_object").value_or(false))
      constrain(r, TextConstraint::Kind::kJsonObject, "", o.path("json_object"));
    r.constraint.compact = o.boolean("disable_any_whitespace").value_or(false);
    o.finish();
  }
  if (const auto pattern = f.text("guided_whitespace_pattern")) {
    if (!pattern->empty())
      bad_request("guided_whitespace_pattern",
                  "'guided_whitespace_pattern' may be \"\" (no white space) only; without it any is allowed");
    r.constraint.compact = true;
  }
  f.ignore({"guided_decoding_backend"});
}

/// Members that every endpoint has.
void read_common(Fields& f, const SchemaLimits& limits, GenerationRequest& r) {
  r.model = f.text("model", 1024).value_or("");
  read_sampling(f, limits, r);
  read_stop(f, limits, r);
  read_constraints(f, r);
  r.stream = f.boolean("stream").value_or(false);
  if (const Json* options = f.object("stream_options")) {
    if (!r.stream)
      bad_request("stream_options", "'stream_options' is for streams only: set 'stream' to true");
    Fields o(*options, "stream_options");
    r.include_usage = o.boolean("include_usage").value_or(false);
    o.ignore({"include_obfuscation", "continuous_usage_stats"});
    o.finish();
  }
  r.priority = static_cast<int32_t>(f.integer("priority", INT32_MIN, INT32_MAX).value_or(0));
  r.deadline_ms = f.integer("deadline_ms", 1, int64_t{1} << 40).value_or(0);
  r.cache_salt = f.text("cache_salt", 1024).value_or("");
  r.pin_prefix = f.boolean("cache_pin").value_or(false);
  r.user = f.text("user", 4096).value_or("");
  f.ignore({"metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key",
            "prompt_cache_retention", "skip_special_tokens", "spaces_between_special_tokens", "request_id",
            "cache_prompt"});
}

void read_tool_choice(const Json* choice, GenerationRequest& r) {
  if (r.tools.empty()) {
    r.tool_choice.choice = ToolChoice::kNone;
    if (choice != nullptr && !(choice->is_string() && (*choice == "none" || *choice == "auto")))
      bad_request("tool_choice", "'tool_choice' asks for a tool call, but the request has no 'tools'");
    return;
  }
  if (choice == nullptr) return;
  if (choice->is_string()) {
    if (*choice == "none") {
      r.tool_choice.choice = ToolChoice::kNone;
    } else if (*choice == "required") {
      r.tool_choice.choice = ToolChoice::kRequired;
    } else if (*choice != "auto") {
      bad_request("tool_choice", "'tool_choice' must be 'none', 'auto', 'required' or an object, found '{}'",
                  choice->get<std::string>().substr(0, 60));
    }
    return;
  }
  Fields f(*choice, "tool_choice");
  f.word("type", {"function"});
  const Json* function = f.object("function");
  Fields inner(function != nullptr ? *function : *choice,
               function != nullptr ? "tool_choice.function" : "tool_choice");
  const auto name = inner.text("name", 256);
  if (!name) bad_request(inner.path("name"), "'{}' is missing", inner.path("name"));
  const bool known =
      std::any_of(r.tools.begin(), r.tools.end(), [&](const Tool& tool) { return tool.name == *name; });
  if (!known)
    bad_request(inner.path("name"), "'{}' names '{}', which is not among the tools", inner.path("name"),
                *name);
  r.tool_choice.choice = ToolChoice::kNamed;
  r.tool_choice.name = *name;
}

void read_max_tokens(Fields& f, std::initializer_list<const char*> names, int64_t low,
                     const SchemaLimits& limits, GenerationRequest& r) {
  for (const char* name : names)
    if (const auto n = f.integer(name, low, limits.max_tokens))
      r.generation.max_tokens = static_cast<int32_t>(*n);
}

void read_template_options(Fields& f, GenerationRequest& r) {
  if (const Json* arguments = f.object("chat_template_kwargs")) r.template_arguments = arguments->dump();
  if (const Json* documents = f.array("documents", 10000)) r.documents = documents->dump();
  r.reasoning_effort =
      f.word("reasoning_effort", {"none", "minimal", "low", "medium", "high", "xhigh"}).value_or("");
  for (const char* name : {"thinking_budget", "reasoning_tokens", "thinking_token_budget"})
    if (const auto n = f.integer(name, 0, kMaxInt)) r.reasoning_tokens = static_cast<int32_t>(*n);
  r.include_reasoning = f.boolean("include_reasoning").value_or(true);
  r.add_generation_prompt = f.boolean("add_generation_prompt").value_or(true);
  r.continue_final_message = f.boolean("continue_final_message").value_or(false);
  if (r.continue_final_message && f.has("add_generation_prompt") && r.add_generation_prompt)
    bad_request("continue_final_message",
                "'continue_final_message' and 'add_generation_prompt' exclude each other");
}

/// A string, an array of strings, of token ids, or of arrays of token ids.
std::vector<Prompt> read_prompts(const Json& value, const SchemaLimits& limits, const std::string& param) {
  std::vector<Prompt> prompts;
  if (value.is_string()) {
    prompts.push_back({value.get<std::string>(), {}, false});
    return prompts;
  }
  if (!value.is_array())
    bad_request(param, "'{}' must be a string, an array of strings or token ids, found {}", param,
                json_kind(value));
  if (value.empty()) bad_request(param, "'{}' is empty", param);
  if (value[0].is_number()) {
    prompts.push_back({"", token_ids(value, param), true});
    return prompts;
  }
  if (value.size() > limits.max_prompts)
    bad_request(param, "'{}' has {} entries, at most {} are allowed", param, value.size(),
                limits.max_prompts);
  for (const Json& one : value) {
    if (one.is_string()) {
      prompts.push_back({one.get<std::string>(), {}, false});
    } else if (one.is_array() && !one.empty()) {
      prompts.push_back({"", token_ids(one, param), true});
    } else {
      bad_request(param, "'{}' must hold strings or arrays of token ids that are not empty, found {}", param,
                  one.is_array() ? "an empty array" : json_kind(one));
    }
  }
  return prompts;
}

/// An item of /v1/responses' input as a chat message.
Json input_message(const Json& item, const std::string& path) {
  Fields f(item, path);
  const std::string type = f.text("type", 100).value_or("message");
  if (type == "message") {
    Json message = Json::object();
    for (const char* key : {"role", "content"})
      if (const Json* value = f.find(key)) message[key] = *value;
    return message;
  }
  if (type == "function_call") {
    const auto name = f.text("name", 256);
    if (!name) bad_request(f.path("name"), "'{}' is missing", f.path("name"));
    Json call = {{"id", f.text("call_id", 256).value_or("")},
                 {"type", "function"},
                 {"function", {{"name", *name}, {"arguments", f.text("arguments").value_or("{}")}}}};
    return {{"role", "assistant"}, {"content", nullptr}, {"tool_calls", Json::array({call})}};
  }
  if (type == "function_call_output") {
    const Json* output = f.find("output");
    if (output == nullptr) bad_request(f.path("output"), "'{}' is missing", f.path("output"));
    return {{"role", "tool"}, {"tool_call_id", f.text("call_id", 256).value_or("")}, {"content", *output}};
  }
  if (type == "reasoning") return {};
  bad_request(f.path("type"), "'{}' is '{}': only messages, function calls and their outputs are taken",
              f.path("type"), type.substr(0, 60));
}

/// Tools of /v1/responses (name beside the type) in chat's form.
Json chat_tools(const Json& tools) {
  Json out = Json::array();
  for (size_t i = 0; i < tools.size(); ++i) {
    Fields f(tools[i], fmt::format("tools[{}]", i));
    f.word("type", {"function"});
    Json function = Json::object();
    for (const char* key : {"name", "description", "parameters", "strict"})
      if (const Json* value = f.find(key)) function[key] = *value;
    f.finish();
    out.push_back({{"type", "function"}, {"function", std::move(function)}});
  }
  return out;
}

}  // namespace

GenerationRequest parse_chat_request(std::string_view body, const SchemaLimits& limits) {
  return read_chat_request(parse_body(body), limits);
}

GenerationRequest read_chat_request(const Json& json, const SchemaLimits& limits) {
  GenerationRequest r;
  r.endpoint = Endpoint::kChat;
  Fields f(json, "");
  const Json* messages = f.array("messages");
  if (messages == nullptr) bad_request("messages", "'messages' is missing");
  r.messages = template_messages(*messages, limits).dump();
  if (const Json* tools = f.array("tools")) read_tools(*tools, limits, r);
  read_tool_choice(f.find("tool_choice"), r);
  r.tool_choice.parallel = f.boolean("parallel_tool_calls").value_or(true);
  read_common(f, limits, r);
  read_max_tokens(f, {"max_tokens", "max_completion_tokens"}, 1, limits, r);
  read_template_options(f, r);
  const bool logprobs = f.boolean("logprobs").value_or(false);
  const auto top = f.integer("top_logprobs", 0, limits.max_logprobs);
  if (top && *top > 0 && !logprobs) bad_request("top_logprobs", "'top_logprobs' needs 'logprobs' to be true");
  r.logprobs = logprobs;
  if (logprobs) r.sampling.logprobs = static_cast<int32_t>(top.value_or(0));
  if (const Json* modalities = f.array("modalities"))
    for (const Json& m : *modalities)
      if (m != "text") bad_request("modalities", "'modalities' can only be [\"text\"]");
  if (f.has("functions")) bad_request("functions", "'functions' is no longer taken: use 'tools'");
  f.ignore({"verbosity", "prediction", "web_search_options", "audio", "function_call", "echo",
            "add_special_tokens"});
  f.finish();
  return r;
}

GenerationRequest parse_completion_request(std::string_view body, const SchemaLimits& limits) {
  const Json json = parse_body(body);
  GenerationRequest r;
  r.endpoint = Endpoint::kCompletion;
  Fields f(json, "");
  const Json* prompt = f.find("prompt");
  if (prompt == nullptr) bad_request("prompt", "'prompt' is missing");
  r.prompts = read_prompts(*prompt, limits, "prompt");
  read_common(f, limits, r);
  r.generation.max_tokens = 16;  // OpenAI's default for completions
  r.echo = f.boolean("echo").value_or(false);
  read_max_tokens(f, {"max_tokens"}, r.echo ? 0 : 1, limits, r);
  r.add_special_tokens = f.boolean("add_special_tokens").value_or(true);
  if (const auto n = f.integer("logprobs", 0, limits.max_logprobs)) {
    r.logprobs = true;
    r.sampling.logprobs = static_cast<int32_t>(*n);
    if (r.echo) r.sampling.prompt_logprobs = std::max(r.sampling.prompt_logprobs, static_cast<int32_t>(*n));
  }
  if (const auto suffix = f.text("suffix"); suffix && !suffix->empty())
    throw ApiError(ErrorCode::kInvalidArgument, "'suffix' is not supported by this model", "suffix",
                   "unsupported_value");
  f.finish();
  return r;
}

GenerationRequest parse_responses_request(std::string_view body, const SchemaLimits& limits) {
  const Json json = parse_body(body);
  GenerationRequest r;
  r.endpoint = Endpoint::kResponses;
  Fields f(json, "");
  const Json* input = f.find("input");
  if (input == nullptr) bad_request("input", "'input' is missing");
  Json messages = Json::array();
  if (const auto instructions = f.text("instructions"))
    messages.push_back({{"role", "system"}, {"content", *instructions}});
  if (input->is_string()) {
    messages.push_back({{"role", "user"}, {"content", *input}});
  } else if (input->is_array()) {
    for (size_t i = 0; i < input->size(); ++i) {
      Json message = input_message((*input)[i], fmt::format("input[{}]", i));
      if (message.is_null() || message.empty()) continue;
      // Calls in a row are one message of the assistant.
      const bool joins =
          message.contains("tool_calls") && !messages.empty() && messages.back().contains("tool_calls");
      if (joins) {
        messages.back()["tool_calls"].push_back(message["tool_calls"][0]);
      } else {
        messages.push_back(std::move(message));
      }
    }
  } else {
    bad_request("input", "'input' must be a string or an array, found {}", json_kind(*input));
  }
  r.messages = template_messages(messages, limits).dump();
  if (const Json* tools = f.array("tools")) read_tools(chat_tools(*tools), limits, r);
  read_tool_choice(f.find("tool_choice"), r);
  r.tool_choice.parallel = f.boolean("parallel_tool_calls").value_or(true);
  read_common(f, limits, r);
  if (r.generation.n > 1 || r.generation.best_of > 1 || r.generation.beam_width > 0)
    bad_request("n", "a response has one answer: 'n', 'best_of' and beams are not taken here");
  read_max_tokens(f, {"max_output_tokens"}, 1, limits, r);
  read_template_options(f, r);
  if (const Json* text = f.object("text")) {
    Fields t(*text, "text");
    if (const Json* format = t.object("format")) read_response_format(*format, r, "text.format");
    t.ignore({"verbosity"});
    t.finish();
  }
  if (const Json* reasoning = f.object("reasoning")) {
    Fields o(*reasoning, "reasoning");
    r.reasoning_effort = o.word("effort", {"none", "minimal", "low", "medium", "high", "xhigh"}).value_or("");
    o.ignore({"summary", "generate_summary"});
    o.finish();
  }
  if (f.has("previous_response_id"))
    throw ApiError(ErrorCode::kInvalidArgument,
                   "'previous_response_id': responses are not stored here; send the whole input",
                   "previous_response_id", "unsupported_value");
  if (f.boolean("background").value_or(false))
    throw ApiError(ErrorCode::kInvalidArgument, "'background' is not supported", "background",
                   "unsupported_value");
  f.ignore({"truncation", "include", "top_logprobs", "max_tool_calls", "prompt", "conversation"});
  f.finish();
  return r;
}

EmbeddingRequest parse_embedding_request(std::string_view body, const SchemaLimits& limits) {
  const Json json = parse_body(body);
  EmbeddingRequest r;
  Fields f(json, "");
  r.model = f.text("model", 1024).value_or("");
  const Json* input = f.find("input");
  if (input == nullptr) bad_request("input", "'input' is missing");
  r.prompts = read_prompts(*input, limits, "input");
  r.base64 = f.word("encoding_format", {"float", "base64"}) == "base64";
  const auto pooling = f.word("pooling", {"mean", "last", "cls"});
  if (pooling == "last") r.pooling = engine::Pooling::kLast;
  if (pooling == "cls") r.pooling = engine::Pooling::kFirst;
  r.dimensions = static_cast<int32_t>(f.integer("dimensions", 1, kMaxInt).value_or(0));
  f.ignore({"user"});
  f.finish();
  return r;
}

}  // namespace millrace::api
