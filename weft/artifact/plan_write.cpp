#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include <nlohmann/json.hpp>

#include "weft/artifact/node_json.h"
#include "weft/artifact/plan_json.h"
#include "weft/artifact/plan_words.h"
#include "weft/io/json.h"

namespace weft::artifact {
namespace {
using nlohmann::json;

json to_json(const Placement& at) {
  json text{{"slot", at.slot}};
  if (at.offset != 0) text["offset"] = at.offset;
  text["strides"] = std::vector<int64_t>(at.strides.begin(), at.strides.end());
  return text;
}
json placements_of(const std::vector<Access>& accesses) {
  json all = json::array();
  for (const Access& access : accesses) all.push_back(to_json(access.at));
  return all;
}

class PlanWriter {
 public:
  PlanWriter(const Plan& plan, std::vector<PlanVariable>& table) : plan_(plan) {
    for (const PlanVariable& variable : plan.variables)
      places_.push_back(place_in(table, variable));
    number_values();
  }

  json text() {
    json all{{"variables", places_},
             {"arena_bytes", plan_.arena_bytes},
             {"file_bytes", plan_.file_bytes},
             {"live_peak_bytes", plan_.live_peak_bytes}};
    for (const Slot& slot : plan_.slots) all["slots"].push_back(slot_text(slot));
    all["launches"] = json::array();
    for (const Launch& launch : plan_.launches) all["launches"].push_back(launch_text(launch));
    all["bodies"] = bodies_;
    add_ends(all);
    return all;
  }

 private:
  // Adds a variable after those that it is made from.
  int place_in(std::vector<PlanVariable>& table, const PlanVariable& variable) const {
    const auto known = std::ranges::find(table, variable.id, &PlanVariable::id);
    if (known != table.end()) return static_cast<int>(known - table.begin());
    PlanVariable added = variable;
    const auto of_plan = [&](int& index) {
      index = place_in(table, plan_.variables[static_cast<size_t>(index)]);
    };
    if (added.copy_of >= 0) of_plan(added.copy_of);
    std::ranges::for_each(added.sources, of_plan);
    table.push_back(std::move(added));
    return static_cast<int>(table.size()) - 1;
  }

  static NodeWriter nodes_of(const Launch& launch) {
    NodeWriter nodes;
    for (const Value& value : launch.body) nodes.add(value);
    for (const auto* accesses : {&launch.operands, &launch.results})
      for (const Access& access : *accesses) nodes.add(access.value);
    return nodes;
  }
  NodeWriter ends() const {
    NodeWriter nodes;
    for (const auto* accesses : {&plan_.inputs, &plan_.outputs})
      for (const Access& access : *accesses) nodes.add(access.value);
    for (const Assign& assign : plan_.assigns) nodes.add(assign.value.value);
    return nodes;
  }
  // Ids of this process become dense numbers in the same order, so that equal plans have equal
  // text.
  void number_values() {
    const auto add = [&](const std::vector<uint64_t>& ids) {
      for (const uint64_t id : ids) numbers_.emplace(id, 0);
    };
    for (const Launch& launch : plan_.launches) add(nodes_of(launch).ids());
    add(ends().ids());
    for (const Slot& slot : plan_.slots)
      if (slot.value.defined()) numbers_.emplace(slot.value->id, 0);
    uint64_t next = 1;
    for (auto& [id, number] : numbers_) number = next++;
  }
  json numbers_of(const std::vector<uint64_t>& ids) const {
    json all = json::array();
    for (const uint64_t id : ids) all.push_back(numbers_.at(id));
    return all;
  }

  json slot_text(const Slot& slot) const {
    json text{{"type", artifact::to_json(slot.type)},
              {"category", std::string(name(slot.category))},
              {"space", std::string(spaces[static_cast<size_t>(slot.space)])},
              {"bytes", slot.bytes},
              {"offset", slot.offset},
              {"live", {slot.first, slot.last}}};
    if (slot.variable >= 0) text["variable"] = slot.variable;
    if (!slot.value.defined()) return text;
    NodeWriter node;
    node.add(slot.value);
    text["value"] = node.nodes();
    text["id"] = numbers_.at(slot.value->id);
    if (!slot.value->module().empty()) text["module"] = slot.value->module();
    return text;
  }

