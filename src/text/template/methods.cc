// Methods of strings, lists, dicts and the small helper objects, and the global functions.
#include <cmath>

#include "core/utf8.h"
#include "text/template/builtins.h"
#include "text/template/strings.h"

namespace millrace::text::jinja {

namespace {

using StringMethod = Value (*)(Runtime&, const Value& self, const Arguments&);

struct StringMethodEntry {
  std::string_view name;
  StringMethod function;
};

Value like(Runtime& rt, const Value& self, std::string text) {
  return rt.string(std::move(text), self.as<StringObject>().markup);
}

template <std::string (*kFunction)(std::string_view)>
Value map_text(Runtime& rt, const Value& self, const Arguments& arguments) {
  Bound bound("method", arguments, {});
  rt.charge(1 + self.text().size() / 32);
  rt.check_room(3 * self.text().size());
  return like(rt, self, kFunction(self.text()));
}

template <Side kSide>
Value strip_method(Runtime& rt, const Value& self, const Arguments& arguments) {
  Bound bound("strip", arguments, {"chars"});
  rt.budget().charge_bytes(self.text().size());
  std::optional<std::string_view> characters;
  if (bound.given(0) != nullptr) characters = bound.text(0, "");
  return like(rt, self, std::string(strip(self.text(), kSide, characters)));
}

/// One predicate over all characters; false for an empty string.
template <bool (*kTest)(uint32_t)>
Value all_characters(Runtime& rt, const Value& self, const Arguments& arguments) {
  Bound bound("method", arguments, {});
  const std::string& text = self.text();
  rt.charge(1 + text.size() / 32);
  for (size_t at = 0; at < text.size();)
    if (!kTest(utf8::next(text, at))) return Value::boolean(false);
  return Value::boolean(!text.empty());
}

bool is_alnum(uint32_t c) { return is_alpha(c) || is_decimal(c) || is_digit(c) || is_numeric(c); }

/// True when the cased characters all satisfy `wanted` and there is one.
Value cased(Runtime& rt, const Value& self, bool (*wanted)(uint32_t), bool (*other)(uint32_t)) {
  const std::string& text = self.text();
  rt.charge(1 + text.size() / 32);
  bool any = false;
  for (size_t at = 0; at < text.size();) {
    const uint32_t c = utf8::next(text, at);
    if (other(c)) return Value::boolean(false);
    any = any || wanted(c);
  }
  return Value::boolean(any);
}

Value is_title(Runtime& rt, const Value& self) {
  const std::string& text = self.text();
  rt.charge(1 + text.size() / 32);
  bool any = false, inside = false;
  for (size_t at = 0; at < text.size();) {
    const uint32_t c = utf8::next(text, at);
    if (is_upper(c)) {
      if (inside) return Value::boolean(false);
      inside = any = true;
    } else if (is_lower(c)) {
      if (!inside) return Value::boolean(false);
      any = true;
    } else {
      inside = false;
    }
  }
  return Value::boolean(any);
}

/// The part of `self` that optional start and end arguments choose, and the code point it begins at.
struct Window {
  std::string_view text;
  int64_t start = 0;
  bool valid = true;  ///< false when start lies behind the end
};

Window window(Runtime& rt, const Value& self, const Bound& bound, size_t start_index) {
  const std::string& text = self.text();
  Window w{text, 0, true};
  if (bound.given(start_index) == nullptr && bound.given(start_index + 1) == nullptr) return w;
  rt.charge(1 + text.size() / 64);
  const int64_t size = rt.length(self);
  const auto clamp = [&](int64_t i) {
    return std::clamp<int64_t>(i < 0 ? (i < -size ? 0 : i + size) : i, 0, size);
  };
  const int64_t raw = bound.given(start_index) != nullptr ? bound.integer(start_index, 0) : 0;
  const int64_t start = clamp(raw);
  const int64_t end =
      bound.given(start_index + 1) != nullptr ? clamp(bound.integer(start_index + 1, 0)) : size;
  if (raw > size || end < start) return {"", start, false};
  const size_t first = byte_offset(text, start);
  w.text =
      std::string_view(text).substr(first, byte_offset(std::string_view(text).substr(first), end - start));
  w.start = start;
  return w;
}

enum class Edge { kStart, kEnd };

template <Edge kEdge>
Value affix_method(Runtime& rt, const Value& self, const Arguments& arguments) {
  const char* name = kEdge == Edge::kStart ? "startswith" : "endswith";
  Bound bound(name, arguments, {"prefix", "start", "end"}, 1);
  const Window w = window(rt, self, bound, 1);
  const auto matches = [&](const Value& affix) {
    if (!affix.is_string())
      run_error("{} first arg must be str or a tuple of str, not {}", name, type_name(affix));
    const std::string_view a = affix.text();
    if (!w.valid || a.size() > w.text.size()) return false;
    return (kEdge == Edge::kStart ? w.text.substr(0, a.size()) : w.text.substr(w.text.size() - a.size())) ==
           a;
  };
  if (!bound[0].is(Kind::kTuple)) return Value::boolean(matches(bound[0]));
  for (const Value& affix : bound[0].items()) {
    rt.charge(1);
    if (matches(affix)) return Value::boolean(true);
  }
  return Value::boolean(false);
}

enum class Missing { kMinusOne, kError };

template <Side kSide, Missing kMissing>
Value find_method(Runtime& rt, const Value& self, const Arguments& arguments) {
  Bound bound("find", arguments, {"sub", "start", "end"}, 1);
  const std::string_view needle = bound.text(0, "");
  const Window w = window(rt, self, bound, 1);
  rt.budget().charge_bytes(2 * w.text.size());
  const size_t at = !w.valid         ? std::string_view::npos
                    : kSide == kLeft ? find_text(w.text, needle)
                                     : rfind_text(w.text, needle);
  if (at == std::string_view::npos) {
    if (kMissing == Missing::kError) run_error("substring not found");
    return Value::integer(-1);
  }
  return Value::integer(w.start + code_points(w.text.substr(0, at)));
}

Value count_method(Runtime& rt, const Value& self, const Arguments& arguments) {
  Bound bound("count", arguments, {"sub", "start", "end"}, 1);
  const Window w = window(rt, self, bound, 1);
  rt.charge(1 + w.text.size() / 32);
  const int64_t count = w.valid ? count_text(w.text, bound.text(0, "")) : 0;
  rt.charge(static_cast<size_t>(count) / 2);  // each occurrence is a search of its own
  return Value::integer(count);
}

Value replace_method(Runtime& rt, const Value& self, const Arguments& arguments) {
  Bound bound("replace", arguments, {"old", "new", "count"}, 2);
  const std::string_view from = bound.text(0, ""), to = bound.text(1, "");
  const int64_t count = bound.integer(2, -1);
  rt.charge(1 + self.text().size() / 32);
  const auto times = static_cast<size_t>(count_replacements(self.text(), from, count));
  if (!to.empty() && times > rt.budget().max_live_bytes / to.size())
    rt.check_room(rt.budget().max_live_bytes);
  rt.check_room(self.text().size() + times * to.size());
  rt.charge(times / 2 + times * to.size() / 256);
  return like(rt, self, replace_text(self.text(), from, to, count));
}

enum class Direction { kForward, kBackward };

template <Direction kDirection>
Value split_method(Runtime& rt, const Value& self, const Arguments& arguments) {
  Bound bound("split", arguments, {"sep", "maxsplit"});
  std::optional<std::string_view> separator;
  if (bound.given(0) != nullptr) {
    separator = bound.text(0, "");
    if (separator->empty()) run_error("empty separator");
  }
  const int64_t limit = bound.integer(1, -1);
  rt.charge(1 + self.text().size() / 32);
  rt.check_room(self.text().size() * sizeof(std::string_view));
  const auto parts = kDirection == Direction::kForward ? split(self.text(), separator, limit)
                                                       : rsplit(self.text(), separator, limit);
  Values items;
  for (const std::string_view part : parts) items.push_back(like(rt, self, std::string(part)));
  return rt.list(std::move(items));
}

Value split_lines_method(Runtime& rt, const Value& self, const Arguments& arguments) {
  Bound bound("splitlines", arguments, {"keepends"});
  rt.charge(1 + self.text().size() / 32);
  Values items;
  for (const std::string_view line :
       split_lines(self.text(), bound.flag(0, false) ? LineEnds::kKeep : LineEnds::kDrop))
    items.push_back(like(rt, self, std::string(line)));
  return rt.list(std::move(items));
}

template <Side kSide>
Value partition_method(Runtime& rt, const Value& self, const Arguments& arguments) {
  Bound bound("partition", arguments, {"sep"}, 1);
  const std::string_view separator = bound.text(0, "");
  if (separator.empty()) run_error("empty separator");
  const std::string_view text = self.text();
  rt.budget().charge_bytes(2 * text.size());
  const size_t at = kSide == kLeft ? find_text(text, separator) : rfind_text(text, separator);
  const Value none = rt.string("");
  if (at == std::string_view::npos)
    return kSide == kLeft ? rt.tuple({self, none, none}) : rt.tuple({none, none, self});
  return rt.tuple({like(rt, self, std::string(text.substr(0, at))), like(rt, self, std::string(separator)),
                   like(rt, self, std::string(text.substr(at + separator.size())))});
}

Value join_method(Runtime& rt, const Value& self, const Arguments& arguments) {
  Bound bound("join", arguments, {"iterable"}, 1);
  if (bound[0].is_undefined()) return rt.string("");
  std::string out;
  Iterator it(rt, bound[0]);
  Value item;
  for (size_t i = 0; it.next(item); ++i) {
    if (!item.is_string()) run_error("sequence item {}: expected str instance, {} found", i, type_name(item));
    if (i > 0) rt.append_str(out, self);
    rt.append_str(out, item);
  }
  return like(rt, self, std::move(out));
}

enum class Justify { kLeft, kRight, kCenter };

template <Justify kJustify>
Value justify_method(Runtime& rt, const Value& self, const Arguments& arguments) {
  Bound bound("ljust", arguments, {"width", "fillchar"}, 1);
  const std::string_view fill = bound.text(1, " ");
  if (code_points(fill) != 1) run_error("The fill character must be exactly one character long");
  const int64_t width = bound.integer(0, 0);
  const int64_t missing = width - rt.length(self);
  if (missing <= 0) return self;
  rt.check_room(static_cast<size_t>(std::min<int64_t>(missing, int64_t{1} << 40)) * fill.size());
  rt.charge(static_cast<size_t>(missing) / 64);
  int64_t left = 0;
  if (kJustify == Justify::kRight) left = missing;
  // CPython puts the odd space to the left when the width is odd.
  if (kJustify == Justify::kCenter) left = missing / 2 + (missing & width & 1);
  std::string out;
  for (int64_t i = 0; i < left; ++i) out += fill;
  out += self.text();
  for (int64_t i = left; i < missing; ++i) out += fill;
  return like(rt, self, std::move(out));
}

Value zfill_method(Runtime& rt, const Value& self, const Arguments& arguments) {
  Bound bound("zfill", arguments, {"width"}, 1);
  const int64_t missing = bound.integer(0, 0) - rt.length(self);
  if (missing <= 0) return self;
  rt.check_room(static_cast<size_t>(std::min<int64_t>(missing, int64_t{1} << 40)));
  rt.charge(static_cast<size_t>(missing) / 64);
  std::string out = self.text();
  const size_t at = !out.empty() && (out[0] == '+' || out[0] == '-') ? 1 : 0;
  out.insert(at, static_cast<size_t>(missing), '0');
  return like(rt, self, std::move(out));
}

Value expand_tabs_method(Runtime& rt, const Value& self, const Arguments& arguments) {
  Bound bound("expandtabs", arguments, {"tabsize"});
  const int64_t size = std::min<int64_t>(bound.integer(0, 8), 1000);
  std::string out;
  int64_t column = 0;
  const std::string& text = self.text();
  rt.charge(1 + text.size() / 32);
  rt.check_room(static_cast<size_t>(std::max<int64_t>(count_text(text, "\t") * size, 0)) + text.size());
  for (size_t at = 0; at < text.size();) {
    const size_t before = at;
    const uint32_t c = utf8::next(text, at);
    if (c == '\t') {
      const int64_t step = size > 0 ? size - column % size : 0;
      out.append(static_cast<size_t>(step), ' ');
      column += step;
    } else {
      out += text.substr(before, at - before);
      column = c == '\n' || c == '\r' ? 0 : column + 1;
    }
  }
  return like(rt, self, std::move(out));
}

template <Edge kEdge>
Value remove_affix_method(Runtime& rt, const Value& self, const Arguments& arguments) {
  Bound bound("removeprefix", arguments, {"affix"}, 1);
  const std::string_view affix = bound.text(0, "");
  const std::string_view text = self.text();
  if (affix.empty() || affix.size() > text.size()) return self;
  if (kEdge == Edge::kStart)
    return text.substr(0, affix.size()) == affix ? like(rt, self, std::string(text.substr(affix.size())))
                                                 : self;
  const size_t keep = text.size() - affix.size();
  return text.substr(keep) == affix ? like(rt, self, std::string(text.substr(0, keep))) : self;
}

Value format_method(Runtime& rt, const Value& self, const Arguments& arguments) {
  return like(rt, self, brace_format(rt, self.text(), arguments));
}

Value format_map_method(Runtime& rt, const Value& self, const Arguments& arguments) {
  Bound bound("format_map", arguments, {"mapping"}, 1);
  if (!bound[0].is(Kind::kDict)) run_error("format_map() needs a dict, got '{}'", type_name(bound[0]));
  Arguments named;
  for (const auto& [key, value] : bound[0].dict().entries)
    if (key.is_string()) named.keyword.emplace_back(key.text(), value);
  return like(rt, self, brace_format(rt, self.text(), named));
}

Value is_identifier_method(Runtime& rt, const Value& self, const Arguments&) {
  const std::string& text = self.text();
  rt.charge(1 + text.size() / 32);
  size_t at = 0;
  if (text.empty() || !is_identifier_start(utf8::next(text, at))) return Value::boolean(false);
  while (at < text.size())
    if (!is_identifier_part(utf8::next(text, at))) return Value::boolean(false);
  return Value::boolean(true);
}

Value is_printable_method(Runtime& rt, const Value& self, const Arguments& arguments) {
  if (self.text().empty()) return Value::boolean(true);
  return all_characters<is_printable>(rt, self, arguments);
}

Value is_ascii_method(Runtime& rt, const Value& self, const Arguments&) {
  rt.budget().charge_bytes(self.text().size());
  return Value::boolean(std::all_of(self.text().begin(), self.text().end(),
                                    [](char c) { return static_cast<unsigned char>(c) < 0x80; }));
}

Value is_upper_method(Runtime& rt, const Value& self, const Arguments&) {
  return cased(rt, self, is_upper, is_lower);
}
Value is_lower_method(Runtime& rt, const Value& self, const Arguments&) {
  return cased(rt, self, is_lower, is_upper);
}
Value is_title_method(Runtime& rt, const Value& self, const Arguments&) { return is_title(rt, self); }

Value not_supported(Runtime&, const Value&, const Arguments&) {
  throw RunError(ErrorCode::kUnsupported,
                 "the string methods encode, translate and maketrans are not supported");
}

constexpr StringMethodEntry kStringMethods[] = {
    {"capitalize", map_text<to_capitalized>},
    {"casefold", map_text<to_casefold>},
    {"center", justify_method<Justify::kCenter>},
    {"count", count_method},
    {"encode", not_supported},
    {"endswith", affix_method<Edge::kEnd>},
    {"expandtabs", expand_tabs_method},
    {"find", find_method<kLeft, Missing::kMinusOne>},
    {"format", format_method},
    {"format_map", format_map_method},
    {"index", find_method<kLeft, Missing::kError>},
    {"isalnum", all_characters<is_alnum>},
    {"isalpha", all_characters<is_alpha>},
    {"isascii", is_ascii_method},
    {"isdecimal", all_characters<is_decimal>},
    {"isdigit", all_characters<is_digit>},
    {"isidentifier", is_identifier_method},
    {"islower", is_lower_method},
    {"isnumeric", all_characters<is_numeric>},
    {"isprintable", is_printable_method},
    {"isspace", all_characters<is_space>},
    {"istitle", is_title_method},
    {"isupper", is_upper_method},
    {"join", join_method},
    {"ljust", justify_method<Justify::kLeft>},
    {"lower", map_text<to_lower>},
    {"lstrip", strip_method<kLeft>},
    {"maketrans", not_supported},
    {"partition", partition_method<kLeft>},
    {"removeprefix", remove_affix_method<Edge::kStart>},
    {"removesuffix", remove_affix_method<Edge::kEnd>},
    {"replace", replace_method},
    {"rfind", find_method<kRight, Missing::kMinusOne>},
    {"rindex", find_method<kRight, Missing::kError>},
    {"rjust", justify_method<Justify::kRight>},
    {"rpartition", partition_method<kRight>},
    {"rsplit", split_method<Direction::kBackward>},
    {"rstrip", strip_method<kRight>},
    {"split", split_method<Direction::kForward>},
    {"splitlines", split_lines_method},
    {"startswith", affix_method<Edge::kStart>},
    {"strip", strip_method<kBoth>},
    {"swapcase", map_text<swap_case>},
    {"title", map_text<to_title>},
    {"translate", not_supported},
    {"upper", map_text<to_upper>},
    {"zfill", zfill_method},
};

const StringMethodEntry* find_string_method(std::string_view name) {
  for (const StringMethodEntry& entry : kStringMethods)
    if (entry.name == name) return &entry;
  return nullptr;
}

template <size_t N>
bool one_of(std::string_view name, const std::string_view (&names)[N]) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

constexpr std::string_view kListMethods[] = {"index", "count", "copy"};
constexpr std::string_view kTupleMethods[] = {"index", "count"};
constexpr std::string_view kDictMethods[] = {"get", "keys", "values", "items", "copy", "fromkeys"};
constexpr std::string_view kLoopMethods[] = {"cycle", "changed"};
constexpr std::string_view kCyclerMethods[] = {"next", "reset"};

Value sequence_method(Runtime& rt, const Value& self, const std::string& name, const Arguments& arguments) {
  if (name == "copy") return rt.list(rt.to_values(self));
  Bound bound(name.c_str(), arguments, {"value", "start", "stop"}, 1);
  const Values items = rt.to_values(self);
  const auto size = static_cast<int64_t>(items.size());
  const auto clamp = [&](int64_t i) {
    return std::clamp<int64_t>(i < 0 ? (i < -size ? 0 : i + size) : i, 0, size);
  };
  const int64_t start = clamp(bound.integer(1, 0)), stop = clamp(bound.integer(2, size));
  int64_t count = 0;
  for (int64_t i = start; i < stop; ++i) {
    rt.charge(1);
    if (!equal(items[static_cast<size_t>(i)], bound[0])) continue;
    if (name == "index") return Value::integer(i);
    ++count;
  }
  if (name == "index") run_error("{} is not in list", rt.repr(bound[0]).substr(0, 200));
  return Value::integer(count);
}

Value from_keys(Runtime& rt, const Arguments& arguments) {
  Bound bound("fromkeys", arguments, {"iterable", "value"}, 1);
  std::vector<std::pair<Value, Value>> entries;
  Iterator it(rt, bound[0]);
  for (Value key; it.next(key);) entries.emplace_back(key, bound.has(1) ? bound[1] : Value::none());
  return rt.dict(entries);
}

Value dict_method(Runtime& rt, const Value& self, const std::string& name, const Arguments& arguments) {
  if (name == "get") {
    Bound bound("get", arguments, {"key", "default"}, 1);
    const Value* found = self.dict().find(bound[0]);
    if (found != nullptr) return *found;
    return bound.has(1) ? bound[1] : Value::none();
  }
  if (name == "fromkeys") return from_keys(rt, arguments);
  Bound bound(name.c_str(), arguments, {});
  if (name == "copy") return rt.dict(self.dict().entries);
  auto view = rt.make<DictViewObject>();
  view->dict = self;
  view->depth = self.depth() + 1;
  view->view = name == "keys"     ? DictViewObject::View::kKeys
               : name == "values" ? DictViewObject::View::kValues
                                  : DictViewObject::View::kItems;
  return Value::object(Kind::kDictView, std::move(view));
}

Value cycler_method(const Value& self, const std::string& name, const Arguments& arguments) {
  Bound bound(name.c_str(), arguments, {});
  auto& cycler = self.as<CyclerObject>();
  if (name == "reset") {
    cycler.position = 0;
    return Value::none();
  }
  Value value = cycler.items[cycler.position];
  cycler.position = (cycler.position + 1) % cycler.items.size();
  return value;
}

Value global_range(Runtime& rt, const Arguments& arguments) {
  Bound bound("range", arguments, {"start", "stop", "step"}, 1);
  auto range = rt.make<RangeObject>();
  int64_t stop = bound.integer(0, 0);
  if (bound.has(1)) {
    range->start = stop;
    stop = bound.integer(1, 0);
  }
  range->stop = stop;
  range->step = bound.integer(2, 1);
  if (range->step == 0) run_error("range() arg 3 must not be zero");
  const __int128 span = static_cast<__int128>(stop) - range->start;
  const __int128 step = range->step;
  __int128 count = 0;
  if (step > 0 && span > 0) count = (span - 1) / step + 1;
  if (step < 0 && span < 0) count = (-span - 1) / -step + 1;
  if (count > kMaxRange) limit_error("range() of more than {} values", kMaxRange);
  range->count = static_cast<int64_t>(count);
  return Value::object(Kind::kRange, std::move(range));
}

Value global_dict(Runtime& rt, const Arguments& arguments) {
  std::vector<std::pair<Value, Value>> entries;
  if (arguments.positional.size() > 1)
    run_error("dict expected at most 1 argument, got {}", arguments.positional.size());
  for (const Value& from : arguments.positional) {
    if (from.is(Kind::kDict)) {
      entries = from.dict().entries;
    } else {
      Iterator it(rt, from);
      for (Value item; it.next(item);) {
        const Values pair = rt.to_values(item);
        if (pair.size() != 2)
          run_error("dictionary update sequence element has length {}; 2 is required", pair.size());
        entries.emplace_back(pair[0], pair[1]);
      }
    }
  }
  for (const auto& [key, value] : arguments.keyword) entries.emplace_back(rt.string(key), value);
  return rt.dict(entries);
}

Value global_cycler(Runtime& rt, const Arguments& arguments) {
  if (arguments.positional.empty() || !arguments.keyword.empty())
    run_error("cycler() needs at least one value");
  auto cycler = rt.make<CyclerObject>(arguments.positional.size() * sizeof(Value));
  cycler->depth = rt.list(arguments.positional).depth();
  cycler->items = arguments.positional;
  return Value::object(Kind::kCycler, std::move(cycler));
}

Value global_joiner(Runtime& rt, const Arguments& arguments) {
  Bound bound("joiner", arguments, {"sep"});
  auto joiner = rt.make<JoinerObject>();
  joiner->separator = bound.has(0) ? bound[0] : rt.string(", ");
  joiner->depth = joiner->separator.depth() + 1;
  return Value::object(Kind::kJoiner, std::move(joiner));
}

}  // namespace

bool has_method(const Value& value, std::string_view name) {
  switch (value.kind()) {
    case Kind::kString:
      return find_string_method(name) != nullptr;
    case Kind::kList:
      return one_of(name, kListMethods);
    case Kind::kTuple:
    case Kind::kRange:
      return one_of(name, kTupleMethods);
    case Kind::kDict:
      return one_of(name, kDictMethods);
    case Kind::kLoop:
      return one_of(name, kLoopMethods);
    case Kind::kCycler:
      return one_of(name, kCyclerMethods);
    case Kind::kFloat:
      return name == "is_integer";
    case Kind::kInt:
    case Kind::kBool:
      return name == "bit_length";
    case Kind::kFunction:
      return name == "fromkeys" && value.as<FunctionObject>().name == "dict";
    default:
      return false;
  }
}

bool is_refused_method(const Value& value, std::string_view name) {
  constexpr std::string_view kList[] = {"append", "clear", "pop",    "reverse",
                                        "insert", "sort",  "extend", "remove"};
  constexpr std::string_view kDict[] = {"clear", "pop", "popitem", "setdefault", "update"};
  return (value.is(Kind::kList) && one_of(name, kList)) || (value.is(Kind::kDict) && one_of(name, kDict));
}

Value Runtime::call_method(const Value& self, const std::string& name, Arguments& arguments) {
  charge(1);
  switch (self.kind()) {
    case Kind::kString:
      if (const auto* entry = find_string_method(name)) return entry->function(*this, self, arguments);
      break;
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kRange:
      return sequence_method(*this, self, name, arguments);
    case Kind::kDict:
      return dict_method(*this, self, name, arguments);
    case Kind::kLoop:
      return loop_method(self, name, arguments);
    case Kind::kCycler:
      return cycler_method(self, name, arguments);
    case Kind::kFloat:
      return Value::boolean(self.as_double() == std::floor(self.as_double()));
    case Kind::kInt:
    case Kind::kBool: {
      const int64_t n = self.as_int();
      const uint64_t magnitude = n < 0 ? 0 - static_cast<uint64_t>(n) : static_cast<uint64_t>(n);
      return Value::integer(static_cast<int64_t>(std::bit_width(magnitude)));
    }
    case Kind::kFunction:
      return from_keys(*this, arguments);
    default:
      break;
  }
  run_error("'{}' has no method '{}'", type_name(self), name);
}

bool is_global_function(std::string_view name) {
  constexpr std::string_view kNames[] = {"range",  "dict",   "namespace",       "cycler",
                                         "joiner", "lipsum", "raise_exception", "strftime_now"};
  return one_of(name, kNames);
}

Value call_global(Runtime& rt, const std::string& name, Arguments& arguments) {
  rt.charge(1);
  if (name == "range") return global_range(rt, arguments);
  if (name == "dict") return global_dict(rt, arguments);
  if (name == "namespace") return rt.make_namespace(arguments);
  if (name == "cycler") return global_cycler(rt, arguments);
  if (name == "joiner") return global_joiner(rt, arguments);
  if (name == "raise_exception") {
    Bound bound("raise_exception", arguments, {"message"}, 1);
    run_error("{}", rt.str(bound[0]));
  }
  if (name == "strftime_now") {
    Bound bound("strftime_now", arguments, {"format"}, 1);
    return rt.string(format_time(rt.now(), std::string(bound.text(0, ""))));
  }
  throw RunError(ErrorCode::kUnsupported, fmt::format("{}() cannot be run here", name));
}

}  // namespace millrace::text::jinja
