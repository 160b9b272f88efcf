// Verbs on files of weights: inspect, convert.
#include <array>
#include <atomic>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <optional>
#include <set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "weft/base/block_format.h"
#include "weft/base/dtype.h"
#include "weft/base/error.h"
#include "weft/base/parallel.h"
#include "weft/base/quantity.h"
#include "weft/base/utf8.h"
#include "weft/cli/model_source.h"
#include "weft/cli/published_form.h"
#include "weft/cli/tensor_list.h"
#include "weft/cli/terminal.h"
#include "weft/cli/text_model.h"
#include "weft/cli/verbs.h"
#include "weft/data/chat_template/tokenizer_config.h"
#include "weft/io/files.h"
#include "weft/io/gguf.h"
#include "weft/io/gguf_tokenizer.h"
#include "weft/io/json.h"
#include "weft/io/model_folder.h"
#include "weft/models/adapter.h"
#include "weft/models/config_json.h"
#include "weft/models/decoder.h"
#include "weft/models/family.h"
#include "weft/models/gguf.h"
#include "weft/models/pretrained.h"
#include "weft/models/quantize.h"
#include "weft/nn/block_activations.h"
#include "weft/train/checkpoint.h"
#include "weft/train/evaluation.h"
#include "weft/train/published.h"
#include "weft/train/report.h"

namespace weft::cli {
namespace {
using io::NamedBytes;
using io::Safetensors;
using nlohmann::json;

// ---- inspect

struct InspectArguments {
  std::string model;
  bool all = false, as_json = false;
};

void add_inspect(Program& program) {
  auto arguments = std::make_shared<InspectArguments>();
  Verb& verb = program.root.add(
      {.name = "inspect",
       .group = "Weights",
       .doc = "Lists the tensors of a model's files: names, types, shapes, sizes.",
       .examples = "weft inspect model.safetensors\n"
                   "weft inspect llama-q4_k.gguf\n"
                   "weft inspect Llama-3.2-1B --json\nweft inspect mnist --all",
       .run = [arguments] {
         const std::string& model = arguments->model;
         const ModelSource source = io::is_gguf(model) ? ModelSource{.files = {model}}
                                                       : find_model(model, /*verify=*/false);
         const std::string& what = source.folder.empty() ? source.files.front() : source.folder;
         list_tensors(what, source.files, arguments->all, arguments->as_json);
         return 0;
       }});
  verb.options = {
      {.type = "MODEL",
       .doc = "a safetensors or GGUF file, a folder of Hugging Face's, a checkpoint folder, or a "
              "run's folder or name",
       .target = &arguments->model,
       .required = true},
      {.flag = "--all",
       .doc = "one row for each tensor, also where names differ only by numbers",
       .target = &arguments->all},
      {.flag = "--json", .doc = "one JSON object instead of text", .target = &arguments->as_json}};
}

// OutputArguments say what a verb writes.
struct OutputArguments {
  std::string path, shard_bytes = "5GB";

