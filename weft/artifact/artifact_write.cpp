#include <algorithm>
#include <deque>
#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "weft/artifact/artifact.h"
#include "weft/artifact/artifact_parts.h"
#include "weft/artifact/node_json.h"
#include "weft/artifact/plan_json.h"
#include "weft/base/host/signature.h"
#include "weft/base/logging.h"
#include "weft/base/memory/storage.h"
#include "weft/base/version.h"
#include "weft/device/registry.h"
#include "weft/io/json.h"
#include "weft/io/safetensors.h"

namespace weft::artifact {
namespace {
using nlohmann::json;

io::NamedBytes bytes_of(std::string name, const Type& type, Storage& storage) {
  if (storage.is_on_device()) return {.name = std::move(name), .type = type, .storage = &storage};
  const Buffer& buffer = *storage.buffer();
  return {.name = std::move(name), .type = type, .bytes = {buffer.data, type.bytes()}};
}
io::NamedBytes bytes_of(std::string name, const std::string& text) {
  return {.name = std::move(name),
          .type = {DType::u8, {std::ssize(text)}},
          .bytes = std::as_bytes(std::span(text))};
}

bool is_zero(Storage& storage) {
  if (!storage.is_on_device() && storage.buffer() == nullptr) return true;
  const Buffer& elements = storage.on_host();
  return std::all_of(elements.data, elements.data + storage.bytes(),
                     [](std::byte byte) { return byte == std::byte{}; });
}

class ArtifactWriter {
 public:
  explicit ArtifactWriter(const Artifact& artifact) : artifact_(artifact) {
    for (const Variable& weight : artifact.weights) weights_of_model_.insert(weight.state()->id);
  }

  void write(const std::string& path, const std::string& weights) {
    json all = text(weights);
    add_code(all);
    add_text(std::string(model_name), io::json_text(all));
    for (const io::FolderFile& file : artifact_.files)
      tensors_.push_back(bytes_of(std::string(file_prefix) + file.name, file.contents));
    if (weights.empty())
      tensors_.insert(tensors_.end(), weights_.begin(), weights_.end());
    else
      io::write_safetensors(weights, weights_, io::pytorch_metadata());
    io::write_sealed_safetensors(path, std::move(tensors_));
  }

 private:
  // Adds the plans, and returns the JSON of the model without machine code.
  json text(const std::string& weights) {
    json programs = json::array();
    for (const Program& program : artifact_.programs) {
      add_text(program_name(programs.size()), io::json_text(program_text(program)));
      programs.push_back(program.name);
    }
    json all{{"format", format},
             {"version", std::string(version::number)},
             {"target", target_here(artifact_.device)},
             {"kind", artifact_.kind},
             {"about", io::parse_json(artifact_.about)},
             {"programs", std::move(programs)},
             {"variables", variables_text(weights.empty())}};
    if (!weights.empty()) all["weights"] = std::filesystem::path(weights).filename().string();
    return all;
  }

  void add_text(std::string name, std::string text) {
    texts_.push_back(std::move(text));
    tensors_.push_back(bytes_of(std::move(name), texts_.back()));
  }
  json program_text(const Program& program) {
    const auto& [plan, bindings, graph] = program.bound;
    json text{{"plan", artifact::to_json(plan, table_)}};
    for (size_t i = 0; i < plan.variables.size(); ++i)
      states_[plan.variables[i].id] = bindings.variables[i];
    for (const Assign& assign : plan.assigns)
      assigned_.insert(bindings.variable(plan.slots[static_cast<size_t>(assign.state_slot)])->id);
    text["constants"] = json::array();
    for (size_t slot = 0; slot < bindings.constants.size(); ++slot) {
      const std::shared_ptr<Storage>& elements = bindings.constants[slot];
      if (elements == nullptr) continue;
      text["constants"].push_back({{"slot", slot}, {"number", constants_}});
      tensors_.push_back(bytes_of(constant_name(constants_++), plan.slots[slot].type, *elements));
    }
    return text;
  }

