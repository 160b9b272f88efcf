#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

#include "weft/base/error.h"
#include "weft/models/families/families.h"

namespace weft::models {
namespace {
using nn::RopeOptions;
constexpr double most_theta = 1e15, most_factor = 1e6;

void require(nn::OptionReader& reader, std::string_view key) {
  if (!reader.has(key)) throw Error(ErrorKind::usage, "[{}] {} is required.", reader.owner(), key);
}

// Reads the keys that a type of scaling needs, and ignores keys that only other types read, as
// transformers does.
void read_scaling(nn::OptionReader& reader, const DecoderConfig& config, int64_t dimension,
                  RopeOptions& rope) {
  const bool has_factor = rope.type != "default" && rope.type != "longrope";
  if (has_factor) require(reader, "factor");
  rope.factor = reader.number("factor", 1, 1e-6, most_factor);
  if (rope.type == "longrope") rope.positions = config.max_position_embeddings;
  const int64_t original =
      rope.original_positions > 0 ? rope.original_positions : config.max_position_embeddings;
  rope.original_positions =
      reader.integer("original_max_position_embeddings", original, 1, most_tokens);
  if (rope.type == "dynamic" || rope.type == "linear")
    rope.original_positions = config.max_position_embeddings;
  if (rope.type == "dynamic" && dimension < 4)
    throw Error(ErrorKind::usage,
                "[{}] dynamic scaling needs heads of at least 4 elements. Got {}.", reader.owner(),
                dimension);
  if (rope.type == "llama3") {
    for (const char* key : {"low_freq_factor", "high_freq_factor"}) require(reader, key);
    rope.low_freq_factor = reader.number("low_freq_factor", 1, 0, most_factor);
    rope.high_freq_factor = reader.number(
        "high_freq_factor", 4, std::nextafter(rope.low_freq_factor, most_factor), most_factor);
  }
  rope.attention_factor = reader.number("attention_factor", 0, 0, most_factor);
  if (rope.type == "yarn") {
    rope.beta_fast = reader.number("beta_fast", 32, 1e-6, most_factor);
    rope.beta_slow = reader.number("beta_slow", 1, 1e-6, most_factor);
    rope.truncate = reader.flag("truncate", true);
    rope.mscale = reader.number("mscale", 0, 0, most_factor);
    rope.mscale_all_dim = reader.number("mscale_all_dim", 0, 0, most_factor);
  }
  if (rope.type != "longrope") return;
  const std::array lists = {std::pair("short_factor", &rope.short_factor),
                            std::pair("long_factor", &rope.long_factor)};
  for (const auto& [key, list] : lists) {
    require(reader, key);
    *list = reader.numbers(key, 1e-6, most_factor);
    if (list->size() != static_cast<size_t>(dimension / 2))
      throw Error(ErrorKind::usage,
                  "[{}] {} must have a factor for each of {} frequencies. Got {}.", reader.owner(),
                  key, dimension / 2, list->size());
  }
}

int64_t dimension_of(const ConfigKeys& keys, const DecoderConfig& config, double partial) {
  const auto dimension = static_cast<int64_t>(static_cast<double>(config.head_dim) * partial);
  if (dimension < 2 || dimension % 2 != 0)
    throw Error(
        ErrorKind::usage,
        "[{}] the rotated part of a head of {} elements must be even and at least 2. Got {}.",
        keys.family(), config.head_dim, dimension);
  return dimension;
}

// Returns the rotated share of a head, from which dimension_of() computes rope_dimension again.
double partial_of(const DecoderConfig& config) {
  if (config.rope_dimension == 0) return 1;
  const auto width = static_cast<double>(config.head_dim);
  double partial = static_cast<double>(config.rope_dimension) / width;
  while (static_cast<int64_t>(width * partial) < config.rope_dimension)
    partial = std::nextafter(partial, 1.0);
  return partial;
}

// The first files of Phi-3 call longrope "su" or "yarn", which is not the yarn of other families.
nn::Options with_present_type(nn::Options scaling) {
  for (const std::string key : {"type", "rope_type"})
    if (const nn::Option* type = scaling.find(key);
        type != nullptr &&
        (*type == nn::Option(std::string("su")) || *type == nn::Option(std::string("yarn"))))
      scaling.set(key, std::string("longrope"));
  return scaling;
}

void write_rope(ConfigKeys& keys, const DecoderConfig& config, const RopeKeys& names) {
  const RopeOptions& rope = config.ropes.at(0);
  keys.write(names.theta, rope.theta);
  if (!names.partial.empty()) keys.write(names.partial, partial_of(config));
  const bool extended = rope.type == "dynamic" || rope.type == "linear";
  if (extended) keys.write("max_position_embeddings", rope.original_positions);
  if (!names.phi3) return keys.write("rope_scaling", rope_scaling(rope));
  keys.write("original_max_position_embeddings", rope.original_positions);
  if (rope.type == "default") return keys.write("rope_scaling", std::monostate());
  nn::Options scaling{
      {"type", rope.type}, {"short_factor", rope.short_factor}, {"long_factor", rope.long_factor}};
  if (rope.factor > 1) scaling.set("factor", rope.factor);
  if (rope.attention_factor > 0) scaling.set("attention_factor", rope.attention_factor);
  keys.write("rope_scaling", nn::NestedOptions(scaling));
}
}  // namespace

nn::Option rope_scaling(const RopeOptions& rope) {
  if (rope.type == "default") return std::monostate();
  nn::Options scaling{{"rope_type", rope.type}};
  // A factor of longrope that is not given follows from the contexts, unlike a factor of 1.
  if (rope.type != "longrope" || rope.factor > 1) scaling.set("factor", rope.factor);
  if (rope.type == "yarn" || rope.type == "longrope" || rope.type == "llama3")
    scaling.set("original_max_position_embeddings", rope.original_positions);
  if (rope.type == "llama3") {
    scaling.set("low_freq_factor", rope.low_freq_factor);
    scaling.set("high_freq_factor", rope.high_freq_factor);
  }
  if (rope.type == "yarn") {
    scaling.set("beta_fast", rope.beta_fast);
    scaling.set("beta_slow", rope.beta_slow);
    if (!rope.truncate) scaling.set("truncate", false);
    if (rope.mscale > 0) scaling.set("mscale", rope.mscale);
    if (rope.mscale_all_dim > 0) scaling.set("mscale_all_dim", rope.mscale_all_dim);
  }
  if (rope.type == "longrope") {
    scaling.set("short_factor", rope.short_factor);
    scaling.set("long_factor", rope.long_factor);
  }
  if (rope.attention_factor > 0) scaling.set("attention_factor", rope.attention_factor);
  return nn::NestedOptions(scaling);
}

void read_rope(const ConfigKeys& keys, const nn::Options* parameters, std::string_view key,
               const DecoderConfig& config, RopeOptions& rope, double* partial) {
  double share = partial != nullptr ? *partial : 1;
  static const nn::Options none;
  nn::OptionReader reader(parameters != nullptr ? *parameters : none,
                          fmt::format("{}.{}", keys.family(), key));
  constexpr std::array<std::string_view, 7> types = {"default",  "linear", "dynamic", "yarn",
                                                     "longrope", "llama3", "su"};
  const std::string older = reader.choice("type", "default", types);
  rope.type = reader.choice("rope_type", older, types);
  if (rope.type == "su") rope.type = "longrope";  // see with_present_type()
  rope.theta = reader.number("rope_theta", rope.theta, 1.0001, most_theta);
  if (partial != nullptr) *partial = share = reader.number("partial_rotary_factor", share, 0, 1);
  read_scaling(reader, config, dimension_of(keys, config, share), rope);
  keys.warn_unread(reader);
}

void bind_rope(ConfigKeys& keys, DecoderConfig& config, const RopeKeys& names) {
  nn::OptionReader* reader = keys.reader();
  if (reader == nullptr) return write_rope(keys, config, names);
  RopeOptions rope{.theta = reader->number(names.theta, names.default_theta, 1.0001, most_theta)};
  double partial = names.default_partial;
  if (!names.partial.empty()) partial = reader->number(names.partial, partial, 0, 1);
  if (names.phi3)
    rope.original_positions =
        reader->integer("original_max_position_embeddings", 4096, 1, most_tokens);
  const nn::Options* scaling = reader->nested("rope_scaling");
  const nn::Options* parameters = reader->nested("rope_parameters");
  const nn::Options* given = parameters != nullptr ? parameters : scaling;
  nn::Options renamed;
  if (names.phi3 && given != nullptr) given = &(renamed = with_present_type(*given));
  read_rope(keys, given, parameters != nullptr ? "rope_parameters" : "rope_scaling", config, rope,
            names.partial.empty() ? nullptr : &partial);
  config.rope_dimension = dimension_of(keys, config, partial);
  if (config.rope_dimension == config.head_dim) config.rope_dimension = 0;
  // Scaled positions reach beyond the longest context that these types name.
  const double reach = rope.factor * static_cast<double>(rope.original_positions);
  if (rope.type == "dynamic" || rope.type == "linear" || rope.type == "yarn")
    config.max_position_embeddings =
        std::clamp(static_cast<int64_t>(reach), config.max_position_embeddings, most_tokens);
  config.ropes = {rope};
}

}  // namespace weft::models
