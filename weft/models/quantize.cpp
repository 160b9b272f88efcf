#include "weft/models/quantize.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <span>
#include <utility>

#include "weft/base/error.h"
#include "weft/models/config_json.h"
#include "weft/models/family.h"
#include "weft/nn/lora.h"
#include "weft/nn/moe.h"

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

// Weight is one [.., rows, columns] to encode.
struct Weight {
  std::string path;  // in QuantizedDecoder::formats
  Tensor numbers;
  const BlockFormat* format = nullptr;
};

// Returns the format of embeddings, head and routers.
const BlockFormat* outer_format(const BlockFormat* format, int64_t row) {
  const BlockFormat* eight = &block_format("Q8_0");
  const BlockFormat* six = &block_format("Q6_K");
  if (format->bytes * six->numbers >= six->bytes * format->numbers) return format;
  return row % six->numbers == 0 ? six : eight;
}

void encode(io::NamedBytes& tensor, const Tensor& numbers, const BlockFormat& format,
            std::vector<std::byte>& blocks) {
  const std::vector<float> values = numbers.to_vector<float>();
  check_range(values, tensor.name);
  Shape shape = numbers.shape();
  shape[shape.size() - 1] /= format.numbers;
  shape.push_back(format.bytes);
  tensor.type = {DType::u8, shape};
  tensor.buffer = nullptr;
  blocks.resize(tensor.type.bytes());
  encode_blocks(format, values, blocks);
  tensor.bytes = blocks;
}
}  // namespace

const BlockFormat* QuantizedDecoder::format_of(std::string_view tensor) const {
  constexpr std::string_view ending = ".weight";
  if (tensor.ends_with(ending)) tensor.remove_suffix(ending.size());
  const auto found = formats.find(std::string(tensor));
  return found != formats.end() ? found->second : nullptr;
}

QuantizedDecoder quantize(const Decoder& model, const BlockFormat& format) {
  std::map<std::string, Weight> weights;  // by name
  const auto add = [&](const std::string& path, const Tensor& numbers, const BlockFormat* blocks,
                       const BlockFormat& of, const char* ending = ".weight") {
    WEFT_CHECK(blocks == nullptr, "[quantize] the weight of \"{}\" is in blocks already.", path);
    weights[path + ending] = {path, numbers, &of};
  };
  std::set<const nn::Linear*> outer;
  for (const nn::SparseMoe* mixture : nn::mixtures_of(model)) {
    const nn::SparseMoe::Experts& experts = mixture->experts;
    for (const auto& weight : experts.weights())
      add(experts.path() + "." + weight.name, weight.variable.value(), weight.blocks, format, "");
    outer.insert(&mixture->gate);
  }
  for (const nn::Linear* layer : nn::linear_layers(model)) {
    const bool is_outer =
        outer.contains(layer) || layer->path() == model.decoder_config().names.head;
    add(layer->path(), layer->matrix(), layer->blocks(),
        is_outer ? *outer_format(&format, layer->in_features()) : format);
  }
  const nn::Embedding& tokens = model.embeddings();
  add(tokens.path(), tokens.weight.value(), tokens.blocks(),
      *outer_format(&format, model.decoder_config().hidden_size));
  QuantizedDecoder result{.tensors = io::bytes_of(io::state_of(model))};
  for (io::NamedBytes& tensor : result.tensors) {
    result.bytes_before += tensor.type.bytes();
    if (const auto found = weights.find(tensor.name); found != weights.end()) {
      const auto& [path, numbers, of] = found->second;
      if (numbers.dim(-1) % of->numbers == 0) {
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
  std::set<std::string> linear;
  for (const nn::Linear* layer : nn::linear_layers(model)) linear.insert(layer->path());
  for (const auto& [path, of] : quantized.formats)
    if (of != &format || !linear.contains(path)) others.set(path, std::string(of->name));
  nn::Options how{{"quant_method", std::string("weft")}, {"format", std::string(format.name)}};
  if (!others.entries().empty()) how.set("formats", nn::NestedOptions(others));
  config.set("quantization_config", nn::NestedOptions(how));
  return json_text(config);
}

}  // namespace weft::models
