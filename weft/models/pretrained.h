// Published models: a folder as Hugging Face's transformers writes it, or a GGUF file of
// llama.cpp's, becomes a model of weft.
//
//   models::Pretrained gpt2 = models::load_pretrained("gpt2");
//   Tensor logits = (*gpt2.model)(tokens);
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "weft/io/load.h"
#include "weft/models/encoder.h"
#include "weft/models/model.h"

namespace weft::models {

class Decoder;

struct PretrainedOptions {
  std::optional<DType> dtype = {};  // type of weights and activations; absent: the files'
  // Weights whose type and layout are the model's are views of the files, not copies.
  bool map = true;
  // Without them the weights stay zero and take no memory, and no file of weights is read.
  bool weights = true;
  bool hide_padding = false;  // an encoder attends to no token that is its pad_token_id
  // An encoder gets a head for these labels, whatever its config.json says; decoders ignore them.
  // Reads the head from the files if config.json names this kind with this many labels. Otherwise
  // ignores the files' output layer, draws one at random from the seed, and adds a note.
  std::optional<EncoderLabels> labels = {};
};

struct Pretrained {
  std::unique_ptr<Model> model;
  const Decoder* decoder = nullptr;  // the model, where it is one
  Encoder* encoder = nullptr;        // the model, where it is one
  DType dtype = DType::f32;
  int64_t vocabulary = 0, context = 0;  // ids; most tokens of a sequence
  io::Loaded loaded;
};

// Reads the config.json of a model, of at most 16 MiB. Throws Error(data).
nn::Options read_config(const std::string& model);
// Returns the labels of an encoder by its config.json, which are called LABEL_0, LABEL_1, ... where
// it does not name them, as in transformers; nullopt for other heads, for a single label, which
// stands for a number, for a problem_type of several labels or numbers, and for decoders. Throws
// Error(usage) for an id2label that does not name each of its classes; the second function also
// throws as read_config() does.
std::optional<EncoderLabels> labels_of(const nn::Options& config);
std::optional<EncoderLabels> labels_of(const std::string& model);
// Returns the names that transformers gives to labels: LABEL_0, LABEL_1, ...
std::vector<std::string> default_label_names(int64_t count);
// Returns the type of most bytes of floating point tensors in files; f32 if they have none, or if
// most weights are in blocks.
DType dtype_of_weights(const std::vector<std::string>& files);
// Returns whether `path` is a published model: a folder with a config.json that is no checkpoint of
// weft's, or a GGUF file.
bool is_model(const std::string& path);
// Reads a folder, or a GGUF file. Throws Error(usage) for a family that weft does not have, and for
// a config.json that asks for something that its family does not implement; Error(data) for files
// that are damaged or do not fit.
Pretrained load_pretrained(const std::string& folder, const PretrainedOptions& options = {});
// Loads files under published names into the model that load_pretrained() made of their folder's
// config.json. `map`: as in PretrainedOptions. Throws as io::load() does.
io::Loaded load_published(Model& model, const std::vector<std::string>& files, bool map);
// Loads by `load`, but throws Error(data) where that throws Error(checkpoint), which has an exit
// code for files that weft itself wrote.
void as_data(const std::function<void()>& load);
// Throws Error(data) that names the first element of the files' weights that is infinite or NaN, if
// they have one. Reads all weights, so call it only after a result was not finite.
void refuse_non_finite(const std::vector<std::string>& files);

}  // namespace weft::models
