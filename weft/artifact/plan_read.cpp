#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "weft/artifact/node_json.h"
#include "weft/artifact/plan_json.h"
#include "weft/artifact/plan_words.h"
#include "weft/base/memory/buffer.h"
#include "weft/io/files.h"
#include "weft/io/json.h"
#include "weft/ir/op_def.h"

namespace weft::artifact {
namespace {
using io::JsonError;
using nlohmann::json;

constexpr int categories = static_cast<int>(Category::output) + 1;

template <class Names>
size_t index_among(const Names& names, std::string_view name) {
  const auto found = std::ranges::find(names, name);
  if (found == names.end()) throw JsonError(fmt::format("unknown word {}", io::printable(name)));
  return static_cast<size_t>(found - names.begin());
}
Category category_of(std::string_view text) {
  for (int i = 0; i < categories; ++i)
    if (name(static_cast<Category>(i)) == text) return static_cast<Category>(i);
  throw JsonError(fmt::format("unknown category {}", io::printable(text)));
}

// Return a number that is at least 0, and the index of one of `count` things.
size_t size_at(const json& object, const char* key) {
  const int64_t size = io::integer_at(object, key);
  if (size < 0) throw JsonError(fmt::format("{} is {}", key, size));
  return static_cast<size_t>(size);
}
int index_at(const json& object, const char* key, size_t count) {
  const size_t index = size_at(object, key);
  if (index >= count) throw JsonError(fmt::format("{} is {} of {}", key, index, count));
  return static_cast<int>(index);
}
int index_or_none_at(const json& object, const char* key, size_t count) {
  return object.contains(key) ? index_at(object, key, count) : -1;
}
const json& list_at(const json& object, const char* key) {
  const json& list = io::value_at(object, key);
  if (!list.is_array()) throw JsonError(fmt::format("{} must be a list", key));
  return list;
}
std::vector<uint64_t> ids_at(const json& object, const char* key) {
  std::vector<uint64_t> ids;
  for (const json& id : list_at(object, key)) {
    ids.push_back(index_of(id, INT64_MAX, "an id"));
  }
  if (!std::ranges::is_sorted(ids) || std::ranges::adjacent_find(ids) != ids.end())
    throw JsonError(fmt::format("{} must ascend", key));
  return ids;
}

class PlanReader {
 public:
  PlanReader(const json& text, const std::vector<PlanVariable>& table) : text_(text) {
    read_variables(table);
    plan_.arena_bytes = size_at(text, "arena_bytes");
    plan_.file_bytes = size_at(text, "file_bytes");
    plan_.live_peak_bytes = size_at(text, "live_peak_bytes");
    for (const json& slot : list_at(text, "slots")) plan_.slots.push_back(read_slot(slot));
    for (const json& launch : list_at(text, "launches"))
      plan_.launches.push_back(read_launch(launch));
    read_ends();
    check_variables();
    const auto moves = [](const Launch& launch) {
      return launch.kind == Launch::Kind::transfer || launch.kind == Launch::Kind::await;
    };
    // verify() checks the transfers of plans that have an arena alone.
    if (plan_.arena_bytes == 0 && std::ranges::any_of(plan_.launches, moves))
      throw JsonError("a transfer has no memory");
  }
  Plan take() { return std::move(plan_); }

 private:
  void read_variables(const std::vector<PlanVariable>& table) {
    std::map<int64_t, int> here;  // index in the table to index in the plan
    for (const json& place : list_at(text_, "variables")) {
      PlanVariable variable = table[index_of(place, table.size(), "a variable")];
      const auto of_table = [&](int& index) {
        const auto found = here.find(index);
        if (found == here.end()) throw JsonError("a variable stands before what it is made from");
        index = found->second;
      };
      if (variable.copy_of >= 0) of_table(variable.copy_of);
      std::ranges::for_each(variable.sources, of_table);
      here.emplace(place.get<int64_t>(), static_cast<int>(plan_.variables.size()));
      plan_.variables.push_back(std::move(variable));
    }
  }

