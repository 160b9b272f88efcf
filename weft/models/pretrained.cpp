#include "weft/models/pretrained.h"

#include <filesystem>
#include <map>

#include <fmt/format.h>

#include "weft/base/error.h"
#include "weft/io/files.h"
#include "weft/io/model_folder.h"
#include "weft/models/config_json.h"
#include "weft/models/family.h"

namespace weft::models {
namespace {
namespace fs = std::filesystem;
constexpr size_t config_limit = size_t{16} << 20;  // bytes

// Names is what the files of a folder hold.
struct Names {
  std::vector<std::string> all;
  DType dtype = DType::f32;  // of most bytes of floating point tensors
};
Names names_of(const std::vector<std::string>& files) {
  Names names;
  std::map<DType, size_t> bytes;
  for (const std::string& file : files)
    for (const io::Safetensors::Entry& entry : io::Safetensors::open(file).entries()) {
      names.all.push_back(entry.name);
      if (is_float(entry.type.dtype)) bytes[entry.type.dtype] += entry.type.bytes();
    }
  size_t most = 0;
  for (const auto& [dtype, count] : bytes)
    if (count > most) most = count, names.dtype = dtype;
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
}  // namespace

bool is_model_folder(const std::string& path) {
  std::error_code ignored;
  const fs::path folder(path);
  return fs::is_regular_file(folder / "config.json", ignored) &&
         !fs::exists(folder / "MANIFEST.json", ignored);
}

io::Loaded load_published(Model& model, const std::vector<std::string>& files, bool map) {
  auto& decoder = dynamic_cast<Decoder&>(model);
  io::LoadOptions layout = load_layout(decoder.decoder_config(), names_of(files).all);
  layout.map = map;
  layout.cast = true;
  return io::load(decoder, files, layout);
}

Pretrained load_pretrained(const std::string& folder, const PretrainedOptions& options) {
  const std::string path = io::file_of_folder(folder, "config.json");
  const nn::Options config = parse_options(io::read_file(path, config_limit), path);
  std::vector<std::string> files;
  if (options.weights) files = io::weight_files(folder);
  Pretrained result;
  result.dtype = options.dtype   ? *options.dtype
                 : files.empty() ? dtype_of(config)
                                 : names_of(files).dtype;
  const nn::BuildScope scope({.dtype = result.dtype, .initialize = false});
  std::unique_ptr<Decoder> model = make_decoder(config);
  const DecoderConfig& decoder = model->decoder_config();
  result.vocabulary = decoder.vocab_size;
  result.context = decoder.max_position_embeddings;
  result.model = std::move(model);
  if (!options.weights) return result;
  try {
    result.loaded = load_published(*result.model, files, options.map);
  } catch (const Error& error) {
    // A folder of others is data; only weft's own checkpoints have an exit code of their own.
    if (error.kind() != ErrorKind::checkpoint) throw;
    throw Error(ErrorKind::data, "{}", error.what());
  }
  return result;
}

}  // namespace weft::models
