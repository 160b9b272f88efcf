// Every call of OpenCL, and of CLBlast, goes through here.
#pragma once

#include <string>
#include <string_view>

namespace weft::opencl {

// By the name that the code has in CL/cl.h: "CL_OUT_OF_RESOURCES"; else its number.
std::string error_name(int status);

// Throws Error(device) where a call failed.
void check(int status, std::string_view call);

}  // namespace weft::opencl
