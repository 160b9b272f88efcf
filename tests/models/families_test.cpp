// Holds every published family against transformers (tests/reference/families): names of tensors,
// logits, two training steps and greedy continuations of tiny nets; what config.json may hold.
// This is one file because all of these tests read the same tables of families.
#include "tests/models/families.h"

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <map>

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "tests/support/captured.h"
#include "tests/support/near.h"
#include "tests/support/peers.h"
#include "weft/infer/token_model.h"
#include "weft/io/model_folder.h"
#include "weft/tensor/compile.h"

using namespace weft;
using namespace weft::testing;
using doctest::Contains;
using models::parse_options;

namespace {
Tensor published_logits(const models::Decoder& model, const Json& reference) {
  auto forward = compile([&](Tensor tokens) { return model(tokens); }, {.mode = Mode::eval});
  return forward(family_tokens(reference, 0, 12));
}

const auto published = [](const models::Decoder& model) {
  return models::published_tensors(model);
};

using Rows = std::vector<std::vector<int32_t>>;

int32_t largest(std::span<const float> logits) {
  return static_cast<int32_t>(std::ranges::max_element(logits) - logits.begin());
}

// Continues the prompts by `count` greedy tokens each from a cache, all rows together.
Rows continued(infer::TokenModel& tokens, const Rows& prompts, size_t count) {
  Rows next = prompts, got(prompts.size());
  for (size_t s = 0; s < count; ++s) {
    std::vector<infer::RowTokens> rows;
    rows.reserve(next.size());
    for (const std::vector<int32_t>& row : next) {
      rows.push_back({row});
      if (s == 0) rows.back().prefix = 0;  // forgets the prompt before
    }
    tokens.append(rows);
    for (size_t row = 0; row < prompts.size(); ++row) {
      next[row] = {largest(tokens.logits(static_cast<int64_t>(row)))};
      got[row].push_back(next[row][0]);
    }
  }
  return got;
}

// Returns the greedy token after the prompt and after each of `expected`, from the logits of the
// whole sequence, which has `length` tokens with those that pad it behind.
std::vector<int32_t> without_cache(Compiled<Tensor>& forward, const std::vector<int32_t>& prompt,
                                   const std::vector<int32_t>& expected, size_t length) {
  std::vector<int64_t> sequence(prompt.begin(), prompt.end());
  sequence.insert(sequence.end(), expected.begin(), expected.end());
  sequence.resize(length);
  const std::vector<float> logits =
      forward(tensor(sequence, {1, static_cast<int64_t>(length)})).to_vector<float>();
  const size_t vocabulary = logits.size() / length;
  std::vector<int32_t> got;
  got.reserve(expected.size());
  for (size_t i = 0; i < expected.size(); ++i)
    got.push_back(
        largest(std::span(logits).subspan((prompt.size() - 1 + i) * vocabulary, vocabulary)));
  return got;
}

void check_generation(const models::Decoder& model, const Json& reference) {
  const Json& generation = reference.at("generation");
  const auto prompts = generation.at("prompts").get<Rows>();
  const auto together = generation.at("together").get<Rows>();
  const auto alone = generation.at("alone").get<Rows>();
  const size_t count = together[0].size();
  size_t length = 0;
  for (const std::vector<int32_t>& prompt : prompts)
    length = std::max(length, prompt.size() + count);
  auto tokens_of = [&](size_t batch) {
    return infer::make_token_model(model, model.decoder_config().vocab_size, 64,
                                   {.batch = static_cast<int64_t>(batch),
                                    .length = static_cast<int64_t>(length),
                                    .device = "cpu"});
  };
  CHECK(continued(*tokens_of(prompts.size()), prompts, count) == together);
  const auto single = tokens_of(1);
  auto forward = compile([&](Tensor x) { return model(x); }, {.mode = Mode::eval});
  for (size_t row = 0; row < prompts.size(); ++row) {
    CAPTURE(row);
    CHECK(continued(*single, {prompts[row]}, count)[0] == alone[row]);
    CHECK(without_cache(forward, prompts[row], alone[row], length) == alone[row]);
  }
}

nn::Options minimal(const std::string& model_type) {
  return {{"model_type", model_type},        {"vocab_size", int64_t{96}},
          {"hidden_size", int64_t{32}},      {"intermediate_size", int64_t{48}},
          {"num_hidden_layers", int64_t{2}}, {"num_attention_heads", int64_t{4}}};
}
nn::Options with(nn::Options options, const std::string& key, const nn::Option& value) {
  options.set(key, value);
  return options;
}
void check_refused(const nn::Options& config, const char* message) {
  CAPTURE(message);
  CHECK_THROWS_WITH_AS(models::family_of(config).read(config), Contains(message), Error);
}
}  // namespace

