#include "loaders/json_metadata.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "core/error.h"

namespace millrace::loaders {
namespace {

constexpr size_t kMaxDepth = 64;
// What an entry takes in memory beside its text, rounded up: a map node, the value, the key remembered once
// more. A text may take eight times its size and a little: real files stay below four.
constexpr uint64_t kEntryOverhead = 256;
constexpr uint64_t kBudgetFactor = 8, kBudgetBase = 16u << 20;

/// SAX handler: no tree is built, and a key that stands twice is seen.
class Flattener : public nlohmann::json_sax<nlohmann::json> {
 public:
  Flattener(Metadata& out, const std::filesystem::path& file, std::string_view prefix, uint64_t text_bytes)
      : out_(out), file_(file.string()), prefix_(prefix), budget_(kBudgetFactor * text_bytes + kBudgetBase) {}

  bool null() override { return scalar(std::monostate{}); }
  bool boolean(bool v) override { return scalar(v); }
  bool number_integer(int64_t v) override { return scalar(v); }
  bool number_unsigned(uint64_t v) override { return scalar(v); }
  bool number_float(double v, const std::string&) override { return scalar(v); }
  bool string(std::string& v) override { return scalar(v); }
  bool binary(binary_t&) override { return true; }

  bool start_object(size_t) override {
    if (!levels_.empty() && levels_.back().array) levels_.back().plain = false;
    enter(false);
    return true;
  }
  bool key(std::string& name) override {
    Level& level = levels_.back();
    spend(kEntryOverhead + 2 * path_of(name).size());
    require(level.seen.insert(name).second, ErrorCode::kInvalidFile,
            "{}: key '{}' stands twice: expected each key once", file_, path_of(name));
    level.key = name;
    return true;
  }
  bool end_object() override {
    leave();
    return true;
  }
  bool start_array(size_t) override {
    require(!levels_.empty(), ErrorCode::kInvalidFile, "{}: the text is an array: expected a JSON object",
            file_);
    if (levels_.back().array) levels_.back().plain = false;
    enter(true);
    return true;
  }
  bool end_array() override {
    Level level = std::move(levels_.back());
    levels_.pop_back();
    if (level.plain) store_array(path_of(""), level.items);
    if (!levels_.empty() && levels_.back().array) ++levels_.back().index;
    return true;
  }
  bool parse_error(size_t at, const std::string&, const nlohmann::detail::exception&) override {
    fail(ErrorCode::kInvalidFile, "{}: malformed JSON at byte {}", file_, at);
  }

 private:
  using Scalar = std::variant<std::monostate, bool, int64_t, uint64_t, double, std::string>;
  struct Level {
    bool array = false;
    bool plain = true;  // an array of scalars so far
    size_t index = 0;
    std::string key;
    std::set<std::string> seen;
    std::vector<Scalar> items;
  };

  void enter(bool array) {
    require(levels_.size() < kMaxDepth, ErrorCode::kInvalidFile, "{}: nested deeper than {}", file_,
            kMaxDepth);
    levels_.emplace_back();
    levels_.back().array = array;
  }
  void leave() {
    levels_.pop_back();
    if (!levels_.empty() && levels_.back().array) ++levels_.back().index;
  }

  /// Where the innermost value lies; `last` replaces the innermost key (in key()).
  std::string path_of(const std::string& last) const {
    std::string path = prefix_;
    for (size_t i = 0; i < levels_.size(); ++i) {
      const Level& level = levels_[i];
      const bool innermost = i + 1 == levels_.size();
      const std::string part = innermost && !last.empty() ? last
                               : level.array              ? std::to_string(level.index)
                                                          : level.key;
      if (i) path += '.';
      path += part;
    }
    return path;
  }

  template <typename T>
  bool scalar(T value) {
    require(!levels_.empty(), ErrorCode::kInvalidFile,
            "{}: the text is a single value: expected a JSON object", file_);
    Level& level = levels_.back();
    if (level.array) {
      spend(2 * sizeof(Scalar));
      level.items.emplace_back(value);
      ++level.index;
      return true;
    }
    if constexpr (!std::is_same_v<T, std::monostate>) out_.set(path_of(""), Value(value));
    return true;
  }

  template <typename T>
  bool all_of_kind(const std::vector<Scalar>& items) const {
    return std::all_of(items.begin(), items.end(),
                       [](const Scalar& s) { return std::holds_alternative<T>(s); });
  }

  void store_array(const std::string& path, const std::vector<Scalar>& items) {
    if (items.empty()) return;
    if (all_of_kind<std::string>(items)) {
      std::vector<std::string> list;
      list.reserve(items.size());
      for (const Scalar& s : items) list.push_back(std::get<std::string>(s));
      out_.set(path, list);
    } else if (all_of_kind<bool>(items)) {
      std::vector<bool> list;
      list.reserve(items.size());
      for (const Scalar& s : items) list.push_back(std::get<bool>(s));
      out_.set(path, list);
    } else {
      bool whole = true;
      std::vector<double> numbers;
      std::vector<int64_t> integers;
      for (const Scalar& s : items) {
        if (const auto* i = std::get_if<int64_t>(&s)) {
          numbers.push_back(static_cast<double>(*i));
          integers.push_back(*i);
        } else if (const auto* u = std::get_if<uint64_t>(&s)) {
          whole = whole && *u <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
          numbers.push_back(static_cast<double>(*u));
          integers.push_back(static_cast<int64_t>(*u));
        } else if (const auto* d = std::get_if<double>(&s)) {
          whole = false;
          numbers.push_back(*d);
        } else {
          return;  // nulls or mixed kinds: no setting that anything here reads
        }
      }
      if (whole)
        out_.set(path, integers);
      else
        out_.set(path, numbers);
    }
  }

  void spend(uint64_t bytes) {
    require(bytes <= budget_, ErrorCode::kLimitExceeded,
            "{}: the settings take far more memory than their text", file_);
    budget_ -= bytes;
  }

  Metadata& out_;
  std::string file_;
  std::string prefix_;
  uint64_t budget_;
  std::vector<Level> levels_;
};

/// Python writes infinities as the bare words Infinity and -Infinity, which JSON has not: here they become
/// the largest double. NaN becomes null.
std::string without_bare_words(std::string_view text) {
  std::string out;
  out.reserve(text.size() + 64);
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted && c == '\\' && i + 1 < text.size()) {
      out += c;
      out += text[++i];
      continue;
    }
    if (c == '"') quoted = !quoted;
    if (!quoted && text.compare(i, 8, "Infinity") == 0) {
      out += "1.7976931348623157e308";
      i += 7;
    } else if (!quoted && text.compare(i, 3, "NaN") == 0) {
      out += "null";
      i += 2;
    } else {
      out += c;
    }
  }
  return out;
}

}  // namespace

void add_json(Metadata& out, std::string_view text, const std::filesystem::path& file,
              std::string_view prefix) {
  Flattener flattener(out, file, prefix, text.size());
  if (text.find("Infinity") == std::string_view::npos && text.find("NaN") == std::string_view::npos) {
    nlohmann::json::sax_parse(text.begin(), text.end(), &flattener);
    return;
  }
  const std::string plain = without_bare_words(text);
  nlohmann::json::sax_parse(plain.begin(), plain.end(), &flattener);
}

}  // namespace millrace::loaders
