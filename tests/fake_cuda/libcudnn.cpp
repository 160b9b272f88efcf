// Simulates cuDNN's backend API, version 9. Graphs of operations are computed by definition
// (cudnn_operations.h); what the library refuses by its documentation is refused. This is one file
// because it follows a graph to its engines, its plan and its runs; descriptors and operations have
// files of their own.
#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "tests/fake_cuda/cudnn_descriptors.h"
#include "tests/fake_cuda/fake.h"

extern "C" int cuCtxGetCurrent(void** context);

namespace {
using namespace fake::cudnn;
using Handle = void*;

struct Library {
  Handle context = nullptr, stream = nullptr;
};
Handle current_context() {
  Handle context = nullptr;
  cuCtxGetCurrent(&context);
  return context;
}

// A descriptor's handle points to a Held.
using Held = std::shared_ptr<Descriptor>;
Held& held(Handle handle) {
  require(handle != nullptr, CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "a descriptor");
  return *static_cast<Held*>(handle);
}
const Descriptor& final_one(Handle handle, Kind kind) {
  const Descriptor& found = *held(handle);
  require(found.kind == kind, CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE,
          "a descriptor of kind " + std::to_string(kind));
  require(found.is_final, CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, "a finalized descriptor");
  return found;
}
const Attribute& attribute_of(const Descriptor& descriptor, int name, int type) {
  for (const Attribute& attribute : attributes_of(descriptor.kind)) {
    if (attribute.name != name) continue;
    const bool scales = type == CUDNN_TYPE_DOUBLE && attribute.type == CUDNN_TYPE_FLOAT;
    require(type == attribute.type || scales, CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE,
            "the type of attribute " + std::to_string(name));
    return attribute;
  }
  throw Refused{CUDNN_STATUS_BAD_PARAM,
                "an attribute that descriptors of its kind have: not " + std::to_string(name)};
}

size_t bytes_of(int type) {
  switch (type) {
    case CUDNN_TYPE_BOOLEAN:
    case CUDNN_TYPE_CHAR:
      return 1;
    case CUDNN_TYPE_HANDLE:
    case CUDNN_TYPE_INT64:
    case CUDNN_TYPE_DOUBLE:
    case CUDNN_TYPE_VOID_PTR:
    case CUDNN_TYPE_BACKEND_DESCRIPTOR:
      return 8;
    default:
      return 4;
  }
}

// ---- engines

struct Engine {
  std::vector<int> notes;
  int64_t workspace;  // bytes
  Rounding rounding;
  HeuristicsMode found_by;
};
// The first engines break the rules of bitwise reproducible results.
std::vector<Engine> all_engines() {
  constexpr auto tensor_core = CUDNN_NUMERICAL_NOTE_TENSOR_CORE;
  constexpr auto best = CUDNN_HEUR_MODE_A;
  constexpr int64_t mebibyte = 1 << 20;
  std::vector<Engine> all{
      {{tensor_core, CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC}, 0, Rounding::coarse, best},
      {{CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS}, 0, Rounding::coarse, best},
      {{CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION}, 0, Rounding::coarse, best},
      {{CUDNN_NUMERICAL_NOTE_WINOGRAD}, 0, Rounding::coarse, best},
      {{tensor_core},
       fake::number("FAKE_CUDNN_WORKSPACE", mebibyte * mebibyte),
       Rounding::coarse,
       best},
  };
  for (int tiles = 0; tiles < 8; ++tiles)
    all.push_back({{tensor_core}, mebibyte >> tiles, Rounding::tf32, best});
  all.push_back(
      {{CUDNN_NUMERICAL_NOTE_STRICT_NAN_PROP}, mebibyte, Rounding::none, CUDNN_HEUR_MODE_FALLBACK});
  return all;
}
const std::vector<Engine>& engines() {
  static const std::vector<Engine> all = all_engines();
  return all;
}
Shared config_of(const Shared& graph, size_t index) {
  const Engine& engine = engines()[index];
  const auto made = std::make_shared<Descriptor>(CUDNN_BACKEND_ENGINE_DESCRIPTOR, true);
  made->say(CUDNN_ATTR_ENGINE_OPERATION_GRAPH, {graph});
  made->say(CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64,
            std::vector{static_cast<int64_t>(index)});
  made->say(CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE, engine.notes);
  const auto config = std::make_shared<Descriptor>(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, true);
  config->say(CUDNN_ATTR_ENGINECFG_ENGINE, {made});
  config->say(CUDNN_ATTR_ENGINECFG_WORKSPACE_SIZE, CUDNN_TYPE_INT64, std::vector{engine.workspace});
  return config;
}

void check_properties(const Descriptor& of) {
  const auto json = of.all<char>(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION);
  const bool says = std::string(json.begin(), json.end()).find("\"deviceVer\"") < json.size();
  require(says || of.has(CUDNN_ATTR_DEVICEPROP_HANDLE), CUDNN_STATUS_BAD_PARAM,
          "properties of a handle, or as JSON");
}
void rank_engines(Descriptor& heuristics) {
  heuristics.part(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  const Shared& graph = heuristics.parts(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH)[0];
  std::vector<Shared> configs;
  const bool refuses = fake::number("FAKE_CUDNN_REFUSES", 0) == 1;
  for (size_t i = 0; i < engines().size() && !refuses; ++i)
    if (engines()[i].found_by == heuristics.one<int>(CUDNN_ATTR_ENGINEHEUR_MODE))
      configs.push_back(config_of(graph, i));
  heuristics.say(CUDNN_ATTR_ENGINEHEUR_RESULTS, std::move(configs));
}
// Serializes a descriptor and its parts, each as "{KIND NAME TYPE COUNT VALUES ...}", bytes as
// numbers.
void write(std::ostream& to, const Descriptor& descriptor) {
  to << "{ " << descriptor.kind << ' ';
  for (const auto& [name, value] : descriptor.values) {
    to << name << ' ' << value.type << ' ' << value.count << ' ' << value.bytes.size() << ' ';
    for (std::byte byte : value.bytes) to << static_cast<int>(byte) << ' ';
    to << value.parts.size() << ' ';
    for (const Shared& part : value.parts) write(to, *part);
  }
  to << "} ";
}
Shared read(std::istream& from) {
  auto next = [&] {
    std::string word;
    from >> word;
    require(!word.empty(), CUDNN_STATUS_BAD_PARAM, "a plan that is whole");
    return word;
  };
  require(next() == "{", CUDNN_STATUS_BAD_PARAM, "a plan as it was written");
  const auto made = std::make_shared<Descriptor>(static_cast<Kind>(std::stoi(next())), true);
  for (std::string word = next(); word != "}"; word = next()) {
    Value& value = made->values[std::stoi(word)];
    value.type = std::stoi(next());
    value.count = std::stoll(next());
    value.bytes.resize(std::stoul(next()));
    for (std::byte& byte : value.bytes) byte = static_cast<std::byte>(std::stoi(next()));
    value.parts.resize(std::stoul(next()));
    for (Shared& part : value.parts) part = read(from);
  }
  return made;
}

// Waits until another plan's build begins, which waits for this one; returns false if none begins.
bool meets_another() {
  static std::mutex& mutex = *new std::mutex;
  static std::condition_variable& begins = *new std::condition_variable;
  static long begun = 0;
  std::unique_lock lock(mutex);
  if (begun++ > 1) return false;
  begins.notify_all();
  return begins.wait_for(lock, std::chrono::seconds(120), [&] { return begun > 1; });
}

// Builds a plan from an engine's configuration, which takes long, or from a serialized plan.
void make_plan(Descriptor& plan) {
  constexpr auto config = CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG;
  constexpr auto json = CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION;
  if (plan.has(json)) {
    const auto text = plan.all<char>(json);
    std::istringstream from(text.data());
    plan.say(config, {read(from)});
    return;
  }
  const bool together = fake::number("FAKE_CUDNN_TOGETHER", 0) == 1 && meets_another();
  if (const char* file = std::getenv("FAKE_CUDNN_PLANS"))
    std::ofstream(file, std::ios::app) << (together ? 't' : 'p');
  std::ostringstream to;
  write(to, plan.part(config, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR));
  const std::string text = to.str();
  plan.say(json, CUDNN_TYPE_CHAR, std::vector<char>(text.c_str(), text.c_str() + text.size() + 1));
}
void check_plan(Descriptor& plan) {
  require(plan.has(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG) !=
              plan.has(CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION),
          CUDNN_STATUS_BAD_PARAM, "a configuration, or JSON");
  make_plan(plan);
  if (plan.has(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP))
    plan.part(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
  else
    require(plan.has(CUDNN_ATTR_EXECUTION_PLAN_HANDLE), CUDNN_STATUS_BAD_PARAM,
            "a handle, or properties of a device");
  plan.values[CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE] =
      plan.part(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR)
          .values.at(CUDNN_ATTR_ENGINECFG_WORKSPACE_SIZE);
}
void check_pack(const Descriptor& pack) {
  const auto ids = pack.all<int64_t>(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
  require(ids.size() == pack.all<void*>(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS).size(),
          CUDNN_STATUS_BAD_PARAM, "as many addresses as ids");
  require(std::set(ids.begin(), ids.end()).size() == ids.size(),
          CUDNN_STATUS_BAD_PARAM_DUPLICATED_ENTRIES, "one address for each id");
}

void finalize(Descriptor& descriptor) {
  require(!descriptor.is_final, CUDNN_STATUS_BAD_PARAM, "a descriptor that is not final");
  for (const Attribute& attribute : attributes_of(descriptor.kind))
    require(attribute.use != Use::required || descriptor.has(attribute.name),
            CUDNN_STATUS_BAD_PARAM, "attribute " + std::to_string(attribute.name));
  switch (descriptor.kind) {
    case CUDNN_BACKEND_TENSOR_DESCRIPTOR:
      check_tensor(descriptor);
      break;
    case CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR:
      check_convolution(descriptor);
      break;
    case CUDNN_BACKEND_POINTWISE_DESCRIPTOR:
    case CUDNN_BACKEND_MATMUL_DESCRIPTOR:
    case CUDNN_BACKEND_REDUCTION_DESCRIPTOR:
      break;
    case CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR:
      operations_of(descriptor);
      break;
    case CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR:
      check_properties(descriptor);
      break;
    case CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR:
      rank_engines(descriptor);
      break;
    case CUDNN_BACKEND_ENGINE_DESCRIPTOR:
    case CUDNN_BACKEND_ENGINECFG_DESCRIPTOR:
      throw Refused{CUDNN_STATUS_NOT_SUPPORTED, "engines as heuristics find them"};
    case CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR:
      check_plan(descriptor);
      break;
    case CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR:
      check_pack(descriptor);
      break;
    default:
      check(operation_of(descriptor));
  }
  descriptor.is_final = true;
}

// ---- runs

// A Run is everything known when a plan is executed; the host may change or free the rest before it
// runs.
struct Run {
  std::vector<Operation> operations;
  std::map<int64_t, void*> addresses;
  std::map<int64_t, Array> constants;
  void* workspace;
  size_t workspace_bytes;
  Rounding rounding;

  void operator()() const {
    std::memset(workspace, 0xff, workspace_bytes);  // the engine owns all of it
    std::map<int64_t, Array> values = constants;
    auto read = [&](const Tensor& tensor) {
      if (!values.contains(tensor.id)) values[tensor.id] = load(tensor, addresses.at(tensor.id));
    };
    for (const Operation& operation : operations) {
      std::ranges::for_each(operation.inputs, read);
      if (operation.convolution.beta != 0) read(operation.result);
      compute(operation, values, rounding);
      const Tensor& result = operation.result;
      if (!result.is_virtual) store(result, values.at(result.id), addresses.at(result.id));
    }
  }
};

struct Range {
  const std::byte *begin, *end;
  bool meets(const Range& other) const { return begin < other.end && other.begin < end; }
};
Range range_of(const Tensor& tensor, const void* at) {
  size_t elements = 1;
  for (size_t axis = 0; axis < tensor.extents.size(); ++axis)
    elements += static_cast<size_t>((tensor.extents[axis] - 1) * tensor.strides[axis]);
  const auto* begin = static_cast<const std::byte*>(at);
  return {begin, begin + elements * size_of(tensor.type)};
}
// Checks that results overlap no input; results may interleave.
void check_memory(const Run& run) {
  const auto* scratch = static_cast<const std::byte*>(run.workspace);
  const Range workspace{scratch, scratch + run.workspace_bytes};
  std::vector<Range> reads{workspace}, writes;
  for (const Operation& operation : run.operations)
    if (!operation.result.is_virtual)
      writes.push_back(range_of(operation.result, run.addresses.at(operation.result.id)));
  for (const Operation& operation : run.operations)
    for (const Tensor& input : operation.inputs) {
      const bool is_result = std::ranges::any_of(
          run.operations, [&](const Operation& other) { return other.result.id == input.id; });
      if (input.is_by_value || is_result) continue;
      reads.push_back(range_of(input, run.addresses.at(input.id)));
      require(!reads.back().meets(workspace), CUDNN_STATUS_BAD_PARAM, "a workspace of its own");
    }
  for (const Range& write : writes)
    for (const Range& read : reads)
      require(!write.meets(read), CUDNN_STATUS_BAD_PARAM, "results apart from what is read");
}

Run run_of(const Descriptor& plan, const Descriptor& pack) {
  const Descriptor& engine =
      plan.part(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR)
          .part(CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  const Engine& found = engines()[engine.one<size_t>(CUDNN_ATTR_ENGINE_GLOBAL_INDEX)];
  Run run{.operations = operations_of(engine.part(CUDNN_ATTR_ENGINE_OPERATION_GRAPH,
                                                  CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR)),
          .workspace = pack.one<void*>(CUDNN_ATTR_VARIANT_PACK_WORKSPACE),
          .workspace_bytes = static_cast<size_t>(found.workspace),
          .rounding = found.rounding};
  require(run.workspace != nullptr || found.workspace == 0, CUDNN_STATUS_BAD_PARAM_NULL_POINTER,
          "a workspace");
  const auto ids = pack.all<int64_t>(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
  const auto addresses = pack.all<void*>(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
  auto bind = [&](const Tensor& tensor) {
    if (tensor.is_virtual) return;
    const auto at = std::ranges::find(ids, tensor.id);
    const std::string name = "tensor " + std::to_string(tensor.id);
    require(at != ids.end(), CUDNN_STATUS_BAD_PARAM, "an address of " + name);
    void* const address = addresses[static_cast<size_t>(at - ids.begin())];
    require(address != nullptr, CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "an address of " + name);
    if (tensor.is_by_value) {
      run.constants[tensor.id] = load(tensor, address);
      return;
    }
    require(reinterpret_cast<uintptr_t>(address) % static_cast<uintptr_t>(tensor.alignment) == 0,
            CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER, "the alignment of " + name);
    run.addresses[tensor.id] = address;
  };
  for (const Operation& operation : run.operations) {
    std::ranges::for_each(operation.inputs, bind);
    bind(operation.result);
  }
  check_memory(run);
  return run;
}

thread_local std::string last_error;
int answer(const std::function<void()>& call) {
  try {
    call();
    last_error.clear();
    return CUDNN_STATUS_SUCCESS;
  } catch (const Refused& refused) {
    last_error = "needs " + refused.why;
    return refused.status;
  }
}
}  // namespace

extern "C" {
size_t cudnnGetVersion() { return static_cast<size_t>(fake::number("FAKE_CUDNN_VERSION", 92800)); }
size_t cudnnGetCudartVersion() {
  return static_cast<size_t>(fake::number("FAKE_CUDNN_CUDA_VERSION", 13000));
}
const char* cudnnGetErrorString(int status) {
  return status == CUDNN_STATUS_SUCCESS            ? "CUDNN_STATUS_SUCCESS"
         : status == CUDNN_STATUS_EXECUTION_FAILED ? "CUDNN_STATUS_EXECUTION_FAILED"
                                                   : "a status";
}
void cudnnGetLastErrorString(char* message, size_t bytes) {
  std::strncpy(message, last_error.c_str(), bytes - 1);
  message[bytes - 1] = '\0';
}
int cudnnCreate(Handle* handle) {
  return answer([&] {
    require(current_context() != nullptr, CUDNN_STATUS_NOT_INITIALIZED, "a context");
    *handle = new Library{.context = current_context()};
  });
}
int cudnnSetStream(Handle handle, Handle stream) {
  return answer([&] {
    require(handle != nullptr, CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "a handle");
    static_cast<Library*>(handle)->stream = stream;
  });
}
int cudnnBackendCreateDescriptor(int kind, Handle* descriptor) {
  return answer([&] {
    require(!attributes_of(kind).empty(), CUDNN_STATUS_NOT_SUPPORTED, "a descriptor that is known");
    *descriptor = new Held(std::make_shared<Descriptor>(static_cast<Kind>(kind)));
  });
}
int cudnnBackendDestroyDescriptor(Handle descriptor) {
  delete static_cast<Held*>(descriptor);
  return CUDNN_STATUS_SUCCESS;
}
int cudnnBackendSetAttribute(Handle handle, int name, int type, int64_t count, const void* values) {
  return answer([&] {
    Descriptor& descriptor = *held(handle);
    require(!descriptor.is_final, CUDNN_STATUS_BAD_PARAM, "a descriptor that is not final");
    const Attribute& attribute = attribute_of(descriptor, name, type);
    require(attribute.use != Use::read_only, CUDNN_STATUS_BAD_PARAM, "an attribute to be set");
    require(count >= 1 && count <= attribute.most, CUDNN_STATUS_BAD_PARAM,
            std::to_string(attribute.most) + " values at most");
    require(values != nullptr, CUDNN_STATUS_BAD_PARAM, "values");
    if (type != CUDNN_TYPE_BACKEND_DESCRIPTOR) {
      const auto* first = static_cast<const std::byte*>(values);
      const auto bytes = static_cast<size_t>(count) * bytes_of(type);
      descriptor.values[name] = {type, count, {first, first + bytes}, {}};
      return;
    }
    std::vector<Shared> parts;
    for (int64_t i = 0; i < count; ++i) {
      parts.push_back(held(static_cast<const Handle*>(values)[i]));
      require(parts.back()->is_final, CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, "a part that is final");
    }
    descriptor.say(attribute.name, std::move(parts));
  });
}
// Descriptors are copied into those that the caller created.
int cudnnBackendGetAttribute(Handle handle, int name, int type, int64_t wanted, int64_t* count,
                             void* values) {
  return answer([&] {
    const Descriptor& descriptor = *held(handle);
    require(descriptor.is_final, CUDNN_STATUS_NOT_INITIALIZED, "a final descriptor");
    const Attribute& attribute = attribute_of(descriptor, name, type);
    require(descriptor.has(attribute.name), CUDNN_STATUS_BAD_PARAM, "an attribute that is set");
    const Value& value = descriptor.values.at(name);
    *count = values == nullptr ? value.count : std::min(wanted, value.count);
    if (values == nullptr) return;
    const auto given = static_cast<size_t>(*count);
    if (value.parts.empty()) std::memcpy(values, value.bytes.data(), given * bytes_of(type));
    for (size_t i = 0; i < std::min(given, value.parts.size()); ++i) {
      Held& into = held(static_cast<Handle*>(values)[i]);
      require(into->kind == value.parts[i]->kind, CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE,
              "descriptors of its kind");
      *into = *value.parts[i];
    }
  });
}
int cudnnBackendFinalize(Handle descriptor) {
  return answer([&] { finalize(*held(descriptor)); });
}
int cudnnBackendExecute(Handle handle, Handle plan, Handle pack) {
  return answer([&] {
    require(handle != nullptr, CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "a handle");
    const auto& library = *static_cast<const Library*>(handle);
    require(library.stream != nullptr, CUDNN_STATUS_BAD_PARAM_STREAM_MISMATCH, "a stream");
    require(library.context == current_context(), CUDNN_STATUS_BAD_PARAM, "its own context");
    const Run run = run_of(final_one(plan, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR),
                           final_one(pack, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR));
    const auto in_memory = std::ranges::count_if(
        run.operations, [](const Operation& operation) { return !operation.result.is_virtual; });
    const long fails = fake::number("FAKE_CUDNN_FAILS", 0);
    require(fails == 0 || (fails == 2 && in_memory > 1), CUDNN_STATUS_EXECUTION_FAILED,
            "a device that runs it");
    const int refused = fake::enqueue(library.stream, run);
    require(refused == 0, CUDNN_STATUS_EXECUTION_FAILED, "a stream that takes it");
  });
}
}
