#include "grammar/warm.h"

#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <ctime>
#include <queue>
#include <unordered_set>

#include "core/utf8.h"
#include "grammar/machine.h"
#include "grammar/mask.h"
#include "grammar/place_cache.h"
#include "grammar/string_step.h"
#include "grammar/value_hash.h"

namespace millrace::grammar {
namespace {

constexpr uint32_t kStepCost = 1, kSkippedKeyCost = 4, kBackwardKeyCost = 24, kOtherKeyCost = 8;
constexpr size_t kMostItems = 192;  ///< places at once, beyond which no mask is kept
constexpr size_t kMostCallers = 8;  ///< looked at to tell two configurations apart
constexpr size_t kMostKeys = 400;   ///< ways on from one place of an object
constexpr size_t kLongestText = 4096;

double thread_seconds() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

// A text of each class of an object's keys: the shortest way through the automaton.
std::vector<std::string> key_texts(const CompiledObject& o) {
  const Dfa& dfa = *o.rule.keys;
  std::vector<std::string> texts(o.rule.classes.size());
  std::vector<uint8_t> found(o.rule.classes.size(), 0), seen(dfa.size(), 0);
  std::deque<std::pair<uint32_t, std::string>> queue;
  if (dfa.size() > 0) queue.push_back({0, {}}), seen[0] = 1;
  while (!queue.empty()) {
    auto [state, text] = std::move(queue.front());
    queue.pop_front();
    const uint32_t cls = o.rule.accept_class[state];
    if (cls != kNone && !found[cls]) found[cls] = 1, texts[cls] = text;
    if (text.size() > 200) continue;
    for (const auto& e : dfa.out(state)) {
      if (seen[e.target]) continue;
      // A letter where there is one; never what would need an escape.
      uint32_t c = e.lo <= 'a' && e.hi >= 'a' ? 'a' : std::max<uint32_t>(e.lo, 0x20);
      while (c <= e.hi && (c == '"' || c == '\\')) ++c;
      if (c > e.hi) continue;
      seen[e.target] = 1;
      std::string longer = text;
      utf8::append(longer, c);
      queue.push_back({e.target, std::move(longer)});
    }
  }
  return texts;
}

class Walk {
 public:
  Walk(const CompiledGrammar& g, const WarmLimits& limits)
      : p_(g.program()),
        trie_(g.trie()),
        machine_(g.shared_program()),
        builder_(machine_, trie_),
        limits_(limits),
        mask_(trie_.mask_words()),
        keys_(p_.objects.size()) {}

  WarmResult run() {
    const double begin = thread_seconds();
    const size_t cached = trie_.places().bytes(), room = trie_.places().max_bytes();
    WarmResult result;
    push(0, machine_.start(), {});
    while (!queue_.empty() && result.places < limits_.places) {
      if (limits_.stop && limits_.stop->load(std::memory_order_relaxed)) break;
      if (thread_seconds() - begin > limits_.seconds) break;
      // What others use is not pushed out for what may never be asked for.
      if (trie_.places().bytes() > cached + room / 8) break;
      Node node = queue_.top();
      queue_.pop();
      try {
        builder_.fill(node.state, node.text, mask_);
        ++result.places;
        expand(node);
      } catch (const Error&) {
        continue;  // in too many places at once: whoever comes there is told
      }
    }
    result.complete = queue_.empty();
    result.seconds = thread_seconds() - begin;
    return result;
  }

 private:
  struct Node {
    uint32_t cost;
    uint32_t number;  ///< equal costs in the order of their finding
    StateId state;
    std::string text;  ///< only where the program compares with it
    bool operator<(const Node& o) const { return cost != o.cost ? cost > o.cost : number > o.number; }
  };

  // What the mask is made of, and whom the frames return to: configurations that agree are taken once.
  uint64_t signature(StateId state) {
    machine_.closure(state, items_);
    if (items_.size() > kMostItems) return 0;
    uint64_t sum = 1;
    for (const Item& item : items_) {
      if (item.position == kEscaped || item.position == kDone) continue;
      uint64_t h = named(item);
      if (item.node > kUnknown) {
        const auto callers = machine_.callers(item.node);
        const std::vector<Item> above(callers.begin(), callers.begin() + static_cast<ptrdiff_t>(std::min(
                                                                             callers.size(), kMostCallers)));
        for (const Item& c : above) h = mix_hash(h, named(c));
      }
      sum += h * 0x9e3779b97f4a7c15ULL;
    }
    return sum;
  }
  uint64_t named(const Item& item) {
    machine_.cut(item, key_);
    return std::hash<std::string>{}(key_);
  }

  void push(uint32_t cost, StateId state, std::string text) {
    if (state == kDeadState || text.size() > kLongestText || !states_.insert(state).second) return;
    const uint64_t s = signature(state);
    if (s == 0 || !signatures_.insert(s).second) return;
    queue_.push({cost, number_++, state, std::move(text)});
  }

  StateId step(StateId state, std::string& text, uint8_t byte) {
    StateId s = machine_.step(state, byte);
    if (!p_.needs_text || s == kDeadState) return s;
    text.push_back(static_cast<char>(byte));
    return machine_.guarded(s) ? machine_.resolve(s, text) : s;
  }

