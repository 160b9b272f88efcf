#include <algorithm>
#include <filesystem>
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
#include "weft/device/compiler.h"
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

std::string_view text_of(const io::Safetensors& file, const io::TensorFile::Entry& entry) {
  const std::span<const std::byte> bytes = file.bytes(entry);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

json model_of(const io::Safetensors& file) {
  io::check_seal(file);
  const io::TensorFile::Entry* const entry = file.find(model_name);
  if (entry == nullptr) refuse(file.name(), "it holds no plans. Hint: weft compile writes them");
  return parsed(text_of(file, *entry), file.name());
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
  const std::string machine = io::text_at(target, "machine"),
                    this_machine = io::text_at(here, "machine");
  if (machine != this_machine)
    throw Error(ErrorKind::device, "{}: it was compiled for {}. This machine is {}.", file,
                io::printable(machine), io::printable(this_machine));
  const int64_t threads = io::integer_at(target, "threads"),
                threads_here = io::integer_at(here, "threads");
  if (threads != threads_here)
    throw Error(ErrorKind::device,
                "{}: it was compiled for {} threads, and here are {}. Hint: WEFT_THREADS={}.", file,
                threads, threads_here, threads);
}

class ArtifactReader {
 public:
  ArtifactReader(io::Safetensors file, const ReadOptions& options)
      : path_(file.name()), options_(options), file_(std::move(file)), all_(model_of(file_)) {}

  // Makes the variables, and returns the artifact without its programs.
  OpenArtifact open() {
    return reading(path_, [&] {
      check_target(path_, io::value_at(all_, "target"));
      take_code();
      table_ = variables_of(io::value_at(all_, "variables"));
      make_variables();
      load_elements();
      OpenArtifact artifact{.kind = io::text_at(all_, "kind"),
                            .about = io::json_text(io::value_at(all_, "about")),
                            .device = io::text_at(io::value_at(all_, "target"), "device"),
                            .programs = programs_ = io::texts_at(all_, "programs"),
                            .files = {path_, model_files()},
                            .read = {}};
      for (size_t i = 0; i < programs_.size(); ++i) (void)program_text(i);
      return artifact;
    });
  }
  // Reads the plan of a program, verifies it and binds it to the variables.
  BoundPlan read(std::string_view name) const {
    const auto found = std::ranges::find(programs_, name);
    WEFT_CHECK(found != programs_.end(), "{}: it has no plan {}.", path_, io::printable(name));
    return reading(path_, [&] {
      const json text =
          io::parse_json(program_text(static_cast<size_t>(found - programs_.begin())));
      return bound(text, plan_of(io::value_at(text, "plan"), table_));
    });
  }

 private:
  std::vector<io::FolderFile> model_files() const {
    std::vector<io::FolderFile> files;
    for (const io::TensorFile::Entry& entry : file_.entries())
      if (entry.name.starts_with(file_prefix))
        files.push_back(
            {entry.name.substr(file_prefix.size()), std::string(text_of(file_, entry))});
    return files;
  }
  std::string_view program_text(size_t number) const {
    const io::TensorFile::Entry* const entry = file_.find(program_name(number));
    if (entry == nullptr) refuse(path_, fmt::format("plan {} is missing", number));
    return text_of(file_, *entry);
  }
  // Hands the machine code to the device's compiler if this user signed it, or trusts it.
  void take_code() const {
    if (!all_.contains("kernels")) return;
    const json& kernels = all_["kernels"];
    std::vector<KernelCode> codes;
    for (const json& kernel : kernels) {
      const io::TensorFile::Entry* const entry = file_.find(kernel_name(codes.size()));
      if (entry == nullptr) refuse(path_, fmt::format("kernel {} is missing", codes.size()));
      codes.push_back(code_of(kernel, std::string(text_of(file_, *entry))));
    }
    const json& target = all_["target"];
    const KernelCompiler& compiler = library(io::text_at(target, "device")).compiler();
    if (io::text_at(target, "compiler") != compiler.identity()) {
      logging::note(
          "{}: its machine code is of another build of weft or for another WEFT_ISA, so its "
          "kernels are compiled again.",
          path_);
      return;
    }
    if (!options_.trust &&
        !is_signed(signed_text(target, kernels, codes), io::text_at(all_, "signature"))) {
      logging::note(
          "{}: this user did not sign its machine code, so its kernels are compiled again. Hint: "
          "--trust runs it.",
          path_);
      return;
    }
    compiler.add_code(codes);
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
      const PlanVariable& variable = table_[i];
      if (variable.copy_of < 0)
        handles_[i] = Variable(variable.name, variable.type, variable.category);
      std::shared_ptr<VariableState> state =
          variable.copy_of < 0 ? handles_[i].state() : make_copy(variable, texts[i]);
      if (!variable.sources.empty()) derive(*state, variable, io::value_at(texts[i], "expression"));
      states_.push_back(std::move(state));
    }
  }
  std::shared_ptr<VariableState> make_copy(const PlanVariable& copy, const json& text) const {
    const PlanVariable& source = table_[static_cast<size_t>(copy.copy_of)];
    const bool is_narrow = copy.type.dtype == DType::bf16 || copy.type.dtype == DType::f16;
    if (!is_narrow || source.type != Type{DType::f32, copy.type.shape} || source.copy_of >= 0)
      throw io::JsonError(
          fmt::format("{} is no copy of {}", to_string(copy.type), to_string(source.type)));
    const int64_t room = io::integer_at(text, "room");  // with the padding of its plans
    if (room < static_cast<int64_t>(copy.type.bytes()))
      throw io::JsonError(fmt::format("a copy of {} has {} bytes", to_string(copy.type), room));
    return copy_in(states_[static_cast<size_t>(copy.copy_of)], copy.type.dtype,
                   static_cast<size_t>(room));
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
      values[pair_at(pair, 0, values.size())]->variable =
          state.derivation->sources[pair_at(pair, 1, variable.sources.size())];
    for (const json& pair : io::value_at(text, "constants")) {
      const Value& value = values[pair_at(pair, 0, values.size())];
      value->storage = constant(pair_at(pair, 1, SIZE_MAX), value.type());
    }
    check_bound(values);
    const Value& result = values[index_of(io::value_at(text, "result"), values.size(), "result")];
    if (result.type() != variable.type)
      throw io::JsonError(fmt::format("an expression yields {} for {}", to_string(result.type()),
                                      to_string(variable.type)));
    state.derivation->expression = result;
  }
  // Refuses leaves of an expression that are no variable or constant of their type.
  static void check_bound(std::span<const Value> values) {
    for (const Value& value : values) {
      const LeafKind leaf = value->op->leaf;
      const VariableState* const variable = value->variable.get();
      const bool reads = leaf == LeafKind::variable;
      const bool is_bound = reads ? variable != nullptr && variable->type == value.type()
                            : leaf == LeafKind::data ? value->storage != nullptr
                                                     : leaf != LeafKind::input;
      if (!is_bound || (!reads && variable != nullptr))
        throw io::JsonError("an expression reads what is nowhere");
    }
  }
  static size_t pair_at(const json& pair, size_t place, size_t count) {
    if (!pair.is_array() || pair.size() != 2) throw io::JsonError("a pair of numbers is missing");
    return index_of(pair[place], count, "a number of a pair");
  }

  void load_elements() {
    io::NamedVariables here, there;
    std::set<std::string> names;
    const std::string file = weights_path();
    const bool are_inside = file == path_;
    for (size_t i = 0; i < table_.size(); ++i) {
      const json& text = all_["variables"][i];
      if (!text.contains("elements")) continue;
      if (!table_[i].sources.empty() && !are_inside) continue;  // from the weights that were inside
      if (table_[i].copy_of >= 0) throw io::JsonError("a copy has elements of its own");
      const std::string name = io::text_at(text, "elements");
      if (!names.insert(name).second)
        throw io::JsonError(fmt::format("'{}' is two variables", io::printable(name)));
      (io::truth_at(text, "is_weight") && !are_inside ? there : here)
          .emplace_back(name, handles_[i]);
    }
    if (!here.empty()) {
      const io::Loaded loaded = io::load_into(file_, here, {.map = true, .strict = false});
      if (!loaded.missing.empty())
        refuse(path_, fmt::format("it has no tensor '{}'", io::printable(loaded.missing.front())));
    }
    if (!there.empty())
      io::load_into(file, there, {.ignore = {"weft/*", std::string(io::seal_name)}, .map = true});
    if (!are_inside) return;
    for (const auto& state : states_)
      if (state->derivation != nullptr)
        for (const auto& source : state->derivation->sources)
          state->derivation->seen.push_back(source->storage->writes());
  }
  // Returns the file of weights: another one than the artifact's own, one beside it, or itself.
  std::string weights_path() const {
    if (!options_.weights.empty()) return options_.weights;
    if (!all_.contains("weights")) return path_;
    const std::filesystem::path name = io::text_at(all_, "weights");
    if (name != name.filename() || name.empty())
      throw io::JsonError("its weights are not beside it");
    return (std::filesystem::path(path_).parent_path() / name).string();
  }

  BoundPlan bound(const json& text, Plan plan) const {
    Bindings bindings;
    for (PlanVariable& variable : plan.variables) {
      bindings.variables.push_back(states_[variable.id - 1]);
      variable.id = bindings.variables.back()->id;
    }
    bindings.constants.resize(plan.slots.size());
    for (const json& each : io::value_at(text, "constants")) {
      const size_t slot = index_of(io::value_at(each, "slot"), plan.slots.size(), "a slot");
      bindings.constants[slot] = constant(
          index_of(io::value_at(each, "number"), SIZE_MAX, "a constant"), plan.slots[slot].type);
    }
    check_storage(plan, bindings);
    return {.plan = std::move(plan), .bindings = std::move(bindings)};
  }

  // Refuses slots that are larger than what they stand for.
  static void check_storage(const Plan& plan, const Bindings& bindings) {
    for (size_t i = 0; i < plan.slots.size(); ++i) {
      const Slot& slot = plan.slots[i];
      const bool is_constant = slot.space == Space::constant;
      if (!is_constant && (slot.space == Space::arena || slot.variable < 0)) continue;
      const Storage* const storage =
          is_constant ? bindings.constants[i].get() : bindings.variable(slot)->storage.get();
      if (storage == nullptr || slot.bytes > storage->bytes())
        throw io::JsonError(fmt::format("slot {} of {} bytes has no such storage", i, slot.bytes));
    }
  }

  std::string path_;
  ReadOptions options_;
  io::Safetensors file_;
  json all_;
  std::vector<PlanVariable> table_;  // whose ids are their places, from 1 on
  std::vector<std::string> programs_;
  std::vector<Variable> handles_;                       // of table_; empty for copies
  std::vector<std::shared_ptr<VariableState>> states_;  // of table_
};

OpenArtifact opened(io::Safetensors file, const ReadOptions& options) {
  const auto reader = std::make_shared<ArtifactReader>(std::move(file), options);
  OpenArtifact artifact = reader->open();
  artifact.read = [reader](std::string_view name) { return reader->read(name); };
  return artifact;
}
}  // namespace

OpenArtifact open_artifact(const std::string& path, const ReadOptions& options) {
  return opened(io::Safetensors::open(path, io::Mapping::copy_on_write), options);
}
OpenArtifact open_artifact(std::shared_ptr<Buffer> file, const std::string& name,
                           const ReadOptions& options) {
  return opened(io::Safetensors::parse(std::move(file), name), options);
}

}  // namespace weft::artifact
