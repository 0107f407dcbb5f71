#include "api/grammar_constraint.h"

#include <algorithm>
#include <chrono>

namespace millrace::api {

namespace {

void set_bit(std::span<uint64_t> bits, engine::TokenId id) {
  const auto at = static_cast<size_t>(id);
  if (at / 64 < bits.size()) bits[at / 64] |= uint64_t{1} << (at % 64);
}

void clear_bit(std::span<uint64_t> bits, engine::TokenId id) {
  const auto at = static_cast<size_t>(id);
  if (at / 64 < bits.size()) bits[at / 64] &= ~(uint64_t{1} << (at % 64));
}

std::string_view without_leading_space(std::string_view text) {
  const size_t at = text.find_first_not_of(" \n\r\t");
  return at == std::string_view::npos ? std::string_view() : text.substr(at);
}

}  // namespace

// --- MarkerTable ---

MarkerTable::MarkerTable(std::string marker, const std::vector<std::string>& token_text)
    : marker_(std::move(marker)), border_(marker_.size() + 1), begun_(marker_.size()) {
  for (size_t i = 1, k = 0; i < marker_.size(); ++i) {
    while (k > 0 && marker_[i] != marker_[k]) k = border_[k];
    if (marker_[i] == marker_[k]) ++k;
    border_[i + 1] = k;
  }
  for (size_t id = 0; id < token_text.size(); ++id) {
    const std::string& text = token_text[id];
    if (text.empty()) continue;
    const auto token = static_cast<engine::TokenId>(id);
    const size_t whole = text.find(marker_);
    if (whole != std::string::npos) inside_.push_back({token, static_cast<uint32_t>(whole + marker_.size())});
    for (size_t k = 1; k < marker_.size(); ++k)
      if (text[0] == marker_[k] && text.compare(0, marker_.size() - k, marker_, k) == 0)
        begun_[k].push_back({token, static_cast<uint32_t>(marker_.size() - k)});
  }
}

size_t MarkerTable::step(size_t state, std::string_view bytes, size_t& done) const {
  done = 0;
  for (size_t i = 0; i < bytes.size(); ++i) {
    while (state > 0 && bytes[i] != marker_[state]) state = border_[state];
    if (bytes[i] == marker_[state]) ++state;
    if (state == marker_.size()) {
      done = i + 1;
      return 0;
    }
  }
  return state;
}

SpaceTokens::SpaceTokens(const std::vector<std::string>& token_text) {
  for (size_t id = 0; id < token_text.size(); ++id) {
    const std::string_view text = token_text[id];
    const std::string_view lead = text.substr(0, text.size() - without_leading_space(text).size());
    if (lead.empty()) continue;
    const auto token = static_cast<engine::TokenId>(id);
    any.push_back(token);
    const auto lines = std::count(lead.begin(), lead.end(), '\n');
    if (lines > 0) one_line.push_back(token);
    if (lines > 1) more_lines.push_back(token);
  }
}

// --- GrammarConstraint ---

GrammarConstraint::GrammarConstraint(std::shared_ptr<const ConstraintRules> rules)
    : rules_(std::move(rules)) {
  if (rules_->reasoning_end && rules_->starts_in_reasoning) {
    phase_ = Phase::kReasoning;
    if (rules_->reasoning_budget == 0) force(rules_->end_of_reasoning, Phase::kReasoning);
  } else {
    after_reasoning("");
    if (rules_->reasoning_end && rules_->reasoning_begin >= 0 && phase_ != Phase::kForced)
      phase_ = Phase::kStart;
  }
}

std::unique_ptr<engine::TokenConstraint> GrammarConstraint::fork() const {
  return std::make_unique<GrammarConstraint>(*this);
}

void GrammarConstraint::force(std::vector<engine::TokenId> tokens, Phase then) {
  phase_ = tokens.empty() ? then : Phase::kForced;
  forced_ = std::move(tokens);
  forced_at_ = 0;
  after_forced_ = then;
}

void GrammarConstraint::begin_grammar() {
  matcher_.emplace(rules_->grammar);
  if (rules_->prefix.empty())
    phase_ = Phase::kGrammar;
  else
    force(rules_->encode(rules_->prefix), Phase::kGrammar);
}

/// What holds where reasoning is over; `rest` has been written behind its end already.
void GrammarConstraint::after_reasoning(std::string_view rest) {
  marker_state_ = 0;
  if (!rules_->grammar) {
    phase_ = Phase::kDone;
  } else if (rules_->trigger) {
    phase_ = Phase::kFree;
    if (!rest.empty()) accept_free(rest);
  } else {
    begin_grammar();
    rest = without_leading_space(rest);
    if (!rest.empty()) matcher_->accept_bytes(rest);
  }
}

/// Text behind the end of reasoning in one token with it: white space goes, anything else must suit the
/// grammar.
bool GrammarConstraint::fits_after_reasoning(std::string_view rest) const {
  rest = without_leading_space(rest);
  if (rest.empty() || !rules_->grammar || rules_->trigger) return true;
  if (!rules_->prefix.empty()) return false;
  grammar::Matcher fresh(rules_->grammar);
  return fresh.accept_bytes(rest);
}

grammar::Matcher GrammarConstraint::triggered() const {
  grammar::Matcher matcher(rules_->grammar);
  std::string text = rules_->lead;
  if (rules_->trigger_in_grammar) text += rules_->trigger->marker();
  if (!text.empty())
    check(matcher.accept_bytes(text), "the grammar of a tool call does not begin with {}", text);
  return matcher;
}

void GrammarConstraint::mask_free(std::span<uint64_t> bits, bool may_end) const {
  std::fill(bits.begin(), bits.end(), ~uint64_t{0});
  if (may_end) return;
  for (const engine::TokenId id : rules_->end_tokens) clear_bit(bits, id);
}

/// Takes those tokens away that would complete the marker with something behind it that cannot stand there.
void GrammarConstraint::mask_hits(std::span<uint64_t> bits, const MarkerTable& table) {
  const bool trigger = &table == rules_->trigger.get();
  std::optional<grammar::Matcher> start;
  table.for_each_hit(marker_state_, [&](const MarkerTable::Hit& hit) {
    const std::string& text = (*rules_->token_text)[static_cast<size_t>(hit.token)];
    if (hit.taken >= text.size()) return;
    const std::string_view rest = std::string_view(text).substr(hit.taken);
    bool fits = true;
    if (trigger) {
      if (!start) start = triggered();
      grammar::Matcher fork = start->fork();
      fits = fork.accept_bytes(rest);
    } else {
      fits = fits_after_reasoning(rest);
    }
    if (!fits) clear_bit(bits, hit.token);
  });
}

void GrammarConstraint::fill_from_matcher(std::span<uint64_t> bits) {
  const auto begin = std::chrono::steady_clock::now();
  const size_t words = matcher_->mask_words();
  if (words <= bits.size()) {
    matcher_->fill_mask(bits.first(words));
    std::fill(bits.begin() + static_cast<std::ptrdiff_t>(words), bits.end(), 0);
  } else {
    // A vocabulary with more tokens than the model has logits.
    std::vector<uint64_t> all(words);
    matcher_->fill_mask(all);
    std::copy_n(all.begin(), bits.size(), bits.begin());
  }
  const auto nanos = static_cast<uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() - begin).count());
  GrammarCounters& c = *rules_->counters;
  c.masks.fetch_add(1, std::memory_order_relaxed);
  c.mask_nanos.fetch_add(nanos, std::memory_order_relaxed);
  if (nanos > 1'000'000) c.slow_masks.fetch_add(1, std::memory_order_relaxed);
}

