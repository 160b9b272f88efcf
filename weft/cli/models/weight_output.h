// Declares helpers of the verbs that write models: the output path, and the files beside the
// weights.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weft/base/numbers/dtype.h"
#include "weft/cli/command_line.h"
#include "weft/io/model_folder.h"
#include "weft/models/decoder.h"
#include "weft/models/pretrained.h"
#include "weft/models/quantize.h"

namespace weft::cli {

// OutputArguments are a verb's arguments for the files that it writes.
struct OutputArguments {
  std::string path, shard_bytes = "5GB";

  // Returns the limit of a file; refuses a path that exists, before anything is read.
  size_t checked() const;
  Option path_option(const std::string& doc);
  Option shard_option(const std::string& doc);
};

// Returns the model as a decoder. `only` ends the refusal of an encoder.
const models::Decoder& decoder_of(const models::Pretrained& model, const std::string& folder,
                                  std::string_view only);
// Warns where weights that are about to be written are NaN or infinite. `model` is the name of
// their model.
void warn_of_non_finite(const std::string& model, std::span<const io::NamedBytes> tensors);
// Writes a decoder with the tokenizer of `model`, its folder or file.
void write_gguf(const std::string& path, const std::string& model, const models::Decoder& decoder,
                const models::QuantizedDecoder* quantized);
// Returns the files of a folder, besides weights, that other programs need to run the model,
// config.json first. `config` replaces the contents of config.json, unless it is null; `dtype`
// replaces the type that config.json names.
std::vector<io::FolderFile> companions_of(const std::string& folder, std::optional<DType> dtype,
                                          const std::string* config);

}  // namespace weft::cli
