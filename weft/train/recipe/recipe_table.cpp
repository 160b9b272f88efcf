// Defines the single table of recipe keys, and the pages that are generated from it. It is one file
// because most of it is that table.
#include <algorithm>
#include <list>
#include <mutex>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "weft/base/error.h"
#include "weft/base/text/lower.h"
#include "weft/device/catalogue.h"
#include "weft/io/json.h"
#include "weft/ir/value.h"
#include "weft/optim/registry.h"
#include "weft/train/recipe/recipe.h"
#include "weft/train/task/dataset.h"
#include "weft/train/task/loss.h"
#include "weft/train/task/metric.h"

namespace weft::train {
namespace {
using enum KeyType;
constexpr double many = most_exact;

constexpr RecipeKey table[] = {
    {"name", text, "run", "", 0, 0, "name of the run; its folder is runs/NAME"},
    {"task", text, "auto", "auto, classification, causal_lm, masked_lm, regression", 0, 0,
     "what the model learns; auto: set by the data (csv: regression), masked_lm for a published "
     "encoder on text; masked_lm: BERT's masked tokens"},
    {"seed", integer, "0", "", 0, many, "random seed of initial weights, sample order and dropout"},
    {"model.name", text, "null", "", 0, 0,
     "name of a built-in model (weft list models); set exactly one of model.name, "
     "model.pretrained and model.layers"},
    {"model.pretrained", text, "null", "", 0, 0,
     "folder of a published language model or encoder, which is trained further: config.json, "
     "weights and tokenizer as Hugging Face's transformers writes them; or an ONNX file (.onnx)"},
    {"model.layers", layers, "null", "", 0, 0,
     "a model as a list of layers: [{conv2d: {out_channels: 32, kernel_size: 3}}, relu, ...]"},
    {"model.config", map, "{}", "", 0, 0,
     "options of the model: hidden_size, num_hidden_layers, num_attention_heads, ...; as a flag: "
     "--model.config.dropout 0.1"},
    {"model.freeze", texts, "[]", "", 0, 0,
     "parameters that do not train, by patterns of their names: [embeddings.*]; * stands for any "
     "characters"},
    {"model.unfreeze", texts, "[]", "", 0, 0,
     "parameters among those of model.freeze that train all the same: with model.freeze ['*'], "
     "those that train"},
    {"model.weights", text, "null", "", 0, 0,
     "weights that a model.name or model.layers begins with: a run or a checkpoint of it, or a "
     "safetensors file; null: drawn by the seed"},
    {"adapter.type", text, "null", "lora", 0, 0,
     "fine-tuning of model.pretrained with few parameters: its weights stay as they are, and "
     "products of two small matrices beside them train; null: all weights train"},
    {"adapter.r", integer, "8", "", 1, 1 << 16, "lora: rank of the products"},
    {"adapter.lora_alpha", number, "16", "", 0, 1e9,
     "lora: the products are scaled by this over r"},
    {"adapter.lora_dropout", number, "0", "", 0, 0.99, "lora: dropout of what the adapters read"},
    {"adapter.target_modules", texts, "[all-linear]", "", 0, 0,
     "lora: ends of the paths of linear layers that get one, '*' for any characters: [q_proj, "
     "v_proj]; all-linear: all but the head"},
    {"adapter.use_rslora", boolean, "false", "", 0, 0, "lora: scale by lora_alpha over sqrt(r)"},
    {"adapter.use_dora", boolean, "false", "", 0, 0,
     "lora: train the norms of weights, too (DoRA)"},
    {"data.dataset", text, "null", "", 0, 0,
     "a known data set, read from data.path or WEFT_DATA_DIR; addition and random-* generate their "
     "samples"},
    {"data.format", text, "null", "", 0, 0,
     "format of your own files at data.path; set either this or data.dataset"},
    {"data.path", text, "null", "", 0, 0,
     "folder (idx, cifar, image_folder) or file (text, jsonl), or either (csv: a folder has "
     "train.csv, and may "
     "have validation.csv); looked for as given, then under WEFT_DATA_DIR"},
    {"data.val_path", text, "null", "", 0, 0,
     "file, or folder of pictures, to evaluate on, instead of val_split"},
    {"data.val_split", number, "0", "", 0, 0.9,
     "text, jsonl: share of the file, at its end, held out for evaluation; csv, image_folder: "
     "share of "
     "the rows or pictures, drawn at random, the same for every seed; 0 and no val_path: no "
     "evaluation"},
    {"data.tokenizer", text, "auto", "", 0, 0,
     "how text becomes tokens: characters, bytes, or the path of a tokenizer (tokenizer.json, or "
     "its folder); auto: that of model.pretrained, else characters"},
    {"data.seq_len", integer, "1024", "", 1, 1 << 20, "tokens per sample"},
    {"data.transforms", transforms, "[]", "", 0, 0,
     "what is done to images, in this order: resize, center_crop and normalize to all, random_* to "
     "training images: [{resize: 256}, {center_crop: 224}, random_horizontal_flip]"},
    {"data.mean", numbers, "null", "", 0, 1,
     "images: mean of each channel, with bytes scaled to 0..1, which is subtracted; null: that of "
     "the data set, else 0"},
    {"data.std", numbers, "null", "", 0, 1,
     "images: standard deviation of each channel, which divides after data.mean is subtracted"},
    {"data.classes", integer, "1000", "", 1, 1 << 24,
     "random-*: number of image classes, or size of the vocabulary"},
    {"data.labels", integer, "2", "", 1, 1 << 20,
     "random-tokens with task classification: number of classes"},
    {"data.mlm_probability", number, "0.15", "", 0, 1,
     "task masked_lm: share of the tokens that are masked and predicted"},
    {"data.image_size", integer, "224", "", 1, 1 << 14,
     "random-images: height and width in pixels; three channels"},
    {"loss.name", text, "auto", "", 0, 0,
     "loss function that training minimizes; auto: cross_entropy, or mse for a regression"},
    {"optimizer.name", text, "adamw", "", 0, 0, "optimizer that turns gradients into updates"},
    {"optimizer.lr", number, "1.0e-3", "", 0, 100, "peak learning rate"},
    {"optimizer.betas", numbers, "[0.9, 0.999]", "", 0, 1,
     "adam, adamw: decay rates of the two moments"},
    {"optimizer.eps", number, "1.0e-8", "", 0, 1, "adam, adamw: term added to the denominator"},
    {"optimizer.weight_decay", number, "0.01", "", 0, 10, "weight decay; decoupled for adamw"},
    {"optimizer.decay", text, "all", "all, matrices", 0, 0,
     "which parameters decay; matrices: those of rank 2 and above"},
    {"optimizer.momentum", number, "0", "", 0, 1, "sgd: momentum"},
    {"optimizer.nesterov", boolean, "false", "", 0, 0, "sgd: Nesterov momentum"},
    {"pruning.pattern", text, "null", "unstructured, 2:4, channels", 0, 0,
     "weights of least magnitude become zeros and stay so; 2:4: two of each four neighbours along "
     "the input features; channels: inner channels of resnet, cnn, mlp and ONNX files; null: no "
     "pruning"},
    {"pruning.sparsity", number, "0.5", "", 0, 0.999,
     "share of the weights, or channels, that is pruned from pruning.end_step on"},
    {"pruning.scope", text, "layer", "layer, global", 0, 0,
     "layer: each layer is pruned to that share; global: all together, by one threshold"},
    {"pruning.initial_sparsity", number, "0", "", 0, 0.999,
     "share that is pruned at pruning.begin_step, from which a cubic schedule rises"},
    {"pruning.begin_step", integer, "0", "", 0, many, "updates before the first weight is pruned"},
    {"pruning.end_step", integer, "null", "", 0, many,
     "updates after which pruning.sparsity is reached; null: at once, at pruning.begin_step"},
    {"pruning.frequency", integer, "100", "", 1, many, "updates between two steps of the schedule"},
    {"pruning.exclude", texts, "[]", "", 0, 0,
     "weights that are not pruned, by patterns of their names: [conv1.*, fc.*]"},
    {"quantization.activations", text, "null", "static, dynamic", 0, 0,
     "quantization-aware training: convolutions and linear layers compute with operands rounded to "
     "int8; static: inputs by a range learned from the batches; dynamic: by their own largest "
     "magnitude, linear layers alone; null: no quantization"},
    {"quantization.weight_bits", integer, "8", "", 7, 8,
     "bits of weights; 7 for other runtimes on CPUs with AVX2 alone, whose products of int8 "
     "saturate"},
    {"quantization.start_step", integer, "0", "", 0, many,
     "updates before the first that rounds and learns ranges"},
    {"quantization.momentum", number, "0.01", "", 0.0001, 1,
     "share of the newest batch in the moving average that is the range of a layer's input"},
    {"quantization.exclude", texts, "[]", "", 0, 0,
     "layers that stay in float32, by patterns of their names: [conv1, fc*]"},
    {"distillation.teacher", text, "null", "", 0, 0,
     "a trained model of the same task whose results the model learns, too: a run, a checkpoint, "
     "the folder of a published model, or an ONNX file; null: no distillation"},
    {"distillation.temperature", number, "2", "", 0.01, 1000,
     "the logits of both are divided by this, and the loss on them is multiplied by its square"},
    {"distillation.alpha", number, "0.5", "", 0, 1,
     "weight of the loss on the labels; that of the loss on the teacher's probabilities is 1 - "
     "alpha"},
    {"distillation.features", texts, "[]", "", 0, 0,
     "layers whose results should equal the teacher's, by their paths: [layer2], or of both "
     "[layer2=layer3]; a learned projection joins other widths"},
    {"distillation.feature_weight", number, "1", "", 0, many,
     "weight of the mean squared error of each of these features"},
    {"scheduler.name", text, "constant", "", 0, 0, "learning rate schedule"},
    {"scheduler.warmup_steps", integer, "0", "", 0, many,
     "steps in which the learning rate rises linearly"},
    {"scheduler.warmup_ratio", number, "0", "", 0, 1, "warm-up as a share of all steps"},
    {"scheduler.min_lr", number, "0", "", 0, 100, "final learning rate of linear, cosine and wsd"},
    {"scheduler.decay_steps", integer, "0", "", 0, many, "wsd: steps of the decay at the end"},
    {"scheduler.step_size", integer, "0", "", 0, many, "step: steps between two decays"},
    {"scheduler.gamma", number, "0.1", "", 0, 1, "step: factor of each decay"},
    {"train.epochs", integer, "null", "", 1, many,
     "passes over the data; set either this or train.steps"},
    {"train.steps", integer, "null", "", 1, many, "optimizer updates"},
    {"train.global_batch_size", integer, "32", "", 1, many, "samples per optimizer update"},
    {"train.micro_batch_size", integer, "null", "", 1, many,
     "samples per forward and backward pass (gradient accumulation); null: the whole batch"},
    {"train.grad_clip", number, "null", "", 0, many,
     "gradients are scaled so that their global L2 norm is at most this; 0: no limit"},
    {"train.precision", text, "fp32", "fp32, tf32, fp64, bf16-mixed, fp16-mixed, bf16", 0, 0,
     "type of parameters and activations; mixed: float32 parameters, matrix products in 16 bits; "
     "tf32: products on NVIDIA GPUs"},
    {"train.rounding", text, "null", "nearest, stochastic, kahan", 0, 0,
     "precision bf16: rounding of updated parameters; null: stochastic; kahan: Kahan summation "
     "stores the rounding error"},
    {"train.keep", text, "fp32", "fp32, bf16", 0, 0,
     "activation compression: type in which float32 activations are stored for the backward pass; "
     "bf16: half the memory, rounded"},
    {"train.memory", text, "null", "", 0, 0,
     "memory limit for weights, state and arena, such as 1.5GiB; null: no limit"},
    {"train.recompute", text, "auto", "auto, none, selective, full", 0, 0,
     "activation recomputation (checkpointing); auto: as much as train.memory needs; none: never; "
     "selective: not matrix products and convolutions; full: what lowers the peak for at most one "
     "more forward pass"},
    {"train.chunks", integer, "null", "", 1, 1 << 16,
     "row tiling: number of tiles in which the widest rows (logits) are computed; null: as "
     "train.memory needs"},
    {"train.offload", texts, "[]", "parameters, optimizer, gradients, activations", 0, 0,
     "what is offloaded while no kernel needs it: from the CPU to files, from a GPU to host "
     "memory; activations only as far as train.memory needs"},
    {"train.offload_folder", text, ".", "", 0, 0,
     "folder of the offload files, which are unnamed and vanish with the process; best on a fast "
     "disk"},
    {"train.device", text, "auto",
     "auto, cpu, cuda, cuda:N, cuda:GPU, opencl, opencl:DEVICE, reference", 0, 0,
     "device that runs the plan; cuda:h200 plans for a GPU that is not here (weft list gpus); N "
     "and DEVICE: one of several, by number; DEVICE: or by a part of its name"},
    {"eval.every", text, "epoch", "", 0, 0,
     "epoch, or a number of steps between evaluations; the run always ends with one"},
    {"eval.metrics", texts, "[]", "", 0, 0,
     "further metrics of evaluations, beside loss and accuracy, or r2, mae and rmse of a "
     "regression"},
    {"eval.batch_size", integer, "null", "", 1, many,
     "samples per evaluation pass; null: as in training"},
    {"eval.early_stopping", integer, "null", "", 1, many,
     "stop after this many evaluations without a better loss"},
    {"eval.target", number, "null", "", 0, 1,
     "stop when the accuracy of an evaluation, or r2 of a regression, reaches this"},
    {"checkpoint.every", integer, "1000", "", 1, many,
     "steps between checkpoints; the end of the run is always saved"},
    {"checkpoint.keep_last", integer, "3", "", 1, many,
     "checkpoints to keep; older ones are removed, except checkpoints/best"},
    {"checkpoint.best", text, "null", "loss, accuracy, r2", 0, 0,
     "metric that selects checkpoints/best"},
    {"log.every", integer, "10", "", 1, many, "steps between log lines"},
    {"plan.usd_per_hour", number, "null", "", 0, many,
     "price of this machine per hour, from which costs are computed"},
};

// Inserts a key of a registry entry after the key that it names, else at the end of its section.
// Entries may share a key that all of them describe alike.
void insert(std::vector<RecipeKey>& keys, const RecipeKey& key) {
  if (auto found = std::ranges::find(keys, key.path, &RecipeKey::path); found != keys.end()) {
    const bool is_row = std::ranges::find(table, key.path, &RecipeKey::path) != std::end(table);
    if (!is_row && *found == key) return;
    throw Error(ErrorKind::usage, "[recipe] the key {} is taken.", key.path);
  }
  const std::string_view section = key.path.substr(0, key.path.find('.') + 1);
  auto last = std::find_if(keys.rbegin(), keys.rend(), [&](const RecipeKey& other) {
    return key.after.empty() ? other.path.starts_with(section) : other.path == key.after;
  });
  keys.insert(last == keys.rend() ? keys.end() : last.base(), key);
}

size_t registered_entries() {
  return registry::datasets().size() + registry::formats().size() + registry::losses().size() +
         registry::metrics().size() + registry::optimizers().size() + registry::schedules().size();
}

// Returns the table with the choices and keys of the registries.
std::vector<RecipeKey> assembled() {
  std::vector<RecipeKey> keys(std::begin(table), std::end(table));
  auto name_choices = [&](std::string_view path, const auto& registry,
                          std::string_view first = "") {
    std::ranges::find(keys, path, &RecipeKey::path)->choices =
        interned(fmt::format("{}{}", first, fmt::join(registry.names(), ", ")));
  };
  auto add_keys = [&](const auto& registry) {
    for (const auto& entry : registry)
      for (const RecipeKey& key : entry.keys) insert(keys, key);
  };
  name_choices("data.dataset", registry::datasets());
  name_choices("data.format", registry::formats());
  name_choices("loss.name", registry::losses(), "auto, ");
  name_choices("optimizer.name", registry::optimizers());
  name_choices("scheduler.name", registry::schedules());
  name_choices("eval.metrics", registry::metrics());
  add_keys(registry::datasets());
  add_keys(registry::formats());
  add_keys(registry::losses());
  add_keys(registry::optimizers());
  add_keys(registry::schedules());
  add_keys(registry::metrics());
  return keys;
}

std::string type_name(KeyType type) {
  constexpr std::string_view names[] = {"text",          "integer",         "number",
                                        "true or false", "list of numbers", "list of words",
                                        "map",           "list of layers",  "list of transforms"};
  return std::string(names[static_cast<int>(type)]);
}

std::string json_type(KeyType type) {
  switch (type) {
    case text:
      return "string";
    case integer:
      return "integer";
    case number:
      return "number";
    case boolean:
      return "boolean";
    case map:
      return "object";
    default:
      return "array";
  }
}

std::vector<std::string> words(std::string_view list) {
  std::vector<std::string> result;
  while (!list.empty()) {
    size_t comma = list.find(", ");
    result.emplace_back(list.substr(0, comma));
    list = comma == std::string_view::npos ? "" : list.substr(comma + 2);
  }
  return result;
}

constexpr std::string_view any_device = "DEVICE";  // stands for any word
constexpr std::string_view any_number = ":N";      // with its colon, stands for any whole number
// Returns "^(cpu
// cuda:[0-9]+
// opencl:.+)$".
std::string pattern_of(const std::vector<std::string>& choices) {
  std::string pattern;
  for (std::string choice : choices) {
    if (choice.ends_with(any_device))
      choice.replace(choice.size() - any_device.size(), any_device.size(), ".+");
    else if (choice.ends_with(any_number))
      choice.replace(choice.size() - any_number.size(), any_number.size(), ":[0-9]+");
    pattern += (pattern.empty() ? "^(" : "|") + choice;
  }
  return pattern + ")$";
}
}  // namespace

std::span<const RecipeKey> recipe_keys() {
  static std::mutex mutex;
  static std::list<std::vector<RecipeKey>> tables;  // earlier ones stay valid
  static size_t entries = 0;
  const std::lock_guard lock(mutex);
  if (const size_t now = registered_entries(); tables.empty() || now != entries) {
    tables.push_back(assembled());
    entries = now;
  }
  return tables.back();
}

const RecipeKey* find_key(std::string_view path) {
  const std::span<const RecipeKey> keys = recipe_keys();
  auto found = std::ranges::find(keys, path, &RecipeKey::path);
  return found == keys.end() ? nullptr : &*found;
}

std::vector<std::string> allowed_values(const RecipeKey& key) {
  constexpr std::string_view any_gpu = "cuda:GPU";
  std::vector<std::string> values;
  for (const std::string& word : words(key.choices)) {
    if (word != any_gpu)
      values.push_back(word);
    else
      for (const GpuModel& gpu : gpu_models()) values.push_back(fmt::format("cuda:{}", gpu.id));
  }
  return values;
}

bool allows(const RecipeKey& key, std::string_view value) {
  return std::ranges::any_of(allowed_values(key), [&](std::string_view choice) {
    if (choice.ends_with(any_number)) {
      choice.remove_suffix(any_number.size() - 1);
      return value.starts_with(choice) && value != choice &&
             value.find_first_not_of("0123456789", choice.size()) == std::string_view::npos;
    }
    if (choice.starts_with("cuda:"))
      return value.starts_with("cuda:") && lower(std::string(value)) == choice;
    if (!choice.ends_with(any_device)) return value == choice;
    choice.remove_suffix(any_device.size());
    return value.starts_with(choice) && value != choice;
  });
}

std::string as_a_choice(const RecipeKey& key, std::string value) {
  if (key.choices.empty() || allows(key, value)) return value;
  const std::vector<std::string> choices = allowed_values(key);
  const auto found = std::ranges::find(choices, lower(value), lower);
  return found != choices.end() ? *found : value;
}

std::string recipe_schema() {
  using nlohmann::json;
  json schema = {{"$schema", "https://json-schema.org/draft/2020-12/schema"},
                 {"title", "weft recipe"},
                 {"type", "object"},
                 {"additionalProperties", false},
                 {"properties", json::object()}};
  for (const RecipeKey& key : recipe_keys()) {
    json entry = {{"description", key.help}};
    json types = json::array({json_type(key.type)});
    if (key.path == "eval.every") types.push_back("integer");
    if (key.type == integer) {
      types.push_back("string");
      entry["pattern"] = "^[0-9]+([KMGT]i?)?$";
    }
    if (key.type == texts) types.push_back("string");
    if (key.initial == "null") types.push_back("null");
    entry["type"] = types.size() == 1 ? types[0] : types;
    if (key.type == texts && !key.choices.empty()) {
      entry["items"] = {{"enum", allowed_values(key)}};
      entry["pattern"] = pattern_of(allowed_values(key));  // of a single word
    } else if (!key.choices.empty()) {
      if (key.choices.find(any_device) != std::string_view::npos)
        entry["pattern"] = pattern_of(allowed_values(key));
      else
        entry["enum"] = allowed_values(key);
      if (key.initial == "null") entry["enum"].push_back(nullptr);
    }
    if (key.low < key.high && (key.type == integer || key.type == number)) {
      entry["minimum"] = key.low;
      if (key.high < many) entry["maximum"] = key.high;
    }
    json* at = &schema["properties"];
    std::string_view path = key.path;
    if (size_t dot = path.find('.'); dot != std::string_view::npos) {
      json& section = (*at)[std::string(path.substr(0, dot))];
      if (section.is_null())
        section = {
            {"type", "object"}, {"additionalProperties", false}, {"properties", json::object()}};
      at = &section["properties"];
      path = path.substr(dot + 1);
    }
    (*at)[std::string(path)] = std::move(entry);
  }
  return io::json_text(schema, 2) + "\n";
}

std::string recipe_reference() {
  std::string page =
      "# Recipe keys\n\n"
      "One recipe is one run. Flag (`--section.key value`) > environment (`WEFT__SECTION__KEY`) > "
      "recipe > default.\n"
      "A map that overrides another changes the options it names and no others; `{}` empties it. "
      "`--model.config.dropout 0.1`\n"
      "(`WEFT__MODEL__CONFIG__DROPOUT`) is one option. Another `model.name` begins without the "
      "recipe's `model.config`.\n"
      "Whole numbers may be counts: 32K is 32,000, 32Ki is 32,768; M, G and T likewise.\n"
      "This page is what `weft config reference` prints.\n\n"
      "| key | type | default | allowed | what it does |\n|---|---|---|---|---|\n";
  for (const RecipeKey& key : recipe_keys()) {
    std::string allowed(key.choices);
    if (key.low < key.high)
      allowed = key.high >= many ? fmt::format(">= {}", key.low)
                                 : fmt::format("{} to {}", key.low, key.high);
    page += fmt::format("| `{}` | {} | `{}` | {} | {} |\n", key.path, type_name(key.type),
                        key.initial, allowed, key.help);
  }
  return page;
}
}  // namespace weft::train
