#include "api/grammar_service.h"

#include <chrono>
#include <nlohmann/json.hpp>

#include "api/tool_grammar.h"

namespace millrace::api {

namespace {

using Clock = std::chrono::steady_clock;
using Kind = TextConstraint::Kind;

/// Special tokens that a format's tool calls are written with.
std::vector<bool> spelled_tokens(const text::Tokenizer& tokenizer, const OutputFormat& format) {
  std::string all;
  const auto add = [&](const std::vector<GrammarPart>& parts, const auto& self) -> void {
    for (const GrammarPart& part : parts) {
      all += part.text + '\0';
      for (const auto& alternative : part.alternatives) self(alternative, self);
    }
  };
  Tool tool;
  tool.name = "f";
  tool.parameters = R"({"type":"object","properties":{"a":{"type":"string"}}})";
  for (const bool parallel : {false, true}) {
    ToolChoiceSetting setting;
    setting.parallel = parallel;
    const ToolGrammar g = tool_grammar(format.tools, {tool}, setting);
    for (const std::string& text : {g.begin, g.separator, g.end, g.trigger}) all += text + '\0';
    for (const CallGrammar& call : g.calls) add(call.parts, add);
  }
  std::vector<bool> spelled(static_cast<size_t>(tokenizer.vocab_size()));
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    if (tokenizer.kind(id) != text::TokenKind::kControl) continue;
    const std::string text = tokenizer.piece(id, true);
    spelled[static_cast<size_t>(id)] = text.size() >= 3 && all.find(text) != std::string::npos;
  }
  const auto& ends = tokenizer.end_of_generation();
  for (const auto id : ends)
    if (id >= 0 && id < tokenizer.vocab_size()) spelled[static_cast<size_t>(id)] = false;
  return spelled;
}

std::shared_ptr<const grammar::TokenTrie> make_trie(const text::Tokenizer& tokenizer,
                                                    const std::vector<bool>& spelled = {}) {
  return std::make_shared<const grammar::TokenTrie>(grammar_vocabulary(tokenizer, spelled));
}

grammar::Source text_source(const TextConstraint& c) {
  grammar::Source source;
  source.json.whitespace = c.compact ? grammar::Whitespace::kCompact : grammar::Whitespace::kFlexible;
  // So that an answer ends with its value, and not in white space.
  source.json.around = false;
  source.text = c.text;
  switch (c.kind) {
    case Kind::kNone:
    case Kind::kJsonObject:
      source.kind = grammar::SourceKind::kJsonObject;
      break;
    case Kind::kJsonSchema:
      source.kind = grammar::SourceKind::kJsonSchema;
      break;
    case Kind::kRegex:
      source.kind = grammar::SourceKind::kRegex;
      break;
    case Kind::kChoice:
      source.kind = grammar::SourceKind::kChoices;
      source.text = nlohmann::json(c.choices).dump();
      break;
    case Kind::kGbnf:
      source.kind = grammar::SourceKind::kGbnf;
      break;
    case Kind::kLark:
      source.kind = grammar::SourceKind::kLark;
      break;
  }
  return source;
}

/// Text that stands before the content in formats that give every part of an answer a recipient.
std::string content_prefix(ToolFormat format, std::string_view prompt) {
  const auto ends = [&](std::string_view end) {
    return prompt.size() >= end.size() && prompt.substr(prompt.size() - end.size()) == end;
  };
  if (format == ToolFormat::kFunctionaryV32) return ends(">>>") ? "all\n" : ">>>all\n";
  if (format == ToolFormat::kFunctionaryV2)
    return ends("<|recipient|>") ? "all\n<|content|>" : "<|recipient|>all\n<|content|>";
  return "";
}

/// A token that ends generation is not text: what the grammar has of it at its end is left out.
void drop_end_texts(ToolGrammar& g, const std::vector<std::string>& end_texts) {
  const auto drop = [&](std::string& text) {
    for (const std::string& end : end_texts)
      if (!end.empty() && text.size() >= end.size() && text.ends_with(end))
        text.resize(text.size() - end.size());
  };
  drop(g.end);
  if (!g.end.empty() || g.parallel) return;
  for (CallGrammar& call : g.calls)
    if (!call.parts.empty() && call.parts.back().kind == GrammarPart::Kind::kLiteral)
      drop(call.parts.back().text);
}

/// The tools' calls as GBNF with the schemas beside it.
grammar::Source calls_source(const ToolGrammar& g, const std::vector<Tool>& tools) {
  grammar::Source source;
  source.kind = grammar::SourceKind::kGbnf;
  source.json.around = false;
  source.text = to_gbnf(g, [&](const std::string& schema) {
    for (const auto& [name, known] : source.schemas)
      if (known == schema) return name;
    // Named so that an error can be told where it belongs.
    std::string name = fmt::format("schema-{}", source.schemas.size());
    for (size_t i = 0; i < tools.size(); ++i)
      if (tools[i].parameters == schema) name = fmt::format("tools-{}-parameters", i);
    source.schemas.emplace_back(name, schema);
    return name;
  });
  return source;
}

/// "tools-2-parameters: sentence" as the parameter and the sentence.
void split_tool_error(std::string& param, std::string& sentence) {
  if (sentence.rfind("tools-", 0) != 0) return;
  const size_t dash = sentence.find('-', 6), colon = sentence.find(": ");
  if (dash == std::string::npos || colon == std::string::npos || dash > colon) return;
  param = fmt::format("tools[{}].function.parameters", sentence.substr(6, dash - 6));
  sentence = sentence.substr(colon + 2);
}

}  // namespace

