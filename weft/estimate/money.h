// Compares renting a device with buying it.
#pragma once

namespace weft::estimate {

// What a device costs its owner, in any one currency.
struct Ownership {
  double price = 0;
  double per_hour_of_use = 0;  // power and cooling
  double per_month = 0;        // staff, space
};
inline constexpr double hours_per_month = 730;

// Returns the months after which an owner, who uses the device for so many hours of each, has paid
// what rent would have cost; infinity where it never is.
double break_even_months(const Ownership& owned, double rent_per_hour, double hours_each_month);

}  // namespace weft::estimate
