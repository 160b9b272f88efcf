#include "weft/models/quantize.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <span>
#include <utility>

#include "weft/base/error.h"
#include "weft/models/config_json.h"
#include "weft/models/family.h"
#include "weft/nn/lora.h"

namespace weft::models {
namespace {
// Scales of blocks are float16, so that greater numbers could not be held.
void check_range(std::span<const float> numbers, const std::string& name) {
  constexpr float most = 65504;
  const auto wrong = std::ranges::find_if_not(numbers, [](float x) { return std::abs(x) <= most; });
  if (wrong != numbers.end())
    throw Error(ErrorKind::data,
                "tensor \"{}\" has {} at element {}. Numbers up to {} are quantized.", name, *wrong,
                wrong - numbers.begin(), most);
}
}  // namespace

QuantizedDecoder quantize(const Decoder& model, const BlockFormat& format) {
  std::map<std::string, const nn::Linear*> layers;
  for (const nn::Linear* layer : nn::linear_layers(model))
    layers[layer->path() + ".weight"] = layer;
  QuantizedDecoder result{.tensors = published_tensors(model)};
  for (io::NamedBytes& tensor : result.tensors) {
    result.bytes_before += tensor.type.bytes();
    const auto found = layers.find(tensor.name);
    if (found != layers.end()) {
      const nn::Linear& layer = *found->second;
      WEFT_CHECK(layer.blocks() == nullptr, "[quantize] the weight of \"{}\" is in blocks already.",
                 layer.path());
      if (layer.in_features() % format.numbers == 0) {
        const Tensor matrix = cast(layer.matrix(), DType::f32);
        const std::vector<float> numbers = matrix.to_vector<float>();
        check_range(numbers, tensor.name);
        const int64_t out = matrix.dim(0), each = layer.in_features() / format.numbers;
        tensor.type = {DType::u8, {out, each, format.bytes}};
        std::vector<std::byte>& blocks = result.blocks.emplace_back(tensor.type.bytes());
        encode_blocks(format, numbers, blocks);
        tensor.bytes = blocks;
        ++result.layers;
      } else {
        ++result.left;
      }
    }
    result.bytes += tensor.type.bytes();
  }
  return result;
}

std::string quantized_config(const Decoder& model, const BlockFormat& format) {
  nn::Options config = model.config();
  config.set("quantization_config",
             nn::NestedOptions(nn::Options{{"quant_method", std::string("weft")},
                                           {"format", std::string(format.name)}}));
  return json_text(config);
}

}  // namespace weft::models
