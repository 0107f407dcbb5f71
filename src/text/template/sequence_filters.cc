// Filters on sequences and mappings.
#include "core/utf8.h"
#include "text/template/builtins.h"
#include "text/template/strings.h"

namespace millrace::text::jinja {

namespace {

Value ignore_case(Runtime& rt, const Value& value) {
  if (!value.is_string()) return value;
  rt.charge(1 + value.text().size() / 32);
  return rt.string(to_lower(value.text()));
}

Value key_of(Runtime& rt, const Value& item, const Value* attribute, bool case_sensitive,
             const Value* fallback = nullptr) {
  Value key = attribute != nullptr ? rt.path(item, *attribute, fallback) : item;
  return case_sensitive ? key : ignore_case(rt, key);
}

Value filter_length(Runtime& rt, const Value& value, Arguments& arguments) {
  Bound bound("length", arguments, {});
  return Value::integer(rt.length(value));
}

Value filter_first(Runtime& rt, const Value& value, Arguments& arguments) {
  Bound bound("first", arguments, {});
  Iterator it(rt, value);
  Value item;
  if (it.next(item)) return item;
  return rt.undefined("No first item, sequence was empty.");
}

Value filter_last(Runtime& rt, const Value& value, Arguments& arguments) {
  Bound bound("last", arguments, {});
  if (value.is(Kind::kGenerator)) run_error("'{}' object is not reversible", type_name(value));
  if (value.is_string() && !value.text().empty()) return rt.subscript(value, Value::integer(-1));
  const Values items = rt.to_values(value);
  if (!items.empty()) return items.back();
  return rt.undefined("No last item, sequence was empty.");
}

Value filter_list(Runtime& rt, const Value& value, Arguments& arguments) {
  Bound bound("list", arguments, {});
  return rt.list(rt.to_values(value));
}

Value filter_items(Runtime& rt, const Value& value, Arguments& arguments) {
  Bound bound("items", arguments, {});
  if (value.is_undefined()) return rt.generator({});
  if (!value.is(Kind::kDict)) run_error("Can only get item pairs from a mapping.");
  Values items;
  for (const auto& [key, item] : value.dict().entries) items.push_back(rt.tuple({key, item}));
  return rt.generator(std::move(items));
}

Value filter_join(Runtime& rt, const Value& value, Arguments& arguments) {
  Bound bound("join", arguments, {"d", "attribute"});
  const std::string separator = bound.has(0) ? rt.str(bound[0]) : "";
  std::string out;
  Iterator it(rt, value);
  Value item;
  for (bool first = true; it.next(item); first = false) {
    if (!first) {
      rt.reserve(out, separator.size());
      out += separator;
    }
    rt.append_str(out, bound.given(1) != nullptr ? rt.path(item, bound[1]) : item);
  }
  return rt.string(std::move(out));
}

Value filter_reverse(Runtime& rt, const Value& value, Arguments& arguments) {
  Bound bound("reverse", arguments, {});
  if (value.is_string()) return rt.slice(value, Value::none(), Value::none(), Value::integer(-1));
  if (!rt.iterable(value)) run_error("argument must be iterable");
  Values items = rt.to_values(value);
  std::reverse(items.begin(), items.end());
  // Python gives an iterator for what reversed() takes, and a list for the rest.
  return value.is(Kind::kGenerator) || value.is_undefined() ? rt.list(std::move(items))
                                                            : rt.generator(std::move(items));
}

/// Positions of `keys` in their order. The sort is stable in both directions.
std::vector<size_t> sorted_order(Runtime& rt, const Values& keys, bool reverse) {
  std::vector<size_t> order(keys.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  rt.check_room(keys.size() * 2 * sizeof(size_t));
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    rt.charge(1);
    return reverse ? less(keys[b], keys[a]) : less(keys[a], keys[b]);
  });
  return order;
}

Value filter_sort(Runtime& rt, const Value& value, Arguments& arguments) {
  Bound bound("sort", arguments, {"reverse", "case_sensitive", "attribute"});
  const bool case_sensitive = bound.flag(1, false);
  const Values items = rt.to_values(value);
  std::vector<Value> attributes;
  if (const Value* attribute = bound.given(2)) {
    if (attribute->is_string()) {
      for (const std::string_view part : split(attribute->text(), ",", -1))
        attributes.push_back(rt.string(std::string(part)));
    } else {
      attributes.push_back(*attribute);
    }
  }
  Values keys;
  for (const Value& item : items) {
    if (attributes.empty()) {
      keys.push_back(key_of(rt, item, nullptr, case_sensitive));
      continue;
    }
    Values parts;
    for (const Value& attribute : attributes) parts.push_back(key_of(rt, item, &attribute, case_sensitive));
    keys.push_back(rt.list(std::move(parts)));
  }
  Values result;
  for (const size_t i : sorted_order(rt, keys, bound.flag(0, false))) result.push_back(items[i]);
  return rt.list(std::move(result));
}

Value filter_dictsort(Runtime& rt, const Value& value, Arguments& arguments) {
  Bound bound("dictsort", arguments, {"case_sensitive", "by", "reverse"});
  const std::string by(bound.text(1, "key"));
  if (by != "key" && by != "value") run_error("You can only sort by either \"key\" or \"value\"");
  if (value.is_undefined()) undefined_error(value);
  if (!value.is(Kind::kDict)) run_error("dictsort needs a mapping, got '{}'", type_name(value));
  Values keys, items;
  for (const auto& [key, item] : value.dict().entries) {
    keys.push_back(key_of(rt, by == "key" ? key : item, nullptr, bound.flag(0, false)));
    items.push_back(rt.tuple({key, item}));
  }
  Values result;
  for (const size_t i : sorted_order(rt, keys, bound.flag(2, false))) result.push_back(items[i]);
  return rt.list(std::move(result));
}

Value filter_unique(Runtime& rt, const Value& value, Arguments& arguments) {
  Bound bound("unique", arguments, {"case_sensitive", "attribute"});
  const Values items = rt.to_values(value);
  DictObject seen;
  Values result;
  for (const Value& item : items) {
    const Value key = key_of(rt, item, bound.given(1), bound.flag(0, false));
    if (seen.find(key) != nullptr) continue;
    seen.set(key, Value::none());
    result.push_back(item);
  }
  return rt.generator(std::move(result));
}

enum class Extreme { kMin, kMax };

template <Extreme kExtreme>
Value filter_extreme(Runtime& rt, const Value& value, Arguments& arguments) {
  Bound bound(kExtreme == Extreme::kMin ? "min" : "max", arguments, {"case_sensitive", "attribute"});
  Iterator it(rt, value);
  Value best, best_key, item;
  if (!it.next(best)) return rt.undefined("No aggregated item, sequence was empty.");
  best_key = key_of(rt, best, bound.given(1), bound.flag(0, false));
  while (it.next(item)) {
    const Value key = key_of(rt, item, bound.given(1), bound.flag(0, false));
    if (kExtreme == Extreme::kMin ? less(key, best_key) : less(best_key, key, ">")) {
      best = item;
      best_key = key;
    }
  }
  return best;
}

Value filter_sum(Runtime& rt, const Value& value, Arguments& arguments) {
  Bound bound("sum", arguments, {"attribute", "start"});
  Value total = bound.has(1) ? bound[1] : Value::integer(0);
  if (total.is_string()) run_error("sum() can't sum strings [use ''.join(seq) instead]");
  Iterator it(rt, value);
  for (Value item; it.next(item);)
    total = rt.binary(Operator::kAdd, total, bound.given(0) != nullptr ? rt.path(item, bound[0]) : item);
  return total;
}

Value filter_batch(Runtime& rt, const Value& value, Arguments& arguments) {
  Bound bound("batch", arguments, {"linecount", "fill_with"}, 1);
  const int64_t count = bound.integer(0, 1);
  Values batches, line;
  Iterator it(rt, value);
  for (Value item; it.next(item);) {
    if (static_cast<int64_t>(line.size()) == count) batches.push_back(rt.list(std::exchange(line, {})));
    line.push_back(item);
  }
  if (!line.empty()) {
    while (bound.given(1) != nullptr && static_cast<int64_t>(line.size()) < count) {
      rt.charge(1);
      rt.check_room(line.size() * sizeof(Value));
      line.push_back(bound[1]);
    }
    batches.push_back(rt.list(std::move(line)));
  }
  return rt.generator(std::move(batches));
}

Value filter_slice(Runtime& rt, const Value& value, Arguments& arguments) {
  Bound bound("slice", arguments, {"slices", "fill_with"}, 1);
  const Values items = rt.to_values(value);
  const int64_t slices = bound.integer(0, 1);
  if (slices == 0) run_error("integer division or modulo by zero");
  Values result;
  if (slices < 0) return rt.generator({});
  const auto total = static_cast<int64_t>(items.size());
  const int64_t per_slice = total / slices, extra = total % slices;
  int64_t at = 0;
  for (int64_t i = 0; i < slices; ++i) {
    rt.charge(1);
    const int64_t end = at + per_slice + (i < extra ? 1 : 0);
    Values part(items.begin() + at, items.begin() + end);
    if (bound.given(1) != nullptr && i >= extra) part.push_back(bound[1]);
    result.push_back(rt.list(std::move(part)));
    at = end;
  }
  return rt.generator(std::move(result));
}

Value filter_groupby(Runtime& rt, const Value& value, Arguments& arguments) {
  Bound bound("groupby", arguments, {"attribute", "default", "case_sensitive"}, 1);
  const bool case_sensitive = bound.flag(2, false);
  const Values items = rt.to_values(value);
  Values keys;
  for (const Value& item : items) keys.push_back(key_of(rt, item, &bound[0], case_sensitive, bound.given(1)));
  Values groups, members;
  const Value* current = nullptr;
  const auto flush = [&] {
    if (members.empty()) return;
    // The key as the first member has it, not its lower-case form.
    Value grouper = key_of(rt, members[0], &bound[0], true, bound.given(1));
    groups.push_back(rt.group(std::move(grouper), rt.list(std::exchange(members, {}))));
  };
  for (const size_t i : sorted_order(rt, keys, false)) {
    if (current != nullptr && !equal(*current, keys[i])) flush();
    current = &keys[i];
    members.push_back(items[i]);
  }
  flush();
  return rt.list(std::move(groups));
}

Value filter_map(Runtime& rt, const Value& value, Arguments& arguments) {
  if (!truth(value)) return rt.generator({});
  Values result;
  Iterator it(rt, value);
  Value item;
  if (arguments.positional.empty()) {
    Bound bound("map", arguments, {"attribute", "default"});
    if (!bound.has(0)) run_error("map requires a filter argument");
    while (it.next(item)) result.push_back(rt.path(item, bound[0], bound.given(1)));
    return rt.generator(std::move(result));
  }
  const Value name = arguments.positional[0];
  if (!name.is_string()) run_error("map needs the name of a filter, got '{}'", type_name(name));
  Arguments rest{{arguments.positional.begin() + 1, arguments.positional.end()}, arguments.keyword};
  while (it.next(item)) result.push_back(rt.call_filter(name.text(), item, rest));
  return rt.generator(std::move(result));
}

enum class Keep { kMatching, kOthers };
enum class Look { kItem, kAttribute };

template <Keep kKeep, Look kLook>
Value filter_select(Runtime& rt, const Value& value, Arguments& arguments) {
  if (!truth(value)) return rt.generator({});
  const size_t offset = kLook == Look::kAttribute ? 1 : 0;
  const Values& given = arguments.positional;
  if (given.size() < offset) run_error("Missing parameter for attribute name");
  std::string test;
  Arguments rest;
  if (given.size() > offset) {
    if (!given[offset].is_string()) run_error("no test named {}", rt.repr(given[offset]).substr(0, 100));
    test = given[offset].text();
    rest = {{given.begin() + static_cast<int64_t>(offset) + 1, given.end()}, arguments.keyword};
  }
  Values result;
  Iterator it(rt, value);
  for (Value item; it.next(item);) {
    const Value looked = kLook == Look::kAttribute ? rt.path(item, given[0]) : item;
    const bool match = given.size() > offset ? rt.call_test(test, looked, rest) : truth(looked);
    if (match == (kKeep == Keep::kMatching)) result.push_back(item);
  }
  return rt.generator(std::move(result));
}

constexpr FilterEntry kSequenceFilters[] = {
    {"batch", filter_batch},
    {"count", filter_length},
    {"dictsort", filter_dictsort},
    {"first", filter_first},
    {"groupby", filter_groupby},
    {"items", filter_items},
    {"join", filter_join},
    {"last", filter_last},
    {"length", filter_length},
    {"list", filter_list},
    {"map", filter_map},
    {"max", filter_extreme<Extreme::kMax>},
    {"min", filter_extreme<Extreme::kMin>},
    {"reject", filter_select<Keep::kOthers, Look::kItem>},
    {"rejectattr", filter_select<Keep::kOthers, Look::kAttribute>},
    {"reverse", filter_reverse},
    {"select", filter_select<Keep::kMatching, Look::kItem>},
    {"selectattr", filter_select<Keep::kMatching, Look::kAttribute>},
    {"slice", filter_slice},
    {"sort", filter_sort},
    {"sum", filter_sum},
    {"unique", filter_unique},
};

}  // namespace

std::span<const FilterEntry> sequence_filters() { return kSequenceFilters; }

}  // namespace millrace::text::jinja
