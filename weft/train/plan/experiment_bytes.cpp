// Defines functions of Experiment that list its variables, and count the bytes of its data and
// state.
#include <algorithm>
#include <iterator>
#include <utility>

#include <fmt/format.h>

#include "weft/base/memory/storage.h"
#include "weft/base/numbers/hash.h"
#include "weft/data/loader.h"
#include "weft/io/safetensors.h"
#include "weft/nn/lora.h"
#include "weft/train/experiment.h"
#include "weft/train/run/report.h"
#include "weft/train/task/scoring.h"

namespace weft::train {
namespace {
// Appends what each method has of a kind of variables.
std::vector<Variable> with(std::vector<Variable> all, const Methods& methods,
                           std::vector<Variable> (Method::*kind)() const) {
  for (const auto& method : methods)
    for (const Variable& variable : ((*method).*kind)()) all.push_back(variable);
  return all;
}
}  // namespace

std::vector<Variable> Experiment::trained() const {
  return with(model->parameters(), methods, &Method::parameters);
}
std::vector<Variable> Experiment::update_state() const {
  return with(optimizer != nullptr ? optimizer->state() : std::vector<Variable>(), methods,
              &Method::state);
}
std::vector<StandIn> Experiment::stand_ins() const {
  std::vector<StandIn> all;
  for (const auto& method : methods)
    std::ranges::move(method->stand_ins(), std::back_inserter(all));
  return all;
}
std::vector<Variable> Experiment::state_beside_weights() const {
  std::vector<Variable> state = update_state();
  for (const StandIn& each : stand_ins())
    std::ranges::replace_if(
        state, [&](const Variable& variable) { return variable.state() == each.used.state(); },
        each.parameter);
  return state;
}
std::vector<Variable> Experiment::read_only() const {
  return with({}, methods, &Method::read_only);
}
std::string Experiment::data_fingerprint() const {
  const uint64_t trained = train != nullptr ? train->fingerprint() : 0;
  const uint64_t evaluated = validation != nullptr ? validation->fingerprint() : 0;
  return trained == 0 ? "" : to_hex(hash_combine(trained, evaluated));
}
Type Experiment::label_type(int64_t rows) const {
  Type labels{labels_of(task), {rows}};
  if (task == Task::regression) labels.shape.push_back(shape.classes);
  if (shape.labels_tokens()) labels.shape.push_back(shape.input[0]);
  return labels;
}
std::string_view Experiment::unit() const {
  constexpr std::string_view units[] = {"row", "img", "tok"};
  return units[static_cast<size_t>(shape.kind)];
}
int64_t Experiment::model_bytes() const {
  return static_cast<int64_t>(bytes_of(blocks_of(model->variables())));
}
int64_t Experiment::trained_bytes() const {
  return static_cast<int64_t>(bytes_of(blocks_of(model->parameters())));
}
int64_t Experiment::optimizer_bytes() const {
  return static_cast<int64_t>(bytes_of(blocks_of(update_state())));
}
std::vector<StateBill> Experiment::bills() const {
  std::vector<StateBill> of_methods;
  std::vector<Variable> rest = update_state();
  for (const auto& method : methods)
    for (MethodBill& bill : method->bills()) {
      std::erase_if(rest, [&](const Variable& variable) {
        return std::ranges::find(bill.variables, variable.state(), &Variable::state) !=
               bill.variables.end();
      });
      of_methods.push_back({std::move(bill.purpose), blocks_of(bill.variables)});
    }
  const bool trains_part = model->parameters().size() < model->named_parameters().size();
  std::vector<StateBill> all{
      {{.what = "weights",
        .key = "model_bytes",
        .row = "weights",
        .note = trains_part ? fmt::format("of which {} are trained",
                                          bytes_text(static_cast<double>(trained_bytes())))
                            : "",
        .is_always_shown = true,
        .precedes_arena = true},
       blocks_of(model->variables())},
      {{.what = "optimizer", .key = "optimizer_bytes", .row = "optimizer", .is_always_shown = true},
       blocks_of(rest)}};
  std::ranges::move(of_methods, std::back_inserter(all));
  return all;
}

Offload offload_of(const Recipe& recipe) {
  return {.categories = recipe->train.offload, .folder = recipe->train.offload_folder};
}

uint64_t Experiment::checkpoint_file_bytes() const {
  uint64_t bytes = 0;
  for (const io::FolderFile& file : checkpoint_files) bytes += file.contents.size();
  return bytes;
}

size_t Experiment::data_bytes() const {
  size_t bytes = checkpoint_file_bytes();
  if (train != nullptr) bytes += train->bytes() + data::loader_bytes(*train, training());
  if (validation != nullptr)
    bytes += validation->bytes() + data::loader_bytes(*validation, evaluation());
  return bytes;
}

// All ranks have an equal share of what checkpoints hold, but for tensors that they do not divide.
size_t Experiment::snapshot_bytes(const Recipe& with) const {
  if (!with->checkpoint.beside || optimizer == nullptr) return 0;
  std::vector<Variable> saved = update_state();
  if (with->adapter.type)
    for (const nn::NamedVariable& weight : nn::lora_parameters(*model))
      saved.push_back(weight.variable);
  else
    std::ranges::move(model->variables(), std::back_inserter(saved));
  size_t bytes = 0;
  for (const Variable& variable : saved) {
    const VariableState& state = *variable.state();
    const size_t held = state.storage->bytes();
    const bool is_shared = ranks() > 1 && state.ranges.empty();
    bytes +=
        is_shared ? held / static_cast<size_t>(ranks()) + std::min(held, io::least_divided) : held;
  }
  return bytes;
}

StateBlocks blocks_of(const std::vector<Variable>& variables) {
  StateBlocks blocks;
  for (const Variable& variable : variables)
    blocks.push_back({variable.category(), variable.state()->storage->bytes()});
  return blocks;
}
StateBlocks joined(StateBlocks first, const StateBlocks& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

}  // namespace weft::train
