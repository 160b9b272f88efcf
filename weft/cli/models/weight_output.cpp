#include "weft/cli/models/weight_output.h"

#include <filesystem>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "weft/base/error.h"
#include "weft/base/numbers/quantity.h"
#include "weft/base/text/utf8.h"
#include "weft/cli/models/published_form.h"
#include "weft/cli/show/terminal.h"
#include "weft/data/chat_template/tokenizer_config.h"
#include "weft/io/files.h"
#include "weft/io/gguf_tokenizer.h"
#include "weft/io/json.h"
#include "weft/io/non_finite.h"
#include "weft/models/gguf.h"

namespace weft::cli {
namespace {
constexpr size_t companion_limit = size_t{256} << 20;  // bytes

constexpr std::string_view companions[] = {
    "config.json",         "generation_config.json",   "tokenizer.json",
    "vocab.json",          "tokenizer_config.json",    "special_tokens_map.json",
    "merges.txt",          "added_tokens.json",        "vocab.txt",
    "tokenizer.model",     "preprocessor_config.json", "processor_config.json",
    "chat_template.jinja", "vocabulary.json"};

// Returns config.json with the dtype that the weights have now, where it names one.
std::string with_dtype(const std::string& config, const std::string& path, DType dtype) {
  try {
    io::parse_json(config);
    auto fields = nlohmann::ordered_json::parse(config);  // keeps the order of the keys
    for (const char* key : {"torch_dtype", "dtype"})
      if (fields.is_object() && fields.contains(key)) fields[key] = torch_name(dtype);
    return io::json_text(fields, 2) + "\n";
  } catch (const io::JsonError& error) {
    throw Error(ErrorKind::data, "{}: {}.", path, error.what());
  }
}
}  // namespace

size_t OutputArguments::checked() const {
  if (io::exists(path, ErrorKind::usage))
    throw Error(ErrorKind::usage, "{} exists. Nothing was changed.", path);
  const std::optional<int64_t> bytes = parse_bytes(shard_bytes);
  if (!bytes || *bytes < 1)
    throw Error(ErrorKind::usage, "--max-shard-size is a number of bytes, such as 5GB. Got '{}'.",
                shard_bytes);
  return static_cast<size_t>(*bytes);
}

Option OutputArguments::path_option(const std::string& doc) {
  return {.type = "OUT", .doc = doc, .target = &path, .required = true, .written = true};
}

Option OutputArguments::shard_option(const std::string& doc) {
  return {.flag = "--max-shard-size", .type = "BYTES", .doc = doc, .target = &shard_bytes};
}

const models::Decoder& decoder_of(const models::Pretrained& model, const std::string& folder,
                                  std::string_view only) {
  if (model.decoder == nullptr)
    throw Error(ErrorKind::usage, "{} is an encoder. {}.", folder, only);
  return *model.decoder;
}

void warn_of_non_finite(const std::string& model, std::span<const io::NamedBytes> tensors) {
  const std::string text = io::to_text(io::non_finite(tensors));
  if (!text.empty()) remark("warning", fmt::format("{}: {}.", escaped(model), text));
}

void write_gguf(const std::string& path, const std::string& model, const models::Decoder& decoder,
                const models::QuantizedDecoder* quantized) {
  models::GgufOptions options{.quantized = quantized,
                              .name = std::filesystem::path(path).stem().string()};
  if (const auto tokenizer = io::read_of_model(model, "tokenizer.json", companion_limit)) {
    const data::TokenizerConfig config = data::TokenizerConfig::load(model);
    const auto chat = config.chat_templates.find("default");
    options.tokenizer = io::tokenizer_metadata(
        {.file = model + "/tokenizer.json",
         .tokenizer = *tokenizer,
         .vocabulary = decoder.decoder_config().vocab_size,
         .bos = config.special_token("bos_token"),
         .eos = config.special_token("eos_token"),
         .unknown = config.special_token("unk_token"),
         .pad = config.special_token("pad_token"),
         .chat_template = chat != config.chat_templates.end() ? chat->second.text : ""});
  } else {
    remark("warning", fmt::format("{} has no tokenizer.json, and {} gets no tokenizer.",
                                  escaped(model), escaped(path)));
  }
  models::write_gguf(path, decoder, options);
}

std::vector<io::FolderFile> companions_of(const std::string& folder, std::optional<DType> dtype,
                                          const std::string* config) {
  if (folder.empty()) return {};
  std::vector<io::FolderFile> files = io::files_of_model(folder, companions, companion_limit);
  if (files.empty() || files[0].name != companions[0]) return files;  // it has no config.json
  std::string& contents = files[0].contents;
  if (config != nullptr) contents = *config;
  if (dtype) contents = with_dtype(contents, folder + "/" + files[0].name, *dtype);
  return files;
}

}  // namespace weft::cli
