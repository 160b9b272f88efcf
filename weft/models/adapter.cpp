#include "weft/models/adapter.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <utility>

#include <fmt/format.h>

#include "weft/base/error.h"
#include "weft/io/files.h"
#include "weft/io/model_folder.h"
#include "weft/models/config_json.h"
#include "weft/models/pretrained.h"

namespace weft::models {
namespace {
constexpr size_t adapter_config_limit = size_t{1} << 20;  // bytes
const std::string prefix = "base_model.model.";  // PEFT's prefix to the names of the base model

// An Unset is a key that must be missing, empty or `value`: with other values an adapter computes
// something that weft does not implement.
struct Unset {
  std::string_view key;
  nn::Option value = std::monostate();
};
const std::array<Unset, 9> unset = {{{"rank_pattern"},
                                     {"alpha_pattern"},
                                     {"modules_to_save"},
                                     {"target_parameters"},
                                     {"trainable_token_indices"},
                                     {"layer_replication"},
                                     {"alora_invocation_tokens"},
                                     {"use_qalora", false},
                                     {"lora_bias", false}}};

bool is_unset(const nn::Option& option, const nn::Option& value) {
  if (std::holds_alternative<std::monostate>(option) || option == value) return true;
  const auto* nested = std::get_if<nn::NestedOptions>(&option);
  if (nested != nullptr) return (*nested)->entries().empty();
  const auto* list = std::get_if<std::vector<int64_t>>(&option);  // an empty list
  return list != nullptr && list->empty();
}

// Returns the paths of the layers that tensors adapt. Throws Error(data) for other tensors, and
// Error(checkpoint) for a damaged file.
std::vector<std::string> adapted_paths(const std::string& path) {
  const io::Safetensors file = io::Safetensors::open(path);
  std::vector<std::string> paths;
  for (const io::Safetensors::Entry& entry : file.entries()) {
    const size_t part = entry.name.rfind(".lora_");
    if (!entry.name.starts_with(prefix) || part == std::string::npos || part < prefix.size())
      throw Error(ErrorKind::data, "{}: tensor \"{}\" is no part of an adapter of low rank.", path,
                  io::printable(entry.name));
    std::string layer = entry.name.substr(prefix.size(), part - prefix.size());
    if (std::ranges::find(paths, layer) == paths.end()) paths.push_back(std::move(layer));
  }
  return paths;
}

// Throws Error(data) for a layer that target_modules does not name: the two files of the folder
// belong to different adapters.
void check_targets(const AdapterConfig& config, const std::vector<std::string>& paths,
                   const std::string& folder) {
  if (config.targets.empty()) return;
  for (const std::string& path : paths) {
    const bool is_named = std::ranges::any_of(config.targets, [&](const std::string& target) {
      return path == target || path.ends_with("." + target);
    });
    if (!is_named)
      throw Error(ErrorKind::data,
                  "{}: {} has tensors of \"{}\", which target_modules of {} does not name: [{}].",
                  folder, adapter_weights_file, io::printable(path), adapter_config_file,
                  io::printable(fmt::format("{}", fmt::join(config.targets, ", ")).substr(0, 200)));
  }
}
}  // namespace

AdapterConfig parse_adapter_config(std::string_view text, const std::string& name) {
  const nn::Options options = parse_options(text, name);
  nn::OptionReader reader(options, name);
  const std::string type = reader.text("peft_type", "");
  if (type != "LORA")
    throw Error(ErrorKind::usage, "{}: peft_type must be LORA. Got \"{}\".", name,
                io::printable(type.substr(0, 60)));
  for (const auto& [key, value] : unset)
    if (const nn::Option* found = options.find(key); found != nullptr && !is_unset(*found, value))
      throw Error(ErrorKind::usage, "{}: weft does not read adapters with {}. Got {}.", name, key,
                  io::printable(nn::to_string(*found).substr(0, 60)));
  // Other ways to begin with change the weights of the base, too, whenever PEFT loads the adapter.
  constexpr std::string_view beginnings[] = {"gaussian", "eva", "orthogonal"};
  if (const nn::Option* found = options.find("init_lora_weights"))
    if (const auto* begins = std::get_if<std::string>(found);
        begins != nullptr && std::ranges::find(beginnings, *begins) == std::end(beginnings))
      throw Error(ErrorKind::usage,
                  "{}: init_lora_weights \"{}\" changes the weights of the base model, which weft "
                  "does not. Hint: PEFT converts such adapters "
                  "(path_initial_model_for_weight_conversion).",
                  name, io::printable(begins->substr(0, 60)));
  constexpr std::string_view biases[] = {"none"};
  reader.choice("bias", "none", biases);
  std::vector<std::string> targets;
  if (const nn::Option* found = options.find("target_modules"))
    if (const auto* list = std::get_if<std::vector<std::string>>(found)) targets = *list;
  return {.lora = {.r = reader.integer("r", 8, 1, 1 << 16),
                   .lora_alpha = reader.number("lora_alpha", 8, -1e9, 1e9),
                   .lora_dropout = reader.number("lora_dropout", 0, 0, 0.999),
                   .use_rslora = reader.flag("use_rslora", false),
                   .use_dora = reader.flag("use_dora", false)},
          .base = reader.text("base_model_name_or_path", ""),
          .targets = std::move(targets)};
}

bool is_adapter_folder(const std::string& folder) {
  std::error_code ignored;
  return std::filesystem::exists(std::filesystem::path(folder) / adapter_config_file, ignored);
}

AdapterConfig read_adapter_config(const std::string& folder) {
  const std::string path = io::file_of_folder(folder, std::string(adapter_config_file));
  return parse_adapter_config(io::read_file(path, adapter_config_limit), path);
}

AdapterConfig load_adapter(Model& model, const std::string& folder) {
  const AdapterConfig config = read_adapter_config(folder);
  const std::string weights = io::file_of_folder(folder, std::string(adapter_weights_file));
  std::vector<std::string> paths;
  as_data([&] { paths = adapted_paths(weights); });
  if (paths.empty()) throw Error(ErrorKind::data, "{} has no tensors.", weights);
  check_targets(config, paths, folder);
  try {
    nn::add_lora(model, paths, config.lora);
  } catch (const Error& error) {
    throw Error(ErrorKind::data, "{}: the adapter is for another model: {}", weights, error.what());
  }
  as_data([&] { load_adapter_weights(model, weights); });
  return config;
}

void load_adapter_weights(const Model& model, const std::string& file) {
  io::NamedVariables variables;
  for (const nn::NamedVariable& entry : nn::lora_parameters(model))
    variables.emplace_back(entry.name, entry.variable);
  io::load_into(file, variables, {.prefix = prefix, .cast = true});
}

std::string adapter_config_text(const Model& model, const AdapterConfig& config) {
  std::vector<std::string> targets;
  bool transposed = false;
  for (const nn::Linear* layer : nn::adapted_layers(model)) {
    targets.push_back(layer->path());
    transposed = transposed || layer->transposed();
  }
  const nn::LoraOptions& lora = config.lora;
  return json_text({{"peft_type", std::string("LORA")},
                    {"task_type", std::string("CAUSAL_LM")},
                    {"base_model_name_or_path",
                     config.base.empty() ? nn::Option(std::monostate()) : nn::Option(config.base)},
                    {"inference_mode", true},
                    {"bias", std::string("none")},
                    {"fan_in_fan_out", transposed},
                    {"r", lora.r},
                    {"lora_alpha", lora.lora_alpha},
                    {"lora_dropout", lora.lora_dropout},
                    {"use_rslora", lora.use_rslora},
                    {"use_dora", lora.use_dora},
                    {"target_modules", std::move(targets)}});
}

std::vector<io::NamedBytes> adapter_tensors(const Model& model) {
  io::NamedVariables variables;
  for (const nn::NamedVariable& entry : nn::lora_parameters(model))
    variables.emplace_back(prefix + entry.name, entry.variable);
  return io::bytes_of(variables);
}

}  // namespace weft::models
