#include "text/template/lexer.h"

#include <charconv>
#include <cstdlib>

#include "core/error.h"
#include "core/utf8.h"
#include "text/template/strings.h"

namespace millrace::text::jinja {

void syntax_error(int line, const std::string& message) {
  fail(ErrorCode::kInvalidFile, "chat template, line {}: {}", line, message);
}

void unsupported_error(int line, const std::string& message) {
  fail(ErrorCode::kUnsupported, "chat template, line {}: {}", line, message);
}

std::string Token::describe() const {
  switch (type) {
    case TokenType::kData:
      return "template text";
    case TokenType::kVariableBegin:
      return "'{{'";
    case TokenType::kVariableEnd:
      return "'}}'";
    case TokenType::kBlockBegin:
      return "'{%'";
    case TokenType::kBlockEnd:
      return "'%}'";
    case TokenType::kEnd:
      return "the end of the template";
    case TokenType::kString:
      return "the string " + python_quoted(text.substr(0, 60));
    default:
      return "'" + text.substr(0, 60) + "'";
  }
}

namespace {

std::string normalize_newlines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      out.push_back('\n');
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      out.push_back(source[i]);
    }
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(normalize_newlines(source)) {
    const size_t invalid = utf8::find_invalid(source_);
    if (invalid != std::string::npos) {
      advance_line_to(invalid);
      syntax_error(line_, "the text is not valid UTF-8");
    }
  }

  std::vector<Token> run() {
    while (pos_ < source_.size()) root();
    add(TokenType::kEnd, "");
    return std::move(tokens_);
  }

 private:
  std::string_view rest() const { return std::string_view(source_).substr(pos_); }
  bool at(std::string_view text) const { return rest().substr(0, text.size()) == text; }

  void advance_line_to(size_t position) {
    for (; line_pos_ < position; ++line_pos_)
      if (source_[line_pos_] == '\n') ++line_;
  }

  Token& add(TokenType type, std::string text) {
    advance_line_to(std::min(pos_, source_.size()));
    Token token;
    token.type = type;
    token.text = std::move(text);
    token.line = line_;
    tokens_.push_back(std::move(token));
    return tokens_.back();
  }

  [[noreturn]] void fail_here(const std::string& message) {
    advance_line_to(std::min(pos_, source_.size()));
    syntax_error(line_, message);
  }

  size_t skip_spaces(size_t p) const {
    while (p < source_.size()) {
      size_t after = p;
      if (!is_space(utf8::next(source_, after))) break;
      p = after;
    }
    return p;
  }

  /// Text before a tag, its end stripped as the tag asks ('-', or lstrip_blocks unless '+').
  void data(std::string_view text, char sign, bool is_variable) {
    if (sign == '-') {
      text = strip(text, kRight);
    } else if (sign != '+' && !is_variable) {
      const size_t newline = text.rfind('\n');
      const size_t line_start = newline == std::string_view::npos ? 0 : newline + 1;
      if ((line_start > 0 || line_starting_) && strip(text.substr(line_start), kBoth).empty())
        text = text.substr(0, line_start);
    }
    if (!text.empty()) add(TokenType::kData, std::string(text));
  }

  char sign_at(size_t p) const {
    return p < source_.size() && (source_[p] == '-' || source_[p] == '+') ? source_[p] : '\0';
  }

  void root() {
    size_t tag = pos_;
    while (true) {
      tag = source_.find('{', tag);
      if (tag == std::string::npos) {
        add(TokenType::kData, source_.substr(pos_));
        pos_ = source_.size();
        return;
      }
      const char second = tag + 1 < source_.size() ? source_[tag + 1] : '\0';
      if (second == '{' || second == '%' || second == '#') break;
      ++tag;
    }
    const char second = source_[tag + 1];
    const char sign = sign_at(tag + 2);
    const size_t inside = tag + 2 + (sign != '\0');
    data(std::string_view(source_).substr(pos_, tag - pos_), sign, second == '{');
    pos_ = tag;
    line_starting_ = false;
    if (second == '#') {
      comment(inside);
    } else if (second == '{') {
      add(TokenType::kVariableBegin, "{{");
      pos_ = inside;
      expression(TokenType::kVariableEnd);
    } else if (const size_t after = raw_begin(inside); after != 0) {
      raw(after);
    } else {
      add(TokenType::kBlockBegin, "{%");
      pos_ = inside;
      expression(TokenType::kBlockEnd);
    }
  }

  void end_tag(size_t position) {
    pos_ = position;
    line_starting_ = position > 0 && source_[position - 1] == '\n';
  }

  /// Position after a tag's end at `p` ("-%}", "+%}", "%}" with trim_blocks), or 0 when there is none.
  /// `close` is the two closing characters.
  size_t block_end(size_t p, std::string_view close) const {
    const std::string_view text(source_);
    if (text.substr(p, 1) == "+" && text.substr(p + 1, 2) == close) return p + 3;
    if (text.substr(p, 1) == "-" && text.substr(p + 1, 2) == close) return skip_spaces(p + 3);
    if (text.substr(p, 2) != close) return 0;
    p += 2;
    return p < text.size() && text[p] == '\n' ? p + 1 : p;
  }

