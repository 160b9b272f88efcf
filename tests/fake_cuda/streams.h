// Streams that are as late as events allow: work is done when somebody waits for it, and no more of
// other streams' than it waits for itself.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

namespace fake {

using Work = std::function<void()>;

struct Context {
  int device = 0;
};

struct Stream;
struct Capture {
  std::vector<Stream*> streams;  // the one in which it began first, then those that joined it
  size_t tasks = 0;
  bool ended = false;
};

struct Task {
  Work what;                              // empty: only waits
  std::shared_ptr<Task> before, awaited;  // in its stream, and in another
  std::shared_ptr<Capture> capture;       // null: to be done once
  bool taken = false;
};

struct Stream {
  const Context* context = nullptr;
  bool is_first = false;  // of its context: the one of kernels
  std::shared_ptr<Task> last;
  std::shared_ptr<Task> last_outside;  // while it is part of a capture
  std::shared_ptr<Capture> capture;
};

void push(Stream& stream, Work what, std::shared_ptr<Task> awaited = nullptr);
// Calls `take` with all work up to there that nobody has taken yet, in the latest order.
void take_until(const std::shared_ptr<Task>& last, const std::function<void(Work&)>& take);
// A stream outside of any capture becomes part of this one.
void join(Stream& stream, const std::shared_ptr<Capture>& capture);
// The work of the capture that began in this stream, in the latest order; false: some of it is not
// awaited there.
bool end_capture(Stream& stream, std::vector<Work>& all);

}  // namespace fake
