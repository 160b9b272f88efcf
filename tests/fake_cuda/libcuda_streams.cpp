// Simulates the CUDA driver: the functions of weft/backends/cuda/driver.h for streams, events,
// graphs, modules and launches.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <dlfcn.h>
#include <fstream>
#include <functional>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/fake_cuda/fake.h"
#include "tests/fake_cuda/libcuda.h"
#include "tests/fake_cuda/streams.h"
#include "tests/fake_cuda/threads.h"
#include "tests/support/temporary_folder.h"

using namespace fake::driver;

namespace {
using fake::Context, fake::Stream, fake::Task, fake::Work;

struct Event {
  const Context* context = nullptr;
  bool has_no_time = false;
  std::shared_ptr<Task> at;       // null: never recorded
  std::shared_ptr<long> reached;  // the device's clock when the stream reached it
};
struct Module {
  const Context* context = nullptr;
  void* library = nullptr;
};
struct Function {
  const Context* context = nullptr;
  fake::Kernel kernel;
};
using Graph = std::vector<Work>;
using Executable = std::shared_ptr<Graph>;  // shared with pending launches
}  // namespace

int fake::enqueue(void* handle, std::function<void()> what) {
  const Lock lock(gpu().mutex);
  auto& stream = as<Stream>(handle);
  if (const int refused = refusal(stream.context)) return refused;
  constexpr size_t most_captured = 4;
  if (capture_fails(capture_of_work) && stream.capture != nullptr &&
      stream.capture->tasks >= most_captured)
    return capture_unsupported;
  auto timed = [what = std::move(what)] {
    what();
    ++gpu().clock;
    tell('w');
  };
  push(stream, is_idle() ? nullptr : Work(std::move(timed)));
  return 0;
}