/// One line end, and so many blanks: more is never needed where JSON allows white space.
void GrammarConstraint::mask_spaces(std::span<uint64_t> bits) const {
  if (!rules_->spaces || in_string_) return;
  const SpaceTokens& s = *rules_->spaces;
  const size_t longest = lines_in_run_ > 0 ? SpaceTokens::kLongest : SpaceTokens::kLongestOnLine;
  const auto& barred = space_run_ >= longest ? s.any : lines_in_run_ > 0 ? s.one_line : s.more_lines;
  for (const engine::TokenId id : barred) clear_bit(bits, id);
}

void GrammarConstraint::count_spaces(std::string_view text) {
  for (const char c : text) {
    if (in_string_) {
      in_string_ = escaped_ || c != '"';
      escaped_ = !escaped_ && c == '\\';
      continue;
    }
    const bool space = c == ' ' || c == '\n' || c == '\r' || c == '\t';
    space_run_ = space ? space_run_ + 1 : 0;
    lines_in_run_ = space ? lines_in_run_ + (c == '\n') : 0;
    in_string_ = c == '"';
  }
}

void GrammarConstraint::fill_mask(std::span<uint64_t> bits) {
  const ConstraintRules& r = *rules_;
  switch (phase_) {
    case Phase::kStart:
      if (!r.grammar)
        mask_free(bits, true);
      else if (r.trigger)
        mask_free(bits, !r.must_trigger);
      else
        fill_from_matcher(bits);
      if (r.trigger) mask_hits(bits, *r.trigger);
      set_bit(bits, r.reasoning_begin);
      return;
    case Phase::kReasoning:
      // Ending here would be an answer without what was asked for.
      mask_free(bits, !r.grammar || (r.trigger && !r.must_trigger));
      mask_hits(bits, *r.reasoning_end);
      return;
    case Phase::kForced:
      std::fill(bits.begin(), bits.end(), 0);
      set_bit(bits, forced_[forced_at_]);
      return;
    case Phase::kFree:
      mask_free(bits, !r.must_trigger);
      mask_hits(bits, *r.trigger);
      return;
    case Phase::kGrammar:
      fill_from_matcher(bits);
      mask_spaces(bits);
      return;
    case Phase::kDone:
      mask_free(bits, true);
      return;
  }
}

