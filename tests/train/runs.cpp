#include "tests/train/runs.h"

#include <csignal>
#include <sstream>

#include <nlohmann/json.hpp>

#include "tests/support/guarded.h"
#include "weft/base/numbers/philox.h"
#include "weft/weft.h"

namespace weft::test {
namespace {
constexpr int side = 8;

std::string big_endian(uint32_t value) {
  std::string bytes;
  for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(value >> shift & 0xff);
  return bytes;
}

void write_images(const TemporaryFolder& folder, const std::string& split, uint32_t count) {
  std::string images =
      std::string("\0\0\x08\x03", 4) + big_endian(count) + big_endian(side) + big_endian(side);
  std::string labels = std::string("\0\0\x08\x01", 4) + big_endian(count);
  for (uint32_t i = 0; i < count; ++i) {
    uint32_t label = philox_word({.seed = 3, .stream = static_cast<int64_t>(split.size())}, i) % 4;
    labels += static_cast<char>(label);
    for (int y = 0; y < side; ++y)
      for (int x = 0; x < side; ++x) {
        bool bright = static_cast<uint32_t>(y / 4 * 2 + x / 4) == label;
        uint32_t noise = philox_word({.seed = 4, .stream = i}, y * side + x) % 100;
        images += static_cast<char>(noise + (bright ? 60 : 0));
      }
  }
  folder.file(split + "-images-idx3-ubyte", images);
  folder.file(split + "-labels-idx1-ubyte", labels);
}

train::Recipe recipe_from(const std::string& yaml) {
  return train::Recipe::parse(yaml, "test.yaml");
}
}  // namespace

train::Recipe with(train::Recipe recipe, const Settings& settings) {
  for (const auto& [key, value] : settings) recipe.set(key, value, "test");
  return recipe;
}

train::Recipe sums_recipe(const std::string& more) {
  return recipe_from(R"(
model: {name: gpt, config: {hidden_size: 16, num_hidden_layers: 1, num_attention_heads: 2, dropout: 0.1}}
data: {dataset: addition, digits: 2, reversed: true}
optimizer: {lr: 3.0e-3}
checkpoint: {every: 1000}
log: {every: 1}
)" + more);
}

train::Recipe images_recipe(const TemporaryFolder& folder, const std::string& more) {
  write_images(folder, "train", 96);
  write_images(folder, "t10k", 40);
  return recipe_from(fmt::format(R"(
model: {{layers: [{{conv2d: {{out_channels: 4, kernel_size: 3, padding: 1}}}}, batch_norm, relu, flatten, {{linear: {{out_features: 4}}}}]}}
data: {{format: idx, path: {}, transforms: [{{random_crop: {{padding: 1}}}}]}}
optimizer: {{name: sgd, lr: 0.05, momentum: 0.9, weight_decay: 0}}
log: {{every: 1}}
)",
                                 folder.path()) +
                     more);
}

train::TrainResult train_in(const TemporaryFolder& folder, const train::Recipe& recipe, bool resume,
                            const SignalAt& signal) {
  return train::train(recipe, {.runs = folder.file("runs"),
                               .resume = resume,
                               .quiet = true,
                               .after_step = [&](int64_t step) {
                                 if (step == signal.step) std::raise(signal.signal);
                               }});
}

train::TrainResult train_while(const TemporaryFolder& folder, const train::Recipe& recipe,
                               const std::function<void(int64_t step)>& after_step) {
  return train::train(recipe,
                      {.runs = folder.file("runs"), .quiet = true, .after_step = after_step});
}

bool arena_is_as_planned(const std::string& closing) {
  const auto line = nlohmann::json::parse(closing);
  const size_t planned = line["planned_arena"], used = line["used_arena"];
  return used <= planned && planned - used <= testing::slack_of_scratch;
}

void check_equal(const std::string& a, const std::string& b) {
  for (const char* file :
       {"model.safetensors", "state-optimizer.safetensors", "data.json", "rng.json"}) {
    INFO(std::string(file));
    CHECK(contents_of(a + "/" + file) == contents_of(b + "/" + file));
  }
}

std::vector<std::string> lines_of(const std::string& path) {
  std::istringstream text(contents_of(path));
  std::vector<std::string> lines;
  for (std::string line; std::getline(text, line);) lines.push_back(line);
  return lines;
}

Tensor logits_of(const Model& model, const Tensor& inputs) {
  const ModeScope mode(Mode::eval);
  return model(inputs).eval();
}

}  // namespace weft::test
