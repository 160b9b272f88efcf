// Implements the verbs on files of weights, except convert.
#include <cmath>
#include <filesystem>
#include <optional>
#include <set>

#include <fmt/format.h>

#include "weft/base/error.h"
#include "weft/base/numbers/block_format.h"
#include "weft/base/text/utf8.h"
#include "weft/cli/models/model_kind.h"
#include "weft/cli/models/quantize_net.h"
#include "weft/cli/models/tensor_list.h"
#include "weft/cli/models/text_model.h"
#include "weft/cli/models/weight_output.h"
#include "weft/cli/show/terminal.h"
#include "weft/cli/verbs/verbs.h"
#include "weft/io/files.h"
#include "weft/io/model_folder.h"
#include "weft/models/adapter.h"
#include "weft/models/decoder.h"
#include "weft/models/family.h"
#include "weft/models/pretrained.h"
#include "weft/models/quantize.h"
#include "weft/nn/block_activations.h"
#include "weft/onnx/file/model.h"
#include "weft/train/checkpoint/adapter_base.h"
#include "weft/train/checkpoint/checkpoint.h"
#include "weft/train/methods/narrowed.h"
#include "weft/train/run/report.h"
#include "weft/train/task/evaluation.h"
#include "weft/train/task/imported.h"
#include "weft/train/task/published.h"

