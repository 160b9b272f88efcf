#include "tests/fake_cuda/streams.h"

#include <ranges>
#include <utility>

namespace fake {

void push(Stream& stream, Work what, std::shared_ptr<Task> awaited) {
  if (stream.capture != nullptr && what != nullptr) ++stream.capture->tasks;
  stream.last = std::make_shared<Task>(
      Task{std::move(what), std::move(stream.last), std::move(awaited), stream.capture});
}

// Recurses per stream, not per task: a stream may hold more tasks than the stack has room for.
void take_until(const std::shared_ptr<Task>& last, const std::function<void(Work&)>& take) {
  std::vector<std::shared_ptr<Task>> line;
  for (auto task = last; task != nullptr && !task->taken; task = task->before) line.push_back(task);
  for (const auto& task : line | std::views::reverse) {
    take_until(task->awaited, take);
    task->taken = true;
    if (task->what != nullptr) take(task->what);
    task->what = nullptr;
    task->before = task->awaited = nullptr;
  }
}

void join(Stream& stream, const std::shared_ptr<Capture>& capture) {
  stream.capture = capture;
  stream.last_outside = std::exchange(stream.last, nullptr);
  capture->streams.push_back(&stream);
}

bool end_capture(Stream& stream, std::vector<Work>& all) {
  take_until(stream.last, [&](Work& what) { all.push_back(std::move(what)); });
  const std::shared_ptr<Capture> capture = stream.capture;
  capture->ended = true;
  for (Stream* part : capture->streams) {
    part->capture = nullptr;
    part->last = std::exchange(part->last_outside, nullptr);
  }
  return all.size() == capture->tasks;
}

}  // namespace fake
