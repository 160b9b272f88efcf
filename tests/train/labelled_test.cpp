// Tests runs in which published encoders learn texts with labels, against transformers
// (tests/reference/labelled).
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <set>
#include <vector>

#include <doctest/doctest.h>

#include "tests/models/reference.h"
#include "tests/support/captured.h"
#include "tests/support/near.h"
#include "tests/support/peers.h"
#include "tests/support/published_model.h"
#include "tests/train/runs.h"
#include "weft/io/files.h"
#include "weft/io/json.h"
#include "weft/models/encoder.h"
#include "weft/models/pretrained.h"
#include "weft/nn/block_activations.h"
#include "weft/onnx/export/export.h"
#include "weft/tensor/compile.h"
#include "weft/train/checkpoint/checkpoint.h"
#include "weft/train/methods/narrowed.h"
#include "weft/train/plan/plan_run.h"
#include "weft/train/task/evaluation.h"

using namespace weft;
using namespace weft::test;
using weft::testing::Json;
using weft::testing::near;
namespace fs = std::filesystem;

namespace {
const char* const nets[] = {"bert_sequenceclassification",       "bert_tokenclassification",
                            "roberta_sequenceclassification",    "roberta_tokenclassification",
                            "distilbert_sequenceclassification", "distilbert_tokenclassification"};
constexpr size_t limit = size_t{1} << 20;  // bytes of a file

// Reference is one net of tests/reference/labelled as transformers publishes it, and its data.
struct Reference : TemporaryFolder {
  explicit Reference(const std::string& name)
      : row(weft::testing::reference_file("labelled/" + name + ".json")) {
    fs::create_directories(file("model"));
    std::vector<Variable> variables;
    for (const Json& recipe : row.at("tensors")) {
      variables.emplace_back(recipe.at("name").get<std::string>(),
                             Type{DType::f32, weft::testing::shape_of(recipe)});
      weft::testing::write(variables.back(), weft::testing::elements_of(recipe));
    }
    io::save_safetensors(file("model/model.safetensors"), variables);
    file("model/config.json", row.at("config").dump());
    const Json& update = row.at("tokenizer");
    Json tokenizer = weft::testing::reference_file("tokenizers/" +
                                                   update.at("name").get<std::string>() + ".json");
    if (update.contains("post_processor")) {
      tokenizer["post_processor"] = update.at("post_processor");
      for (const Json& token : update.at("added_tokens"))
        tokenizer["added_tokens"].push_back(token);
    }
    file("model/tokenizer.json", tokenizer.dump());
    std::string lines;
    for (const Json& line : row.at("lines")) lines += line.dump() + "\n";
    file("data.jsonl", lines);
  }
  // Returns the recipe whose batch has all lines.
  train::Recipe recipe() const {
    return train::Recipe::parse(
        fmt::format("model: {{pretrained: {0}/model}}\n"
                    "data: {{format: jsonl, path: {0}/data.jsonl, seq_len: 14}}\n"
                    "optimizer: {{name: sgd, lr: {1}, weight_decay: 0}}\n"
                    "train: {{steps: 2, global_batch_size: {2}, precision: fp64}}\n"
                    "log: {{every: 1}}\n",
                    path(), row.at("lr").get<double>(), row.at("lines").size()),
        "test.yaml");
  }
  std::vector<int64_t> integers(const char* key) const { return row.at(key).at("values"); }

