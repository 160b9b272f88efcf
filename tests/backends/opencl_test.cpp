// Tests OpenCL and CLBlast beyond single kernels: products as plans request them, memory that a
// step allocates, and errors. Some OpenCL functions are interposed to count calls or make them
// fail.
#include "weft/backends/opencl/opencl.h"

#include <array>
#include <atomic>
#include <cctype>
#include <cstring>
#include <dlfcn.h>
#include <functional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "tests/backends/graphs.h"
#include "tests/backends/opencl_library.h"
#include "tests/support/interpreter.h"
#include "tests/support/planned.h"
#include "tests/support/skip.h"
#include "tests/support/values.h"
#include "weft/backends/opencl/cl_device.h"
#include "weft/backends/opencl/cl_error.h"
#include "weft/base/error.h"
#include "weft/ir/op_def.h"
#include "weft/ops/ops.h"
#include "weft/passes/passes.h"
#include "weft/runtime/executable.h"
#include "weft/tensor/compile.h"
#include "weft/tensor/device.h"
#include "weft/tensor/session.h"

namespace {
constexpr int not_available = -2, allocation_failure = -4, out_of_resources = -5;
constexpr unsigned double_fp_config = 0x1032, profile = 0x102E, extensions = 0x1030,
                   max_work_group_size = 0x1004;

struct Calls {
  int buffers = 0;         // created
  bool no_memory = false;  // clCreateBuffer fails
  bool without_f64 = false, without_i64 = false, small_groups = false;
  bool launches_fail = false;
  bool device_lost = false;  // launches fail, and waiting for them
};
Calls calls;

template <class Function>
Function* next(Function*, const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}
}  // namespace

// The signatures are those of CL/cl.h.
// NOLINTBEGIN(readability-identifier-naming)
extern "C" void* clCreateBuffer(void* context, unsigned long flags, size_t bytes, void* host,
                                int* status) {
  ++calls.buffers;
  if (!calls.no_memory)
    return next(clCreateBuffer, "clCreateBuffer")(context, flags, bytes, host, status);
  *status = allocation_failure;
  return nullptr;
}
extern "C" int clGetDeviceInfo(void* device, unsigned what, size_t bytes, void* value,
                               size_t* needed) {
  if (calls.without_i64 && (what == profile || what == extensions)) {
    const std::string_view text = what == profile ? "EMBEDDED_PROFILE" : "cl_khr_fp64";
    if (needed != nullptr) *needed = text.size() + 1;
    if (value != nullptr) std::memcpy(value, std::string(text).c_str(), text.size() + 1);
    return 0;
  }
  const int status = next(clGetDeviceInfo, "clGetDeviceInfo")(device, what, bytes, value, needed);
  if (calls.without_f64 && what == double_fp_config && value != nullptr)
    std::memset(value, 0, bytes);
  if (calls.small_groups && what == max_work_group_size && value != nullptr) {
    constexpr size_t threads = 128;
    std::memcpy(value, &threads, sizeof threads);
  }
  return status;
}
extern "C" int clEnqueueNDRangeKernel(void* queue, void* kernel, unsigned axes,
                                      const size_t* offset, const size_t* global,
                                      const size_t* local, unsigned waits, void* const* list,
                                      void** event) {
  if (calls.launches_fail || calls.device_lost) return out_of_resources;
  return next(clEnqueueNDRangeKernel, "clEnqueueNDRangeKernel")(queue, kernel, axes, offset, global,
                                                                local, waits, list, event);
}
extern "C" int clFinish(void* queue) {
  return calls.device_lost ? not_available : next(clFinish, "clFinish")(queue);
}
// NOLINTEND(readability-identifier-naming)

