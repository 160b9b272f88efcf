// A compiled model (FILE.weft) as MODEL: its plans run without the model's code.
#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "weft/artifact/artifact.h"
#include "weft/artifact/node_json.h"
#include "weft/base/error.h"
#include "weft/cli/models/array_model.h"
#include "weft/cli/models/model_kind.h"
#include "weft/cli/models/tensor_list.h"
#include "weft/cli/models/text_model.h"
#include "weft/data/chat_template/tokenizer_config.h"
#include "weft/device/registry.h"
#include "weft/io/files.h"
#include "weft/io/json.h"
#include "weft/io/model_folder.h"
#include "weft/onnx/net/net.h"
#include "weft/runtime/executable.h"

namespace weft::cli {
namespace {
using artifact::OpenArtifact;
using nlohmann::json;

// Calls `read`, and names the file in what it finds wrong.
template <class Read>
auto reading(const std::string& file, const Read& read) try {
  return read();
} catch (const io::JsonError& wrong) {
  throw Error(ErrorKind::checkpoint, "{}: {}.", io::printable(file), wrong.what());
} catch (const json::exception&) {
  throw Error(ErrorKind::checkpoint, "{}: it says too little of its model.", io::printable(file));
} catch (const InternalError& broken) {  // a kernel that does not fit its launch
  throw Error(ErrorKind::checkpoint, "{}: its plans do not run here: {}", io::printable(file),
              io::printable(broken.what()));
}

// A DecoderText is what a file says of its language model.
struct DecoderText {
  explicit DecoderText(const json& about)
      : batch(io::integer_at(about, "batch")),
        context(io::integer_at(about, "context")),
        vocabulary(io::integer_at(about, "vocabulary")),
        slides(io::truth_at(about, "slides")),
        is_published(io::truth_at(about, "is_published")) {
    if (batch < 1 || context < 1 || vocabulary < 1)
      throw io::JsonError("it has no sequences, or no ids");
  }

  int64_t batch, context, vocabulary;
  bool slides, is_published;
};

// A NetText is what a file says of any other model.
struct NetText {
  explicit NetText(const json& about)
      : outputs(io::texts_at(about, "outputs")),
        vocabulary(io::integer_at(about, "vocabulary")),
        gives_logits(io::truth_at(about, "gives_logits")),
        class_names(io::texts_at(about, "class_names")) {
    for (const json& input : io::value_at(about, "inputs")) {
      names.push_back(io::text_at(input, "name"));
      types.push_back(artifact::type_of(io::value_at(input, "type")));
    }
    const bool reads_ids = !types.empty() && types[0].dtype == DType::i64;
    if (vocabulary < 0 || (vocabulary > 0 && !reads_ids))
      throw io::JsonError(
          fmt::format("it has a vocabulary of {}, and its input has no ids", vocabulary));
    if (!about.contains("pictures")) return;
    const bool reads_pictures = types.size() == 1 && types[0].shape.size() == 4;
    if (!reads_pictures) throw io::JsonError("its input has no pictures");
    try {
      pictures = train::Recipe::parse(io::text_at(about, "pictures"), "pictures");
    } catch (const Error& broken) {
      std::string what = broken.what();
      if (what.ends_with('.')) what.pop_back();  // the refusal adds a full stop
      throw io::JsonError(what);
    }
  }

  std::vector<std::string> names;  // of the inputs
  std::vector<Type> types;         // of the inputs
  std::vector<std::string> outputs;
  int64_t vocabulary;
  bool gives_logits;
  std::vector<std::string> class_names;
  std::optional<train::Recipe> pictures = {};
};

// Opened is an artifact whose programs become executables when they first run, in one arena.
class Opened {
 public:
  Opened(const std::string& path, const artifact::ReadOptions& options)
      : path_(path), artifact_(artifact::open_artifact(path, options)) {
    reading(path_, [&] {
      const json about = io::parse_json(artifact_.about);
      if (artifact_.kind == "decoder")
        expect(decoder_.emplace(about));
      else if (artifact_.kind == "net")
        expect(net_.emplace(about));
      else
        throw io::JsonError(
            fmt::format("it is a {}, which weft does not know", io::printable(artifact_.kind)));
      for (const auto& [name, expected] : expected_)
        if (std::ranges::find(artifact_.programs, name) == artifact_.programs.end())
          throw io::JsonError(fmt::format("it has no plan {}", name));
    });
  }

