// Tests the catalogue of devices: the facts of the shipped files by arithmetic, and files with
// mistakes.
#include "weft/device/catalogue.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <string>

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "tests/support/near.h"
#include "weft/base/error.h"
#include "weft/device/device_fields.h"
#include "weft/io/files.h"
#include "weft/train/catalogue/device_file.h"

using namespace weft;
using weft::testing::near;

namespace {
// A device with every check that arithmetic can make.
const std::string valid = R"(sources:
  sheet: {title: The data sheet, where: in a drawer}
devices:
- id: big-1
  name: Big One
  aliases: [big]
  kind: gpu
  vendor: NVIDIA
  year: 2022
  compute_capability: 9.0
  units: {processors: 100, processor: SM, cores: 12800, matrix_units: 400}
  clock_mhz: {base: 1000, boost: 2000, matrix: 1800}
  per_clock: {f32: 256, f16: 4096}
  dense_tflops: {f64: 25.6, f32: 51.2, tf32: 368.6, f16: 737.3, bf16: 737.3, f8: 1474.6}
  sparse_tflops: {f16: 1474.6, f8: 2949}
  memory: {label_gb: 80, reported_gib: 79, kind: HBM3, bus_bits: 5120, gb_per_s: 3350}
  power: {watts: 700, term: TDP}
  measured: {bf16_tflops: 600, gb_per_s: 3000, condition: large, sources: [sheet]}
  price:
    launch: {usd: 30000, date: 2022-10, source: sheet}
    rental:
    - {usd_per_hour: 2.5, provider: Cloud, date: 2026-08-19, source: sheet, spot: true}
  sources: {chip: [sheet], compute: [sheet], memory: [sheet], power: [sheet]}
  notes:
  - Not so big.
)";

std::string refusal_of(const std::string& text) {
  try {
    train::read_devices(text, "mine.yaml", {}, true);
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::usage);
    return error.what();
  }
  return "";
}
// Returns the refusal of the valid file with one change.
std::string refusal_of(const std::string& from, const std::string& to) {
  std::string text = valid;
  const size_t at = text.find(from);
  REQUIRE_MESSAGE(at != std::string::npos, from);
  return refusal_of(text.replace(at, from.size(), to));
}
}  // namespace

TEST_CASE("a file of devices gives every figure, text, price and source") {
  const train::DeviceFile file = train::read_devices(valid, "mine.yaml", {}, true);
  REQUIRE(file.devices.size() == 1);
  const DeviceModel& device = file.devices.front();
  CHECK(device.id == "big-1");
  CHECK(device.aliases[0] == "big");
  CHECK(device.capability == 90);
  CHECK(device.units.processor == "SM");
  CHECK(device.dense_tflops.bf16 == 737.3);
  CHECK(device.dense_tflops.i8 == 0);  // unknown
  CHECK(device.sparse_tflops.f8 == 2949);
  CHECK(device.price.launch.usd == 30000);
  const Price& rent = device.price.rental[0];
  CHECK(rent.spot);
  CHECK(rent.date == "2026-08-19");
  CHECK(rent.source->title == "The data sheet");
  CHECK(device.notes[0] == "Not so big.");
  CHECK(has_kernels(device));
}

