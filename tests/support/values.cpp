#include "tests/support/values.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "tests/support/rounding.h"
#include "weft/base/memory/buffer.h"
#include "weft/ops/ops.h"

namespace weft::testing {
namespace {
double random_element(DType dtype, double low, double high, Random& random) {
  if (dtype == DType::boolean) return static_cast<double>(random.below(2));
  if (is_float(dtype)) return low + (high - low) * random.unit();
  if (!has_sign(dtype)) low = std::max(low, 0.0);
  auto first = static_cast<int64_t>(std::ceil(low)), last = static_cast<int64_t>(std::floor(high));
  return static_cast<double>(random.between(first, std::max(first, last)));
}

Value random_slice(const Type& type, int axis, double low, double high, Random& random) {
  int64_t before = random.below(3), after = random.below(3), step = random.between(1, 3);
  int64_t extent = type.shape[axis];
  Type whole = type;
  whole.shape[axis] = before + extent * step + after;
  Value data = random_values(whole, low, high, random);
  return slice(data, axis, before, before + std::max<int64_t>(0, (extent - 1) * step + 1), step);
}

Value random_permutation_of_axes(const Type& type, double low, double high, Random& random) {
  std::vector<int64_t> order(type.shape.begin(), type.shape.end());
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int64_t>(i);
  std::shuffle(order.begin(), order.end(), random.bits);
  Type source = type;
  for (int i = 0; i < type.shape.size(); ++i)
    source.shape[static_cast<int>(order[static_cast<size_t>(i)])] = type.shape[i];
  return permute(random_values(source, low, high, random), Dims(order));
}
}  // namespace

Value random_values(const Type& type, double low, double high, Random& random) {
  auto buffer = Buffer::allocate(type.bytes());
  for (int64_t i = 0; i < type.elements(); ++i)
    store(buffer->data, type.dtype, i, random_element(type.dtype, low, high, random));
  return from_buffer(std::move(buffer), type);
}

Value random_view(const Type& type, double low, double high, Random& random) {
  int64_t kind = type.shape.empty() ? 0 : random.below(6);
  int axis = type.shape.empty() ? 0 : static_cast<int>(random.below(type.shape.size()));
  if (kind == 1) return random_slice(type, axis, low, high, random);
  if (kind == 2) return random_permutation_of_axes(type, low, high, random);
  if (kind == 3) return flip(random_values(type, low, high, random), {axis});
  if (kind == 4 && type.shape[axis] > 0) {
    Type source = type;
    source.shape[axis] = 1;
    return broadcast_to(random_values(source, low, high, random), type.shape);
  }
  return random_values(type, low, high, random);
}

std::vector<double> elements(const Value& data) {
  std::vector<double> result(static_cast<size_t>(data.elements()));
  for (int64_t i = 0; i < data.elements(); ++i)
    result[static_cast<size_t>(i)] = load(data->data(), data.dtype(), i);
  return result;
}

namespace {
// Returns the root mean square of the finite elements.
double typical_size(const std::vector<double>& numbers) {
  double squares = 0, count = 0;
  for (double x : numbers)
    if (std::isfinite(x)) squares += x * x, ++count;
  return count > 0 ? std::sqrt(squares / count) : 0;
}
}  // namespace

std::string difference(const Value& got, const Value& want, double tolerance) {
  if (tolerance == 0 || !is_float(want.dtype())) return bit_difference(got, want);
  std::vector<double> numbers = elements(want);
  const double typical = typical_size(numbers);
  std::vector<double> allowed;
  allowed.reserve(numbers.size());
  for (double x : numbers)
    allowed.push_back(std::isfinite(x) ? tolerance * (std::fabs(x) + typical) : 0);
  return difference(got, want, allowed);
}

std::string difference(const Value& got, const Value& want, std::span<const double> allowed) {
  if (got.type() != want.type())
    return fmt::format("type {} instead of {}", to_string(got.type()), to_string(want.type()));
  std::vector<double> a = elements(got), b = elements(want);
  const double a_third_of_digits = std::cbrt(unit_roundoff(want.dtype()));
  double worst = 0;  // excess over the allowed difference
  size_t at = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i]))) continue;
    const double bound = std::isfinite(allowed[i])
                             ? allowed[i]
                             : a_third_of_digits * (std::fabs(b[i]) + typical_size(b));
    double excess = std::fabs(a[i] - b[i]) - bound;
    if (!std::isfinite(excess)) excess = INFINITY;
    if (excess > worst) worst = excess, at = i;
  }
  if (worst <= 0) return "";
  return fmt::format("{}: element {} is {:.17g} instead of {:.17g} (off by {:.3g}, allowed {:.3g})",
                     to_string(want.type()), at, a[at], b[at], std::fabs(a[at] - b[at]),
                     allowed[at]);
}

std::string bit_difference(const Value& got, const Value& want) {
  if (got.type() != want.type())
    return fmt::format("type {} instead of {}", to_string(got.type()), to_string(want.type()));
  const std::byte *a = got->data(), *b = want->data();
  const size_t size = size_of(want.dtype());
  for (int64_t i = 0; i < want.elements(); ++i) {
    const size_t at = static_cast<size_t>(i) * size;
    if (std::memcmp(a + at, b + at, size) == 0) continue;
    const double x = load(a, want.dtype(), i), y = load(b, want.dtype(), i);
    if (std::isnan(x) && std::isnan(y)) continue;  // IEEE 754 leaves sign and payload open
    return fmt::format("{}: element {} is {:.17g} instead of {:.17g}, to the bit",
                       to_string(want.type()), i, x, y);
  }
  return "";
}
}  // namespace weft::testing