  Json row;
};

std::vector<double> logged_losses(const TemporaryFolder& folder, const std::string& run = "run") {
  std::vector<double> losses;
  for (const std::string& line : lines_of(folder.file("runs/" + run + "/log.jsonl"))) {
    const Json entry = Json::parse(line);
    if (entry.contains("loss") && entry.contains("lr")) losses.push_back(entry.at("loss"));
  }
  return losses;
}

// EncoderOnLabels is a small encoder whose tokens are characters, and texts with labels.
struct EncoderOnLabels : TemporaryFolder {
  explicit EncoderOnLabels(const PublishedEncoder& encoder = {}, bool of_words = false) {
    write_published_encoder(file("model"), encoder);
    const char* const names[] = {"up", "down", "left"};
    std::string lines;
    for (int i = 0; i < 24; ++i)
      lines += of_words ? fmt::format(
                              "{{\"tokens\": [\"go\", \"{0}\"], \"labels\": [\"O\", "
                              "\"{0}\"]}}\n",
                              names[i % 3])
                        : fmt::format("{{\"text\": \"{0} {1}\", \"label\": \"{0}\"}}\n",
                                      names[i % 3], i);
    file("data.jsonl", lines);
  }
  train::Recipe recipe(const std::string& more) const {
    return train::Recipe::parse(
        fmt::format("model: {{pretrained: {0}/model}}\n"
                    "data: {{format: jsonl, path: {0}/data.jsonl, seq_len: 16, val_split: 0.25}}\n"
                    "log: {{every: 1}}\n{1}",
                    path(), more),
        "test.yaml");
  }
  // Changes a key of the model's config.json.
  void set(const std::string& key, const Json& value) const {
    Json config = Json::parse(io::read_file(file("model/config.json"), limit));
    config[key] = value;
    file("model/config.json", config.dump());
  }
};
Json config_of(const std::string& folder) {
  return Json::parse(io::read_file(folder + "/config.json", limit));
}
// Returns the numbers of nested lists.
std::vector<double> flat(const Json& lists) {
  std::vector<double> numbers;
  const Json flat_lists = lists.flatten();
  for (const auto& [path, number] : flat_lists.items()) numbers.push_back(number);
  return numbers;
}
std::map<std::string, std::vector<double>> tensors_of(const std::string& folder) {
  std::map<std::string, std::vector<double>> tensors;
  const io::Safetensors file = io::Safetensors::open(folder + "/model.safetensors");
  for (const auto& entry : file.entries())
    tensors[entry.name] = file.tensor(entry.name).to_doubles();
  return tensors;
}
}  // namespace

TEST_CASE("texts with labels become the batches of transformers") {
  for (const std::string name : nets) {
    CAPTURE(name);
    const Reference reference(name);
    const train::Experiment experiment = train::make_experiment(reference.recipe());
    CHECK(experiment.task == train::Task::classification);
    CHECK(experiment.labels->names == reference.row.at("names").get<std::vector<std::string>>());
    const data::Source& source = *experiment.train;
    const auto rows = static_cast<size_t>(source.size());
    const std::vector<int64_t> inputs = reference.integers("inputs"),
                               labels = reference.integers("labels");
    std::vector<int64_t> got(inputs.size()), its_labels(labels.size());
    for (size_t i = 0; i < rows; ++i)
      source.write({.index = static_cast<int64_t>(i)},
                   reinterpret_cast<std::byte*>(&got[i * inputs.size() / rows]),
                   &its_labels[i * labels.size() / rows]);
    CHECK(got == inputs);
    CHECK(its_labels == labels);
  }
}

TEST_CASE("two steps on labels have the losses of transformers, and what is saved its logits") {
  for (const std::string name : nets) {
    CAPTURE(name);
    const Reference reference(name);
    const train::TrainResult result = train_in(reference, reference.recipe());
    const std::vector<double> losses = logged_losses(reference);
    const std::vector<double> expected = reference.row.at("losses");
    REQUIRE(losses.size() == expected.size());
    for (size_t i = 0; i < losses.size(); ++i) CHECK(losses[i] == near(expected[i], 1e-9));

    const Json config = config_of(result.checkpoint);
    CHECK(config.at("architectures") == Json::array({reference.row.at("architecture")}));
    Json ids, names;
    for (const Json& label : reference.row.at("names")) {
      ids[label.get<std::string>()] = ids.size();
      names[std::to_string(names.size())] = label;
    }
    CHECK(config.at("label2id") == ids);
    CHECK(config.at("id2label") == names);
    CHECK(config.at("num_labels") == names.size());
    const ModeScope eval(Mode::eval);
    const models::Pretrained saved =
        models::load_pretrained(result.checkpoint, {.hide_padding = true});
    const Json& logits = reference.row.at("logits_after");
    const std::vector<int64_t> inputs = reference.integers("inputs");
    const Tensor got = (*saved.model)(tensor(inputs, {std::ssize(inputs) / 14, 14}));
    weft::testing::check_close(got.to_doubles(), weft::testing::elements_of(logits), 1e-9,
                               "logits");
  }
}

