// Declares families of language models as Hugging Face's transformers publishes them: how a
// config.json describes a decoder, and how its tensors are named. The registry of families holds
// weft's own families, and families that a user's program adds (docs/adding-a-family.md).
//
//   auto model = models::make_decoder(models::parse_options(text, "config.json"));
//   io::load(*model, files, models::load_layout(model->decoder_config(), names));
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "weft/base/recipe/registry.h"
#include "weft/io/load.h"
#include "weft/models/config_keys.h"
#include "weft/models/decoder.h"

namespace weft::models {

struct Family {
  std::string name;  // "model_type" in config.json
  std::string doc;
  std::string architecture;  // "architectures" in config.json
  // `defaults` hold for all models of the family: the names of modules, and the values of keys that
  // a config.json may lack.
  DecoderConfig defaults;
  // Binds the keys of config.json to the fields of `defaults` that they set.
  std::function<void(ConfigKeys& keys, DecoderConfig& config)> bind;

  // Reads a config.json. Keys that say nothing of the model are ignored, and unknown ones warned of
  // once. Throws Error(usage) that names the family, the key and its limit.
  DecoderConfig read(const nn::Options& config) const;
  // Returns a config.json from which read(), and transformers 4 and 5, read the same model. Keys
  // that do not belong to the family's equations (token ids) are left out.
  nn::Options write(const DecoderConfig& config) const;
};

// Returns the part of a config.json that is a decoder's: of `gemma3` the text part, as one of
// `gemma3_text`, with a warning that the vision part is left out; any other `config` as it is.
nn::Options text_part(const nn::Options& config);
// Returns every `model_type` that weft reads, of decoders and of encoders, with its description,
// sorted by name.
std::vector<std::pair<std::string, std::string>> known_model_types();
// Returns the family that `config`, a decoder's, names. Throws Error(usage) that quotes an unknown
// name, and lists the known ones.
const Family& family_of(const nn::Options& config);

// BlocksOf says which weights of a folder are in blocks, as "quantization_config" of a config.json
// that weft wrote, or that stands for a GGUF file (weft/io/gguf_folder.h), has it.
struct BlocksOf {
  std::string linear = {};  // format of linear layers; "": none
  std::map<std::string, std::string, std::less<>> modules = {};  // formats by path
  bool is_gguf = false;                                          // the layout is llama.cpp's

  // Returns the format of a weight, as nn::BuildOptions::blocks does.
  std::string_view at(const nn::Module& layer, const std::string& path) const;
  bool empty() const { return linear.empty() && modules.empty(); }
  // Returns whether other programs read such tensors in a folder.
  bool is_folder_form() const { return empty() && !is_gguf; }
};
BlocksOf blocks_of(const nn::Options& config);

// Makes the decoder of a config.json. The family writes the decoder's config(), and the token ids
// of `config` are added.
std::unique_ptr<Decoder> make_decoder(const nn::Options& config);

// Returns how io::load() reads published files, which hold the tensors `names`, into a decoder:
// some lack the root of all names, and some hold tensors that no one reads (masks, rotary
// frequencies, a head that is the embedding).
io::LoadOptions load_layout(const DecoderConfig& config, std::span<const std::string> names);
// Returns tensors of a decoder's variables under their published names, for io::save_folder() and
// io::write_safetensors(): a variable that stacks the experts of a mixture becomes one tensor for
// each expert. The tensors are views of the same memory.
std::vector<io::NamedBytes> published_tensors(std::vector<io::NamedBytes> tensors);
std::vector<io::NamedBytes> published_tensors(const Decoder& model);

}  // namespace weft::models

namespace weft::registry {
Registry<models::Family>& families();
}
