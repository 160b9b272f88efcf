#include "weft/backends/cuda/cuda_query.h"

#include <array>

#include <fmt/format.h>

#include "weft/backends/cuda/cublaslt.h"
#include "weft/backends/cuda/cuda_backend.h"
#include "weft/backends/cuda/cuda_device.h"
#include "weft/backends/cuda/driver.h"
#include "weft/base/error.h"
#include "weft/base/logging.h"

namespace weft::cuda {
namespace {
constexpr int least_capability = 75;  // oldest target of CUDA 13
}  // namespace

std::string uuid_of(int device) {
  std::array<unsigned char, 16> bytes{};
  driver().check(driver().cuDeviceGetUuid(bytes.data(), device), "cuDeviceGetUuid");
  std::string text = "GPU-";
  for (size_t i = 0; i < bytes.size(); ++i)
    text += fmt::format("{}{:02x}", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", bytes[i]);
  return text;
}

int device_at(int number) {
  const Driver& api = driver();
  int count = 0, device = 0;
  api.check(api.cuDeviceGetCount(&count), "cuDeviceGetCount");
  if (count == 0)
    throw Error(ErrorKind::device,
                "[cuda] the driver shows no GPU (CUDA_VISIBLE_DEVICES may hide it). Hint: train "
                "with --device cpu.");
  if (number >= count)
    throw Error(ErrorKind::device,
                "[cuda] no GPU has the number {}: the driver shows {}, numbered from 0.", number,
                count);
  api.check(api.cuDeviceGet(&device, number), "cuDeviceGet");
  return device;
}

int value_of(int device, int attribute) {
  int value = 0;
  driver().check(driver().cuDeviceGetAttribute(&value, attribute, device), "cuDeviceGetAttribute");
  return value;
}

int capability_of(int device) {
  return 10 * value_of(device, attribute::capability_major) +
         value_of(device, attribute::capability_minor);
}

std::string name_of(int device) {
  std::array<char, 256> text{};
  driver().check(driver().cuDeviceGetName(text.data(), static_cast<int>(text.size()), device),
                 "cuDeviceGetName");
  return text.data();
}

int checked_capability(int device) {
  const int capability = capability_of(device);
  if (capability < least_capability)
    throw Error(ErrorKind::device,
                "[cuda] {} has compute capability {}.{}, weft needs {}.{} or later. Hint: train "
                "with --device cpu.",
                name_of(device), capability / 10, capability % 10, least_capability / 10,
                least_capability % 10);
  return capability;
}

void check_libraries(const Nvrtc& compiler) {
  const int known = driver().version / 1000, made = compiler.version() / 1000;
  if (made > known)
    throw Error(ErrorKind::device,
                "[cuda] the driver is too old for the compiler (NVRTC) that was found: it supports "
                "CUDA {}, NVRTC compiles for CUDA {}. Hint: WEFT_CUDA_PATH selects another.",
                known, made);
  const cublaslt::Library& products = cublaslt::library();
  if (const int needed = products.cuda(); needed > known)
    throw Error(ErrorKind::device,
                "[cuda] the driver is too old for {}: it supports CUDA {}, the library needs CUDA "
                "{}. Hint: WEFT_CUDA_PATH selects another.",
                products.library.path(), known, needed);
}

std::string why_unusable(int number) {
  try {
    checked_capability(device_at(number));
    check_libraries(Nvrtc());
    return "";
  } catch (const Error& reason) {
    return reason.what();
  }
}

bool has_device() {
  const std::string why = why_unusable();
  if (why.empty()) return true;
  if (compute_capability() > 0)
    logging::warn("--device auto uses the CPU, not the GPU. {}", why);
  else
    logging::debug(1, "{}", why);
  return false;
}

int compute_capability(int number) {
  try {
    return capability_of(device_at(number));
  } catch (const Error& none) {
    logging::debug(1, "{}", none.what());
    return 0;
  }
}

std::vector<std::string> uuids() {
  std::vector<std::string> all;
  try {
    const Driver& api = driver();
    int count = 0, device = 0;
    api.check(api.cuDeviceGetCount(&count), "cuDeviceGetCount");
    for (int number = 0; number < count; ++number) {
      api.check(api.cuDeviceGet(&device, number), "cuDeviceGet");
      all.push_back(uuid_of(device));
    }
  } catch (const Error& none) {
    logging::debug(1, "{}", none.what());
  }
  return all;
}

int device_count() { return static_cast<int>(uuids().size()); }

}  // namespace weft::cuda
