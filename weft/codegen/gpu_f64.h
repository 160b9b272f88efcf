// Arithmetic of float64 in the prelude of generated GPU kernels, under one set of names: add_f64,
// less_f64, i32_to_f64, ... By the device's own instructions, or, for devices that have none (Intel
// Arc, Apple's and most mobile ones), by integers: IEEE 754 binary64, rounded to the nearest with
// ties to even, subnormal numbers included. Results have the same bits in both, but for those of
// nan, of which integers make one only.
#pragma once

#include <string>
#include <string_view>

namespace weft::loop {

// C text; below the names of integers and f32.
std::string f64_of_device();    // OpenCL C and CUDA C
std::string f64_of_integers();  // OpenCL C

// Throws Error(usage) where the prelude has no function of that name.
void check_device_has(std::string_view function);

}  // namespace weft::loop
