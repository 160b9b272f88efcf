// Declares streams that run as late as events allow: work is done when somebody waits for it, with
// only as much of other streams' work as it waits for itself.
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
  std::vector<Stream*> streams;  // the stream in which it began, then those that joined it
  size_t tasks = 0;
  bool ended = false;
};

struct Task {
  Work what;                              // empty: a task that only waits
  std::shared_ptr<Task> before, awaited;  // in its stream, and in another
  std::shared_ptr<Capture> capture;       // null: runs once
  bool taken = false;
};

struct Stream {
  const Context* context = nullptr;
  bool is_first = false;  // of its context: the stream of kernels
  std::shared_ptr<Task> last;
  std::shared_ptr<Task> last_outside;  // saved while it is part of a capture
  std::shared_ptr<Capture> capture;
};

void push(Stream& stream, Work what, std::shared_ptr<Task> awaited = nullptr);
// Calls `take` with all untaken work up to `last`, in the latest possible order.
void take_until(const std::shared_ptr<Task>& last, const std::function<void(Work&)>& take);
// Adds a stream outside any capture to this capture.
void join(Stream& stream, const std::shared_ptr<Capture>& capture);
// Collects the work of the capture that began in this stream, in the latest possible order. Returns
// false if the stream does not await all of it.
bool end_capture(Stream& stream, std::vector<Work>& all);

}  // namespace fake
