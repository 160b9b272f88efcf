// Simulates the management library: the functions of weft/backends/cuda/nvml.cpp.
#include <cstdint>
#include <cstring>
#include <string>

#include "tests/fake_cuda/fake.h"

namespace {
using Gpu = void*;
constexpr int not_found = 6, insufficient_size = 7, driver_not_loaded = 9;

struct Memory {
  unsigned version;
  unsigned long long total, reserved, free, used;
};
struct Process {
  unsigned pid;
  unsigned long long bytes;
  unsigned gpu_instance, compute_instance;
};
struct Utilisation {
  unsigned gpu, memory;
};

// A handle is the driver's number of the GPU plus one.
Gpu handle_of(int number) { return reinterpret_cast<Gpu>(static_cast<intptr_t>(number) + 1); }
int number_of(Gpu gpu) { return static_cast<int>(reinterpret_cast<intptr_t>(gpu)) - 1; }
int all_gpus() {
  return static_cast<int>(fake::number("FAKE_CUDA_DEVICES", 1) +
                          fake::number("FAKE_CUDA_HIDDEN", 0));
}
std::string uuid_text(int number) {
  const int byte = fake::uuid_byte(number);
  std::string text = "GPU-";
  for (int i = 0; i < 16; ++i) {
    constexpr const char* digits = "0123456789abcdef";
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += digits[byte / 16];
    text += digits[byte % 16];
  }
  return text;
}
template <class T>
int give(T* to, T value) {
  *to = value;
  return 0;
}
int write_text(char* to, unsigned bytes, const std::string& text) {
  if (text.size() >= bytes) return insufficient_size;
  std::strcpy(to, text.c_str());
  return 0;
}
}  // namespace

extern "C" {
int nvmlInit_v2() { return fake::number("FAKE_NVML_FAILS", 0) != 0 ? driver_not_loaded : 0; }
int nvmlShutdown() { return 0; }
const char* nvmlErrorString(int status) {
  return status == driver_not_loaded ? "Driver Not Loaded" : "Unknown Error";
}
int nvmlSystemGetDriverVersion(char* version, unsigned bytes) {
  return write_text(version, bytes, "580.95.05");
}
int nvmlDeviceGetCount_v2(unsigned* count) {
  return give(count, static_cast<unsigned>(all_gpus()));
}
// Indices are reversed relative to the driver's.
int nvmlDeviceGetHandleByIndex_v2(unsigned index, Gpu* gpu) {
  return give(gpu, handle_of(all_gpus() - 1 - static_cast<int>(index)));
}
int nvmlDeviceGetHandleByUUID(const char* uuid, Gpu* gpu) {
  for (int number = 0; number < all_gpus(); ++number)
    if (uuid == uuid_text(number)) return give(gpu, handle_of(number));
  return not_found;
}
int nvmlDeviceGetName(Gpu, char* name, unsigned bytes) {
  return write_text(name, bytes, fake::name());
}
int nvmlDeviceGetUUID(Gpu gpu, char* uuid, unsigned bytes) {
  return write_text(uuid, bytes, uuid_text(number_of(gpu)));
}
int nvmlDeviceGetCudaComputeCapability(Gpu, int* major, int* minor) {
  *minor = 0;
  return give(major, 9);
}
int nvmlDeviceGetMemoryInfo_v2(Gpu, Memory* memory) {
  constexpr unsigned version = 2U << 24 | sizeof(Memory);
  if (memory->version != version) return 25;  // NVML_ERROR_ARGUMENT_VERSION_MISMATCH
  *memory = {version, fake::memory(), 0, fake::memory() - fake::held(), fake::held()};
  return 0;
}
int nvmlDeviceGetUtilizationRates(Gpu, Utilisation* rates) {
  *rates = {37, 12};
  return 0;
}
int nvmlDeviceGetTemperature(Gpu, int, unsigned* celsius) { return give(celsius, 41U); }
int nvmlDeviceGetPowerUsage(Gpu, unsigned* milliwatts) { return give(milliwatts, 123400U); }
int nvmlDeviceGetEnforcedPowerLimit(Gpu, unsigned* milliwatts) { return give(milliwatts, 700000U); }
int nvmlDeviceGetTotalEnergyConsumption(Gpu, unsigned long long* millijoules) {
  static unsigned long long asked = 0;
  return give(millijoules,
              5000000ULL + 250 * asked++);  // a quarter of a joule between two readings
}
int nvmlDeviceGetClockInfo(Gpu, int kind, unsigned* mhz) {
  return give(mhz, kind == 1 ? 1755U : 3201U);
}
int nvmlDeviceGetMaxClockInfo(Gpu, int kind, unsigned* mhz) {
  return give(mhz, kind == 1 ? 1980U : 3201U);
}
int nvmlDeviceGetComputeRunningProcesses_v3(Gpu, unsigned* count, Process* processes) {
  const unsigned running = fake::held() > 0 ? 1 : 0;
  if (*count < running) {
    *count = running;
    return insufficient_size;
  }
  *count = running;
  if (running > 0) processes[0] = {4242424, fake::held(), ~0U, ~0U};
  return 0;
}
int nvmlDeviceGetTotalEccErrors(Gpu, int, int, unsigned long long* errors) {
  return give(errors, 0ULL);
}
int nvmlDeviceGetCurrentClocksThrottleReasons(Gpu, unsigned long long* reasons) {
  return give(reasons, 0x4ULL);  // the power limit
}
}
