// Tests runs that train a published encoder further (model.pretrained) on masked tokens.
#include <algorithm>
#include <filesystem>
#include <vector>

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "tests/support/published_model.h"
#include "tests/train/runs.h"
#include "weft/io/files.h"
#include "weft/io/safetensors.h"
#include "weft/models/encoder.h"
#include "weft/models/pretrained.h"
#include "weft/tensor/compile.h"
#include "weft/train/checkpoint/checkpoint.h"
#include "weft/train/plan/plan_run.h"
#include "weft/train/task/evaluation.h"

using namespace weft;
using namespace weft::test;
namespace fs = std::filesystem;

namespace {
struct EncoderOnText : TemporaryFolder {
  explicit EncoderOnText(const PublishedEncoder& encoder = {}) {
    write_published_encoder(file("model"), encoder);
    file("text.txt", sixty_lines());
  }
  train::Recipe recipe(const std::string& more) const {
    return train::Recipe::parse(
        fmt::format("model: {{pretrained: {0}/model}}\n"
                    "data: {{format: text, path: {0}/text.txt, seq_len: 16, val_split: 0.2}}\n"
                    "log: {{every: 1}}\n{1}",
                    path(), more),
        "test.yaml");
  }
  // Returns the error that a recipe with another value of a key ends in.
  std::string refusal(const std::string& key, const std::string& value) const {
    return error_of([&] {
      train::Recipe changed = recipe("train: {steps: 2, global_batch_size: 4}\n");
      changed.set(key, value, "test");
      train::make_experiment(changed);
    });
  }
};

struct MaskedSample {
  std::vector<int64_t> inputs, labels;
};
MaskedSample masked_sample(const data::Source& source, int64_t index) {
  const auto length = static_cast<size_t>(source.input_type().elements());
  MaskedSample all{std::vector<int64_t>(length), std::vector<int64_t>(length)};
  source.write({.index = index}, reinterpret_cast<std::byte*>(all.inputs.data()),
               all.labels.data());
  return all;
}
}  // namespace

TEST_CASE("two steps on masked tokens lower the loss of a published encoder of every family") {
  for (const std::string family : {"bert", "distilbert", "roberta"}) {
    CAPTURE(family);
    const EncoderOnText folder({.family = family});
    const train::Recipe recipe = folder.recipe(train_two_steps + "optimizer: {lr: 0.01}\n");
    const double before = train::evaluate(train::make_experiment(recipe)).loss;
    const train::TrainResult result = train_in(folder, recipe);
    CHECK(result.evaluation.loss < before);

    const std::string model = folder.file("model"), saved = result.checkpoint;
    for (const std::string name : {"tokenizer.json", "tokenizer_config.json"})
      CHECK(io::read_file(fmt::format("{}/{}", saved, name), 1 << 20) ==
            io::read_file(fmt::format("{}/{}", model, name), 1 << 20));
    const io::Safetensors weights = io::Safetensors::open(saved + "/model.safetensors"),
                          published = io::Safetensors::open(model + "/model.safetensors");
    REQUIRE(weights.entries().size() == published.entries().size());
    for (size_t i = 0; i < weights.entries().size(); ++i)
      CHECK(weights.entries()[i].name == published.entries()[i].name);
    CHECK(models::load_pretrained(saved).vocabulary == 110);
  }
}

TEST_CASE("a run of an encoder resumes, and evaluates, without the folder it began with") {
  const EncoderOnText folder;
  const std::string four = "train: {steps: 4, global_batch_size: 4}\n";
  const std::string whole = train_in(folder, folder.recipe(four + "name: whole\n")).checkpoint;
  train_in(folder, folder.recipe(train_two_steps + "name: part\n"));
  fs::remove_all(folder.file("model"));
  const train::TrainResult resumed = train_in(folder, folder.recipe(four + "name: part\n"), true);
  check_equal(whole, resumed.checkpoint);
  train::Experiment experiment = train::make_experiment(
      train::checkpoint_recipe(whole), {.initialize = false,
                                        .vocabulary = train::checkpoint_vocabulary(whole),
                                        .checkpoint = whole});
  train::load_model(whole, experiment);
  CHECK(train::evaluate(experiment).loss == resumed.evaluation.loss);
}