namespace weft::testing {
namespace {

// Returns null, and reports a skipped test, where there is no device.
const KernelLibrary* opencl() {
  static const auto library = opencl_library();
  return with_device(*library);
}

BoundPlan bound_of(const Value& value) {
  return bound_plan(graph_of(value), {.library = opencl()});
}
Plan plan_of(const Value& value) { return bound_of(value).plan; }

int products(const Plan& plan) {
  int count = 0;
  for (const Launch& launch : plan.launches) count += launch.kernel.starts_with("clblast:") ? 1 : 0;
  return count;
}

Value draw(DType dtype, const Shape& shape) {
  static Random random(5);
  return random_values({dtype, shape}, -1, 1, random);
}

// Checks that CLBlast computes the product correctly, and bit-equal in two runs.
void check_product(const Value& value) {
  const KernelLibrary* library = opencl();
  if (library == nullptr) return;
  if (products(plan_of(value)) == 0) {
    skipped("this build has no CLBlast");
    return;
  }
  const std::vector<Value> once = run_planned(graph_of(value), {}, *library),
                           again = run_planned(graph_of(value), {}, *library);
  const std::string wrong = disagreement(once, interpret_with_errors(graph_of(value)), *library);
  CHECK_MESSAGE(wrong.empty(), to_text(graph_of(value)) << wrong);
  CHECK(std::memcmp(once[0]->data(), again[0]->data(), value.type().bytes()) == 0);
}

std::string complaint(ErrorKind kind, const std::function<void()>& run) {
  try {
    run();
  } catch (const Error& error) {
    CHECK(error.kind() == kind);
    return error.what();
  }
  FAIL("it ran");
  return "";
}
// Opens the device as one that says it has no float64.
auto library_without_float64() {
  calls.without_f64 = true;
  auto library = opencl_library();
  library->memory();
  calls.without_f64 = false;
  return library;
}
}  // namespace

TEST_SUITE("slow opencl products") {
  TEST_CASE("matrix products accept operands with any strides") {
    for (auto [m, k, n] : {std::array<int64_t, 3>{1, 5, 3}, {65, 17, 33}, {130, 300, 70}}) {
      const Value a = draw(DType::f32, {m, k}), b = draw(DType::f32, {k, n});
      const Value at = transpose(draw(DType::f32, {k, m}));
      const Value bt = transpose(draw(DType::f32, {n, k}));
      check_product(matmul(a, b));
      check_product(matmul(at, b));
      check_product(matmul(a, bt));
      check_product(matmul(at, bt));
    }
    check_product(matmul(slice(slice(draw(DType::f32, {40, 30}), 0, 3, 37), 1, 2, 29),
                         draw(DType::f32, {27, 5})));
  }
  TEST_CASE("batched matrix products accept a broadcast factor") {
    check_product(matmul(draw(DType::f32, {6, 20, 30}), draw(DType::f32, {6, 30, 10})));
    check_product(matmul(draw(DType::f32, {3, 20, 30}), transpose(draw(DType::f32, {3, 10, 30}))));
    check_product(matmul(transpose(draw(DType::f32, {5, 30, 20})),
                         broadcast_to(draw(DType::f32, {1, 30, 10}), {5, 30, 10})));
  }
  TEST_CASE("tiled matrix products and products through scratch memory are right") {
    check_product(matmul(draw(DType::f32, {2050, 40}), draw(DType::f32, {40, 2100})));
    check_product(matmul(draw(DType::f32, {70, 4100}), draw(DType::f32, {4100, 130})));
    check_product(
        matmul(transpose(draw(DType::f32, {2, 1100, 1030})), draw(DType::f32, {2, 1100, 1040})));
  }
  TEST_CASE("a product allocates no device memory when it runs") {
    if (opencl() == nullptr) return;
    for (int64_t extent : {64, 1030}) {
      const Value product =
          matmul(draw(DType::f32, {3, extent, extent}), draw(DType::f32, {3, extent, extent}));
      Executable executable(bound_of(product), *opencl(), std::make_shared<Workspace>());
      executable.run({});
      const int before = calls.buffers;
      executable.run({});
      opencl()->memory().finish();
      CHECK(calls.buffers == before);
    }
  }
}

TEST_SUITE("opencl errors") {
  TEST_CASE("a refused allocation reports its size and the device's limits") {
    if (opencl() == nullptr) return;
    const auto device = opencl::open_device();
    calls.no_memory = true;
    const std::string said =
        complaint(ErrorKind::does_not_fit, [&] { device->allocate(size_t{3} << 20); });
    calls.no_memory = false;
    CHECK(said.find("no 3 MiB of memory left (CL_MEM_OBJECT_ALLOCATION_FAILURE)") !=
          std::string::npos);
    CHECK(said.find("MiB per allocation") != std::string::npos);
  }
  TEST_CASE("a lost device is reported with OpenCL's error name") {
    if (opencl() == nullptr) return;
    const Value value = draw(DType::f32, {7}) + draw(DType::f32, {7});
    Executable executable(bound_of(exp(value)), *opencl(), std::make_shared<Workspace>());
    executable.run({});
    calls.launches_fail = true;
    const std::string said = complaint(ErrorKind::device, [&] { executable.run({}); });
    calls.launches_fail = false;
    CHECK(said.find("clEnqueueNDRangeKernel failed: CL_OUT_OF_RESOURCES.") != std::string::npos);
  }
  TEST_CASE("a session remembers a lost device, and not one that only refused a launch") {
    if (opencl() == nullptr) return;
    const Session session;
    const SessionScope scope(session);
    auto step = compile([](const Tensor& x) { return exp(x); }, {.device = "opencl"});
    const Tensor x = draw(DType::f32, {7});
    const std::vector<double> want = step(x).to_doubles();
    calls.launches_fail = true;
    const std::string refused = complaint(ErrorKind::device, [&] { step(x); });
    calls.launches_fail = false;
    CHECK(refused.find("CL_OUT_OF_RESOURCES") != std::string::npos);
    CHECK(step(x).to_doubles() == want);
    calls.device_lost = true;
    complaint(ErrorKind::device, [&] { step(x); });
    calls.device_lost = false;  // what is lost stays lost
    for (int use = 0; use < 2; ++use) {
      const std::string said = complaint(ErrorKind::device, [&] { step(x); });
      CHECK(
          said.starts_with("[session] opencl was lost in an earlier run, and this session cannot "
                           "use it any more. It said: [opencl] clEnqueueNDRangeKernel failed: "
                           "CL_OUT_OF_RESOURCES."));
      CHECK(said.find(" Hint: ") == said.rfind(" Hint: "));
      CHECK(said.find('\n') == std::string::npos);
    }
    const std::string eager = complaint(ErrorKind::device, [&] {
      const DeviceScope on_it("opencl");
      (x + 1).eval();
    });
    CHECK(eager.starts_with("[session] opencl was lost in an earlier run"));
    const SessionScope another(Session({.threads = 1}));
    CHECK(compile([](const Tensor& y) { return exp(y); }, {.device = "opencl"})(x).to_doubles() ==
          want);
  }
  TEST_CASE("two sessions on one device, on two threads, have the bits of each alone") {
    if (opencl() == nullptr) return;
    const Tensor x = draw(DType::f32, {64, 48}), y = draw(DType::f32, {48, 32});
    std::atomic<int> wrong = 0;
    auto work = [&](double factor) {
      const SessionScope scope(Session({.threads = 1}));
      auto step =
          compile([factor](const Tensor& p, const Tensor& q) { return exp(matmul(p, q) * factor); },
                  {.device = "opencl"});
      const std::vector<double> first = step(x, y).to_doubles();
      for (int i = 0; i < 30; ++i) wrong += step(x, y).to_doubles() != first ? 1 : 0;
      return first;
    };
    const std::vector<double> want[] = {work(0.5), work(-0.25)};
    std::vector<double> got[2];
    std::thread other([&] { got[0] = work(0.5); });
    got[1] = work(-0.25);
    other.join();
    CHECK(wrong == 0);
    CHECK(got[0] == want[0]);
    CHECK(got[1] == want[1]);
  }
  TEST_CASE("a device without float64 refuses float64 operations by operation and device") {
    if (opencl() == nullptr) return;
    const auto library = library_without_float64();
    const std::string name = opencl::open_device()->name();
    const Value wide = draw(DType::f64, {9, 40}), rows = draw(DType::f64, {40, 30});
    const Value narrow = draw(DType::f32, {300}), whole = cast(exp(narrow), DType::i32);
    const Value indices = constant(std::vector<double>{3, 1}, {2}, DType::i64);
    const std::pair<std::string, Value> refused[] = {
        {"exp", exp(wide)},
        {"matmul", matmul(wide, rows)},
        {"sum", sum(wide)},
        {"concat", concat({wide, wide}, 0)},
        {"scatter_add", scatter_add(wide, indices, slice(wide, 0, 0, 2))},
        {"cast", cast(exp(narrow), DType::f64)},
        {"exp.cast.pow", make_node(op("pow"), {whole, whole})}};
    for (const auto& [operation, value] : refused) {
      INFO(operation);
      const std::string said =
          complaint(ErrorKind::device, [&] { run_planned(graph_of(value), {}, *library); });
      CAPTURE(said);
      CHECK(said.starts_with(fmt::format("[{}] {} has no float64", operation, name)));
      CHECK(said.find("Hint: train.precision fp32") != std::string::npos);
    }
  }
  TEST_CASE("a device without float64 computes every function of float32") {
    if (opencl() == nullptr) return;
    const auto library = library_without_float64();
    const Value x = draw(DType::f32, {300}), y = draw(DType::f32, {300});
    const Value infinity = full({300}, INFINITY);
    for (const Value& value :
         {sin(x), pow(abs(x), y), atan2(x, y), floor_divide(x, y), floor_divide(x, infinity),
          floor_divide(infinity, y), remainder(x, y), cast(cast(exp(x), DType::u8), DType::bf16),
          cast(cast(exp(9 * x), DType::i64), DType::bf16)})
      CHECK(disagreement(run_planned(graph_of(value), {}, *library),
                         interpret_with_errors(graph_of(value)), *library) == "");
  }
  TEST_CASE("a device without 64-bit integers is refused with a hint to use the CPU") {
    if (opencl() == nullptr) return;
    calls.without_i64 = true;
    const std::string said = complaint(ErrorKind::device, [] { opencl::open_device(); });
    calls.without_i64 = false;
    CHECK(said.find(" has no 64-bit integers, ") != std::string::npos);
    CHECK(said.find("--device cpu") != std::string::npos);
  }
  TEST_CASE("a device with work-groups smaller than weft's kernels need is refused") {
    if (opencl() == nullptr) return;
    calls.small_groups = true;
    const std::string said = complaint(ErrorKind::device, [] { opencl::open_device(); });
    calls.small_groups = false;
    CHECK(said.find(" allows work-groups of 128 threads, weft's kernels need 256.") !=
          std::string::npos);
  }
  TEST_CASE("OpenCL error codes are reported by name") {
    CHECK(opencl::error_name(-1) == "CL_DEVICE_NOT_FOUND");
    CHECK(opencl::error_name(-19) == "CL_KERNEL_ARG_INFO_NOT_AVAILABLE");
    CHECK(opencl::error_name(-20) == "code -20");
    CHECK(opencl::error_name(-30) == "CL_INVALID_VALUE");
    CHECK(opencl::error_name(-36) == "CL_INVALID_COMMAND_QUEUE");
    CHECK(opencl::error_name(-61) == "CL_INVALID_BUFFER_SIZE");
    CHECK(opencl::error_name(-68) == "CL_INVALID_DEVICE_PARTITION_COUNT");
    CHECK(opencl::error_name(-1001) == "CL_PLATFORM_NOT_FOUND_KHR");
  }
  TEST_CASE("a device is selected by number or part of its name; a wrong one lists the devices") {
    if (opencl() == nullptr) return;
    const std::string name = opencl::open_device()->name();
    CHECK(opencl::open_device("0")->name() != "");
    std::string part = name.substr(1, 5);
    for (char& letter : part) letter = static_cast<char>(std::toupper(letter));
    CHECK(opencl::open_device(part)->name() == name);
    for (const char* wrong : {"99", "no such thing"}) {
      const std::string said = complaint(ErrorKind::device, [&] { opencl::open_device(wrong); });
      CHECK(said.find("there is no device '" + std::string(wrong) + "'") != std::string::npos);
      CHECK(said.find("opencl:0 is ") != std::string::npos);
    }
  }
}
}  // namespace weft::testing