extern "C" {
int cuStreamCreate(Handle* stream, unsigned) {
  const Lock lock(gpu().mutex);
  if (current == nullptr) return invalid_context;
  const bool is_first = std::ranges::none_of(
      gpu().streams, [](const Stream* other) { return other->context == current; });
  auto* const made = new Stream{.context = current, .is_first = is_first};
  gpu().streams.insert(made);
  *stream = made;
  return status();
}
int cuStreamDestroy_v2(Handle handle) {
  const Lock lock(gpu().mutex);
  auto* const stream = static_cast<Stream*>(handle);
  require(stream->context, "cuStreamDestroy");
  do_until(stream->last);
  gpu().streams.erase(stream);
  delete stream;
  return status();
}
int cuStreamSynchronize(Handle handle) {
  const Lock lock(gpu().mutex);
  const auto& stream = as<Stream>(handle);
  if (const int refused = refusal(stream.context)) return refused;
  if (stream.capture != nullptr) return capture_unsupported;
  do_until(stream.last);
  return status();
}
// The event may be of another context.
int cuStreamWaitEvent(Handle handle, Handle event, unsigned) {
  const Lock lock(gpu().mutex);
  auto& stream = as<Stream>(handle);
  const std::shared_ptr<Task> at = as<Event>(event).at;
  if (const int refused = refusal(stream.context)) return refused;
  if (at == nullptr) return status();
  if (at->capture != stream.capture) {
    if (at->capture == nullptr) return capture_isolation;
    if (at->capture->ended) return captured_event;
    if (stream.capture != nullptr) return capture_merge;
    fake::join(stream, at->capture);
  }
  fake::push(stream, nullptr, at);
  return status();
}
int cuStreamBeginCapture_v2(Handle handle, int) {
  const Lock lock(gpu().mutex);
  auto& stream = as<Stream>(handle);
  if (const int refused = refusal(stream.context)) return refused;
  if (stream.capture != nullptr) return illegal_state;
  fake::join(stream, std::make_shared<fake::Capture>());
  ++captures;
  return status();
}
int cuStreamEndCapture(Handle handle, Handle* graph) {
  const Lock lock(gpu().mutex);
  auto& stream = as<Stream>(handle);
  *graph = nullptr;
  if (stream.capture == nullptr || stream.capture->streams[0] != &stream) return capture_unmatched;
  --captures;
  Graph all;
  if (!fake::end_capture(stream, all)) return capture_unjoined;
  if (capture_fails(capture_of_work) || capture_fails(capture_end)) return capture_invalidated;
  *graph = new Graph(std::move(all));
  return status();
}
int cuGraphInstantiateWithFlags(Handle* executable, Handle graph, unsigned long long) {
  if (capture_fails(graph_instantiation)) return out_of_memory;
  *executable = new Executable(std::make_shared<Graph>(as<Graph>(graph)));
  return status();
}
int cuGraphLaunch(Handle executable, Handle stream) {
  const int refused = fake::enqueue(stream, [all = as<Executable>(executable)] {
    for (const Work& what : *all)
      if (status() == 0) what();
  });
  if (refused != 0) return refused;
  if (const char* file = std::getenv("FAKE_CUDA_GRAPHS")) std::ofstream(file, std::ios::app) << 'g';
  return status();
}
int cuGraphExecDestroy(Handle executable) {
  delete static_cast<Executable*>(executable);
  return status();
}
int cuGraphDestroy(Handle graph) {
  delete static_cast<Graph*>(graph);
  return status();
}
int cuEventCreate(Handle* event, unsigned flags) {
  constexpr unsigned no_timing = 2;
  if (current == nullptr) return invalid_context;
  *event = new Event{.context = current, .has_no_time = (flags & no_timing) != 0};
  return status();
}
int cuEventRecord(Handle handle, Handle stream_handle) {
  const Lock lock(gpu().mutex);
  auto& event = as<Event>(handle);
  auto& stream = as<Stream>(stream_handle);
  if (event.context != stream.context) return invalid_handle;
  if (const int refused = refusal(stream.context)) return refused;
  if (event.has_no_time) {
    fake::push(stream, nullptr);
  } else {
    event.reached = std::make_shared<long>(0);
    fake::push(stream, [reached = event.reached] {
      *reached = gpu().clock;
      tell('e');
    });
  }
  event.at = stream.last;
  return status();
}
int cuEventSynchronize(Handle handle) {
  const Lock lock(gpu().mutex);
  const auto& event = as<Event>(handle);
  if (const int refused = refusal(event.context)) return refused;
  if (event.at != nullptr && event.at->capture != nullptr) return captured_event;
  do_until(event.at);
  return status();
}
int cuEventElapsedTime(float* milliseconds, Handle start, Handle end) {
  const Lock lock(gpu().mutex);
  for (Handle handle : {start, end})
    if (as<Event>(handle).at == nullptr || as<Event>(handle).has_no_time) return invalid_handle;
  *milliseconds = 1e-3f * static_cast<float>(*as<Event>(end).reached - *as<Event>(start).reached);
  return status();
}
int cuEventDestroy_v2(Handle event) {
  require(as<Event>(event).context, "cuEventDestroy");
  delete static_cast<Event*>(event);
  return status();
}
// Loads the output of libnvrtc.cpp.
int cuModuleLoadData(Handle* module, const void* image) {
  if (current == nullptr) return invalid_context;
  void* library = nullptr;
  if (*fake::compiler() != '\0') {
    uint64_t size = 0;
    std::memcpy(&size, image, sizeof size);
    const std::string_view code(static_cast<const char*>(image) + sizeof size, size);
    const weft::test::TemporaryFolder folder;  // unique: dlopen() identifies libraries by path
    library = dlopen(folder.file("kernels.so", code).c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return no_image;
  }
  *module = new Module{current, library};
  return status();
}
int cuModuleUnload(Handle handle) {
  auto* const module = static_cast<Module*>(handle);
  require(module->context, "cuModuleUnload");
  if (module->library != nullptr) dlclose(module->library);
  delete module;
  return status();
}
// Functions are never freed: graphs hold them.
int cuModuleGetFunction(Handle* function, Handle handle, const char* name) {
  const auto& module = as<Module>(handle);
  if (const int refused = refusal(module.context)) return refused;
  const bool runs = module.library != nullptr;
  const Lock lock(gpu().mutex);
  static auto& functions = *new std::deque<Function>;
  functions.push_back(
      {module.context, runs ? fake::kernel_in(module.library, name) : fake::Kernel{.name = name}});
  *function = &functions.back();
  return runs && functions.back().kernel.call == nullptr ? no_such_name : status();
}
int cuLaunchKernel(Handle handle, unsigned groups, unsigned, unsigned, unsigned threads, unsigned,
                   unsigned, unsigned, Handle stream, void** parameters, void**) {
  const auto& [context, kernel] = as<Function>(handle);
  if (const int refused = refusal(context)) return refused;
  std::vector<uint64_t> arguments(static_cast<size_t>(kernel.parameters));
  for (size_t i = 0; i < arguments.size(); ++i)
    std::memcpy(&arguments[i], parameters[i], sizeof(uint64_t));
  const int refused = fake::enqueue(stream, [=, &kernel = kernel] {
    ++gpu().launches;
    if (kernel.call != nullptr && status() == 0) fake::run(kernel, groups, threads, arguments);
  });
  return refused != 0 ? refused : status();
}
}