TEST_CASE("the nets of all published families are there") {
  const std::vector<std::string> names = family_names();
  CHECK(names.size() == 29);
  for (const models::Family& family : registry::families()) {
    CAPTURE(family.name);
    CHECK(std::ranges::any_of(names, [&](const std::string& name) {
      return family_reference(name).at("config").at("model_type") == family.name;
    }));
  }
}

TEST_CASE("families: logits, training and parameters agree with transformers") {
  for (const std::string& name : family_names()) {
    CAPTURE(name);
    const Json reference = family_reference(name);
    auto model = load_family(reference);
    std::vector<std::string> own;
    for (const io::NamedBytes& tensor : models::published_tensors(*model))
      own.push_back(tensor.name);
    std::ranges::sort(own);
    REQUIRE(own == tensor_names(reference));
    check_logits(published_logits(*model, reference), reference.at("logits"));
    check_training(*model, reference, reference, published);
  }
}

TEST_CASE("families: greedy tokens, of one row and of four, with a cache and without, are theirs") {
  for (const std::string& name : family_names()) {
    CAPTURE(name);
    const Json reference = family_reference(name);
    // Where a cache changes what transformers computes, no frequencies fit all of its keys.
    if (reference.at("generation").at("alone") !=
        reference.at("generation").at("alone_without_cache"))
      continue;
    check_generation(*load_family(reference), reference);
  }
}

TEST_CASE("families: both forms of config.json are the same model, which reads back as written") {
  for (const std::string& name : family_names()) {
    CAPTURE(name);
    const Json reference = family_reference(name);
    const nn::Options saved = build_family(reference.at("config"))->config();
    const nn::Options published =
        parse_options(reference.at("published_config").dump(), "config.json");
    const models::Family& family = models::family_of(published);
    CHECK(family.write(family.read(published)) == family.write(family.read(saved)));
    CHECK(parse_options(models::json_text(saved), "again") == saved);
    CHECK(models::make_decoder(saved)->config() == saved);
    CHECK(saved.entries().at("eos_token_id") ==
          nn::Option(reference.at("config").at("eos_token_id").get<int64_t>()));
  }
}

TEST_CASE("families: files without the root of names, and with tensors that no one reads, load") {
  for (const auto& [name, root] :
       {std::pair<std::string, std::string>{"gpt2", "transformer."}, {"qwen3", "model."}}) {
    const Json reference = family_reference(name);
    auto model = build_family(reference.at("config"));
    test::TemporaryFolder folder;
    const std::string path = write_weights(reference, folder.file("model.safetensors"), root);
    const Tensor mask = ones({1, 1, 6, 6});
    Variable unread("h.0.attn.bias", mask.type());
    unread.assign(mask);
    const std::vector<std::string> files = {
        path, (io::save_safetensors(folder.file("masks.safetensors"), {{"h.0.attn.bias", unread}}),
               folder.file("masks.safetensors"))};
    std::vector<std::string> names;
    for (const std::string& tensor : tensor_names(reference))
      names.push_back(tensor.substr(root.size()));
    io::load(*model, files, models::load_layout(model->decoder_config(), names));
    check_logits(published_logits(*model, reference), reference.at("logits"));
  }
}

TEST_CASE("phi3: longrope under the names of its first files is longrope") {
  auto read = [](const std::string& key, const std::string& type) {
    const nn::Options config =
        with(minimal("phi3"), "rope_scaling",
             nn::NestedOptions(nn::Options{{key, type},
                                           {"short_factor", std::vector<double>{1, 1.1, 1.2, 1.5}},
                                           {"long_factor", std::vector<double>{1, 2, 3.5, 6}}}));
    const models::Family& family = models::family_of(config);
    return family.write(family.read(config));
  };
  for (const char* key : {"type", "rope_type"})
    for (const char* type : {"su", "yarn"}) CHECK(read(key, type) == read("type", "longrope"));
}

