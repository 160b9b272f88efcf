// Names the exit codes of weft that are not 0.
#pragma once

namespace weft::test {

inline constexpr int failed = 1, usage = 2, does_not_fit = 3, data_code = 4, checkpoint = 5,
                     not_finite = 6, device_code = 7, rank_lost = 8, replicas_differ = 9,
                     stopped = 75;

}  // namespace weft::test
