// Compiles the kernels of whole training steps (fused, primitive and handwritten) as CUDA C and as
// OpenCL C, and checks their register use.
#include <algorithm>
#include <exception>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "tests/support/cubin.h"
#include "tests/support/part.h"
#include "tests/support/skip.h"
#include "weft/backends/cuda/nvrtc.h"
#include "weft/backends/gpu/handwritten.h"
#include "weft/backends/gpu/joined.h"
#include "weft/backends/gpu/library.h"
#include "weft/backends/opencl/cl_device.h"
#include "weft/base/error.h"
#include "weft/base/host/parallel.h"
#include "weft/codegen/gpu_emit.h"
#include "weft/codegen/lower.h"
#include "weft/codegen/primitives.h"
#include "weft/device/registry.h"
#include "weft/runtime/executable.h"
#include "weft/train/run/steps.h"

using namespace weft;
using namespace weft::testing;

namespace {
struct GpuNet {
  std::string name, recipe;
};
std::string images(int size, int classes, int batch) {
  return fmt::format(
      "data: {{dataset: random-images, image_size: {}, classes: {}}}\n"
      "optimizer: {{name: sgd, momentum: 0.9}}\ntrain: {{steps: 10, global_batch_size: {}}}\n",
      size, classes, batch);
}
std::string tokens(int vocabulary, int length, int batch) {
  return fmt::format(
      "data: {{dataset: random-tokens, classes: {}, seq_len: {}}}\n"
      "train: {{steps: 10, global_batch_size: {}, grad_clip: 1}}\n",
      vocabulary, length, batch);
}
// The nets have their usual width and just enough layers to contain every kernel.
const std::vector<GpuNet> gpu_nets{
    {"mlp", images(28, 10, 128)},
    {"cnn", images(28, 10, 128)},
    {"lenet5", images(28, 10, 128)},
    {"alexnet", images(224, 1000, 64)},
    {"resnet20", images(32, 10, 128)},
    {"resnet50", images(224, 1000, 64)},
    {"lstm", tokens(10000, 4, 64)},
    {"gru", tokens(10000, 4, 64)},
    {"bert", "task: masked_lm\n" + tokens(30521, 128, 16)},
    {"gpt2", tokens(50257, 1024, 8)},
    {"llama", tokens(32000, 512, 4)},
};
std::string shortened_config(const std::string& net) {
  if (net == "bert" || net == "gpt2") return "{num_hidden_layers: 2}";
  return net == "llama" ? "{num_hidden_layers: 2, num_attention_heads: 16, num_key_value_heads: 4}"
                        : "{}";
}

using Settings = std::map<std::string, std::string>;  // recipe keys to values
const std::vector<Settings> every_precision{
    {{"train.precision", "fp32"}},
    {{"train.precision", "tf32"}},
    {{"train.precision", "fp64"}},
    {{"train.precision", "bf16-mixed"}},
    {{"train.precision", "fp16-mixed"}},
    {{"train.precision", "bf16"}, {"train.rounding", "stochastic"}},
    {{"train.precision", "bf16"}, {"train.rounding", "kahan"}},
};
const std::vector<Settings> every_update{
    {{"optimizer.name", "sgd"}, {"optimizer.momentum", "0"}},
    {{"optimizer.name", "sgd"}, {"optimizer.momentum", "0.9"}, {"optimizer.nesterov", "true"}},
    {{"optimizer.name", "adam"}, {"optimizer.momentum", "0"}},
    {{"optimizer.name", "adamw"}, {"optimizer.momentum", "0"}, {"optimizer.decay", "matrices"}},
    {{"train.micro_batch_size", "64"}, {"train.grad_clip", "1"}},
};

// Names a CUDA device without NVIDIA's libraries, where every matrix product is one of our kernels.
std::string plain_cuda() {
  static const bool once = [] {
    register_library("plain-cuda",
                     [] { return gpu::make_library("cuda", loop::GpuLanguage::cuda, nullptr); });
    return true;
  }();
  return once ? "null:plain-cuda" : "";
}

// Collects the distinct kernels of many training steps into programs.
class Kernels {
 public:
  struct Program {
    std::string source;
    std::map<std::string, std::string> functions;  // function name to net, settings and kernel
    size_t kernels = 0;
  };

  explicit Kernels(loop::GpuLanguage language) : language_(language) {}