  Slot read_slot(const json& text) const {
    Slot slot{.type = type_of(io::value_at(text, "type")),
              .category = category_of(io::text_at(text, "category")),
              .space = static_cast<Space>(index_among(spaces, io::text_at(text, "space"))),
              .bytes = size_at(text, "bytes"),
              .offset = size_at(text, "offset"),
              .variable = index_or_none_at(text, "variable", plan_.variables.size())};
    const Dims live = dims_of(list_at(text, "live"));
    if (live.size() != 2) throw JsonError("live must be two launches");
    const auto launches = static_cast<int64_t>(list_at(text_, "launches").size());
    if (live[0] < -1 || live[0] > live[1] || live[1] > launches)
      throw JsonError(fmt::format("a slot lives from {} to {}", live[0], live[1]));
    slot.first = static_cast<int>(live[0]), slot.last = static_cast<int>(live[1]);
    if (slot.space == Space::state && slot.variable < 0) throw JsonError("state is no variable");
    const bool is_in_file = slot.space == Space::file && slot.variable < 0;
    const size_t whole = slot.space == Space::arena ? plan_.arena_bytes
                         : is_in_file               ? plan_.file_bytes
                                                    : SIZE_MAX;
    const bool is_within = slot.offset <= whole && slot.bytes <= whole - slot.offset &&
                           slot.offset % buffer_alignment == 0;
    const bool is_constant = slot.space == Space::constant;
    if (slot.bytes < slot.type.bytes() || (is_constant && slot.bytes != slot.type.bytes()) ||
        !is_within)
      throw JsonError(fmt::format("a slot of {} has {} bytes at {}", to_string(slot.type),
                                  slot.bytes, slot.offset));
    if (!text.contains("value") && slot.space == Space::arena) return slot;
    slot.value = leaf_of(text);
    if (text.contains("module")) slot.value->origin.module = &interned(io::text_at(text, "module"));
    return slot;
  }
  // The value of a slot is any operation, without its inputs.
  static Value leaf_of(const json& text) {
    const json& nodes = list_at(text, "value");
    if (nodes.size() != 1) throw JsonError("a slot has one value");
    json leaf = nodes[0];
    const std::string name = io::text_at(leaf, "op");
    const OpDef* const def = find_op(name);
    if (def == nullptr)
      throw JsonError(fmt::format("no operation is called {}", io::printable(name)));
    leaf["op"] = "data";
    const Value value = nodes_of(json::array({leaf}), {size_at(text, "id")}).front();
    value->op = def;
    return value;
  }

  Placement read_placement(const json& text, const Type& type) const {
    Placement at{.slot = index_at(text, "slot", plan_.slots.size()),
                 .offset = text.contains("offset") ? io::integer_at(text, "offset") : 0,
                 .strides = dims_of(list_at(text, "strides"))};
    check_within(at, type);
    return at;
  }
  // Refuses a placement of which an element is outside of its slot.
  void check_within(const Placement& at, const Type& type) const {
    if (at.strides.size() != type.shape.size())
      throw JsonError(fmt::format("{} strides do not fit {}", at.strides.size(), to_string(type)));
    if (type.elements() == 0) return;
    const Slot& slot = plan_.slots[static_cast<size_t>(at.slot)];
    const auto room = static_cast<int64_t>(slot.bytes / size_of(type.dtype));  // elements
    int64_t first = at.offset, last = at.offset;
    bool is_within = true;
    for (int i = 0; i < type.shape.size(); ++i) {
      int64_t reach = 0;
      int64_t& end = at.strides[i] < 0 ? first : last;
      is_within = is_within && !__builtin_mul_overflow(at.strides[i], type.shape[i] - 1, &reach) &&
                  !__builtin_add_overflow(end, reach, &end);
    }
    if (!is_within || first < 0 || last >= room)
      throw JsonError(fmt::format("{} reaches beyond the {} bytes of slot {}", to_string(type),
                                  slot.bytes, at.slot));
  }