TEST_CASE("an encoder without a head for the labels gets a new one, drawn by the seed") {
  for (const std::string family : {"bert", "distilbert", "roberta"})
    for (const bool of_words : {false, true}) {
      CAPTURE(family);
      CAPTURE(of_words);
      // The folder has a pretrained model's head, no head at all, or one for other labels.
      for (const std::string& head :
           {std::string("ForMaskedLM"), std::string("Model"),
            std::string(of_words ? "ForTokenClassification" : "ForSequenceClassification")}) {
        CAPTURE(head);
        const EncoderOnLabels folder({.family = family, .head = head}, of_words);
        const auto drawn = [&](int seed) {
          const Captured errors(2);
          const train::Experiment experiment = train::make_experiment(
              folder.recipe(train_two_steps + fmt::format("seed: {}\n", seed)));
          const std::string said = errors.text();
          const std::string note = fmt::format("its files have no head for these {} labels of {}",
                                               of_words ? 4 : 3, of_words ? "tokens" : "samples");
          CHECK_MESSAGE(said.find(note) != std::string::npos, said);
          CHECK(said.find(note) == said.rfind(note));
          std::map<std::string, std::vector<double>> values;
          for (const auto& [name, variable] : experiment.model->state())
            values[name] = variable.value().to_doubles();
          return values;
        };
        const auto first = drawn(1), again = drawn(1), other = drawn(2);
        CHECK(first == again);
        const auto published = tensors_of(folder.file("model"));
        for (const auto& [name, values] : first) {
          CAPTURE(name);
          const bool is_output =
              name == "classifier.weight" || name == "classifier.out_proj.weight";
          if (published.contains(name) && !name.starts_with("classifier"))
            CHECK(values == published.at(name));
          if (is_output) {
            CHECK(values != other.at(name));
            double squares = 0;
            for (const double x : values) squares += x * x;
            // The standard deviation is that of transformers, initializer_range.
            CHECK(std::sqrt(squares / static_cast<double>(values.size())) == near(0.02, 0.3));
          }
        }
      }
    }
}

TEST_CASE(
    "a run on labels lowers its loss, resumes and evaluates without the folder it began with") {
  for (const bool of_words : {false, true}) {
    CAPTURE(of_words);
    const EncoderOnLabels folder({.family = "roberta"}, of_words);
    const std::string lr = "optimizer: {lr: 0.003}\n",
                      many = "train: {steps: 100, global_batch_size: 6}\n" + lr;
    const train::TrainResult whole = train_in(folder, folder.recipe(many + "name: whole\n"));
    CHECK(whole.evaluation.score > 0.6);
    train_in(folder,
             folder.recipe("train: {steps: 7, global_batch_size: 6}\n" + lr + "name: part\n"));
    fs::remove_all(folder.file("model"));
    const train::TrainResult resumed = train_in(folder, folder.recipe(many + "name: part\n"), true);
    check_equal(whole.checkpoint, resumed.checkpoint);
    const auto saved = [&] {
      return train::make_experiment(train::checkpoint_recipe(whole.checkpoint),
                                    {.initialize = false,
                                     .vocabulary = train::checkpoint_vocabulary(whole.checkpoint),
                                     .checkpoint = whole.checkpoint});
    };
    train::Experiment experiment = saved();
    train::load_model(whole.checkpoint, experiment);
    CHECK(train::evaluate(experiment).loss == resumed.evaluation.loss);
    // The labels of a run do not change.
    folder.file("data.jsonl", of_words ? R"({"tokens": ["go"], "labels": ["back"]})"
                                       : R"({"text": "go back", "label": "back"})");
    CHECK(error_of(saved).find("data.jsonl:1: there is no label back. The model has ") !=
          std::string::npos);
  }
}

