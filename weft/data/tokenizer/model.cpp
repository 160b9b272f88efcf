#include "weft/data/tokenizer/model.h"

#include <fmt/format.h>
#include <simdjson.h>

#include "weft/base/error.h"
#include "weft/io/files.h"

namespace weft::data::tokenizer {

void Model::read_vocabulary(const Part& vocabulary) {
  if (!vocabulary.is_object()) vocabulary.must("must be an object of tokens and ids");
  const simdjson::dom::object entries = vocabulary.value();
  tokens_.reserve(entries.size());
  const int64_t limit = vocabulary.id_limit();
  for (const auto [token, id] : entries) {
    int64_t number = 0;
    if (id.get(number) != simdjson::SUCCESS || number < 0 || number >= limit)
      vocabulary.fail(fmt::format("['{}'] must be an id from 0 to {}. Got {}", io::printable(token),
                                  limit - 1, shown(id)));
    tokens_.add(token, static_cast<int32_t>(number));
  }
}

void Model::no_unknown_token(std::string_view word) const {
  throw Error(ErrorKind::data,
              "[tokenizer] {}: the vocabulary has neither '{}' nor a token for what is unknown.",
              file_, io::printable(word));
}

std::string byte_token(unsigned char byte) { return fmt::format("<0x{:02X}>", byte); }

std::unique_ptr<Model> make_model(const Part& part) {
  std::string type;
  if (const auto named = part.find("type"))
    type = std::string(named->text());
  else if (part.find("merges"))
    type = "BPE";
  else if (part.at("vocab").is_list())
    type = "Unigram";
  else
    type = part.find("max_input_chars_per_word") ? "WordPiece" : "WordLevel";
  if (type == "BPE") return make_bpe(part);
  if (type == "Unigram") return make_unigram(part);
  if (type == "WordPiece") return make_word_piece(part);
  if (type == "WordLevel") return make_word_level(part);
  part.unknown("type", type, {"BPE", "Unigram", "WordLevel", "WordPiece"});
}

}  // namespace weft::data::tokenizer