  void add(const GpuNet& net, const Settings& settings, const std::string& device) {
    train::Recipe recipe =
        train::Recipe::parse("model: {name: " + net.name + "}\n" + net.recipe, net.name);
    recipe.set("model.config", shortened_config(net.name), "test");
    std::string where = net.name;
    for (const auto& [key, value] : settings) {
      recipe.set(key, value, "test");
      where += ' ' + value;
    }
    const train::Experiment experiment = train::make_experiment(recipe, {.initialize = false});
    train::Steps steps(experiment, device);
    for (const auto& [name, executable] : steps.executables())
      for (const Launch& launch : executable->plan().launches)
        add(fmt::format("{} {}", where, name), launch);
  }
  void add(const std::string& where, const Launch& launch) {
    const bool ours = launch.kind == Launch::Kind::fused || launch.kernel.starts_with("weft:") ||
                      launch.kernel.starts_with("loops:");
    if (!ours) return;
    const std::string source = print(launch, "kernel").source;
    if (!known_.insert(source).second) return;
    if (programs_.empty() || programs_.back().kernels == most_kernels) programs_.emplace_back();
    Program& program = programs_.back();
    const loop::GpuKernel printed = print(launch, fmt::format("k{}", known_.size()));
    program.source += printed.source;
    for (const loop::GpuLaunch& part : printed.launches)
      program.functions[part.function] = where + ": " + launch.kernel;
    ++program.kernels;
  }
  size_t count() const { return known_.size(); }
  const std::vector<Program>& programs() const { return programs_; }

 private:
  static constexpr size_t most_kernels = 50;  // per program

