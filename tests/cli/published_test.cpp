// Tests the verbs on a folder of a published model, and on a run that trained it further. This is
// one file because all cases share the small folders that its helpers write.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "tests/support/near.h"
#include "tests/support/program.h"
#include "tests/support/published_model.h"
#include "weft/data/tokenizer/tokenizer.h"
#include "weft/infer/token_model.h"
#include "weft/io/safetensors.h"
#include "weft/models/pretrained.h"

using namespace weft;
using namespace weft::test;
using nlohmann::json;
namespace fs = std::filesystem;

namespace {
struct Published : Workplace {
  Published() {
    write_published(path("model"));
    std::string text;
    for (int i = 0; i < 30; ++i) text += "A line of text, number " + std::to_string(i) + ".\n";
    write("text.txt", text);
  }
  std::vector<std::string> training(const std::string& steps) const {
    return {"train",    "--model.pretrained",
            "model",    "--data.format",
            "text",     "--data.path",
            "text.txt", "--data.seq_len",
            "16",       "--batch",
            "4",        "--steps",
            steps,      "--name",
            "run",      "--json"};
  }
  // Returns the loss of `weft eval` on the text.
  double loss_of(const std::string& model) const {
    const Outcome found = weft({"eval", model, "--data.path", "text.txt", "--json"});
    REQUIRE_MESSAGE(found.code == 0, found.err);
    return json_of(found)["loss"].get<double>();
  }
};

// Returns the mean of -log p of each token but the first, in windows of `length`, from logits that
// a cache gives one token at a time.
double loss_of(const std::string& folder, const std::string& text, int64_t length) {
  const models::Pretrained model = models::load_pretrained(folder);
  const std::vector<int32_t> ids = data::Tokenizer::load(folder).encode(text);
  const auto tokens =
      infer::make_token_model(*model.model, model.vocabulary, model.context, {.device = "cpu"});
  double sum = 0;
  for (int64_t begin = 0; begin + 1 < std::ssize(ids); begin += length) {
    for (int64_t i = begin; i < std::min(begin + length, std::ssize(ids) - 1); ++i) {
      const std::vector<infer::RowTokens> next = {
          {.tokens = std::span(ids).subspan(static_cast<size_t>(i), 1), .prefix = i - begin}};
      tokens->append(next);
      double total = 0;
      for (float logit : tokens->logits(0)) total += std::exp(static_cast<double>(logit));
      const auto label = static_cast<size_t>(ids[static_cast<size_t>(i) + 1]);
      sum += std::log(total) - static_cast<double>(tokens->logits(0)[label]);
    }
  }
  return sum / static_cast<double>(ids.size() - 1);
}

size_t bytes_of_weights(const std::string& file) {
  const io::Safetensors weights = io::Safetensors::open(file);
  size_t bytes = 0;
  for (const io::Safetensors::Entry& entry : weights.entries()) bytes += entry.type.bytes();
  return bytes;
}
}  // namespace

TEST_CASE("eval gives the loss and the perplexity of a published model on a text") {
  const Published place;
  const std::string text = place.read("text.txt");
  const json whole = json_of(place.weft({"eval", "model", "--data.path", "text.txt", "--json"}));
  const double loss = loss_of(place.path("model"), text, 64);  // windows of the context
  CHECK(std::fabs(whole["loss"].get<double>() - loss) < 1e-5 * loss);
  CHECK(std::fabs(whole["perplexity"].get<double>() - std::exp(loss)) < 1e-4 * std::exp(loss));
  CHECK(whole["tokens"] == text.size() - 1);
  CHECK(whole["model"] == "model");
  const json in_windows = json_of(
      place.weft({"eval", "model", "--data.path", "text.txt", "--data.seq_len", "7", "--json"}));
  const double shorter = loss_of(place.path("model"), text, 7);
  CHECK(std::fabs(in_windows["loss"].get<double>() - shorter) < 1e-5 * shorter);
  const Outcome shown = place.weft({"eval", "model", "--data.path", "text.txt"});
  CHECK(shown.out.find("perplexity ") != std::string::npos);
  CHECK(shown.out.find(std::to_string(text.size() - 1) + " tokens") != std::string::npos);
}

TEST_CASE("config.json ends a text where no generation_config.json does") {
  const Published place;
  fs::remove(place.path("model/generation_config.json"));
  const std::vector<std::string> generate = {
      "generate",      "model", "--prompt", "A line",
      "--temperature", "0",     "--json",   "--log-probabilities"};
  const json text = json_of(place.weft(generate));
  json config = json::parse(place.read("model/config.json"));
  config["eos_token_id"] = {1, text["token_ids"].at(0)};
  place.write("model/config.json", config.dump());
  const json ended = json_of(place.weft(generate));
  CHECK(ended["finish"] == "end_token");
  CHECK(ended["tokens"] == 0);
}

