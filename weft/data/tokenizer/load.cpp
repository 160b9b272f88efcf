// Finds the files of a folder that a tokenizer is read from.
#include <string>
#include <utility>

#include "weft/base/error.h"
#include "weft/data/tokenizer/older_files.h"
#include "weft/data/tokenizer/part.h"
#include "weft/data/tokenizer/tokenizer.h"
#include "weft/io/files.h"
#include "weft/io/gguf_folder.h"

namespace weft::data {

using namespace tokenizer;

namespace {

constexpr size_t most_file_bytes = size_t{512} << 20;

std::string contents_of(const std::string& name) { return io::read_file(name, most_file_bytes); }

// Returns the tokenizer file of a folder, by which Tokenizer::load() knows the kind.
std::string file_of(const std::string& folder) {
  for (const char* name :
       {"/tokenizer.json", "/vocab.json", "/vocab.txt", "/tokenizer.model", "/spiece.model"})
    if (io::exists(folder + name)) return folder + name;
  throw Error(ErrorKind::data,
              "[tokenizer] {} has no tokenizer: neither tokenizer.json, nor vocab.json with "
              "merges.txt, nor vocab.txt.",
              folder);
}

// Returns the tokenizer at a path as the text of a tokenizer.json, and the name of the file that it
// is from.
std::pair<std::string, std::string> json_at(const std::string& path) {
  const bool is_folder = io::is_folder(path);
  if (!is_folder && io::is_gguf(path)) return {io::tokenizer_json(io::Gguf::open(path)), path};
  const std::string name = is_folder ? file_of(path) : path;
  const size_t slash = name.rfind('/');
  const std::string folder = slash == std::string::npos ? "" : name.substr(0, slash + 1);
  const std::string_view file = std::string_view(name).substr(folder.size());
  if (file.ends_with(".model"))
    throw Error(
        ErrorKind::data,
        "[tokenizer] {} is a model of SentencePiece; weft needs tokenizer.json beside it. "
        "Hint: save_pretrained() of a fast tokenizer of the transformers package writes it.",
        name);
  const std::string contents = contents_of(name);
  if (file == "vocab.json") {
    const std::string merges_name = folder + "merges.txt";
    const std::string merges = contents_of(merges_name);
    const Document vocabulary(contents, name);
    return {json_of_gpt2(vocabulary.root(), contents, {merges, merges_name}), name};
  }
  if (file == "vocab.txt") {
    const std::string config_name = folder + "tokenizer_config.json";
    const std::string config = io::exists(config_name) ? contents_of(config_name) : "";
    return {json_of_bert({contents, name}, {config, config_name}), name};
  }
  return {contents, name};
}
}  // namespace

std::string Tokenizer::json_of(const std::string& path) { return json_at(path).first; }

Tokenizer Tokenizer::load(const std::string& path) {
  const auto [json, name] = json_at(path);
  return from_json(json, name);
}

}  // namespace weft::data