bool GrammarConstraint::accept_reasoning(engine::TokenId, std::string_view text) {
  ++reasoning_tokens_;
  size_t done = 0;
  marker_state_ = rules_->reasoning_end->step(marker_state_, text, done);
  if (done > 0) {
    after_reasoning(text.substr(done));
    return true;
  }
  if (rules_->reasoning_budget >= 0 && reasoning_tokens_ >= rules_->reasoning_budget)
    force(rules_->end_of_reasoning, Phase::kReasoning);
  return true;
}

void GrammarConstraint::accept_free(std::string_view text) {
  if (rules_->trigger_at_start) {
    seen_ += text;
    const std::string_view begun = without_leading_space(seen_);
    const std::string& marker = rules_->trigger->marker();
    const size_t shared = std::min(begun.size(), marker.size());
    if (begun.substr(0, shared) != std::string_view(marker).substr(0, shared)) {
      phase_ = Phase::kDone;
      return;
    }
  }
  size_t done = 0;
  marker_state_ = rules_->trigger->step(marker_state_, text, done);
  if (done == 0) return;
  matcher_ = triggered();
  phase_ = Phase::kGrammar;
  const std::string_view rest = text.substr(done);
  count_spaces(rules_->lead + rules_->trigger->marker());
  count_spaces(rest);
  // The mask has taken care of it, unless the text behind came with the end of reasoning.
  if (!rest.empty() && !matcher_->accept_bytes(rest)) phase_ = Phase::kDone;
}

bool GrammarConstraint::accept(engine::TokenId token) {
  const auto& texts = *rules_->token_text;
  // Not `condition ? texts[i] : ""`: that would be a copy, gone before the view of it is read.
  std::string_view text;
  if (token >= 0 && static_cast<size_t>(token) < texts.size()) text = texts[static_cast<size_t>(token)];
  last_ = token;
  switch (phase_) {
    case Phase::kStart:
      if (token == rules_->reasoning_begin) {
        marker_state_ = 0;
        matcher_.reset();
        phase_ = Phase::kReasoning;
        if (rules_->reasoning_budget == 0) force(rules_->end_of_reasoning, Phase::kReasoning);
        return true;
      }
      after_reasoning("");
      return accept(token);
    case Phase::kReasoning:
      return accept_reasoning(token, text);
    case Phase::kForced: {
      if (forced_at_ >= forced_.size() || token != forced_[forced_at_]) return false;
      ++forced_at_;
      const bool last = forced_at_ == forced_.size();
      if (after_forced_ == Phase::kReasoning) {
        size_t done = 0;
        marker_state_ = rules_->reasoning_end->step(marker_state_, text, done);
        if (done > 0 || last) after_reasoning("");
      } else if (last) {
        phase_ = after_forced_;
      }
      return true;
    }
    case Phase::kFree:
      accept_free(text);
      break;
    case Phase::kGrammar:
      if (!matcher_->accept(token)) return false;
      count_spaces(text);
      break;
    case Phase::kDone:
      return true;
  }
  if (phase_ == Phase::kGrammar) finished_ = matcher_->must_end();
  return true;
}