TEST_CASE(
    "a head that differs from the embeddings is not tied to them, whatever config.json says") {
  const Published place;
  const std::vector<std::string> generate = {
      "generate",      "model", "--prompt", "A line",
      "--temperature", "0",     "--json",   "--log-probabilities"};
  json config = json::parse(place.read("model/config.json"));
  REQUIRE(config["tie_word_embeddings"] == false);
  const json text = json_of(place.weft(generate));
  config["tie_word_embeddings"] = true;
  place.write("model/config.json", config.dump());
  const Outcome tied = place.weft(generate);
  CHECK(json_of(tied)["log_probabilities"] == text["log_probabilities"]);
  CHECK(tied.err.find("tie_word_embeddings is taken for false") != std::string::npos);
}

TEST_CASE("plan says what generating text takes, without files of weights") {
  const Published place;
  const size_t weights = bytes_of_weights(place.path("model/model.safetensors"));
  fs::remove(place.path("model/model.safetensors"));
  fs::remove(place.path("model/tokenizer.json"));
  // Two layers with two heads of four elements cache keys, values, and cosines and sines of
  // positions.
  auto cache = [](size_t batch, size_t context, size_t element) {
    return (2 * 2 * batch * 2 * context * 4 + context * (2 + 4)) * element;
  };
  const json plan = json_of(place.weft({"plan", "model", "--json"}));
  CHECK(plan["weight_bytes"] == weights);
  CHECK(plan["cache_bytes"] == cache(1, 64, 4));
  CHECK(plan["context"] == 64);
  CHECK(plan["parameters"] == weights / 4);
  CHECK(plan["prefill"]["tokens"] == 64);
  CHECK(plan["total_bytes"] == weights + cache(1, 64, 4) + plan["arena_bytes"].get<size_t>() +
                                   plan["constant_bytes"].get<size_t>());
  const json other = json_of(place.weft({"plan", "model", "--context", "32", "--batch", "3",
                                         "--dtype", "bf16", "--on", "h100", "--json"}));
  CHECK(other["weight_bytes"] == weights / 2);
  CHECK(other["cache_bytes"] == cache(3, 32, 2));
  CHECK(other["decode"]["tokens"] == 3);
  CHECK(other["decode"]["seconds"].get<double>() > 0);
  CHECK(other["prefill"]["seconds"].get<double>() > other["decode"]["seconds"].get<double>());
  CHECK(other["device"].get<std::string>().find("H100") != std::string::npos);
  const Outcome shown = place.weft({"plan", "model", "--on", "h100"});
  for (const char* part :
       {"weights ", "cache ", "arena ", "total ", "prompt of 64 tokens", "tok/s"})
    CHECK(shown.out.find(part) != std::string::npos);
}

TEST_CASE("plan compares devices for a published model, the fastest first") {
  const Published place;
  fs::remove(place.path("model/model.safetensors"));
  const std::vector<std::string> question = {"plan", "model", "--on", "t4,h100,a100"};
  const Outcome shown = place.weft(question);
  REQUIRE_MESSAGE(shown.code == 0, shown.err);
  CHECK(shown.out.starts_with("device "));
  std::vector<std::string> as_json = question;
  as_json.emplace_back("--json");
  const json plans = json_of(place.weft(as_json));
  REQUIRE(plans.size() == 3);
  double before = 0;
  for (const json& entry : plans) {
    CHECK(entry["fits"] == true);
    const std::string on = entry["on"];
    CHECK(shown.out.find("\n" + on + " ") != std::string::npos);
    const double seconds = entry["plan"]["decode"]["seconds"];
    CHECK(seconds >= before);
    before = seconds;
    const json alone = json_of(place.weft({"plan", "model", "--on", on, "--json"}));
    CHECK(entry["plan"] == alone);
  }
  json config = json::parse(place.read("model/config.json"));
  config["hidden_size"] = 65536;
  config["intermediate_size"] = 262144;
  place.write("model/config.json", config.dump());
  const Outcome refused = place.weft({"plan", "model", "--on", "t4,h100"});
  CHECK(refused.code == 3);
  CHECK(refused.out.find("\nt4: the plan does not fit: it takes ") != std::string::npos);
}

