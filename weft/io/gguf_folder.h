// Presents a GGUF file of a language model as a model folder of Hugging Face, the form that models
// are read from: tensors under published names, as views, and the metadata as config.json,
// generation_config.json, tokenizer.json and tokenizer_config.json.
//
// "quantization_config" of the config.json has "quant_method": "gguf" and in "formats" the block
// format of each module whose weight is in blocks. Tensors keep the layout of llama.cpp, which
// differs from the layout of folders:
//
//   all            matrices are [out, in], GPT-2's too; rows of a joined product are q, k, v
//   gemma          weights of norms are greater by 1
//   llama          rows of q and k of a head are in neighbouring pairs that turn together
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "weft/io/gguf.h"
#include "weft/io/tensor_file.h"

namespace weft::io {

// Return the contents of a file of that folder; nullopt for a file that the folder would not have.
// Throw Error(usage) for an architecture that weft does not have, and Error(data) for metadata that
// is missing or of another type.
std::optional<std::string> text_of_folder(const Gguf& file, std::string_view name);
std::string config_json(const Gguf& file);
std::string tokenizer_json(const Gguf& file);

// Returns the tensors under published names. Throws as text_of_folder() does, and Error(usage) that
// names a tensor without a published name.
TensorFile published(const Gguf& file);

}  // namespace weft::io