grammar::Vocabulary grammar_vocabulary(const text::Tokenizer& t, const std::vector<bool>& spelled) {
  grammar::Vocabulary v;
  for (int32_t id = 0; id < t.vocab_size(); ++id) {
    const text::TokenKind kind = t.kind(id);
    const bool as_text = static_cast<size_t>(id) < spelled.size() && spelled[static_cast<size_t>(id)];
    const bool special = !as_text && (kind == text::TokenKind::kControl ||
                                      kind == text::TokenKind::kUnknown || kind == text::TokenKind::kUnused);
    v.token_bytes.push_back(special ? std::string() : t.piece(id, as_text));
    v.special.push_back(special);
  }
  v.end_of_generation = t.end_of_generation();
  return v;
}

bool request_grammar(const GenerationRequest& r, const OutputFormat& format, std::string_view prompt,
                     bool exact, const std::vector<std::string>& end_texts, RequestGrammar& out) {
  const bool text = r.constraint.kind != Kind::kNone;
  const bool tools =
      !r.tools.empty() && r.tool_choice.choice != ToolChoice::kNone && format.tools != ToolFormat::kNone;
  const bool must_call =
      r.tool_choice.choice == ToolChoice::kRequired || r.tool_choice.choice == ToolChoice::kNamed;
  if (!text && !tools) return false;
  if (text && !(tools && must_call)) {
    out.source = text_source(r.constraint);
    out.param = r.constraint.param;
    out.bound_spaces = r.constraint.kind == Kind::kJsonSchema || r.constraint.kind == Kind::kJsonObject;
    out.prefix = content_prefix(format.tools, prompt);
    if (format.tools == ToolFormat::kHarmony) {
      // The answer proper is a channel of its own, after any analysis.
      out.trigger = "<|channel|>final<|message|>";
      out.trigger_in_grammar = false;
      out.must_trigger = true;
      return true;
    }
    if (!tools) return true;
  }
  std::vector<Tool> known = r.tools;
  if (!exact)
    for (Tool& tool : known) tool.parameters.clear();
  ToolGrammar calls = tool_grammar(format.tools, known, r.tool_choice);
  drop_end_texts(calls, end_texts);
  // Formats that write texts as they are between tags need theirs.
  out.bound_spaces = format.tools != ToolFormat::kQwen3Coder && format.tools != ToolFormat::kSeed &&
                     format.tools != ToolFormat::kMiniMax && format.tools != ToolFormat::kGlm;
  const grammar::Source source = calls_source(calls, known);
  if (text && !must_call) {
    // Either calls or the answer as asked for.
    if (!out.prefix.empty() ||
        (r.constraint.kind != Kind::kJsonSchema && r.constraint.kind != Kind::kJsonObject))
      throw ApiError(
          ErrorCode::kInvalidArgument,
          fmt::format("'{}' cannot be held to beside tools that may be called: set 'tool_choice' to "
                      "'none' or 'required'",
                      r.constraint.param),
          r.constraint.param, "unsupported_value");
    grammar::Source both = source;
    both.json.whitespace = out.source.json.whitespace;
    both.text = "root ::= calls | content\ncalls" + source.text.substr(source.text.find(" ::= "));
    both.schemas.emplace_back(
        "content", r.constraint.kind == Kind::kJsonObject ? R"({"type":"object"})" : r.constraint.text);
    out.source = std::move(both);
    out.calls = true;
    return true;
  }
  out.source = source;
  out.param = "tools";
  out.calls = true;
  // Where every part has a recipient, text is a part as calls are, and the grammar holds from the start.
  const bool parts = !calls.text_begin.empty();
  if (parts) out.bound_spaces = false;
  if (must_call || parts) {
    // The first part's header may stand in the prompt already.
    if (format.tools == ToolFormat::kFunctionaryV32 && !prompt.ends_with(">>>")) out.prefix = ">>>";
    if (format.tools == ToolFormat::kFunctionaryV2 && !prompt.ends_with("<|recipient|>"))
      out.prefix = "<|recipient|>";
    return true;
  }
  // Calls are free to come: the grammar holds from where one begins.
  out.trigger = calls.trigger;
  if (out.trigger.empty()) {
    if (format.tools != ToolFormat::kLlama3Json && format.tools != ToolFormat::kGenericJson) return false;
    out.trigger = format.tools == ToolFormat::kLlama3Json ? R"({"name": ")" : R"([{"name": ")";
    out.trigger_at_start = true;
  }
  const std::string head = calls.begin + calls.calls[0].parts[0].text;
  const size_t at = head.find(out.trigger);
  check(at != std::string::npos, "the calls of a format do not begin with its trigger {}", out.trigger);
  out.lead = head.substr(0, at);
  return true;
}

GrammarService::GrammarService(const text::Tokenizer& tokenizer, const OutputFormat& format, Options options)
    : tokenizer_(tokenizer), options_(options), text_(make_trie(tokenizer), options.compiler) {
  auto texts = std::make_shared<std::vector<std::string>>();
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) texts->push_back(tokenizer.piece(id, true));
  token_text_ = std::move(texts);
  spaces_ = std::make_shared<const SpaceTokens>(*token_text_);
  if (format.tools == ToolFormat::kNone) return;
  const std::vector<bool> spelled = spelled_tokens(tokenizer, format);
  if (std::find(spelled.begin(), spelled.end(), true) != spelled.end())
    calls_ = std::make_unique<grammar::GrammarCompiler>(make_trie(tokenizer, spelled), options.compiler);
}

size_t GrammarService::cached_grammars() const {
  return text_.cached_entries() + (calls_ ? calls_->cached_entries() : 0);
}
size_t GrammarService::cached_bytes() const {
  return text_.cached_bytes() + (calls_ ? calls_->cached_bytes() : 0);
}

std::shared_ptr<const MarkerTable> GrammarService::marker(const std::string& text) {
  const std::lock_guard lock(mutex_);
  auto& table = markers_[text];
  if (!table) table = std::make_shared<const MarkerTable>(text, *token_text_);
  return table;
}

std::shared_ptr<const grammar::CompiledGrammar> GrammarService::compile(const RequestGrammar& wanted) {
  grammar::GrammarCompiler& compiler = wanted.calls && calls_ ? *calls_ : text_;
  const auto begin = Clock::now();
  const auto deadline = begin + std::chrono::duration_cast<Clock::duration>(
                                    std::chrono::duration<double>(options_.wait_seconds));
  const auto no_time = [&] {
    return ApiError(ErrorCode::kUnavailable, "there was no time to compile the grammar: try again later",
                    wanted.param, "overloaded");
  };
  try {
    const auto ticket = compiler.submit(wanted.source, deadline);
    // The compiler keeps the deadline itself; the margin is for the work of giving up.
    if (!ticket.wait_until(deadline + std::chrono::seconds(1))) throw no_time();
    auto compiled = ticket.get();
    ++counters_->compiled;
    counters_->compile_micros += static_cast<uint64_t>(
        std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - begin).count());
    return compiled;
  } catch (const ApiError&) {
    throw;
  } catch (const Error& e) {
    ++counters_->refused;
    if (e.code() == ErrorCode::kDeadlineExceeded || e.code() == ErrorCode::kUnavailable) throw no_time();
    if (e.code() == ErrorCode::kInternal || e.code() == ErrorCode::kCancelled) throw;
    std::string param = wanted.param, sentence = e.what();
    split_tool_error(param, sentence);
    throw ApiError(ErrorCode::kInvalidArgument, fmt::format("'{}' cannot be enforced: {}", param, sentence),
                   param, "invalid_grammar");
  }
}

