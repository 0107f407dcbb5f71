// The filters, tests, methods and global functions by name.
#pragma once

#include <span>
#include <string_view>

#include "text/template/runtime.h"

namespace millrace::text::jinja {

FilterFunction find_filter(std::string_view name);  ///< null when unknown
TestFunction find_test(std::string_view name);      ///< null when unknown
/// Whether `value` has this method in Python, beside those that change a container.
bool has_method(const Value& value, std::string_view name);
/// Whether this is a method that changes a container, which Jinja2's immutable sandbox refuses.
bool is_refused_method(const Value& value, std::string_view name);
/// "range", "namespace", "dict", ...
bool is_global_function(std::string_view name);
Value call_global(Runtime& runtime, const std::string& name, Arguments& arguments);

struct FilterEntry {
  std::string_view name;
  FilterFunction function;
};
/// The three tables of filters: on single values, on sequences, and those that lay text out.
std::span<const FilterEntry> value_filters();
std::span<const FilterEntry> sequence_filters();
std::span<const FilterEntry> layout_filters();

}  // namespace millrace::text::jinja