TEST_CASE("names of config.json are the labels, and a head of as many labels is kept") {
  const EncoderOnLabels folder({.head = "ForSequenceClassification"});
  folder.set("id2label", {{"0", "up"}, {"1", "left"}});
  CHECK(error_of([&] {
          train::make_experiment(folder.recipe(train_two_steps));
        }).ends_with("data.jsonl:2: there is no label down. The model has 2: up, left."));
  folder.file("data.jsonl",
              "{\"text\": \"a\", \"label\": \"left\"}\n{\"text\": \"b\", \"label\": 0}\n"
              "{\"text\": \"a\", \"label\": \"left\"}\n{\"text\": \"b\", \"label\": 0}\n"
              "{\"text\": \"a\", \"label\": \"left\"}\n{\"text\": \"b\", \"label\": 0}\n");
  const Captured errors(2);
  const train::Experiment experiment = train::make_experiment(folder.recipe(train_two_steps));
  CHECK(errors.text().empty());
  CHECK(experiment.labels->names == std::vector<std::string>{"up", "left"});
  for (const auto& [name, variable] : experiment.model->state())
    CHECK(variable.value().to_doubles() == tensors_of(folder.file("model")).at(name));
}

TEST_CASE("heads for numbers, several labels or masked tokens are no heads of labels") {
  const EncoderOnLabels folder({.head = "ForSequenceClassification"});
  const auto count = [&] {
    const auto labels = models::labels_of(folder.file("model"));
    return labels ? labels->names.size() : 0;
  };
  CHECK(count() == 2);  // the default of transformers
  folder.set("num_labels", 3);
  CHECK(count() == 3);
  folder.set("num_labels", 1);
  CHECK(count() == 0);
  folder.set("id2label", {{"0", "a"}, {"1", "b"}});
  CHECK(count() == 2);
  folder.set("problem_type", "multi_label_classification");
  CHECK(count() == 0);
  folder.set("problem_type", "single_label_classification");
  CHECK(count() == 2);
  folder.set("architectures", {"BertForMaskedLM"});
  CHECK(count() == 0);
}

TEST_CASE("a run on labels is planned without its weights") {
  const EncoderOnLabels folder;
  fs::remove(folder.file("model/model.safetensors"));
  const train::PlannedRun planned(folder.recipe(train_two_steps), {});
  CHECK(planned.report.bytes_of("weights") > 0);
  CHECK(planned.experiment.shape.classes == 3);
}

TEST_CASE("recipes that do not go with texts with labels are refused") {
  const EncoderOnLabels folder;
  const auto refusal = [&](const std::string& key, const std::string& value) {
    return error_of([&] {
      train::Recipe changed = folder.recipe(train_two_steps);
      changed.set(key, value, "test");
      train::make_experiment(changed);
    });
  };
  CHECK(refusal("data.packing", "true")
            .ends_with("data.packing is for instruction data, which decoders learn."));
  CHECK(refusal("task", "masked_lm").ends_with("task masked_lm needs text or random-tokens."));
  CHECK(refusal("data.seq_len", "2")
            .ends_with("data.seq_len must be more than the 2 special tokens of a sample. Got 2."));
  CHECK(refusal("data.seq_len", "33")
            .ends_with("data.seq_len is at most the 32 tokens of the model's context. Got 33. "
                       "Hint: --data.seq_len 32."));
  const EncoderOnLabels headed({.head = "ForSequenceClassification"});
  headed.set("id2label", {{"0", "up"}, {"2", "left"}});
  CHECK(error_of([&] {
          train::make_experiment(headed.recipe(train_two_steps));
        }).ends_with("config.json: [bert] id2label must name each class from 0. Got no 1."));
}

