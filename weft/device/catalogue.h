// Declares the catalogue of devices: those that are shipped (catalogue/*.yaml), and those that the
// user adds.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weft/device/device_model.h"
#include "weft/device/spec.h"

namespace weft {

// Returns all devices. Those of a later add_devices() are at the end, and no pointer changes.
std::span<const DeviceModel* const> device_models();
// Adds devices that live as long as the process, in place of those of the same id. Returns the ids
// that were replaced. Not thread-safe: programs add devices before they plan.
std::vector<std::string_view> add_devices(std::span<const DeviceModel> devices);

// Finds a device by id or alias, ignoring case; null: not in the catalogue.
const DeviceModel* find_device(std::string_view id);
// Returns whether weft has kernels for a device: it is a GPU with tensor cores of NVIDIA's.
bool has_kernels(const DeviceModel& device);
// Finds a device that weft has kernels for, by id or alias, or by its driver's name.
const DeviceModel* find_gpu(std::string_view id);
const DeviceModel* find_gpu_of_driver(std::string_view name);
// Returns what to say of a name that is no machine: the nearest that is, or where they are listed.
std::string machine_hint(std::string_view name);

// Planned times use the data sheet's peaks; the spec has the measured peaks beside them.
MachineSpec spec_of(const DeviceModel& device);

// Returns a rough ratio of arithmetic to bandwidth for any CPU, so that plans for the host do not
// depend on the machine. Times use measured peaks, as CPUs have no data sheets with peaks.
const MachineSpec& processor_spec();

}  // namespace weft
