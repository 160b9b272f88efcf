#include "weft/estimate/money.h"

#include <limits>

namespace weft::estimate {

double break_even_months(const Ownership& owned, double rent_per_hour, double hours_each_month) {
  const double saved = hours_each_month * (rent_per_hour - owned.per_hour_of_use) - owned.per_month;
  return saved > 0 ? owned.price / saved : std::numeric_limits<double>::infinity();
}

}  // namespace weft::estimate
