// Reads values of a file of devices, each by its type and range. Errors are thrown as Error(usage),
// one line that begins with the place of the value and the device.
#pragma once

#include <deque>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include <yaml-cpp/yaml.h>

#include "weft/train/recipe/yaml_text.h"

namespace weft::train {

class FieldReader {
 public:
  // Texts that were read live in `texts`.
  FieldReader(const std::string& name, std::deque<std::string>& texts)
      : origin_{name, true}, texts_(texts) {}

  void set_device(std::string id) { device_ = std::move(id); }  // for messages; "": none
  const std::string& file() const { return origin_.name; }

  [[noreturn]] void wrong(const YAML::Node& node, std::string_view field,
                          const std::string& rule) const;
  // Calls `take` with each entry of a map, and refuses keys that are not of `keys`.
  using TakeEntry = std::function<void(std::string_view key, const YAML::Node& value)>;
  void each(const YAML::Node& map, std::string_view field, std::span<const std::string_view> keys,
            const TakeEntry& take) const;
  void list(const YAML::Node& node, std::string_view field,
            const std::function<void(const YAML::Node& entry)>& take) const;
  std::string_view text(const YAML::Node& node, std::string_view field, size_t longest = 400) const;
  double number(const YAML::Node& node, std::string_view field, double low, double high,
                std::string_view unit) const;
  bool flag(const YAML::Node& node, std::string_view field) const;
  // Reads a date as "2026-08-19", "2026-08" or "2026".
  std::string_view date(const YAML::Node& node, std::string_view field) const;
  // Reads a name that can be a word of --on.
  std::string_view id(const YAML::Node& node, std::string_view field) const;

  std::string_view kept(std::string text) const { return texts_.emplace_back(std::move(text)); }

 private:
  std::string place() const;  // "h100: ", before a field

  RecipeOrigin origin_;
  std::deque<std::string>& texts_;
  std::string device_;
};

bool is_null(const YAML::Node& node);

}  // namespace weft::train
