// The GPUs of this machine, for `weft devices`.
#pragma once

#include <string>

#include <nlohmann/json_fwd.hpp>

namespace weft::cli {

// Every GPU of NVIDIA's driver and every OpenCL device, as --device has them, with what they are
// and how they do.
std::string gpus_text();
// {"gpus": [...], "opencl": [...]}; where there are none, "gpus_missing" and "opencl_missing" say
// why.
nlohmann::json gpus_json();

}  // namespace weft::cli