  // Returns the limit of a file; refuses a path that exists, before anything is read.
  size_t checked() const {
    if (io::exists(path, ErrorKind::usage))
      throw Error(ErrorKind::usage, "{} exists. Nothing was changed.", path);
    const std::optional<int64_t> bytes = parse_bytes(shard_bytes);
    if (!bytes || *bytes < 1)
      throw Error(ErrorKind::usage, "--max-shard-size is a number of bytes, such as 5GB. Got '{}'.",
                  shard_bytes);
    return static_cast<size_t>(*bytes);
  }
  Option path_option(const std::string& doc) {
    return {.type = "OUT", .doc = doc, .target = &path, .required = true, .written = true};
  }
  Option shard_option(const std::string& doc) {
    return {.flag = "--max-shard-size", .type = "BYTES", .doc = doc, .target = &shard_bytes};
  }
};

// Returns the model as a decoder. `only` ends the refusal of an encoder.
const models::Decoder& decoder_of(const models::Pretrained& model, const std::string& folder,
                                  std::string_view only) {
  const auto* decoder = dynamic_cast<const models::Decoder*>(model.model.get());
  if (decoder == nullptr) throw Error(ErrorKind::usage, "{} is an encoder. {}.", folder, only);
  return *decoder;
}

constexpr size_t companion_limit = size_t{256} << 20;  // bytes

// Writes a decoder with the tokenizer of `model`, its folder or file.
void write_gguf(const std::string& path, const std::string& model, const models::Decoder& decoder,
                const models::QuantizedDecoder* quantized) {
  models::GgufOptions options{.quantized = quantized,
                              .name = std::filesystem::path(path).stem().string()};
  if (const auto tokenizer = io::read_of_model(model, "tokenizer.json", companion_limit)) {
    const data::TokenizerConfig config = data::TokenizerConfig::load(model);
    const auto chat = config.chat_templates.find("default");
    options.tokenizer = io::tokenizer_metadata(
        {.file = model + "/tokenizer.json",
         .tokenizer = *tokenizer,
         .vocabulary = decoder.decoder_config().vocab_size,
         .bos = config.special_token("bos_token"),
         .eos = config.special_token("eos_token"),
         .unknown = config.special_token("unk_token"),
         .pad = config.special_token("pad_token"),
         .chat_template = chat != config.chat_templates.end() ? chat->second.text : ""});
  } else {
    remark("warning", fmt::format("{} has no tokenizer.json, and {} gets no tokenizer.",
                                  escaped(model), escaped(path)));
  }
  models::write_gguf(path, decoder, options);
}

// ---- convert

struct ConvertArguments {
  std::string model, to, dtype;
  OutputArguments out = {};
  bool as_json = false;

  bool to_folder() const { return to == "hf"; }
};

// The files of a folder, besides weights, that other programs need to run the model.
constexpr const char* companions[] = {
    "config.json",         "generation_config.json",   "tokenizer.json",
    "vocab.json",          "tokenizer_config.json",    "special_tokens_map.json",
    "merges.txt",          "added_tokens.json",        "vocab.txt",
    "tokenizer.model",     "preprocessor_config.json", "processor_config.json",
    "chat_template.jinja", "vocabulary.json"};

// Returns config.json with the dtype that the weights have now, where it names one.
std::string with_dtype(const std::string& config, const std::string& path, DType dtype) {
  try {
    io::parse_json(config);
    auto fields = nlohmann::ordered_json::parse(config);  // keeps the order of the keys
    for (const char* key : {"torch_dtype", "dtype"})
      if (fields.is_object() && fields.contains(key)) fields[key] = torch_name(dtype);
    return io::json_text(fields, 2) + "\n";
  } catch (const io::JsonError& error) {
    throw Error(ErrorKind::data, "{}: {}.", path, error.what());
  }
}

// `config`: the contents of config.json where they are not those of the folder's.
std::vector<io::FolderFile> companions_of(const std::string& folder, std::optional<DType> dtype,
                                          const std::string* config) {
  std::vector<io::FolderFile> files;
  if (folder.empty()) return files;
  for (const char* name : companions) {
    std::optional<std::string> contents = io::read_of_model(folder, name, companion_limit);
    if (!contents) continue;
    const bool is_config = name == companions[0];
    if (is_config && config != nullptr) contents = *config;
    if (dtype && is_config) contents = with_dtype(*contents, folder + "/" + name, *dtype);
    files.push_back({name, *std::move(contents)});
  }
  return files;
}

double element_of(const Safetensors& file, const Safetensors::Entry& entry, int64_t index) {
  alignas(8) std::array<std::byte, 8> element{};  // aligned, as those of files need not be
  const size_t size = size_of(entry.type.dtype);
  std::memcpy(element.data(), file.bytes(entry).data() + static_cast<size_t>(index) * size, size);
  return load(element.data(), entry.type.dtype, 0);
}

// Throws Error(data) if a finite element becomes infinite in float16.
void check_range(const Safetensors& file, const Safetensors::Entry& entry) {
  constexpr double beyond = 65520;                     // the least number that rounds to infinity
  std::atomic<int64_t> first = entry.type.elements();  // exceptions may not leave a parallel_for
  parallel_for(entry.type.elements(), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const double value = std::abs(element_of(file, entry, i));
      if (value < beyond || !std::isfinite(value)) continue;
      int64_t known = first;
      while (i < known && !first.compare_exchange_weak(known, i)) {
      }
      return;
    }
  });
  if (first < entry.type.elements())
    throw Error(ErrorKind::data,
                "{}: '{}' has an element {:g}, beyond the range of f16. Hint: --dtype bf16.",
                file.name(), io::printable(entry.name), element_of(file, entry, first));
}

