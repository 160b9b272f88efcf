#include "weft/train/catalogue/device_file.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "weft/base/error.h"
#include "weft/base/text/suggest.h"
#include "weft/base/text/utf8.h"
#include "weft/device/device_fields.h"
#include "weft/train/catalogue/device_checks.h"
#include "weft/train/catalogue/field_reader.h"

namespace weft::train {
namespace {
constexpr std::string_view file_kind = "a file of devices";

// The keys of a device that are no number or text of device_fields().
constexpr std::string_view other_keys[] = {
    "kind", "aliases", "compute_capability", "price", "sources", "unusual", "notes"};

class DeviceReader {
 public:
  DeviceReader(const std::string& name, std::span<const DeviceSource> known, bool cites_all)
      : reader_(name, file_.texts), known_(known), cites_all_(cites_all) {}

  DeviceFile read(std::string_view yaml) {
    const YAML::Node root = parse_yaml(yaml, reader_.file(), file_kind);
    if (!root.IsMap())
      throw Error(ErrorKind::usage, "{}: {} is a map of sources and devices. Got {}.",
                  reader_.file(), file_kind, shown(root));
    constexpr std::string_view keys[] = {"sources", "devices"};
    try {
      // Sources first, as devices cite them.
      reader_.each(root, "", keys, [](std::string_view, const YAML::Node&) {});
      if (const YAML::Node sources = root["sources"]; sources && !is_null(sources))
        read_sources(sources);
      if (const YAML::Node devices = root["devices"]; devices && !is_null(devices))
        read_list(devices);
    } catch (const YAML::Exception& error) {
      throw Error(ErrorKind::usage, "{}:{}: {}.", reader_.file(), error.mark.line + 1,
                  printable(error.msg));
    }
    return std::move(file_);
  }

 private:
  // ---- sources

  void read_sources(const YAML::Node& node) {
    if (!node.IsMap())
      reader_.wrong(node, "sources", fmt::format("must be a map. Got {}.", shown(node)));
    constexpr std::string_view keys[] = {"title", "where", "kind", "note", "seen"};
    for (const auto& entry : node) {
      if (!entry.first.IsScalar())
        reader_.wrong(entry.first, "sources", "has a key that is not a word.");
      const std::string field = "sources." + entry.first.Scalar();
      const std::string_view name = reader_.id(entry.first, field);
      if (find_source(name) != nullptr) reader_.wrong(entry.first, field, "is given twice.");
      DeviceSource& source = file_.sources.emplace_back();
      reader_.each(entry.second, field, keys, [&](std::string_view key, const YAML::Node& value) {
        const std::string path = fmt::format("{}.{}", field, key);
        if (key == "seen")
          source.seen = reader_.flag(value, path);
        else
          (key == "title"   ? source.title
           : key == "where" ? source.where
           : key == "kind"  ? source.kind
                            : source.note) = reader_.text(value, path);
      });
      if (source.title.empty() || source.where.empty())
        reader_.wrong(entry.first, field, "needs a title, and where it is.");
      source.id = name;
    }
  }

  const DeviceSource* find_source(std::string_view name) const {
    const auto own = std::ranges::find(file_.sources, name, &DeviceSource::id);
    if (own != file_.sources.end()) return &*own;
    const auto known = std::ranges::find(known_, name, &DeviceSource::id);
    return known == known_.end() ? nullptr : &*known;
  }

  const DeviceSource* source(const YAML::Node& node, std::string_view field) {
    const std::string_view name = reader_.text(node, field);
    const DeviceSource* const found = find_source(name);
    if (found != nullptr) return found;
    std::vector<std::string_view> names;
    names.reserve(file_.sources.size() + known_.size());
    for (const DeviceSource& each : file_.sources) names.push_back(each.id);
    for (const DeviceSource& each : known_) names.push_back(each.id);
    const std::string_view similar = nearest(name, names);
    reader_.wrong(node, field,
                  fmt::format("{} is no source.{}", shown(node),
                              similar.empty() ? " Hint: add it to sources, in this file."
                                              : fmt::format(" Did you mean {}?", similar)));
  }

  std::span<const DeviceSource* const> citations(const YAML::Node& node, std::string_view field) {
    auto& all = file_.citations.emplace_back();
    reader_.list(node, field,
                 [&](const YAML::Node& entry) { all.push_back(source(entry, field)); });
    return all;
  }

  // ---- prices