TEST_CASE("a published model generates, chats and trains, and its run does so without its folder") {
  const Published place;
  const std::vector<std::string> generate = {
      "generate", "model", "--prompt", "A line", "--json", "--max-new-tokens", "8"};
  const json text = json_of(place.weft(generate));
  CHECK(text["tokens"].get<int64_t>() <= 8);
  place.write(".in", "Hello\n");
  const Outcome chat = place.weft({"chat", "model", "--max-new-tokens", "4"});
  CHECK(chat.code == 0);
  CHECK(!chat.out.empty());

  const json trained = json_of(place.weft(place.training("2")));
  CHECK(trained["step"] == 2);
  fs::remove_all(place.path("model"));
  std::vector<std::string> resume = {"train", "run", "--resume", "--steps", "3", "--json"};
  CHECK(json_of(place.weft(resume))["step"] == 3);
  std::vector<std::string> from_run = generate;
  from_run[1] = "run";
  CHECK(json_of(place.weft(from_run))["prompt"] == "A line");
  CHECK(place.weft({"chat", "run", "--max-new-tokens", "4"}).code == 0);
  const json result = json_of(place.weft({"eval", "run", "--data.val_split", "0.5", "--json"}));
  CHECK(std::fabs(result["perplexity"].get<double>() - std::exp(result["loss"].get<double>())) <
        1e-3 * result["perplexity"].get<double>());
}

TEST_CASE("a conversation that outgrows the context goes on without its beginning") {
  const Published place;
  place.write(".in", "The first message\nThe second one\nThe third\nThe fourth\n");
  const Outcome chat = place.weft({"chat", "model", "--max-new-tokens", "4"});
  CHECK(chat.code == 0);
  const size_t warning = chat.err.find("longer than the context of 64 tokens");
  REQUIRE_MESSAGE(warning != std::string::npos, chat.err);
  CHECK(chat.err.find("longer than", warning + 1) == std::string::npos);
  CHECK(std::ranges::count(chat.out, '\n') >= 4);
  place.write(".in", std::string(100, 'x') + "\n");
  const Outcome refused = place.weft({"chat", "model"});
  CHECK(refused.code == 2);
  CHECK(refused.err.find("the message has ") != std::string::npos);
}

TEST_CASE("what generation_config.json says of sampling is refused by its name") {
  const Published place;
  place.write("model/generation_config.json", R"({"temperature": -1})");
  const Outcome refused = place.weft({"generate", "model", "--prompt", "A"});
  CHECK(refused.code == 4);
  CHECK(refused.err.find("model/generation_config.json: temperature must be") != std::string::npos);
}

TEST_CASE("the rate of generation counts tokens whose text is held back") {
  const Published place;
  const json text = json_of(place.weft({"generate", "model", "--prompt", "A line", "--json",
                                        "--max-new-tokens", "8", "--stop", "no such text"}));
  CHECK(text["tokens_per_second"] > 0);
}