  static json places_of(const NodeWriter& nodes, const std::vector<Access>& accesses) {
    json all = json::array();
    for (const Access& access : accesses) all.push_back(nodes.place_of(access.value));
    return all;
  }
  // Returns the index of the launch's body among the bodies, all of which differ.
  size_t body_of(const Launch& launch, const NodeWriter& nodes) {
    json body{{"nodes", nodes.nodes()},
              {"operands", places_of(nodes, launch.operands)},
              {"results", places_of(nodes, launch.results)}};
    body["body"] = json::array();
    for (const Value& value : launch.body) body["body"].push_back(nodes.place_of(value));
    const auto [known, is_new] = known_bodies_.emplace(io::json_text(body), bodies_.size());
    if (is_new) bodies_.push_back(std::move(body));
    return known->second;
  }

  json launch_text(const Launch& launch) {
    const NodeWriter nodes = nodes_of(launch);
    json text{{"kind", std::string(kinds[static_cast<size_t>(launch.kind)])},
              {"kernel", launch.kernel},
              {"body", body_of(launch, nodes)},
              {"ids", numbers_of(nodes.ids())},
              {"operands", placements_of(launch.operands)},
              {"results", placements_of(launch.results)},
              {"flops", launch.flops},
              {"bytes", launch.bytes}};
    if (!launch.in_place.empty()) text["in_place"] = launch.in_place;
    if (launch.workspace > 0)
      text["workspace"] = {{"bytes", launch.workspace}, {"slot", launch.workspace_slot}};
    if (launch.packed_bytes > 0)
      text["packed"] = {{"bytes", launch.packed_bytes}, {"layout", launch.packed_layout}};
    if (launch.algorithm != 0) text["algorithm"] = launch.algorithm;
    if (launch.objects > 0) text["objects"] = launch.objects;
    if (launch.reread.bytes > 0)
      text["reread"] = {{"bytes", launch.reread.bytes}, {"in_flight", launch.reread.in_flight}};
    if (!launch.module.empty()) text["module"] = launch.module;
    if (launch.padded) text["padded"] = true;
    if (launch.rematerialized) text["rematerialized"] = true;
    if (launch.parts > 1) text["parts"] = launch.parts;
    return text;
  }

  // Adds inputs, outputs and assignments, whose values are outside of launches.
  void add_ends(json& all) const {
    const NodeWriter nodes = ends();
    all["values"] = {{"nodes", nodes.nodes()}, {"ids", numbers_of(nodes.ids())}};
    const auto access_text = [&](const Access& access) {
      json text = to_json(access.at);
      text["value"] = nodes.place_of(access.value);
      return text;
    };
    all["inputs"] = all["outputs"] = all["assigns"] = json::array();
    for (const Access& access : plan_.inputs) all["inputs"].push_back(access_text(access));
    for (const Access& access : plan_.outputs) all["outputs"].push_back(access_text(access));
    for (const Assign& assign : plan_.assigns) {
      json text = access_text(assign.value);
      text["state_slot"] = assign.state_slot;
      text["copy"] = assign.copy;
      all["assigns"].push_back(std::move(text));
    }
  }

  const Plan& plan_;
  std::vector<int> places_;               // of the plan's variables in the table
  std::map<uint64_t, uint64_t> numbers_;  // by id
  json bodies_ = json::array();
  std::map<std::string, size_t> known_bodies_;
};
}  // namespace

json to_json(const Plan& plan, std::vector<PlanVariable>& table) {
  return PlanWriter(plan, table).text();
}

json to_json(const std::vector<PlanVariable>& table) {
  json all = json::array();
  for (const PlanVariable& variable : table) {
    json text{{"name", variable.name},
              {"type", to_json(variable.type)},
              {"category", std::string(name(variable.category))}};
    if (variable.copy_of >= 0) text["copy_of"] = variable.copy_of;
    if (!variable.sources.empty()) text["sources"] = variable.sources;
    all.push_back(std::move(text));
  }
  return all;
}

}  // namespace weft::artifact