std::unique_ptr<engine::TokenConstraint> GrammarService::constraint(const GenerationRequest& r,
                                                                    const OutputFormat& format,
                                                                    std::string_view prompt,
                                                                    bool starts_in_reasoning) {
  std::vector<std::string> end_texts;
  for (const auto id : tokenizer_.end_of_generation()) end_texts.push_back(tokenizer_.piece(id, true));
  auto rules = std::make_shared<ConstraintRules>();
  RequestGrammar wanted;
  if (request_grammar(r, format, prompt, true, end_texts, wanted)) {
    try {
      rules->grammar = compile(wanted);
    } catch (const ApiError& e) {
      // A model may call a tool whose schema has no automaton, unless it was to be held to it: then the
      // arguments are an object at least.
      const bool strict = std::any_of(r.tools.begin(), r.tools.end(), [](const Tool& t) { return t.strict; });
      const bool optional = wanted.calls && r.tool_choice.choice == ToolChoice::kAuto && !strict &&
                            r.constraint.kind == Kind::kNone;
      if (!optional || http_status(e) != 400) throw;
      wanted = {};
      request_grammar(r, format, prompt, false, end_texts, wanted);
      rules->grammar = compile(wanted);
    }
    if (wanted.bound_spaces) rules->spaces = spaces_;
    rules->prefix = wanted.prefix;
    if (!wanted.trigger.empty()) rules->trigger = marker(wanted.trigger);
    rules->lead = wanted.lead;
    rules->trigger_in_grammar = wanted.trigger_in_grammar;
    rules->trigger_at_start = wanted.trigger_at_start;
    rules->must_trigger = wanted.must_trigger;
  }
  if (r.endpoint != Endpoint::kCompletion && !format.reasoning.empty() &&
      (rules->grammar || r.reasoning_tokens)) {
    rules->reasoning_end = marker(format.reasoning.end);
    rules->starts_in_reasoning = starts_in_reasoning;
    if (r.reasoning_tokens) rules->reasoning_budget = *r.reasoning_tokens;
    rules->end_of_reasoning = tokenizer_.encode(format.reasoning.end, {false, true});
    // A model that has closed its reasoning in the prompt opens none again.
    std::string_view tail = prompt;
    while (!tail.empty() && (tail.back() == '\n' || tail.back() == ' ')) tail.remove_suffix(1);
    const auto begin = tokenizer_.find(format.reasoning.begin);
    if (begin && !tail.ends_with(format.reasoning.end)) rules->reasoning_begin = *begin;
  }
  if (!rules->grammar && !rules->reasoning_end) return nullptr;
  rules->token_text = token_text_;
  rules->end_tokens = tokenizer_.end_of_generation();
  rules->encode = [&t = tokenizer_](std::string_view text) { return t.encode(text, {false, true}); };
  const bool calls = wanted.calls;
  rules->encode_inside = [&t = tokenizer_, calls](std::string_view text) {
    const text::EncodeOptions options{false, calls};
    if (!t.strips_leading_space()) return t.encode(text, options);
    // The space put before a text's start goes to a line end before it.
    const std::vector<engine::TokenId> line = t.encode("\n", options);
    std::vector<engine::TokenId> ids = t.encode("\n" + std::string(text), options);
    if (ids.size() < line.size() || !std::equal(line.begin(), line.end(), ids.begin()))
      return std::vector<engine::TokenId>();
    ids.erase(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(line.size()));
    return ids;
  };
  rules->counters = counters_;
  return std::make_unique<GrammarConstraint>(std::move(rules));
}

}  // namespace millrace::api
