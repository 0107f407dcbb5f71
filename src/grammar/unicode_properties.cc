#include "grammar/unicode_properties.h"

#include <span>

namespace millrace::grammar {
namespace {

struct Property {
  std::string_view name, long_name;
  bool script;
  std::span<const uint32_t> runs;  ///< how many characters outside, how many inside, and so on
};

#include "grammar/unicode_tables.inc"

constexpr std::pair<std::string_view, std::string_view> kGroups[] = {
    {"L", "Letter"}, {"M", "Mark"},      {"N", "Number"}, {"P", "Punctuation"},
    {"S", "Symbol"}, {"Z", "Separator"}, {"C", "Other"}};
constexpr std::pair<std::string_view, std::string_view> kShortNames[] = {
    {"Alpha", "Alphabetic"},
    {"Upper", "Uppercase"},
    {"Lower", "Lowercase"},
    {"space", "White_Space"},
    {"IDS", "ID_Start"},
    {"IDC", "ID_Continue"},
    {"Latn", "Latin"},
    {"Grek", "Greek"},
    {"Cyrl", "Cyrillic"},
    {"Hani", "Han"},
    {"Hira", "Hiragana"},
    {"Kana", "Katakana"},
    {"Arab", "Arabic"},
    {"Hebr", "Hebrew"},
    {"Hang", "Hangul"},
    {"digit", "Nd"},
    {"punct", "P"},
    {"Combining_Mark", "M"},
    {"cntrl", "Cc"},
    {"EPres", "Emoji_Presentation"},
    {"ExtPict", "Extended_Pictographic"}};

void add(CodepointSet& set, const Property& p) {
  uint32_t at = 0;
  for (size_t i = 0; i + 1 < p.runs.size(); i += 2) {
    at += p.runs[i];
    set.add(at, at + p.runs[i + 1] - 1);
    at += p.runs[i + 1];
  }
}

}  // namespace

std::optional<CodepointSet> unicode_property(std::string_view name) {
  bool category = true, script = false, binary = true;
  if (const size_t equals = name.find('='); equals != name.npos) {
    const std::string_view what = name.substr(0, equals);
    category = what == "gc" || what == "General_Category";
    script = what == "sc" || what == "Script";
    binary = false;
    if (!category && !script) return std::nullopt;
    name.remove_prefix(equals + 1);
  }
  for (const auto& [brief, full] : kShortNames)
    if (name == brief) name = full;
  if (binary && name == "Any") return CodepointSet::all();
  if (binary && name == "ASCII") return CodepointSet(0, 0x7f);
  for (const auto& [letter, full] : kGroups) {
    if (!category || (name != letter && name != full)) continue;
    CodepointSet set;
    if (letter == "C") {
      // Unassigned characters have no table: they are what nothing else has.
      for (const Property& p : kProperties)
        if (!p.script && p.name.size() == 2 && p.name[0] != 'C') add(set, p);
      return set.complement();
    }
    for (const Property& p : kProperties)
      if (!p.script && p.name.size() == 2 && p.name[0] == letter[0]) add(set, p);
    return set;
  }
  for (const Property& p : kProperties) {
    const bool is_category = !p.script && p.name.size() == 2;
    if (is_category ? !category : p.script ? !script : !binary) continue;
    if (p.name != name && (p.long_name.empty() || p.long_name != name)) continue;
    CodepointSet set;
    add(set, p);
    return set;
  }
  return std::nullopt;
}

}  // namespace millrace::grammar
