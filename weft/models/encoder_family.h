// Declares a family of published encoders: the encoders that share one `model_type` in Hugging
// Face's config.json.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "weft/io/load.h"
#include "weft/models/encoder.h"

namespace weft::models {

struct EncoderFamily {
  std::string name, doc;                   // `name` is the model_type
  std::vector<std::string> architectures;  // the classes of transformers whose nets it makes
  // Makes the net of an architecture from the keys of config.json. Throws Error(usage) naming the
  // key and its limit for a net that weft does not have.
  std::function<std::unique_ptr<Encoder>(const nn::Options& config, std::string_view architecture)>
      make;
  io::LoadOptions layout;  // how published files hold the parameters
};

}  // namespace weft::models