TEST_CASE("an adapter trains beside a published model, resumes, generates and is merged") {
  const Published place;
  std::vector<std::string> training = place.training("4");
  training.insert(training.end(), {"--adapter.type", "lora", "--adapter.r", "2", "--lr", "0.01",
                                   "--checkpoint.every", "2"});
  CHECK(json_of(place.weft(training))["step"] == 4);
  const std::string checkpoint = "runs/run/checkpoints/latest";
  CHECK(fs::exists(place.path(checkpoint + "/adapter_model.safetensors")));
  CHECK(!fs::exists(place.path(checkpoint + "/model.safetensors")));
  const json config = json::parse(place.read(checkpoint + "/adapter_config.json"));
  CHECK(config["r"] == 2);
  CHECK(config["base_model_name_or_path"] == "model");

  // A run that resumes at step 2 takes the same steps.
  *std::ranges::find(training, "run") = "other";
  *(std::ranges::find(training, "--steps") + 1) = "2";
  place.weft(training);
  const Outcome resumed = place.weft({"train", "other", "--resume", "--steps", "4", "--json"});
  REQUIRE_MESSAGE(resumed.code == 0, resumed.err);
  CHECK(place.read("runs/other/checkpoints/latest/adapter_model.safetensors") ==
        place.read(checkpoint + "/adapter_model.safetensors"));

  const std::vector<std::string> rest = {
      "--prompt", "A line",        "--json", "--max-new-tokens",
      "8",        "--temperature", "0",      "--log-probabilities"};
  auto generated = [&](std::vector<std::string> model) {
    model.insert(model.begin(), "generate");
    model.insert(model.end(), rest.begin(), rest.end());
    const Outcome outcome = place.weft(model);
    REQUIRE_MESSAGE(outcome.code == 0, outcome.err);
    json text = json_of(outcome);
    text.erase("tokens_per_second");
    return text;
  };
  const json adapted = generated({"run"});
  CHECK(adapted != generated({"model"}));
  CHECK(generated({"model", "--adapter", checkpoint}) == adapted);
  CHECK(generated({"model", "--adapter", "run"}) == adapted);
  const Outcome twice = place.weft({"generate", "run", "--adapter", "other", "--prompt", "A"});
  CHECK(twice.code == 2);
  CHECK(twice.err.find("run has an adapter of its own. Hint: model --adapter other.") !=
        std::string::npos);
  const Outcome merged = place.weft({"merge", "run", "merged"});
  REQUIRE_MESSAGE(merged.code == 0, merged.err);
  CHECK(generated({"merged"})["text"] == adapted["text"]);
  CHECK(place.weft({"convert", "run", "out", "--to", "hf"}).code == 2);
  fs::rename(place.path("model"), place.path("moved"));
  const Outcome lost = place.weft({"generate", "run", "--prompt", "A"});
  CHECK(lost.code == 2);
  CHECK(lost.err.find("Hint: --model.pretrained FOLDER.") != std::string::npos);
  CHECK(generated({"run", "--model.pretrained", "moved"}) == adapted);
  // A base with other weights is noticed wherever the adapter meets it.
  write_published(place.path("model"), {.layers = 2, .width = 16});
  CHECK(generated({"run"}) == adapted);  // the same weights
  std::string weights = place.read("model/model.safetensors");
  weights.back() = static_cast<char>(weights.back() ^ 1);
  place.write("model/model.safetensors", weights);
  for (const std::vector<std::string>& meets :
       {std::vector<std::string>{"generate", "run", "--prompt", "A"},
        {"generate", "model", "--adapter", checkpoint, "--prompt", "A"},
        {"merge", "run", "other"},
        {"train", "run", "--resume", "--steps", "6"}}) {
    const Outcome other = place.weft(meets);
    CHECK(other.code == 4);
    CHECK(other.err.find("are not those that") != std::string::npos);
  }
  // Without the checkpoint around them the files may be meant for a base of another precision.
  fs::create_directory(place.path("copied"));
  for (const char* file : {"adapter_config.json", "adapter_model.safetensors"})
    fs::copy_file(fs::canonical(place.path(checkpoint)) / file, place.path("copied") + "/" + file);
  const Outcome warned = place.weft({"merge", "copied", "other"});
  CHECK(warned.code == 0);
  CHECK(warned.err ==
        "weft: warning: the weights of model are not those that copied was trained on.\n");
  // The run's base in another precision is known for what it is.
  const Outcome half = place.weft({"convert", "moved", "half", "--to", "hf", "--dtype", "bf16"});
  REQUIRE_MESSAGE(half.code == 0, half.err);
  for (const std::string adapter : {"run", "copied"}) {
    const Outcome said = place.weft(
        {"generate", "half", "--adapter", adapter, "--prompt", "A", "--max-new-tokens", "1"});
    CHECK(said.code == 0);
    CHECK(said.err.find("the weights of half are bf16.") != std::string::npos);
    CHECK(said.err.find("was trained on them in f32.") != std::string::npos);
  }
  // A GGUF file of the base has other names and orders of rows.
  CHECK(place.weft({"convert", "moved", "moved.gguf", "--to", "gguf"}).code == 0);
  const Outcome other_form =
      place.weft({"generate", "moved.gguf", "--adapter", "copied", "--prompt", "A"});
  CHECK(other_form.code == 0);
  CHECK(
      other_form.err.find("weft: note: whether copied was trained on the weights of moved.gguf is "
                          "not known") == 0);
  fs::remove_all(place.path("model"));
  fs::rename(place.path("moved"), place.path("model"));
  const Outcome taken = place.weft({"merge", "run", "merged"});
  CHECK(taken.code == 2);
  const json loss = json_of(place.weft({"eval", "run", "--data.val_split", "0.5", "--json"}));
  CHECK(loss["loss"].get<double>() > 0);

  training.insert(training.end(), {"--adapter.target_modules", "[q_porj]", "--overwrite"});
  const Outcome refused = place.weft(training);
  CHECK(refused.code == 2);
  CHECK_MESSAGE(refused.err.find("has a path that ends with \"q_porj\"") != std::string::npos,
                refused.err);
  const Outcome without =
      place.weft({"train", "--model.pretrained", "model", "--data.format", "text", "--data.path",
                  "text.txt", "--steps", "1", "--adapter.r", "4"});
  CHECK(without.code == 2);
  CHECK(without.err.find("adapter.r needs adapter.type") != std::string::npos);
}

