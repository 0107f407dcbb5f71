#include "grammar/compiler.h"

#include <nlohmann/json.hpp>

#include "grammar/embed.h"
#include "grammar/gbnf.h"
#include "grammar/mask.h"
#include "grammar/ready.h"
#include "grammar/regex.h"

namespace millrace::grammar {
namespace {

Grammar choices_grammar(const std::string& text, Budget& budget) {
  Budget::check_source(text.size(), budget.limits().choices_bytes);
  nlohmann::json list;
  try {
    list = nlohmann::json::parse(text);
  } catch (const nlohmann::json::exception&) {
    fail(ErrorCode::kInvalidArgument, "choices must be a JSON list of strings");
  }
  require(list.is_array() && !list.empty(), ErrorCode::kInvalidArgument,
          "choices must be a JSON list of strings, not empty");
  Grammar g;
  std::vector<ExprId> items;
  for (const auto& c : list) {
    require(c.is_string(), ErrorCode::kInvalidArgument, "choices must be a JSON list of strings");
    items.push_back(g.literal(c.get<std::string>()));
  }
  g.root = g.add_rule("root", g.choice(std::move(items)));
  return g;
}

}  // namespace

Grammar parse_source(const Source& source, Budget& budget) {
  switch (source.kind) {
    case SourceKind::kJson:
      return json_grammar(AnyJson::kValue, source.json, budget);
    case SourceKind::kJsonObject:
      return json_grammar(AnyJson::kObject, source.json, budget);
    case SourceKind::kJsonSchema:
      return json_schema_grammar(source.text, source.json, budget);
    case SourceKind::kRegex:
      return regex_grammar(source.text, budget);
    case SourceKind::kGbnf:
      return source.schemas.empty() ? gbnf_grammar(source.text, budget)
                                    : gbnf_with_schemas(source.text, source.schemas, source.json, budget);
    case SourceKind::kLark:
      return lark_grammar(source.text, budget);
    case SourceKind::kChoices:
      return choices_grammar(source.text, budget);
    case SourceKind::kReady:
      return gbnf_grammar(ready_grammar(source.text), budget);
  }
  fail(ErrorCode::kInternal, "unknown kind of grammar");
}

std::shared_ptr<const Program> compile_program(const Source& source, const CompileOptions& options) {
  Budget budget(options.limits, options.cancel);
  auto program = lower(parse_source(source, budget), budget);
  // The program has one owner so far.
  std::const_pointer_cast<Program>(program)->compile_seconds = budget.elapsed_seconds();
  return program;
}

std::shared_ptr<const CompiledGrammar> compile(const Source& source,
                                               std::shared_ptr<const TokenTrie> vocabulary,
                                               const CompileOptions& options) {
  return std::make_shared<const CompiledGrammar>(compile_program(source, options), std::move(vocabulary));
}

struct GrammarCompiler::Job {
  std::string key;
  Source source;
  std::chrono::steady_clock::time_point deadline;
  std::promise<std::shared_ptr<const CompiledGrammar>> promise;
  Result result;
  std::atomic<bool> cancel{false};
  std::weak_ptr<void> interest;
};

GrammarCompiler::GrammarCompiler(std::shared_ptr<const TokenTrie> vocabulary, Options options)
    : vocabulary_(std::move(vocabulary)),
      options_(options),
      warmer_(options.warm ? std::make_unique<Warmer>() : nullptr),
      thread_([this] { work(); }) {}

GrammarCompiler::~GrammarCompiler() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    for (auto& [key, weak] : running_)
      if (auto job = weak.lock()) job->cancel = true;
  }
  wake_.notify_all();
  thread_.join();
}

std::string GrammarCompiler::key_of(const Source& source) {
  std::string key = fmt::format("{}:{}:{}:{}", static_cast<int>(source.kind),
                                static_cast<int>(source.json.whitespace), source.json.around, source.text);
  for (const auto& [name, schema] : source.schemas) key += fmt::format("\n{}:{}", name, schema);
  return key;
}

