// Tests folders of published models that weft refuses, and flags that do not go with them.
#include <filesystem>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "tests/error/tiny_run.h"
#include "tests/support/published_model.h"
#include "weft/io/safetensors.h"

using namespace weft::test;
namespace fs = std::filesystem;

namespace {
struct Published : Workplace {
  Published() {
    write_published(path("m"));
    write("long.txt", std::string(4000, 'a'));
    std::string text;
    for (int i = 0; i < 40; ++i) text += "Some text, long enough for windows.\n";
    write("text.txt", text);
  }
  void replace(const std::string& file, const std::string& from, const std::string& to) const {
    std::string text = read(file);
    const size_t at = text.find(from);
    REQUIRE(at != std::string::npos);
    write(file, text.replace(at, from.size(), to));
  }
  // Checks that each verb that reads the folder refuses it so; returns what is wrong, or "".
  std::string refuses(int code, const std::string& message) const {
    for (const std::vector<std::string>& command :
         {std::vector<std::string>{"generate", "m", "--prompt", "a"},
          {"eval", "m", "--data.path", "text.txt"},
          {"train", "--model.pretrained", "m", "--data.format", "text", "--data.path", "text.txt",
           "--data.seq_len", "16", "--batch", "1", "--steps", "1"}})
      if (const std::string wrong = fails_with(weft(command), code, message); !wrong.empty())
        return wrong;
    return fs::exists(path("runs")) ? "a run was begun" : "";
  }
};
// Replaces all elements of the tensors whose names contain `part` by NaN.
void spoil(const std::string& file, const std::string& part) {
  std::vector<weft::Variable> weights;
  const weft::io::Safetensors saved = weft::io::Safetensors::open(file);
  for (const weft::io::Safetensors::Entry& entry : saved.entries()) {
    weights.emplace_back(entry.name, entry.type);
    const std::vector<double> values = saved.tensor(entry.name).to_doubles();
    const bool is_spoiled = entry.name.find(part) != std::string::npos;
    for (size_t i = 0; i < values.size(); ++i)
      weights.back().floats()[i] =
          is_spoiled ? std::numeric_limits<float>::quiet_NaN() : static_cast<float>(values[i]);
  }
  weft::io::save_safetensors(file, weights);
}
}  // namespace

TEST_CASE("a folder of an unknown family, or with damaged files, is refused by every verb") {
  {
    const Published place;
    place.replace("m/config.json", "\"llama\"", "\"mamba\"");
    CHECK(place.refuses(usage, "m/config.json: unknown model_type \"mamba\"") == "");
    CHECK(fails_with(place.weft({"plan", "m"}), usage, "unknown model_type \"mamba\"") == "");
  }
  {
    const Published place;
    place.replace("m/config.json", "\"hidden_size\": 16", "\"hidden_size\": \"16\"");
    CHECK(place.refuses(usage, "m/config.json: [llama] hidden_size must be an integer.") == "");
  }
  {
    const Published place;
    fs::remove(place.path("m/config.json"));
    fs::create_directory(place.path("m/config.json"));
    CHECK(place.refuses(data_code, "m/config.json") == "");
  }
  {
    const Published place;
    const std::string whole = place.read("m/model.safetensors");
    place.write("m/model.safetensors", whole.substr(0, whole.size() - 100));
    CHECK(place.refuses(data_code, "the file is truncated or damaged.") == "");
  }
  {
    const Published place;
    place.replace("m/config.json", "\"intermediate_size\": 24", "\"intermediate_size\": 32");
    CHECK(place.refuses(data_code, "mlp.") == "");
  }
  {
    const Published place;
    fs::remove(place.path("m/model.safetensors"));
    CHECK(place.refuses(usage, "it has neither model.safetensors nor") == "");
  }
}

TEST_CASE("a verb without a recipe does not take the folder that it is called in for a model") {
  const Published place;
  place.write("config.json", place.read("m/config.json"));
  for (const char* verb : {"plan", "profile", "train"})
    CHECK(fails_with(place.weft({verb}), usage, " needs a recipe. Hint: ") == "");
}

TEST_CASE("a config.json without a family is refused with all families that there are") {
  const Published place;
  place.replace("m/config.json", "\"model_type\"", "\"model_kind\"");
  CHECK(fails_with(place.weft({"plan", "m"}), usage,
                   "m/config.json: model_type is missing (architectures: LlamaForCausalLM). Known: "
                   "bert, distilbert, gemma2, gemma3, gemma3_text, ") == "");
}