  loop::GpuKernel print(const Launch& launch, const std::string& prefix) const {
    if (launch.kernel.starts_with("weft:"))
      return gpu::print_handwritten(launch, language_, prefix);
    if (launch.parts > 1)
      return emit_joined(gpu::joined_kernels(launch, language_), language_, prefix);
    const bool fused = launch.kind == Launch::Kind::fused;
    const loop::Kernel kernel =
        fused ? loop::lower(launch, language_) : loop::lower_primitive(launch);
    return emit_gpu(kernel, loop::schedule_gpu(kernel, language_), language_, prefix);
  }
  loop::GpuLanguage language_;
  std::set<std::string> known_;
  std::vector<Program> programs_;
};

Kernels kernels_of_every_model() {
  Kernels kernels(loop::GpuLanguage::cuda);
  for (const GpuNet& net : gpu_nets) {
    for (const Settings& settings : every_precision) kernels.add(net, settings, "null:cuda");
    for (const char* precision : {"fp32", "bf16-mixed"})
      kernels.add(net, {{"train.precision", precision}}, plain_cuda());
  }
  for (const Settings& settings : every_update)
    kernels.add(gpu_nets.front(), settings, "null:cuda");
  return kernels;
}

// Returns the bytes that the threads of a generated kernel request, an upper bound of its memory
// traffic: each load once per reduction loop that needs it, each store once, and partial results
// once each way.
double asked_bytes(const loop::Kernel& kernel) {
  const uint32_t reduced = kernel.reduced_axes();
  auto bytes = [&](uint32_t axes, DType storage) {
    return static_cast<double>(kernel.extent(axes)) * static_cast<double>(size_of(storage));
  };
  const loop::GpuSchedule schedule = loop::schedule_gpu(kernel, loop::GpuLanguage::cuda);
  double sum = 2 * static_cast<double>(schedule.scratch);
  std::vector<bool> once(kernel.code.size());
  auto read = [&](const std::vector<int>& roots, bool in_loop) {
    const std::vector<bool> wanted = loop::needed(kernel, roots);
    for (size_t i = 0; i < wanted.size(); ++i) {
      const loop::Instruction& load = kernel.code[i];
      if (!wanted[i] || load.op != loop::Op::load || once[i]) continue;
      sum += bytes(load.axes, load.storage);
      once[i] = !in_loop || schedule.one_turn() || (load.axes & reduced) == 0;
    }
  };
  for (int loop = 0; loop < kernel.loops(); ++loop) {
    std::vector<int> roots;
    for (const loop::Store& store : kernel.stores)
      if ((store.axes & reduced) != 0 && store.phase == loop) roots.push_back(store.value);
    for (const loop::Instruction& in : kernel.code)
      if (in.op == loop::Op::reduce && in.phase == loop + 1)
        std::ranges::copy_if(in.args, std::back_inserter(roots), [](int arg) { return arg >= 0; });
    read(roots, true);
  }
  std::vector<int> last;
  for (const loop::Store& store : kernel.stores) {
    if ((store.axes & reduced) == 0) last.push_back(store.value);
    sum += bytes(store.axes, store.storage);
  }
  read(last, false);
  return sum;
}

std::unique_ptr<cuda::Nvrtc> nvrtc() {
  try {
    return std::make_unique<cuda::Nvrtc>();
  } catch (const Error& none) {
    skipped(none.what());
    return nullptr;
  }
}

// Checks that no kernel spills registers. Helper functions are separate entries of a cubin and
// are not checked.
void check_cuda(const Kernels& kernels, const std::vector<int>& capabilities) {
  const auto compiler = nvrtc();
  if (compiler == nullptr) return;
  const std::string prelude = gpu_prelude(loop::GpuLanguage::cuda);
  std::vector<Kernels::Program> programs;
  for (size_t i = 0; i < kernels.programs().size(); ++i)
    if (in_part(i)) programs.push_back(kernels.programs()[i]);
  for (int capability : capabilities) {
    std::vector<std::string> cubins(programs.size());
    std::mutex mutex;
    std::exception_ptr refused;  // exceptions must not leave a parallel region
    parallel_for(static_cast<int64_t>(programs.size()), [&](int64_t begin, int64_t end) {
      try {
        for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i)
          cubins[i] = compiler->compile(prelude + programs[i].source, capability);
      } catch (...) {
        std::lock_guard lock(mutex);
        refused = std::current_exception();
      }
    });
    if (refused) std::rethrow_exception(refused);
    size_t count = 0, launches = 0;
    int most = 0, spilled = 0;
    std::string greediest;
    for (size_t i = 0; i < programs.size(); ++i) {
      size_t found = 0;
      for (const KernelResources& kernel : resources_of(cubins[i])) {
        const auto function = programs[i].functions.find(kernel.name);
        if (function == programs[i].functions.end()) continue;
        CHECK_MESSAGE(kernel.stack == 0,
                      fmt::format("sm_{} {}: {} registers, {} bytes spilled", capability,
                                  function->second, kernel.registers, kernel.stack));
        if (kernel.registers > most) greediest = function->second;
        most = std::max(most, kernel.registers);
        spilled += kernel.stack;
        ++found;
      }
      CHECK(found == programs[i].functions.size());
      count += programs[i].kernels;
      launches += found;
    }
    MESSAGE(fmt::format(
        "sm_{}: {} kernels, {} launches, of at most {} registers ({}), {} bytes spilled",
        capability, count, launches, most, greediest, spilled));
  }
}
}  // namespace

// The kernel keeps 64 numbers live until their sum is known. Bounds of 2 x 1024 threads leave 32
// registers for each.
TEST_CASE("spilled registers are found in a kernel's machine code") {
  const auto compiler = nvrtc();
  if (compiler == nullptr) return;
  auto kernel_of = [](const std::string& bounds) {
    return "extern \"C\" __global__ void __launch_bounds__(" + bounds +
           ") kernel(float* x) { float a[64], sum = 0; for (int i = 0; i < 64; ++i) "
           "sum += a[i] = x[threadIdx.x + 64 * i]; __syncthreads(); "
           "for (int i = 0; i < 64; ++i) x[threadIdx.x + 64 * i] = a[i] / sum; }";
  };
  for (int capability : {75, 80, 90, 100}) {
    const auto few = resources_of(compiler->compile(kernel_of("1024, 2"), capability));
    const auto many = resources_of(compiler->compile(kernel_of("128"), capability));
    auto is_kernel = [](const KernelResources& one) { return one.name == "kernel"; };
    const auto spills = std::ranges::find_if(few, is_kernel);
    const auto fits = std::ranges::find_if(many, is_kernel);
    REQUIRE(spills != few.end());
    REQUIRE(fits != many.end());
    CHECK(spills->stack >= 64);
    CHECK(fits->stack == 0);
    CHECK(spills->registers < fits->registers);
  }
}

