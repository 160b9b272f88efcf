// Measures generation with a published model: reading a prompt beside the products of its layers
// alone, and decoding tokens one by one beside their floor: the bytes of weights and cache over the
// bandwidth at which all threads read memory, measured here.
//
//   build/release/bench/generation MODEL [BATCHES [PROMPT [TOKENS [DEVICE [DTYPE]]]]]
//
// BATCHES are numbers of sequences, as 1,16. MODEL is a folder, a GGUF file, or a folder with a
// config.json alone (bench/models), whose weights are then drawn; without one it is a small Llama.
// DTYPE may name a block format as well, in which linear layers are then zeros: bf16,Q4_K.
// On other devices than the CPU the floor is for the reader to work out. bench/peers/generation.py
// does the same with PyTorch, and generation_llama_cpp.py with llama.cpp, which reads the same GGUF
// files. WEFT_THREADS is the number of threads of all three.
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <map>
#include <sstream>
#include <string>
#include <sys/resource.h>
#include <vector>

#include <fmt/core.h>

#include <weft/base/host/parallel.h>
#include <weft/infer/token_model.h>
#include <weft/models/family.h>
#include <weft/models/llama.h>
#include <weft/models/pretrained.h>
#include <weft/weft.h>

using namespace weft;

namespace {

double milliseconds_of(auto&& function) {
  const auto start = std::chrono::steady_clock::now();
  function();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start)
      .count();
}
double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

// Returns bytes per millisecond, the best of ten passes over more memory than caches hold.
double read_bandwidth() {
  const std::vector<uint64_t> memory(size_t{96} << 20, 1);
  constexpr int64_t block = 1 << 16;
  double best = 0;
  for (int pass = 0; pass < 10; ++pass) {
    const double ms = milliseconds_of([&] {
      parallel_for(static_cast<int64_t>(memory.size()) / block, [&](int64_t begin, int64_t end) {
        uint64_t sums[8] = {};
        for (int64_t i = begin * block; i < end * block; i += 8)
          for (int64_t k = 0; k < 8; ++k) sums[k] += memory[static_cast<size_t>(i + k)];
        for (uint64_t sum : sums) asm volatile("" : : "r"(sum));
      });
    });
    best = std::max(best, static_cast<double>(memory.size() * sizeof(uint64_t)) / ms);
  }
  return best;
}

// Returns the milliseconds that products of `rows` rows by the matrices of all layers take; 0: some
// are in blocks. Layers are numbered; other matrices are tables, and the head, of which a prompt
// needs one row.
double products_alone(const Model& model, int64_t rows) {
  std::map<std::vector<int64_t>, std::pair<Variable, int>> matrices;  // with their number, by shape
  for (const auto& [name, variable] : model.named_parameters()) {
    const Shape& shape = variable.type().shape;
    if (shape.size() != 2 || name.find_first_of("0123456789") == std::string::npos) continue;
    if (!is_float(variable.dtype())) return 0;
    matrices.try_emplace({shape.begin(), shape.end()}, variable, 0).first->second.second += 1;
  }
  double sum = 0;
  for (const auto& [shape, matrix] : matrices) {
    const auto& [variable, count] = matrix;
    auto product = compile([&](const Tensor& x) { return matmul(x, variable.value()); });
    const Tensor x = ones({rows, shape[0]}, variable.type().dtype);
    double best = std::numeric_limits<double>::infinity();
    for (int i = 0; i < 6; ++i) best = std::min(best, milliseconds_of([&] { product(x).eval(); }));
    sum += best * count;
  }
  return sum;
}

nn::Options small_llama() {
  return models::Llama({.vocab_size = 4096,
                        .hidden_size = 512,
                        .intermediate_size = 1408,
                        .num_hidden_layers = 8,
                        .num_attention_heads = 8,
                        .num_key_value_heads = 4})
      .config();
}

bool has_weights(const std::string& path) {
  if (!std::filesystem::is_directory(path)) return true;
  return std::ranges::any_of(std::filesystem::directory_iterator(path), [](const auto& file) {
    return file.path().extension() == ".safetensors";
  });
}

// Returns a model of random weights, those of linear layers zeros in a block format unless it is
// "".
models::Pretrained draw(nn::Options config, DType dtype, const std::string& format) {
  const nn::BuildScope scope({.dtype = dtype});
  if (!format.empty()) {
    nn::Options quantized;
    quantized.set("quant_method", std::string("weft"));
    quantized.set("format", format);
    config.set("quantization_config", quantized);
  }
  std::unique_ptr<models::Decoder> decoder = models::make_decoder(config);
  models::Pretrained drawn{.dtype = dtype,
                           .vocabulary = decoder->decoder_config().vocab_size,
                           .context = decoder->decoder_config().max_position_embeddings};
  drawn.model = std::move(decoder);
  return drawn;
}

