// UnicodeScripts: a piece ends where the script changes. Japanese is one script, as in
// SentencePiece.
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
constexpr uint8_t any = 0;  // belongs to the script before it
constexpr uint8_t japanese = 1;

// Returns a script for each code point: the expression has a group for each, and runs over a text
// of all code points.
std::vector<uint8_t> make_table() {
  std::string expression = R"(([\p{sc:Han}\p{sc:Hiragana}\p{sc:Katakana}\x{30fc}]+))";
  for (std::string_view script : scripts)
    expression += fmt::format(R"(|((?:(?!\x{{30fc}})\p{{sc:{}}})+))", script);
  std::string all;
  std::vector<size_t> offsets;  // of each code point
  for (char32_t code = 0; code < 0x110000; ++code) {
    offsets.push_back(all.size());
    if (code < 0xd800 || code > 0xdfff) io::append_utf8(all, code);
  }
  std::vector<uint8_t> table(0x110000, any);
  const Regex regex(expression);
  Regex::Matches matches(regex, all);
  for (Match match; matches.next(match);)
    for (size_t at = match.begin; at < match.end;)
      table[next_character(all, at)] = static_cast<uint8_t>(match.group);
  static_assert(std::size(scripts) + japanese < 256);
  table[' '] = any;
  return table;
}

class UnicodeScripts : public PreTokenizer {
 public:
  // Text before the first character of a script, which is spaces, is in no piece.
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
