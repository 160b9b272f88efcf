// Defines synthetic data of any size, to plan and to measure with.
#include "weft/data/synthetic.h"
#include "weft/train/datasets/datasets.h"

namespace weft::train {
namespace {
struct Splits {
  data::SyntheticOptions train, test;
};
Splits splits(const Recipe& recipe) {
  constexpr int64_t tests = 1000;  // samples of an evaluation
  data::SyntheticOptions train{.classes = recipe->data.classes, .seed = recipe->seed};
  data::SyntheticOptions test = train;
  test.size = tests;
  return {train, test};
}

TaskData read_images(const Recipe& recipe, const DataOptions&) {
  const auto [train, test] = splits(recipe);
  const int64_t side = recipe->data.image_size;
  const TaskShape shape{InputKind::images, {3, side, side}, train.classes};
  return {.task = Task::classification,
          .shape = shape,
          .train = data::random_images("train", shape.input, train),
          .validation = data::random_images("test", shape.input, test)};
}

TaskData read_tokens(const Recipe& recipe, const DataOptions&) {
  auto [train, test] = splits(recipe);
  const int64_t seq_len = recipe->data.seq_len;
  TaskShape shape{InputKind::tokens, {seq_len}, train.classes};
  const bool of_samples = recipe->task == Task::classification;
  if (of_samples) {
    train.labels = test.labels = recipe->data.labels;
    shape = {InputKind::tokens, {seq_len}, train.labels, train.classes};
  }
  return {.task = of_samples ? Task::classification : Task::causal_lm,
          .shape = shape,
          .train = data::random_tokens("train", seq_len, train),
          .validation = data::random_tokens("test", seq_len, test)};
}
}  // namespace

DataEntry random_images() {
  return {.name = "random-images",
          .doc = "generated images: class patterns with noise, of any size",
          .read = read_images,
          .reads = {keys::data::classes, keys::data::image_size}};
}

DataEntry random_tokens() {
  return {.name = "random-tokens",
          .doc = "generated tokens: a noisy random walk, of any length and vocabulary",
          .read = read_tokens,
          .reads = {keys::data::classes, keys::data::labels, keys::data::seq_len,
                    keys::data::mlm_probability}};
}

}  // namespace weft::train