  Price price(const YAML::Node& node, std::string_view field, std::string_view amount) {
    constexpr std::string_view keys[] = {"usd",  "usd_per_hour", "provider",
                                         "date", "source",       "spot"};
    Price result;
    std::set<std::string_view> given;
    reader_.each(node, field, keys, [&](std::string_view key, const YAML::Node& value) {
      const std::string path = fmt::format("{}.{}", field, key);
      given.insert(key);
      if (key == "usd" || key == "usd_per_hour") {
        if (key != amount)
          reader_.wrong(value, path, fmt::format("is no field. Did you mean {}?", amount));
        result.usd = key == "usd" ? reader_.number(value, path, 1, 1e7, "US dollars")
                                  : reader_.number(value, path, 0.001, 1000, "US dollars an hour");
      } else if (key == "provider") {
        result.provider = reader_.text(value, path);
      } else if (key == "source") {
        result.source = source(value, path);
      } else if (key == "spot") {
        result.spot = reader_.flag(value, path);
      } else {
        result.date = reader_.date(value, path);
      }
    });
    for (const std::string_view needed :
         {amount, std::string_view("date"), std::string_view("source")})
      if (!given.contains(needed)) reader_.wrong(node, field, fmt::format("has no {}.", needed));
    return result;
  }

  std::span<const Price> prices(const YAML::Node& node, std::string_view field,
                                std::string_view amount) {
    auto& all = file_.prices.emplace_back();
    reader_.list(node, field,
                 [&](const YAML::Node& entry) { all.push_back(price(entry, field, amount)); });
    return all;
  }

  void read_prices(DeviceModel& device, const YAML::Node& node) {
    constexpr std::string_view keys[] = {"launch", "purchase", "rental"};
    reader_.each(node, "price", keys, [&](std::string_view key, const YAML::Node& value) {
      if (key == "launch")
        device.price.launch = price(value, "price.launch", "usd");
      else if (key == "purchase")
        device.price.purchase = prices(value, "price.purchase", "usd");
      else
        device.price.rental = prices(value, "price.rental", "usd_per_hour");
    });
  }

  // ---- devices

  void read_list(const YAML::Node& node) {
    if (!node.IsSequence())
      reader_.wrong(node, "devices", fmt::format("must be a list. Got {}.", shown(node)));
    for (const YAML::Node& entry : node) {
      reader_.set_device("");
      if (!entry.IsMap())
        reader_.wrong(entry, "devices", fmt::format("lists maps of fields. Got {}.", shown(entry)));
      read_device(entry);
    }
  }

  void read_device(const YAML::Node& node) {
    if (const YAML::Node id = node["id"]; id && id.IsScalar()) reader_.set_device(id.Scalar());
    DeviceModel device;
    FieldLines lines{.file = reader_.file(), .device = node.Mark().line + 1, .fields = {}};
    reader_.each(node, "", device_keys(), [&](std::string_view key, const YAML::Node& value) {
      lines.fields.emplace(key, value.Mark().line + 1);
      if (!is_null(value)) read_field(device, key, value, lines);
    });
    for (const std::string_view needed : {"id", "name", "kind", "memory", "dense_tflops"})
      if (!lines.fields.contains(needed))
        reader_.wrong(node, needed,
                      needed == "memory" || needed == "dense_tflops"
                          ? "is missing. Hint: null says that nothing is known."
                          : "is missing.");
    for (const char* field : {"id", "name", "kind"})
      if (is_null(node[field])) reader_.wrong(node, field, "must not be null.");
    check_figures(device, lines);
    if (cites_all_) check_citations(device, lines);
    file_.devices.push_back(device);
  }

  void read_field(DeviceModel& device, std::string_view key, const YAML::Node& node,
                  FieldLines& lines) {
    if (key == "id") {
      device.id = unique(node, "id");
    } else if (key == "aliases") {
      auto& all = file_.lists.emplace_back();
      reader_.list(node, key, [&](const YAML::Node& entry) { all.push_back(unique(entry, key)); });
      device.aliases = all;
    } else if (key == "kind") {
      device.kind = kind(node);
    } else if (key == "compute_capability") {
      const double version = reader_.number(node, key, 1, 99, "version of CUDA's instructions");
      device.capability = static_cast<int>(std::lround(10 * version));
    } else if (key == "price") {
      read_prices(device, node);
    } else if (key == "sources") {
      read_citations(device, node);
    } else if (key == "notes") {
      auto& all = file_.lists.emplace_back();
      reader_.list(node, key,
                   [&](const YAML::Node& entry) { all.push_back(reader_.text(entry, key, 1000)); });
      device.notes = all;
    } else if (key == "unusual") {
      read_unusual(device, node);
    } else if (const DeviceField* field = find_device_field(key)) {
      read_value(device, *field, node);
    } else {
      reader_.each(node, key, keys_of(key), [&](std::string_view inner, const YAML::Node& value) {
        const std::string path = fmt::format("{}.{}", key, inner);
        lines.fields.emplace(path, value.Mark().line + 1);
        if (is_null(value)) return;
        if (path == "measured.sources")
          device.measured.sources = citations(value, path);
        else
          read_value(device, *find_device_field(path), value);
      });
    }
  }

