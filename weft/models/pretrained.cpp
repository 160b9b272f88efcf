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
#include "weft/base/numbers/block_format.h"
#include "weft/io/files.h"
#include "weft/io/gguf.h"
#include "weft/io/gguf_architecture.h"
#include "weft/io/model_folder.h"
#include "weft/io/non_finite.h"
#include "weft/models/config_json.h"
#include "weft/models/families/encoders.h"
#include "weft/models/families/families.h"
#include "weft/models/family.h"
#include "weft/tensor/blocks.h"

namespace weft::models {
namespace {
namespace fs = std::filesystem;
constexpr size_t config_limit = size_t{16} << 20;  // bytes
constexpr std::string_view single_label = "single_label_classification";
constexpr int64_t most_labels = int64_t{1} << 16;  // that a config.json counts but does not name

// Returns the name of a model's config.json for messages.
std::string config_path(const std::string& model) {
  return io::file_in_messages(model, "config.json");
}

// Throws the error of a model's config.json again, with the file, and with its own names for keys.
[[noreturn]] void rethrow_of_config(const std::string& model, const Error& error) {
  std::string message = error.what();
  if (io::is_gguf(model))
    if (const auto* found = io::architecture_of(io::Gguf::open(model).metadata()))
      message = io::with_metadata_keys(*found, std::move(message));
  throw Error(error.kind(), "{}: {}", io::printable(config_path(model)), message);
}

// Names lists the tensors of a folder's files.
struct Names {
  std::vector<std::string> all;
  // `dtype` is the type of most bytes of floating point tensors; f32 if more bytes are in blocks,
  // whose products are computed in f32.
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
  const Decoder* decoder = nullptr;  // the model is one of these
  Encoder* encoder = nullptr;
  int64_t vocabulary = 0, context = 0;
};

std::optional<EncoderFamily> encoder_family_of(const nn::Options& config) {
  nn::OptionReader reader(config, "config.json");
  const std::string type = reader.text("model_type", "");
  for (EncoderFamily& family : encoder_families())
    if (family.name == type) return std::move(family);
  return std::nullopt;
}

std::string architecture_of(const nn::Options& config) {
  nn::OptionReader reader(config, "config.json");
  const std::vector<std::string> architectures = reader.texts("architectures");
  return architectures.empty() ? "" : architectures.front();
}

// Sets the keys of config.json that say which head an encoder has.
void set_labels(nn::Options& config, const EncoderFamily& family, const EncoderLabels& labels) {
  nn::Options names, classes;
  for (size_t i = 0; i < labels.names.size(); ++i) {
    names.set(std::to_string(i), labels.names[i]);
    classes.set(labels.names[i], static_cast<int64_t>(i));
  }
  config.set("architectures",
             std::vector<std::string>{family.architectures[static_cast<size_t>(labels.head)]});
  config.set("id2label", nn::NestedOptions(std::move(names)));
  config.set("label2id", nn::NestedOptions(std::move(classes)));
  if (labels.head == EncoderHead::sample_label)
    config.set("problem_type", std::string(single_label));
}

Net make_encoder(const EncoderFamily& family, nn::Options config,
                 const PretrainedOptions& options) {
  if (options.labels) set_labels(config, family, *options.labels);
  nn::OptionReader reader(config, "config.json");
  // Labels are an object of names by number.
  if (const nn::Options* labels = reader.nested("id2label"))
    config.set("num_labels", static_cast<int64_t>(labels->entries().size()));
  std::unique_ptr<Encoder> model = family.make(config, architecture_of(config));
  if (options.hide_padding) model->hide_padding();
  Net net{.encoder = model.get(),
          .vocabulary = model->encoder_config().vocab_size,
          .context = model->context()};
  net.model = std::move(model);
  return net;
}

Net make_net(const nn::Options& config, const PretrainedOptions& options) {
  if (const auto encoder = encoder_family_of(config))
    return make_encoder(*encoder, config, options);
  std::unique_ptr<Decoder> model = make_decoder(config);
  const DecoderConfig& decoder = model->decoder_config();
  Net net{.decoder = model.get(),
          .vocabulary = decoder.vocab_size,
          .context = decoder.max_position_embeddings};
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
Net read_net(nn::Options config, const std::string& folder, const std::vector<std::string>& files,
             const Names& names, const PretrainedOptions& options) try {
  Net net = make_net(config, options);
  if (net.decoder == nullptr || !net.decoder->decoder_config().tie_word_embeddings ||
      !has_own_head(net.decoder->decoder_config(), files, names))
    return net;
  // As in transformers, the weights count.
  logging::warn(
      "{}: tie_word_embeddings is taken for false: the files have a head that differs "
      "from the embeddings.",
      config_path(folder));
  config.set("tie_word_embeddings", false);
  return make_net(config, options);
} catch (const Error& error) {
  rethrow_of_config(folder, error);
}

io::LoadOptions layout_of(const Model& model, const std::vector<std::string>& names, bool map) {
  io::LoadOptions layout;
  if (const DecoderConfig* const decoder = decoder_config_of(model))
    layout = load_layout(*decoder, names);
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
  if (io::is_gguf(path)) return true;
  const fs::path folder(path);
  return !path.empty() && fs::exists(folder / "config.json", ignored) &&
         !fs::exists(folder / "MANIFEST.json", ignored);
}

io::Loaded load_published(Model& model, const std::vector<std::string>& files, bool map) {
  return io::load(model, files, layout_of(model, names_of(files).all, map));
}
void as_data(const std::function<void()>& load) try { load(); } catch (const Error& error) {
  if (error.kind() != ErrorKind::checkpoint) throw;
  throw Error(ErrorKind::data, "{}", error.what());
}

std::vector<std::string> default_label_names(int64_t count) {
  std::vector<std::string> names;
  names.reserve(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) names.push_back(fmt::format("LABEL_{}", i));
  return names;
}

std::optional<EncoderLabels> labels_of(const nn::Options& config) {
  const auto family = encoder_family_of(config);
  if (!family) return std::nullopt;
  const auto found = std::ranges::find(family->architectures, architecture_of(config));
  const auto head = static_cast<EncoderHead>(found - family->architectures.begin());
  if (found == family->architectures.end() || head == EncoderHead::masked_tokens)
    return std::nullopt;
  EncoderLabels labels{.head = head};
  nn::OptionReader reader(config, family->name);
  if (reader.text("problem_type", single_label) != single_label) return std::nullopt;
  if (const nn::Options* names = reader.nested("id2label"); names != nullptr) {
    for (size_t i = 0; i < names->entries().size(); ++i) {
      const nn::Option* name = names->find(std::to_string(i));
      if (name == nullptr)
        throw Error(ErrorKind::usage, "[{}] id2label must name each class from 0. Got no {}.",
                    family->name, i);
      const auto* text = std::get_if<std::string>(name);
      labels.names.push_back(text != nullptr ? *text : nn::to_string(*name));
    }
  } else {
    labels.names = default_label_names(reader.integer("num_labels", 2, 1, most_labels));
  }
  if (labels.names.size() < 2) return std::nullopt;
  return labels;
}

std::optional<EncoderLabels> labels_of(const std::string& model) {
  const nn::Options config = read_config(model);
  try {
    return labels_of(config);
  } catch (const Error& error) {
    rethrow_of_config(model, error);
  }
}

namespace {
// Returns whether the head for the wanted labels is new: config.json has no labels, another kind of
// head, or another number of labels.
bool is_new(const EncoderLabels& wanted, const nn::Options& config) {
  const std::optional<EncoderLabels> found = labels_of(config);
  return !found || found->head != wanted.head || found->names.size() != wanted.names.size();
}

// Loads all of an encoder but the output layer of its head, which depends on the labels. The files
// may lack the head's dense layer, too.
io::Loaded load_below_head(const Encoder& model, const std::string& folder,
                           const std::vector<std::string>& files, io::LoadOptions layout) {
  const EncoderNames& names = model.encoder_config().names;
  const std::string inside = names.head.empty() ? "" : names.head + ".";
  layout.strict = false;
  layout.ignore.push_back(inside + names.head_output + ".*");
  io::Loaded loaded = io::load(model, files, layout);
  for (const std::string& name : loaded.missing)
    if (names.head_dense.empty() || !name.starts_with(inside + names.head_dense + "."))
      throw Error(ErrorKind::data, "{}: the files have no \"{}\".", io::printable(folder), name);
  logging::note("{}: its files have no head for these {} labels of {}. A new one is drawn.",
                io::printable(folder), model.encoder_config().num_labels,
                model.encoder_config().head == EncoderHead::sample_label ? "samples" : "tokens");
  return loaded;
}
}  // namespace

Pretrained load_pretrained(const std::string& folder, const PretrainedOptions& options) {
  const nn::Options config = read_config(folder);
  std::vector<std::string> files;
  if (options.weights) files = io::weight_files(folder);
  const Names names = names_of(files);
  const bool draws_head = options.weights && options.labels && encoder_family_of(config) &&
                          is_new(*options.labels, config);
  Pretrained result;
  result.dtype = options.dtype.value_or(files.empty() ? dtype_of(config) : names.dtype);
  const nn::BuildScope scope({.dtype = result.dtype, .initialize = draws_head});
  Net net = read_net(config, folder, files, names, options);
  result.vocabulary = net.vocabulary;
  result.context = net.context;
  result.decoder = net.decoder;
  result.encoder = net.encoder;
  result.model = std::move(net.model);
  if (!options.weights) return result;
  as_data([&] {
    const io::LoadOptions layout = layout_of(*result.model, names.all, options.map);
    result.loaded = draws_head ? load_below_head(*result.encoder, folder, files, layout)
                               : io::load(*result.model, files, layout);
  });
  return result;
}

namespace {
// Returns the format of a matrix in blocks, which its bytes tell where the file does not; null for
// numbers.
const BlockFormat* format_of(const io::TensorFile::Entry& entry) {
  if (entry.format != nullptr) return entry.format;
  if (entry.type.dtype != DType::u8 || entry.type.shape.size() < 3) return nullptr;
  const auto formats = block_formats();
  const auto found = std::ranges::find(formats, entry.type.shape.back(), &BlockFormat::bytes);
  return found == formats.end() ? nullptr : &*found;
}
}  // namespace

void refuse_non_finite(const std::vector<std::string>& files) {
  for (const std::string& path : files) {
    const io::TensorFile file = io::open_weights(path);
    for (const io::TensorFile::Entry& entry : file.entries()) {
      const BlockFormat* format = format_of(entry);
      if (format == nullptr) {
        const io::NonFinite count = io::count_non_finite(file.bytes(entry), entry.type.dtype);
        if (count.nans == 0 && count.infinities == 0) continue;
      }
      const Tensor stored = file.tensor(entry.name);
      const std::vector<double> values =
          (format == nullptr ? stored : dequantize_blocks(stored, format->name)).to_doubles();
      const auto wrong =
          std::ranges::find_if_not(values, [](double x) { return std::isfinite(x); });
      if (wrong != values.end())
        throw Error(ErrorKind::data, "{}: tensor \"{}\" has {} at element {}.", path,
                    file.name_in_file(entry.name), *wrong, wrong - values.begin());
    }
  }
}

}  // namespace weft::models
