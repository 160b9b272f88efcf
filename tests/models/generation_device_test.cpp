// Published decoders continue sequences on a device with the CPU's logits.
#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "tests/models/device.h"
#include "tests/models/families.h"
#include "tests/support/temporary_folder.h"
#include "weft/infer/token_model.h"

using namespace weft;
using namespace weft::testing;

namespace {
// Activations stay float32, which the CPU would round by itself. Two sequences of other lengths
// read their prompts; then each gets two tokens more, one by one.
std::vector<float> continued_logits(const models::Decoder& model, const std::string& where) {
  const models::DecoderConfig& config = model.decoder_config();
  const auto tokens = infer::make_token_model(
      model, config.vocab_size, config.max_position_embeddings,
      {.batch = 2, .context = 24, .device = where, .activations = DType::f32});
  const std::vector<int32_t> ids = {5, 11, 7, 3, 9, 2, 8, 14, 6, 1, 13, 4, 12};
  std::vector<float> all;
  auto append = [&](std::array<infer::RowTokens, 2> rows) {
    tokens->append(rows);
    for (int64_t row = 0; row < 2; ++row) {
      const std::span<const float> logits = tokens->logits(row);
      all.insert(all.end(), logits.begin(), logits.end());
    }
  };
  const std::span<const int32_t> prompt(ids);
  append({infer::RowTokens{prompt}, infer::RowTokens{prompt.first(4)}});
  for (size_t i = 0; i < 2; ++i)
    append({infer::RowTokens{prompt.subspan(i, 1)}, infer::RowTokens{prompt.subspan(i + 5, 1)}});
  return all;
}

// PoCL takes a quarter of a second for each kernel.
bool compiles_slowly() { return device() == "opencl"; }

// `tolerance` is relative to the largest logit.
void check_continued_logits(const models::Decoder& model, double tolerance) {
  const std::vector<float> got = continued_logits(model, device()),
                           want = continued_logits(model, "cpu");
  REQUIRE(got.size() == want.size());
  double largest = 0, off = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    largest = std::max(largest, std::abs(static_cast<double>(want[i])));
    off = larger(off, std::abs(static_cast<double>(got[i]) - static_cast<double>(want[i])));
  }
  CHECK(largest > 0);
  CHECK(off <= tolerance * largest);
}

// With weights in blocks of a format, or as numbers ("").
void check_family(const std::string& name, const std::string& format) {
  CAPTURE(name);
  CAPTURE(format);
  const auto plain = load_family(family_reference(name));
  if (format.empty()) {
    check_continued_logits(*plain, 1e-5);
    return;
  }
  const BlockFormat& blocks = block_format(format);
  const test::TemporaryFolder place;
  const models::Pretrained model =
      saved_in_blocks(*plain, blocks, models::quantize(*plain, blocks), place.file("model"));
  check_continued_logits(dynamic_cast<const models::Decoder&>(*model.model), 1e-5);
}

struct Continued {
  const char *name, *format;
};
// All but the weights are computed by the same kernels in each of a family's nets, and Q4_0 leaves
// the embeddings and the head in Q8_0.
constexpr Continued in_two_formats = {"llama", "Q4_0"};
constexpr Continued others[] = {{"llama", ""},   {"gpt2", ""},      {"gemma2", ""},
                                {"mixtral", ""}, {"llama", "Q8_0"}, {"mixtral", "Q4_0"}};
}  // namespace

TEST_CASE(
    "published decoders, in numbers or blocks, continue sequences on a device as on the CPU") {
  if (!has_device()) return;
  check_family(in_two_formats.name, in_two_formats.format);
  if (compiles_slowly()) return;  // the others are slow
  for (const auto& [name, format] : others) check_family(name, format);
}

TEST_SUITE("slow device curves") {
  TEST_CASE("other decoders continue sequences on a device as on the CPU") {
    if (!has_device() || !compiles_slowly()) return;  // they ran above
    for (const auto& [name, format] : others) check_family(name, format);
  }
}