TEST_CASE("a published model is tuned on instructions, and its run goes on") {
  const Published place;
  std::string lines;
  for (int i = 0; i < 20; ++i)
    lines += json{{"prompt", "Say " + std::to_string(i)}, {"completion", " it."}}.dump() + "\n";
  place.write("data.jsonl", lines);
  std::vector<std::string> training = place.training("2");
  *std::ranges::find(training, "text") = "jsonl";
  *std::ranges::find(training, "text.txt") = "data.jsonl";
  training.insert(training.end(), {"--adapter.type", "lora", "--data.val_split", "0.2"});
  const Outcome trained = place.weft(training);
  REQUIRE_MESSAGE(trained.code == 0, trained.err);
  const Outcome resumed = place.weft({"train", "run", "--resume", "--steps", "3", "--json"});
  REQUIRE_MESSAGE(resumed.code == 0, resumed.err);
  CHECK(json_of(resumed)["step"] == 3);
  const auto evaluated = [&](const std::string& packing) {
    const Outcome outcome = place.weft({"eval", "model", "--data.format", "jsonl", "--data.path",
                                        "data.jsonl", "--data.packing", packing, "--json"});
    REQUIRE_MESSAGE(outcome.code == 0, outcome.err);
    return json_of(outcome);
  };
  const json alone = evaluated("false"), packed = evaluated("true");
  CHECK(packed["count"] == alone["count"]);
  CHECK(packed["loss"].get<double>() == weft::testing::near(alone["loss"].get<double>(), 1e-5));
  training.insert(training.end(), {"--data.packing", "true", "--overwrite"});
  CHECK(place.weft(training).code == 0);
  CHECK(place.weft({"train", "run", "--resume", "--steps", "3"}).code == 0);
  place.write("data.jsonl", lines + "{\"prompt\": 1}\n");
  const Outcome refused = place.weft(training);
  CHECK(refused.code == 4);
  CHECK(refused.err.find("data.jsonl:21: prompt must be text. Got 1.") != std::string::npos);
}

TEST_CASE("a published model is written as a GGUF file, which is a model, too") {
  const Published place;
  fs::remove_all(place.path("model"));
  write_published(place.path("model"), {.width = 32});
  const Outcome converted = place.weft({"convert", "model", "model.gguf", "--to", "gguf"});
  REQUIRE_MESSAGE(converted.code == 0, converted.err);
  REQUIRE(place.weft({"quantize", "model", "small.gguf", "--to", "Q4_0"}).code == 0);
  REQUIRE(place.weft({"quantize", "model", "small", "--to", "Q4_0"}).code == 0);
  CHECK(std::abs(place.loss_of("model.gguf") - place.loss_of("model")) < 1e-5);
  CHECK(std::abs(place.loss_of("small.gguf") - place.loss_of("small")) < 1e-5);
  auto text_of = [&](const char* model) {
    return place
        .weft({"generate", model, "--prompt", "the", "--temperature", "0", "--max-new-tokens", "8"})
        .out;
  };
  CHECK(text_of("model.gguf") == text_of("model"));
  CHECK(place.weft({"plan", "small.gguf"}).code == 0);
  std::vector<std::string> training = place.training("2");
  *std::ranges::find(training, "model") = "small.gguf";
  training.insert(training.end(), {"--adapter.type", "lora"});
  const Outcome trained = place.weft(training);
  REQUIRE_MESSAGE(trained.code == 0, trained.err);
  const Outcome resumed = place.weft({"train", "run", "--resume", "--steps", "3", "--json"});
  REQUIRE_MESSAGE(resumed.code == 0, resumed.err);
  CHECK(place.weft({"generate", "run", "--prompt", "the"}).code == 0);
}

