// Times what NVIDIA's libraries offer at the shapes of GPT-2 124M, GPT-2 XL and ResNet-50, with
// CUDA events: every algorithm of cuBLASLt's heuristics and every engine of cuDNN's, including
// those that weft's rules forbid. Prints a JSON line for each at once, and stops when the time is
// up.
//
//   gpu_libraries versions        prints paths and versions of the libraries
//   gpu_libraries bench [--seconds 60] [--small] [--engines]    (--engines: only those of cuDNN)
//
// This is one file because every .cpp of bench/ is a program of its own.
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include <weft/backends/cuda/cublaslt.h>
#include <weft/backends/cuda/cublaslt_api.h>
#include <weft/backends/cuda/cuda_device.h>
#include <weft/backends/cuda/cudnn_attention.h>
#include <weft/backends/cuda/cudnn_conv.h>
#include <weft/backends/cuda/cudnn_descriptors.h>
#include <weft/backends/cuda/cudnn_graph.h>
#include <weft/backends/cuda/driver.h>
#include <weft/base/error.h>
#include <weft/base/host/stopwatch.h>
#include <weft/base/memory/alignment.h>
#include <weft/device/registry.h>
#include <weft/io/json.h>
#include <weft/ops/autodiff.h>
#include <weft/weft.h>

using namespace weft;
using namespace weft::cuda;

namespace {
using nlohmann::json;

void say(const json& facts) {
  print("{}", io::json_text(facts));
  std::fflush(stdout);
}

gpu::Device& device() { return static_cast<gpu::Device&>(library("cuda").memory()); }

// ---- time

class Timer {
 public:
  Timer() {
    stream_of(device());  // makes its context current
    driver().library.find(elapsed_, "cuEventElapsedTime");
    for (Handle* event : {&begin_, &end_})
      driver().check(driver().cuEventCreate(event, 0), "cuEventCreate");
  }
  ~Timer() {
    for (Handle event : {begin_, end_}) driver().cuEventDestroy(event);
  }
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;

  // Returns the microseconds of one of several runs, after a first one that loads what they need.
  double microseconds(const std::function<void()>& enqueue) const {
    constexpr int runs = 5;
    const Stream stream = stream_of(device());
    enqueue();
    driver().check(driver().cuEventRecord(begin_, stream.stream), "cuEventRecord");
    for (int i = 0; i < runs; ++i) enqueue();
    driver().check(driver().cuEventRecord(end_, stream.stream), "cuEventRecord");
    driver().check(driver().cuEventSynchronize(end_), "cuEventSynchronize");
    float milliseconds = 0;
    driver().check(elapsed_(&milliseconds, begin_, end_), "cuEventElapsedTime");
    return 1e3 * static_cast<double>(milliseconds) / runs;
  }

 private:
  int (*elapsed_)(float*, Handle, Handle) = nullptr;
  Handle begin_ = nullptr, end_ = nullptr;
};

// ---- products, by cuBLASLt itself

namespace lt = cublaslt;

constexpr uint32_t bias_gelu = lt::adds_bias | lt::gelu_of_sum | lt::has_aux;
constexpr uint32_t gelu_gradient = lt::times_gelu_slope | lt::has_aux;

// Product is y[m, n] = a[m, k] b[k, n] in bfloat16, row-major; a transposed operand is stored as
// [k, m] or [n, k].
struct Product {
  std::string of;
  int64_t m, n, k;
  bool a_transposed = false, b_transposed = false;
  uint32_t epilogue = 0;  // bits; 0: the product alone

