// UnicodeScripts ends a piece where the script changes. Japanese is one script, as in
// SentencePiece.
#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "weft/data/tokenizer/pre_tokenizers.h"
#include "weft/data/tokenizer/regex.h"
#include "weft/io/text.h"

namespace weft::data::tokenizer {
namespace {

constexpr std::string_view scripts[] = {"Adlam",
                                        "Ahom",
                                        "Anatolian_Hieroglyphs",
                                        "Arabic",
                                        "Armenian",
                                        "Avestan",
                                        "Balinese",
                                        "Bamum",
                                        "Bassa_Vah",
                                        "Batak",
                                        "Bengali",
                                        "Bhaiksuki",
                                        "Bopomofo",
                                        "Brahmi",
                                        "Braille",
                                        "Buginese",
                                        "Buhid",
                                        "Canadian_Aboriginal",
                                        "Carian",
                                        "Caucasian_Albanian",
                                        "Chakma",
                                        "Cham",
                                        "Cherokee",
                                        "Common",
                                        "Coptic",
                                        "Cuneiform",
                                        "Cypriot",
                                        "Cyrillic",
                                        "Deseret",
                                        "Devanagari",
                                        "Duployan",
                                        "Egyptian_Hieroglyphs",
                                        "Elbasan",
                                        "Ethiopic",
                                        "Georgian",
                                        "Glagolitic",
                                        "Gothic",
                                        "Grantha",
                                        "Greek",
                                        "Gujarati",
                                        "Gurmukhi",
                                        "Hangul",
                                        "Hanunoo",
                                        "Hatran",
                                        "Hebrew",
                                        "Imperial_Aramaic",
                                        "Inherited",
                                        "Inscriptional_Pahlavi",
                                        "Inscriptional_Parthian",
                                        "Javanese",
                                        "Kaithi",
                                        "Kannada",
                                        "Kayah_Li",
                                        "Kharoshthi",
                                        "Khmer",
                                        "Khojki",
                                        "Khudawadi",
                                        "Lao",
                                        "Latin",
                                        "Lepcha",
                                        "Limbu",
                                        "Linear_A",
                                        "Linear_B",
                                        "Lisu",
                                        "Lycian",
                                        "Lydian",
                                        "Mahajani",
                                        "Malayalam",
                                        "Mandaic",
                                        "Manichaean",
                                        "Marchen",
                                        "Meetei_Mayek",
                                        "Mende_Kikakui",
                                        "Meroitic_Cursive",
                                        "Meroitic_Hieroglyphs",
                                        "Miao",
                                        "Modi",
                                        "Mongolian",
                                        "Mro",
                                        "Multani",
                                        "Myanmar",
                                        "Nabataean",
                                        "New_Tai_Lue",
                                        "Newa",
                                        "Nko",
                                        "Ogham",
                                        "Ol_Chiki",
                                        "Old_Hungarian",
                                        "Old_Italic",
                                        "Old_North_Arabian",
                                        "Old_Permic",
                                        "Old_Persian",
                                        "Old_South_Arabian",
                                        "Old_Turkic",
                                        "Oriya",
                                        "Osage",
                                        "Osmanya",
                                        "Pahawh_Hmong",
                                        "Palmyrene",
                                        "Pau_Cin_Hau",
                                        "Phags_Pa",
                                        "Phoenician",
                                        "Psalter_Pahlavi",
                                        "Rejang",
                                        "Runic",
                                        "Samaritan",
                                        "Saurashtra",
                                        "Sharada",
                                        "Shavian",
                                        "Siddham",
                                        "SignWriting",
                                        "Sinhala",
                                        "Sora_Sompeng",
                                        "Sundanese",
                                        "Syloti_Nagri",
                                        "Syriac",
                                        "Tagalog",
                                        "Tagbanwa",
                                        "Tai_Le",
                                        "Tai_Tham",
                                        "Tai_Viet",
                                        "Takri",
                                        "Tamil",
                                        "Tangut",
                                        "Telugu",
                                        "Thaana",
                                        "Thai",
                                        "Tibetan",
                                        "Tifinagh",
                                        "Tirhuta",
                                        "Ugaritic",
                                        "Vai",
                                        "Warang_Citi",
                                        "Yi"};
// The `tokenizers` package has the scripts of Unicode 9: later and private characters have no
// script.
constexpr std::pair<char32_t, char32_t> without_script[] = {
    {0x560, 0x560},     {0x588, 0x588},     {0x5ef, 0x5ef},     {0x61d, 0x61d},
    {0x7fd, 0x7ff},     {0x860, 0x89f},     {0x8b5, 0x8b5},     {0x8be, 0x8d3},
    {0x9fc, 0x9fe},     {0xa76, 0xa76},     {0xafa, 0xaff},     {0xb55, 0xb55},
    {0xc04, 0xc04},     {0xc3c, 0xc3c},     {0xc5d, 0xc5d},     {0xc77, 0xc77},
    {0xc84, 0xc84},     {0xcdd, 0xcdd},     {0xd00, 0xd00},     {0xd04, 0xd04},
    {0xd3b, 0xd3c},     {0xd81, 0xd81},     {0xe86, 0xe86},     {0xe89, 0xe89},
    {0xe8c, 0xe8c},     {0xe8e, 0xe93},     {0xe98, 0xe98},     {0xea0, 0xea0},
    {0xea8, 0xea9},     {0xeac, 0xeac},     {0xeba, 0xeba},     {0x170d, 0x170d},
    {0x1715, 0x171f},   {0x180f, 0x180f},   {0x1878, 0x1878},   {0x1abf, 0x1ace},
    {0x1b4c, 0x1b4c},   {0x1b7d, 0x1b7e},   {0x1c90, 0x1cbf},   {0x1cf7, 0x1cf7},
    {0x1cfa, 0x1cfa},   {0x1df6, 0x1dfa},   {0x20bf, 0x20c0},   {0x23ff, 0x23ff},
    {0x2b97, 0x2b97},   {0x2bba, 0x2bbc},   {0x2bc9, 0x2bc9},   {0x2bd2, 0x2beb},
    {0x2bf0, 0x2bff},   {0x2c2f, 0x2c2f},   {0x2c5f, 0x2c5f},   {0x2e45, 0x2e5d},
    {0x312e, 0x312f},   {0x31bb, 0x31bf},   {0x32ff, 0x32ff},   {0x4db6, 0x4dbf},
    {0x9fd6, 0x9fff},   {0xa7af, 0xa7af},   {0xa7b8, 0xa7f6},   {0xa82c, 0xa82c},
    {0xa8fe, 0xa8ff},   {0xab66, 0xab6b},   {0xe000, 0xf8ff},   {0xfbc2, 0xfbc2},
    {0xfd40, 0xfd4f},   {0xfdcf, 0xfdcf},   {0xfdfe, 0xfdff},   {0x1019c, 0x1019c},
    {0x1032d, 0x1032f}, {0x10570, 0x105bc}, {0x10780, 0x107ba}, {0x10a34, 0x10a35},
    {0x10a48, 0x10a48}, {0x10d00, 0x10d39}, {0x10e80, 0x10ff6}, {0x11070, 0x11075},
    {0x110c2, 0x110cd}, {0x11144, 0x11147}, {0x111ce, 0x111cf}, {0x1133b, 0x1133b},
    {0x1145a, 0x1145a}, {0x1145e, 0x11461}, {0x116b8, 0x116b9}, {0x1171a, 0x1171a},
    {0x11740, 0x1183b}, {0x11900, 0x11abf}, {0x11d00, 0x11fff}, {0x12f90, 0x12ff2},
    {0x13430, 0x13438}, {0x16a70, 0x16ac9}, {0x16e40, 0x16e9a}, {0x16f45, 0x16f4f},
    {0x16f7f, 0x16f87}, {0x16fe1, 0x16ff1}, {0x187ed, 0x187f7}, {0x18af3, 0x18d08},
    {0x1aff0, 0x1affe}, {0x1b002, 0x1b2fb}, {0x1cf00, 0x1cfc3}, {0x1d1e9, 0x1d1ea},
    {0x1d2e0, 0x1d2f3}, {0x1d372, 0x1d378}, {0x1df00, 0x1df1e}, {0x1e100, 0x1e2ff},
    {0x1e7e0, 0x1e7fe}, {0x1e94b, 0x1e94b}, {0x1ec71, 0x1ed3d}, {0x1f10d, 0x1f10f},
    {0x1f12f, 0x1f12f}, {0x1f16c, 0x1f16f}, {0x1f1ad, 0x1f1ad}, {0x1f260, 0x1f265},
    {0x1f6d3, 0x1f6df}, {0x1f6f7, 0x1f6fc}, {0x1f7d5, 0x1f7f0}, {0x1f8b0, 0x1f90f},
    {0x1f91f, 0x1f91f}, {0x1f928, 0x1f92f}, {0x1f931, 0x1f932}, {0x1f93f, 0x1f93f},
    {0x1f94c, 0x1f94f}, {0x1f95f, 0x1f97f}, {0x1f992, 0x1f9bf}, {0x1f9c1, 0x1fbf9},
    {0x2a6d7, 0x2a6df}, {0x2b735, 0x2b738}, {0x2ceb0, 0x2ebe0}, {0x30000, 0x3134a},
    {0xf0000, 0x10fffd}};
constexpr uint8_t any = 0;  // belongs to the script before it
constexpr uint8_t japanese = 1;

// Returns a script for each code point: the expression has a group for each, and runs over a text
// of all code points.
std::vector<uint8_t> make_table() {
  std::string expression = R"(([\p{sc:Han}\p{sc:Hiragana}\p{sc:Katakana}\x{30fc}]+))";
  for (std::string_view script : scripts)
    expression += fmt::format(R"(|((?:(?!\x{{30fc}})\p{{sc:{}}})+))", script);
  std::string all;
  for (char32_t code = 0; code < 0x110000; ++code)
    if (code < 0xd800 || code > 0xdfff) io::append_utf8(all, code);
  std::vector<uint8_t> table(0x110000, any);
  const Regex regex(expression);
  Regex::Matches matches(regex, all);
  for (Match match; matches.next(match);)
    for (size_t at = match.begin; at < match.end;)
      table[next_character(all, at)] = static_cast<uint8_t>(match.group);
  for (const auto& [first, last] : without_script)
    std::fill(table.begin() + static_cast<std::ptrdiff_t>(first),
              table.begin() + static_cast<std::ptrdiff_t>(last) + 1, any);
  table[0x589] = table['.'];  // Armenian since Unicode 10
  static_assert(std::size(scripts) + japanese < 256);
  table[' '] = any;
  return table;
}

class UnicodeScripts : public PreTokenizer {
 public:
  // Drops the text before the first character that has a script, usually spaces.
  void apply(Pieces& pieces) const override {
    static const std::vector<uint8_t> script_of = make_table();
    std::vector<Piece> out;
    for (const Piece& piece : pieces.list) {
      const std::string_view text = pieces.of(piece);
      uint8_t last = any;
      for (size_t offset = 0; offset < text.size();) {
        const size_t begin = offset;
        const uint8_t script = script_of[next_character(text, offset)];
        if (script == any) continue;
        if (script != last) {
          if (last != any) out.back().end = piece.begin + begin;
          out.push_back({piece.begin + begin, piece.end, piece.first && begin == 0});
        }
        last = script;
      }
    }
    pieces.list = std::move(out);
  }
};

}  // namespace

std::unique_ptr<PreTokenizer> make_unicode_scripts() { return std::make_unique<UnicodeScripts>(); }

}  // namespace weft::data::tokenizer