TEST_CASE("adapters of another model, and folders that are cut or mixed up, are refused") {
  const Published place;
  const Outcome trained = place.weft(
      {"finetune", "m", "--adapter.type", "lora", "--adapter.target_modules", "[q_proj]",
       "--data.path", "text.txt", "--data.seq_len", "16", "--batch", "1", "--steps", "1"});
  REQUIRE_MESSAGE(trained.code == 0, trained.err);
  fs::copy(fs::canonical(place.path("runs/run/checkpoints/latest")), place.path("a"));
  const std::vector<std::string> generate = {"generate", "m", "--adapter", "a", "--prompt", "A"};
  REQUIRE(place.weft(generate).code == 0);

  // Without the manifest of a checkpoint the two files are PEFT's.
  const std::string manifest = place.read("a/MANIFEST.json");
  fs::remove(place.path("a/MANIFEST.json"));
  place.replace("a/adapter_config.json", "q_proj", "k_proj");
  CHECK(fails_with(place.weft(generate), data_code,
                   "a: adapter_model.safetensors has tensors of "
                   "\"model.layers.0.self_attn.q_proj\", which target_modules of "
                   "adapter_config.json does not name: [model.layers.0.self_attn.k_proj") == "");
  const std::string whole = place.read("a/adapter_model.safetensors");
  place.write("a/adapter_model.safetensors", whole.substr(0, 100));
  CHECK(fails_with(place.weft(generate), data_code, "a/adapter_model.safetensors: ") == "");
  fs::remove(place.path("a/adapter_model.safetensors"));
  CHECK(fails_with(place.weft(generate), data_code, "a/adapter_model.safetensors: ") == "");
  place.write("a/adapter_model.safetensors", whole);
  place.replace("a/adapter_config.json", "k_proj", "q_proj");
  place.write("a/MANIFEST.json", manifest);

  // A model of the same shapes with other weights is another one.
  std::string weights = place.read("m/model.safetensors");
  weights.back() = static_cast<char>(weights.back() ^ 1);
  place.write("m/model.safetensors", weights);
  const std::string another = "the weights of m are not those that ";
  CHECK(fails_with(place.weft(generate), data_code, another) == "");
  CHECK(fails_with(place.weft({"merge", "run", "out"}), data_code, another) == "");
  CHECK(fails_with(place.weft({"generate", "run", "--prompt", "A"}), data_code, another) == "");
  CHECK_FALSE(fs::exists(place.path("out")));
}

TEST_CASE("a tokenizer that is missing, or has ids that the model lacks, is refused") {
  const Published place;
  write_published(place.path("m"), {.vocabulary = 97});
  CHECK(place.refuses(data_code, "ids reach 97, but the model's vocab_size is 97") == "");
  fs::remove(place.path("m/tokenizer.json"));
  CHECK(place.refuses(data_code, "has no tokenizer: neither tokenizer.json, nor") == "");
}

TEST_CASE("a published model refuses what does not fit its context, and weights that are NaN") {
  const Published place;
  CHECK(fails_with(place.weft({"generate", "m", "--prompt", std::string(65, 'a')}), usage,
                   "the prompt has 65 tokens, and the context is 64.") == "");
  CHECK(fails_with(place.weft({"generate", "m", "--prompt", "a", "--context", "65"}), usage,
                   "the context is at most 64 tokens") == "");
  CHECK(fails_with(place.weft({"plan", "m", "--context", "65"}), usage,
                   "the context is at most 64 tokens, as the model says. Got 65.") == "");
  CHECK(fails_with(place.weft({"eval", "m", "--data.path", "text.txt", "--data.seq_len", "65"}),
                   usage,
                   "data.seq_len is at most the 64 tokens of the model's context. Got 65.") == "");
  write_published(place.path("student"), {.layers = 1});
  spoil(place.path("m/model.safetensors"), "");
  const std::string where = "m/model.safetensors: tensor \"lm_head.weight\" has nan at element 0.";
  CHECK(fails_with(place.weft({"generate", "m", "--prompt", "a"}), data_code, where) == "");
  CHECK(fails_with(place.weft({"eval", "m", "--data.path", "text.txt"}), data_code, where) == "");
  CHECK(fails_with(place.weft({"train", "--model.pretrained", "m", "--data.format", "text",
                               "--data.path", "text.txt", "--data.seq_len", "8", "--steps", "2"}),
                   data_code, where) == "");
  CHECK_FALSE(fs::exists(place.path("runs/run")));
  CHECK(fails_with(place.weft({"train", "--name", "taught", "--model.pretrained", "student",
                               "--data.format", "text", "--data.path", "text.txt", "--data.seq_len",
                               "8", "--steps", "2", "--distillation.teacher", "m"}),
                   data_code, where) == "");
  CHECK_FALSE(fs::exists(place.path("runs/taught")));
  const Outcome converted = place.weft({"convert", "m", "out", "--to", "hf"});
  CHECK(converted.code == 0);
  CHECK(converted.err.find("weft: warning: m: \"lm_head.weight\" has ") == 0);
}