GrammarCompiler::Ticket GrammarCompiler::submit(Source source,
                                                std::chrono::steady_clock::time_point deadline) {
  Ticket ticket;
  std::string key = key_of(source);
  const std::lock_guard lock(mutex_);
  if (const auto it = index_.find(key); it != index_.end()) {
    cache_.splice(cache_.begin(), cache_, it->second);
    std::promise<std::shared_ptr<const CompiledGrammar>> done;
    done.set_value(it->second->grammar);
    ticket.result_ = done.get_future().share();
    return ticket;
  }
  // A request for the same text joins the one under way, unless that one has an earlier deadline or was given
  // up.
  if (const auto it = running_.find(key); it != running_.end()) {
    const auto job = it->second.lock();
    if (job && job->deadline >= deadline && !job->cancel)
      if (auto interest = job->interest.lock()) {
        ticket.result_ = job->result;
        ticket.interest_ = std::move(interest);
        return ticket;
      }
  }
  require(queue_.size() < options_.queue, ErrorCode::kUnavailable,
          "{} grammars wait to be compiled already; try again", queue_.size());
  auto job = std::make_shared<Job>();
  job->key = key;
  job->source = std::move(source);
  job->deadline = deadline;
  job->result = job->promise.get_future().share();
  std::weak_ptr<Job> weak = job;
  std::shared_ptr<void> interest(nullptr, [weak](void*) {
    if (const auto j = weak.lock()) j->cancel = true;
  });
  job->interest = interest;
  ticket.result_ = job->result;
  ticket.interest_ = std::move(interest);
  running_[std::move(key)] = job;
  queue_.push_back(std::move(job));
  wake_.notify_one();
  return ticket;
}

void GrammarCompiler::wait_warm() {
  if (warmer_) warmer_->wait_idle();
}

// What most grammars have in them: strings, numbers, any JSON.
void GrammarCompiler::warm_common() {
  if (!warmer_) return;
  for (const Whitespace space : {Whitespace::kCompact, Whitespace::kFlexible}) {
    Source source;
    source.json.whitespace = space;
    CompileOptions options;
    options.limits = options_.limits;
    try {
      warmer_->add(compile(source, vocabulary_, options));
    } catch (const std::exception&) {
      // Over a limit, such as time on a machine that stood still: only masks that nobody has asked for are
      // missing.
    }
  }
}

void GrammarCompiler::work() {
  warm_common();
  for (;;) {
    std::shared_ptr<Job> job;
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
      if (stopping_) break;
      job = std::move(queue_.front());
      queue_.pop_front();
    }
    try {
      require(!job->cancel, ErrorCode::kCancelled, "the grammar's compilation was cancelled");
      CompileOptions options;
      options.limits = options_.limits;
      options.cancel = &job->cancel;
      if (job->deadline != std::chrono::steady_clock::time_point::max()) {
        const double left =
            std::chrono::duration<double>(job->deadline - std::chrono::steady_clock::now()).count();
        require(left > 0, ErrorCode::kDeadlineExceeded,
                "the deadline passed before the grammar was compiled");
        options.limits.seconds = std::min(options.limits.seconds, left);
      }
      auto grammar = compile(job->source, vocabulary_, options);
      {
        const std::lock_guard lock(mutex_);
        keep(job->key, grammar);
      }
      if (warmer_) warmer_->add(grammar);
      job->promise.set_value(std::move(grammar));
    } catch (...) {
      job->promise.set_exception(std::current_exception());
    }
    const std::lock_guard lock(mutex_);
    const auto it = running_.find(job->key);
    if (it != running_.end() && it->second.lock() == job) running_.erase(it);
  }
  const std::lock_guard lock(mutex_);
  for (auto& job : queue_)
    job->promise.set_exception(
        std::make_exception_ptr(Error(ErrorCode::kUnavailable, "the grammar compiler is shutting down")));
  queue_.clear();
}

void GrammarCompiler::keep(const std::string& key, std::shared_ptr<const CompiledGrammar> grammar) {
  if (index_.count(key)) return;
  cache_.push_front({key, std::move(grammar)});
  index_[key] = cache_.begin();
  // Mask caches grow with use: their size is read anew each time.
  size_t bytes = 0;
  for (const Entry& e : cache_) bytes += e.grammar->bytes() + e.key.size();
  while (cache_.size() > 1 && (cache_.size() > options_.cache_entries || bytes > options_.cache_bytes)) {
    bytes -= std::min(bytes, cache_.back().grammar->bytes() + cache_.back().key.size());
    index_.erase(cache_.back().key);
    cache_.pop_back();
  }
}

size_t GrammarCompiler::cached_entries() const {
  const std::lock_guard lock(mutex_);
  return cache_.size();
}

size_t GrammarCompiler::cached_bytes() const {
  const std::lock_guard lock(mutex_);
  size_t bytes = 0;
  for (const Entry& e : cache_) bytes += e.grammar->bytes() + e.key.size();
  return bytes;
}

}  // namespace millrace::grammar