bool GrammarConstraint::finished() const { return finished_; }

// --- Jump-forward ---

std::vector<engine::TokenId> GrammarConstraint::forced(size_t most) {
  if (phase_ == Phase::kGrammar && !finished_) return forced_by_grammar(most);
  if (phase_ != Phase::kForced) return {};
  const auto begin = forced_.begin() + static_cast<std::ptrdiff_t>(forced_at_);
  size_t count = std::min(most, forced_.size() - forced_at_);
  // Reasoning that had written a part of its end by itself may be over before the last of them.
  if (after_forced_ == Phase::kReasoning) {
    size_t state = marker_state_;
    for (size_t i = 0, done = 0; i < count && done == 0; ++i) {
      const auto id = static_cast<size_t>(begin[static_cast<std::ptrdiff_t>(i)]);
      state = rules_->reasoning_end->step(state, (*rules_->token_text)[id], done);
      if (done > 0) count = i + 1;
    }
  }
  return {begin, begin + static_cast<std::ptrdiff_t>(count)};
}

std::vector<engine::TokenId> GrammarConstraint::forced_by_grammar(size_t most) {
  // Longer texts are forced in pieces.
  constexpr size_t kMostBytes = 1024;
  const auto& texts = *rules_->token_text;
  if (!rules_->encode_inside || most == 0 || last_ < 0 || static_cast<size_t>(last_) >= texts.size())
    return {};
  const std::string& before = texts[static_cast<size_t>(last_)];
  const std::string text = matcher_->forced_bytes(kMostBytes, true);
  if (text.empty() || before.empty()) return {};
  std::vector<engine::TokenId> tokens = rules_->encode_inside(before + text);
  // Where the tokenizer would have joined the last token with what follows, the model goes on by itself.
  if (tokens.empty() || tokens[0] != last_) return {};
  tokens.erase(tokens.begin());
  grammar::Matcher fork = matcher_->fork();
  size_t count = 0;
  while (count < tokens.size() && fork.accept(tokens[count])) ++count;
  tokens.resize(count);
  if (!fork.must_end()) tokens.resize(settled_tokens(tokens));
  if (tokens.size() > most) tokens.resize(most);
  return tokens;
}

/// How many of the tokens stay as they are whatever comes behind: not the last, and none from where a longer
/// token might take their place.
size_t GrammarConstraint::settled_tokens(std::span<const engine::TokenId> tokens) const {
  const auto& texts = *rules_->token_text;
  const grammar::TokenTrie& trie = rules_->grammar->trie();
  std::string tail;
  size_t settled = tokens.empty() ? 0 : tokens.size() - 1;
  for (size_t i = tokens.size(); i-- > 0 && tail.size() < trie.max_token_bytes();) {
    tail.insert(0, texts[static_cast<size_t>(tokens[i])]);
    // The first token above the tail itself, in the order of bytes.
    const auto& order = trie.order();
    const auto above = std::upper_bound(order.begin(), order.end(), tail, [&](const std::string& t, auto id) {
      return t < trie.vocabulary().token_bytes[static_cast<size_t>(id)];
    });
    if (above != order.end() && trie.vocabulary().token_bytes[static_cast<size_t>(*above)].starts_with(tail))
      settled = std::min(settled, i);
  }
  return settled;
}

}  // namespace millrace::api