TEST_CASE("weights of queries, of keys and of an adapter that are NaN are named") {
  for (const std::string projection : {"q_proj", "k_proj", "v_proj"}) {
    const Published place;
    spoil(place.path("m/model.safetensors"), "layers.0.self_attn." + projection);
    CHECK(fails_with(place.weft({"generate", "m", "--prompt", "abc"}), data_code,
                     "m/model.safetensors: tensor \"model.layers.0.self_attn." + projection +
                         ".weight\" has nan at element 0.") == "");
  }
  const Published place;
  CHECK(place
            .weft({"finetune", "m", "--data.path", "text.txt", "--data.seq_len", "8", "--steps",
                   "1", "--adapter.type", "lora", "--name", "tuned"})
            .code == 0);
  fs::create_directory(place.path("adapter"));
  const fs::path latest = fs::canonical(place.path("runs/tuned/checkpoints/latest"));
  for (const char* file : {"adapter_config.json", "adapter_model.safetensors"})
    fs::copy_file(latest / file, place.path("adapter") + "/" + file);
  spoil(place.path("adapter/adapter_model.safetensors"), "q_proj.lora_B");
  CHECK(fails_with(place.weft({"generate", "m", "--adapter", "adapter", "--prompt", "abc"}),
                   data_code, "q_proj.lora_B.weight\" has nan at element 0.") == "");
}

TEST_CASE("a model larger than the device is refused before anything is allocated") {
  const Published place;
  place.replace("m/config.json", "\"hidden_size\": 16", "\"hidden_size\": 65536");
  place.replace("m/config.json", "\"intermediate_size\": 24", "\"intermediate_size\": 262144");
  CHECK(fails_with(place.weft({"plan", "m", "--on", "h100"}), does_not_fit,
                   "the plan does not fit: it takes ") == "");
}

TEST_CASE("flags and keys that do not go with a published model are refused") {
  const Published place;
  fs::create_directory(place.path("folder"));
  const std::vector<std::pair<std::vector<std::string>, std::string>> commands = {
      {{"eval", "m"}, "evaluating m needs a text. Hint: --data.path FILE."},
      {{"train", "m"},
       "m is a model, not a recipe. Hint: weft finetune m --data.path FILE, or "
       "--model.pretrained m."},
      {{"finetune", "text"}, "text: no such model, run or recipe. Hint: weft list recipes."},
      {{"finetune", "folder"},
       "folder is no folder of a model, which has a config.json, and no run of weft's."},
      {{"finetune", "m"}, "tuning m needs data. Hint: --data.path FILE."},
      {{"finetune", "m", "--model.pretrained", "m", "--data.path", "text.txt"},
       "weft finetune and --model.pretrained both set model.pretrained."},
      {{"plan", "m", "--activations", "int8"},
       "--activations is for models with weights in blocks. m has none. Hint: weft quantize."},
      {{"profile", "m", "--activations", "int8"},
       "--activations is for models with weights in blocks. m has none."},
      {{"plan", "--model.name", "gpt", "--data.format", "text", "--data.path", "text.txt",
        "--steps", "1", "--activations", "int8"},
       "--activations is for published models, by their folder."},
      {{"finetune"}, "weft finetune needs a model. Hint: weft finetune FOLDER --data.path FILE."},
      {{"eval", "m", "--model.name", "gpt"},
       "--model.name is for recipes. m is a published model."},
      {{"plan", "m", "--lr", "1"},
       "--lr is for recipes. m is a model. Hint: "
       "--model.pretrained m plans its training."},
      {{"plan", "m", "--explain"},
       "--explain, --dot, --memory-svg, --tokens and --samples are for recipes. m is a model."},
      {{"profile", "m", "--lr", "1"},
       "--lr is for recipes. m is a model. Hint: "
       "--model.pretrained m profiles its training."},
      {{"profile", "m", "--length", "8"}, "--length is for workloads. Hint: --context N."},
      {{"profile", "m", "--context", "65"},
       "the context is at most 64 tokens, as the model says. Got 65."},
      {{"profile", "mlp", "--dtype", "f32"}, "--dtype is for published models, by their folder."},
      {{"plan", "--model.name", "gpt", "--data.format", "text", "--data.path", "text.txt",
        "--steps", "1", "--context", "8"},
       "--context is for published models, by their folder."},
      {{"plan", "nosuch", "--context", "8"}, "nosuch: no such recipe."},
      {{"plan", "--model.pretrained", "text.txt", "--data.format", "text", "--data.path",
        "text.txt", "--steps", "1"},
       "model.pretrained: text.txt is no folder of a model: it has no config.json."},
      {{"plan", "--model.pretrained", "m", "--model.name", "gpt", "--data.format", "text",
        "--data.path", "text.txt", "--steps", "1"},
       "exactly one of model.name, model.pretrained and model.layers must be set."},
      {{"plan", "--model.pretrained", "m", "--model.config.hidden_size", "8", "--data.format",
        "text", "--data.path", "text.txt", "--steps", "1"},
       "model.config is for model.name: a published model is as its config.json says."},
      {{"plan", "--model.pretrained", "m", "--data.format", "text", "--data.path", "long.txt",
        "--steps", "1"},
       "data.seq_len is at most the 64 tokens of the model's context. Got 1024."},
      {{"plan", "--model.pretrained", "m", "--data.dataset", "addition", "--steps", "1"},
       "model.pretrained: the data must be text, which the model's tokenizer reads."},
      {{"plan", "--model.name", "gpt", "--data.format", "text", "--data.path", "text.txt",
        "--data.tokenizer", "charcters", "--steps", "1"},
       "there is no tokenizer charcters. Hint: data.tokenizer is auto, characters, bytes, or the "
       "path of one."}};
  for (const auto& [command, message] : commands)
    CHECK(fails_with(place.weft(command), usage, message) == "");
}

