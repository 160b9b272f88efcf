// Fuzzes recipes in YAML: an accepted recipe, written in full, must read back as the same recipe.
#include "tests/fuzz/fuzz.h"
#include "weft/train/recipe/recipe.h"

using namespace weft;

namespace {
const std::string valid[] = {
    "name: a\nmodel: {name: gpt, config: {hidden_size: 64, bias: false}}\ndata: {dataset: "
    "addition}\n"
    "train:\n  steps: 32Ki\n  global_batch_size: 1M\n  grad_clip: 1.0\n",
    "model:\n  layers:\n    - conv2d: {out_channels: 32, kernel_size: [3, 3]}\n    - relu\n    - "
    "flatten\n"
    "    - linear: {out_features: 10}\ndata: {dataset: mnist, transforms: [{random_crop: {padding: "
    "4}}]}\n",
    "optimizer: {name: sgd, lr: 1.0e-3, betas: [0.9, 0.99], nesterov: true}\neval: {every: "
    "epoch}\n# end\n",
    "data: {format: text, path: \"a b\", val_split: 0.1}\nscheduler: {name: cosine, warmup_ratio: "
    ".5}\n",
    "train: {precision: tf32, device: 'cuda:h200', memory: 1.5GiB, offload: [parameters, "
    "activations],\n  offload_folder: /tmp, recompute: full, chunks: 4, keep: bf16, rounding: "
    "null}\n"
    "plan: {usd_per_hour: 2}\n"};
}  // namespace

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                          unsigned seed) {
  return fuzz::mutate(valid, data, size, max_size, seed);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string text(reinterpret_cast<const char*>(data), size);
  fuzz::expect_value_or_error(ErrorKind::usage, [&] {
    auto recipe = train::Recipe::parse(text, "input");
    std::string yaml = recipe.to_yaml();
    if (train::Recipe::parse(yaml, "again").to_yaml() != yaml) std::abort();
    recipe.check();
  });
  fuzz::expect_value_or_error(ErrorKind::usage, [&] {
    train::Recipe recipe;
    size_t equals = text.find('=');
    if (equals != std::string::npos)
      recipe.set(text.substr(0, equals), text.substr(equals + 1), "flag");
    recipe.set("model.layers", text, "flag");
  });
  return 0;
}