TEST_CASE("a published model is quantized, generates, is evaluated and tuned") {
  const Published place;
  fs::remove_all(place.path("model"));
  write_published(place.path("model"), {.width = 32});
  const Outcome made = place.weft({"quantize", "model", "small", "--to", "Q8_0"});
  REQUIRE_MESSAGE(made.code == 0, made.err);
  CHECK(made.out.find("14 layers in Q8_0") != std::string::npos);
  CHECK(made.err.find("2 layers stay as they are") != std::string::npos);
  CHECK(fs::file_size(place.path("small/model.safetensors")) <
        fs::file_size(place.path("model/model.safetensors")));
  CHECK(place.weft({"quantize", "model", "small", "--to", "Q8_0"}).code == 2);
  CHECK(place.weft({"quantize", "model", "other", "--to", "Q9"}).code == 2);
  REQUIRE(place.weft({"quantize", "model", "capitals", "--to", "q8_0"}).code == 0);
  CHECK(place.read("capitals/model.safetensors") == place.read("small/model.safetensors"));
  const Outcome coarse = place.weft({"quantize", "model", "other", "--to", "Q4_K"});
  CHECK(coarse.code == 0);  // embeddings and head, which get Q8_0 there
  CHECK(coarse.err.find("14 layers stay as they are") != std::string::npos);
  fs::remove_all(place.path("other"));
  const Outcome measured =
      place.weft({"quantize", "model", "other", "--to", "int4", "--data.path", "text.txt"});
  REQUIRE_MESSAGE(measured.code == 0, measured.err);
  CHECK(measured.out.find("perplexity ") != std::string::npos);
  CHECK(measured.out.find(" after (") != std::string::npos);
  fs::remove_all(place.path("other"));
  CHECK(place.weft({"quantize", "model", "other", "--to", "Q8_0", "--data.path", "none"}).code ==
        4);
  CHECK(!fs::exists(place.path("other")));
  const Outcome again = place.weft({"quantize", "small", "other", "--to", "Q8_0"});
  CHECK(again.code == 2);
  const double loss = place.loss_of("model");
  CHECK(std::fabs(place.loss_of("small") - loss) < 0.005 * loss);
  auto output_of = [&](const char* activations) {
    return place
        .weft({"eval", "small", "--data.path", "text.txt", "--json", "--activations", activations})
        .out;
  };
  CHECK(output_of("int8") != output_of("float32"));
  const Outcome refused =
      place.weft({"generate", "model", "--prompt", "A line", "--activations", "int8"});
  CHECK(refused.code == 2);
  CHECK(refused.err.find("--activations is for models with weights in blocks") !=
        std::string::npos);
  const json plan = json_of(place.weft({"plan", "small", "--activations", "float32", "--json"}));
  CHECK(plan["activations"] == "f32");
  CHECK(place.weft({"plan", "small", "--activations", "int8"})
            .out.find("int8 in products with weights in blocks") != std::string::npos);
  const json text = json_of(
      place.weft({"generate", "small", "--prompt", "A line", "--json", "--max-new-tokens", "4"}));
  CHECK(text["tokens"].get<int64_t>() > 0);
  std::vector<std::string> training = place.training("2");
  *std::ranges::find(training, "model") = "small";
  const Outcome norms = place.weft(training);  // 5 norms of 32, 2 matrices of rows of 48
  CHECK_MESSAGE(
      norms.err.find("weft: warning: [small] 14 weights are in blocks, which do not train: only "
                     "the 3232 numbers of other parameters do. Hint: --adapter.type lora.") !=
          std::string::npos,
      norms.err);
  training.insert(training.end(), {"--adapter.type", "LoRA", "--overwrite"});
  const Outcome trained = place.weft(training);
  CHECK_MESSAGE(trained.code == 0, trained.err);
  CHECK(trained.err.find("in blocks") == std::string::npos);
}

TEST_CASE("a folder in blocks converts to one of numbers, which other programs read") {
  const Published place;
  fs::remove_all(place.path("model"));
  write_published(place.path("model"), {.width = 32});
  REQUIRE(place.weft({"quantize", "model", "small", "--to", "int4"}).code == 0);
  const Outcome converted = place.weft({"convert", "small", "numbers", "--to", "HF"});
  REQUIRE_MESSAGE(converted.code == 0, converted.err);
  CHECK(!json::parse(place.read("numbers/config.json")).contains("quantization_config"));
  const io::Safetensors file = io::Safetensors::open(place.path("numbers/model.safetensors"));
  for (const io::Safetensors::Entry& entry : file.entries()) CHECK(entry.type.dtype == DType::f32);
  CHECK(file.entries().size() ==
        io::Safetensors::open(place.path("model/model.safetensors")).entries().size());
  const json exact = json_of(place.weft(
      {"eval", "small", "--data.path", "text.txt", "--activations", "float32", "--json"}));
  const double loss = exact["loss"].get<double>();
  CHECK(std::abs(place.loss_of("numbers") - loss) < 1e-5);
  REQUIRE(place.weft({"convert", "small", "numbers.gguf", "--to", "gguf"}).code == 0);
  CHECK(std::abs(place.loss_of("numbers.gguf") - loss) < 1e-5);
  REQUIRE(place.weft({"convert", "numbers.gguf", "again.gguf", "--to", "gguf"}).code == 0);
  CHECK(std::abs(place.loss_of("again.gguf") - loss) < 1e-5);
}