  // Says of each variable where its elements are. What derives from weights is written only where
  // these are inside, too: a file of weights may be replaced by one of others.
  json variables_text(bool weights_are_inside) {
    json all = artifact::to_json(table_);
    for (size_t i = 0; i < table_.size(); ++i) {
      const VariableState& state = *states_.at(table_[i].id);
      if (state.derivation != nullptr) all[i]["expression"] = expression_text(state);
      // The runtime makes copies in a narrower type itself, with the padding of their plans.
      if (state.copy_of != nullptr) {
        all[i]["room"] = state.storage->bytes();
        continue;
      }
      if (assigned_.contains(state.id) && is_zero(*state.storage)) continue;
      if (state.derivation != nullptr && !weights_are_inside) continue;
      const bool is_weight = weights_of_model_.contains(state.id);
      const std::string name = name_of(state, is_weight);
      all[i]["elements"] = name;
      all[i]["is_weight"] = is_weight;
      (is_weight ? weights_ : tensors_).push_back(bytes_of(name, state.type, *state.storage));
    }
    return all;
  }
  // Adds the machine code of generated kernels. It is not needed, so it is left out where it cannot
  // be signed.
  void add_code(json& all) {
    codes_ = library(artifact_.device).compiler().code();
    if (codes_.empty()) return;
    json kernels = json::array();
    for (const KernelCode& code : codes_) kernels.push_back(code_text(code));
    const auto signature = signature_of(signed_text(all["target"], kernels, codes_));
    if (!signature) {
      logging::note(
          "the cache folder keeps no secret to sign machine code with: it is left out, and kernels "
          "are compiled where the model starts.");
      return;
    }
    for (size_t i = 0; i < codes_.size(); ++i)
      tensors_.push_back(bytes_of(kernel_name(i), codes_[i].object));
    all["kernels"] = std::move(kernels);
    all["signature"] = *signature;
  }

  // Weights have the names under which other tools know them.
  std::string name_of(const VariableState& state, bool is_weight) {
    std::string name = is_weight ? state.name : fmt::format("weft/state/{}", state.name);
    int& uses = uses_[name];
    if (++uses > 1) name += fmt::format("#{}", uses);
    return name;
  }

  // Writes the nodes that a derived variable is computed by. Their variables are its sources in
  // order, and their constants are tensors of the file.
  json expression_text(const VariableState& state) {
    const Derivation& derivation = *state.derivation;
    NodeWriter nodes;
    nodes.add(derivation.expression);
    Graph graph;
    graph.outputs = {derivation.expression};
    json text{{"nodes", nodes.nodes()},
              {"result", nodes.place_of(derivation.expression)},
              {"sources", json::array()},
              {"constants", json::array()}};
    for (const Value& node : graph.nodes()) {
      if (node->variable != nullptr) {
        const auto source = std::ranges::find(derivation.sources, node->variable);
        text["sources"].push_back({nodes.place_of(node), source - derivation.sources.begin()});
      } else if (node->storage != nullptr) {
        text["constants"].push_back({nodes.place_of(node), constants_});
        tensors_.push_back(bytes_of(constant_name(constants_++), node.type(), *node->storage));
      }
    }
    return text;
  }

  const Artifact& artifact_;
  std::vector<PlanVariable> table_;
  std::map<uint64_t, std::shared_ptr<VariableState>> states_;  // by id
  std::map<std::string, int> uses_;
  std::set<uint64_t> assigned_;  // ids of variables
  size_t constants_ = 0;
  std::vector<KernelCode> codes_;
  std::set<uint64_t> weights_of_model_;  // ids
  std::deque<std::string> texts_;        // of tensors_
  std::vector<io::NamedBytes> tensors_, weights_;
};
}  // namespace

void write_artifact(const std::string& path, const Artifact& artifact, const std::string& weights) {
  ArtifactWriter(artifact).write(path, weights);
}

}  // namespace weft::artifact
