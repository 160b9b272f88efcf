#include "weft/models/gguf.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <deque>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "weft/base/error.h"
#include "weft/base/logging.h"
#include "weft/io/gguf_architecture.h"
#include "weft/io/gguf_folder.h"
#include "weft/io/gguf_tokenizer.h"
#include "weft/models/config_json.h"
#include "weft/models/family.h"
#include "weft/tensor/blocks.h"

namespace weft::models {
namespace {
using io::GgufTensor;
using Bytes = std::vector<std::byte>;

const io::GgufArchitecture& architecture_of(const Decoder& model) {
  nn::OptionReader reader(model.config(), "config.json");
  const std::string type = reader.text("model_type", "");
  if (const io::GgufArchitecture* found = io::architecture_of_type(type)) return *found;
  throw Error(ErrorKind::usage, "llama.cpp has no architecture that weft knows for \"{}\".", type);
}

// Collects metadata under the keys of one architecture.
struct Keys {
  const io::GgufArchitecture& architecture;
  io::GgufMetadata metadata = {};

  void add(std::string_view suffix, io::GgufValue value) {
    metadata.emplace_back(fmt::format("{}.{}", architecture.name, suffix), std::move(value));
  }
  void whole(std::string_view suffix, int64_t value) { add(suffix, static_cast<uint32_t>(value)); }
  void real(std::string_view suffix, double value) { add(suffix, static_cast<float>(value)); }
};

int64_t rotated(const DecoderConfig& config) {
  return config.rope_dimension > 0 ? config.rope_dimension : config.head_dim;
}

void add_scaling(Keys& keys, const nn::RopeOptions& rope) {
  // Without the type, llama.cpp's llama does not expect the factors of longrope.
  if (rope.type == "linear" || rope.type == "yarn" || rope.type == "longrope")
    keys.add("rope.scaling.type", rope.type);
  if (rope.type == "linear" || rope.type == "yarn") keys.real("rope.scaling.factor", rope.factor);
  if (rope.type == "yarn" || rope.type == "longrope")
    keys.whole("rope.scaling.original_context_length", rope.original_positions);
  if (rope.type == "longrope")
    keys.real("rope.scaling.attn_factor",
              nn::rope_frequencies(rope, 2 * std::ssize(rope.long_factor), 1).scale);
}

io::GgufMetadata metadata_of(const Decoder& model, const GgufOptions& options) {
  const DecoderConfig& config = model.decoder_config();
  Keys keys{architecture_of(model)};
  keys.metadata.emplace_back("general.architecture", std::string(keys.architecture.name));
  if (!options.name.empty()) keys.metadata.emplace_back("general.name", options.name);
  if (options.quantized != nullptr)
    keys.metadata.emplace_back("general.quantization_version", uint32_t{2});
  keys.whole("block_count", std::ssize(config.layers));
  const bool is_linear = !config.ropes.empty() && config.ropes[0].type == "linear";
  keys.whole("context_length",
             is_linear ? config.ropes[0].original_positions : config.max_position_embeddings);
  keys.whole("embedding_length", config.hidden_size);
  keys.whole("feed_forward_length", config.intermediate_size);
  keys.whole("vocab_size", config.vocab_size);
  keys.whole("attention.head_count", config.num_attention_heads);
  keys.whole("attention.head_count_kv", config.num_key_value_heads);
  keys.whole("attention.key_length", config.head_dim);
  keys.whole("attention.value_length", config.head_dim);
  const bool is_layer_norm = config.norm == DecoderConfig::Norm::layer;
  keys.real(is_layer_norm ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon",
            config.norm_eps);
  if (!config.ropes.empty()) {
    keys.real("rope.freq_base", config.ropes[0].theta);
    keys.whole("rope.dimension_count", rotated(config));
    add_scaling(keys, config.ropes[0]);
  }
  int64_t window = 0;
  for (const DecoderLayer& layer : config.layers) window = std::max(window, layer.window);
  if (window > 0) keys.whole("attention.sliding_window", window);
  if (window > 0 && (keys.architecture.name == "llama" || keys.architecture.name == "phi3"))
    logging::warn(
        "llama.cpp computes no sliding window of its architecture {}: beyond {} tokens it "
        "computes something else than this model.",
        keys.architecture.name, window);
  if (config.attention_softcap > 0) keys.real("attn_logit_softcapping", config.attention_softcap);
  if (config.logit_softcap > 0) keys.real("final_logit_softcapping", config.logit_softcap);
  if (config.num_experts > 0) {
    keys.whole("expert_count", config.num_experts);
    keys.whole("expert_used_count", config.num_experts_per_tok);
  }
  if (keys.architecture.name == "gptneox") keys.add("use_parallel_residual", config.parallel);
  std::ranges::copy(options.tokenizer, std::back_inserter(keys.metadata));
  if (options.tokenizer.empty())
    keys.metadata.emplace_back("tokenizer.ggml.model", std::string(io::no_tokenizer));
  return std::move(keys.metadata);
}

// Returns the rows in another order: row i of the result is row order(i).
template <class Order>
Bytes reordered(std::span<const std::byte> rows, int64_t count, const Order& order) {
  Bytes result(rows.size());
  const size_t each = rows.size() / static_cast<size_t>(count);
  for (int64_t i = 0; i < count; ++i)
    std::memcpy(result.data() + static_cast<size_t>(i) * each,
                rows.data() + static_cast<size_t>(order(i)) * each, each);
  return result;
}

Tensor over(const io::NamedBytes& tensor) {
  auto copy = Buffer::allocate(tensor.bytes.size());
  std::ranges::copy(tensor.bytes, copy->data);
  return tensor_over(copy, copy->data, tensor.type);
}
Bytes bytes_of(const Tensor& tensor) {
  const std::vector<double> values = tensor.to_doubles();
  Bytes bytes(tensor.type().bytes());
  for (size_t i = 0; i < values.size(); ++i)
    store(bytes.data(), tensor.dtype(), static_cast<int64_t>(i), values[i]);
  return bytes;
}

// Layout turns the tensors of a decoder into llama.cpp's, and owns the bytes that it converted.
class Layout {
 public:
  explicit Layout(const Decoder& model)
      : config_(model.decoder_config()), architecture_(architecture_of(model)) {}