namespace {
// Writes the encoder of a run on labels as an ONNX file with the inputs that transformers names.
void write_encoder(const train::Recipe& recipe, const std::string& file) {
  const train::Experiment experiment = train::make_experiment(recipe);
  const auto& encoder = dynamic_cast<const models::Encoder&>(*experiment.model);
  const auto build = [&](int64_t batch) {
    const ModeScope inference(Mode::eval);
    const Type type = experiment.shape.batch(batch);
    const Tensor tokens = input(type, 0), mask = input(type, 1), types = input(type, 2);
    const Tensor logits = encoder(tokens, {.attention_mask = mask, .token_type_ids = types});
    return Graph{.inputs = {tokens, mask, types},
                 .outputs = {softmax(logits, -1), logits},
                 .assignments = {}};
  };
  onnx::write(
      onnx::export_model(build, {.inputs = {"input_ids", "attention_mask", "token_type_ids"},
                                 .outputs = {"probabilities", "logits"}})
          .model,
      file);
}
// Builds the experiment of a checkpoint, as verbs do, with its weights.
train::Experiment of_checkpoint(const std::string& folder, bool with_data) {
  train::Experiment experiment = train::make_experiment(
      train::checkpoint_recipe(folder), {.initialize = false,
                                         .with_data = with_data,
                                         .vocabulary = train::checkpoint_vocabulary(folder),
                                         .checkpoint = folder});
  train::load_model(folder, experiment);
  return experiment;
}
std::set<std::string> names_in(const std::string& folder) {
  std::set<std::string> names;
  for (const auto& file : fs::directory_iterator(folder)) names.insert(file.path().filename());
  return names;
}
}  // namespace

TEST_CASE("a net on texts that lost its pruned channels keeps the files of its tokenizer") {
  const EncoderOnLabels folder({.head = "Model"});
  folder.file("model/tokenizer_config.json", R"({"model_max_length": 32})");
  const std::string file = folder.file("net.onnx");
  write_encoder(folder.recipe(train_two_steps), file);
  train::Recipe recipe = folder.recipe(
      "train: {steps: 6, global_batch_size: 6}\n"
      "pruning: {pattern: channels, sparsity: 0.5, end_step: 4, frequency: 2}\n");
  recipe.set("model.pretrained", file, "test");
  recipe.set("data.tokenizer", folder.file("model"), "test");
  const std::string checkpoint = train_in(folder, recipe).checkpoint, out = folder.file("out");
  train::Experiment narrow = of_checkpoint(checkpoint, /*with_data=*/false);
  train::remove_pruned_channels(narrow);
  narrow.recipe.set("model.pretrained", out + "/model.onnx", "test");
  train::write_checkpoint(out, narrow, {});
  CHECK(names_in(out) == names_in(checkpoint));
  for (const char* name : {"tokenizer.json", "tokenizer_config.json", "labels.json"})
    CHECK(io::read_file(out + "/" + name, limit) ==
          io::read_file(fs::path(checkpoint) / name, limit));
  const train::Experiment again = of_checkpoint(out, /*with_data=*/true);
  CHECK(nn::number_count(*again.model) < nn::number_count(*of_checkpoint(checkpoint, true).model));
  CHECK(train::evaluate(again).loss ==
        near(train::evaluate(of_checkpoint(checkpoint, true)).loss, 1e-5));
}