TEST_CASE(
    "a catalogue file with a mistake is refused in one line with file, line, field and limit") {
  struct Mistake {
    std::string from, to, said;
  };
  const Mistake mistakes[] = {
      {"gb_per_s: 3350", "gb_per_sec: 3350",
       "mine.yaml:16: big-1: memory.gb_per_sec is no field. Did you mean gb_per_s?"},
      {"boost: 2000", "boost: 2.0", "clock_mhz.boost must be in 50 .. 10000 (MHz). Got 2.0."},
      {"gb_per_s: 3350", "gb_per_s: 3.35e12",
       "memory.gb_per_s must be in 0.5 .. 50000 (10^9 bytes a second). Got 3.35e12."},
      {"label_gb: 80", "label_gb: 80e9", "memory.label_gb must be in 0.125 .. 16384"},
      {"label_gb: 80", "label_gb: -80", "Got -80."},
      {"label_gb: 80", "label_gb: 0", "Got 0. Hint: leave out what is unknown."},
      {"reported_gib: 79", "reported_gib: 85",
       "memory.reported_gib is 85, and the label says 80 GB."},
      {"gb_per_s: 3350", "gb_per_s: 335", "0.52 Gbit/s for each of 5120 pins"},
      {"label_gb: 80, reported_gib: 79, kind: HBM3, bus_bits: 5120, gb_per_s: 3350",
       "label_gb: 80, gb_per_s: 33.5", "80 GB would be read in 2.4 s, not in 0.001 to 1."},
      {"dense_tflops: {f64: 25.6, f32: 51.2, tf32: 368.6, f16: 737.3",
       "dense_tflops: {f64: 25.6, f32: 51.2, tf32: 368.6, f16: 1474.6",
       "sparse_tflops.f16 is 1474.6, not twice the dense peak of 1474.6, which looks like a sparse "
       "figure."},
      {"sparse_tflops: {f16: 1474.6, f8: 2949}", "sparse_tflops: {f16: 700}",
       "sparse_tflops.f16 is 700, less than the dense peak of 737.3."},
      {"sparse_tflops: {f16", "sparse_tflops: {i8: 2949, f16",
       "sparse_tflops.i8 is 2949, and the dense peak is missing."},
      {"f64: 25.6, f32: 51.2, tf32", "f64: 25.6, f32: 67, tf32",
       "dense_tflops.f32 is 67, but 100 processors x 256 x 2000 MHz are 51.2."},
      {"f64: 25.6", "f64: 52.8", "dense_tflops.f64 is 52.8, above the 51.2 of f32."},
      {"cores: 12800", "cores: 14400",
       "units.cores is 14400, but 100 processors of 128 have 12800."},
      {"watts: 700", "watts: 70", "10.5 a watt, not 3.2 at most."},
      {"bf16_tflops: 600", "bf16_tflops: 800",
       "measured.bf16_tflops is 800, above the peak of 737.3."},
      {", date: 2022-10", "", "price.launch has no date."},
      {"date: 2022-10", "date: last year",
       "must be as 2026-08-19, 2026-08 or 2026. Got 'last year'."},
      {", source: sheet, spot: true", "", "price.rental has no source."},
      {"usd_per_hour: 2.5", "usd: 2.5", "price.rental.usd is no field. Did you mean usd_per_hour?"},
      {"memory: [sheet]", "memory: [shet]",
       "sources.memory 'shet' is no source. Did you mean sheet?"},
      {"compute: [sheet], ", "", "dense_tflops.f64 is given, and sources.compute names no source."},
      {"  kind: gpu\n", "", "kind is missing."},
      {"  name: Big One\n", "", "name is missing."},
      {"  name: Big One\n", "  name: null\n", "name must not be null."},
      {"  name: Big One\n", "  name: \"Big\\eOne\"\n", "name has control characters."},
      {"kind: gpu", "kind: gpus", "kind must be gpu, cpu, tpu, npu, asic or soc. Got 'gpus'."},
      {"processors: 100", "processors: 99.5",
       "units.processors must be a whole number. Got '99.5'."},
      {"processors: 100", "processors: many", "units.processors must be a number. Got 'many'."},
      {"aliases: [big]", "aliases: [big, big]",
       "aliases 'big' already names a device of this file."},
      {"id: big-1", "id: 8", "id must be lower-case letters, digits, '-' and '.'. Got '8'."},
      {"id: big-1", "id: cpu", "id must not be cpu, which --on has a meaning for."},
      {"notes:\n  - Not so big.", "notes: Not so big.", "notes must be a list. Got 'Not so big.'."},
      {"power: {watts: 700, term: TDP}", "power: 700", "power must be a map. Got '700'."},
      {"power: {watts: 700, term: TDP}", "power: {}",
       "power is empty. Hint: null says that nothing is known."},
      {"devices:\n", "device:\n", "device is no field. Did you mean devices?"},
  };
  for (const Mistake& mistake : mistakes) {
    const std::string said = refusal_of(mistake.from, mistake.to);
    CHECK_MESSAGE(said.find(mistake.said) != std::string::npos, said);
    CHECK(said.starts_with("mine.yaml:"));
    CHECK(said.find('\n') == std::string::npos);
  }
  CHECK(refusal_of("devices:\n- id: a\n  name: A\n  kind: npu\n  dense_tflops: null\n") ==
        "mine.yaml:2: a: memory is missing. Hint: null says that nothing is known.");
  CHECK(refusal_of(
            "devices:\n- id: a\n  name: A\n  kind: npu\n  dense_tflops: null\n  memory: null\n") ==
        "");
  // What is unusual is said to be, with its reason, and is no mistake then.
  CHECK(refusal_of("  notes:", "  unusual: {dense_tflops.f64: tried it}\n  notes:") == "");
  std::string text = valid;
  text.replace(text.find("f64: 25.6"), 9, "f64: 52.8");
  text.replace(text.find("  notes:"), 8, "  unusual: {dense_tflops.f64: tried it}\n  notes:");
  CHECK(refusal_of(text) == "");
}

