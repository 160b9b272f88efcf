#include "weft/train/task/imported.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "weft/base/error.h"
#include "weft/base/logging.h"
#include "weft/data/chat_template/tokenizer_config.h"
#include "weft/io/files.h"
#include "weft/io/json.h"
#include "weft/ir/op_def.h"
#include "weft/onnx/net/model_net.h"
#include "weft/tensor/compile.h"
#include "weft/train/experiment.h"
#include "weft/train/task/model_format.h"

namespace weft::train {
namespace {
namespace fs = std::filesystem;
constexpr size_t labels_limit = size_t{64} << 20;  // bytes

std::string to_json(const data::Labels& labels) {
  nlohmann::ordered_json json;
  json["of"] = labels.of_words ? "words" : "texts";
  json["names"] = labels.names;
  return io::json_text(json, 1) + "\n";
}

// Returns the labels that a checkpoint has; nullopt where it has none.
std::optional<data::Labels> labels_of(const std::string& checkpoint) {
  if (checkpoint.empty()) return std::nullopt;
  const std::string path = (fs::path(checkpoint) / labels_file).string();
  if (!io::exists(path, ErrorKind::checkpoint)) return std::nullopt;
  const nlohmann::json json = io::read_json_file(path, labels_limit, ErrorKind::checkpoint);
  try {
    const std::string of = io::text_at(json, "of");
    if (of != "words" && of != "texts") throw io::JsonError("of must be words or texts");
    data::Labels labels{.of_words = of == "words", .names = io::texts_at(json, "names")};
    if (labels.names.size() < 2) throw io::JsonError("names must be two or more");
    return labels;
  } catch (const io::JsonError& error) {
    throw Error(ErrorKind::checkpoint, "{}: {}.", path, error.what());
  }
}

}  // namespace

bool trains_onnx(const Recipe& recipe) {
  return recipe->model.pretrained.has_value() &&
         &format_of(*recipe->model.pretrained) == &onnx_format;
}

std::string onnx_file_of(const Recipe& recipe, const std::string& checkpoint) {
  if (!checkpoint.empty()) {
    std::string saved = (fs::path(checkpoint) / net_file).string();
    if (io::exists(saved, ErrorKind::checkpoint)) return saved;
  }
  return *recipe->model.pretrained;
}

void read_labels(DataOptions& data, const onnx::Model& net) {
  const data::Tokenizer* const tokenizer = data.vocabulary ? data.vocabulary->tokenizer() : nullptr;
  if (tokenizer == nullptr) return;
  std::optional<data::Labels> known = labels_of(data.checkpoint);
  if (!known && !onnx::has_labels(net, tokenizer->size())) return;
  data.labels = data::LabelOptions{.known = std::move(known)};
  data.labels->only_known = data.labels->known.has_value();
  const int64_t padding =
      data::special_token_id(*tokenizer, data.tokenizer, "pad_token", {"[PAD]", "<pad>"},
                             "texts with labels need");  // fills texts shorter than a row
  data.frame = data::frame_of(*tokenizer, padding);
}

std::unique_ptr<Model> make_imported(const onnx::Model& net, const Experiment& experiment) {
  const Recipe& recipe = experiment.recipe;
  if (experiment.precision.parameters != DType::f32)
    recipe.refuse(keys::train::precision,
                  fmt::format("train.precision: ONNX files keep their own types. Got {}. Hint: "
                              "bf16-mixed.",
                              recipe->train.precision));
  try {
    return onnx::make_model(net, experiment.shape);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::usage) throw;
    recipe.refuse(keys::model::pretrained, fmt::format("model.pretrained: {}", error.what()));
  }
}

namespace {
// Returns the number of rows of the smallest table in which tokens are looked up; nullopt if the
// net has no such table.
std::optional<int64_t> rows_of_tables(const Tensor& logits, const Tensor& tokens) {
  std::optional<int64_t> least;
  std::unordered_map<const weft::Node*, bool> reads{{tokens.node(), true}};
  std::vector<const weft::Node*> open{logits.node()};
  while (!open.empty()) {
    const weft::Node& node = *open.back();
    const size_t before = open.size();
    bool found = false;
    for (const Tensor& each : node.inputs) {
      const auto known = reads.find(each.node());
      if (known == reads.end()) open.push_back(each.node());
      found = found || (known != reads.end() && known->second);
    }
    if (open.size() > before) continue;
    open.pop_back();
    if (!reads.emplace(&node, found).second) continue;
    if (node.op->name == "gather" && node.inputs[0]->variable != nullptr &&
        reads.at(node.inputs[1].node()))
      least = std::min(least.value_or(node.inputs[0].dim(0)), node.inputs[0].dim(0));
  }
  return least;
}
}  // namespace

int64_t check_net(const Experiment& experiment, const std::string& file) {
  const TaskShape& task = experiment.shape;
  const std::string name = io::printable(file);
  const auto refuse = [&](const std::string& what) {
    experiment.recipe.refuse(keys::model::pretrained,
                             fmt::format("model.pretrained: {} {}", name, what));
  };
  const Type batch = task.batch(experiment.rows);
  const Tensor x = input(batch, 0);
  Tensor logits;
  try {
    const ModeScope inference(Mode::eval);
    logits = (*experiment.model)(Arg(x, UserLocation()));
  } catch (const Error& error) {
    refuse(fmt::format("does not take a batch of {}: {}", to_string(batch), error.what()));
  }
  const Shape& shape = logits.shape();
  const int64_t classes = shape.empty() ? 0 : shape[shape.size() - 1];
  if (shape.size() != (task.labels_tokens() ? 3 : 2) || classes < task.classes)
    refuse(fmt::format("answers a sample with {}, and these data have {} classes.",
                       to_string(of_sample(shape)), task.classes));
  const std::optional<int64_t> rows = rows_of_tables(logits, x);
  if (rows && experiment.vocabulary && experiment.vocabulary->size() > *rows)
    refuse(fmt::format("knows {} tokens, and data.tokenizer has {}.", *rows,
                       experiment.vocabulary->size()));
  return classes;
}

void add_imported_files(Experiment& experiment, const std::string& file,
                        const std::string& checkpoint) {
  const std::string& given = *experiment.recipe->model.pretrained;
  const auto form = [&](const std::string& path) {
    return onnx::checkpoint_form(path, *experiment.model, "model.safetensors");
  };
  std::string saved = form(file);
  if (file != given && io::exists(given, ErrorKind::usage) && form(given) != saved)
    logging::warn("{} is not the net that {} was trained from, which keeps its own.",
                  io::printable(given), checkpoint);
  experiment.checkpoint_files.push_back({std::string(net_file), std::move(saved)});
  if (experiment.labels)
    experiment.checkpoint_files.push_back({std::string(labels_file), to_json(*experiment.labels)});
}

}  // namespace weft::train