TEST_CASE(
    "gemma3: the text part of a model of text and images loads, and is written as gemma3_text") {
  const Json reference = family_reference("gemma3");
  const auto text = load_family(reference);
  const Json whole = {{"model_type", "gemma3"},
                      {"architectures", {"Gemma3ForConditionalGeneration"}},
                      {"text_config", reference.at("config")},
                      {"vision_config", {{"model_type", "siglip_vision_model"}}},
                      {"mm_tokens_per_image", 4},
                      {"eos_token_id", {2, 5}}};
  // The names are as published, as saved without the model's own head, and as transformers names
  // its modules.
  for (const auto& [root, vision] :
       {std::pair<std::string, std::string>{"language_model.model.", ""},
        {"language_model.", ""},
        {"model.language_model.", "model."}}) {
    CAPTURE(root);
    std::vector<io::NamedBytes> tensors = models::published_tensors(*text);
    for (io::NamedBytes& tensor : tensors) {
      REQUIRE(tensor.name.starts_with("model."));
      tensor.name = root + tensor.name.substr(6);
    }
    const std::vector<float> seen(3);
    for (const char* module : {"vision_tower.vision_model.post_layernorm.weight",
                               "multi_modal_projector.mm_soft_emb_norm.weight"})
      tensors.push_back({vision + module, Type{DType::f32, {3}}, std::as_bytes(std::span(seen))});
    std::vector<std::string> names;
    names.reserve(tensors.size());
    for (const io::NamedBytes& tensor : tensors) names.push_back(tensor.name);
    const test::TemporaryFolder folder;
    const std::string path = folder.file("model.safetensors");
    io::write_safetensors(path, tensors);
    const auto model = build_family(whole);
    const io::Loaded found =
        io::load(*model, path, models::load_layout(model->decoder_config(), names));
    CHECK(found.unexpected.empty());
    check_logits(published_logits(*model, reference), reference.at("logits"));
    CHECK(*model->config().find("model_type") == nn::Option(std::string("gemma3_text")));
    CHECK(*model->config().find("eos_token_id") == nn::Option(std::vector<int64_t>{2, 5}));
  }
  CHECK_THROWS_WITH_AS(models::text_part({{"model_type", std::string("gemma3")}}),
                       "[gemma3] text_config is required.", Error);
}

TEST_CASE("gemma3: published files leave out sizes that are transformers' defaults") {
  const test::Captured errors(STDERR_FILENO);
  const nn::Options config = models::text_part(parse_options(
      R"({"model_type": "gemma3", "text_config": {"model_type": "gemma3_text", "hidden_size": 2560,
          "intermediate_size": 10240, "num_hidden_layers": 34, "sliding_window": 1024,
          "rope_scaling": {"factor": 8.0, "rope_type": "linear"}}, "vision_config": {}})",
      "config.json"));
  const models::DecoderConfig text = models::family_of(config).read(config);
  CHECK(text.vocab_size == 262208);
  CHECK(text.num_attention_heads == 8);
  CHECK(text.num_key_value_heads == 4);
  CHECK(text.head_dim == 256);
  CHECK(text.layers.size() == 34);
  CHECK(text.layers[0].window == 1024);
  CHECK(text.layers[5].window == 0);
  CHECK(errors.text().find("not know") == std::string::npos);
}

