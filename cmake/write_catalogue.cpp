// Writes the table of devices that libweft_core has, from catalogue/*.yaml, which it checks:
//
//   write_catalogue OUTPUT.cpp sources.yaml VENDOR.yaml...
//
// The program runs in the build, so that weft reads no YAML to know a device.
#include <cstdio>
#include <exception>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <string>

#include <fmt/format.h>

#include "weft/base/error.h"
#include "weft/device/device_fields.h"
#include "weft/train/catalogue/device_file.h"

namespace {
using namespace weft;

std::string quoted(std::string_view text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') result += '\\';
    result += c;
  }
  return result + "\"";
}

// Writes one file's devices. Lists are arrays of their own, which the devices view.
class Writer {
 public:
  std::string arrays, devices;

  Writer(const std::deque<DeviceSource>& sources) {
    std::string rows;
    for (const DeviceSource& source : sources) {
      index_[source.id] = index_.size();
      rows +=
          fmt::format("    {{{}, {}, {}, {}, {}, {}}},\n", quoted(source.id), quoted(source.title),
                      quoted(source.where), quoted(source.kind), quoted(source.note), source.seen);
    }
    arrays += fmt::format("constexpr DeviceSource sources[] = {{\n{}}};\n", rows);
  }

  void write(const DeviceModel& device) {
    std::string row = fmt::format("{{.id = {}, .name = {}", quoted(device.id), quoted(device.name));
    add(row, "aliases", texts(device.aliases));
    row += fmt::format(", .kind = DeviceKind::{}", name(device.kind));
    fields(row, device, "");
    if (device.capability > 0) row += fmt::format(", .capability = {}", device.capability);
    for (const char* group : {"units", "clock_mhz", "per_clock", "dense_tflops", "sparse_tflops",
                              "memory", "cache", "link", "power", "measured"})
      add(row, group, fields_of(device, group));
    add(row, "price", prices(device.price));
    add(row, "sources", citations(device.sources));
    std::string unusual;
    for (const auto& [field, why] : device.unusual)
      unusual += fmt::format("{{{}, {}}}, ", quoted(field), quoted(why));
    add(row, "unusual", array("DeviceModel::Unusual", unusual));
    add(row, "notes", texts(device.notes));
    devices += "    " + row + "},\n";
  }

 private:
  static void add(std::string& row, std::string_view member, const std::string& value) {
    if (!value.empty())
      row +=
          fmt::format("{}.{} = {}", row.empty() || row.ends_with('{') ? "" : ", ", member, value);
  }
  // Returns the name of an array of these items; "" for none.
  std::string array(std::string_view type, const std::string& items) {
    if (items.empty()) return "";
    const std::string name = fmt::format("list{}", ++count_);
    arrays += fmt::format("constexpr {} {}[] = {{{}}};\n", type, name, items);
    return name;
  }
  std::string texts(std::span<const std::string_view> list) {
    std::string items;
    for (const std::string_view text : list) items += quoted(text) + ", ";
    return array("std::string_view", items);
  }
  std::string cited(std::span<const DeviceSource* const> list) {
    std::string items;
    for (const DeviceSource* source : list) items += place(source) + ", ";
    return array("const DeviceSource* const", items);
  }
  std::string place(const DeviceSource* source) const {
    return fmt::format("&sources[{}]", index_.at(source->id));
  }

  // Adds the fields of a group, whose names are those of the members.
  void fields(std::string& row, const DeviceModel& device, std::string_view group) const {
    for (const DeviceField& field : device_fields()) {
      if (field.group() != group || field.path == "id" || field.path == "name") continue;
      if (const std::string_view text = field.text(device); !text.empty())
        add(row, field.key(), quoted(text));
      else if (const double number = field.number(device); number != 0)
        add(row, field.key(), fmt::format("{}", number));
    }
  }
  std::string fields_of(const DeviceModel& device, std::string_view group) {
    std::string row = "{";
    fields(row, device, group);
    if (group == "measured") add(row, "sources", cited(device.measured.sources));
    return row == "{" ? "" : row + "}";
  }

  std::string price(const Price& price) const {
    return fmt::format("{{{}, {}, {}, {}, {}}}", price.usd, quoted(price.provider),
                       quoted(price.date), place(price.source), price.spot);
  }
  std::string prices(std::span<const Price> list) {
    std::string items;
    for (const Price& each : list) items += price(each) + ", ";
    return array("Price", items);
  }
  std::string prices(const DeviceModel::Prices& all) {
    std::string row = "{";
    if (all.launch.usd > 0) add(row, "launch", price(all.launch));
    add(row, "purchase", prices(all.purchase));
    add(row, "rental", prices(all.rental));
    return row == "{" ? "" : row + "}";
  }
  std::string citations(const DeviceModel::Sources& all) {
    std::string row = "{";
    add(row, "chip", cited(all.chip));
    add(row, "compute", cited(all.compute));
    add(row, "memory", cited(all.memory));
    add(row, "cache", cited(all.cache));
    add(row, "link", cited(all.link));
    add(row, "power", cited(all.power));
    return row == "{" ? "" : row + "}";
  }

  std::map<std::string_view, size_t> index_;
  int count_ = 0;
};

std::string text_of(const char* path) {
  std::ifstream file(path);
  if (!file) throw Error(ErrorKind::usage, "cannot open {}.", path);
  return {std::istreambuf_iterator<char>(file), {}};
}

void write(const char* output, std::span<char*> inputs) {
  const train::DeviceFile first = train::read_devices(text_of(inputs[0]), inputs[0], {});
  const std::vector<DeviceSource> sources(first.sources.begin(), first.sources.end());
  Writer writer(first.sources);
  std::set<std::string> names;
  for (const char* path : inputs.subspan(1)) {
    const train::DeviceFile file = train::read_devices(text_of(path), path, sources, true);
    if (!file.sources.empty())
      throw Error(ErrorKind::usage, "{}: sources are in {}.", path, inputs[0]);
    for (const DeviceModel& device : file.devices) {
      std::vector<std::string_view> own(device.aliases.begin(), device.aliases.end());
      own.push_back(device.id);
      for (const std::string_view name : own)
        if (!names.insert(std::string(name)).second)
          throw Error(ErrorKind::usage, "{}: {} names a device of another file.", path, name);
      writer.write(device);
    }
  }
  std::ofstream file(output);
  file << "// Written by cmake/write_catalogue.cpp from catalogue/*.yaml.\n"
          "#include \"weft/device/device_model.h\"\n\nnamespace weft {\nnamespace {\n"
       << writer.arrays << "constexpr DeviceModel devices[] = {\n"
       << writer.devices
       << "};\n}  // namespace\n\nstd::span<const DeviceModel> shipped_devices() { return devices; "
          "}\n"
          "std::span<const DeviceSource> shipped_sources() { return sources; }\n\n}  // namespace "
          "weft\n";
  if (!file.flush()) throw Error(ErrorKind::usage, "cannot write {}.", output);
}
}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc < 4)
      throw Error(ErrorKind::usage, "write_catalogue OUTPUT.cpp sources.yaml VENDOR.yaml...");
    write(argv[1], std::span(argv + 2, argv + argc));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
