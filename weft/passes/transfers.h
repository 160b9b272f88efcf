// Steps that move values between memory and files: shared by offload, recompute and overlap.
#pragma once

#include "weft/ir/plan.h"

namespace weft {

// Moves all bytes of a slot: `from` and `to` are of one value and lie alike. "store" to a file,
// "fetch" from there.
Step make_transfer(const Plan& plan, const Access& from, const Access& to);
// Waits for the transfer's end.
Step make_await(const Plan& plan, const Step& transfer);

// Of a transfer: whether it comes from a file; the slot in memory and the one in a file.
bool is_fetch(const Plan& plan, const Step& transfer);
int memory_slot(const Plan& plan, const Step& transfer);
int file_slot(const Plan& plan, const Step& transfer);

}  // namespace weft