  std::string text() const {
    static const std::map<uint32_t, std::string> names{{0, ""},
                                                       {lt::adds_bias, " bias"},
                                                       {bias_gelu, " bias gelu aux"},
                                                       {gelu_gradient, " dgelu"},
                                                       {lt::sums_of_b, " bias gradient"}};
    return fmt::format("{}: {} x {} x {}{}{}{}", of, m, n, k, a_transposed ? " a^T" : "",
                       b_transposed ? " b^T" : "", names.at(epilogue));
  }
};

// Descriptors are not destroyed: the process is short-lived.
class ProductBench {
 public:
  explicit ProductBench(const Product& product) : product_(product) {
    const auto [of, m, n, k, a_across, b_across, epilogue] = product;
    api().check(api().make_matmul(&matmul_, lt::compute_32f, lt::r_32f),
                "cublasLtMatmulDescCreate");
    // The library is column-major: b is its first factor, and its result is the transpose of y.
    set(lt::transpose_a, int32_t{b_across});
    set(lt::transpose_b, int32_t{a_across});
    layouts_ = {layout(b_across ? k : n, b_across ? n : k),
                layout(a_across ? m : k, a_across ? k : m), layout(n, m)};
    const size_t y_bytes = static_cast<size_t>(m * n) * 2;
    for (size_t bytes : {static_cast<size_t>(k * n) * 2, static_cast<size_t>(m * k) * 2, y_bytes,
                         workspace_bytes, static_cast<size_t>(std::max(m, n)) * 4})
      memory_.push_back(device().allocate(bytes));
    if (epilogue == 0) return;
    set(lt::epilogue, epilogue);
    if ((epilogue & (lt::adds_bias | lt::sums_of_b)) != 0) set(lt::bias_pointer, memory_[4]->data);
    if ((epilogue & lt::has_aux) == 0) return;
    memory_.push_back(device().allocate(y_bytes));
    set(lt::aux_pointer, memory_[5]->data);
    set(lt::aux_stride, n);
  }

  // Times the algorithms that weft may use, in weft's order, then the others that the library
  // returns.
  void run(const Timer& timer) const {
    constexpr uint32_t alignment = buffer_alignment;
    const std::vector<lt::Found> taken = lt::candidates(
        handle(), matmul_, layouts_, {alignment, alignment, alignment, alignment}, workspace_bytes);
    const std::vector<lt::Found> named = all();
    if (taken.empty() && named.empty())
      return say({{"shape", product_.text()}, {"error", "no algorithm"}});
    for (size_t rank = 0; rank < taken.size(); ++rank) time(timer, rank, taken[rank], false);
    for (size_t rank = 0; rank < named.size(); ++rank) {
      const auto is_same = [&](const lt::Found& other) {
        return std::ranges::equal(other.algorithm.data, named[rank].algorithm.data);
      };
      if (std::ranges::none_of(taken, is_same)) time(timer, rank, named[rank], true);
    }
  }

 private:
  static constexpr size_t workspace_bytes = size_t{32} << 20;
  static const lt::Library& api() { return lt::library(); }
  static Handle handle() {
    static const Handle instance = [] {
      Handle made = nullptr;
      api().check(api().create(&made), "cublasLtCreate");
      return made;
    }();
    return instance;
  }
  template <class T>
  void set(lt::MatmulAttribute attribute, const T& value) const {
    api().check(
        api().set_matmul(matmul_, attribute, static_cast<const void*>(&value), sizeof value),
        "cublasLtMatmulDescSetAttribute");
  }
  static Handle layout(int64_t rows, int64_t columns) {
    Handle made = nullptr;
    api().check(api().make_layout(&made, lt::r_16bf, static_cast<uint64_t>(rows),
                                  static_cast<uint64_t>(columns), rows),
                "cublasLtMatrixLayoutCreate");
    return made;
  }
  // Returns the heuristic's algorithms, limited only by the workspace.
  std::vector<lt::Found> all() const {
    Handle preference = nullptr;
    api().check(api().make_preference(&preference), "cublasLtMatmulPreferenceCreate");
    const uint64_t most = workspace_bytes;
    api().check(api().set_preference(preference, lt::most_workspace, &most, sizeof most),
                "cublasLtMatmulPreferenceSetAttribute");
    std::vector<lt::Found> found(256);
    int count = 0;
    if (api().heuristic(handle(), matmul_, layouts_[0], layouts_[1], layouts_[2], layouts_[2],
                        preference, static_cast<int>(found.size()), found.data(), &count) != 0)
      count = 0;
    found.resize(static_cast<size_t>(count));
    return found;
  }
  void time(const Timer& timer, size_t rank, const lt::Found& found, bool breaking) const {
    json facts = {{"shape", product_.text()},
                  {"library", "cublaslt"},
                  {"rank", rank},
                  {"workspace", found.workspace},
                  {"waves", found.waves}};
    if (breaking) facts["against_rules"] = "is none of those that weft asks for";
    if (found.status != 0 || found.workspace > workspace_bytes) return say(facts);
    const float one = 1, zero = 0;
    void* const y = memory_[2]->data;
    const Stream stream = stream_of(device());
    try {
      const double us = timer.microseconds([&] {
        api().check(
            api().matmul(handle(), matmul_, &one, memory_[0]->data, layouts_[0], memory_[1]->data,
                         layouts_[1], &zero, y, layouts_[2], y, layouts_[2], &found.algorithm,
                         memory_[3]->data, found.workspace, stream.stream),
            "cublasLtMatmul");
      });
      facts["us"] = us;
      const auto [of, m, n, k, a_across, b_across, epilogue] = product_;
      facts["tflops"] = 2e-6 * static_cast<double>(m) * static_cast<double>(n * k) / us;
    } catch (const Error& error) {
      facts["error"] = error.what();
    }
    say(facts);
  }