// Types of fewer bits than 16 have scales beside them, which would no longer fit.
void round_to(NamedBytes& tensor, std::optional<DType> dtype) {
  const DType from = tensor.type.dtype;
  if (!dtype || !is_float(from) || size_of(from) < 2 || from == *dtype) return;
  tensor.type.dtype = *dtype;
  tensor.from = from;
}

// Returns the tensors of the files under their names.
std::vector<NamedBytes> tensors_of(const std::vector<Safetensors>& files,
                                   std::optional<DType> dtype) {
  std::vector<NamedBytes> tensors;
  for (const Safetensors& file : files)
    for (const Safetensors::Entry& entry : file.entries()) {
      NamedBytes tensor{entry.name, entry.type, file.bytes(entry), file.buffer().get()};
      round_to(tensor, dtype);
      if (tensor.from && *dtype == DType::f16) check_range(file, entry);
      tensors.push_back(std::move(tensor));
    }
  return tensors;
}

void report(const ConvertArguments& arguments, size_t tensors, size_t bytes) {
  const std::string& path = arguments.out.path;
  if (arguments.as_json)
    line(io::json_text(json{{"path", path}, {"tensors", tensors}, {"bytes", bytes}}));
  else
    line(fmt::format("{}: {} tensors, {}", escaped(path), tensors,
                     train::bytes_text(static_cast<double>(bytes))));
}

void refuse_adapter(const std::string& folder) {
  if (models::is_adapter_folder(folder))
    throw Error(ErrorKind::usage,
                "{} has an adapter, and is a folder of PEFT's as it lies. Hint: weft merge writes "
                "the whole model.",
                folder);
}
// Returns whether a model's tensors are in the layout of GGUF files.
bool has_gguf_layout(const ModelSource& source) {
  if (source.folder.empty()) return io::is_gguf(source.files.front());
  return io::exists(io::file_of_folder(source.folder, "config.json")) &&
         models::blocks_of(models::read_config(source.folder)).is_gguf;
}

void convert_to_gguf(const ConvertArguments& arguments, std::optional<DType> dtype) {
  const std::string source = models::is_model(arguments.model)
                                 ? arguments.model
                                 : train::verified_checkpoint(train::locate_run(arguments.model));
  refuse_adapter(source);
  const models::Pretrained model = models::load_pretrained(source, {.dtype = dtype});
  const models::Decoder& decoder = decoder_of(model, source, "GGUF files of decoders are written");
  write_gguf(arguments.out.path, source, decoder, nullptr);
  const io::Gguf file = io::Gguf::open(arguments.out.path);
  size_t bytes = 0;
  for (const io::Gguf::Entry& entry : file.entries()) bytes += entry.type.bytes();
  report(arguments, file.entries().size(), bytes);
}

// Writes tensors as a folder with `others` in shards of at most `shard_bytes`, or as one file.
void write(const ConvertArguments& arguments, size_t shard_bytes,
           const std::vector<NamedBytes>& tensors, const std::vector<io::FolderFile>& others,
           io::Metadata metadata) {
  size_t bytes = 0;
  for (const NamedBytes& tensor : tensors) bytes += tensor.type.bytes();
  if (arguments.to_folder()) {
    io::save_folder(arguments.out.path, tensors, others, shard_bytes);
  } else {
    metadata.insert(io::pytorch_metadata().begin(), io::pytorch_metadata().end());
    io::write_safetensors(arguments.out.path, tensors, metadata);
  }
  report(arguments, tensors.size(), bytes);
}

