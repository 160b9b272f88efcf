// Sums a column of a table of JSON rows.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

namespace weft::test {

template <class Rows>
double sum_of(const Rows& rows, const std::string& key) {
  double sum = 0;
  for (const nlohmann::json& row : rows) sum += row[key].get<double>();
  return sum;
}

}  // namespace weft::test
