// Checks NVML's constants, structs and signatures against its header at compile time.
#include <cstddef>

#include <nvml.h>

#include "tests/cuda_headers/abi.h"
#include "weft/backends/cuda/nvml_api.h"

namespace cuda_headers {
namespace ours = weft::cuda::nvml;
using ours::Functions;

static_assert(NVML_SUCCESS == 0);
static_assert(ours::insufficient_size == NVML_ERROR_INSUFFICIENT_SIZE);
static_assert(ours::multiprocessor_clock == NVML_CLOCK_SM);
static_assert(ours::memory_clock == NVML_CLOCK_MEM);
static_assert(ours::die == NVML_TEMPERATURE_GPU);
static_assert(ours::uncorrected == NVML_MEMORY_ERROR_TYPE_UNCORRECTED);
static_assert(ours::volatile_count == NVML_VOLATILE_ECC);
static_assert(ours::no_bytes == static_cast<unsigned long long>(NVML_VALUE_NOT_AVAILABLE));
static_assert(ours::power_limit_reason == nvmlClocksThrottleReasonSwPowerCap);
static_assert(ours::hardware_reason == nvmlClocksThrottleReasonHwSlowdown);
static_assert(ours::heat_reason == nvmlClocksThrottleReasonSwThermalSlowdown);
static_assert(ours::hardware_heat_reason == nvmlClocksThrottleReasonHwThermalSlowdown);
static_assert(ours::power_brake_reason == nvmlClocksThrottleReasonHwPowerBrakeSlowdown);

static_assert(ours::Memory{}.version == nvmlMemory_v2);
static_assert(sizeof(ours::Memory) == sizeof(nvmlMemory_v2_t));
static_assert(offsetof(ours::Memory, total) == offsetof(nvmlMemory_v2_t, total));
static_assert(offsetof(ours::Memory, reserved) == offsetof(nvmlMemory_v2_t, reserved));
static_assert(offsetof(ours::Memory, free) == offsetof(nvmlMemory_v2_t, free));
static_assert(offsetof(ours::Memory, used) == offsetof(nvmlMemory_v2_t, used));
static_assert(sizeof(ours::Process) == sizeof(nvmlProcessInfo_t));
static_assert(offsetof(ours::Process, pid) == offsetof(nvmlProcessInfo_t, pid));
static_assert(offsetof(ours::Process, bytes) == offsetof(nvmlProcessInfo_t, usedGpuMemory));
static_assert(sizeof(ours::Utilisation) == sizeof(nvmlUtilization_t));
static_assert(offsetof(ours::Utilisation, gpu) == offsetof(nvmlUtilization_t, gpu));

static_assert(same_abi<decltype(Functions::init), decltype(&::nvmlInit_v2)>);
static_assert(same_abi<decltype(Functions::shutdown), decltype(&::nvmlShutdown)>);
static_assert(same_abi<decltype(Functions::error_text), decltype(&::nvmlErrorString)>);
static_assert(
    same_abi<decltype(Functions::driver_version), decltype(&::nvmlSystemGetDriverVersion)>);
static_assert(same_abi<decltype(Functions::count), decltype(&::nvmlDeviceGetCount_v2)>);
static_assert(same_abi<decltype(Functions::by_index), decltype(&::nvmlDeviceGetHandleByIndex_v2)>);
static_assert(same_abi<decltype(Functions::by_uuid), decltype(&::nvmlDeviceGetHandleByUUID)>);
static_assert(same_abi<decltype(Functions::name), decltype(&::nvmlDeviceGetName)>);
static_assert(same_abi<decltype(Functions::uuid), decltype(&::nvmlDeviceGetUUID)>);
static_assert(
    same_abi<decltype(Functions::capability), decltype(&::nvmlDeviceGetCudaComputeCapability)>);
static_assert(same_abi<decltype(Functions::memory), decltype(&::nvmlDeviceGetMemoryInfo_v2)>);
static_assert(
    same_abi<decltype(Functions::utilisation), decltype(&::nvmlDeviceGetUtilizationRates)>);
static_assert(same_abi<decltype(Functions::temperature), decltype(&::nvmlDeviceGetTemperature)>);
static_assert(same_abi<decltype(Functions::power), decltype(&::nvmlDeviceGetPowerUsage)>);
static_assert(
    same_abi<decltype(Functions::power_limit), decltype(&::nvmlDeviceGetEnforcedPowerLimit)>);
static_assert(
    same_abi<decltype(Functions::energy), decltype(&::nvmlDeviceGetTotalEnergyConsumption)>);
static_assert(same_abi<decltype(Functions::clock), decltype(&::nvmlDeviceGetClockInfo)>);
static_assert(same_abi<decltype(Functions::most_clock), decltype(&::nvmlDeviceGetMaxClockInfo)>);
static_assert(
    same_abi<decltype(Functions::processes), decltype(&::nvmlDeviceGetComputeRunningProcesses_v3)>);
static_assert(
    same_abi<decltype(Functions::memory_errors), decltype(&::nvmlDeviceGetTotalEccErrors)>);
static_assert(same_abi<decltype(Functions::slow_reasons),
                       decltype(&::nvmlDeviceGetCurrentClocksThrottleReasons)>);

}  // namespace cuda_headers
