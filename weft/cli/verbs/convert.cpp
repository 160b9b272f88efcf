// Implements convert, which writes a model's weights anew.
#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstring>
#include <iterator>
#include <optional>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "weft/base/error.h"
#include "weft/base/host/parallel.h"
#include "weft/base/numbers/dtype.h"
#include "weft/base/text/utf8.h"
#include "weft/cli/models/model_kind.h"
#include "weft/cli/models/onnx_output.h"
#include "weft/cli/models/published_form.h"
#include "weft/cli/models/text_model.h"
#include "weft/cli/models/weight_output.h"
#include "weft/cli/show/terminal.h"
#include "weft/cli/verbs/verbs.h"
#include "weft/io/files.h"
#include "weft/io/gguf.h"
#include "weft/io/json.h"
#include "weft/io/model_folder.h"
#include "weft/models/adapter.h"
#include "weft/models/config_json.h"
#include "weft/models/decoder.h"
#include "weft/models/family.h"
#include "weft/models/gguf.h"
#include "weft/models/pretrained.h"
#include "weft/onnx/file/model.h"
#include "weft/train/checkpoint/checkpoint.h"
#include "weft/train/run/report.h"
#include "weft/train/task/published.h"

namespace weft::cli {
namespace {
using io::NamedBytes;
using io::Safetensors;

struct ConvertArguments {
  std::string model, to, dtype;
  OutputArguments out = {};
  int64_t batch = 0, context = 0;  // of --to onnx; 0: not given
  std::vector<std::string> dims = {};
  bool as_json = false;

  bool to_folder() const { return to == "hf"; }
};

double element_of(const Safetensors& file, const Safetensors::Entry& entry, int64_t index) {
  alignas(8) std::array<std::byte, 8> element{};  // aligned, as elements in files need not be
  const size_t size = size_of(entry.type.dtype);
  std::memcpy(element.data(), file.bytes(entry).data() + static_cast<size_t>(index) * size, size);
  return load(element.data(), entry.type.dtype, 0);
}

// Returns the least number that rounds to infinity in a type of IEEE 754's form: half a unit of the
// last place above the largest finite one.
double least_beyond(DType dtype) {
  const FloatFormat& format = info(dtype).format;
  return std::ldexp(2 - std::ldexp(0.5, -format.fraction), format.bias());
}

// Throws Error(data) if a finite element becomes infinite in `dtype`.
void check_range(const Safetensors& file, const Safetensors::Entry& entry, DType dtype) {
  const double beyond = least_beyond(dtype);
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
    throw Error(ErrorKind::data, "{}: '{}' has an element {:g}, beyond the range of {}.{}",
                file.name(), io::printable(entry.name), element_of(file, entry, first), name(dtype),
                dtype == DType::f16 ? " Hint: --dtype bf16." : "");
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
      if (tensor.from && least_beyond(*tensor.from) > least_beyond(*dtype))
        check_range(file, entry, *dtype);
      tensors.push_back(std::move(tensor));
    }
  return tensors;
}

void report(const ConvertArguments& arguments, size_t tensors, size_t bytes) {
  const std::string& path = arguments.out.path;
  if (arguments.as_json)
    line(io::json_text(nlohmann::json{{"path", path}, {"tensors", tensors}, {"bytes", bytes}}));
  else
    line(fmt::format("{}: {} tensors, {}", escaped(path), tensors,
                     train::bytes_text(static_cast<double>(bytes))));
}

void refuse_adapter(const std::string& folder) {
  if (models::is_adapter_folder(folder))
    throw Error(ErrorKind::usage,
                "{} has an adapter, and is a folder of PEFT's already. Hint: weft merge writes "
                "the whole model.",
                folder);
}
// Returns whether a model's tensors are in blocks, or in the layout of GGUF files, neither of which
// other programs read in a folder.
bool needs_folder_form(const train::WeightFiles& source) {
  if (source.folder.empty()) return io::is_gguf(source.files.front());
  if (!io::exists(io::file_of_folder(source.folder, "config.json"))) return false;
  return !models::blocks_of(models::read_config(source.folder)).is_folder_form();
}

void convert_to_gguf(const ConvertArguments& arguments, std::optional<DType> dtype) {
  const bool is_run = &train::format_of(arguments.model) == &train::run_format;
  const std::string source = is_run ? checkpoint_of(arguments.model) : arguments.model;
  refuse_adapter(source);
  const models::Pretrained model = models::load_pretrained(source, {.dtype = dtype});
  const models::Decoder& decoder = decoder_of(model, source, "GGUF files of decoders are written");
  const bool is_form = models::blocks_of(decoder.config()).is_folder_form();
  const auto form = is_form ? nullptr : models::folder_form(decoder, model.dtype);
  const models::Decoder& written = is_form ? decoder : *form;
  warn_of_non_finite(arguments.model, models::published_tensors(written));
  write_gguf(arguments.out.path, source, written, nullptr);
  const io::Gguf file = io::Gguf::open(arguments.out.path);
  size_t bytes = 0;
  for (const io::Gguf::Entry& entry : file.entries()) bytes += entry.type.bytes();
  report(arguments, file.entries().size(), bytes);
}

void convert_to_onnx(const ConvertArguments& arguments, std::optional<DType> dtype) {
  const std::string &path = arguments.out.path, beside = path + ".data";
  if (!onnx::is_model_file(path))
    throw Error(ErrorKind::usage, "--to onnx writes a file whose name ends in .onnx. Got {}.",
                path);
  if (io::exists(beside, ErrorKind::usage))
    throw Error(ErrorKind::usage, "{} exists. Nothing was changed.", beside);
  const OnnxWritten written =
      write_onnx({.model = arguments.model,
                  .path = arguments.out.path,
                  .dtype = dtype,
                  .batch = arguments.batch > 0 ? std::optional(arguments.batch) : std::nullopt,
                  .context = arguments.context,
                  .dims = arguments.dims});
  remark_limits(written);
  report(arguments, written.tensors, written.bytes);
}

// Writes tensors as a folder with `others` in shards of at most `shard_bytes`, or as one file.
void write(const ConvertArguments& arguments, size_t shard_bytes,
           const std::vector<NamedBytes>& tensors, const std::vector<io::FolderFile>& others,
           io::Metadata metadata) {
  size_t bytes = 0;
  for (const NamedBytes& tensor : tensors) bytes += tensor.type.bytes();
  warn_of_non_finite(arguments.model, tensors);
  if (arguments.to_folder()) {
    io::save_folder(arguments.out.path, tensors, others, shard_bytes);
  } else {
    metadata.insert(io::pytorch_metadata().begin(), io::pytorch_metadata().end());
    io::write_safetensors(arguments.out.path, tensors, metadata);
  }
  report(arguments, tensors.size(), bytes);
}

// `model` is a GGUF file, a folder in blocks, or the checkpoint of a run that trained one.
void convert_from_blocks(const ConvertArguments& arguments, size_t shard_bytes,
                         const std::string& model, std::optional<DType> dtype) {
  const models::Pretrained read = models::load_pretrained(model, {.dtype = dtype});
  const auto folder =
      models::folder_form(decoder_of(read, model, "Blocks are of decoders"), read.dtype);
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
  const train::WeightFiles source =
      train::format_of(arguments.model).weights(arguments.model, /*verify=*/true);
  if (!source.folder.empty()) refuse_adapter(source.folder);
  if (needs_folder_form(source))
    return convert_from_blocks(arguments, shard_bytes,
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
    if (others.empty() || others.front().name != "config.json")
      remark("warning", fmt::format("{} has no config.json, which other programs need.",
                                    source.folder.empty() ? arguments.model : source.folder));
    if (form) std::ranges::move(form->tokenizer, std::back_inserter(others));
  }
  write(arguments, shard_bytes, tensors, others, files.front().metadata());
}

int convert(const ConvertArguments& arguments) {
  const size_t shard_bytes = arguments.out.checked();
  const std::optional<DType> dtype = arguments.dtype == "f32"    ? std::optional(DType::f32)
                                     : arguments.dtype == "f16"  ? std::optional(DType::f16)
                                     : arguments.dtype == "bf16" ? std::optional(DType::bf16)
                                                                 : std::nullopt;
  const ModelKind& kind = open_kind_of(arguments.model, "converted");
  if (arguments.to != "onnx" && kind.format.weights == nullptr)
    throw Error(ErrorKind::usage, "{} is converted with --to onnx. Got --to {}.", kind.format.text,
                arguments.to);
  if (arguments.to != "onnx" &&
      (arguments.batch > 0 || arguments.context > 0 || !arguments.dims.empty()))
    throw Error(ErrorKind::usage, "--batch, --context and --dim are for --to onnx.");
  if (arguments.to == "onnx")
    convert_to_onnx(arguments, dtype);
  else if (arguments.to == "gguf")
    convert_to_gguf(arguments, dtype);
  else
    convert_tensors(arguments, shard_bytes, dtype);
  return 0;
}
}  // namespace