  void comment(size_t inside) {
    for (size_t p = inside; (p = source_.find('#', p)) != std::string::npos; ++p) {
      if (source_.compare(p, 2, "#}") != 0) continue;
      // The sign before the close belongs to it, if the comment's text leaves it.
      const size_t start = p > inside && (source_[p - 1] == '-' || source_[p - 1] == '+') ? p - 1 : p;
      end_tag(block_end(start, "#}"));
      return;
    }
    fail_here("the comment that begins here never ends with '#}'");
  }

  /// Position after "raw %}" when this block is one, else 0.
  size_t raw_begin(size_t inside) const {
    size_t p = skip_spaces(inside);
    if (source_.compare(p, 3, "raw") != 0) return 0;
    p = skip_spaces(p + 3);
    if (source_.compare(p, 3, "-%}") == 0) return skip_spaces(p + 3);
    return source_.compare(p, 2, "%}") == 0 ? p + 2 : 0;
  }

  void raw(size_t start) {
    const size_t opened = pos_;
    line_starting_ = source_[start - 1] == '\n';
    for (size_t p = start; (p = source_.find("{%", p)) != std::string::npos; ++p) {
      const char sign = sign_at(p + 2);
      size_t q = skip_spaces(p + 2 + (sign != '\0'));
      if (source_.compare(q, 6, "endraw") != 0) continue;
      q = skip_spaces(q + 6);
      const size_t after = block_end(q, "%}");
      if (after == 0) continue;
      pos_ = start;
      data(std::string_view(source_).substr(start, p - start), sign, false);
      end_tag(after);
      return;
    }
    pos_ = opened;
    fail_here("the raw block that begins here never ends with '{% endraw %}'");
  }

  void expression(TokenType end) {
    std::string open;  // brackets waiting for their partners
    while (pos_ < source_.size()) {
      pos_ = skip_spaces(pos_);
      if (pos_ >= source_.size()) return;
      if (open.empty() && close(end)) return;
      const char c = source_[pos_];
      if (c >= '0' && c <= '9') {
        number();
      } else if (c == '"' || c == '\'') {
        string(c);
      } else if (!name()) {
        operation(open);
      }
    }
  }

  bool close(TokenType end) {
    size_t after = 0;
    if (end == TokenType::kBlockEnd) {
      after = block_end(pos_, "%}");
    } else if (at("-}}")) {
      after = skip_spaces(pos_ + 3);
    } else if (at("}}")) {
      after = pos_ + 2;
    }
    if (after == 0) return false;
    add(end, end == TokenType::kBlockEnd ? "%}" : "}}");
    end_tag(after);
    return true;
  }

  bool name() {
    size_t after = pos_;
    if (!is_identifier_start(utf8::next(source_, after))) return false;
    size_t end = after;
    while (after < source_.size() && is_identifier_part(utf8::next(source_, after))) end = after;
    add(TokenType::kName, source_.substr(pos_, end - pos_));
    pos_ = end;
    return true;
  }

  size_t digits(size_t p) const {
    // \d+(_\d+)*
    while (p < source_.size()) {
      const bool digit = source_[p] >= '0' && source_[p] <= '9';
      const bool joint =
          source_[p] == '_' && p + 1 < source_.size() && source_[p + 1] >= '0' && source_[p + 1] <= '9';
      if (!digit && !joint) break;
      ++p;
    }
    return p;
  }

  bool digit_at(size_t p) const { return p < source_.size() && source_[p] >= '0' && source_[p] <= '9'; }

  void number() {
    size_t end = digits(pos_);
    bool real = false;
    if (pos_ == 0 || source_[pos_ - 1] != '.') {
      size_t p = end;
      if (p < source_.size() && source_[p] == '.' && digit_at(p + 1)) {
        p = digits(p + 1);
        real = true;
      }
      if (p < source_.size() && (source_[p] == 'e' || source_[p] == 'E')) {
        size_t q = p + 1;
        if (q < source_.size() && (source_[q] == '+' || source_[q] == '-')) ++q;
        if (digit_at(q)) {
          p = digits(q);
          real = true;
        }
      }
      if (real) end = p;
    }
    if (real) {
      std::string text = source_.substr(pos_, end - pos_);
      text.erase(std::remove(text.begin(), text.end(), '_'), text.end());
      Token& token = add(TokenType::kFloat, text);
      token.real = std::strtod(text.c_str(), nullptr);
      pos_ = end;
      return;
    }
    integer(end);
  }