namespace weft::cli {
namespace {
// ---- inspect

struct InspectArguments {
  std::string model;
  bool all = false, zeros = false, as_json = false;
};

void add_inspect(Program& program) {
  auto arguments = std::make_shared<InspectArguments>();
  Verb& verb = program.root.add(
      {.name = "inspect",
       .group = "Weights",
       .doc = "Lists the tensors of a model's files: names, types, shapes, sizes.",
       .examples = "weft inspect model.safetensors\n"
                   "weft inspect llama-q4_k.gguf\nweft inspect resnet50.onnx --zeros\n"
                   "weft inspect Llama-3.2-1B --json\nweft inspect mnist --all",
       .run = [arguments] {
         const std::string& model = arguments->model;
         list_tensors(kind_of(model).tensors(model, arguments->zeros), arguments->all,
                      arguments->zeros, arguments->as_json);
         return 0;
       }});
  verb.options = {
      {.type = "MODEL",
       .doc =
           "a safetensors, GGUF or ONNX file, a folder of Hugging Face's, a checkpoint folder, or "
           "a run's folder or name",
       .target = &arguments->model,
       .required = true},
      {.flag = "--all",
       .doc = "one row for each tensor, also where names differ only by numbers",
       .target = &arguments->all},
      {.flag = "--zeros",
       .doc = "also the share of zeros of each tensor: the sparsity of pruned weights",
       .target = &arguments->zeros},
      {.flag = "--json", .doc = "one JSON object instead of text", .target = &arguments->as_json}};
}

// ---- quantize

struct QuantizeArguments {
  std::string model, to;
  OutputArguments out = {};
  NetQuantization net = {};
};

// Returns "Q4_K and Q6_K".
std::string formats_text(const models::QuantizedDecoder& quantized) {
  std::set<std::string_view> names;
  for (const auto& [path, format] : quantized.formats) names.insert(format->name);
  return fmt::format("{}", fmt::join(names, " and "));
}

// Returns the perplexity of a model on a text, as `weft eval` measures it.
double perplexity_of(const std::string& model, const RecipeFlags& flags) {
  const train::Experiment experiment = published_kind.evaluation(model, flags, {});
  const nn::BlockActivations scope(
      nn::BlockActivations::choose(*experiment.model, experiment.recipe->train.device));
  return std::exp(train::evaluate(experiment).loss);
}

bool is_file(const std::string& path) {
  return io::exists(path, ErrorKind::usage) && !io::is_folder(path, ErrorKind::usage);
}

// `flags` set the text of the evaluation; without flags nothing is evaluated.
int quantize(const QuantizeArguments& arguments, const RecipeFlags& flags) {
  const size_t shard_bytes = arguments.out.checked();
  const ModelKind& kind = open_kind_of(arguments.model, "quantized");
  const bool is_run = &kind == &run_kind;
  if (is_run && is_file(train::locate_run(arguments.model)))
    throw Error(ErrorKind::usage,
                "{} is no model: wanted is a run, a checkpoint, a folder of Hugging Face's, or an "
                "ONNX file, whose name ends in .onnx.",
                arguments.model);
  if (onnx::is_model_file(arguments.out.path)) {
    if (arguments.to != "int8")
      throw Error(ErrorKind::usage, "ONNX files have layers in int8. Got --to {}.", arguments.to);
    NetQuantization net = arguments.net;
    net.model = arguments.model;
    net.path = arguments.out.path;
    return quantize_net(net, flags);
  }
  if (&kind == &onnx_kind)
    throw Error(ErrorKind::usage,
                "an ONNX file is quantized to a file whose name ends in .onnx. "
                "Got {}.",
                arguments.out.path);
  if (const std::string flag = given_flag(arguments.net); !flag.empty() || arguments.net.as_json)
    throw Error(ErrorKind::usage,
                "{} is for nets, quantized to a file whose name ends in .onnx. "
                "Got {}.",
                flag.empty() ? "--json" : flag, arguments.out.path);
  if (is_run && io::exists(train::locate_run(arguments.model), ErrorKind::usage))
    throw Error(ErrorKind::usage,
                "{} is a run, which is quantized to a file whose name ends in .onnx. Got {}.",
                arguments.model, arguments.out.path);
  const double before = flags.empty() ? 0 : perplexity_of(arguments.model, flags);
  const BlockFormat& format = block_format(arguments.to == "int8"   ? "Q8_0"
                                           : arguments.to == "int4" ? "Q4_0"
                                                                    : arguments.to);
  const models::Pretrained model = models::load_pretrained(arguments.model);
  const models::Decoder& decoder = decoder_of(model, arguments.model, "Decoders are quantized");
  const models::QuantizedDecoder quantized = [&] {
    try {
      return models::quantize(decoder, format);
    } catch (const Error& error) {
      throw Error(error.kind(), "{}: {}", arguments.model, error.what());
    }
  }();
  if (quantized.formats.empty())
    throw Error(ErrorKind::usage, "no layer has rows of whole blocks of {} numbers.",
                format.numbers);
  warn_of_non_finite(arguments.model, models::published_tensors(quantized.tensors));
  if (arguments.out.path.ends_with(".gguf")) {
    write_gguf(arguments.out.path, arguments.model, decoder, &quantized);
  } else {
    const std::string config = models::quantized_config(decoder, format, quantized);
    io::save_folder(arguments.out.path, models::published_tensors(quantized.tensors),
                    companions_of(arguments.model, std::nullopt, &config), shard_bytes);
  }
  if (quantized.left > 0)
    remark("warning", fmt::format("{} layers stay as they are: their rows are no whole "
                                  "blocks of {} numbers.",
                                  quantized.left, format.numbers));
  const auto text = [](size_t bytes) { return train::bytes_text(static_cast<double>(bytes)); };
  line(fmt::format("{}: {} layers in {}, {} instead of {}", escaped(arguments.out.path),
                   quantized.formats.size(), formats_text(quantized), text(quantized.bytes),
                   text(quantized.bytes_before)));
  if (flags.empty()) return 0;
  const double after = perplexity_of(arguments.out.path, flags);
  line(fmt::format("perplexity {:.4g} before, {:.4g} after ({:+.2f} %)", before, after,
                   100 * (after / before - 1)));
  return 0;
}

void add_quantize(Program& program) {
  auto arguments = std::make_shared<QuantizeArguments>();
  Verb& verb = program.root.add(
      {.name = "quantize",
       .group = "Weights",
       .doc = "Writes a published model with its weights in blocks of few bits, or to OUT.onnx a "
              "net whose convolutions and linear layers compute in int8. Both are evaluated before "
              "and after, on the data of the run or of --data.*; with --input, a net's outputs are "
              "compared.",
       .examples = "weft quantize Llama-3.2-1B llama-q4 --to Q4_K --data.path wiki.test.raw\n"
                   "weft quantize Llama-3.2-1B llama-q4.gguf --to Q4_K\n"
                   "weft quantize mnist mnist-int8.onnx --to int8\n"
                   "weft quantize resnet20.onnx resnet20-int8.onnx --to int8 --method entropy "
                   "--data.dataset cifar10\n"
                   "weft quantize bert.onnx bert-int8.onnx --to int8 --input tokens.npz",
       .run = [&program, arguments] { return quantize(*arguments, program.flags); },
       .recipe_keys = true});
  verb.options = {
      {.type = "MODEL",
       .doc = "a folder of Hugging Face's, with a language model; with OUT.onnx also a run, a "
              "checkpoint or an ONNX file",
       .target = &arguments->model,
       .required = true},
      arguments->out.path_option(
          "the folder to write, or a GGUF or ONNX file if its name ends so; it must not exist"),
      {.flag = "--to",
       .type = "FORMAT",
       .doc = "of OUT.onnx: int8; of blocks: Q8_0 (int8): 8.5 bits a weight; Q6_K: 6.6; Q5_0, "
              "Q5_1, Q5_K: 5.5 to 6; Q4_0 (int4), "
              "Q4_1, Q4_K: 4.5 to 5",
       .target = &arguments->to,
       .required = true,
       .choices = {"int8", "int4", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q4_K", "Q5_K", "Q6_K"}},
      arguments->out.shard_option("largest file of weights (5GB)")};
  for (Option& option : net_quantization_options(arguments->net))
    verb.options.push_back(std::move(option));
  verb.options.push_back({.flag = "--json",
                          .doc = "with OUT.onnx: one JSON object instead of text",
                          .target = &arguments->net.as_json});
}

// ---- prune

struct PruneArguments {
  std::string run;
  OutputArguments out = {};
};

int prune(const PruneArguments& arguments) {
  const std::string& path = arguments.out.path;
  (void)arguments.out.checked();
  if (&train::format_of(arguments.run) == &train::onnx_format && is_file(arguments.run))
    throw Error(ErrorKind::usage,
                "{0} is an ONNX file: wanted is a run whose channels were pruned, or its "
                "checkpoint. Hint: weft train RECIPE --model.pretrained {0} --pruning.pattern "
                "channels.",
                arguments.run);
  const std::string from = checkpoint_of(arguments.run);
  train::Experiment experiment = load_experiment(from, {}, /*with_data=*/false);
  const int64_t before = nn::number_count(*experiment.model);
  try {
    train::remove_pruned_channels(experiment);
  } catch (const Error& error) {
    throw Error(error.kind(), "{}: {}", from, error.what());
  }
  experiment.recipe.set(keys::name, std::filesystem::path(path).filename().string(), "weft prune");
  // The ONNX file that a checkpoint keeps has its weights.
  if (train::trains_onnx(experiment.recipe)) {
    experiment.recipe.set(keys::model::pretrained, path + "/" + std::string(train::net_file),
                          "weft prune");
    experiment.recipe.set(keys::model::weights, "null", "weft prune");
  } else {
    experiment.recipe.set(keys::model::weights, path, "weft prune");
  }
  warn_of_non_finite(from, io::bytes_of(io::state_of(*experiment.model)));
  train::write_checkpoint(path, experiment, {});
  line(fmt::format("{}: {} parameters instead of {}", escaped(path),
                   train::count_text(static_cast<double>(nn::number_count(*experiment.model))),
                   train::count_text(static_cast<double>(before))));
  return 0;
}

void add_prune(Program& program) {
  auto arguments = std::make_shared<PruneArguments>();
  Verb& verb = program.root.add(
      {.name = "prune",
       .group = "Weights",
       .doc = "Removes the channels that a run with pruning.pattern channels set to zero, and "
              "writes the smaller net as a checkpoint with its recipe; of an imported net also as "
              "an ONNX file, OUT/model.onnx.",
       .examples = "weft prune resnet20-channels resnet20-small\n"
                   "weft eval resnet20-small\n"
                   "weft train resnet20-small/recipe.yaml --name tuned",
       .run = [arguments] { return prune(*arguments); }});
  verb.options = {{.type = "RUN",
                   .doc = "a run's folder or name, or a checkpoint folder",
                   .target = &arguments->run,
                   .required = true},
                  arguments->out.path_option("the folder to write, which must not exist")};
}

// ---- merge

struct MergeArguments {
  std::string adapter, base;
  OutputArguments out = {};
};

int merge(const MergeArguments& arguments) {
  const size_t shard_bytes = arguments.out.checked();
  const std::string folder = adapter_folder_of(arguments.adapter);
  const std::string base =
      arguments.base.empty() ? models::read_adapter_config(folder).base : arguments.base;
  if (&train::format_of(base) != &train::published_format)
    throw Error(ErrorKind::usage,
                "the adapter is one of '{}', which is no folder of a model. Hint: --base FOLDER.",
                io::printable(base));
  models::Pretrained model = models::load_pretrained(base);
  const models::Decoder& decoder = decoder_of(model, base, "Adapters of decoders are merged");
  train::load_adapter(*model.model, base, folder);
  const size_t layers = nn::adapted_layers(*model.model).size();
  nn::merge_lora(*model.model);
  const std::vector<io::NamedBytes> tensors = models::published_tensors(decoder);
  warn_of_non_finite(arguments.out.path, tensors);
  io::save_folder(arguments.out.path, tensors, companions_of(base, std::nullopt, nullptr),
                  shard_bytes);
  line(fmt::format("{}: {} with the adapter of {} layers", escaped(arguments.out.path),
                   escaped(base), layers));
  return 0;
}

void add_merge(Program& program) {
  auto arguments = std::make_shared<MergeArguments>();
  Verb& verb = program.root.add(
      {.name = "merge",
       .group = "Weights",
       .doc = "Adds an adapter of low rank to the weights of its model, and writes the folder.",
       .examples = "weft merge shakespeare-lora merged\n"
                   "weft merge my-adapter merged --base Llama-3.2-1B",
       .run = [arguments] { return merge(*arguments); }});
  verb.options = {{.type = "ADAPTER",
                   .doc = "a folder of PEFT's, or a checkpoint folder, a run's folder or its name",
                   .target = &arguments->adapter,
                   .required = true},
                  arguments->out.path_option("the folder to write, which must not exist"),
                  {.flag = "--base",
                   .type = "FOLDER",
                   .doc = "the model that the adapter is one of (as adapter_config.json says)",
                   .target = &arguments->base},
                  arguments->out.shard_option("largest file of weights (5GB)")};
}
}  // namespace

void add_weight_verbs(Program& program) {
  add_inspect(program);
  add_convert_verb(program);
  add_quantize(program);
  add_prune(program);
  add_merge(program);
}

}  // namespace weft::cli