TEST_CASE("encoders that cannot be trained on masked tokens are refused in one line") {
  const Published place;
  const auto refuses = [&](const PublishedEncoder& encoder, int code, const std::string& message) {
    fs::remove_all(place.path("m"));
    write_published_encoder(place.path("m"), encoder);
    for (const std::vector<std::string>& command :
         {std::vector<std::string>{"eval", "m", "--data.path", "text.txt"},
          {"train", "--model.pretrained", "m", "--data.format", "text", "--data.path", "text.txt",
           "--data.seq_len", "16", "--batch", "1", "--steps", "1"}})
      CHECK(fails_with(place.weft(command), code, message) == "");
  };
  refuses({.mask = false}, data_code,
          "m: the tokenizer has no mask_token, which task masked_lm needs.");
  refuses({.head = "ForTokenClassification"}, usage,
          "m has a head for labels, and these data have none. Hint: data.format: jsonl.");
  CHECK(fails_with(place.weft({"plan", "m", "--context", "33"}), usage,
                   "the context is at most 32 tokens, as the model says. Got 33.") == "");
  refuses({.head = "Model"}, usage, "[bert] the architecture must be one of BertForMaskedLM,");
}

TEST_CASE("conversations that cannot be learned are refused by their line, before any training") {
  const Published place;
  place.replace("m/tokenizer_config.json", "{% for m in messages %}",
                "{% for m in messages %}{% if m.role == 'system' %}"
                "{{ raise_exception('System role not supported') }}{% endif %}");
  const auto refuses = [&](const std::string& line, int code, const std::string& message) {
    place.write("d.jsonl", "{\"text\": \"a\"}\n" + line + "\n");
    const std::string wrong = fails_with(
        place.weft({"finetune", "m", "--data.path", "d.jsonl", "--steps", "1"}), code, message);
    return fs::exists(place.path("runs")) ? "a run was begun" : wrong;
  };
  const auto messages = [](const std::string& first, const std::string& more = "") {
    return R"({"messages": [{"role": ")" + first +
           R"(", "content": "u"}, {"role": "assistant", "content": "a")" + more + "}]}";
  };
  CHECK(refuses(messages("narrator"), data_code,
                "d.jsonl:2: messages[0].role: there is no role \"narrator\".") == "");
  CHECK(refuses(messages("user", R"(, "weight": -1)"), data_code,
                "d.jsonl:2: messages[1].weight must be 0 or 1, as a token counts whole or not at "
                "all. Got -1.") == "");
  CHECK(refuses(messages("user", R"(, "weight": "high")"), data_code, "Got \"high\".") == "");
  CHECK(refuses(R"({"text": "a", "messages": []})", data_code,
                "d.jsonl:2: a sample has one form. Got text, and messages.") == "");
  const auto answer = [](const std::string& keys) {
    return R"({"messages": [{"role": "user", "content": "u"}, {"role": "assistant", )" + keys +
           "}]}";
  };
  const std::pair<std::string, std::string> lines[] = {
      {R"({"conversations": [{"from": "human", "value": "u"}, {"role": "assistant", "content": "a"}]})",
       "conversations mixes two forms: role and content, and from and value."},
      {answer(R"("from": "gpt", "value": "a")"),
       "messages[1] has two forms: role and content, and from and value."},
      {R"({"conversations": [{"from": "bot", "value": "u"}]})",
       "conversations[0].from: there is no role \"bot\". Known: system, developer, user, "},
      {answer(R"("tool_calls": [{"type": "function", "function": {"arguments": {}}}])"),
       "messages[1].tool_calls[0].function.name is missing."},
      {answer(R"("content": [{"type": "image", "url": "x"}])"),
       "messages[1].content has a part of type image. weft learns text alone."},
      {answer(R"("content": 18446744073709551616)"),
       "messages[1].content must be text or a list of parts. Got 18446744073709551616."}};
  for (const auto& [line, message] : lines)
    CHECK(refuses(line, data_code, "d.jsonl:2: " + message) == "");
  CHECK(refuses(messages("system"), usage,
                "the template refuses the conversation: System role not supported.") == "");
}

