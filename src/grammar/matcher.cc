#include "grammar/matcher.h"

#include <algorithm>
#include <mutex>

#include "grammar/completion.h"
#include "grammar/machine.h"
#include "grammar/mask.h"

namespace millrace::grammar {
namespace {

constexpr size_t kMachineBytes = size_t{24} << 20;  ///< beyond this, what no live matcher needs is dropped
constexpr size_t kKeptMasks = 48;
constexpr uint32_t kNoStep = ~uint32_t{0};

}  // namespace

CompiledGrammar::CompiledGrammar(std::shared_ptr<const Program> program,
                                 std::shared_ptr<const TokenTrie> trie)
    : program_(std::move(program)), trie_(std::move(trie)) {}

size_t CompiledGrammar::bytes() const { return program_->bytes; }

/// What a matcher and its forks have in common: the machine, and the tree of accepted steps.
struct Matcher::Shared {
  struct Step {
    uint32_t parent = kNoStep;
    uint32_t refs = 0;  ///< matchers and child steps
    StateId state = 0;
    uint32_t bytes = 0;  ///< text added
    uint32_t depth = 0;
    bool terminated = false;
  };
  struct KeptMask {
    StateId state = kDeadState;
    uint64_t used = 0;
    std::vector<uint64_t> bits;
  };

  explicit Shared(std::shared_ptr<const CompiledGrammar> g)
      : grammar(std::move(g)), machine(grammar->shared_program()) {
    steps.push_back({kNoStep, 1, machine.start(), 0, 0, false});
    ceiling = kMachineBytes;
  }

  uint32_t add(uint32_t parent, StateId state, uint32_t bytes, bool terminated) {
    uint32_t id;
    if (!free.empty()) {
      id = free.back();
      free.pop_back();
    } else {
      id = static_cast<uint32_t>(steps.size());
      steps.emplace_back();
    }
    ++steps[parent].refs;
    steps[id] = {parent, 1, state, bytes, steps[parent].depth + 1, terminated};
    return id;
  }
  void release(uint32_t id) {
    while (id != kNoStep && --steps[id].refs == 0) {
      const uint32_t parent = steps[id].parent;
      free.push_back(id);
      id = parent;
    }
  }
  void maybe_compact() {
    if (machine.bytes() < ceiling) return;
    std::vector<StateId*> keep;
    for (Step& s : steps)
      if (s.refs > 0) keep.push_back(&s.state);
    machine.compact(keep);
    masks.clear();
    ceiling = std::max(kMachineBytes, 2 * machine.bytes());
  }
  /// State after `bytes`; `text` (the output before) is only used by programs that need it.
  StateId run(StateId s, std::string& text, std::string_view bytes, size_t* consumed) {
    const bool with_text = machine.program().needs_text;
    size_t i = 0;
    for (; i < bytes.size(); ++i) {
      StateId next = machine.step(s, static_cast<uint8_t>(bytes[i]));
      if (with_text) {
        text.push_back(bytes[i]);
        if (machine.guarded(next)) next = machine.resolve(next, text);
      }
      if (next == kDeadState) {
        s = kDeadState;
        break;
      }
      s = next;
    }
    if (consumed) *consumed = i;
    return s;
  }

