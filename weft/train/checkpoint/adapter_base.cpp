#include "weft/train/checkpoint/adapter_base.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <span>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "weft/base/error.h"
#include "weft/base/logging.h"
#include "weft/base/numbers/hash.h"
#include "weft/io/files.h"
#include "weft/io/gguf.h"
#include "weft/io/json.h"
#include "weft/io/model_folder.h"
#include "weft/models/adapter.h"
#include "weft/models/pretrained.h"

namespace weft::train {
namespace {
namespace fs = std::filesystem;

constexpr std::string_view fingerprint_key = "base_fingerprint", numbers_key = "base_numbers";
// Fingerprints of GGUF files begin with this: their tensors have other names and orders of rows.
constexpr std::string_view gguf_form = "gguf:";

// Weights are the open files of a model, and its tensors by name: their order is not the files'.
class Weights {
 public:
  struct Tensor {
    const io::TensorFile* file;
    const io::TensorFile::Entry* entry;
  };

  explicit Weights(const std::string& model) : is_gguf_(io::is_gguf(model)) {
    for (const std::string& path : io::weight_files(model))
      files_.push_back(io::open_weights(path));
    for (const io::TensorFile& file : files_)
      for (const io::TensorFile::Entry& entry : file.entries())
        tensors_[entry.name] = {&file, &entry};
  }

  std::string fingerprint() const {
    constexpr size_t sample = size_t{8} << 10, samples = 8;  // bytes, and how many of each tensor
    uint64_t all = 0;
    for (const auto& [name, tensor] : tensors_) {
      const std::span<const std::byte> bytes = tensor.file->bytes(*tensor.entry);
      uint64_t hash = hash_text(to_string(tensor.entry->type));
      const size_t size = std::min(sample, bytes.size());
      for (size_t i = 0; i < samples; ++i) {  // the first at the front, the last at the end
        const size_t at = (bytes.size() - size) / (samples - 1) * i;
        const size_t begin = i + 1 < samples ? at : bytes.size() - size;
        hash = hash_combine(hash, hash_bytes(bytes.data() + begin, size));
      }
      all = hash_combine(hash_combine(all, hash_text(name)), hash);
    }
    return std::string(is_gguf_ ? gguf_form : "") + to_hex(all);
  }

  // Returns the type and a sample of the elements of each tensor, by name. The sample of a tensor
  // in blocks is empty.
  nlohmann::json numbers() const {
    nlohmann::json all = nlohmann::json::object();
    for (const auto& [name, tensor] : tensors_) all[name] = numbers_of(name);
    return all;
  }
  // Returns the same of one tensor; null if the base has no tensor of this name.
  nlohmann::json numbers_of(const std::string& name) const {
    constexpr size_t most_of_all = 4096, most = 16;  // numbers
    const auto found = tensors_.find(name);
    if (found == tensors_.end()) return nullptr;
    const auto& [file, entry] = found->second;
    const Type& type = entry->type;
    nlohmann::json made = {{"type", weft::name(type.dtype)}, {"numbers", nlohmann::json::array()}};
    if (!is_float(type.dtype)) return made;
    const auto elements = static_cast<size_t>(type.elements());
    const size_t count =
        std::min({elements, most, std::max(most_of_all / tensors_.size(), size_t{1})});
    for (size_t i = 0; i < count; ++i) {  // the last numbers of equal parts
      const size_t at = (i + 1) * (elements / count) - 1;
      const double number =
          io::view_or_copy(file->buffer(), entry->offset + at * size_of(type.dtype),
                           {type.dtype, {1}})
              .item();
      // JSON has no other numbers, and bases that have are refused elsewhere.
      made["numbers"].push_back(std::isfinite(number) ? number : 0.0);
    }
    return made;
  }

 private:
  bool is_gguf_;
  std::vector<io::TensorFile> files_;
  std::map<std::string, Tensor> tensors_;
};

// Returns by how much rounding to the type may change a number of this magnitude.
double rounding(DType dtype, double magnitude) {
  const FloatFormat& format = info(dtype).format;
  const double least = std::ldexp(1.0, format.least_exponent());
  return std::ldexp(std::max(magnitude, least), -format.fraction - 1);
}

// Comparison is the result of comparing the sampled elements of two bases.
struct Comparison {
  enum { other_weights, other_precision, unknown } is = other_weights;
  std::string here = {}, there = {};  // types of weights
};

Comparison compare(const Weights& base, const nlohmann::json& trained_on) {
  Comparison made;
  for (const auto& [name, there] : trained_on.items()) {
    const nlohmann::json here = base.numbers_of(name);
    if (here.is_null()) return {};
    const std::string type = io::text_at(here, "type"), other = io::text_at(there, "type");
    const auto mine = here["numbers"].get<std::vector<double>>();
    const auto others = there["numbers"].get<std::vector<double>>();
    if (mine.empty() != others.empty()) return {.is = Comparison::unknown};
    if (mine.size() != others.size()) return {};
    if (type != other) made = {.is = Comparison::other_precision, .here = type, .there = other};
    for (size_t i = 0; i < mine.size(); ++i) {
      const double magnitude = std::max(std::abs(mine[i]), std::abs(others[i]));
      const double allowed = type == other ? 0
                                           : rounding(parse_dtype(type), magnitude) +
                                                 rounding(parse_dtype(other), magnitude);
      if (!(std::abs(mine[i] - others[i]) <= allowed)) return {};
    }
  }
  return made;
}
}  // namespace

void identify_base(io::Metadata& metadata, const std::string& base) {
  const Weights weights(base);
  metadata.emplace(fingerprint_key, weights.fingerprint());
  metadata.emplace(numbers_key, io::json_text(weights.numbers()));
}

void check_base(const std::string& adapter, const std::string& base) {
  const std::string file = (fs::path(adapter) / models::adapter_weights_file).string();
  if (!io::exists(file)) return;
  io::Metadata metadata;
  models::as_data([&] { metadata = io::Safetensors::open(file).metadata(); });
  const std::string fingerprint = metadata[std::string(fingerprint_key)];
  if (fingerprint.empty()) return;  // of an adapter from elsewhere: the base need not be opened
  const Weights weights(base);
  if (fingerprint == weights.fingerprint()) return;
  Comparison compared;
  if (fingerprint.starts_with(gguf_form) != io::is_gguf(base)) {
    compared.is = Comparison::unknown;
  } else if (const std::string& numbers = metadata[std::string(numbers_key)]; !numbers.empty()) {
    try {
      compared = compare(weights, io::parse_json(numbers));
    } catch (const std::exception&) {  // of three kinds
      throw Error(ErrorKind::data, "{}: {} of its metadata is none that weft writes.", file,
                  numbers_key);
    }
  }
  const std::string name = io::printable(base), trained = io::printable(adapter);
  if (compared.is == Comparison::unknown) {
    logging::note(
        "whether {} was trained on the weights of {} is not known: one form is GGUF, or in blocks.",
        trained, name);
  } else if (compared.is == Comparison::other_precision) {
    logging::note("the weights of {} are {}. {} was trained on them in {}.", name, compared.here,
                  trained, compared.there);
  } else {
    const std::string what =
        fmt::format("the weights of {} are not those that {} was trained on.", name, trained);
    if (io::exists((fs::path(adapter) / "MANIFEST.json").string()))
      throw Error(ErrorKind::data, "{}", what);
    logging::warn("{}", what);
  }
}

void load_adapter(Model& model, const std::string& base, const std::string& adapter) {
  check_base(adapter, base);
  models::load_adapter(model, adapter);
}

}  // namespace weft::train
