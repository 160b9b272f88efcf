#include "weft/models/family.h"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>

#include "weft/base/error.h"
#include "weft/base/numbers/block_format.h"
#include "weft/base/text/utf8.h"
#include "weft/io/gguf_architecture.h"
#include "weft/models/families/encoders.h"
#include "weft/models/families/families.h"

namespace weft::models {
namespace {
// Token ids say nothing of the maths, but belong to the model: they are kept.
constexpr std::array<std::string_view, 3> token_ids = {"bos_token_id", "eos_token_id",
                                                       "pad_token_id"};
// These keys say how transformers runs, loads or labels a model, or describe its file.
constexpr auto ignored = std::to_array<std::string_view>({
    "architectures",
    "model_type",
    "dtype",
    "torch_dtype",
    "transformers_version",
    "_name_or_path",
    "name_or_path",
    "auto_map",
    "use_cache",
    "cache_implementation",
    "attn_implementation",
    "_attn_implementation",
    "_attn_implementation_autoset",
    "pretraining_tp",
    "tokenizer_class",
    "unk_token_id",
    "sep_token_id",
    "decoder_start_token_id",
    "is_decoder",
    "is_encoder_decoder",
    "output_attentions",
    "output_hidden_states",
    "return_dict",
    "use_return_dict",
    "torchscript",
    "gradient_checkpointing",
    "chunk_size_feed_forward",
    "problem_type",
    "id2label",
    "label2id",
    "num_labels",
    "finetuning_task",
    "task_specific_params",
    "classifier_dropout",
    "summary_activation",
    "summary_first_dropout",
    "summary_proj_to_labels",
    "summary_type",
    "summary_use_proj",
    "unsloth_version",
    "unsloth_fixed",
    "use_bfloat16",
});

// These are the matrices of nn::SparseMoe's experts.
constexpr std::array<std::string_view, 3> expert_parts = {"w1", "w2", "w3"};

// Returns "quantization_config" if weft itself wrote it, also for a GGUF file; else null.
const nn::Options* our_quantization(nn::OptionReader& reader) {
  const nn::Options* quantized = reader.nested("quantization_config");
  if (quantized == nullptr) return nullptr;
  nn::OptionReader how(*quantized, "quantization_config");
  const std::string method = how.text("quant_method", "");
  return method == "weft" || method == "gguf" ? quantized : nullptr;
}

// Refuses weights that another program packed: their tensors are not the model's.
void refuse_quantized(const nn::Options& config, const Family& family) {
  const nn::Option* found = config.find("quantization_config");
  if (found == nullptr || std::holds_alternative<std::monostate>(*found)) return;
  nn::OptionReader reader(config, "config.json");
  if (our_quantization(reader) != nullptr) return;
  throw Error(
      ErrorKind::usage,
      "[{}] quantization_config: the weights are quantized, which weft does not read. Hint: "
      "use the folder of the model in its full precision.",
      family.name);
}
}  // namespace

DecoderConfig Family::read(const nn::Options& config) const {
  refuse_quantized(config, *this);
  ConfigKeys keys(config, name);
  DecoderConfig decoder = defaults;
  bind(keys, decoder);
  nn::OptionReader& reader = *keys.reader();
  for (std::string_view key : ignored) reader.ignore(key);
  for (std::string_view key : token_ids) reader.ignore(key);
  reader.ignore("quantization_config");
  keys.warn_unread(reader);
  decoder.unapplied = keys.unapplied();
  return decoder;
}

nn::Options Family::write(const DecoderConfig& config) const {
  ConfigKeys keys(name);
  DecoderConfig decoder = config;
  bind(keys, decoder);
  keys.write("model_type", name);
  keys.write("architectures", std::vector<std::string>{architecture});
  return keys.written();
}

std::vector<std::pair<std::string, std::string>> known_model_types() {
  std::vector<std::pair<std::string, std::string>> known = {
      {"gemma3", "the text part of a Gemma 3 that reads images, as gemma3_text"}};
  for (const Family& family : registry::families()) known.emplace_back(family.name, family.doc);
  for (const EncoderFamily& family : encoder_families())
    known.emplace_back(family.name, family.doc);
  std::ranges::sort(known);
  return known;
}

const Family& family_of(const nn::Options& config) {
  nn::OptionReader reader(config, "config.json");
  const std::string type = reader.text("model_type", "");
  if (const Family* found = registry::families().find(type)) return *found;
  std::string architectures;
  for (const std::string& architecture : reader.texts("architectures"))
    if (architectures.size() < 100)
      architectures += (architectures.empty() ? "" : ", ") + escaped(architecture.substr(0, 60));
  std::vector<std::string> known;
  for (const auto& [name, doc] : known_model_types()) known.push_back(name);
  throw Error(ErrorKind::usage, "{}{}. Known: {}.",
              type.empty() ? "model_type is missing"
                           : fmt::format("unknown model_type \"{}\"", escaped(type.substr(0, 60))),
              architectures.empty() ? "" : fmt::format(" (architectures: {})", architectures),
              fmt::join(known, ", "));
}

BlocksOf blocks_of(const nn::Options& config) {
  nn::OptionReader reader(config, "config.json");
  const nn::Options* quantized = our_quantization(reader);
  BlocksOf blocks;
  if (quantized == nullptr) return blocks;
  nn::OptionReader how(*quantized, "quantization_config");
  blocks.is_gguf = how.text("quant_method", "") == "gguf";
  if (!blocks.is_gguf) blocks.linear = block_format(how.text("format", "")).name;
  if (const nn::Options* modules = how.nested("formats"))
    for (const auto& [path, format] : modules->entries()) {
      const auto* name = std::get_if<std::string>(&format);
      if (name == nullptr)
        throw Error(ErrorKind::usage, "quantization_config.formats: {} must be a format. Got {}.",
                    escaped(path.substr(0, 100)), nn::to_string(format));
      blocks.modules.emplace(path, block_format(*name).name);
    }
  return blocks;
}

std::string_view BlocksOf::at(const nn::Module& layer, const std::string& path) const {
  if (const auto found = modules.find(path); found != modules.end()) return found->second;
  const bool is_linear = dynamic_cast<const nn::Linear*>(&layer) != nullptr;
  return is_linear ? std::string_view(linear) : std::string_view();
}

namespace {
// Sets the fields of the layout in which llama.cpp's files differ from folders.
void set_gguf_layout(DecoderConfig& decoder, const Family& family) {
  decoder.transposed = decoder.qkv_by_head = false;
  if (decoder.norm == DecoderConfig::Norm::rms_plus_one) decoder.norm = DecoderConfig::Norm::rms;
  const io::GgufArchitecture* architecture = io::architecture_of_type(family.name);
  decoder.rope_in_pairs = architecture != nullptr && architecture->rope_in_pairs;
}
}  // namespace

std::unique_ptr<Decoder> make_decoder(const nn::Options& config) {
  const nn::Options text = text_part(config);
  const Family& family = family_of(text);
  DecoderConfig decoder = family.read(text);
  nn::Options options = family.write(decoder);
  for (std::string_view key : token_ids)
    if (const nn::Option* id = text.find(key)) options.set(std::string(key), *id);
  const BlocksOf blocks = blocks_of(text);
  if (blocks.is_gguf) set_gguf_layout(decoder, family);
  if (blocks.is_gguf || !blocks.empty())
    options.set("quantization_config", *text.find("quantization_config"));
  const nn::BuildScope scope({.dtype = nn::parameter_dtype(),
                              .initialize = nn::initializes_parameters(),
                              .blocks = [&](const nn::Module& layer, const std::string& path) {
                                return blocks.at(layer, path);
                              }});
  return std::make_unique<Decoder>(std::move(decoder), std::move(options));
}

io::LoadOptions load_layout(const DecoderConfig& config, std::span<const std::string> names) {
  const std::string root = config.names.root + ".", head = config.names.head + ".";
  // Older versions of transformers saved these buffers: masks, and tables of positions.
  io::LoadOptions layout{.ignore = {"*.rotary_emb.*", "*.attn.bias", "*.attention.bias",
                                    "*.masked_bias", "*.position_ids"}};
  if (config.tie_word_embeddings) layout.ignore.push_back(head + "*");
  const auto begins = [&](const std::string& with) {
    return std::ranges::any_of(names,
                               [&](const std::string& name) { return name.starts_with(with); });
  };
  const bool is_part = begins("language_model.") || begins("model.language_model.");
  const bool lacks_root = !is_part && !config.names.root.empty() && !begins(root);
  if (is_part) {  // the text part of a model of text and images
    layout.aliases = {{"language_model.model.*", root + "*"},
                      {"model.language_model.*", root + "*"},
                      {"language_model." + head + "*", head + "*"},
                      {"language_model.*", root + "*"}};
    for (const char* module : {"vision_tower", "multi_modal_projector"})
      for (const char* parent : {"", "model."})
        layout.ignore.push_back(fmt::format("{}{}.*", parent, module));
  }
  if (lacks_root) {  // a model that was saved without its head
    layout.rename.emplace_back("*", root + "*");
    if (begins(head)) layout.rename.emplace_back(root + head + "*", head + "*");
  }
  const bool stacked = std::ranges::any_of(names, [](const std::string& name) {
    return name.ends_with(fmt::format(".experts.{}", expert_parts[0]));
  });
  if (config.num_experts > 0 && !stacked)
    for (std::string_view part : expert_parts)
      layout.stack.emplace_back(fmt::format("*.experts.{{}}.{}.weight", part),
                                fmt::format("*.experts.{}", part));
  return layout;
}

std::vector<io::NamedBytes> published_tensors(std::vector<io::NamedBytes> tensors) {
  std::vector<io::NamedBytes> published;
  for (io::NamedBytes& tensor : tensors) {
    const size_t dot = tensor.name.rfind('.');
    const std::string_view module = std::string_view(tensor.name).substr(0, dot);
    const std::string_view part = std::string_view(tensor.name).substr(dot + 1);
    if (!module.ends_with(".experts") ||
        std::ranges::find(expert_parts, part) == expert_parts.end()) {
      published.push_back(std::move(tensor));
      continue;
    }
    std::vector<io::NamedBytes> experts = io::slices_of(tensor);
    for (size_t expert = 0; expert < experts.size(); ++expert) {
      experts[expert].name = fmt::format("{}.{}.{}.weight", module, expert, part);
      published.push_back(std::move(experts[expert]));
    }
  }
  return published;
}
std::vector<io::NamedBytes> published_tensors(const Decoder& model) {
  return published_tensors(io::bytes_of(io::state_of(model)));
}

}  // namespace weft::models

weft::Registry<weft::models::Family>& weft::registry::families() {
  static Registry<models::Family> families("model", "family", models::published_families());
  return families;
}