  std::vector<Access> read_accesses(const json& launch, const json& body, const char* key,
                                    const std::vector<Value>& nodes) const {
    const json &places = list_at(body, key), &placements = list_at(launch, key);
    if (places.size() != placements.size())
      throw JsonError(
          fmt::format("{} placements for {} {}", placements.size(), places.size(), key));
    std::vector<Access> accesses;
    for (size_t i = 0; i < places.size(); ++i) {
      const Value& value = node_at(nodes, places[i]);
      accesses.push_back({value, read_placement(placements[i], value.type())});
    }
    return accesses;
  }
  static const Value& node_at(const std::vector<Value>& nodes, const json& place) {
    return nodes[index_of(place, nodes.size(), "a value")];
  }

  Launch read_launch(const json& text) const {
    const json& bodies = list_at(text_, "bodies");
    const json& body = bodies[static_cast<size_t>(index_at(text, "body", bodies.size()))];
    const std::vector<Value> nodes = nodes_of(list_at(body, "nodes"), ids_at(text, "ids"));
    Launch launch{.kind = static_cast<Launch::Kind>(index_among(kinds, io::text_at(text, "kind"))),
                  .kernel = io::text_at(text, "kernel")};
    for (const json& place : list_at(body, "body")) launch.body.push_back(node_at(nodes, place));
    launch.operands = read_accesses(text, body, "operands", nodes);
    launch.results = read_accesses(text, body, "results", nodes);
    launch.flops = io::number_at(text, "flops"), launch.bytes = io::number_at(text, "bytes");
    read_details(text, launch);
    check_parts(launch);
    for (const Value& node : nodes) node->origin.module = &interned(launch.module);
    return launch;
  }
  void read_details(const json& text, Launch& launch) const {
    if (text.contains("in_place"))
      for (const json& pair : text.at("in_place")) {
        const Dims both = dims_of(pair);
        const bool is_pair = both.size() == 2 && both[0] >= 0 && both[1] >= 0 &&
                             both[0] < std::ssize(launch.results) &&
                             both[1] < std::ssize(launch.operands);
        if (!is_pair) throw JsonError("in_place must be a result and an operand");
        launch.in_place.emplace_back(both[0], both[1]);
      }
    if (text.contains("workspace")) {
      const json& workspace = text.at("workspace");
      launch.workspace = size_at(workspace, "bytes");
      launch.workspace_slot = index_at(workspace, "slot", plan_.slots.size());
      if (plan_.slots[static_cast<size_t>(launch.workspace_slot)].bytes < launch.workspace)
        throw JsonError("a workspace is larger than its slot");
    }
    if (text.contains("packed")) {
      launch.packed_bytes = size_at(text.at("packed"), "bytes");
      launch.packed_layout = io::text_at(text.at("packed"), "layout");
    }
    if (text.contains("algorithm"))
      launch.algorithm = static_cast<int>(io::integer_at(text, "algorithm"));
    if (text.contains("objects")) launch.objects = static_cast<int>(size_at(text, "objects"));
    if (text.contains("reread"))
      launch.reread = {.bytes = io::number_at(text.at("reread"), "bytes"),
                       .in_flight = io::number_at(text.at("reread"), "in_flight")};
    if (text.contains("module")) launch.module = io::text_at(text, "module");
    launch.padded = text.contains("padded");
    launch.rematerialized = text.contains("rematerialized");
    if (text.contains("parts")) launch.parts = static_cast<int>(size_at(text, "parts"));
  }
  static void check_parts(const Launch& launch) {
    if (launch.kind == Launch::Kind::collective)
      throw JsonError("a collective, which steps of files have not");
    const bool moves = launch.kind == Launch::Kind::transfer || launch.kind == Launch::Kind::await;
    const auto parts = static_cast<size_t>(launch.parts);
    const bool is_even = parts > 0 && launch.body.size() % parts == 0 &&
                         launch.operands.size() % parts == 0 && launch.results.size() % parts == 0;
    const bool has_what_it_needs =
        moves ? launch.operands.size() == 1 &&
                    launch.results.size() == (launch.kind == Launch::Kind::transfer ? 1 : 0)
              : !launch.body.empty() && !launch.results.empty();
    if (!is_even || !has_what_it_needs)
      throw JsonError(fmt::format("{} has {} nodes, {} operands and {} results in {} parts",
                                  io::printable(launch.kernel), launch.body.size(),
                                  launch.operands.size(), launch.results.size(), launch.parts));
  }