void measure(const models::Pretrained& model, int64_t batch, int64_t prompt, int64_t count,
             const std::string& device) {
  const auto tokens =
      infer::make_token_model(*model.model, model.vocabulary, model.context,
                              {.batch = batch, .context = prompt + count + 1, .device = device});
  std::vector<int32_t> ids;
  ids.reserve(static_cast<size_t>(prompt));
  for (int64_t i = 0; i < prompt; ++i)
    ids.push_back(static_cast<int32_t>((i * i + 7 * i) % model.vocabulary));
  std::vector<infer::RowTokens> rows(static_cast<size_t>(batch));
  auto append = [&](std::span<const int32_t> what, int64_t keep) {
    std::ranges::fill(rows, infer::RowTokens{what, keep});
    tokens->append(rows);
  };
  const double first = milliseconds_of([&] { append(ids, 0); });
  std::vector<double> prefills, decodes;
  for (int i = 0; i < 3; ++i) prefills.push_back(milliseconds_of([&] { append(ids, 0); }));
  const std::span<const int32_t> one = std::span(ids).first(1);
  append(one, prompt);
  for (int64_t i = 1; i < count; ++i)
    decodes.push_back(milliseconds_of([&] { append(one, prompt + i); }));
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);

  const infer::TokenModelPlan plan = tokens->plan(prompt);
  const double prefill = median(prefills), decode = median(decodes);
  // The embedding of a token reads a row, unless its table is the head as well.
  const double filled = (static_cast<double>(prompt) + 0.5 * static_cast<double>(count)) /
                        static_cast<double>(prompt + count + 1);
  const double bytes =
      static_cast<double>(plan.weight_bytes) + static_cast<double>(plan.cache_bytes) * filled;
  fmt::print("  batch {}: first prefill {:.0f} ms, prefill {:.2f} ms ({:.0f} tok/s", batch, first,
             prefill, 1000.0 * static_cast<double>(batch * prompt) / prefill);
  if (const double products = device == "cpu" ? products_alone(*model.model, batch * prompt) : 0;
      products > 0)
    fmt::print(", {:.0f} % of it products alone", 100 * products / prefill);
  fmt::print("), decode {:.2f} ms ({:.1f} tok/s), at most {:.1f} GB/s", decode,
             1000.0 * static_cast<double>(batch) / decode, bytes / decode / 1e6);
  if (device == "cpu") {
    const double bandwidth = read_bandwidth();
    fmt::print(" of {:.1f} ({:.0f} %)", bandwidth / 1e6, 100 * bytes / decode / bandwidth);
  }
  auto mebibytes = [](size_t size) { return static_cast<double>(size) / (1 << 20); };
  fmt::print("; MiB: weights {:.1f}, cache {:.1f}, arena {:.1f}; peak {:.0f}\n",
             mebibytes(plan.weight_bytes), mebibytes(plan.cache_bytes),
             mebibytes(plan.arena_bytes()), static_cast<double>(usage.ru_maxrss) / 1024);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string path = argc > 1 ? argv[1] : "";
  std::istringstream batches(argc > 2 ? argv[2] : "1");
  const int64_t prompt = argc > 3 ? std::atoi(argv[3]) : 512;
  const int64_t count = argc > 4 ? std::atoi(argv[4]) : 32;
  const std::string device = argc > 5 ? argv[5] : "cpu";
  const std::string types = argc > 6 ? argv[6] : "";
  const size_t comma = std::min(types.find(','), types.size());
  const std::string format = types.substr(std::min(comma + 1, types.size()));
  std::optional<DType> dtype;
  if (!types.empty()) dtype = parse_dtype(types.substr(0, comma));
  models::Pretrained model;
  const double load = milliseconds_of([&] {
    if (path.empty())
      model = draw(small_llama(), dtype.value_or(DType::f32), format);
    else if (!has_weights(path))
      model = draw(models::read_config(path), dtype.value_or(DType::f32), format);
    else
      model = models::load_pretrained(path, {.dtype = dtype});
  });
  fmt::print("{}, {}, {}, prompt {}: load {:.1f} ms\n", path.empty() ? "a small Llama" : path,
             device, name(model.dtype), prompt, load);
  for (std::string batch; std::getline(batches, batch, ',');)
    measure(model, std::atoi(batch.c_str()), prompt, count, device);
}
