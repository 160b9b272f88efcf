#include "weft/models/pretrained.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "weft/base/error.h"
#include "weft/base/logging.h"
#include "weft/io/files.h"
#include "weft/io/gguf.h"
#include "weft/io/model_folder.h"
#include "weft/models/config_json.h"
#include "weft/models/families/encoders.h"
#include "weft/models/families/families.h"
#include "weft/models/family.h"

namespace weft::models {
namespace {
namespace fs = std::filesystem;
constexpr size_t config_limit = size_t{16} << 20;  // bytes

// Returns what messages call the config.json of a model.
std::string config_path(const std::string& model) {
  return (fs::path(model) / "config.json").string();
}

// Names lists the tensors of a folder's files.
struct Names {
  std::vector<std::string> all;
  // `dtype` is that of most bytes of floating point tensors; f32 where more are in blocks, whose
  // products are computed in it.
  DType dtype = DType::f32;
};
Names names_of(const std::vector<std::string>& files) {
  Names names;
  std::map<DType, size_t> bytes;
  for (const std::string& path : files) {
    const io::TensorFile file = io::open_weights(path);
    for (const io::TensorFile::Entry& entry : file.entries()) {
      names.all.push_back(entry.name);
      const bool counts = is_float(entry.type.dtype) || entry.type.dtype == DType::u8;
      if (counts) bytes[entry.type.dtype] += entry.type.bytes();
    }
  }
  size_t most = 0;
  for (const auto& [dtype, count] : bytes)
    if (count > most) most = count, names.dtype = dtype;
  if (names.dtype == DType::u8) names.dtype = DType::f32;
  return names;
}

// Returns the type that a config.json says its weights have.
DType dtype_of(const nn::Options& config) {
  for (const char* key : {"dtype", "torch_dtype"})
    if (const nn::Option* found = config.find(key))
      if (const auto* text = std::get_if<std::string>(found)) {
        if (*text == "bfloat16") return DType::bf16;
        if (*text == "float16") return DType::f16;
        if (*text == "float64") return DType::f64;
      }
  return DType::f32;
}

struct Net {
  std::unique_ptr<Model> model;
  int64_t vocabulary = 0, context = 0;
};

std::optional<EncoderFamily> encoder_family_of(const nn::Options& config) {
  nn::OptionReader reader(config, "config.json");
  const std::string type = reader.text("model_type", "");
  for (EncoderFamily& family : encoder_families())
    if (family.name == type) return std::move(family);
  return std::nullopt;
}

Net make_encoder(const EncoderFamily& family, nn::Options config, bool hide_padding) {
  nn::OptionReader reader(config, "config.json");
  const std::vector<std::string> architectures = reader.texts("architectures");
  // Labels are an object of names by number.
  if (const nn::Options* labels = reader.nested("id2label"))
    config.set("num_labels", static_cast<int64_t>(labels->entries().size()));
  std::unique_ptr<Encoder> model =
      family.make(config, architectures.empty() ? "" : architectures.front());
  if (hide_padding) model->hide_padding();
  Net net{.vocabulary = model->encoder_config().vocab_size, .context = model->context()};
  net.model = std::move(model);
  return net;
}

Net make_net(const nn::Options& config, bool hide_padding) {
  if (const auto encoder = encoder_family_of(config))
    return make_encoder(*encoder, config, hide_padding);
  std::unique_ptr<Decoder> model = make_decoder(config);
  const DecoderConfig& decoder = model->decoder_config();
  Net net{.vocabulary = decoder.vocab_size, .context = decoder.max_position_embeddings};
  net.model = std::move(model);
  return net;
}

// Returns whether files have a head of other elements than the embeddings it would be tied to.
bool has_own_head(const DecoderConfig& config, const std::vector<std::string>& files,
                  const Names& names) {
  const std::string wanted[] = {config.names.head + ".weight", config.names.tokens + ".weight"};
  if (std::ranges::none_of(names.all, [&](const auto& name) { return name.ends_with(wanted[0]); }))
    return false;
  std::span<const std::byte> found[2];
  std::vector<io::TensorFile> open;  // keeps the bytes
  for (const std::string& path : files) {
    const io::TensorFile& file = open.emplace_back(io::open_weights(path));
    for (const io::TensorFile::Entry& entry : file.entries())
      for (int i = 0; i < 2; ++i)
        if (entry.name == wanted[i] || entry.name.ends_with("." + wanted[i]))
          found[i] = file.bytes(entry);
  }
  return !found[0].empty() && !found[1].empty() && !std::ranges::equal(found[0], found[1]);
}

// Reads the net of a folder, whose files of weights may be none.
Net read_net(nn::Options config, const std::string& path, const std::vector<std::string>& files,
             const Names& names, bool hide_padding) try {
  Net net = make_net(config, hide_padding);
  const auto* decoder = dynamic_cast<const Decoder*>(net.model.get());
  if (decoder == nullptr || !decoder->decoder_config().tie_word_embeddings ||
      !has_own_head(decoder->decoder_config(), files, names))
    return net;
  // As in transformers, the weights count.
  logging::warn(
      "{}: tie_word_embeddings is taken for false: the files have a head that differs "
      "from the embeddings.",
      path);
  config.set("tie_word_embeddings", false);
  return make_net(config, hide_padding);
} catch (const Error& error) {
  throw Error(error.kind(), "{}: {}", path, error.what());
}

io::LoadOptions layout_of(const Model& model, const std::vector<std::string>& names, bool map) {
  io::LoadOptions layout;
  if (const auto* decoder = dynamic_cast<const Decoder*>(&model))
    layout = load_layout(decoder->decoder_config(), names);
  else if (const auto encoder = encoder_family_of(model.config()))
    layout = encoder->layout;
  layout.ignore.push_back("*.lora_*");  // adapters have files of their own
  layout.map = map;
  layout.cast = true;
  return layout;
}
}  // namespace

nn::Options read_config(const std::string& model) {
  const std::string path = config_path(model);
  const std::optional<std::string> text = io::read_of_model(model, "config.json", config_limit);
  if (!text) throw Error(ErrorKind::data, "{}: there is no such file.", io::printable(path));
  return parse_options(*text, path);
}
DType dtype_of_weights(const std::vector<std::string>& files) { return names_of(files).dtype; }

bool is_model(const std::string& path) {
  std::error_code ignored;
  if (fs::is_regular_file(path, ignored)) return io::is_gguf(path);
  const fs::path folder(path);
  return fs::exists(folder / "config.json", ignored) &&
         !fs::exists(folder / "MANIFEST.json", ignored);
}

io::Loaded load_published(Model& model, const std::vector<std::string>& files, bool map) {
  return io::load(model, files, layout_of(model, names_of(files).all, map));
}
void as_data(const std::function<void()>& load) try { load(); } catch (const Error& error) {
  if (error.kind() != ErrorKind::checkpoint) throw;
  throw Error(ErrorKind::data, "{}", error.what());
}

Pretrained load_pretrained(const std::string& folder, const PretrainedOptions& options) {
  const std::string path = config_path(folder);
  const nn::Options config = read_config(folder);
  std::vector<std::string> files;
  if (options.weights) files = io::weight_files(folder);
  const Names names = names_of(files);
  Pretrained result;
  result.dtype = options.dtype.value_or(files.empty() ? dtype_of(config) : names.dtype);
  const nn::BuildScope scope({.dtype = result.dtype, .initialize = false});
  Net net = read_net(config, path, files, names, options.hide_padding);
  result.vocabulary = net.vocabulary;
  result.context = net.context;
  result.model = std::move(net.model);
  if (!options.weights) return result;
  as_data([&] {
    result.loaded =
        io::load(*result.model, files, layout_of(*result.model, names.all, options.map));
  });
  return result;
}

void refuse_non_finite(const std::vector<std::string>& files) {
  for (const std::string& path : files) {
    const io::TensorFile file = io::open_weights(path);
    for (const io::TensorFile::Entry& entry : file.entries()) {
      if (!is_float(entry.type.dtype)) continue;
      const std::vector<double> values = file.tensor(entry.name).to_doubles();
      const auto wrong =
          std::ranges::find_if_not(values, [](double x) { return std::isfinite(x); });
      if (wrong != values.end())
        throw Error(ErrorKind::data, "{}: tensor \"{}\" has {} at element {}.", path, entry.name,
                    *wrong, wrong - values.begin());
    }
  }
}

}  // namespace weft::models
