#include "text/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "core/error.h"

namespace millrace::text {
namespace {

/// Steps that one search may take. Published patterns need a small multiple of the text's length.
constexpr uint32_t kMatchLimit = 200'000'000;
constexpr size_t kJitStackStart = size_t{64} << 10;
constexpr size_t kJitStackMost = size_t{64} << 20;

struct MatchState {
  pcre2_match_data* data = pcre2_match_data_create(1, nullptr);
  pcre2_jit_stack* stack = pcre2_jit_stack_create(kJitStackStart, kJitStackMost, nullptr);
  pcre2_match_context* context = pcre2_match_context_create(nullptr);

  MatchState() {
    if (data == nullptr || stack == nullptr || context == nullptr) return;
    pcre2_jit_stack_assign(context, nullptr, stack);
    pcre2_set_match_limit(context, kMatchLimit);
  }
  ~MatchState() {
    pcre2_match_context_free(context);
    pcre2_jit_stack_free(stack);
    pcre2_match_data_free(data);
  }
};

/// Long names of general categories, which PCRE2 knows by their short ones only.
constexpr std::pair<std::string_view, std::string_view> kCategoryNames[] = {
    {"Letter", "L"},
    {"Lowercase_Letter", "Ll"},
    {"Uppercase_Letter", "Lu"},
    {"Titlecase_Letter", "Lt"},
    {"Modifier_Letter", "Lm"},
    {"Other_Letter", "Lo"},
    {"Mark", "M"},
    {"Nonspacing_Mark", "Mn"},
    {"Number", "N"},
    {"Decimal_Number", "Nd"},
    {"Punctuation", "P"},
    {"Punct", "P"},
    {"Symbol", "S"},
    {"Math_Symbol", "Sm"},
    {"Currency_Symbol", "Sc"},
    {"Separator", "Z"},
    {"Space_Separator", "Zs"},
    {"Other", "C"},
    {"Control", "Cc"},
    {"Space", "White_Space"},
};

/// The name inside \p{...}: PCRE2 takes a script's name for its extensions, published tokenizers for the
/// script.
std::string property_name(std::string_view name, bool scripts) {
  std::string out;
  if (!name.empty() && name[0] == '^') {
    out += '^';
    name.remove_prefix(1);
  }
  for (const auto& [full, brief] : kCategoryNames)
    if (full == name) return out.append(brief);
  const bool plain = name.size() > 2 && name.find_first_of(":=_&") == std::string_view::npos;
  if (scripts && plain && name != "Any") out += "sc:";
  return out.append(name);
}

#define WORD "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}"

/// The pattern in PCRE2's words. `\s`, `\w` and `\b` are spelt out, because PCRE2 calls more than White_Space
/// a space (U+180E) and marks no part of words, and so would cut where the published tokenizers do not.
std::string translate(std::string_view pattern, bool scripts) {
  std::string out;
  out.reserve(pattern.size() * 2);
  bool in_class = false;
  for (size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] != '\\' || i + 1 == pattern.size()) {
      if (pattern[i] == '[')
        in_class = true;
      else if (pattern[i] == ']')
        in_class = false;
      out += pattern[i];
      continue;
    }
    const char next = pattern[++i];
    const size_t close = pattern.find('}', i);
    if (next == 's')
      out += "\\p{White_Space}";
    else if (next == 'S')
      out += "\\P{White_Space}";
    else if (next == 'w')
      out += in_class ? WORD : "[" WORD "]";
    else if (next == 'W' && !in_class)
      out += "[^" WORD "]";
    else if (next == 'b' && !in_class)
      out += "(?:(?<=[" WORD "])(?![" WORD "])|(?<![" WORD "])(?=[" WORD "]))";
    else if ((next == 'p' || next == 'P') && i + 1 < pattern.size() && pattern[i + 1] == '{' &&
             close != std::string_view::npos) {
      ((out += '\\') += next) += '{';
      out += property_name(pattern.substr(i + 2, close - i - 2), scripts);
      out += '}';
      i = close;
    } else {
      (out += '\\') += next;
    }
  }
  return out;
}

pcre2_code* compile(const std::string& source, int& error, PCRE2_SIZE& offset) {
  return pcre2_compile(reinterpret_cast<PCRE2_SPTR>(source.data()), source.size(),
                       PCRE2_UTF | PCRE2_UCP | PCRE2_DOLLAR_ENDONLY | PCRE2_NEVER_BACKSLASH_C, &error,
                       &offset, nullptr);
}

}  // namespace

struct Regex::Code {
  pcre2_code* code = nullptr;
  std::string pattern;
  ~Code() { pcre2_code_free(code); }
};

Regex::Regex(std::string_view pattern, const std::string& origin) : code_(std::make_unique<Code>()) {
  code_->pattern = std::string(pattern);
  int error = 0;
  PCRE2_SIZE offset = 0;
  // A plain property name is first taken for a script, then as PCRE2 understands it.
  code_->code = compile(translate(pattern, true), error, offset);
  if (code_->code == nullptr) code_->code = compile(translate(pattern, false), error, offset);
  if (code_->code == nullptr) {
    PCRE2_UCHAR message[160] = {};
    pcre2_get_error_message(error, message, sizeof(message));
    fail(ErrorCode::kUnsupported, "{}: the regular expression \"{}\" cannot be used: {} at offset {}", origin,
         pattern, reinterpret_cast<const char*>(message), offset);
  }
  // Without a JIT (a platform that PCRE2 has none for) the interpreter does the same, slower.
  pcre2_jit_compile(code_->code, PCRE2_JIT_COMPLETE);
}

Regex::~Regex() = default;
Regex::Regex(Regex&&) noexcept = default;
Regex& Regex::operator=(Regex&&) noexcept = default;

bool Regex::find(std::string_view text, size_t from, Match& match) const {
  thread_local const MatchState state;
  require(state.data != nullptr && state.stack != nullptr && state.context != nullptr,
          ErrorCode::kOutOfMemory, "no memory for a regular expression's match");
  const int count = pcre2_match(code_->code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), from,
                                PCRE2_NO_UTF_CHECK, state.data, state.context);
  if (count == PCRE2_ERROR_NOMATCH) return false;
  require(count >= 0, ErrorCode::kLimitExceeded,
          "the pre-tokeniser's regular expression \"{}\" needs too many steps on a text of {} bytes",
          code_->pattern, text.size());
  const PCRE2_SIZE* offsets = pcre2_get_ovector_pointer(state.data);
  match = {offsets[0], offsets[1]};
  return true;
}

std::string quote_pattern(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const bool plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                       c == '_' || static_cast<signed char>(c) < 0;
    if (!plain) out += '\\';
    out += c;
  }
  return out;
}

}  // namespace millrace::text
