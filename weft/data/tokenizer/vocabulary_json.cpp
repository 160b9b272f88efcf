#include "weft/data/tokenizer/vocabulary_json.h"

#include <array>
#include <cstdint>

#include <nlohmann/json.hpp>

#include "weft/data/tokenizer/byte_level.h"
#include "weft/io/json.h"

namespace weft::data {

std::string tokenizer_json(const io::Vocabulary& vocabulary) {
  using nlohmann::json;
  const bool of_bytes = vocabulary.kind() == "bytes";
  json ids = json::object();
  for (int32_t id = 0; id < vocabulary.size(); ++id) {
    const std::string text = vocabulary.decode(std::array{id});
    ids[of_bytes ? tokenizer::byte_characters(text) : text] = id;
  }
  const json byte_level{{"type", "ByteLevel"},
                        {"add_prefix_space", false},
                        {"trim_offsets", false},
                        {"use_regex", false}};
  return io::json_text(json{{"version", "1.0"},
                            {"truncation", nullptr},
                            {"padding", nullptr},
                            {"added_tokens", json::array()},
                            {"normalizer", nullptr},
                            {"pre_tokenizer", of_bytes ? byte_level : json()},
                            {"post_processor", nullptr},
                            {"decoder", of_bytes ? byte_level : json{{"type", "Fuse"}}},
                            {"model",
                             {{"type", "BPE"},
                              {"dropout", nullptr},
                              {"unk_token", nullptr},
                              {"continuing_subword_prefix", nullptr},
                              {"end_of_word_suffix", nullptr},
                              {"fuse_unk", false},
                              {"byte_fallback", false},
                              {"vocab", std::move(ids)},
                              {"merges", json::array()}}}});
}

}  // namespace weft::data