void add_convert_verb(Program& program) {
  auto arguments = std::make_shared<ConvertArguments>();
  Verb& verb = program.root.add(
      {.name = "convert",
       .group = "Weights",
       .doc = "Writes a model's weights anew: in one file or in a folder, or in another type.",
       .examples = "weft convert mnist mnist-hf --to hf\n"
                   "weft convert Llama-3.2-1B llama.safetensors --to safetensors --dtype f16\n"
                   "weft convert Llama-3.2-1B llama.gguf --to gguf\n"
                   "weft convert mnist mnist.onnx --to onnx",
       .run = [arguments] { return convert(*arguments); }});
  verb.options = {
      {.type = "MODEL",
       .doc = "a safetensors, GGUF or ONNX file, a folder of Hugging Face's, a checkpoint folder, "
              "or a run's folder or name; blocks become numbers",
       .target = &arguments->model,
       .required = true},
      arguments->out.path_option("the file or folder to write, which must not exist"),
      {.flag = "--to",
       .type = "FORMAT",
       .doc = "hf: a folder with config.json and tokenizer files; safetensors: one file; gguf: a "
              "file of llama.cpp's, of a language model; onnx: the forward pass",
       .target = &arguments->to,
       .required = true,
       .choices = {"hf", "safetensors", "gguf", "onnx"}},
      {.flag = "--dtype",
       .type = "TYPE",
       .doc = "round floating-point weights to f32, bf16 or f16 (as they are)",
       .target = &arguments->dtype,
       .choices = {"f32", "bf16", "f16"}},
      arguments->out.shard_option("largest file of weights with --to hf (5GB)"),
      {.flag = "--batch",
       .type = "N",
       .doc = "with --to onnx: rows that the file takes (any number)",
       .target = &arguments->batch,
       .range = {{1, 0x1p31}}},
      {.flag = "--context",
       .type = "N",
       .doc = "with --to onnx: tokens of a sequence (the model's, at most 512)",
       .target = &arguments->context,
       .range = {{1, 0x1p40}}},
      {.flag = "--dim",
       .type = "NAME=N",
       .doc = "with --to onnx, of an ONNX file: bind a symbolic extent",
       .target = &arguments->dims,
       .most = 64},
      {.flag = "--json", .doc = "one JSON object instead of text", .target = &arguments->as_json}};
}

}  // namespace weft::cli
