// A family of published models: those of one `model_type` of Hugging Face's config.json.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "weft/io/load.h"
#include "weft/models/model.h"

namespace weft::models {

struct Family {
  std::string model_type, doc;
  std::vector<std::string> architectures;  // the classes of transformers whose nets it makes
  // Makes the net of an architecture from the keys of config.json. Throws Error(usage) naming the
  // key and its limit for a net that weft does not have.
  std::function<std::unique_ptr<Model>(const nn::Options& config, std::string_view architecture)>
      make;
  // Says how the published files hold the parameters.
  std::function<io::LoadOptions(const nn::Options& config)> layout;
};

}  // namespace weft::models