  void integer(size_t decimal_end) {
    int base = 10;
    size_t start = pos_, end = decimal_end;
    if (source_[pos_] == '0') {
      const char mark = pos_ + 1 < source_.size() ? static_cast<char>(source_[pos_ + 1] | 0x20) : '\0';
      const int wanted = mark == 'x' ? 16 : mark == 'o' ? 8 : mark == 'b' ? 2 : 10;
      const auto is_digit_of = [&](size_t p) {
        if (p >= source_.size()) return false;
        const char c = static_cast<char>(source_[p] | 0x20);
        const int value = digit_at(p) ? source_[p] - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : 99;
        return value < wanted;
      };
      size_t p = pos_ + 2;
      const size_t first = p;
      while (wanted != 10 &&
             (is_digit_of(p) || (p < source_.size() && source_[p] == '_' && is_digit_of(p + 1))))
        ++p;
      if (wanted != 10 && p > first) {
        base = wanted;
        start = first;
        end = p;
      } else {
        // Decimal zeros only: "007" is "00" and then "7".
        end = pos_;
        while (end < decimal_end && (source_[end] == '0' || source_[end] == '_')) ++end;
      }
    }
    std::string text = source_.substr(start, end - start);
    text.erase(std::remove(text.begin(), text.end(), '_'), text.end());
    int64_t value = 0;
    const auto [stop, ec] = std::from_chars(text.data(), text.data() + text.size(), value, base);
    (void)stop;
    if (ec != std::errc())
      fail_here(fmt::format("the integer {} does not fit in 64 bits", text.substr(0, 40)));
    add(TokenType::kInteger, source_.substr(pos_, end - pos_)).integer = value;
    pos_ = end;
  }

  void string(char quote) {
    size_t end = pos_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) fail_here("the string that begins here never ends");
    std::string value;
    for (size_t p = pos_ + 1; p < end;) {
      if (source_[p] != '\\') {
        value.push_back(source_[p++]);
      } else {
        p = escape(p + 1, end, value);
      }
    }
    add(TokenType::kString, std::move(value));
    pos_ = end + 1;
  }

  /// Resolves the escape whose character after the backslash is at `p`; returns the position behind it.
  size_t escape(size_t p, size_t end, std::string& value) {
    const char c = source_[p++];
    switch (c) {
      case '\n':
        return p;
      case '\\':
      case '\'':
      case '"':
        value.push_back(c);
        return p;
      case 'n':
        value.push_back('\n');
        return p;
      case 't':
        value.push_back('\t');
        return p;
      case 'r':
        value.push_back('\r');
        return p;
      case 'a':
        value.push_back('\a');
        return p;
      case 'b':
        value.push_back('\b');
        return p;
      case 'f':
        value.push_back('\f');
        return p;
      case 'v':
        value.push_back('\v');
        return p;
      case 'x':
        return hexadecimal(p, end, 2, value);
      case 'u':
        return hexadecimal(p, end, 4, value);
      case 'U':
        return hexadecimal(p, end, 8, value);
      case 'N':
        fail_here("named characters (\\N{...}) in strings are not supported");
      default:
        break;
    }
    if (c >= '0' && c <= '7') {
      uint32_t code = static_cast<uint32_t>(c - '0');
      for (int i = 0; i < 2 && p < end && source_[p] >= '0' && source_[p] <= '7'; ++i)
        code = code * 8 + static_cast<uint32_t>(source_[p++] - '0');
      utf8::append(value, code);
      return p;
    }
    value.push_back('\\');
    value.push_back(c);
    return p;
  }

  size_t hexadecimal(size_t p, size_t end, size_t count, std::string& value) {
    uint32_t code = 0;
    const size_t stop = p + count;
    if (stop > end) fail_here("a string has a hexadecimal escape that is cut short");
    const auto [last, ec] = std::from_chars(source_.data() + p, source_.data() + stop, code, 16);
    if (ec != std::errc() || last != source_.data() + stop)
      fail_here("a string has a hexadecimal escape that is cut short");
    if (code > 0x10ffff || (code >= 0xd800 && code < 0xe000))
      fail_here(fmt::format("a string has the escape {:#x}, which is no character", code));
    utf8::append(value, code);
    return stop;
  }

  void operation(std::string& open) {
    static constexpr std::string_view kDouble[] = {"//", "**", "==", "!=", ">=", "<="};
    static constexpr std::string_view kSingle = "+-/*%~[](){}><=.:|,;";
    for (const std::string_view op : kDouble)
      if (at(op)) {
        add(TokenType::kOperator, std::string(op));
        pos_ += 2;
        return;
      }
    const char c = source_[pos_];
    if (kSingle.find(c) == std::string_view::npos) {
      size_t after = pos_;
      utf8::next(source_, after);
      fail_here(fmt::format("unexpected character {}", python_quoted(rest().substr(0, after - pos_))));
    }
    if (c == '(' || c == '[' || c == '{') {
      open.push_back(c == '(' ? ')' : c == '[' ? ']' : '}');
    } else if (c == ')' || c == ']' || c == '}') {
      if (open.empty()) fail_here(fmt::format("unexpected '{}'", c));
      if (open.back() != c) fail_here(fmt::format("unexpected '{}', expected '{}'", c, open.back()));
      open.pop_back();
    }
    add(TokenType::kOperator, std::string(1, c));
    ++pos_;
  }

  std::string source_;
  size_t pos_ = 0;
  size_t line_pos_ = 0;
  int line_ = 1;
  bool line_starting_ = true;
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokenize(std::string_view source) { return Lexer(source).run(); }

}  // namespace millrace::text::jinja
