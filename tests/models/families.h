// Declares the tiny nets of published families in tests/reference/families: their folders as
// published, and what transformers computes of them.
#pragma once

#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/models/reference.h"
#include "tests/support/near.h"
#include "tests/support/temporary_folder.h"
#include "weft/io/load.h"
#include "weft/io/model_folder.h"
#include "weft/models/config_json.h"
#include "weft/models/family.h"
#include "weft/models/pretrained.h"
#include "weft/models/quantize.h"
#include "weft/optim/optim.h"
#include "weft/tensor/compile.h"

namespace weft::testing {

// Returns the names of all nets, sorted.
inline std::vector<std::string> family_names() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator("tests/reference/families"))
    names.push_back(entry.path().stem());
  std::ranges::sort(names);
  return names;
}
inline Json family_reference(const std::string& name) {
  return reference_file("families/" + name + ".json");
}

inline std::vector<std::string> tensor_names(const Json& reference) {
  std::vector<std::string> names;
  for (const Json& row : reference.at("tensors")) names.push_back(row.at("name"));
  return names;
}

// Writes the weights of the formula under their published names, less `without`.
inline std::string write_weights(const Json& reference, const std::string& path,
                                 const std::string& without = "") {
  std::vector<std::vector<float>> values;
  std::vector<io::NamedBytes> tensors;
  for (const Json& row : reference.at("tensors")) {
    const std::string name = row.at("name");
    const Type type{DType::f32, shape_of(row)};
    const uint64_t stream = formula_stream(name);
    const double scale = row.at("scale"), shift = row.at("shift");
    std::vector<float> elements(static_cast<size_t>(type.elements()));
    for (size_t i = 0; i < elements.size(); ++i)
      elements[i] = static_cast<float>(formula_uniform(stream, i, scale) + shift);
    values.push_back(std::move(elements));
    tensors.push_back({name.starts_with(without) ? name.substr(without.size()) : name, type,
                       std::as_bytes(std::span(values.back()))});
  }
  io::write_safetensors(path, tensors);
  return path;
}

inline std::unique_ptr<models::Decoder> build_family(const Json& config) {
  nn::BuildScope scope({.dtype = DType::f32, .initialize = false});
  return models::make_decoder(models::parse_options(config.dump(), "config.json"));
}

// Builds a net from `config` ("config", "published_config") and loads its weights.
inline std::unique_ptr<models::Decoder> load_family(const Json& reference,
                                                    const std::string& config = "config") {
  auto model = build_family(reference.at(config));
  test::TemporaryFolder folder;
  const io::Loaded found =
      io::load(*model, write_weights(reference, folder.file("model.safetensors")),
               models::load_layout(model->decoder_config(), tensor_names(reference)));
  REQUIRE(found.missing.empty());
  REQUIRE(found.unexpected.empty());
  return model;
}

// Saves a net with its weights in blocks in a folder that does not exist, and loads that.
inline models::Pretrained saved_in_blocks(const models::Decoder& plain, const BlockFormat& format,
                                          const models::QuantizedDecoder& quantized,
                                          const std::string& folder) {
  io::save_folder(folder, models::published_tensors(quantized.tensors),
                  {{"config.json", models::quantized_config(plain, format, quantized)}});
  return models::load_pretrained(folder);
}

// Returns columns [begin, end) of the table of tokens.
inline Tensor family_tokens(const Json& reference, int64_t begin, int64_t end) {
  std::vector<int64_t> tokens;
  const Json& table = reference.at("tokens");
  for (const Json& row : table)
    for (int64_t t = begin; t < end; ++t) tokens.push_back(row.at(static_cast<size_t>(t)));
  return tensor(tokens, {static_cast<int64_t>(table.size()), end - begin});
}

inline std::vector<double> logits_of(const Model& model, const Tensor& tokens) {
  auto forward = compile([&](Tensor x) { return model(x); }, {.mode = Mode::eval});
  return forward(tokens).to_doubles();
}

inline constexpr double tolerance = 1e-4;

// Compares the logits of v where v % 4 == t % 4, as the file lists them.
inline void check_logits(const Tensor& logits, const Json& expected) {
  const std::vector<double> all = logits.to_doubles();
  const int64_t rows = logits.dim(0), length = logits.dim(1), vocabulary = logits.dim(2);
  size_t listed = 0;
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t t = 0; t < length; ++t)
      for (int64_t v = t % 4; v < vocabulary; v += 4) {
        const double got = all[static_cast<size_t>((row * length + t) * vocabulary + v)];
        const double want = expected.at(listed++);
        INFO("row " << row << ", position " << t << ", logit " << v << ": got " << got);
        REQUIRE(std::abs(got - want) <= tolerance);
      }
  REQUIRE(listed == expected.size());
}

// Returns the elements of tensors by their names.
inline std::map<std::string, std::vector<double>> values_of(
    const std::vector<io::NamedBytes>& tensors) {
  std::map<std::string, std::vector<double>> values;
  for (const io::NamedBytes& tensor : tensors)
    for (int64_t i = 0; i < tensor.type.elements(); ++i)
      values[tensor.name].push_back(load(tensor.bytes.data(), tensor.type.dtype, i));
  return values;
}

// Takes the file's steps of SGD on the tokens of `base`, and compares losses and all tensors that
// `tensors_of` gives.
template <class TensorsOf>
void check_training(const models::Decoder& model, const Json& reference, const Json& base,
                    const TensorsOf& tensors_of) {
  const auto before = values_of(tensors_of(model));
  optim::SGD optimizer(model.parameters(), {.lr = reference.at("learning_rate").get<double>()});
  auto loss_of = [&](const Tensor& inputs, const Tensor& labels) {
    return cross_entropy(model(inputs), labels);
  };
  auto step = compile([&](Tensor inputs, Tensor labels) {
    Tensor loss = loss_of(inputs, labels);
    optimizer.step(grad(loss, model.parameters()));
    return loss;
  });
  auto evaluate = compile(loss_of, {.mode = Mode::eval});
  const Tensor inputs = family_tokens(base, 0, 12), labels = family_tokens(base, 1, 13);
  const Json& losses = reference.at("losses");
  for (size_t s = 0; s < losses.size(); ++s) {
    CAPTURE(s);
    const bool last = s + 1 == losses.size();
    const double loss = (last ? evaluate(inputs, labels) : step(inputs, labels)).item();
    REQUIRE(std::abs(loss - losses[s].get<double>()) <= tolerance);
  }
  const Json& trained = reference.at("trained");
  REQUIRE(trained.size() == before.size());
  for (const auto& [name, after] : values_of(tensors_of(model))) {
    CAPTURE(name);
    const std::vector<double>& old = before.at(name);
    double squares = 0;
    for (size_t i = 0; i < after.size(); ++i) squares += std::pow(after[i] - old[i], 2);
    const Json& expected = trained.at(name);
    CHECK(std::sqrt(squares) == near(expected[0].get<double>(), 1e-3));
    for (size_t i = 0; i < 2; ++i)
      CHECK(std::abs(after[i] - expected[1 + i].get<double>()) <= tolerance);
  }
}

}  // namespace weft::testing