// `model`: a GGUF file, or the folder of a checkpoint that was trained from one.
void convert_from_gguf(const ConvertArguments& arguments, size_t shard_bytes,
                       const std::string& model, std::optional<DType> dtype) {
  const models::Pretrained read = models::load_pretrained(model, {.dtype = dtype});
  const auto folder =
      models::folder_form(decoder_of(read, model, "GGUF files have decoders"), read.dtype);
  std::vector<io::FolderFile> others;
  if (arguments.to_folder()) {
    nn::Options config = folder->config();
    config.set("torch_dtype", torch_name(read.dtype));
    const std::string text = models::json_text(config);
    others = companions_of(model, std::nullopt, &text);
  }
  write(arguments, shard_bytes, models::published_tensors(*folder), others, {});
}

void convert_tensors(const ConvertArguments& arguments, size_t shard_bytes,
                     std::optional<DType> dtype) {
  const ModelSource source = find_model(arguments.model, /*verify=*/true);
  if (!source.folder.empty()) refuse_adapter(source.folder);
  if (has_gguf_layout(source))
    return convert_from_gguf(arguments, shard_bytes,
                             source.folder.empty() ? source.files.front() : source.folder, dtype);
  std::vector<Safetensors> files;
  files.reserve(source.files.size());
  for (const std::string& path : source.files) files.push_back(Safetensors::open(path));
  std::vector<NamedBytes> tensors = tensors_of(files, dtype);
  std::optional<PublishedForm> form;
  if (arguments.to_folder()) form = published_form(source);
  if (form && form->model != nullptr) {
    tensors = models::published_tensors(*form->model);
    for (NamedBytes& tensor : tensors) round_to(tensor, dtype);
  }
  std::vector<io::FolderFile> others;
  if (arguments.to_folder()) {
    others = companions_of(source.folder, dtype, form ? &form->config : nullptr);
    if (others.empty() || others.front().name != companions[0])
      remark("warning", fmt::format("{} has no config.json, which other programs need.",
                                    source.folder.empty() ? arguments.model : source.folder));
  }
  write(arguments, shard_bytes, tensors, others, files.front().metadata());
}

int convert(const ConvertArguments& arguments) {
  const size_t shard_bytes = arguments.out.checked();
  const std::optional<DType> dtype = arguments.dtype == "f32"    ? std::optional(DType::f32)
                                     : arguments.dtype == "f16"  ? std::optional(DType::f16)
                                     : arguments.dtype == "bf16" ? std::optional(DType::bf16)
                                                                 : std::nullopt;
  if (arguments.to == "gguf")
    convert_to_gguf(arguments, dtype);
  else
    convert_tensors(arguments, shard_bytes, dtype);
  return 0;
}

void add_convert(Program& program) {
  auto arguments = std::make_shared<ConvertArguments>();
  Verb& verb = program.root.add(
      {.name = "convert",
       .group = "Weights",
       .doc = "Writes a model's weights anew: in one file or in a folder, or in another type.",
       .examples = "weft convert mnist mnist-hf --to hf\n"
                   "weft convert Llama-3.2-1B llama.safetensors --to safetensors --dtype f16\n"
                   "weft convert Llama-3.2-1B llama.gguf --to gguf",
       .run = [arguments] { return convert(*arguments); }});
  verb.options = {
      {.type = "MODEL",
       .doc = "a safetensors file, a folder of Hugging Face's, a checkpoint folder, or a run's "
              "folder or name",
       .target = &arguments->model,
       .required = true},
      arguments->out.path_option("the file or folder to write, which must not exist"),
      {.flag = "--to",
       .type = "FORMAT",
       .doc = "hf: a folder with config.json and tokenizer files; safetensors: one file; gguf: a "
              "file of llama.cpp's, of a language model",
       .target = &arguments->to,
       .required = true,
       .choices = {"hf", "safetensors", "gguf"}},
      {.flag = "--dtype",
       .type = "TYPE",
       .doc = "round floating-point weights to f32, bf16 or f16 (as they are)",
       .target = &arguments->dtype,
       .choices = {"f32", "bf16", "f16"}},
      arguments->out.shard_option("largest file of weights with --to hf (5GB)"),
      {.flag = "--json", .doc = "one JSON object instead of text", .target = &arguments->as_json}};
}
// ---- quantize

struct QuantizeArguments {
  std::string model, to;
  OutputArguments out = {};
};

