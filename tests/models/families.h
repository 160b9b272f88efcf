// The tiny nets of published families in tests/reference/families: their folders as published, and
// what transformers computes of them.
#pragma once

#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "tests/models/reference.h"
#include "tests/support/temporary_folder.h"
#include "weft/io/load.h"
#include "weft/models/config_json.h"
#include "weft/models/family.h"

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

// Returns columns [begin, end) of the table of tokens.
inline Tensor family_tokens(const Json& reference, int64_t begin, int64_t end) {
  std::vector<int64_t> tokens;
  const Json& table = reference.at("tokens");
  for (const Json& row : table)
    for (int64_t t = begin; t < end; ++t) tokens.push_back(row.at(static_cast<size_t>(t)));
  return tensor(tokens, {static_cast<int64_t>(table.size()), end - begin});
}

}  // namespace weft::testing
