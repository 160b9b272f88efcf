// Holds GGUF files as llama.cpp's converter writes them (tests/reference/gguf/models) against the
// logits of transformers for the same weights, whole and from a cache.
#include <filesystem>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "tests/models/reference.h"
#include "weft/infer/token_model.h"
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

constexpr double tolerance = 1e-4;
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
    auto forward =
        compile([&](Tensor tokens) { return (*net.model)(tokens); }, {.mode = Mode::eval});
    const std::vector<double> got = forward(tokens_of(reference)).to_doubles();
    const auto expected = reference.at("logits").get<std::vector<double>>();
    REQUIRE(got.size() == expected.size() * stride);
    for (size_t i = 0; i < expected.size(); ++i) {
      INFO("logit " << i * stride << " is " << got[i * stride]);
      REQUIRE(std::abs(got[i * stride] - expected[i]) <= tolerance);
    }
  }
}

TEST_CASE("GGUF files are mapped, and continue from a cache with the same logits") {
  for (const std::string& name : net_names()) {
    CAPTURE(name);
    const models::Pretrained net = models::load_pretrained(folder + name + ".gguf");
    // Of one file three matrices are 16-bit numbers, which float32 copies hold.
    if (name != "llama_mixed") CHECK(net.loaded.copied_bytes == 0);
    const auto& decoder = dynamic_cast<const models::Decoder&>(*net.model);
    const Json reference = reference_file("gguf/models/" + name + ".json");
    const auto rows = reference.at("tokens").get<std::vector<std::vector<int32_t>>>();
    auto tokens = infer::make_token_model(decoder, net.vocabulary, net.context,
                                          {.batch = 2, .length = 12, .device = "cpu"});
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