  void read_value(DeviceModel& device, const DeviceField& field, const YAML::Node& node) {
    if (const auto* real = std::get_if<DeviceField::Number>(&field.member)) {
      (*real)(device) = reader_.number(node, field.path, field.low, field.high, field.doc);
    } else if (const auto* whole = std::get_if<DeviceField::Whole>(&field.member)) {
      const double value = reader_.number(node, field.path, field.low, field.high, field.doc);
      if (value != std::floor(value))
        reader_.wrong(node, field.path,
                      fmt::format("must be a whole number. Got {}.", shown(node)));
      (*whole)(device) = static_cast<int>(value);
    } else {
      std::get<DeviceField::Text>(field.member)(device) = reader_.text(node, field.path);
    }
  }

  std::string_view unique(const YAML::Node& node, std::string_view field) {
    const std::string_view value = reader_.id(node, field);
    if (!names_.insert(value).second)
      reader_.wrong(node, field,
                    fmt::format("{} already names a device of this file.", shown(node)));
    return value;
  }

  DeviceKind kind(const YAML::Node& node) const {
    using enum DeviceKind;
    for (const DeviceKind each : {gpu, cpu, tpu, npu, asic, soc})
      if (node.IsScalar() && node.Scalar() == weft::name(each)) return each;
    reader_.wrong(node, "kind",
                  fmt::format("must be gpu, cpu, tpu, npu, asic or soc. Got {}.", shown(node)));
  }

  void read_citations(DeviceModel& device, const YAML::Node& node) {
    using Sources = DeviceModel::Sources;
    using Member = std::span<const DeviceSource* const> Sources::*;
    constexpr std::pair<std::string_view, Member> groups[] = {
        {"chip", &Sources::chip},   {"compute", &Sources::compute}, {"memory", &Sources::memory},
        {"cache", &Sources::cache}, {"link", &Sources::link},       {"power", &Sources::power}};
    std::vector<std::string_view> keys;
    for (const auto& [name, member] : groups) keys.push_back(name);
    reader_.each(node, "sources", keys, [&](std::string_view key, const YAML::Node& value) {
      for (const auto& [name, member] : groups)
        if (name == key) device.sources.*member = citations(value, fmt::format("sources.{}", key));
    });
  }

  void read_unusual(DeviceModel& device, const YAML::Node& node) {
    std::vector<std::string_view> keys;
    for (const DeviceField& field : device_fields()) keys.push_back(field.path);
    auto& all = file_.unusual.emplace_back();
    reader_.each(node, "unusual", keys, [&](std::string_view key, const YAML::Node& value) {
      all.push_back(
          {reader_.kept(std::string(key)), reader_.text(value, fmt::format("unusual.{}", key))});
    });
    device.unusual = all;
  }

  static std::vector<std::string_view> device_keys() {
    std::vector<std::string_view> keys;
    const auto add = [&](std::string_view path) {
      const std::string_view key = path.substr(0, path.find('.'));
      if (std::ranges::find(keys, key) == keys.end()) keys.push_back(key);
    };
    for (const DeviceField& field : device_fields()) add(field.path);
    keys.insert(keys.end(), std::begin(other_keys), std::end(other_keys));
    return keys;
  }
  static std::vector<std::string_view> keys_of(std::string_view group) {
    std::vector<std::string_view> keys;
    for (const DeviceField& field : device_fields())
      if (field.group() == group) keys.push_back(field.key());
    if (group == "measured") keys.emplace_back("sources");
    return keys;
  }

  DeviceFile file_;
  FieldReader reader_;
  std::span<const DeviceSource> known_;
  bool cites_all_;
  std::set<std::string_view> names_;  // ids and aliases so far
};
}  // namespace

DeviceFile read_devices(std::string_view yaml, const std::string& name,
                        std::span<const DeviceSource> known, bool cites_all) {
  return DeviceReader(name, known, cites_all).read(yaml);
}

}  // namespace weft::train
