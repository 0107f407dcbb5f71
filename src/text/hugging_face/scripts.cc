#include "text/hugging_face/scripts.h"

#include <array>
#include <vector>

#include "core/utf8.h"
#include "text/regex.h"

namespace millrace::text {
namespace {

/// Scripts of Unicode 14; the regular expression engine holds their tables. Han comes first, its kin are
/// folded in.
constexpr const char* kScripts[] = {"Han",
                                    "Common",
                                    "Inherited",
                                    "Latin",
                                    "Greek",
                                    "Cyrillic",
                                    "Armenian",
                                    "Hebrew",
                                    "Arabic",
                                    "Syriac",
                                    "Thaana",
                                    "Devanagari",
                                    "Bengali",
                                    "Gurmukhi",
                                    "Gujarati",
                                    "Oriya",
                                    "Tamil",
                                    "Telugu",
                                    "Kannada",
                                    "Malayalam",
                                    "Sinhala",
                                    "Thai",
                                    "Lao",
                                    "Tibetan",
                                    "Myanmar",
                                    "Georgian",
                                    "Hangul",
                                    "Ethiopic",
                                    "Cherokee",
                                    "Canadian_Aboriginal",
                                    "Ogham",
                                    "Runic",
                                    "Khmer",
                                    "Mongolian",
                                    "Bopomofo",
                                    "Yi",
                                    "Old_Italic",
                                    "Gothic",
                                    "Deseret",
                                    "Tagalog",
                                    "Hanunoo",
                                    "Buhid",
                                    "Tagbanwa",
                                    "Limbu",
                                    "Tai_Le",
                                    "Linear_B",
                                    "Ugaritic",
                                    "Shavian",
                                    "Osmanya",
                                    "Cypriot",
                                    "Braille",
                                    "Buginese",
                                    "Coptic",
                                    "New_Tai_Lue",
                                    "Glagolitic",
                                    "Tifinagh",
                                    "Syloti_Nagri",
                                    "Old_Persian",
                                    "Kharoshthi",
                                    "Balinese",
                                    "Cuneiform",
                                    "Phoenician",
                                    "Phags_Pa",
                                    "Nko",
                                    "Sundanese",
                                    "Lepcha",
                                    "Ol_Chiki",
                                    "Vai",
                                    "Saurashtra",
                                    "Kayah_Li",
                                    "Rejang",
                                    "Lycian",
                                    "Carian",
                                    "Lydian",
                                    "Cham",
                                    "Tai_Tham",
                                    "Tai_Viet",
                                    "Avestan",
                                    "Egyptian_Hieroglyphs",
                                    "Samaritan",
                                    "Lisu",
                                    "Bamum",
                                    "Javanese",
                                    "Meetei_Mayek",
                                    "Imperial_Aramaic",
                                    "Old_South_Arabian",
                                    "Inscriptional_Parthian",
                                    "Inscriptional_Pahlavi",
                                    "Old_Turkic",
                                    "Kaithi",
                                    "Batak",
                                    "Brahmi",
                                    "Mandaic",
                                    "Chakma",
                                    "Meroitic_Cursive",
                                    "Meroitic_Hieroglyphs",
                                    "Miao",
                                    "Sharada",
                                    "Sora_Sompeng",
                                    "Takri",
                                    "Caucasian_Albanian",
                                    "Bassa_Vah",
                                    "Duployan",
                                    "Elbasan",
                                    "Grantha",
                                    "Pahawh_Hmong",
                                    "Khojki",
                                    "Linear_A",
                                    "Mahajani",
                                    "Manichaean",
                                    "Mende_Kikakui",
                                    "Modi",
                                    "Mro",
                                    "Old_North_Arabian",
                                    "Nabataean",
                                    "Palmyrene",
                                    "Pau_Cin_Hau",
                                    "Old_Permic",
                                    "Psalter_Pahlavi",
                                    "Siddham",
                                    "Khudawadi",
                                    "Tirhuta",
                                    "Warang_Citi",
                                    "Ahom",
                                    "Anatolian_Hieroglyphs",
                                    "Hatran",
                                    "Multani",
                                    "Old_Hungarian",
                                    "SignWriting",
                                    "Adlam",
                                    "Bhaiksuki",
                                    "Marchen",
                                    "Newa",
                                    "Osage",
                                    "Tangut",
                                    "Masaram_Gondi",
                                    "Nushu",
                                    "Soyombo",
                                    "Zanabazar_Square"};

std::vector<uint8_t> make_groups() {
  std::string all;
  for (uint32_t c = 0; c <= 0x10ffff; ++c)
    if (c < 0xd800 || c >= 0xe000) utf8::append(all, c);
  std::vector<uint8_t> groups(0x110000, 0);
  const auto fill = [&](const std::string& pattern, uint8_t group) {
    const Regex regex(pattern, "scripts");
    Regex::Match match{};
    for (size_t at = 0; regex.find(all, at, match);) {
      at = match.begin;
      while (at < match.end) groups[utf8::next(all, at)] = group;
    }
  };
  uint8_t group = 0;
  for (const char* script : kScripts) fill(std::string("\\p{") + script + "}+", ++group);
  fill("\\p{Hiragana}+", 1);
  fill("\\p{Katakana}+", 1);
  groups[0x30fc] = 1;
  groups[' '] = 0;
  return groups;
}

}  // namespace

int script_group(uint32_t code_point) {
  static_assert(std::size(kScripts) < 256);
  static const std::vector<uint8_t> groups = make_groups();
  return code_point < groups.size() ? groups[code_point] : 0;
}

}  // namespace millrace::text