TEST_CASE("CUDA C of a step's kernels compiles") {
  Kernels kernels(loop::GpuLanguage::cuda);
  kernels.add(gpu_nets.front(), {{"train.precision", "bf16-mixed"}}, plain_cuda());
  CHECK(kernels.count() > 10);
  check_cuda(kernels, {90});
}

TEST_CASE("a generated kernel is named by its kind and eight digits of its source's hash") {
  const auto source_of = [](const std::string& text) {
    return [text](const std::string& name) { return loop::GpuKernel{.source = name + text}; };
  };
  Launch launch;
  launch.kernel = "add.gelu_tanh+3";
  const auto named = [&](const std::string& text) {
    return gpu::print_named(source_of(text), launch).source;
  };
  const std::string name = named("");
  REQUIRE(name.size() == std::string("add_gelu_tanh_3_").size() + 8);
  CHECK(name.starts_with("add_gelu_tanh_3_"));
  CHECK(name.find_first_not_of("0123456789abcdef", name.size() - 8) == std::string::npos);
  CHECK(named("").starts_with(name));
  CHECK(named("(float)").substr(0, name.size()) != name);
  launch.kernel = std::string(100, 'x');
  CHECK(named("").size() == 48 + 1 + 8);
}

TEST_SUITE("slow nvrtc") {
  TEST_CASE("CUDA C of every model's kernels compiles for sm_90") {
    check_cuda(kernels_of_every_model(), {90});
  }
}

TEST_SUITE("slow gpu kernels of models") {
  TEST_CASE("CUDA C of every model's kernels compiles for every other architecture") {
    check_cuda(kernels_of_every_model(), {75, 80, 100});
  }
  TEST_CASE("the kernels of GPT-2 ask for little more traffic than each operand and result once") {
    Kernels kernels(loop::GpuLanguage::cuda);
    train::Recipe recipe =
        train::Recipe::parse("model: {name: gpt2}\n" + tokens(50257, 1024, 64), "gpt2");
    recipe.set("train.precision", "bf16-mixed", "test");
    const train::Experiment experiment = train::make_experiment(recipe, {.initialize = false});
    train::Steps steps(experiment, "null:cuda");
    struct Sum {
      int kernels = 0;
      double asked = 0, least = 0, reread = 0;
    };
    std::map<std::string, Sum> sums;
    for (const Launch& launch : steps.executables().front().second->plan().launches) {
      kernels.add("gpt2", launch);
      if (launch.kind != Launch::Kind::fused) continue;
      double asked = 0;
      for (int part = 0; part < launch.parts; ++part)
        asked += asked_bytes(loop::lower(part_of(launch, part), loop::GpuLanguage::cuda));
      const bool logits = std::ranges::any_of(launch.results, [](const Access& result) {
        return result.value.rank() == 3 && result.value.dim(-1) == 50257;
      });
      for (const std::string& kernel : {launch.kernel, std::string(logits ? "logits" : "others")}) {
        Sum& sum = sums[kernel];
        ++sum.kernels;
        sum.asked += asked;
        sum.least += launch.bytes;
        sum.reread += launch.reread.bytes;
      }
    }
    for (const auto& [kernel, sum] : sums)
      MESSAGE(fmt::format("{} x {}: {:.3f} GB, least {:.3f} GB", sum.kernels, kernel,
                          sum.asked / 1e9, sum.least / 1e9));
    CHECK(sums["others"].asked >= sums["others"].least);
    CHECK(sums["others"].asked <= 1.05 * sums["others"].least);
    CHECK(sums["logits"].asked >= sums["logits"].least + sums["logits"].reread);
    CHECK(sums["logits"].asked <= 1.01 * (sums["logits"].least + sums["logits"].reread));
    CHECK(sums["logits"].asked <= 1.51 * sums["logits"].least);  // rows exceed the registers
    check_cuda(kernels, {75, 80, 90, 100});
  }
  TEST_CASE("OpenCL C of every model's kernels compiles") {
    std::unique_ptr<gpu::Device> device;
    try {
      device = opencl::open_device();
    } catch (const Error& none) {
      skipped(none.what());
      return;
    }
    Kernels kernels(loop::GpuLanguage::opencl);
    for (const GpuNet& net : gpu_nets) kernels.add(net, {}, "null:opencl");
    for (const Kernels::Program& program : kernels.programs())
      CHECK(device->compile(program.source) != nullptr);
  }
}