  GgufTensor operator()(io::NamedBytes tensor, const BlockFormat* format) {
    const auto name = io::gguf_name(architecture_, tensor.name);
    if (!name || (tensor.name.ends_with(".bias") && !architecture_.biases))
      throw Error(ErrorKind::usage, "llama.cpp's {} has no tensor for \"{}\".", architecture_.name,
                  tensor.name);
    const DecoderNames& names = config_.names;
    const std::string_view module = std::string_view(tensor.name).substr(0, tensor.name.rfind('.'));
    const bool is_vector = tensor.type.shape.size() == 1;
    if (is_vector) set(tensor, vector_of(tensor, module));
    const bool is_linear = !is_vector && format == nullptr && tensor.type.shape.size() == 2 &&
                           module.find(names.layers + ".") != std::string_view::npos;
    if (is_linear && config_.transposed) set(tensor, transpose(over(tensor)));
    const auto ends = [&](const std::string& part) {
      return !part.empty() && module.ends_with("." + part);
    };
    if (architecture_.rope_in_pairs && !config_.rope_in_pairs && (ends(names.q) || ends(names.k)))
      in_pairs(tensor);
    if (config_.qkv_by_head && ends(names.qkv)) by_part(tensor);
    return {*name, tensor.type, format, tensor.bytes};
  }
  // Returns the factors by which frequencies of scaled rotary positions are divided.
  std::vector<GgufTensor> factors() {
    std::vector<GgufTensor> tensors;
    if (config_.ropes.empty()) return tensors;
    const nn::RopeOptions& rope = config_.ropes[0];
    if (rope.type == "longrope") {
      tensors.push_back(numbers("rope_factors_short.weight", rope.short_factor));
      tensors.push_back(numbers("rope_factors_long.weight", rope.long_factor));
    }
    if (rope.type == "llama3") {
      const std::vector<double> scaled = nn::rope_frequencies(rope, rotated(config_), 1).inverse;
      std::vector<double> divisors =
          nn::rope_frequencies({.theta = rope.theta}, rotated(config_), 1).inverse;
      for (size_t i = 0; i < scaled.size(); ++i) divisors[i] /= scaled[i];
      tensors.push_back(numbers("rope_freqs.weight", divisors));
    }
    return tensors;
  }

