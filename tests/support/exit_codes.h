// Names the exit codes of weft's errors.
#pragma once

namespace weft::test {

inline constexpr int failed = 1, usage = 2, does_not_fit = 3, data_code = 4, checkpoint = 5,
                     not_finite = 6, device = 7;

}  // namespace weft::test