TEST_CASE("texts with labels that do not go with a head, or are none, are refused by their line") {
  const Published place;
  const auto refuses = [&](const std::string& lines, int code, const std::string& message) {
    place.write("d.jsonl", lines);
    CHECK(fails_with(place.weft({"train", "--model.pretrained", "m", "--data.format", "jsonl",
                                 "--data.path", "d.jsonl", "--data.seq_len", "16", "--batch", "1",
                                 "--steps", "1"}),
                     code, message) == "");
  };
  const std::string good = "{\"text\": \"a\", \"label\": \"yes\"}\n";
  write_published_encoder(place.path("m"), {.head = "ForSequenceClassification"});
  refuses(good + "{\"text\": \"a\", ", data_code,
          "d.jsonl:2: not JSON: it ends too early, at column 15.");
  refuses(good + "{\"text\": \"\", \"label\": \"no\"}", data_code,
          "d.jsonl:2: text is empty: it has no token.");
  refuses(good + "{\"text\": \"a\"}", data_code,
          "d.jsonl:2: a sample has text and label, or tokens and labels.");
  refuses(good + "{\"text\": \"a\", \"text_pair\": \"b\", \"label\": \"no\"}", data_code,
          "d.jsonl:2: text_pair is not read: samples are single texts.");
  refuses(good + "{\"text\": \"a\", \"label\": 1}", data_code,
          "d.jsonl:2: a label must be a name, as those before it. Got 1.");
  refuses(good + "{\"text\": \"a\", \"label\": null}", data_code,
          "d.jsonl:2: a label must be a name, or a whole number from 0. Got null.");
  refuses(good + "{\"tokens\": [\"a\"], \"labels\": [\"no\"]}", data_code,
          "d.jsonl:2: samples must have text and label, as those before it.");
  refuses(good, data_code, "d.jsonl: the only label is yes. A head of labels has at least two.");
  refuses("", data_code, "d.jsonl has no text with a label.");
  refuses("{\"tokens\": [\"a\", \"b\"], \"labels\": [0]}", data_code,
          "d.jsonl:1: tokens and labels must be as many. Got 2 and 1.");
  const auto evaluation = [&](const std::string& message, int code = data_code) {
    CHECK(fails_with(place.weft({"eval", "m", "--data.path", "d.jsonl"}), code, message) == "");
  };
  evaluation("d.jsonl:1: samples must have text and label, as the model's head labels these.");
  place.write("d.jsonl", "{\"text\": \"a\", \"label\": 2}");
  evaluation("d.jsonl:1: there is no label 2. The model has 2: LABEL_0, LABEL_1.");
  place.replace("m/config.json", "\"vocab_size\": 110",
                "\"vocab_size\": 110, \"id2label\": {\"0\": \"no\", \"1\": \"yes\"}");
  refuses(good + "{\"text\": \"a\", \"label\": \"maybe\"}", data_code,
          "d.jsonl:2: there is no label maybe. The model has 2: no, yes.");
  place.replace("m/config.json", "\"1\": \"yes\"", "\"2\": \"yes\"");
  refuses(good, usage, "m/config.json: [bert] id2label must name each class from 0. Got no 1.");
  write_published_encoder(place.path("m"));
  evaluation("weft: error: m has no head for labels. Hint: weft train gives it one.", usage);
}
