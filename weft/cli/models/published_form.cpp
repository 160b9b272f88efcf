#include "weft/cli/models/published_form.h"

#include <utility>

#include <nlohmann/json.hpp>

#include "weft/base/error.h"
#include "weft/data/text_codec.h"
#include "weft/data/tokenizer/vocabulary_json.h"
#include "weft/io/files.h"
#include "weft/io/json.h"
#include "weft/io/load.h"
#include "weft/io/model_folder.h"
#include "weft/models/config_json.h"
#include "weft/models/family.h"
#include "weft/models/gpt.h"
#include "weft/models/pretrained.h"
#include "weft/train/checkpoint/checkpoint.h"

namespace weft::cli {
namespace {
std::string config_text(nn::Options config, DType dtype) {
  // Without these keys, transformers takes the ids that its own tokenizer of the family has.
  for (const char* key : {"bos_token_id", "eos_token_id"}) config.set(key, std::monostate());
  config.set("torch_dtype", torch_name(dtype));
  return models::json_text(config);
}

// GPT-2's names have "mlp", which is no module of weft's GPT, and its matrices are [in, out].
PublishedForm gpt_form(const nn::Options& config, const train::WeightFiles& source) {
  nn::OptionReader sizes(config, "gpt");
  const models::GptConfig gpt = models::GptConfig::read(
      config, {.kind = InputKind::tokens,
               .input = {sizes.integer("max_position_embeddings", std::nullopt)},
               .classes = sizes.integer("vocab_size", std::nullopt)});
  const models::Family& family = registry::families().get("gpt2");
  const DType dtype = models::dtype_of_weights(source.files);
  const nn::BuildScope scope({.dtype = dtype, .initialize = false});
  PublishedForm form{.model = models::make_decoder(family.write(gpt.decoder()))};
  io::LoadOptions layout{.rename = {{"*", "transformer.*"},
                                    {"*.c_fc.*", "*.mlp.c_fc.*"},
                                    {"*.c_proj.*", "*.mlp.c_proj.*"},
                                    {"*.attn.mlp.c_proj.*", "*.attn.c_proj.*"}},
                         .transpose = {"*.c_attn.weight", "*.c_proj.weight", "*.c_fc.weight"},
                         .cast = true};
  if (!gpt.bias) layout.ignore = {"*.bias"};  // they stay zero
  models::as_data([&] { io::load(*form.model, source.files, layout); });
  form.config = config_text(form.model->config(), dtype);
  return form;
}

// Returns the vocabulary of a checkpoint as files that transformers reads; none where it has a
// tokenizer, or no text.
std::vector<io::FolderFile> vocabulary_files(const std::string& checkpoint) {
  const std::optional<data::TextCodec> codec = train::checkpoint_vocabulary(checkpoint);
  if (!codec || codec->vocabulary() == nullptr) return {};
  const nlohmann::json config{{"tokenizer_class", "PreTrainedTokenizerFast"},
                              {"clean_up_tokenization_spaces", false}};
  return {{"tokenizer.json", data::tokenizer_json(*codec->vocabulary())},
          {"tokenizer_config.json", io::json_text(config)}};
}

std::optional<PublishedForm> form_without_tokenizer(const nn::Options& config,
                                                    const train::WeightFiles& source) {
  const nn::Option* type = config.find("model_type");
  if (type == nullptr) return std::nullopt;
  if (*type == nn::Option(std::string("gpt"))) return gpt_form(config, source);
  // weft's own Llama checkpoints have no `architectures` key; nothing else is missing.
  if (*type != nn::Option(std::string("llama")) || config.find("architectures") != nullptr)
    return std::nullopt;
  const models::Family& family = models::family_of(config);
  return PublishedForm{.config = config_text(family.write(family.read(config)),
                                             models::dtype_of_weights(source.files))};
}
}  // namespace

std::string torch_name(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return "float64";
    case DType::bf16:
      return "bfloat16";
    case DType::f16:
      return "float16";
    default:
      return "float32";
  }
}

std::optional<PublishedForm> published_form(const train::WeightFiles& source) {
  const auto file = [&](const char* name) { return io::file_of_folder(source.folder, name); };
  const std::string path = file("config.json");
  const bool is_checkpoint = !source.folder.empty() && io::exists(file("MANIFEST.json"));
  if (!is_checkpoint || !io::exists(path)) return std::nullopt;
  std::optional<PublishedForm> form =
      form_without_tokenizer(models::read_config(source.folder), source);
  if (form) form->tokenizer = vocabulary_files(source.folder);
  return form;
}

}  // namespace weft::cli