TEST_CASE("finetune trains on from a folder, a GGUF file or a run, and takes recipes") {
  const Published place;
  const auto tuned = [&](std::vector<std::string> words) {
    words.insert(words.begin(), "finetune");
    words.insert(words.end(), {"--steps", "1", "--json"});
    const Outcome outcome = place.weft(words);
    REQUIRE_MESSAGE(outcome.code == 0, outcome.err);
    return place.read("runs/" + words[words.size() - 4] + "/recipe.yaml");
  };
  const std::string whole =
      tuned({"model", "--data.path", "text.txt", "--batch", "4", "--name", "whole"});
  for (const char* line : {"pretrained: model\n", "format: text\n", "seq_len: 64\n", "lr: 5e-05\n"})
    CHECK_MESSAGE(whole.find(line) != std::string::npos, whole);
  REQUIRE(place.weft({"convert", "model", "model.gguf", "--to", "gguf"}).code == 0);
  const std::string adapter = tuned({"model.gguf", "--adapter.type", "lora", "--data.path",
                                     "text.txt", "--batch", "4", "--name", "adapter"});
  CHECK(adapter.find("lr: 0.0002\n") != std::string::npos);
  tuned({"whole", "--data.path", "text.txt", "--batch", "4", "--name", "again"});
  tuned({"runs/whole", "--data.path", "text.txt", "--batch", "4", "--name", "once-more"});
  const Outcome alone =
      place.weft({"finetune", "adapter", "--data.path", "text.txt", "--name", "none"});
  CHECK(alone.code == 2);
  CHECK(alone.err.find("adapter has an adapter, without the weights that it adapts. Hint: weft "
                       "merge adapter OUT, then weft finetune OUT.") != std::string::npos);
  place.write("recipe.yaml", whole);
  tuned({"recipe.yaml", "--name", "by-recipe"});
  const Outcome resumed = place.weft({"finetune", "whole", "--resume", "--steps", "2", "--json"});
  REQUIRE_MESSAGE(resumed.code == 0, resumed.err);
  CHECK(json_of(resumed)["step"] == 2);
}

TEST_CASE("training says which rates of dropout of a published model it does not apply") {
  const Published place;
  REQUIRE(place
              .weft({"train",    "--model.name",
                     "gpt",      "--model.config.num_hidden_layers",
                     "1",        "--model.config.hidden_size",
                     "8",        "--model.config.num_attention_heads",
                     "1",        "--data.format",
                     "text",     "--data.path",
                     "text.txt", "--data.seq_len",
                     "8",        "--steps",
                     "1",        "--batch",
                     "1",        "--name",
                     "gpt"})
              .code == 0);
  REQUIRE(place.weft({"convert", "gpt", "gpt2", "--to", "hf"}).code == 0);
  std::string config = place.read("gpt2/config.json");
  const std::string none = "\"resid_pdrop\": 0.0";
  REQUIRE(config.find(none) != std::string::npos);
  place.write("gpt2/config.json",
              config.replace(config.find(none), none.size(), "\"resid_pdrop\": 0.2"));
  const Outcome said = place.weft({"finetune", "gpt2", "--data.path", "text.txt", "--data.seq_len",
                                   "8", "--batch", "1", "--steps", "1", "--name", "tuned"});
  CHECK(said.code == 0);
  CHECK(said.err.find("[gpt2] training applies resid_pdrop 0.2 where embd_pdrop is 0.") !=
        std::string::npos);
}

TEST_CASE("a recipe of a published model is planned, and prints in full") {
  const Published place;
  fs::remove(place.path("model/model.safetensors"));
  std::vector<std::string> plan = place.training("5");
  plan[0] = "plan";
  plan.erase(plan.end() - 3, plan.end() - 1);  // --name run
  const json report = json_of(place.weft(plan));
  CHECK(report["model"] == "model");
  const Outcome printed = place.weft({"config", "print", "--model.pretrained", "model"});
  CHECK(printed.out.find("pretrained: model") != std::string::npos);
}

