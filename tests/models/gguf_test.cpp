// Holds GGUF files as llama.cpp's converter writes them (tests/reference/gguf/models) against the
// logits of transformers for the same weights, whole and from a cache.
#include "weft/models/gguf.h"

#include <filesystem>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "tests/models/families.h"
#include "weft/infer/token_model.h"
#include "weft/io/model_folder.h"
#include "weft/models/config_json.h"
#include "weft/models/decoder.h"
#include "weft/models/pretrained.h"
#include "weft/tensor/compile.h"

using namespace weft;
using namespace weft::testing;

namespace {
const std::string folder = "tests/reference/gguf/models/";

std::vector<std::string> net_names() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    if (entry.path().extension() == ".gguf") names.push_back(entry.path().stem());
  std::ranges::sort(names);
  return names;
}

constexpr size_t stride = 4;  // of the logits that a file lists

Tensor tokens_of(const Json& reference) {
  const auto rows = reference.at("tokens").get<std::vector<std::vector<int64_t>>>();
  std::vector<int64_t> all;
  for (const std::vector<int64_t>& row : rows) all.insert(all.end(), row.begin(), row.end());
  return tensor(all, {std::ssize(rows), std::ssize(rows[0])});
}
}  // namespace

TEST_CASE("GGUF files of all architectures have the logits of transformers") {
  const std::vector<std::string> names = net_names();
  REQUIRE(names.size() == 17);
  for (const std::string& name : names) {
    CAPTURE(name);
    const Json reference = reference_file("gguf/models/" + name + ".json");
    const models::Pretrained net = models::load_pretrained(folder + name + ".gguf");
    REQUIRE(net.dtype == DType::f32);
    const std::vector<double> got = logits_of(*net.model, tokens_of(reference));
    const auto expected = reference.at("logits").get<std::vector<double>>();
    REQUIRE(got.size() == expected.size() * stride);
    for (size_t i = 0; i < expected.size(); ++i) {
      INFO("logit " << i * stride << " is " << got[i * stride]);
      REQUIRE(std::abs(got[i * stride] - expected[i]) <= tolerance);
    }
  }
}

TEST_CASE("GGUF files become folders with the same logits") {
  for (const std::string& name : net_names()) {
    CAPTURE(name);
    const models::Pretrained net = models::load_pretrained(folder + name + ".gguf");
    const auto form =
        models::folder_form(dynamic_cast<const models::Decoder&>(*net.model), DType::f32);
    test::TemporaryFolder place;
    io::save_folder(place.file("net"), models::published_tensors(*form),
                    {{"config.json", models::json_text(form->config())}});
    const models::Pretrained again = models::load_pretrained(place.file("net"));
    const Tensor tokens = tokens_of(reference_file("gguf/models/" + name + ".json"));
    const std::vector<double> got = logits_of(*again.model, tokens),
                              want = logits_of(*net.model, tokens);
    REQUIRE(got.size() == want.size());
    for (size_t i = 0; i < got.size(); ++i) REQUIRE(std::abs(got[i] - want[i]) <= tolerance);
  }
}

TEST_CASE("GGUF files are mapped, and continue from a cache with the same logits") {
  for (const std::string& name : net_names()) {
    CAPTURE(name);
    const models::Pretrained net = models::load_pretrained(folder + name + ".gguf");
    // The F16 and BF16 matrices of llama_mixed are converted to float32, which takes copies.
    if (name != "llama_mixed") CHECK(net.loaded.copied_bytes == 0);
    const auto& decoder = dynamic_cast<const models::Decoder&>(*net.model);
    const Json reference = reference_file("gguf/models/" + name + ".json");
    const auto rows = reference.at("tokens").get<std::vector<std::vector<int32_t>>>();
    auto tokens = infer::make_token_model(
        decoder, net.vocabulary, net.context,
        {.batch = 2, .length = 12, .device = "cpu", .activations = DType::f32});
    const auto expected = reference.at("logits").get<std::vector<double>>();
    const size_t length = rows[0].size(), listed = static_cast<size_t>(net.vocabulary) / stride;
    for (size_t begin : {size_t{0}, size_t{7}, size_t{11}}) {
      const size_t end = begin == 0 ? 7 : begin == 7 ? 11 : 12;
      std::vector<infer::RowTokens> next;
      for (const std::vector<int32_t>& row : rows)
        next.push_back({{row.begin() + static_cast<ptrdiff_t>(begin),
                         row.begin() + static_cast<ptrdiff_t>(end)}});
      tokens->append(next);
      for (size_t row = 0; row < rows.size(); ++row) {
        const std::span<const float> logits = tokens->logits(static_cast<int64_t>(row));
        for (size_t i = 0; i < listed; ++i)
          REQUIRE(std::abs(logits[i * stride] - expected[(row * length + end - 1) * listed + i]) <=
                  tolerance);
      }
    }
  }
}

TEST_CASE("decoders written as GGUF files have their logits, or are refused") {
  const std::vector<std::string> refused = {"gemma2",
                                            "gemma3",
                                            "gemma3_linear",
                                            "gpt_neox_sequential",
                                            "llama_dynamic_above",
                                            "llama_dynamic_below",
                                            "llama_switches",
                                            "llama_yarn_mscale",
                                            "llama_yarn_options",
                                            "qwen2_window",
                                            "qwen3_yarn",
                                            "smollm3"};
  for (const std::string& name : family_names()) {
    CAPTURE(name);
    const Json reference = family_reference(name);
    const auto model = load_family(reference);
    test::TemporaryFolder place;
    const std::string path = place.file("net.gguf");
    if (std::ranges::find(refused, name) != refused.end()) {
      CHECK_THROWS_WITH_AS(models::write_gguf(path, *model), doctest::Contains("llama.cpp"), Error);
      CHECK(!std::filesystem::exists(path));
      continue;
    }
    models::write_gguf(path, *model);
    CHECK(!io::read_of_model(path, "tokenizer.json", 1 << 20));
    const Tensor tokens = family_tokens(reference, 0, 12);
    const std::vector<double> want = logits_of(*model, tokens);
    const models::Pretrained again = models::load_pretrained(path);
    const std::vector<double> got = logits_of(*again.model, tokens);
    REQUIRE(got.size() == want.size());
    for (size_t i = 0; i < got.size(); ++i) REQUIRE(std::abs(got[i] - want[i]) <= tolerance);
  }
}

TEST_CASE("blocks of a GGUF file compute what those of a folder compute") {
  for (const std::string name : {"llama", "gpt2", "qwen3", "gpt_neox", "mixtral", "phi3"}) {
    CAPTURE(name);
    const Json reference = family_reference(name);
    const auto model = load_family(reference);
    const BlockFormat& format = block_format("Q5_0");
    const models::QuantizedDecoder quantized = models::quantize(*model, format);
    test::TemporaryFolder place;
    const std::string path = place.file("net.gguf"), folder = place.file("net");
    models::write_gguf(path, *model, {.quantized = &quantized, .name = "net"});
    io::save_folder(folder, models::published_tensors(quantized.tensors),
                    {{"config.json", models::quantized_config(*model, format, quantized)}});
    const Tensor tokens = family_tokens(reference, 0, 12);
    const std::vector<double> got = logits_of(*models::load_pretrained(path).model, tokens),
                              want = logits_of(*models::load_pretrained(folder).model, tokens);
    REQUIRE(got.size() == want.size());
    for (size_t i = 0; i < got.size(); ++i) REQUIRE(std::abs(got[i] - want[i]) <= tolerance);
  }
}