  void read_ends() {
    const json& values = io::value_at(text_, "values");
    const std::vector<Value> nodes = nodes_of(list_at(values, "nodes"), ids_at(values, "ids"));
    const auto access_of = [&](const json& text) -> Access {
      const Value& value = node_at(nodes, io::value_at(text, "value"));
      Access access{value, read_placement(text, value.type())};
      const Placement dense{access.at.slot, access.at.offset, row_major_strides(value.shape())};
      if (!same_elements(access, {value, dense}))
        throw JsonError("an input or a result is not row-major");
      return access;
    };
    for (const json& text : list_at(text_, "inputs")) {
      plan_.inputs.push_back(access_of(text));
      if (plan_.inputs.back().at.offset != 0) throw JsonError("an input begins within its slot");
    }
    for (const json& text : list_at(text_, "outputs")) plan_.outputs.push_back(access_of(text));
    for (const json& text : list_at(text_, "assigns"))
      plan_.assigns.push_back({.state_slot = index_at(text, "state_slot", plan_.slots.size()),
                               .value = access_of(text),
                               .copy = io::truth_at(text, "copy")});
  }
  // The storage of a variable has room for its type, and a slot may ask for padding beyond it, as
  // copies in narrower types have.
  void check_variables() const {
    for (const Assign& assign : plan_.assigns) {
      const Slot& slot = plan_.slots[static_cast<size_t>(assign.state_slot)];
      if (slot.variable < 0 || slot.space == Space::arena ||
          slot.bytes < assign.value.value.type().bytes())
        throw JsonError("an assignment is to no variable");
    }
    for (const Slot& slot : plan_.slots) {
      if (slot.variable < 0) continue;
      const PlanVariable& variable = plan_.variables[static_cast<size_t>(slot.variable)];
      const bool has_room = slot.bytes == variable.type.bytes() || variable.copy_of >= 0;
      if (!has_room && slot.space != Space::arena)
        throw JsonError(fmt::format("{} has {} bytes and is {}", io::printable(variable.name),
                                    slot.bytes, to_string(variable.type)));
    }
  }

  const json& text_;
  Plan plan_;
};
}  // namespace

Plan plan_of(const json& text, const std::vector<PlanVariable>& table) {
  try {
    Plan plan = PlanReader(text, table).take();
    verify(plan);
    return plan;
  } catch (const InternalError& broken) {
    throw JsonError(fmt::format("the plan is broken: {}", io::printable(broken.what())));
  } catch (const Error& broken) {  // such as a type whose bytes overflow
    throw JsonError(broken.what());
  }
}

std::vector<PlanVariable> variables_of(const json& text) try {
  std::vector<PlanVariable> table;
  if (!text.is_array()) throw JsonError("variables must be a list");
  for (const json& each : text) {
    PlanVariable variable{.name = io::text_at(each, "name"),
                          .type = type_of(io::value_at(each, "type")),
                          .category = category_of(io::text_at(each, "category")),
                          .id = table.size() + 1,
                          .copy_of = index_or_none_at(each, "copy_of", table.size())};
    if (each.contains("sources"))
      for (const json& source : list_at(each, "sources")) {
        variable.sources.push_back(
            static_cast<int>(index_of(source, table.size(), "a source of a variable")));
      }
    (void)variable.type.bytes();  // throws where they overflow
    table.push_back(std::move(variable));
  }
  return table;
} catch (const Error& overflow) {
  throw JsonError(overflow.what());
}

}  // namespace weft::artifact