TEST_CASE("an encoder is trained on a recipe for weft's own, and its run is a model of its kind") {
  const Published place;
  write_published_encoder(place.path("bert"));
  place.write("masked.yaml",
              "name: masked\ntask: masked_lm\n"
              "model: {name: bert, config: {hidden_size: 128}}\n"
              "data: {format: text, path: nowhere.txt, tokenizer: characters, seq_len: 16, "
              "val_split: 0.2}\ntrain: {steps: 2, global_batch_size: 4}\n");
  const std::vector<std::string> flags = {"masked.yaml", "--model.pretrained", "bert",
                                          "--data.path", "text.txt",           "--json"};
  std::vector<std::string> plan = {"plan"}, train = {"train"};
  plan.insert(plan.end(), flags.begin(), flags.end());
  train.insert(train.end(), flags.begin(), flags.end());
  CHECK(json_of(place.weft(plan))["model"] == "bert");
  const json trained = json_of(place.weft(train));
  CHECK(trained["step"] == 2);
  const json of_folder = json_of(place.weft({"eval", "bert", "--data.path", "text.txt", "--json"}));
  CHECK(of_folder["loss"].get<double>() > 0);
  fs::remove_all(place.path("bert"));
  const json of_run = json_of(place.weft({"eval", "masked", "--json"}));
  CHECK(of_run["loss"].get<double>() > 0);
  CHECK(json_of(place.weft({"train", "masked", "--resume", "--steps", "3", "--json"}))["step"] ==
        3);
  CHECK(place.weft({"convert", "masked", "out", "--to", "hf"}).code == 0);
  CHECK(json_of(place.weft({"eval", "out", "--data.path", "text.txt", "--json"}))["model"] ==
        "out");
  const Outcome generated = place.weft({"generate", "masked", "--prompt", "A line"});
  CHECK(generated.code == 2);
  CHECK(generated.err.find("is an encoder, which generates no text.") != std::string::npos);
}

TEST_CASE("an encoder learns labels: train, resume, plan, eval, and a folder to convert to") {
  for (const bool of_words : {false, true}) {
    CAPTURE(of_words);
    const Published place;
    write_published_encoder(place.path("encoder"));
    std::string lines, last;  // the last fifth is held out
    for (int i = 0; i < 20; ++i) {
      const std::string word = i % 2 == 0 ? "yes" : "no";
      const json line = of_words ? json{{"tokens", {"say", word}}, {"labels", {"O", word}}}
                                 : json{{"text", "say " + word}, {"label", word}};
      lines += line.dump() + "\n";
      if (i >= 16) last += line.dump() + "\n";
    }
    place.write("labels.jsonl", lines);
    std::vector<std::string> training = place.training("2");
    *std::ranges::find(training, "model") = "encoder";
    *std::ranges::find(training, "text") = "jsonl";
    *std::ranges::find(training, "text.txt") = "labels.jsonl";
    training.insert(training.end(), {"--data.val_split", "0.2"});
    const Outcome trained = place.weft(training);
    REQUIRE_MESSAGE(trained.code == 0, trained.err);
    CHECK(json_of(trained)["eval_count"] == (of_words ? 8 : 4));
    CHECK(trained.err == fmt::format("weft: note: encoder: its files have no head for these {} "
                                     "labels of {}. A new one is drawn.\n",
                                     of_words ? 3 : 2, of_words ? "tokens" : "samples"));
    const Outcome resumed = place.weft({"train", "run", "--resume", "--steps", "3", "--json"});
    REQUIRE_MESSAGE(resumed.code == 0, resumed.err);
    CHECK(resumed.err.empty());
    const Outcome planned = place.weft({"plan", "runs/run/recipe.yaml", "--json"});
    CHECK_MESSAGE(planned.code == 0, planned.err);
    const Outcome converted = place.weft({"convert", "run", "out", "--to", "hf"});
    REQUIRE_MESSAGE(converted.code == 0, converted.err);
    const auto evaluated = [&](const std::string& model) {
      const Outcome outcome =
          place.weft({"eval", model, "--data.path", "labels.jsonl", "--data.seq_len", "16",
                      "--data.val_split", model == "run" ? "0.2" : "0", "--json"});
      REQUIRE_MESSAGE(outcome.code == 0, outcome.err);
      return json_of(outcome);
    };
    // The run's folder is a model that reads all of a file, and the run its end.
    CHECK(evaluated("run")["count"] == (of_words ? 8 : 4));
    CHECK(evaluated("out")["count"] == (of_words ? 40 : 20));
    place.write("labels.jsonl", last);
    CHECK(evaluated("out")["loss"].get<double>() ==
          weft::testing::near(json_of(resumed)["eval_loss"].get<double>(), 1e-5));
  }
}
