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
    {.path = "name",
     .type = text,
     .initial = "run",
     .help = "name of the run; its folder is runs/NAME",
     .flag = "--name"},
    {.path = "task",
     .type = text,
     .initial = "auto",
     .choices = "auto, classification, causal_lm, masked_lm, regression",
     .help = "what the model learns; auto: set by the data (csv: regression), masked_lm for a "
             "published "
             "encoder on text; masked_lm: BERT's masked tokens",
     .flag = "--task",
     .flag_help = "what the model learns: auto, classification, causal_lm or masked_lm",
     .decides_tensors = true},
    {.path = "seed",
     .type = integer,
     .initial = "0",
     .low = 0,
     .high = many,
     .help = "random seed of initial weights, sample order and dropout",
     .flag = "--seed",
     .same_on_resume = true},
    {.path = "model.name",
     .type = text,
     .initial = "null",
     .help = "name of a built-in model (weft list models); set exactly one of model.name, "
             "model.pretrained and model.layers",
     .rivals = "model.layers, model.pretrained",
     .decides_tensors = true},
    {.path = "model.pretrained",
     .type = text,
     .initial = "null",
     .help =
         "folder of a published language model or encoder, which is trained further: config.json, "
         "weights and tokenizer as Hugging Face's transformers writes them; or an ONNX file "
         "(.onnx)",
     .rivals = "model.name, model.layers",
     .decides_tensors = true,
     .is_input = true},
    {.path = "model.layers",
     .type = layers,
     .initial = "null",
     .help =
         "a model as a list of layers: [{conv2d: {out_channels: 32, kernel_size: 3}}, relu, ...]",
     .rivals = "model.name, model.pretrained",
     .decides_tensors = true},
    {.path = "model.config",
     .type = map,
     .initial = "{}",
     .help = "options of the model: hidden_size, num_hidden_layers, num_attention_heads, ...; as a "
             "flag: "
             "--model.config.dropout 0.1",
     .decides_tensors = true},
    {.path = "model.freeze",
     .type = texts,
     .initial = "[]",
     .help = "parameters that do not train, by patterns of their names: [embeddings.*]; * stands "
             "for any "
             "characters",
     .same_on_resume = true,
     .decides_tensors = true},
    {.path = "model.unfreeze",
     .type = texts,
     .initial = "[]",
     .help =
         "parameters among those of model.freeze that train all the same: with model.freeze ['*'], "
         "those that train",
     .same_on_resume = true,
     .decides_tensors = true},
    {.path = "model.weights",
     .type = text,
     .initial = "null",
     .help =
         "weights that a model.name or model.layers begins with: a run or a checkpoint of it, or a "
         "safetensors file; null: drawn by the seed",
     .decides_tensors = true,
     .is_input = true},
    {.path = "adapter.type",
     .type = text,
     .initial = "null",
     .choices = "lora",
     .help =
         "fine-tuning of model.pretrained with few parameters: its weights stay as they are, and "
         "products of two small matrices beside them train; null: all weights train",
     .same_on_resume = true,
     .decides_tensors = true},
    {.path = "adapter.r",
     .type = integer,
     .initial = "8",
     .low = 1,
     .high = 1 << 16,
     .help = "lora: rank of the products",
     .same_on_resume = true,
     .decides_tensors = true},
    {.path = "adapter.lora_alpha",
     .type = number,
     .initial = "16",
     .low = 0,
     .high = 1e9,
     .help = "lora: the products are scaled by this over r",
     .same_on_resume = true,
     .decides_tensors = true},
    {.path = "adapter.lora_dropout",
     .type = number,
     .initial = "0",
     .low = 0,
     .high = 0.99,
     .help = "lora: dropout of what the adapters read",
     .decides_tensors = true},
    {.path = "adapter.target_modules",
     .type = texts,
     .initial = "[all-linear]",
     .help =
         "lora: ends of the paths of linear layers that get one, '*' for any characters: [q_proj, "
         "v_proj]; all-linear: all but the head",
     .same_on_resume = true,
     .decides_tensors = true},
    {.path = "adapter.use_rslora",
     .type = boolean,
     .initial = "false",
     .help = "lora: scale by lora_alpha over sqrt(r)",
     .same_on_resume = true,
     .decides_tensors = true},
    {.path = "adapter.use_dora",
     .type = boolean,
     .initial = "false",
     .help = "lora: train the norms of weights, too (DoRA)",
     .same_on_resume = true,
     .decides_tensors = true},
    {.path = "data.dataset",
     .type = text,
     .initial = "null",
     .help = "a known data set, read from data.path or WEFT_DATA_DIR; addition and random-* "
             "generate their "
             "samples",
     .rivals = "data.format",
     .same_on_resume = true,
     .decides_tensors = true},
    {.path = "data.format",
     .type = text,
     .initial = "null",
     .help = "format of your own files at data.path; set either this or data.dataset",
     .rivals = "data.dataset",
     .same_on_resume = true,
     .decides_tensors = true},
    {.path = "data.path",
     .type = text,
     .initial = "null",
     .help =
         "folder (idx, cifar, image_folder) or file (text, jsonl), or either (csv: a folder has "
         "train.csv, and may "
         "have validation.csv); looked for as given, then under WEFT_DATA_DIR",
     .decides_tensors = true,
     .is_input = true},
    {.path = "data.val_path",
     .type = text,
     .initial = "null",
     .help = "file, or folder of pictures, to evaluate on, instead of val_split",
     .decides_tensors = true,
     .is_input = true},
    {.path = "data.val_split",
     .type = number,
     .initial = "0",
     .low = 0,
     .high = 0.9,
     .help =
         "text, jsonl: share of the file, at its end, held out for evaluation; csv, image_folder: "
         "share of "
         "the rows or pictures, drawn at random, the same for every seed; 0 and no val_path: no "
         "evaluation",
     .decides_tensors = true},
    {.path = "data.tokenizer",
     .type = text,
     .initial = "auto",
     .help = "how text becomes tokens: characters, bytes, or the path of a tokenizer "
             "(tokenizer.json, or "
             "its folder); auto: that of model.pretrained, else characters",
     .same_on_resume = true,
     .decides_tensors = true},
    {.path = "data.seq_len",
     .type = integer,
     .initial = "1024",
     .low = 1,
     .high = 1 << 20,
     .help = "tokens per sample",
     .same_on_resume = true,
     .decides_tensors = true},
    {.path = "data.transforms",
     .type = transforms,
     .initial = "[]",
     .help = "what is done to images, in this order: resize, center_crop and normalize to all, "
             "random_* to "
             "training images: [{resize: 256}, {center_crop: 224}, random_horizontal_flip]",
     .decides_tensors = true},
    {.path = "data.mean",
     .type = numbers,
     .initial = "null",
     .low = 0,
     .high = 1,
     .help = "images: mean of each channel, with bytes scaled to 0..1, which is subtracted; null: "
             "that of "
             "the data set, else 0",
     .same_on_resume = true,
     .decides_tensors = true},
    {.path = "data.std",
     .type = numbers,
     .initial = "null",
     .low = 0,
     .high = 1,
     .help =
         "images: standard deviation of each channel, which divides after data.mean is subtracted",
     .same_on_resume = true,
     .decides_tensors = true},
    {.path = "data.classes",
     .type = integer,
     .initial = "1000",
     .low = 1,
     .high = 1 << 24,
     .help = "random-*: number of image classes, or size of the vocabulary",
     .decides_tensors = true},
    {.path = "data.labels",
     .type = integer,
     .initial = "2",
     .low = 1,
     .high = 1 << 20,
     .help = "random-tokens with task classification: number of classes",
     .decides_tensors = true},
    {.path = "data.mlm_probability",
     .type = number,
     .initial = "0.15",
     .low = 0,
     .high = 1,
     .help = "task masked_lm: share of the tokens that are masked and predicted",
     .decides_tensors = true},
    {.path = "data.image_size",
     .type = integer,
     .initial = "224",
     .low = 1,
     .high = 1 << 14,
     .help = "random-images: height and width in pixels; three channels",
     .decides_tensors = true},
    {.path = "loss.name",
     .type = text,
     .initial = "auto",
     .help = "loss function that training minimizes; auto: cross_entropy, or mse for a regression"},
    {.path = "optimizer.name",
     .type = text,
     .initial = "adamw",
     .help = "optimizer that turns gradients into updates",
     .same_on_resume = true,
     .decides_tensors = true},
    {.path = "optimizer.lr",
     .type = number,
     .initial = "1.0e-3",
     .low = 0,
     .high = 100,
     .help = "peak learning rate",
     .flag = "--lr",
     .flag_help = "peak learning rate"},
    {.path = "optimizer.betas",
     .type = numbers,
     .initial = "[0.9, 0.999]",
     .low = 0,
     .high = 1,
     .help = "adam, adamw: decay rates of the two moments"},
    {.path = "optimizer.eps",
     .type = number,
     .initial = "1.0e-8",
     .low = 0,
     .high = 1,
     .help = "adam, adamw: term added to the denominator"},
    {.path = "optimizer.weight_decay",
     .type = number,
     .initial = "0.01",
     .low = 0,
     .high = 10,
     .help = "weight decay; decoupled for adamw"},
    {.path = "optimizer.decay",
     .type = text,
     .initial = "all",
     .choices = "all, matrices",
     .help = "which parameters decay; matrices: those of rank 2 and above"},
    {.path = "optimizer.momentum",
     .type = number,
     .initial = "0",
     .low = 0,
     .high = 1,
     .help = "sgd: momentum",
     .decides_tensors = true},
    {.path = "optimizer.nesterov",
     .type = boolean,
     .initial = "false",
     .help = "sgd: Nesterov momentum"},
    {.path = "pruning.pattern",
     .type = text,
     .initial = "null",
     .choices = "unstructured, 2:4, channels",
     .help = "weights of least magnitude become zeros and stay so; 2:4: two of each four "
             "neighbours along "
             "the input features; channels: inner channels of resnet, cnn, mlp and ONNX files; "
             "null: no "
             "pruning",
     .same_on_resume = true,
     .decides_tensors = true},
    {.path = "pruning.sparsity",
     .type = number,
     .initial = "0.5",
     .low = 0,
     .high = 0.999,
     .help = "share of the weights, or channels, that is pruned from pruning.end_step on",
     .same_on_resume = true,
     .decides_tensors = true},
    {.path = "pruning.scope",
     .type = text,
     .initial = "layer",
     .choices = "layer, global",
     .help = "layer: each layer is pruned to that share; global: all together, by one threshold",
     .same_on_resume = true,
     .decides_tensors = true},
    {.path = "pruning.initial_sparsity",
     .type = number,
     .initial = "0",
     .low = 0,
     .high = 0.999,
     .help = "share that is pruned at pruning.begin_step, from which a cubic schedule rises",
     .same_on_resume = true,
     .decides_tensors = true},
    {.path = "pruning.begin_step",
     .type = integer,
     .initial = "0",
     .low = 0,
     .high = many,
     .help = "updates before the first weight is pruned",
     .same_on_resume = true,
     .decides_tensors = true},
    {.path = "pruning.end_step",
     .type = integer,
     .initial = "null",
     .low = 0,
     .high = many,
     .help =
         "updates after which pruning.sparsity is reached; null: at once, at pruning.begin_step",
     .same_on_resume = true,
     .decides_tensors = true},
    {.path = "pruning.frequency",
     .type = integer,
     .initial = "100",
     .low = 1,
     .high = many,
     .help = "updates between two steps of the schedule",
     .same_on_resume = true,
     .decides_tensors = true},
    {.path = "pruning.exclude",
     .type = texts,
     .initial = "[]",
     .help = "weights that are not pruned, by patterns of their names: [conv1.*, fc.*]",
     .same_on_resume = true,
     .decides_tensors = true},
    {.path = "quantization.activations",
     .type = text,
     .initial = "null",
     .choices = "static, dynamic",
     .help =
         "quantization-aware training: convolutions and linear layers compute with operands "
         "rounded to "
         "int8; static: inputs by a range learned from the batches; dynamic: by their own largest "
         "magnitude, linear layers alone; null: no quantization",
     .same_on_resume = true,
     .decides_tensors = true},
    {.path = "quantization.weight_bits",
     .type = integer,
     .initial = "8",
     .low = 7,
     .high = 8,
     .help =
         "bits of weights; 7 for other runtimes on CPUs with AVX2 alone, whose products of int8 "
         "saturate",
     .same_on_resume = true,
     .decides_tensors = true},
    {.path = "quantization.start_step",
     .type = integer,
     .initial = "0",
     .low = 0,
     .high = many,
     .help = "updates before the first that rounds and learns ranges",
     .same_on_resume = true,
     .decides_tensors = true},
    {.path = "quantization.momentum",
     .type = number,
     .initial = "0.01",
     .low = 0.0001,
     .high = 1,
     .help = "share of the newest batch in the moving average that is the range of a layer's input",
     .same_on_resume = true,
     .decides_tensors = true},
    {.path = "quantization.exclude",
     .type = texts,
     .initial = "[]",
     .help = "layers that stay in float32, by patterns of their names: [conv1, fc*]",
     .same_on_resume = true,
     .decides_tensors = true},
    {.path = "distillation.teacher",
     .type = text,
     .initial = "null",
     .help = "a trained model of the same task whose results the model learns, too: a run, a "
             "checkpoint, "
             "the folder of a published model, or an ONNX file; null: no distillation",
     .decides_tensors = true,
     .is_input = true},
    {.path = "distillation.temperature",
     .type = number,
     .initial = "2",
     .low = 0.01,
     .high = 1000,
     .help =
         "the logits of both are divided by this, and the loss on them is multiplied by its square",
     .decides_tensors = true},
    {.path = "distillation.alpha",
     .type = number,
     .initial = "0.5",
     .low = 0,
     .high = 1,
     .help =
         "weight of the loss on the labels; that of the loss on the teacher's probabilities is 1 - "
         "alpha",
     .decides_tensors = true},
    {.path = "distillation.features",
     .type = texts,
     .initial = "[]",
     .help =
         "layers whose results should equal the teacher's, by their paths: [layer2], or of both "
         "[layer2=layer3]; a learned projection joins other widths",
     .same_on_resume = true,
     .decides_tensors = true},
    {.path = "distillation.feature_weight",
     .type = number,
     .initial = "1",
     .low = 0,
     .high = many,
     .help = "weight of the mean squared error of each of these features",
     .decides_tensors = true},
    {.path = "scheduler.name",
     .type = text,
     .initial = "constant",
     .help = "learning rate schedule"},
    {.path = "scheduler.warmup_steps",
     .type = integer,
     .initial = "0",
     .low = 0,
     .high = many,
     .help = "steps in which the learning rate rises linearly",
     .rivals = "scheduler.warmup_ratio"},
    {.path = "scheduler.warmup_ratio",
     .type = number,
     .initial = "0",
     .low = 0,
     .high = 1,
     .help = "warm-up as a share of all steps",
     .rivals = "scheduler.warmup_steps"},
    {.path = "scheduler.min_lr",
     .type = number,
     .initial = "0",
     .low = 0,
     .high = 100,
     .help = "final learning rate of linear, cosine and wsd"},
    {.path = "scheduler.decay_steps",
     .type = integer,
     .initial = "0",
     .low = 0,
     .high = many,
     .help = "wsd: steps of the decay at the end"},
    {.path = "scheduler.step_size",
     .type = integer,
     .initial = "0",
     .low = 0,
     .high = many,
     .help = "step: steps between two decays"},
    {.path = "scheduler.gamma",
     .type = number,
     .initial = "0.1",
     .low = 0,
     .high = 1,
     .help = "step: factor of each decay"},
    {.path = "train.epochs",
     .type = integer,
     .initial = "null",
     .low = 1,
     .high = many,
     .help = "passes over the data; set either this or train.steps",
     .flag = "--epochs",
     .flag_help = "passes over the data (instead of --steps)",
     .rivals = "train.steps"},
    {.path = "train.steps",
     .type = integer,
     .initial = "null",
     .low = 1,
     .high = many,
     .help = "optimizer updates",
     .flag = "--steps",
     .flag_help = "optimizer steps to train (instead of --epochs)",
     .rivals = "train.epochs"},
    {.path = "train.global_batch_size",
     .type = integer,
     .initial = "32",
     .low = 1,
     .high = many,
     .help = "samples per optimizer update",
     .flag = "--batch",
     .flag_help = "samples per optimizer step",
     .same_on_resume = true},
    {.path = "train.micro_batch_size",
     .type = integer,
     .initial = "null",
     .low = 1,
     .high = many,
     .help =
         "samples per forward and backward pass (gradient accumulation); null: the whole batch"},
    {.path = "train.grad_clip",
     .type = number,
     .initial = "null",
     .low = 0,
     .high = many,
     .help = "gradients are scaled so that their global L2 norm is at most this; 0: no limit"},
    {.path = "train.precision",
     .type = text,
     .initial = "fp32",
     .choices = "fp32, tf32, fp64, bf16-mixed, fp16-mixed, bf16",
     .help = "type of parameters and activations; mixed: float32 parameters, matrix products in 16 "
             "bits; "
             "tf32: products on NVIDIA GPUs",
     .flag = "--precision",
     .flag_help = "fp32, tf32, fp64, bf16-mixed, fp16-mixed or bf16",
     .same_on_resume = true,
     .decides_tensors = true},
    {.path = "train.rounding",
     .type = text,
     .initial = "null",
     .choices = "nearest, stochastic, kahan",
     .help =
         "precision bf16: rounding of updated parameters; null: stochastic; kahan: Kahan summation "
         "stores the rounding error",
     .same_on_resume = true,
     .decides_tensors = true},
    {.path = "train.keep",
     .type = text,
     .initial = "fp32",
     .choices = "fp32, bf16",
     .help = "activation compression: type in which float32 activations are stored for the "
             "backward pass; "
             "bf16: half the memory, rounded",
     .same_on_resume = true,
     .decides_tensors = true},
    {.path = "train.memory",
     .type = text,
     .initial = "null",
     .help = "memory limit for weights, state and arena, such as 1.5GiB; null: no limit",
     .flag = "--memory",
     .flag_help = "memory limit for weights, state and arena: 1.5GiB"},
    {.path = "train.recompute",
     .type = text,
     .initial = "auto",
     .choices = "auto, none, selective, full",
     .help = "activation recomputation (checkpointing); auto: as much as train.memory needs; none: "
             "never; "
             "selective: not matrix products and convolutions; full: what lowers the peak for at "
             "most one "
             "more forward pass",
     .flag = "--recompute",
     .flag_help = "activation recomputation: auto, none, selective or full"},
    {.path = "train.chunks",
     .type = integer,
     .initial = "null",
     .low = 1,
     .high = 1 << 16,
     .help = "row tiling: number of tiles in which the widest rows (logits) are computed; null: as "
             "train.memory needs"},
    {.path = "train.offload",
     .type = texts,
     .initial = "[]",
     .choices = "parameters, optimizer, gradients, activations",
     .help =
         "what is offloaded while no kernel needs it: from the CPU to files, from a GPU to host "
         "memory; activations only as far as train.memory needs"},
    {.path = "train.offload_folder",
     .type = text,
     .initial = ".",
     .help = "folder of the offload files, which are unnamed and vanish with the process; best on "
             "a fast "
             "disk"},
    {.path = "train.device",
     .type = text,
     .initial = "auto",
     .choices = "auto, cpu, cuda, cuda:N, cuda:GPU, opencl, opencl:DEVICE, reference",
     .help = "device that runs the plan; cuda:h200 plans for a GPU that is not here (weft list "
             "gpus); N "
             "and DEVICE: one of several, by number; DEVICE: or by a part of its name",
     .flag = "--device",
     .flag_help = "where to run: auto, cpu, cuda, cuda:1, opencl, opencl:1, reference"},
    {.path = "eval.every",
     .type = text,
     .initial = "epoch",
     .help = "epoch, or a number of steps between evaluations; the run always ends with one"},
    {.path = "eval.metrics",
     .type = texts,
     .initial = "[]",
     .help = "further metrics of evaluations, beside loss and accuracy, or r2, mae and rmse of a "
             "regression"},
    {.path = "eval.batch_size",
     .type = integer,
     .initial = "null",
     .low = 1,
     .high = many,
     .help = "samples per evaluation pass; null: as in training"},
    {.path = "eval.early_stopping",
     .type = integer,
     .initial = "null",
     .low = 1,
     .high = many,
     .help = "stop after this many evaluations without a better loss"},
    {.path = "eval.target",
     .type = number,
     .initial = "null",
     .low = 0,
     .high = 1,
     .help = "stop when the accuracy of an evaluation, or r2 of a regression, reaches this"},
    {.path = "checkpoint.every",
     .type = integer,
     .initial = "1000",
     .low = 1,
     .high = many,
     .help = "steps between checkpoints; the end of the run is always saved"},
    {.path = "checkpoint.keep_last",
     .type = integer,
     .initial = "3",
     .low = 1,
     .high = many,
     .help = "checkpoints to keep; older ones are removed, except checkpoints/best"},
    {.path = "checkpoint.best",
     .type = text,
     .initial = "null",
     .choices = "loss, accuracy, r2",
     .help = "metric that selects checkpoints/best"},
    {.path = "log.every",
     .type = integer,
     .initial = "10",
     .low = 1,
     .high = many,
     .help = "steps between log lines"},
    {.path = "plan.usd_per_hour",
     .type = number,
     .initial = "null",
     .low = 0,
     .high = many,
     .help = "price of this machine per hour, from which costs are computed"},
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
  RecipeKey added = key;
  if (last != keys.rend()) added.decides_tensors = last->decides_tensors;  // as its neighbours
  keys.insert(last == keys.rend() ? keys.end() : last.base(), added);
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
  for (const std::string& word : split_list(key.choices)) {
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
