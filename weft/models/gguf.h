// Writes decoders as GGUF files, which llama.cpp and weft read (weft/io/gguf_folder.h).
#pragma once

#include <memory>
#include <string>

#include "weft/io/gguf.h"
#include "weft/models/decoder.h"
#include "weft/models/quantize.h"

namespace weft::models {

struct GgufOptions {
  const QuantizedDecoder* quantized = nullptr;  // the weights that are in blocks; null: none
  std::string name = {};                        // general.name
  io::GgufMetadata tokenizer = {};              // io::tokenizer_metadata()
};
// Writes a decoder in llama.cpp's layout: vectors in float32, matrices as they are or in blocks.
// Throws Error(usage) that names the setting or tensor that llama.cpp's architecture lacks.
io::FileSummary write_gguf(const std::string& path, const Decoder& model,
                           const GgufOptions& options = {});

// Returns a decoder that has weights in blocks, or the layout of GGUF files (BlocksOf), as a folder
// of its family has it for other programs, with all weights as numbers of `dtype`.
std::unique_ptr<Decoder> folder_form(const Decoder& model, DType dtype);

}  // namespace weft::models