  Product product_;
  Handle matmul_ = nullptr;
  std::array<Handle, 3> layouts_{};
  std::vector<std::shared_ptr<Buffer>> memory_;  // b, a, y, workspace, bias or its gradient, aux
};

// Adds forward, gradient of the input, and gradient of the weight, which is stored as [n, k].
void add_layer(std::vector<Product>& to, const std::string& of, int64_t rows, int64_t n,
               int64_t k) {
  to.push_back({of, rows, n, k, false, true, lt::adds_bias});
  to.push_back({of + " dx", rows, k, n});
  to.push_back({of + " dw", n, k, rows, true, false});
}

std::vector<Product> products(bool small) {
  std::vector<Product> all;
  auto add_model = [&](const std::string& name, int64_t rows, int64_t width) {
    add_layer(all, name + " qkv", rows, 3 * width, width);
    add_layer(all, name + " proj", rows, width, width);
    all.push_back({name + " fc", rows, 4 * width, width, false, true, bias_gelu});
    all.push_back({name + " fc dx", rows, 4 * width, width, false, false, gelu_gradient});
    all.push_back({name + " fc dw", 4 * width, width, rows, true, false, lt::sums_of_b});
    add_layer(all, name + " fc_proj", rows, width, 4 * width);
  };
  const int64_t vocabulary = small ? 37 : 50257, padded = small ? 40 : 50264;
  const int64_t rows = small ? 16 : 65536, width = small ? 8 : 768;
  auto add_heads = [&](const std::string& name, int64_t model_width) {
    for (int64_t n : {vocabulary, padded, (padded + 63) / 64 * 64})
      add_layer(all, fmt::format("{} {}", name, n), rows / 4, n, model_width);
  };
  add_heads("head", width);
  add_model("gpt2", rows, width);
  if (small) return all;
  add_heads("gpt2-xl head", 1600);
  add_model("gpt2-xl", rows / 4, 1600);
  return all;
}

// ---- convolutions and attention, by cuDNN's engines

// GraphBench is a cuDNN graph that a step runs `times` times.
struct GraphBench {
  std::string shape;
  cudnn::Graph graph;
  cudnn::EngineRules rules;
  int64_t times = 1;

