#include "weft/backends/cuda/nvml.h"

#include <array>
#include <utility>

#include "weft/backends/cuda/nvml_api.h"
#include "weft/backends/cuda/shared_library.h"
#include "weft/base/error.h"

namespace weft::cuda {
namespace {
using namespace nvml;

// Returns the causes of clock throttling as text.
std::string words_of(unsigned long long reasons) {
  constexpr std::pair<unsigned long long, const char*> known[] = {
      {power_limit_reason, "power limit"},
      {hardware_reason, "hardware"},
      {heat_reason, "heat"},
      {hardware_heat_reason, "heat"},
      {power_brake_reason, "power brake"}};
  std::string words;
  for (const auto& [bit, word] : known)
    if ((reasons & bit) != 0 && words.find(word) == std::string::npos)
      words += (words.empty() ? "" : ", ") + std::string(word);
  return words;
}
}  // namespace

struct Nvml::Library : nvml::Functions {
  SharedLibrary library{{"libnvidia-ml.so.1"}, "it comes with NVIDIA's driver."};

  Library() {
    library.find(init, "nvmlInit_v2");
    library.find(shutdown, "nvmlShutdown");
    library.find(error_text, "nvmlErrorString");
    library.find(driver_version, "nvmlSystemGetDriverVersion");
    library.find(count, "nvmlDeviceGetCount_v2");
    library.find(by_index, "nvmlDeviceGetHandleByIndex_v2");
    library.find(by_uuid, "nvmlDeviceGetHandleByUUID");
    library.find(name, "nvmlDeviceGetName");
    library.find(uuid, "nvmlDeviceGetUUID");
    library.find(capability, "nvmlDeviceGetCudaComputeCapability");
    library.find(memory, "nvmlDeviceGetMemoryInfo_v2");
    library.find(utilisation, "nvmlDeviceGetUtilizationRates");
    library.find(temperature, "nvmlDeviceGetTemperature");
    library.find(power, "nvmlDeviceGetPowerUsage");
    library.find(power_limit, "nvmlDeviceGetEnforcedPowerLimit");
    library.find(energy, "nvmlDeviceGetTotalEnergyConsumption");
    library.find(clock, "nvmlDeviceGetClockInfo");
    library.find(most_clock, "nvmlDeviceGetMaxClockInfo");
    library.find(processes, "nvmlDeviceGetComputeRunningProcesses_v3");
    library.find(memory_errors, "nvmlDeviceGetTotalEccErrors");
    library.find(slow_reasons, "nvmlDeviceGetCurrentClocksThrottleReasons");
    check(init(), "nvmlInit");
  }
  ~Library() { shutdown(); }
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  void check(int status, const char* call) const {
    if (status != 0) throw Error(ErrorKind::device, "[cuda] {}: {}.", call, error_text(status));
  }

  // Calls a function; nullopt where this GPU does not report the value.
  template <class T, class Function, class... Arguments>
  static std::optional<T> ask(Function* function, Gpu gpu, Arguments... arguments) {
    T value{};
    if (function(gpu, arguments..., &value) != 0) return std::nullopt;
    return value;
  }

  std::string text(int (*function)(Gpu, char*, unsigned), Gpu gpu) const {
    std::array<char, 96> buffer{};
    return function(gpu, buffer.data(), buffer.size()) == 0 ? buffer.data() : "";
  }

  GpuState::Clock clocks(Gpu gpu, int kind) const {
    return {ask<unsigned>(clock, gpu, kind).value_or(0),
            ask<unsigned>(most_clock, gpu, kind).value_or(0)};
  }

  std::vector<GpuProcess> processes_on(Gpu gpu) const {
    std::vector<Process> found(16);
    auto size = static_cast<unsigned>(found.size());
    int status = processes(gpu, &size, found.data());
    if (status == insufficient_size) {  // `size` is the count now; it may grow
      found.resize(size + 16);
      size = static_cast<unsigned>(found.size());
      status = processes(gpu, &size, found.data());
    }
    std::vector<GpuProcess> all;
    for (unsigned i = 0; status == 0 && i < size; ++i)
      all.push_back({found[i].pid,
                     found[i].bytes == no_bytes ? std::nullopt : std::optional(found[i].bytes)});
    return all;
  }

  DeviceMeters meters(Gpu gpu) const {
    DeviceMeters now;
    if (auto millijoules = ask<unsigned long long>(energy, gpu))
      now.joules = 1e-3 * static_cast<double>(*millijoules);
    if (auto milliwatts = ask<unsigned>(power, gpu)) now.watts = 1e-3 * *milliwatts;
    now.celsius = ask<unsigned>(temperature, gpu, die);
    now.slowed_by = words_of(ask<unsigned long long>(slow_reasons, gpu).value_or(0));
    return now;
  }

  GpuState state(Gpu gpu, const std::string& driver) const {
    GpuState state;
    state.name = text(name, gpu);
    state.uuid = text(uuid, gpu);
    state.driver = driver;
    int major = 0, minor = 0;
    if (capability(gpu, &major, &minor) == 0) state.capability = 10 * major + minor;
    if (Memory use; memory(gpu, &use) == 0) state.memory = {use.free, use.total};
    state.multiprocessors = clocks(gpu, multiprocessor_clock);
    state.memory_clock = clocks(gpu, memory_clock);
    if (auto busy = ask<Utilisation>(utilisation, gpu)) state.busy_percent = busy->gpu;
    if (auto milliwatts = ask<unsigned>(power_limit, gpu)) state.watt_limit = 1e-3 * *milliwatts;
    state.uncorrected_errors =
        ask<unsigned long long>(memory_errors, gpu, uncorrected, volatile_count);
    state.processes = processes_on(gpu);
    state.meters = meters(gpu);
    return state;
  }
};

Nvml::Nvml() : library_(std::make_unique<Library>()) {}
Nvml::~Nvml() = default;

std::vector<GpuState> Nvml::gpus() const {
  std::array<char, 96> driver{};
  library_->check(library_->driver_version(driver.data(), driver.size()),
                  "nvmlSystemGetDriverVersion");
  unsigned count = 0;
  library_->check(library_->count(&count), "nvmlDeviceGetCount");
  std::vector<GpuState> all;
  for (unsigned i = 0; i < count; ++i)
    if (Gpu gpu = nullptr; library_->by_index(i, &gpu) == 0)  // else lost or not accessible
      all.push_back(library_->state(gpu, driver.data()));
  return all;
}

DeviceMeters Nvml::meters(const std::string& uuid) const {
  Gpu gpu = nullptr;
  if (library_->by_uuid(uuid.c_str(), &gpu) != 0) return {};
  return library_->meters(gpu);
}

}  // namespace weft::cuda
