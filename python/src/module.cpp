// The extension module weft._weft: the library as Python sees it. The package weft adds what is
// written in Python.
#include "weft/base/host/parallel.h"
#include "weft/base/version.h"
#include "weft/weft.h"

#include "python/src/bind.h"

namespace weft::python {
namespace {
// Runs the program, as on the command line, and returns its exit code.
int run_program(const std::vector<std::string>& arguments) {
  std::vector<std::string> held = arguments;
  std::vector<char*> argv;
  for (std::string& each : held) argv.push_back(each.data());
  argv.push_back(nullptr);
  return weft::main(static_cast<int>(held.size()), argv.data());
}
}  // namespace
}  // namespace weft::python

NB_MODULE(_weft, m) {
  using namespace weft::python;
  // torch keeps compiled graphs until the process ends, which is no leak of this module.
  nb::set_leak_warnings(false);
  bind_errors(m);
  bind_tensors(m);
  bind_numbers(m);
  bind_elementwise(m);
  bind_arrangement(m);
  bind_layers(m);
  bind_steps(m);
  bind_exchange(m);
  bind_planning(m);
  bind_devices(m);
  bind_export(m);
  bind_optimizers(m);
  bind_modules(m);
  bind_files(m);
  bind_data(m);
  bind_models(m);
  bind_training(m);
  m.attr("__version__") = std::string(weft::version::number);
  m.def("thread_count", &weft::thread_count);
  m.def("set_thread_count", &weft::set_thread_count, nb::arg("count"));
  m.def("main", &run_program, nb::arg("arguments"));
}