  enum class Which { keeping, breaking, unnamed };
  // Runs each engine that the heuristics name and that keeps weft's rules, or that breaks them, or
  // each engine that they do not name. An engine that fails to build or run is reported, and the
  // next one is tried.
  void run(Which which, const Timer& timer) const {
    stream_of(device()).make_current();
    const cudnn::Descriptor properties = cudnn::properties_of_current_device();
    const bool unnamed = which == Which::unnamed;
    const std::vector<cudnn::Engine> engines =
        unnamed ? graph.unnamed_engines(properties, rules) : graph.engines(properties, rules);
    if (engines.empty() && !unnamed) return say({{"shape", shape}, {"error", "no engine"}});
    std::vector<std::shared_ptr<Buffer>> rooms;
    std::vector<void*> addresses;
    for (size_t rank = 0; rank < engines.size(); ++rank) {
      const cudnn::Engine& engine = engines[rank];
      if (!unnamed && engine.offence.empty() == (which == Which::breaking)) continue;
      json facts = {{"shape", shape},        {"library", "cudnn"},
                    {"rank", rank},          {"engine", engine.number},
                    {"notes", engine.notes}, {"workspace", engine.workspace}};
      if (unnamed) facts["unnamed"] = true;
      if (!engine.offence.empty()) facts["against_rules"] = engine.offence;
      try {
        Stopwatch build;
        const cudnn::ExecutionPlan plan = graph.plan(properties, engine);
        facts["build_ms"] = build.milliseconds();
        for (size_t i = rooms.size(); i < plan.bytes().size(); ++i) {
          rooms.push_back(device().allocate(plan.bytes()[i]));
          addresses.push_back(rooms.back()->data);
        }
        const auto scratch = device().allocate(plan.workspace());
        const Stream stream = stream_of(device());
        facts["us"] = static_cast<double>(times) *
                      timer.microseconds([&] { plan.run(stream, addresses, scratch->data); });
      } catch (const std::exception& error) {
        facts["error"] = error.what();
      }
      say(facts);
    }
  }
};

struct Geometry {
  int64_t batch, channels, extent, outputs, kernel, stride = 1, padding = 0;
};

// Returns the stages of bottleneck blocks on 224 x 224 images (He et al. 2016), each geometry once.
std::vector<Geometry> resnet50(int64_t batch) {
  std::vector<Geometry> all{{batch, 3, 224, 64, 7, 2, 3}};
  int64_t channels = 64, extent = 56;
  for (int64_t width : {64, 128, 256, 512}) {
    const int64_t stride = width == 64 ? 1 : 2;
    all.push_back({batch, width, extent, width, 3, stride, 1});
    all.push_back({batch, channels, extent, 4 * width, 1, stride});
    channels = 4 * width;
    extent /= stride;
    all.push_back({batch, width, extent, channels, 1});
    all.push_back({batch, channels, extent, width, 1});
  }
  return all;
}

void add_convolution(std::vector<GraphBench>& to, const Geometry& g) {
  const Value x = input({DType::bf16, {g.batch, g.channels, g.extent, g.extent}}, 0);
  const Value weight = input({DType::bf16, {g.outputs, g.channels, g.kernel, g.kernel}}, 1);
  const Value y =
      conv(x, weight, {}, {.stride = {g.stride, g.stride}, .padding = {g.padding, g.padding}});
  const Value dy = input(y.type(), 2), wanted[] = {x, weight};
  const std::vector<Value> gradient = gradients(y, wanted, dy);
  const std::string shape =
      fmt::format("conv {} x {} x {} to {}, {} x {}, stride {}", g.batch, g.channels, g.extent,
                  g.outputs, g.kernel, g.kernel, g.stride);
  for (const auto& [value, what] :
       {std::pair(y, ""), std::pair(gradient[0], " dx"), std::pair(gradient[1], " dw")}) {
    const Node& node = *value.node();
    cudnn::EngineRules rules = cudnn::conv_rules(node);
    rules.workspace = cudnn::choose_conv(node)->most_workspace;  // as with room in the arena
    to.push_back({shape + what, cudnn::conv_graph(node), rules});
  }
}

void add_attention(std::vector<GraphBench>& to, int64_t batch, int64_t heads, int64_t length) {
  const Type type{DType::bf16, {batch, heads, length, 64}};
  const Value y = attention(input(type, 0), input(type, 1), input(type, 2), {.causal = true});
  cudnn::Heads all(*y.node());
  const Dims by_token = dense_strides(type.shape, {0, 2, 1, 3});
  const cudnn::AttentionStrides strides{by_token, by_token, by_token, by_token};
  const std::string shape = fmt::format("attention {} x {} x {} x 64", batch, heads, length);
  to.push_back(
      {shape, cudnn::attention_graph(all, strides, true), {cudnn::GradientScratch::engine_bytes}});
  const cudnn::GradientScratch scratch(all);
  all.batch = scratch.batch;
  to.push_back({shape + " gradient",
                cudnn::attention_gradient_graph(all, strides, by_token, by_token),
                {scratch.engine},
                batch / scratch.batch});
}

// ---- the program

// Runs the most informative cases first; those that weft's rules forbid or heuristics do not name
// come last.
void bench(double seconds, bool small, bool only_engines) {
  const Stopwatch watch;
  const Timer timer;
  std::vector<GraphBench> graphs;
  add_attention(graphs, small ? 1 : 64, small ? 2 : 12, small ? 16 : 1024);
  if (!small) add_attention(graphs, 16, 25, 1024);
  const std::vector<Geometry> geometries =
      small ? std::vector<Geometry>{{1, 8, 6, 8, 3, 1, 1}} : resnet50(256);
  for (const Geometry& geometry : geometries) add_convolution(graphs, geometry);
  std::vector<std::function<void()>> work;
  if (!only_engines)
    for (const Product& product : products(small))
      work.emplace_back([&timer, product] { ProductBench(product).run(timer); });
  using Which = GraphBench::Which;
  const auto add = [&](size_t graph, Which which, auto where) {
    work.insert(where, [&, graph, which] { graphs[graph].run(which, timer); });
  };
  const std::ptrdiff_t heads = only_engines ? 0 : 9;
  for (size_t i = 0; i < graphs.size(); ++i)
    add(i, Which::keeping,
        i < 2 ? work.begin() + heads + static_cast<std::ptrdiff_t>(i) : work.end());
  for (const Which which : {Which::breaking, Which::unnamed})
    for (size_t i = 0; i < graphs.size(); ++i) add(i, which, work.end());
  size_t done = 0;
  for (const auto& one : work) {
    if (watch.milliseconds() > 1e3 * seconds) break;
    one();
    ++done;
  }
  print("libraries: {} of {} shapes in {:.0f} s{}", done, work.size(), 1e-3 * watch.milliseconds(),
        done < work.size() ? " (out of time)" : "");
}

void versions() {
  print("driver {}: {}", driver().version, driver().library.path());
  const auto at = [](const char* name, const std::vector<std::string>& names, const auto& version) {
    try {
      const cuda::SharedLibrary found(names, "");
      print("{} {}: {}", name, version(found), found.path());
    } catch (const Error& error) {
      print("{}: {}", name, error.what());
    }
  };
  at("NVRTC", {"libnvrtc.so.13", "libnvrtc.so.12"}, [](const cuda::SharedLibrary& found) {
    int (*ask)(int*, int*) = nullptr;
    found.find(ask, "nvrtcVersion");
    int major = 0, minor = 0;
    ask(&major, &minor);
    return fmt::format("{}.{}", major, minor);
  });
  const auto number = [](const char* function) {
    return [function](const cuda::SharedLibrary& found) {
      size_t (*ask)() = nullptr;
      found.find(ask, function);
      return ask();
    };
  };
  at("NVML", {"libnvidia-ml.so.1"}, [](const cuda::SharedLibrary& found) {
    int (*init)() = nullptr;
    int (*driver_version)(char*, unsigned) = nullptr;
    found.find(init, "nvmlInit_v2");
    found.find(driver_version, "nvmlSystemGetDriverVersion");
    std::array<char, 96> text{};
    const bool fails = init() != 0 || driver_version(text.data(), text.size()) != 0;
    return fmt::format("of driver {}", fails ? "unknown" : text.data());
  });
  at("cuBLASLt", {"libcublasLt.so.13", "libcublasLt.so.12"}, number("cublasLtGetVersion"));
  try {
    print("cuDNN {}: {}", cudnn::library().version(), cudnn::library().library.path());
  } catch (const Error& error) {
    print("cuDNN: {}", error.what());
  }
}
}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  const bool small = std::ranges::find(words, "--small") != words.end();
  const bool only_engines = std::ranges::find(words, "--engines") != words.end();
  const auto seconds = std::ranges::find(words, "--seconds");
  try {
    if (!words.empty() && words[0] == "versions") return versions(), 0;
    if (!words.empty() && words[0] == "bench") {
      const bool given = seconds != words.end() && seconds + 1 != words.end();
      return bench(given ? std::atof((seconds + 1)->c_str()) : 60, small, only_engines), 0;
    }
    fmt::print(stderr,
               "usage: gpu_libraries versions | bench [--seconds N] [--small] [--engines]\n");
    return 2;
  } catch (const Error& error) {
    fmt::print(stderr, "error: {}\n", error.what());
    return static_cast<int>(error.kind());
  } catch (const std::exception& error) {
    fmt::print(stderr, "error: {}\n", error.what());
    return 1;
  }
}
