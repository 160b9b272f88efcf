// Joins the ranks that a launcher started to a world (weft/device/world.h).
#pragma once

#include "weft/comm/judge.h"

namespace weft::comm {

struct JoinOptions {
  Patience patience = {};
  double start_seconds = 120;  // in which all ranks must come
  double quiet_seconds = 5;    // of these, until a rank says what it waits for
};

// Makes the ranks of a run the world() of this process, where a launcher started it as one of
// several, and waits until all have come. Does nothing otherwise. Throws Error(usage) where
// launchers disagree or the port is taken, and Error(rank_lost) where a rank does not come.
void join(const JoinOptions& options = {});

}  // namespace weft::comm
