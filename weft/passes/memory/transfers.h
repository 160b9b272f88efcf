// Makes the launches that move values between memory and files, for offload, recompute and overlap.
#pragma once

#include "weft/ir/plan.h"

namespace weft {

// Makes a launch that copies all bytes of a slot: "store" to a file, "fetch" from one. `from` and
// `to` are of one value and have the same strides.
Launch make_transfer(const Plan& plan, const Access& from, const Access& to);
// Makes the launch that waits until the transfer has ended.
Launch make_await(const Plan& plan, const Launch& transfer);

// These return whether a transfer comes from a file, its slot in memory and its slot in a file.
bool is_fetch(const Plan& plan, const Launch& transfer);
int memory_slot(const Plan& plan, const Launch& transfer);
int file_slot(const Plan& plan, const Launch& transfer);

}  // namespace weft
