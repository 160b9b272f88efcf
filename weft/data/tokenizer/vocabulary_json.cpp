#include "weft/data/tokenizer/vocabulary_json.h"

#include <array>
#include <cstdint>
#include <utility>

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
                        {"trim_offsets", true},
                        {"use_regex", false}};
  const json model{{"type", "BPE"}, {"vocab", std::move(ids)}, {"merges", json::array()}};
  return io::json_text(json{{"version", "1.0"},
                            {"added_tokens", json::array()},
                            {"pre_tokenizer", of_bytes ? byte_level : json()},
                            {"decoder", of_bytes ? byte_level : json{{"type", "Fuse"}}},
                            {"model", model}});
}

}  // namespace weft::data
