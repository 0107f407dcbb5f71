// From a grammar's text to a compiled grammar: at once, or in the background, with limits, a deadline and a
// cache.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <future>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "grammar/json_schema.h"
#include "grammar/matcher.h"
#include "grammar/warm.h"

namespace millrace::grammar {

enum class SourceKind : uint8_t {
  kJson,        ///< any JSON value; `text` is ignored
  kJsonObject,  ///< any JSON object; `text` is ignored
  kJsonSchema,
  kRegex,
  kGbnf,
  kLark,
  kChoices,  ///< `text` is a JSON list of strings
  kReady,    ///< `text` names a ready grammar: "sql", "arithmetic", "date", "date-time"
};

struct Source {
  SourceKind kind = SourceKind::kJson;
  std::string text;
  JsonOptions json;  ///< for the JSON kinds
  /// kGbnf: rules that the text uses but leaves open, by name, as JSON schemas.
  std::vector<std::pair<std::string, std::string>> schemas = {};
};

struct CompileOptions {
  Limits limits;
  const std::atomic<bool>* cancel = nullptr;  ///< set it to stop the compilation
};

/// The grammar of a source, before automata. Errors as the front ends give them.
Grammar parse_source(const Source& source, Budget& budget);
std::shared_ptr<const Program> compile_program(const Source& source, const CompileOptions& options = {});
std::shared_ptr<const CompiledGrammar> compile(const Source& source,
                                               std::shared_ptr<const TokenTrie> vocabulary,
                                               const CompileOptions& options = {});

/// Compiles on a thread of its own and keeps what it compiled, bounded by count and bytes. Thread-safe.
class GrammarCompiler {
 public:
  struct Options {
    size_t cache_entries = 64;
    size_t cache_bytes = size_t{256} << 20;
    Limits limits;
    size_t queue = 256;  ///< requests that may wait; more are refused with kUnavailable
    bool warm = true;    ///< make masks in the background, see warm.h
  };
  using Result = std::shared_future<std::shared_ptr<const CompiledGrammar>>;

  /// A request for one grammar. Dropping the last copy cancels it if it has not begun to be used by another.
  class Ticket {
   public:
    Ticket() = default;
    /// Whether get() would return at once.
    bool ready() const {
      return result_.valid() && result_.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
    }
    /// Waits. Throws the Error of the compilation.
    std::shared_ptr<const CompiledGrammar> get() const { return result_.get(); }
    bool wait_until(std::chrono::steady_clock::time_point t) const {
      return result_.wait_until(t) == std::future_status::ready;
    }

   private:
    friend class GrammarCompiler;
    Result result_;
    std::shared_ptr<void> interest_;
  };

  GrammarCompiler(std::shared_ptr<const TokenTrie> vocabulary, Options options);
  ~GrammarCompiler();

  /// Never blocks. `deadline`: when it passes before the compilation is done, the result is
  /// kDeadlineExceeded.
  Ticket submit(Source source, std::chrono::steady_clock::time_point deadline =
                                   std::chrono::steady_clock::time_point::max());
  size_t cached_entries() const;
  size_t cached_bytes() const;
  /// Waits until the masks of all that was compiled so far have been made in the background.
  void wait_warm();

 private:
  struct Job;
  struct Entry {
    std::string key;
    std::shared_ptr<const CompiledGrammar> grammar;
  };
  void work();
  void warm_common();
  void keep(const std::string& key, std::shared_ptr<const CompiledGrammar> grammar);
  static std::string key_of(const Source& source);

  std::shared_ptr<const TokenTrie> vocabulary_;
  Options options_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::shared_ptr<Job>> queue_;
  std::unordered_map<std::string, std::weak_ptr<Job>> running_;
  std::list<Entry> cache_;  ///< most recently used first
  std::unordered_map<std::string, std::list<Entry>::iterator> index_;
  bool stopping_ = false;
  std::unique_ptr<Warmer> warmer_;  ///< null: no masks in the background
  std::thread thread_;
};

}  // namespace millrace::grammar