TEST_CASE("a sample of a published encoder is in its tokenizer's frame, and hides tokens of text") {
  const EncoderOnText folder({.family = "roberta"});  // <s> 0, <pad> 1, </s> 2, <mask> 4
  const train::Experiment experiment = train::make_experiment(folder.recipe(train_two_steps));
  CHECK(experiment.task == train::Task::masked_lm);
  CHECK(experiment.shape.classes == 110);
  bool is_masked = false;
  for (int64_t i = 0; i < experiment.train->size(); ++i) {
    const auto [inputs, labels] = masked_sample(*experiment.train, i);
    REQUIRE(inputs.size() == 16);
    CHECK(inputs.front() == 0);
    CHECK(inputs.back() == 2);
    CHECK(labels.front() == data::ignored_label);
    CHECK(labels.back() == data::ignored_label);
    CHECK(std::ranges::count(inputs, 1) == 0);
    CHECK(std::ranges::count_if(labels, [](int64_t id) { return id >= 0; }) == 2);  // 15 % of 14
    is_masked = is_masked || std::ranges::count(inputs, 4) > 0;
  }
  CHECK(is_masked);
  // The last sample to evaluate on is shorter: what follows its text is padding.
  const data::Source& held_out = *experiment.validation;
  const auto [inputs, labels] = masked_sample(held_out, held_out.size() - 1);
  const auto end = std::ranges::find(inputs, 2);
  REQUIRE(end + 1 < inputs.end());
  CHECK(std::all_of(end + 1, inputs.end(), [](int64_t id) { return id == 1; }));
  CHECK(std::all_of(labels.begin() + (end - inputs.begin()), labels.end(),
                    [](int64_t id) { return id == data::ignored_label; }));
}

TEST_CASE("padding changes no score of an encoder's run") {
  const EncoderOnText folder;
  const train::Experiment experiment = train::make_experiment(folder.recipe(train_two_steps));
  const ModeScope eval(Mode::eval);
  const std::vector<int64_t> ids = {2, 20, 30, 3};
  std::vector<int64_t> padded = ids;
  padded.resize(7, 0);
  const std::vector<double> alone = (*experiment.model)(tensor(ids, {1, 4})).to_doubles(),
                            followed = (*experiment.model)(tensor(padded, {1, 7})).to_doubles();
  for (size_t i = 0; i < alone.size(); ++i) CHECK(std::abs(alone[i] - followed[i]) < 1e-5);
}

TEST_CASE("a run of a published encoder is planned without its weights") {
  const EncoderOnText folder;
  fs::remove(folder.file("model/model.safetensors"));
  const train::PlannedRun planned(folder.recipe(train_two_steps), {});
  CHECK(planned.report.bytes_of("weights") > 0);
  CHECK(planned.experiment.task == train::Task::masked_lm);
}

TEST_CASE("recipes that do not go with a published encoder are refused") {
  const EncoderOnText folder({.family = "roberta"});
  const auto refuses = [&](const std::string& key, const std::string& value,
                           const std::string& message) {
    CHECK(folder.refusal(key, value).ends_with(": " + message));
  };
  refuses("task", "causal_lm",
          "model.pretrained: published encoders are trained as masked_lm. The task of these data "
          "is causal_lm.");
  refuses("data.seq_len", "2",
          "data.seq_len must be more than the 2 special tokens of a sample. Got 2.");
  refuses("data.seq_len", "31",
          "data.seq_len is at most the 30 tokens of the model's context. Got 31. Hint: "
          "--data.seq_len 30.");
  refuses("data.mlm_probability", "0", "data.mlm_probability must be above 0.");
  const EncoderOnText unmasked({.mask = false});
  CHECK(unmasked.refusal("data.seq_len", "16")
            .ends_with(
                "the tokenizer has no mask_token, which task masked_lm needs. Hint: mask_token in "
                "tokenizer_config.json names it."));
  const EncoderOnText labels({.head = "ForTokenClassification"});
  CHECK(labels.refusal("data.seq_len", "16")
            .ends_with("/model has a head for labels, and these data have none. Hint: "
                       "data.format: jsonl."));
  const EncoderOnText headless({.head = "Model"});
  CHECK(headless.refusal("data.seq_len", "16").find("Got \"BertModel\".") != std::string::npos);
}