TEST_CASE("an encoder from an ONNX file learns labels as the folder that it was written from") {
  for (const bool of_words : {false, true}) {
    CAPTURE(of_words);
    const EncoderOnLabels folder({.head = "Model"}, of_words);
    for (const char* key : {"hidden_dropout_prob", "attention_probs_dropout_prob"})
      folder.set(key, 0.0);
    const std::string settings =
        "optimizer: {lr: 0.003}\ntrain: {steps: 30, global_batch_size: 6}\n";
    const train::Recipe native = folder.recipe(settings + "name: native\n");
    // Inputs of the file are those that transformers names, and padding reaches it by its mask.
    const std::string file = folder.file("net.onnx");
    write_encoder(native, file);
    train::Recipe imported = folder.recipe(settings + "name: imported\n");
    imported.set("model.pretrained", file, "test");
    imported.set("data.tokenizer", folder.file("model"), "test");
    train_in(folder, native);
    const train::TrainResult result = train_in(folder, imported);
    const auto expected = logged_losses(folder, "native"),
               losses = logged_losses(folder, "imported");
    REQUIRE(losses.size() == expected.size());
    for (size_t i = 0; i < losses.size(); ++i) CHECK(losses[i] == near(expected[i], 1e-4));
    CHECK(losses.back() < 0.9 * losses.front());

    // A checkpoint needs neither the file nor the tokenizer, and keeps the labels.
    fs::remove(file);
    fs::remove_all(folder.file("model"));
    const auto saved = [&](bool with_data) {
      return train::make_experiment(train::checkpoint_recipe(result.checkpoint),
                                    {.initialize = false,
                                     .with_data = with_data,
                                     .vocabulary = train::checkpoint_vocabulary(result.checkpoint),
                                     .checkpoint = result.checkpoint});
    };
    train::Experiment again = saved(true);
    train::load_model(result.checkpoint, again);
    CHECK(train::evaluate(again).loss == result.evaluation.loss);
    CHECK(saved(false).labels->names == again.labels->names);
    for (const char* damaged : {"{", "{}", R"({"of": "texts", "names": ["up"]})",
                                R"({"of": "texts", "names": ["up", 3]})"}) {
      const std::string labels = (fs::path(result.checkpoint) / "labels.json").string();
      const std::string before = io::read_file(labels, limit);
      folder.file(fs::relative(labels, folder.path()).string(), damaged);
      CHECK(error_of([&] { saved(false); }).find("labels.json") != std::string::npos);
      folder.file(fs::relative(labels, folder.path()).string(), before);
    }
    folder.file("data.jsonl", of_words ? R"({"tokens": ["go"], "labels": ["back"]})"
                                       : R"({"text": "go back", "label": "back"})");
    CHECK(error_of([&] { saved(true); }).find("data.jsonl:1: there is no label back.") !=
          std::string::npos);
  }
}

TEST_SUITE("slow pytorch") {
  TEST_CASE("folders of runs on labels load in transformers, with the same logits") {
    const std::string python = weft::testing::python_with("transformers");
    if (python.empty()) return;
    for (const std::string family : {"bert", "distilbert", "roberta"})
      for (const bool of_words : {false, true}) {
        CAPTURE(family);
        CAPTURE(of_words);
        const EncoderOnLabels folder({.family = family}, of_words);
        const std::string saved = train_in(folder, folder.recipe(train_two_steps)).checkpoint;
        const std::vector<int64_t> ids = {2, 20, 30, 40, 50, 3};
        io::write_file_atomically(saved + "/tokens.json", Json{ids}.dump());
        const int status =
            std::system(fmt::format("{} tests/pytorch/check_saved.py '{}' >'{}' 2>'{}'", python,
                                    saved, folder.file("said"), folder.file("errors"))
                            .c_str());
        REQUIRE_MESSAGE(status == 0, contents_of(folder.file("errors")));
        const Json said = Json::parse(contents_of(folder.file("said")));
        CHECK(said.at("missing").empty());
        CHECK(said.at("unexpected").empty());
        CHECK(said.at("names") ==
              (of_words ? Json{"O", "down", "left", "up"} : Json{"down", "left", "up"}));
        const ModeScope eval(Mode::eval);
        const models::Pretrained net = models::load_pretrained(saved);
        weft::testing::check_close((*net.model)(tensor(ids, {1, 6})).to_doubles(),
                                   flat(said.at("logits")), 1e-5, "logits");
      }
  }
}
