#include "weft/base/host/energy.h"

#include <algorithm>
#include <filesystem>
#include <fstream>

namespace weft {
namespace {
std::optional<uint64_t> number_in(const std::string& path) {
  std::ifstream file(path);
  uint64_t number = 0;
  if (file >> number) return number;
  return std::nullopt;
}

// Returns whether a powercap zone is a package ("intel-rapl:0"). A package's counter includes the
// energy of its subzones ("intel-rapl:0:1").
bool is_package(const std::string& name) {
  return name.starts_with("intel-rapl:") && std::count(name.begin(), name.end(), ':') == 1;
}
}  // namespace

EnergyMeter::EnergyMeter(const std::string& folder) {
  std::error_code absent;
  for (const auto& entry : std::filesystem::directory_iterator(folder, absent)) {
    std::string path = entry.path().string();
    auto now = number_in(path + "/energy_uj");
    auto range = number_in(path + "/max_energy_range_uj");
    if (is_package(entry.path().filename().string()) && now && range)
      packages_.push_back({.counter = path + "/energy_uj", .range = *range, .last = *now});
  }
}

void EnergyMeter::read() {
  for (Package& package : packages_) {
    uint64_t now = number_in(package.counter).value_or(package.last);
    package.used += now >= package.last ? now - package.last : package.range - package.last + now;
    package.last = now;
  }
}

std::optional<double> EnergyMeter::joules() const {
  if (packages_.empty()) return std::nullopt;
  double sum = 0;
  for (const Package& package : packages_) sum += static_cast<double>(package.used);
  return sum / 1e6;
}

}  // namespace weft
