#include "weft/models/config_keys.h"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>

#include "weft/base/error.h"
#include "weft/base/first_time.h"
#include "weft/base/logging.h"
#include "weft/base/text/utf8.h"
#include "weft/nn/layers.h"

namespace weft::models {
namespace {
// These are Hugging Face's names of activations that nn::activation_function() has under another;
// the first of equal ones is written.
constexpr std::array<std::pair<std::string_view, std::string_view>, 4> activations = {{
    {"gelu_pytorch_tanh", "gelu_tanh"},
    {"gelu_fast", "gelu_tanh"},
    {"gelu_python", "gelu"},
    {"swish", "silu"},
}};

void warn_once(const std::string& warning) {
  if (is_first_time(warning)) logging::warn("{}", warning);
}
}  // namespace

ConfigKeys::ConfigKeys(const nn::Options& config, std::string family)
    : family_(std::move(family)), reader_(std::in_place, config, family_) {}
ConfigKeys::ConfigKeys(std::string family) : family_(std::move(family)) {}

void ConfigKeys::integer(std::string_view key, int64_t& value, int64_t low, int64_t high) {
  if (reader_)
    value = reader_->integer(key, value, low, high);
  else
    write(key, value);
}
void ConfigKeys::required(std::string_view key, int64_t& value, int64_t high) {
  if (reader_)
    value = reader_->integer(key, std::nullopt, 1, high);
  else
    write(key, value);
}
void ConfigKeys::number(std::string_view key, double& value, double low, double high) {
  if (reader_)
    value = reader_->number(key, value, low, high);
  else
    write(key, value);
}
void ConfigKeys::flag(std::string_view key, bool& value) {
  if (reader_)
    value = reader_->flag(key, value);
  else
    write(key, value);
}

void ConfigKeys::integer_or_null(std::string_view key, int64_t& value, int64_t high) {
  if (reader_)
    value = reader_->integer(key, reader_->has(key) ? 0 : value, 1, high);
  else
    write(key, value == 0 ? nn::Option(std::monostate()) : nn::Option(value));
}
void ConfigKeys::number_or_null(std::string_view key, double& value, double low, double high) {
  if (reader_)
    value = reader_->number(key, reader_->has(key) ? 0 : value, low, high);
  else
    write(key, value == 0 ? nn::Option(std::monostate()) : nn::Option(value));
}

void ConfigKeys::activation(std::string_view key, std::string& value) {
  if (!reader_) {
    const auto found = std::ranges::find(activations, value,
                                         [](const auto& row) { return std::string(row.second); });
    const bool has_own_name = value == "silu" || value == "gelu" || found == activations.end();
    return write(key, has_own_name ? value : std::string(found->first));
  }
  value = reader_->text(key, value);
  for (const auto& [published, own] : activations)
    if (value == published) value = own;
  nn::activation_function(escaped(value), family_);  // throws for an unknown one
}

void ConfigKeys::off(std::string_view key) {
  bool value = false;
  flag(key, value);
  if (value)
    throw Error(ErrorKind::usage, "[{}] {} must be false: weft does not compute what it turns on.",
                family_, key);
}

void ConfigKeys::dropouts(std::initializer_list<std::string_view> keys, double& value) {
  const std::string_view first = *keys.begin();
  number(first, value, 0, 1);
  for (std::string_view key : keys) {
    double other = value;
    number(key, other, 0, 1);
    if (other != value)
      unapplied_.push_back(
          fmt::format("training applies {} {} where {} is {}", first, value, key, other));
  }
}

void ConfigKeys::warn_unread(const nn::OptionReader& reader) const {
  const std::vector<std::string> keys = reader.unread();
  if (keys.empty()) return;
  std::string names;
  for (size_t i = 0; i < keys.size() && i < 8; ++i) names += (i > 0 ? ", " : "") + escaped(keys[i]);
  warn_once(fmt::format("[{}] weft does not know, and ignores: {}{}.", reader.owner(), names,
                        keys.size() > 8 ? ", ..." : ""));
}

}  // namespace weft::models
