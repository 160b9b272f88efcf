// Tests rows that hold several samples: each is computed as if it were alone.
#include <map>

#include <doctest/doctest.h>

#include "tests/models/families.h"
#include "tests/support/near.h"
#include "weft/data/loader.h"
#include "weft/tensor/compile.h"

using namespace weft;
using namespace weft::testing;

namespace {
constexpr int64_t length = 12;
const std::vector<std::vector<int64_t>> samples = {{3, 1, 4, 1, 5}, {9, 2, 6, 5, 3, 5}};

std::unique_ptr<models::Decoder> load_wide(const Json& reference) {
  nn::BuildScope scope({.dtype = DType::f64, .initialize = false});
  auto model =
      models::make_decoder(models::parse_options(reference.at("config").dump(), "config.json"));
  io::LoadOptions layout = models::load_layout(model->decoder_config(), tensor_names(reference));
  layout.cast = true;
  test::TemporaryFolder folder;
  const io::Loaded found =
      io::load(*model, write_weights(reference, folder.file("model.safetensors")), layout);
  REQUIRE(found.missing.empty());
  return model;
}

// Returns the samples in a row each, or all of them in one with their positions. The labels are the
// next tokens, of which the first of each sample is not learned.
Batch rows_of(const std::vector<std::vector<int64_t>>& all, bool packed) {
  const int64_t count = packed ? 1 : std::ssize(all);
  std::vector<int64_t> tokens(static_cast<size_t>(count * length)), places(tokens.size()),
      labels(tokens.size(), data::ignored_label);
  size_t at = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    if (!packed) at = i * length;
    for (size_t t = 0; t + 1 < all[i].size(); ++t, ++at) {
      tokens[at] = all[i][t], places[at] = static_cast<int64_t>(t);
      if (t > 0) labels[at] = all[i][t + 1];
    }
  }
  const Tensor ids = tensor(tokens, {count, length});
  return {packed ? stack({ids, tensor(places, {count, length})}, 1) : ids,
          tensor(labels, {count, length})};
}
}  // namespace

TEST_CASE("packed samples have the losses and gradients that they have alone") {
  for (const char* name : {"llama", "gpt2", "gpt_neox", "gemma2", "mistral", "mixtral"}) {
    CAPTURE(name);
    const auto model = load_wide(family_reference(name));
    auto step = compile([&](Tensor inputs, Tensor labels) {
      const Tensor loss =
          cross_entropy((*model)(inputs), labels, {.ignore_index = data::ignored_label});
      std::vector<Tensor> results{loss};
      for (const Tensor& gradient : grad(loss, model->parameters())) results.push_back(gradient);
      return results;
    });
    const auto results = [&](bool packed) {
      const Batch rows = rows_of(samples, packed);
      return step(rows.inputs, rows.labels);
    };
    const std::vector<Tensor> alone = results(false), together = results(true);
    for (size_t i = 0; i < alone.size(); ++i) {
      CAPTURE(i);
      const std::vector<double> want = alone[i].to_doubles(), got = together[i].to_doubles();
      for (size_t j = 0; j < want.size(); ++j) REQUIRE(std::abs(got[j] - want[j]) <= 1e-12);
    }
  }
}

TEST_CASE("a token changes no logits of the other samples of its row") {
  for (const char* name : {"llama", "gpt2", "mistral"}) {
    CAPTURE(name);
    const auto model = load_family(family_reference(name));
    auto forward = compile([&](Tensor x) { return (*model)(x); }, {.mode = Mode::eval});
    auto other = samples;
    other[0][1] = 7;
    const std::vector<double> before = forward(rows_of(samples, true).inputs).to_doubles(),
                              after = forward(rows_of(other, true).inputs).to_doubles();
    const size_t own = (samples[0].size() - 1) * before.size() / length;
    CHECK(!std::equal(before.begin(), before.begin() + static_cast<std::ptrdiff_t>(own),
                      after.begin()));
    CHECK(std::equal(before.begin() + static_cast<std::ptrdiff_t>(own), before.end(),
                     after.begin() + static_cast<std::ptrdiff_t>(own)));
  }
}
