// Lists the GPUs of this machine for `weft devices`.
#pragma once

#include <string>

#include <nlohmann/json_fwd.hpp>

namespace weft::cli {

// Lists every GPU of NVIDIA's driver and every OpenCL device by the names that --device takes, with
// properties and state.
std::string gpus_text();
// Returns {"gpus": [...], "opencl": [...]}; "gpus_missing" and "opencl_missing" give the reason
// where there are none.
nlohmann::json gpus_json();

}  // namespace weft::cli
