// Checks the status of all calls of OpenCL and CLBlast.
#pragma once

#include <string>
#include <string_view>

namespace weft::opencl {

// Returns the code's name in CL/cl.h: "CL_OUT_OF_RESOURCES"; else "code" and its number.
std::string error_name(int status);

// Throws Error(device) unless `status` is 0.
void check(int status, std::string_view call);

}  // namespace weft::opencl