  const OpenArtifact& artifact() const { return artifact_; }
  bool is_net() const { return net_.has_value(); }
  const NetText& net() const { return *net_; }
  const DecoderText& decoder() const { return *decoder_; }
  Executable& program(const std::string& name) {
    std::unique_ptr<Executable>& known = executables_[name];
    if (known == nullptr)
      known = reading(path_, [&] {
        BoundPlan bound = artifact_.read(name);
        check(name, bound.plan);
        return std::make_unique<Executable>(std::move(bound), library(artifact_.device), arena_);
      });
    return *known;
  }

 private:
  // Expected is what the file says of a program: the types of its inputs and of its results, or,
  // where it does not say the latter, their number.
  struct Expected {
    std::vector<Type> inputs, outputs = {};
    size_t results = 0;
  };

  // Compares a plan with what the file says of its model.
  void check(const std::string& name, const Plan& plan) const {
    const auto types_of = [](const std::vector<Access>& accesses) {
      std::vector<Type> types;
      types.reserve(accesses.size());
      for (const Access& access : accesses) types.push_back(access.value.type());
      return types;
    };
    const Expected& expected = expected_.at(name);
    if (types_of(plan.inputs) != expected.inputs ||
        (!expected.outputs.empty() && types_of(plan.outputs) != expected.outputs))
      throw io::JsonError(fmt::format("plan {} is of another model", name));
    if (expected.outputs.empty() && plan.outputs.size() != expected.results)
      throw io::JsonError("its results have other names");
  }
  void expect(const DecoderText& text) {
    const Type index{DType::i64, {text.batch}}, logits{DType::f32, {text.batch, text.vocabulary}};
    for (const int64_t length : infer::piece_lengths(text.context))
      expected_[std::to_string(length)] = {
          .inputs = {Type{DType::i64, {text.batch, length}}, index, index}, .outputs = {logits}};
  }
  void expect(const NetText& text) {
    expected_["forward"] = {.inputs = text.types, .results = text.outputs.size()};
  }

  std::string path_;
  OpenArtifact artifact_;
  std::optional<DecoderText> decoder_;  // one of the two is there
  std::optional<NetText> net_;
  std::map<std::string, Expected> expected_;  // by program
  std::shared_ptr<Workspace> arena_ = std::make_shared<Workspace>();
  std::map<std::string, std::unique_ptr<Executable>> executables_;
};

void refuse_flags(const std::string& name, const RecipeFlags& flags) {
  if (!flags.empty())
    throw Error(ErrorKind::usage, "{} is for weft compile. {} is compiled.", flags.front().flag,
                io::printable(name));
}

// ---- language models

class CompiledSteps : public infer::TokenSteps {
 public:
  explicit CompiledSteps(std::shared_ptr<Opened> opened) : opened_(std::move(opened)) {}

  void begin() override {}  // the cache is in the file as it was prepared
  Tensor run(const Tensor& tokens, const Tensor& start, const Tensor& last) override {
    return step(tokens.dim(1)).run(std::array{tokens, start, last})[0];
  }
  Executable& step(int64_t length) override { return opened_->program(std::to_string(length)); }
  infer::TokenModelPlan plan(int64_t) override {
    throw Error(ErrorKind::usage, "a compiled model is planned already.");
  }

