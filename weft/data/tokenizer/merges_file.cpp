#include "weft/data/tokenizer/merges_file.h"

#include <algorithm>
#include <utility>

#include <nlohmann/json.hpp>

#include "weft/base/error.h"
#include "weft/io/files.h"

namespace weft::data::tokenizer {
namespace {

nlohmann::json merges_of(std::string_view text, const std::string& name) {
  auto merges = nlohmann::json::array();
  int64_t number = 0;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    ++number;
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty() || line.starts_with("#version")) continue;
    const size_t space = line.find(' ');
    if (space == 0 || space == std::string_view::npos || space + 1 == line.size() ||
        line.find(' ', space + 1) != std::string_view::npos)
      throw Error(ErrorKind::data, "[tokenizer] {}:{}: a line must be two tokens. Got '{}'.", name,
                  number, io::printable(line));
    merges.push_back({line.substr(0, space), line.substr(space + 1)});
  }
  return merges;
}

}  // namespace

nlohmann::json json_of_merges(nlohmann::json vocabulary, std::string_view merges,
                              const std::string& merges_name) {
  auto added = nlohmann::json::array();
  for (const char* token : {"<|endoftext|>", "<s>", "<pad>", "</s>", "<unk>", "<mask>"})
    if (vocabulary.is_object() && vocabulary.contains(token))
      added.push_back({{"content", token},
                       {"id", vocabulary[token]},
                       {"normalized", false},
                       {"special", true}});
  return {{"added_tokens", std::move(added)},
          {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}}},
          {"decoder", {{"type", "ByteLevel"}}},
          {"model",
           {{"type", "BPE"},
            {"vocab", std::move(vocabulary)},
            {"merges", merges_of(merges, merges_name)}}}};
}

}  // namespace weft::data::tokenizer
