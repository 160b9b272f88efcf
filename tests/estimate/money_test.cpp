// Compares rent and purchase with two scenarios whose arithmetic was done by hand.
#include "weft/estimate/money.h"

#include <cmath>

#include <doctest/doctest.h>

using doctest::Approx;
using weft::estimate::break_even_months;

TEST_CASE("two cards of a small firm pay for themselves after 4,000 hours of rent at a dollar") {
  CHECK(break_even_months({.price = 4000}, 1, 1000) == Approx(4));
  CHECK(break_even_months({.price = 4000}, 1, 50) == Approx(80));
}

TEST_CASE("80 devices of a large firm do so after 4.4 years, and as many as it uses after months") {
  CHECK(break_even_months({.price = 800e3, .per_month = 5e3}, 2, 10'000) ==
        Approx(53.3).epsilon(1e-3));
  CHECK(break_even_months({.price = 180e3, .per_month = 18.0 / 80 * 5e3}, 2, 10'000) ==
        Approx(9.5).epsilon(5e-3));
  CHECK(break_even_months({.price = 661e3, .per_month = 5e3}, 2, 10'000) ==
        Approx(44).epsilon(5e-3));
  CHECK(break_even_months({.price = 661e3, .per_month = 5e3}, 3.9, 10'000) ==
        Approx(19.4).epsilon(5e-3));
}

TEST_CASE("power shortens what a purchase saves, and may eat it") {
  CHECK(break_even_months({.price = 36'719, .per_hour_of_use = 0.1}, 2.4, 1) ==
        Approx(15'965).epsilon(1e-3));
  CHECK(std::isinf(break_even_months({.price = 1, .per_hour_of_use = 2}, 2, 730)));
}