TEST_CASE("config.json: what a decoder does not compute is refused by key, in one line") {
  check_refused({{"model_type", std::string("mamba\n")},
                 {"architectures", std::vector<std::string>{"MambaForCausalLM"}}},
                "unknown model_type \"mamba\\x0a\" (architectures: MambaForCausalLM). Known: bert, "
                "distilbert, gemma2,");
  check_refused({}, "model_type is missing. Known: bert,");
  const nn::Options llama = minimal("llama"), gemma = minimal("gemma2");
  check_refused({{"model_type", std::string("llama")}}, "[llama] vocab_size is required.");
  check_refused(with(llama, "hidden_size", int64_t{1} << 40),
                "[llama] hidden_size must be between 1 and 1048576. Got 1099511627776.");
  check_refused(with(llama, "num_key_value_heads", int64_t{3}),
                "[llama] num_key_value_heads must divide num_attention_heads (4). Got 3.");
  check_refused(with(llama, "head_dim", int64_t{7}), "must be even and at least 2. Got 7.");
  check_refused(with(llama, "hidden_act", std::string("swiglu")),
                "[llama] unknown activation \"swiglu\".");
  check_refused(with(llama, "quantization_config", nn::NestedOptions({})),
                "[llama] quantization_config: the weights are quantized");
  check_refused(with(gemma, "use_bidirectional_attention", true),
                "[gemma2] use_bidirectional_attention must be false");
  check_refused(with(gemma, "layer_types", std::vector<std::string>{"full_attention"}),
                "[gemma2] layer_types must have a type for each of 2 layers. Got 1.");
  check_refused(
      with(gemma, "layer_types", std::vector<std::string>{"full_attention", "chunked_attention"}),
      "Got \"chunked_attention\".");
  auto scaled = [&](const nn::Options& scaling) {
    return with(llama, "rope_scaling", nn::NestedOptions(scaling));
  };
  check_refused(scaled({{"rope_type", std::string("mrope")}}),
                "[llama.rope_scaling] rope_type must be one of default, linear,");
  check_refused(scaled({{"type", std::string("linear")}}),
                "[llama.rope_scaling] factor is required.");
  check_refused(scaled({{"rope_type", std::string("llama3")}, {"factor", 8.0}}),
                "[llama.rope_scaling] low_freq_factor is required.");
  check_refused(scaled({{"rope_type", std::string("longrope")},
                        {"short_factor", std::vector<double>{1, 2}},
                        {"long_factor", std::vector<double>{1, 2}}}),
                "[llama.rope_scaling] short_factor must have a factor for each of 4 frequencies. "
                "Got 2.");
  check_refused(with(llama, "rope_scaling", std::string("linear")),
                "[llama] rope_scaling must be a map of options. Got \"linear\".");
}

TEST_CASE(
    "config.json: an unknown key is warned of once, and known ones that change nothing never") {
  nn::Options config = minimal("llama");
  config.set("torch_dtype", std::string("bfloat16"));
  config.set("use_cache", true);
  config.set("attention_dropout", 0.0);
  auto warnings = [&] {
    const test::Captured errors(STDERR_FILENO);
    models::family_of(config).read(config);
    return errors.text();
  };
  CHECK(warnings().empty());
  config.set("a_key_of_the_future", int64_t{1});
  const std::string first = warnings();
  CHECK_MESSAGE(first.find("[llama] weft does not know, and ignores: a_key_of_the_future.\n") !=
                    std::string::npos,
                first);
  CHECK(warnings().empty());
}

TEST_CASE("config.json: what is no JSON object, or nested without end, is refused by its file") {
  CHECK_THROWS_WITH_AS(parse_options("[1]", "a/config.json"),
                       "a/config.json: it must hold one JSON object.", Error);
  CHECK_THROWS_WITH_AS(parse_options("{\"a\": 1,\n}", "a/config.json"),
                       "a/config.json: not JSON: there is a mistake at line 2, column 1.", Error);
  std::string deep;
  for (int i = 0; i < 30; ++i) deep += "{\"a\":";
  CHECK_THROWS_WITH_AS(parse_options(deep + "1" + std::string(30, '}'), "c"),
                       "c: objects are nested deeper than 16.", Error);
  const nn::Options lists =
      parse_options(R"({"a": [1, 2], "b": [1, 2.5], "c": ["x"], "d": [[1]], "e": null,
                        "f": 18446744073709551615})",
                    "c");
  CHECK(*lists.find("a") == nn::Option(std::vector<int64_t>{1, 2}));
  CHECK(*lists.find("b") == nn::Option(std::vector<double>{1, 2.5}));
  CHECK(*lists.find("c") == nn::Option(std::vector<std::string>{"x"}));
  CHECK(*lists.find("d") == nn::Option(std::string("[[1]]")));
  CHECK(*lists.find("e") == nn::Option(std::monostate()));
  CHECK(*lists.find("f") == nn::Option(18446744073709551615.0));
}