// Returns "Q4_K and Q6_K".
std::string formats_text(const models::QuantizedDecoder& quantized) {
  std::set<std::string_view> names;
  for (const auto& [path, format] : quantized.formats) names.insert(format->name);
  return fmt::format("{}", fmt::join(names, " and "));
}

// Returns the perplexity of a model on a text, as `weft eval` measures it.
double perplexity_of(const std::string& model, const RecipeFlags& flags) {
  const train::Experiment experiment = evaluation_of(model, flags);
  const nn::BlockActivations scope(
      nn::BlockActivations::choose(*experiment.model, experiment.recipe.text("train.device")));
  return std::exp(train::evaluate(experiment).loss);
}

// `flags`: the text of the evaluation; empty: none.
int quantize(const QuantizeArguments& arguments, const RecipeFlags& flags) {
  const size_t shard_bytes = arguments.out.checked();
  const double before = flags.empty() ? 0 : perplexity_of(arguments.model, flags);
  const BlockFormat& format = block_format(arguments.to == "int8"   ? "Q8_0"
                                           : arguments.to == "int4" ? "Q4_0"
                                                                    : arguments.to);
  const models::Pretrained model = models::load_pretrained(arguments.model);
  const models::Decoder& decoder = decoder_of(model, arguments.model, "Decoders are quantized");
  const models::QuantizedDecoder quantized = models::quantize(decoder, format);
  if (quantized.formats.empty())
    throw Error(ErrorKind::usage, "no layer has rows of whole blocks of {} numbers.",
                format.numbers);
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
       .doc = "Writes a published model with its weights in blocks of few bits. A text in "
              "--data.path is evaluated before and after.",
       .examples = "weft quantize Llama-3.2-1B llama-q4 --to Q4_K --data.path wiki.test.raw\n"
                   "weft quantize Llama-3.2-1B llama-q4.gguf --to Q4_K",
       .run = [&program, arguments] { return quantize(*arguments, program.flags); },
       .recipe_keys = true});
  verb.options = {
      {.type = "MODEL",
       .doc = "a folder of Hugging Face's, with a language model",
       .target = &arguments->model,
       .required = true},
      arguments->out.path_option(
          "the folder to write, or a GGUF file if its name ends so; it must not exist"),
      {.flag = "--to",
       .type = "FORMAT",
       .doc = "Q8_0 (int8): 8.5 bits a weight; Q6_K: 6.6; Q5_0, Q5_1, Q5_K: 5.5 to 6; Q4_0 (int4), "
              "Q4_1, Q4_K: 4.5 to 5",
       .target = &arguments->to,
       .required = true,
       .choices = {"int8", "int4", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q4_K", "Q5_K", "Q6_K"}},
      arguments->out.shard_option("largest file of weights (5GB)")};
}

// ---- merge

struct MergeArguments {
  std::string adapter, base;
  OutputArguments out = {};
};

int merge(const MergeArguments& arguments) {
  const size_t shard_bytes = arguments.out.checked();
  const bool is_peft = models::is_adapter_folder(arguments.adapter) &&
                       !io::exists(arguments.adapter + "/MANIFEST.json", ErrorKind::usage);
  const std::string folder = is_peft
                                 ? arguments.adapter
                                 : train::verified_checkpoint(train::locate_run(arguments.adapter));
  if (!models::is_adapter_folder(folder))
    throw Error(ErrorKind::usage, "{} has no adapter: its weights are whole already.", folder);
  const std::string base =
      arguments.base.empty() ? models::read_adapter_config(folder).base : arguments.base;
  if (!models::is_model(base))
    throw Error(ErrorKind::usage,
                "the adapter is one of '{}', which is no folder of a model. Hint: --base FOLDER.",
                io::printable(base));
  train::check_base(folder, base);
  models::Pretrained model = models::load_pretrained(base);
  const models::Decoder& decoder = decoder_of(model, base, "Adapters of decoders are merged");
  models::load_adapter(*model.model, folder);
  const size_t layers = nn::adapted_layers(*model.model).size();
  nn::merge_lora(*model.model);
  io::save_folder(arguments.out.path, models::published_tensors(decoder),
                  companions_of(base, std::nullopt, nullptr), shard_bytes);
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
  add_convert(program);
  add_quantize(program);
  add_merge(program);
}

}  // namespace weft::cli
