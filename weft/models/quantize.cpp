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

// Matrix is a weight [rows, columns] to encode.
struct Matrix {
  std::string path;
  Tensor numbers;
  const BlockFormat* format = nullptr;
};

// Returns the format of embeddings and head.
const BlockFormat& outer_format(const BlockFormat& format, int64_t row) {
  const BlockFormat& eight = block_format("Q8_0");
  const BlockFormat& six = block_format("Q6_K");
  if (format.bytes * six.numbers >= six.bytes * format.numbers) return format;
  return row % six.numbers == 0 ? six : eight;
}

void encode(io::NamedBytes& tensor, const Tensor& numbers, const BlockFormat& format,
            std::vector<std::byte>& blocks) {
  const std::vector<float> values = numbers.to_vector<float>();
  check_range(values, tensor.name);
  tensor.type = {DType::u8, {numbers.dim(0), numbers.dim(1) / format.numbers, format.bytes}};
  blocks.resize(tensor.type.bytes());
  encode_blocks(format, values, blocks);
  tensor.bytes = blocks;
}
}  // namespace

QuantizedDecoder quantize(const Decoder& model, const BlockFormat& format) {
  std::map<std::string, Matrix> matrices;
  const auto add = [&](const auto& layer, const Tensor& numbers, const BlockFormat& of) {
    WEFT_CHECK(layer.blocks() == nullptr, "[quantize] the weight of \"{}\" is in blocks already.",
               layer.path());
    matrices[layer.path() + ".weight"] = {layer.path(), numbers, &of};
  };
  for (const nn::Linear* layer : nn::linear_layers(model)) {
    const bool is_head = layer->path() == model.decoder_config().names.head;
    add(*layer, layer->matrix(), is_head ? outer_format(format, layer->in_features()) : format);
  }
  const nn::Embedding& tokens = model.embeddings();
  add(tokens, tokens.weight.value(), outer_format(format, model.decoder_config().hidden_size));
  QuantizedDecoder result{.tensors = published_tensors(model)};
  for (io::NamedBytes& tensor : result.tensors) {
    result.bytes_before += tensor.type.bytes();
    if (const auto found = matrices.find(tensor.name); found != matrices.end()) {
      const auto& [path, numbers, of] = found->second;
      if (numbers.dim(1) % of->numbers == 0) {
        result.formats[path] = of;
        encode(tensor, cast(numbers, DType::f32), *of, result.blocks.emplace_back());
      } else {
        ++result.left;
      }
    }
    result.bytes += tensor.type.bytes();
  }
  return result;
}

std::string quantized_config(const Decoder& model, const BlockFormat& format,
                             const QuantizedDecoder& quantized) {
  nn::Options config = model.config(), others;
  for (const auto& [path, of] : quantized.formats)
    if (of != &format || path == model.embeddings().path()) others.set(path, std::string(of->name));
  nn::Options how{{"quant_method", std::string("weft")}, {"format", std::string(format.name)}};
  if (!others.entries().empty()) how.set("formats", nn::NestedOptions(others));
  config.set("quantization_config", nn::NestedOptions(how));
  return json_text(config);
}

}  // namespace weft::models
