// The prelude of generated GPU kernels defines float64 arithmetic under one set of names: add_f64,
// less_f64, i32_to_f64, ... It uses the device's own instructions or, on devices that have none
// (Intel Arc, Apple's and most mobile ones), integers: IEEE 754 binary64, rounded to nearest even,
// with subnormal numbers. Results have the same bits in both, except that integers produce only one
// nan.
#pragma once

#include <string>
#include <string_view>

namespace weft::loop {

// Return C text that follows the definitions of integer types and f32.
std::string f64_of_device();    // OpenCL C and CUDA C
std::string f64_of_integers();  // OpenCL C

// Throws Error(usage) where the prelude has no function of that name.
void check_device_has(std::string_view function);

}  // namespace weft::loop