 private:
  GgufTensor numbers(const std::string& name, const std::vector<double>& values) {
    Bytes& bytes = made_.emplace_back(values.size() * sizeof(float));
    for (size_t i = 0; i < values.size(); ++i)
      store(bytes.data(), DType::f32, static_cast<int64_t>(i), values[i]);
    return {name, {DType::f32, {std::ssize(values)}}, nullptr, bytes};
  }
  void set(io::NamedBytes& tensor, const Tensor& value) {
    tensor.type = value.type();
    tensor.bytes = made_.emplace_back(bytes_of(value));
  }
  // Returns a bias or the weight of a norm.
  Tensor vector_of(const io::NamedBytes& tensor, std::string_view module) const {
    const Tensor value = cast(over(tensor), DType::f32);
    const bool adds_one =
        config_.norm == DecoderConfig::Norm::rms_plus_one && module.ends_with("norm");
    return adds_one ? value + 1 : value;
  }
  // Moves the rows of each head from two halves to neighbouring pairs.
  void in_pairs(io::NamedBytes& tensor) {
    const int64_t depth = config_.head_dim, half = depth / 2, rows = tensor.type.shape[0];
    tensor.bytes = made_.emplace_back(reordered(tensor.bytes, rows, [&](int64_t i) {
      const int64_t head = i / depth, at = i % depth;
      return head * depth + at % 2 * half + at / 2;
    }));
  }
  // Moves rows of q, k, v for each head to all of q, all of k, all of v.
  void by_part(io::NamedBytes& tensor) {
    const int64_t depth = config_.head_dim, heads = config_.num_attention_heads;
    const int64_t rows = tensor.type.shape[0];
    tensor.bytes = made_.emplace_back(reordered(tensor.bytes, rows, [&](int64_t i) {
      const int64_t part = i / (heads * depth), head = i / depth % heads, at = i % depth;
      return (head * 3 + part) * depth + at;
    }));
  }