TEST_CASE("the shipped devices are those of the files, with known facts") {
  CHECK(shipped_devices().size() >= 107);
  std::set<const DeviceSource*> cited;
  for (const DeviceModel& device : shipped_devices()) {
    CAPTURE(device.id);
    for (const auto& group :
         {device.sources.chip, device.sources.compute, device.sources.memory, device.sources.cache,
          device.sources.link, device.sources.power, device.measured.sources})
      cited.insert(group.begin(), group.end());
    for (const auto& list : {device.price.purchase, device.price.rental})
      for (const Price& price : list) cited.insert(price.source);
    if (device.price.launch.source != nullptr) cited.insert(device.price.launch.source);
    for (const std::string_view note : device.notes) CHECK(note.ends_with('.'));
  }
  for (const DeviceSource& source : shipped_sources()) {
    CAPTURE(source.id);
    CHECK(cited.contains(&source));
  }
  // The arithmetic of corrections to well-known tables.
  const DeviceModel& h100 = *find_device("h100");
  CHECK(132 * 128 * 2 * 1.98e-3 == near(h100.dense_tflops.f32, 0.01));
  CHECK(132 * 4096 * 1.83e-3 == near(h100.dense_tflops.bf16, 0.01));
  CHECK(2 * h100.dense_tflops.bf16 == near(h100.sparse_tflops.bf16, 0.01));
  CHECK(18 * 25 == h100.link.peer_gb_per_s);                 // NVLink 4, one direction
  CHECK(find_device("b200")->units.cores == 148 * 128);      // not the 18,432 of GH100
  CHECK(find_device("mi300x")->units.cores == 304 * 64);     // not 19,200
  CHECK(find_device("l4")->units.processors * 128 == 7424);  // not 60 multiprocessors
  CHECK(find_device("epyc-9654")->memory.gb_per_s == near(12 * 8 * 4.8, 1e-9));
  CHECK(find_device("v100-32gb")->id == "v100");
  // Arrays of multiply-adds on the units of a TPU: cores x units x side^2 x 2 x clock.
  const auto tpu = [](const char* id, double units, double ghz) {
    const DeviceModel& device = *find_device(id);
    return units * device.units.array * device.units.array * 2 * ghz * 1e-3 ==
           near(device.dense_tflops.bf16, 0.01);
  };
  CHECK(tpu("tpu-v3", 4, 0.94));
  CHECK(tpu("tpu-v4", 8, 1.05));
  CHECK(tpu("tpu-v5e", 4, 1.5));
  CHECK(tpu("tpu-v5p", 8, 1.75));
}

TEST_CASE("an added device takes the place of one with its id") {
  static const train::DeviceFile file = train::read_devices(valid, "mine.yaml", {});
  const size_t before = device_models().size();
  CHECK(add_devices(file.devices).empty());
  CHECK(find_device("BIG")->id == "big-1");
  CHECK(find_gpu_of_driver("Big One") == &file.devices.front());
  CHECK(add_devices(file.devices) == std::vector<std::string_view>{"big-1"});
  CHECK(device_models().size() == before + 1);
}