TEST_SUITE("slow pytorch") {
  TEST_CASE("folders of all families that weft writes load in transformers, with the same logits") {
    const std::string python = python_with("transformers");
    if (python.empty()) return;
    test::TemporaryFolder folder;
    std::string folders;
    for (const std::string& name : family_names()) {
      const Json reference = family_reference(name);
      auto model = load_family(reference, "published_config");
      const std::string path = folder.file(name);
      Json rows = Json::array();
      for (const Json& row : reference.at("tokens"))
        rows.push_back(Json(row.begin(), row.begin() + 12));
      io::save_folder(
          path, models::published_tensors(*model),
          {{"config.json", models::json_text(model->config())}, {"tokens.json", rows.dump()}});
      folders += fmt::format(" '{}'", path);
    }
    const int status =
        std::system(fmt::format("{} tests/pytorch/check_saved.py {} >'{}' 2>'{}'", python, folders,
                                folder.file("said"), folder.file("errors"))
                        .c_str());
    REQUIRE_MESSAGE(status == 0, test::contents_of(folder.file("errors")));
    std::ifstream lines(folder.file("said"));
    for (const std::string& name : family_names()) {
      CAPTURE(name);
      const Json reference = family_reference(name);
      std::string line;
      std::getline(lines, line);
      const Json said = Json::parse(line);
      CHECK(said.at("missing").empty());
      CHECK(said.at("unexpected").empty());
      std::vector<double> logits;
      for (const Json& row : said.at("logits"))
        for (const Json& position : row)
          for (const Json& logit : position) logits.push_back(logit);
      const auto vocabulary = static_cast<int64_t>(logits.size()) / 24;
      check_logits(constant(logits, {2, 12, vocabulary}, DType::f64), reference.at("logits"));
    }
  }
}

TEST_CASE("the dropout of attention weights is read from every config.json, and written to it") {
  for (const std::string& name : family_names()) {
    CAPTURE(name);
    Json config = family_reference(name).at("config");
    const std::string key = name == "gpt2" ? "attn_pdrop" : "attention_dropout";
    config[key] = 0.5;
    const auto model = build_family(config);
    CHECK(model->decoder_config().attention_dropout == 0.5);
    CHECK(model->decoder_config().unapplied.empty());
    CHECK(*model->config().find(key) == nn::Option(0.5));
  }
}

TEST_CASE("attention weights are dropped in training alone") {
  for (const std::string name : {"gemma2", "gpt2", "gpt_neox", "mixtral"}) {
    CAPTURE(name);
    const Json reference = family_reference(name);
    auto load = [&](double dropout) {
      Json changed = reference;
      changed["config"][name == "gpt2" ? "attn_pdrop" : "attention_dropout"] = dropout;
      return load_family(changed);
    };
    const Tensor tokens = family_tokens(reference, 0, 12);
    auto trained = [&](const models::Decoder& model) {  // the logits of two steps
      auto forward = compile([&](const Tensor& ids) { return model(ids); }, {.mode = Mode::train});
      const std::vector<double> first = forward(tokens).to_doubles();
      return std::pair(first, forward(tokens).to_doubles());
    };
    const auto plain = load(0), half = load(0.5), all = load(1);
    CHECK(published_logits(*half, reference).to_doubles() ==
          published_logits(*plain, reference).to_doubles());
    const auto [first, second] = trained(*half);
    CHECK(first != second);
    // Without weights nothing is attended to, as if what reads the sums were zero.
    const models::DecoderNames& names = plain->decoder_config().names;
    const std::string out = "." + names.attention + "." + names.out + ".weight";
    for (const auto& [own, variable] : plain->state())
      if (own.ends_with(out)) variable.assign(zeros(variable.shape(), variable.dtype()));
    const std::vector<double> got = trained(*all).first, expected = trained(*plain).first;
    REQUIRE(got.size() == expected.size());
    for (size_t i = 0; i < got.size(); ++i) REQUIRE(std::abs(got[i] - expected[i]) < 1e-5);
  }
}