  void expand(const Node& node) {
    machine_.closure(node.state, items_);
    const std::vector<Item> items = items_;
    bool in_string = false, in_key = false;
    size_t ways = 0;
    for (const Item& item : items) {
      if (item.position == kEscaped) continue;
      const ProgramRule& rule = p_.rules[p_.rule_of[item.position]];
      const Position at = item.position - rule.start;
      if (rule.kind == ProgramRuleKind::kString) in_string = true;
      if (rule.kind != ProgramRuleKind::kObject) continue;
      in_key |= at >= object_at::kKey;
      if (at == object_at::kFirst || at == object_at::kNext) keys(node, item, rule, ways);
    }
    if (in_key) return;  // keys() has gone on from there
    // One byte of each way on. Characters that need an escape, and those beyond ASCII, lead to places of
    // their own that texts seldom stop at.
    const ByteSet set = machine_.candidates(node.state);
    std::vector<StateId> seen{node.state};
    for (unsigned b = 0; b < (in_string ? 128 : 256); ++b) {
      if (!set.test(static_cast<uint8_t>(b)) || (in_string && b == '\\')) continue;
      std::string text = node.text;
      const StateId s = step(node.state, text, static_cast<uint8_t>(b));
      if (s == kDeadState || std::find(seen.begin(), seen.end(), s) != seen.end()) continue;
      seen.push_back(s);
      if (ways > 0 && b == '"') continue;  // keys() has been there
      push(node.cost + kStepCost, s, std::move(text));
    }
  }

  // The keys that an object may have next, with a stop where tokens are likely to end.
  void keys(const Node& node, const Item& item, const ProgramRule& rule, size_t& ways) {
    const CompiledObject& o = p_.objects[rule.index];
    auto& texts = keys_[rule.index];
    if (texts.empty()) texts = key_texts(o);
    const auto record = machine_.record(item.reg);
    const std::vector<uint64_t> words(record.begin(), record.end());
    const auto seen = [&](uint32_t bit) { return ((words[4 + (bit >> 6)] >> (bit & 63)) & 1) != 0; };
    uint32_t first_free = 0, above = 0;
    while (first_free < o.rule.num_tracked && seen(first_free)) ++first_free;
    for (uint32_t b = 0; b < o.rule.num_tracked; ++b)
      if (seen(b)) above = b + 1;
    for (uint32_t cls = 0; cls < o.rule.classes.size() && ways < kMostKeys; ++cls) {
      const KeyClass& k = o.rule.classes[cls];
      uint32_t cost = node.cost + kOtherKeyCost;
      if (k.tracked) {
        if (seen(k.bit)) continue;
        cost = node.cost + kStepCost +
               (k.bit >= above ? (k.bit - above) * kSkippedKeyCost : kBackwardKeyCost + k.bit);
      }
      ++ways;
      key(node, texts[cls], cost);
    }
  }

  void key(const Node& node, const std::string& name, uint32_t cost) {
    std::string text = node.text;
    StateId s = step(node.state, text, '"');
    push(cost, s, text);
    for (size_t at = 0; at < name.size();) {
      const size_t n = trie_.longest_prefix(std::string_view(name).substr(at));
      for (size_t i = 0; i < std::max<size_t>(n, 1) && s != kDeadState; ++i, ++at)
        s = step(s, text, static_cast<uint8_t>(name[at]));
      if (s == kDeadState) return;
      push(cost, s, text);
    }
    for (const char c : {'"', ':'}) {
      s = step(s, text, static_cast<uint8_t>(c));
      push(cost, s, text);
    }
  }

  const Program& p_;
  const TokenTrie& trie_;
  Machine machine_;
  MaskBuilder builder_;
  const WarmLimits& limits_;
  std::vector<uint64_t> mask_;
  std::vector<std::vector<std::string>> keys_;  ///< by object, by class
  std::priority_queue<Node> queue_;
  std::unordered_set<StateId> states_;
  std::unordered_set<uint64_t> signatures_;
  std::vector<Item> items_;
  std::string key_;
  uint32_t number_ = 0;
};

}  // namespace

WarmResult warm(const std::shared_ptr<const CompiledGrammar>& grammar, const WarmLimits& limits) {
  return Walk(*grammar, limits).run();
}

Warmer::Warmer(WarmLimits limits) : limits_(limits), thread_([this] { work(); }) {}

Warmer::~Warmer() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

void Warmer::add(std::shared_ptr<const CompiledGrammar> grammar) {
  const std::lock_guard lock(mutex_);
  waiting_.push_back(std::move(grammar));
  if (waiting_.size() > kMostWaiting) waiting_.pop_front();
  wake_.notify_one();
}

void Warmer::wait_idle() {
  std::unique_lock lock(mutex_);
  idle_.wait(lock, [this] { return waiting_.empty() && !busy_; });
}

void Warmer::work() {
  // Whoever computes goes first. A refusal changes nothing but that.
  (void)setpriority(PRIO_PROCESS, static_cast<id_t>(syscall(SYS_gettid)), 10);
  WarmLimits limits = limits_;
  limits.stop = &stopping_;
  std::unique_lock lock(mutex_);
  while (true) {
    wake_.wait(lock, [this] { return stopping_ || !waiting_.empty(); });
    if (stopping_) return;
    auto grammar = std::move(waiting_.back());
    waiting_.pop_back();
    busy_ = true;
    lock.unlock();
    try {
      warm(grammar, limits);
    } catch (const std::exception&) {
      // Only masks that nobody has asked for yet are missing.
    }
    grammar.reset();
    lock.lock();
    busy_ = false;
    if (waiting_.empty()) idle_.notify_all();
  }
}

}  // namespace millrace::grammar
