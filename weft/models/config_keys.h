// ConfigKeys binds the keys of a config.json to the variables that they set, in both directions: a
// family states each key once, and is read and written by it.
//
//   void bind(ConfigKeys& keys, DecoderConfig& c) {
//     keys.number("rms_norm_eps", c.norm_eps, 0, 1);
//     keys.flag("mlp_bias", c.mlp_bias);
//   }
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "weft/nn/options.h"

namespace weft::models {

// These are limits of sizes in config.json, so that products of them fit 64 bits.
inline constexpr int64_t most_features = int64_t{1} << 20;
inline constexpr int64_t most_tokens = int64_t{1} << 28;

class ConfigKeys {
 public:
  // Reads `config`, which must outlive this. Errors are Error(usage) that begin with "[family]" and
  // name the key and its limit.
  ConfigKeys(const nn::Options& config, std::string family);
  explicit ConfigKeys(std::string family);  // writes

  const std::string& family() const { return family_; }

  // Each function reads a value, or writes it. If config.json lacks the key, or has null, `value`
  // stays as it is.
  void integer(std::string_view key, int64_t& value, int64_t low = 1, int64_t high = most_features);
  void required(std::string_view key, int64_t& value, int64_t high = most_features);
  void number(std::string_view key, double& value, double low, double high);
  void flag(std::string_view key, bool& value);
  // Null, which is written for 0, is read as 0.
  void integer_or_null(std::string_view key, int64_t& value, int64_t high = most_tokens);
  void number_or_null(std::string_view key, double& value, double low, double high);
  // Binds an activation: config.json has Hugging Face's name, `value` the name in
  // nn::activation_function().
  void activation(std::string_view key, std::string& value);
  // Binds a switch that must be off, as decoders do not implement what it turns on.
  void off(std::string_view key);
  // Binds several dropout rates to the one rate of a decoder: the first is read, and a key with
  // another rate is listed in unapplied().
  void dropouts(std::initializer_list<std::string_view> keys, double& value);

  // Returns descriptions of settings that training ignores.
  const std::vector<std::string>& unapplied() const { return unapplied_; }

  // Returns the reader of nested values, or null when writing.
  nn::OptionReader* reader() { return reader_ ? &*reader_ : nullptr; }
  void write(std::string_view key, nn::Option value) {
    written_.set(std::string(key), std::move(value));
  }
  const nn::Options& written() const { return written_; }

  // Warns once in a process of each key that the family does not know.
  void warn_unread(const nn::OptionReader& reader) const;

 private:
  std::string family_;
  std::optional<nn::OptionReader> reader_;
  nn::Options written_;
  std::vector<std::string> unapplied_;
};

}  // namespace weft::models