  std::shared_ptr<const CompiledGrammar> grammar;
  std::mutex mutex;
  Machine machine;
  std::vector<Step> steps;
  std::vector<uint32_t> free;
  std::vector<KeptMask> masks;
  uint64_t clock = 0;
  size_t ceiling = 0;
};

Matcher::Matcher(std::shared_ptr<const CompiledGrammar> grammar)
    : shared_(std::make_shared<Shared>(std::move(grammar))), step_(0) {}

Matcher::Matcher(const Matcher& other) : shared_(other.shared_), step_(other.step_), text_(other.text_) {
  if (!shared_) return;
  const std::lock_guard lock(shared_->mutex);
  ++shared_->steps[step_].refs;
}

Matcher& Matcher::operator=(const Matcher& other) {
  if (this == &other) return *this;
  Matcher copy(other);
  return *this = std::move(copy);
}

Matcher& Matcher::operator=(Matcher&& other) noexcept {
  if (this == &other) return *this;
  std::swap(shared_, other.shared_);
  std::swap(step_, other.step_);
  std::swap(text_, other.text_);
  return *this;
}

Matcher::~Matcher() {
  if (!shared_) return;
  const std::lock_guard lock(shared_->mutex);
  shared_->release(step_);
}

const CompiledGrammar& Matcher::grammar() const { return *shared_->grammar; }
size_t Matcher::mask_words() const { return shared_->grammar->trie().mask_words(); }

void Matcher::fill_mask(std::span<uint64_t> out) {
  const std::lock_guard lock(shared_->mutex);
  Shared& s = *shared_;
  require(out.size() >= mask_words(), ErrorCode::kInvalidArgument,
          "a token mask needs {} words, {} were given", mask_words(), out.size());
  std::fill(out.begin(), out.end(), 0);
  const Shared::Step& step = s.steps[step_];
  if (step.terminated) return;
  s.maybe_compact();
  const StateId state = s.steps[step_].state;
  const auto words = out.subspan(0, mask_words());
  bool done = false;
  for (Shared::KeptMask& m : s.masks)
    if (m.state == state) {
      m.used = ++s.clock;
      std::copy(m.bits.begin(), m.bits.end(), words.begin());
      done = true;
      break;
    }
  if (!done) {
    MaskBuilder builder(s.machine, s.grammar->trie());
    builder.fill(state, text_, words);
    const bool keep = !builder.used_text();  // otherwise the text belongs to the mask as well
    if (s.machine.can_end(state))
      for (TokenId e : s.grammar->trie().vocabulary().end_of_generation)
        words[static_cast<size_t>(e) >> 6] |= uint64_t{1} << (e & 63);
    if (keep) {
      Shared::KeptMask* slot = nullptr;
      if (s.masks.size() < kKeptMasks) {
        slot = &s.masks.emplace_back();
      } else {
        slot = &*std::min_element(s.masks.begin(), s.masks.end(),
                                  [](const auto& a, const auto& b) { return a.used < b.used; });
      }
      slot->state = state;
      slot->used = ++s.clock;
      slot->bits.assign(words.begin(), words.end());
    }
  }
}

bool Matcher::accept(TokenId token) {
  const auto& trie = shared_->grammar->trie();
  if (token < 0 || static_cast<size_t>(token) >= trie.vocab_size()) return false;
  const auto& ends = trie.vocabulary().end_of_generation;
  if (std::find(ends.begin(), ends.end(), token) != ends.end()) {
    const std::lock_guard lock(shared_->mutex);
    const Shared::Step step = shared_->steps[step_];
    if (step.terminated || !shared_->machine.can_end(step.state)) return false;
    const uint32_t before = step_;
    step_ = shared_->add(before, step.state, 0, true);
    shared_->release(before);
    return true;
  }
  const std::string& bytes = trie.vocabulary().token_bytes[static_cast<size_t>(token)];
  if (bytes.empty() || trie.vocabulary().special[static_cast<size_t>(token)]) return false;
  return accept_bytes(bytes);
}

bool Matcher::accept_bytes(std::string_view bytes) {
  const std::lock_guard lock(shared_->mutex);
  Shared& s = *shared_;
  if (s.steps[step_].terminated) return false;
  s.maybe_compact();
  const size_t length = text_.size();
  const StateId next = s.run(s.steps[step_].state, text_, bytes, nullptr);
  if (next == kDeadState) {
    text_.resize(length);
    return false;
  }
  const uint32_t before = step_;
  step_ = s.add(before, next, static_cast<uint32_t>(bytes.size()), false);
  s.release(before);
  return true;
}

size_t Matcher::depth() const {
  const std::lock_guard lock(shared_->mutex);
  return shared_->steps[step_].depth;
}

void Matcher::rollback(size_t n) {
  const std::lock_guard lock(shared_->mutex);
  Shared& s = *shared_;
  require(n <= s.steps[step_].depth, ErrorCode::kInvalidArgument,
          "cannot roll a grammar back by {} steps, {} were accepted", n, s.steps[step_].depth);
  uint32_t to = step_;
  size_t bytes = 0;
  for (size_t i = 0; i < n; ++i) {
    bytes += s.steps[to].bytes;
    to = s.steps[to].parent;
  }
  ++s.steps[to].refs;
  s.release(step_);
  step_ = to;
  if (s.machine.program().needs_text) text_.resize(text_.size() - bytes);
}

bool Matcher::can_end() const {
  const std::lock_guard lock(shared_->mutex);
  return shared_->machine.can_end(shared_->steps[step_].state);
}

bool Matcher::is_terminated() const {
  const std::lock_guard lock(shared_->mutex);
  return shared_->steps[step_].terminated;
}

bool Matcher::must_end() {
  const std::lock_guard lock(shared_->mutex);
  return shared_->machine.finished(shared_->steps[step_].state);
}

namespace {

/// Whether a backslash at `at` can begin nothing but another spelling of the character `plain`, whose own
/// byte leads to `target`.
bool only_respells(Machine& m, StateId at, uint8_t plain, StateId target) {
  const auto hex = [](unsigned b) -> unsigned {
    return b >= '0' && b <= '9'                     ? b - '0'
           : (b | 0x20) >= 'a' && (b | 0x20) <= 'f' ? (b | 0x20) - 'a' + 10
                                                    : 16;
  };
  if (plain >= 0x80) return false;
  std::vector<StateId> front = {m.step(at, '\\')}, next;
  // 'u', or the short form; then the digits of the code point.
  for (int digit = -1; digit < 4; ++digit) {
    const unsigned nibble = digit < 2 ? 0 : digit == 2 ? plain >> 4 : plain & 15u;
    for (const StateId from : front) {
      if (m.guarded(from)) return false;
      const ByteSet set = m.candidates(from);
      for (unsigned b = 0; b < 256; ++b) {
        if (!set.test(static_cast<uint8_t>(b))) continue;
        const StateId t = m.step(from, static_cast<uint8_t>(b));
        if (t == kDeadState) continue;
        if (digit < 0 && b == '/' && plain == '/' && t == target) continue;
        if (digit < 0 ? b != 'u' : hex(b) != nibble) return false;
        if (std::find(next.begin(), next.end(), t) == next.end()) next.push_back(t);
      }
    }
    front.swap(next);
    next.clear();
  }
  return std::all_of(front.begin(), front.end(), [&](StateId s) { return s == target; });
}

}  // namespace

std::string Matcher::forced_bytes(size_t max_bytes, bool plain_spelling) {
  const std::lock_guard lock(shared_->mutex);
  Shared& s = *shared_;
  Machine& m = s.machine;
  std::string forced;
  if (s.steps[step_].terminated) return forced;
  s.maybe_compact();
  StateId at = s.steps[step_].state;
  std::string text = text_;
  while (forced.size() < max_bytes && !m.can_end(at)) {
    const ByteSet set = m.candidates(at);
    StateId only = kDeadState;
    int byte = -1, found = 0;
    bool backslash = false;
    for (unsigned b = 0; b < 256 && found < 2; ++b) {
      if (!set.test(static_cast<uint8_t>(b))) continue;
      StateId t = m.step(at, static_cast<uint8_t>(b));
      if (m.guarded(t)) {
        text.push_back(static_cast<char>(b));
        t = m.resolve(t, text);
        text.pop_back();
      }
      if (t == kDeadState) continue;
      if (b == '\\' && plain_spelling) {
        backslash = true;
        continue;
      }
      ++found;
      byte = static_cast<int>(b);
      only = t;
    }
    if (found != 1) break;
    if (backslash && !only_respells(m, at, static_cast<uint8_t>(byte), only)) break;
    forced.push_back(static_cast<char>(byte));
    if (m.program().needs_text) text.push_back(static_cast<char>(byte));
    at = only;
  }
  return forced;
}

size_t Matcher::viable_prefix(std::string_view text) {
  const std::lock_guard lock(shared_->mutex);
  size_t consumed = 0;
  std::string output = text_;
  shared_->run(shared_->steps[step_].state, output, text, &consumed);
  return consumed;
}

uint64_t Matcher::distance_to_end(CompletionCost& cost, std::string_view after) {
  const std::lock_guard lock(shared_->mutex);
  std::string output = text_;
  const StateId s = shared_->run(shared_->steps[step_].state, output, after, nullptr);
  return s == kDeadState ? CompletionCost::kNever : cost.of_state(shared_->machine, s);
}

uint64_t Matcher::state_hash() const {
  const std::lock_guard lock(shared_->mutex);
  return shared_->machine.hash(shared_->steps[step_].state);
}

size_t Matcher::bytes() const {
  const std::lock_guard lock(shared_->mutex);
  return shared_->machine.bytes() + shared_->steps.size() * sizeof(Shared::Step) +
         shared_->masks.size() * mask_words() * 8;
}

MatchResult match_text(const std::shared_ptr<const CompiledGrammar>& grammar, std::string_view text) {
  Matcher m(grammar);
  // In pieces, so that a long text cannot hold the machine's memory.
  for (size_t at = 0; at < text.size();) {
    const std::string_view piece = text.substr(at, 1024);
    if (!m.accept_bytes(piece)) return {false, at + m.viable_prefix(piece)};
    at += piece.size();
  }
  return {m.can_end(), text.size()};
}

}  // namespace millrace::grammar
