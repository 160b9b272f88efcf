// Devices: what this machine has, what the catalogue knows, and where values are computed.
#include "weft/tensor/device.h"

#include "python/src/bind.h"
#include "python/src/step.h"

namespace weft::python {
namespace {
// Computes on a device between __enter__ and __exit__.
struct Scope {
  Device device;
  std::unique_ptr<DeviceScope> entered = nullptr;
};
}  // namespace

void bind_devices(nb::module_& m) {
  nb::class_<Device>(m, "Device", "A device of this machine, or of the catalogue: \"h100\".")
      .def(nb::init<std::string>(), "name"_a)
      .def_prop_ro("name", &Device::name)
      .def_prop_ro("model", &Device::model)
      .def_prop_ro("is_present", &Device::is_present, "Whether steps can run on it now.")
      .def_prop_ro("memory_bytes", &Device::memory_bytes,
                   "Bytes that plans may use; of an absent device, those of its data sheet.")
      .def("__repr__", [](const Device& device) { return "Device('" + device.name() + "')"; });
  m.def(
      "devices",
      [] {
        check_process();
        return devices();
      },
      "Returns the devices that can run steps here.");
  nb::class_<Scope>(m, "DeviceScope",
                    "Between `with DeviceScope(\"cuda\"):` and its end, values that are read are "
                    "computed on that device.")
      .def(
          "__init__",
          [](Scope* self, const std::string& device) { new (self) Scope{Device(device)}; },
          "device"_a)
      .def("__enter__",
           [](Scope& self) {
             check_process();
             self.entered = std::make_unique<DeviceScope>(self.device);
           })
      .def("__exit__", [](Scope& self, const nb::args&) { self.entered.reset(); });
}

}  // namespace weft::python
