// Options are named values that say how to build a layer or a model ("out_channels: 32"),
// independent of file formats; recipes and config.json are converted to them elsewhere.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace weft::nn {

class Options;

// NestedOptions are the options under one key: "rope_scaling: {rope_type: linear, factor: 2}".
class NestedOptions {
 public:
  NestedOptions(Options options);
  const Options& operator*() const { return *options_; }
  const Options* operator->() const { return options_.get(); }
  friend bool operator==(const NestedOptions& a, const NestedOptions& b);

 private:
  std::shared_ptr<const Options> options_;
};

// std::monostate is JSON's null, by which a config.json says that the model lacks a part; readers
// treat it as an option that is not given.
using Option =
    std::variant<bool, int64_t, double, std::string, std::vector<int64_t>, std::vector<double>,
                 std::vector<std::string>, NestedOptions, std::monostate>;
std::string to_string(const Option& option);

class Options {
 public:
  Options() = default;
  Options(std::initializer_list<std::pair<const std::string, Option>> entries);

  void set(const std::string& key, Option value);
  const Option* find(std::string_view key) const;
  // Returns these options, and the options of `defaults` for missing keys.
  Options over(const Options& defaults) const;
  const std::map<std::string, Option, std::less<>>& entries() const { return entries_; }
  friend bool operator==(const Options&, const Options&) = default;

 private:
  std::map<std::string, Option, std::less<>> entries_;
};

// A model has at most this many layers. The limit bounds memory, as layers are built before a plan
// can say what they need (about 0.7 MB per transformer block).
inline constexpr int64_t most_layers = 20'000;

// OptionReader reads the options of one layer or model. A getter throws Error(usage) that names the
// owner ("conv2d"), the option and the limit; finish() refuses options that no getter read.
class OptionReader {
 public:
  OptionReader(const Options& options, std::string owner);

  // Returns an integer in [low, high]; the option is required if `otherwise` is empty.
  int64_t integer(std::string_view key, std::optional<int64_t> otherwise, int64_t low = 1,
                  int64_t high = std::numeric_limits<int64_t>::max());
  // Returns a number of layers in [low, most_layers].
  int64_t layers(std::string_view key, std::optional<int64_t> otherwise, int64_t low = 1) {
    return integer(key, otherwise, low, most_layers);
  }
  double number(std::string_view key, double otherwise, double low, double high);
  bool flag(std::string_view key, bool otherwise);
  std::string text(std::string_view key, std::string_view otherwise);
  // Returns one of `allowed`.
  std::string choice(std::string_view key, std::string_view otherwise,
                     std::span<const std::string_view> allowed);
  // Returns a list of 1 to most_layers integers >= low; a single integer is a list of one.
  std::vector<int64_t> integers(std::string_view key, std::optional<std::vector<int64_t>> otherwise,
                                int64_t low = 1);

  // Returns a list of numbers in [low, high], or of texts; empty if the option is not given.
  std::vector<double> numbers(std::string_view key, double low, double high);
  std::vector<std::string> texts(std::string_view key);
  // Returns null if the option is not given.
  const Options* nested(std::string_view key);
  // Returns whether the option is given, null included.
  bool has(std::string_view key) const { return options_.find(key) != nullptr; }
  void ignore(std::string_view key) { asked_.emplace_back(key); }

  // Returns the options that no getter read.
  std::vector<std::string> unread() const;
  void finish() const;
  const std::string& owner() const { return owner_; }

 private:
  const Option* find(std::string_view key);
  [[noreturn]] void wrong_kind(std::string_view key, const Option& got,
                               std::string_view expected) const;
  [[noreturn]] void missing(std::string_view key) const;

  const Options& options_;
  std::string owner_;
  std::vector<std::string> asked_;
};

// Returns "a, b, c".
std::string join(std::span<const std::string_view> words);

}  // namespace weft::nn