 private:
  std::shared_ptr<Opened> opened_;
};

std::unique_ptr<infer::TokenModel> sequences_of(const std::shared_ptr<Opened>& opened) {
  const DecoderText& text = opened->decoder();
  return infer::make_token_model(std::make_unique<CompiledSteps>(opened), text.batch, text.context,
                                 text.vocabulary);
}

data::TextCodec codec_of(const io::ModelFiles& files) {
  constexpr size_t most_bytes = size_t{512} << 20;
  if (const auto text = io::read_of_model(files, "vocabulary.json", most_bytes))
    return io::Vocabulary::from_json(*text, files.path);
  if (const auto text = io::read_of_model(files, "tokenizer.json", most_bytes))
    return data::Tokenizer::from_json(*text, files.path);
  throw Error(ErrorKind::data, "[tokenizer] {} holds no tokenizer.json.", files.path);
}

TextModel compiled_text_model(const std::string& name, const TextModelOptions& options) {
  refuse_flags(name, options.flags);
  if (options.dtype || !options.adapter.empty())
    throw Error(ErrorKind::usage, "{} is for weft compile. {} is compiled.",
                options.dtype ? "--dtype" : "--adapter", io::printable(name));
  const auto opened = std::make_shared<Opened>(name, options.compiled);
  if (opened->is_net())
    throw Error(ErrorKind::usage, "{} is a compiled net, which generates no text. Hint: weft run.",
                io::printable(name));
  const DecoderText& text = opened->decoder();
  TextModel model{.compiled = [opened] { return sequences_of(opened); },
                  .is_published = text.is_published,
                  .folder = name,
                  .codec = codec_of(opened->artifact().files),
                  .device = opened->artifact().device,
                  .vocabulary = text.vocabulary,
                  .context = text.context,
                  .slides = text.slides};
  if (!model.is_published) return model;
  model.defaults = io::read_generation_config(opened->artifact().files);
  model.chat = data::TokenizerConfig::load(opened->artifact().files).chat_template();
  return model;
}

// ---- arrays

onnx::ValueInfo input_of(const std::string& name, const Type& type) {
  std::vector<onnx::Dim> dims;
  for (const int64_t extent : type.shape) dims.push_back({extent, ""});
  return {.name = name, .dtype = type.dtype, .shape = std::move(dims), .refused = {}};
}

ArrayModel net_arrays(const std::string& name, const std::shared_ptr<Opened>& opened) {
  const NetText& text = opened->net();
  ArrayModel model{.name = name,
                   .outputs = text.outputs,
                   .device = opened->artifact().device,
                   .vocabulary = text.vocabulary,
                   .pictures = text.pictures,
                   .gives_logits = text.gives_logits,
                   .class_names = text.class_names};
  for (size_t i = 0; i < text.types.size(); ++i)
    model.inputs.push_back(input_of(text.names[i], text.types[i]));
  model.executable = [opened](std::span<const Type>) -> Executable& {
    return opened->program("forward");
  };
  model.run = [opened, shown = io::printable(name),
               vocabulary = model.vocabulary](std::span<const Tensor> in) {
    if (vocabulary > 0) check_tokens(shown, in[0], vocabulary);
    const std::span<const Tensor> results = opened->program("forward").run(in);
    return std::vector<Tensor>(results.begin(), results.end());
  };
  return model;
}

// A compiled language model maps tokens of its sequences to the logits of the next token.
ArrayModel text_arrays(const std::string& name, const std::shared_ptr<Opened>& opened) {
  const int64_t batch = opened->decoder().batch;
  ArrayModel model{.name = name,
                   .inputs = {{.name = "input_ids",
                               .dtype = DType::i64,
                               .shape = std::vector<onnx::Dim>{{batch, ""}, {-1, "tokens"}},
                               .refused = {}}},
                   .outputs = {"logits"},
                   .device = opened->artifact().device,
                   .vocabulary = opened->decoder().vocabulary};
  model.run = [opened, shown = io::printable(name), vocabulary = model.vocabulary,
               batch](std::span<const Tensor> in) {
    check_tokens(shown, in[0], vocabulary);
    const std::unique_ptr<infer::TokenModel> tokens = sequences_of(opened);
    const std::vector<int64_t> ids = in[0].to_vector<int64_t>();
    const std::vector<int32_t> all(ids.begin(), ids.end());
    const auto length = static_cast<size_t>(in[0].dim(1));
    std::vector<infer::RowTokens> rows;
    rows.reserve(static_cast<size_t>(batch));
    for (size_t row = 0; row < static_cast<size_t>(batch); ++row)
      rows.push_back({.tokens = std::span(all).subspan(row * length, length)});
    tokens->append(rows);
    std::vector<float> logits;
    for (int64_t row = 0; row < batch; ++row)
      logits.insert(logits.end(), tokens->logits(row).begin(), tokens->logits(row).end());
    return std::vector<Tensor>{tensor(logits, {batch, vocabulary})};
  };
  return model;
}

ArrayModel compiled_arrays(const std::string& name, const ArrayModelOptions& options) {
  refuse_flags(name, options.flags);
  const auto opened = std::make_shared<Opened>(name, options.compiled);
  const bool is_net = opened->is_net();
  ArrayModel model = is_net ? net_arrays(name, opened) : text_arrays(name, opened);
  model.check = [shown = io::printable(name), inputs = model.inputs](std::span<const Type> types) {
    onnx::check_inputs(shown, inputs, types);
  };
  model.output_types = [opened, is_net, vocabulary = model.vocabulary](std::span<const Tensor> in) {
    if (is_net) return output_types_of(opened->program("forward"));
    return std::vector<Type>{{DType::f32, {in[0].dim(0), vocabulary}}};
  };
  return model;
}
}  // namespace

constinit const ModelKind compiled_kind{.format = train::compiled_format,
                                        .is_compiled = true,
                                        .tensors = weight_tensors,
                                        .arrays = compiled_arrays,
                                        .text_model = compiled_text_model};

}  // namespace weft::cli
