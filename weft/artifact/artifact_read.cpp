#include <algorithm>
#include <cstring>
#include <filesystem>
#include <memory>
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
#include "weft/io/files.h"
#include "weft/io/json.h"
#include "weft/io/load.h"
#include "weft/io/safetensors.h"
#include "weft/ir/op_def.h"

namespace weft::artifact {
namespace {
using nlohmann::json;

[[noreturn]] void refuse(const std::string& file, const std::string& what) {
  throw Error(ErrorKind::checkpoint, "{}: {}.", file, what);
}

// Calls `read`, and names the file in what it finds wrong with the JSON.
template <class Read>
auto reading(const std::string& file, const Read& read) {
  try {
    return read();
  } catch (const io::JsonError& wrong) {
    refuse(file, wrong.what());
  } catch (const json::exception&) {  // a value of another kind than the reader took it for
    refuse(file, "it holds no plans of this format");
  }
}

// Parses the JSON of an artifact that is of this format and version.
json parsed(std::string_view text, const std::string& file) {
  return reading(file, [&] {
    json all = io::parse_json(text);
    if (const int64_t found = io::integer_at(all, "format"); found != format)
      throw io::JsonError(
          fmt::format("it has format {}; this version of weft reads {}", found, format));
    if (const std::string found = io::text_at(all, "version"); found != version::number)
      throw io::JsonError(
          fmt::format("weft {} compiled it, and this is {}. Hint: weft compile writes it again",
                      io::printable(found), version::number));
    return all;
  });
}

json plans_of(const io::Safetensors& file) {
  io::check_seal(file);
  const io::TensorFile::Entry* const entry = file.find(plans_name);
  if (entry == nullptr) refuse(file.name(), "it holds no plans. Hint: weft compile writes them");
  const std::span<const std::byte> bytes = file.bytes(*entry);
  return parsed({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, file.name());
}

std::vector<Plan> plans_of(const json& all, const std::vector<PlanVariable>& table) {
  std::vector<Plan> plans;
  for (const json& program : io::value_at(all, "programs"))
    plans.push_back(plan_of(io::value_at(program, "plan"), table));
  return plans;
}
std::vector<Plan> plans_of(const json& all, const std::string& file) {
  return reading(file, [&] { return plans_of(all, variables_of(io::value_at(all, "variables"))); });
}

// Returns target_here() of the device that plans are for.
json target_of(const std::string& file, const std::string& device) {
  try {
    return target_here(device);
  } catch (const Error& unknown) {
    throw Error(ErrorKind::device, "{}: it was compiled for the device {}. {}", file,
                io::printable(device), unknown.what());
  }
}

// Refuses plans that another device or another machine would have.
void check_target(const std::string& file, const json& target) {
  const json here = target_of(file, io::text_at(target, "device"));
  const std::string machine = io::text_at(target, "machine");
  if (machine != here["machine"])
    throw Error(ErrorKind::device, "{}: it was compiled for {}. This machine is {}.", file,
                io::printable(machine), here["machine"].get<std::string>());
  if (const int64_t threads = io::integer_at(target, "threads"); threads != here["threads"])
    throw Error(ErrorKind::device,
                "{}: it was compiled for {} threads, and here are {}. Hint: WEFT_THREADS={}.", file,
                threads, here["threads"].get<int>(), threads);
}

class ArtifactReader {
 public:
  ArtifactReader(const std::string& path, const ReadOptions& options)
      : path_(path), options_(options), file_(io::Safetensors::open(path)), all_(plans_of(file_)) {}

  Artifact read() {
    return reading(path_, [&] {
      check_target(path_, io::value_at(all_, "target"));
      take_code();
      table_ = variables_of(io::value_at(all_, "variables"));
      make_variables();
      load_elements();
      Artifact artifact{.kind = io::text_at(all_, "kind"),
                        .about = io::json_text(io::value_at(all_, "about")),
                        .device = io::text_at(io::value_at(all_, "target"), "device")};
      std::vector<Plan> plans = plans_of(all_, table_);
      for (size_t i = 0; i < plans.size(); ++i)
        artifact.programs.push_back(program_of(all_["programs"][i], std::move(plans[i])));
      for (const io::TensorFile::Entry& entry : file_.entries())
        if (entry.name.starts_with(io::folder_prefix))
          artifact.files.push_back({entry.name.substr(io::folder_prefix.size()), text_of(entry)});
      return artifact;
    });
  }

 private:
  std::string text_of(const io::TensorFile::Entry& entry) const {
    const std::span<const std::byte> bytes = file_.bytes(entry);
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
  // Hands the machine code to the device's compiler if this user signed it, or trusts it.
  void take_code() const {
    if (!all_.contains("kernels")) return;
    const json& kernels = all_["kernels"];
    std::vector<KernelCode> codes;
    for (const json& kernel : kernels) {
      const io::TensorFile::Entry* const entry = file_.find(kernel_name(codes.size()));
      if (entry == nullptr) refuse(path_, fmt::format("kernel {} is missing", codes.size()));
      codes.push_back(code_of(kernel, text_of(*entry)));
    }
    if (!options_.trust &&
        !is_signed(signed_text(all_["target"], kernels, codes), io::text_at(all_, "signature"))) {
      logging::note(
          "{}: this user did not sign its machine code, so its kernels are compiled again. Hint: "
          "--trust runs it.",
          path_);
      return;
    }
    library(io::text_at(all_["target"], "device")).compiler().add_code(std::move(codes));
  }
  std::shared_ptr<Storage> constant(size_t number, const Type& type) const {
    const io::TensorFile::Entry* const entry = file_.find(constant_name(number));
    if (entry == nullptr || entry->type != type)
      refuse(path_, fmt::format("constant {} of {} is missing", number, to_string(type)));
    return file_.tensor(entry->name)->storage;
  }

  // Makes the variables of the table, zeros until they are loaded.
  void make_variables() {
    const json& texts = all_["variables"];
    handles_.resize(table_.size());
    for (size_t i = 0; i < table_.size(); ++i) {
      PlanVariable& variable = table_[i];
      if (variable.copy_of < 0)
        handles_[i] = Variable(variable.name, variable.type, variable.category);
      std::shared_ptr<VariableState> state =
          variable.copy_of < 0 ? handles_[i].state()
                               : copy_in(states_[static_cast<size_t>(variable.copy_of)],
                                         variable.type.dtype, room_of_copy(i));
      if (!variable.sources.empty()) derive(*state, variable, io::value_at(texts[i], "expression"));
      variable.id = state->id;
      states_.push_back(std::move(state));
    }
  }
  // Copies have room for the padding that a plan gives their slot.
  size_t room_of_copy(size_t index) const {
    size_t room = table_[index].type.bytes();
    for (const json& program : all_["programs"]) {
      const json& plan = program.at("plan");
      for (const json& slot : plan.at("slots"))
        if (slot.contains("variable") &&
            plan.at("variables").at(slot.at("variable").get<size_t>()) == index)
          room = std::max(room, slot.at("bytes").get<size_t>());
    }
    return room;
  }
  void derive(VariableState& state, const PlanVariable& variable, const json& text) const {
    const json& nodes = io::value_at(text, "nodes");
    std::vector<uint64_t> ids(nodes.size());
    for (uint64_t& id : ids) id = scalar(0)->id;  // ids of this process, in order
    const std::vector<Value> values = nodes_of(nodes, ids);
    state.derivation = std::make_shared<Derivation>();
    for (const int source : variable.sources)
      state.derivation->sources.push_back(states_[static_cast<size_t>(source)]);
    for (const json& pair : io::value_at(text, "sources"))
      values.at(pair.at(0).get<size_t>())->variable =
          state.derivation->sources.at(pair.at(1).get<size_t>());
    for (const json& pair : io::value_at(text, "constants")) {
      const Value& value = values.at(pair.at(0).get<size_t>());
      value->storage = constant(pair.at(1).get<size_t>(), value.type());
    }
    state.derivation->expression = values.at(static_cast<size_t>(io::integer_at(text, "result")));
  }

  void load_elements() {
    io::NamedVariables inside, beside;
    const std::string weights = weights_path();
    for (size_t i = 0; i < table_.size(); ++i) {
      const json& text = all_["variables"][i];
      if (!text.contains("elements")) continue;
      auto& list = weights.empty() ? inside : beside;
      if (table_[i].copy_of >= 0) refuse(path_, "a copy has elements of its own");
      list.emplace_back(io::text_at(text, "elements"), handles_[i]);
    }
    const io::LoadOptions options{
        .ignore = {std::string(plans_name), std::string(io::folder_prefix) + "*", "weft/constant/*",
                   "weft/kernel/*", std::string(io::seal_name)},
        .map = true};
    if (!beside.empty()) io::load_into(weights, beside, options);
    if (!inside.empty()) io::load_into(path_, inside, options);
    for (const auto& state : states_)
      if (state->derivation != nullptr && weights.empty())
        for (const auto& source : state->derivation->sources)
          state->derivation->seen.push_back(source->storage->writes());
  }
  // Returns the file of weights; "": they are inside.
  std::string weights_path() const {
    if (!options_.weights.empty()) return options_.weights;
    if (!all_.contains("weights")) return "";
    return (std::filesystem::path(path_).parent_path() / io::text_at(all_, "weights")).string();
  }

  Program program_of(const json& text, Plan plan) const {
    Program program{.name = io::text_at(text, "name"), .bound = {}};
    Bindings& bindings = program.bound.bindings;
    for (const PlanVariable& variable : plan.variables) {
      const auto found = std::ranges::find(table_, variable.id, &PlanVariable::id);
      bindings.variables.push_back(states_[static_cast<size_t>(found - table_.begin())]);
    }
    bindings.constants.resize(plan.slots.size());
    for (const json& each : io::value_at(text, "constants")) {
      const auto slot = static_cast<size_t>(io::integer_at(each, "slot"));
      if (slot >= plan.slots.size()) refuse(path_, "a constant has no slot");
      bindings.constants[slot] =
          constant(static_cast<size_t>(io::integer_at(each, "number")), plan.slots[slot].type);
    }
    program.bound.plan = std::move(plan);
    return program;
  }

  std::string path_;
  ReadOptions options_;
  io::Safetensors file_;
  json all_;
  std::vector<PlanVariable> table_;
  std::vector<Variable> handles_;                       // of table_; empty for copies
  std::vector<std::shared_ptr<VariableState>> states_;  // of table_
};
}  // namespace

Artifact read_artifact(const std::string& path, const ReadOptions& options) {
  return ArtifactReader(path, options).read();
}

std::vector<Plan> plans_in(std::span<const std::byte> file, const std::string& name) {
  const auto bytes = Buffer::allocate(file.size());
  std::memcpy(bytes->data, file.data(), file.size());
  const json all = plans_of(io::Safetensors::parse(bytes, name));
  return plans_of(all, name);
}

std::vector<Plan> plans_in_json(std::string_view text, const std::string& name) {
  return plans_of(parsed(text, name), name);
}

}  // namespace weft::artifact