  const DecoderConfig& config_;
  const io::GgufArchitecture& architecture_;
  std::deque<Bytes> made_;
};

// Returns whether sequences of up to `length` tokens have the same rotary positions.
bool turn_alike(const DecoderConfig& a, const DecoderConfig& b, int64_t length) {
  if (a.ropes.size() != b.ropes.size()) return false;
  for (size_t i = 0; i < a.ropes.size(); ++i) {
    const auto x = nn::rope_frequencies(a.ropes[i], rotated(a), length);
    const auto y = nn::rope_frequencies(b.ropes[i], rotated(b), length);
    const auto near = [](double u, double v) { return std::abs(u - v) <= 1e-5 * std::abs(v); };
    if (!near(x.scale, y.scale) || !std::ranges::equal(x.inverse, y.inverse, near)) return false;
  }
  return true;
}

// Throws if the file lost a setting of the model: reads the file's settings again, and compares
// them with the model's.
void check_said(const std::string& path, const Decoder& model) {
  const Family& family = family_of(model.config());
  nn::Options config = parse_options(io::config_json(io::Gguf::open(path)), path);
  const nn::Options wanted = family.write(model.decoder_config());
  // llama.cpp's file of a Mistral without a window is one of a Llama, and has no key for it. In
  // config.json a Mistral without this key has the default window.
  const char* window = "sliding_window";
  if (wanted.find(window) != nullptr && config.find(window) == nullptr)
    config.set(window, std::monostate());
  const DecoderConfig &ours = model.decoder_config(), theirs = family.read(config);
  for (int64_t length : {int64_t{1}, ours.max_position_embeddings})
    if (!turn_alike(theirs, ours, length))
      throw Error(ErrorKind::usage,
                  "llama.cpp's files cannot say how this {} scales its rotary positions.",
                  family.name);
  const nn::Options read = family.write(theirs);
  constexpr std::array<std::string_view, 12> only_trained = {
      "initializer_range", "attention_dropout", "hidden_dropout",     "resid_pdrop",
      "embd_pdrop",        "attn_pdrop",        "rope_scaling",       "rope_theta",
      "rms_norm_eps",      "layer_norm_eps",    "layer_norm_epsilon", "max_window_layers"};
  for (const auto& [key, value] : wanted.entries()) {
    const nn::Option* found = read.find(key);
    if (std::ranges::find(only_trained, key) != only_trained.end()) continue;
    if (found != nullptr && (*found == value || nn::to_string(*found) == nn::to_string(value)))
      continue;
    throw Error(ErrorKind::usage, "llama.cpp's files cannot say {}: {} of this {} (they say {}).",
                key, nn::to_string(value), family.name,
                found != nullptr ? nn::to_string(*found) : "nothing");
  }
}
}  // namespace

io::FileSummary write_gguf(const std::string& path, const Decoder& model,
                           const GgufOptions& options) {
  const DecoderConfig& config = model.decoder_config();
  if (!config.ropes.empty() && config.ropes[0].type == "dynamic")
    throw Error(ErrorKind::usage, "llama.cpp has no rotary positions of type \"dynamic\".");
  if (architecture_of(model).name == "gptneox" && (config.tie_word_embeddings || !config.qkv_bias))
    throw Error(ErrorKind::usage,
                "llama.cpp's gptneox has a head that is not tied to the embeddings, and biases of "
                "attention. This one has {}.",
                config.tie_word_embeddings ? "a tied head" : "no such biases");
  Layout layout(model);
  std::vector<GgufTensor> tensors = layout.factors();
  const QuantizedDecoder* quantized = options.quantized;
  // llama.cpp's files stack the experts of a layer in one tensor, as the model does.
  const std::vector<io::NamedBytes> state =
      quantized != nullptr ? quantized->tensors : io::bytes_of(io::state_of(model));
  for (const io::NamedBytes& tensor : state)
    tensors.push_back(
        layout(tensor, quantized != nullptr ? quantized->format_of(tensor.name) : nullptr));
  io::FileSummary summary = io::write_gguf(path, tensors, metadata_of(model, options));
  try {
    check_said(path, model);
  } catch (...) {
    std::error_code ignored;
    std::filesystem::remove(path, ignored);
    throw;
  }
  return summary;
}

namespace {
// Moves neighbouring pairs of rows of each head to two halves.
Tensor in_halves(const Tensor& rows, int64_t depth) {
  const int64_t heads = rows.dim(0) / depth;
  return reshape(permute(reshape(rows, {heads, depth / 2, 2, -1}), {0, 2, 1, 3}), rows.shape());
}
// Moves all of q, all of k and all of v to the three of each head.
Tensor by_head(const Tensor& rows, int64_t depth) {
  const int64_t heads = rows.dim(0) / (3 * depth);
  return reshape(permute(reshape(rows, {3, heads, depth, -1}), {1, 0, 2, 3}), rows.shape());
}
}  // namespace

std::unique_ptr<Decoder> folder_form(const Decoder& model, DType dtype) {
  nn::Options options;
  for (const auto& [key, value] : model.config().entries())
    if (key != "quantization_config") options.set(key, value);
  const nn::BuildScope scope({.dtype = dtype, .initialize = false});
  auto folder = make_decoder(options);
  const DecoderConfig &from = model.decoder_config(), &to = folder->decoder_config();
  const BlocksOf blocks = blocks_of(model.config());
  std::map<std::string, Variable> variables;
  for (const auto& [name, variable] : io::state_of(model)) variables.emplace(name, variable);
  for (const auto& [name, variable] : io::state_of(*folder)) {
    const std::string module = name.substr(0, name.rfind('.'));
    const auto ends = [&](const std::string& part) {
      return !part.empty() && module.ends_with("." + part);
    };
    Tensor value = variables.at(name).value();
    if (value.dtype() == DType::u8) {
      const bool is_named = name.ends_with(".weight");  // else experts
      const auto found = blocks.modules.find(is_named ? module : name);
      value =
          dequantize_blocks(value, found != blocks.modules.end() ? found->second : blocks.linear);
    }
    if (from.rope_in_pairs && !to.rope_in_pairs && (ends(to.names.q) || ends(to.names.k)))
      value = in_halves(value, to.head_dim);
    if (to.qkv_by_head && !from.qkv_by_head && ends(to.names.qkv))
      value = by_head(value, to.head_dim);
    const bool in_layer = module.find(to.names.layers + ".") != std::string::npos;
    if (to.transposed && !from.transposed && in_layer && value.rank() == 2)
      value = transpose(value);
    if (to.norm == DecoderConfig::Norm::rms_plus_one && from.norm == DecoderConfig::Norm::rms &&
        value.rank() == 1 && module.ends_with("norm"))
      value = value - 1;
    variable.assign(cast(value, variable.dtype()));
  }
  return folder;
}

}  // namespace weft::models
