// Writes a profile as a trace.
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "weft/cli/measure/profile.h"
#include "weft/io/trace_events.h"

namespace weft::cli {
namespace {
using nlohmann::json;
constexpr io::TraceLane kernels;

// Returns "gpt.cpp:42", the location of the last node that has one.
std::string source_of(const Launch& launch) {
  for (auto value = launch.body.rbegin(); value != launch.body.rend(); ++value)
    if (const UserLocation& where = (*value)->origin.where; where.file != nullptr)
      return fmt::format("{}:{}", where.file, where.line);
  return "";
}

json kernel_event(const Profile& profile, const KernelEvent& event) {
  const Launch& launch = profile.launch(event);
  return io::trace_event(kernels,
                         {launch.kernel, name(profile.family(event)), event.begin, event.seconds},
                         {{"module", launch.module},
                          {"source", source_of(launch)},
                          {"flops", launch.flops},
                          {"bytes", launch.bytes},
                          {"plan", profile.plans[event.plan].name},
                          {"step", event.launch}});
}
}  // namespace

std::string to_trace(const Profile& profile) {
  json events = json::array({io::trace_name(kernels, "process_name", "weft"),
                             io::trace_name(kernels, "thread_name", "kernels")});
  size_t next = 0;
  for (size_t i = 0; i < profile.updates.size(); ++i) {
    const Profile::Update& update = profile.updates[i];
    events.push_back(io::trace_event(
        kernels, {fmt::format("update {}", i), "step", update.begin, update.seconds},
        json::object()));
    for (; next < profile.events.size() && profile.events[next].update == static_cast<int>(i);
         ++next)
      events.push_back(kernel_event(profile, profile.events[next]));
  }
  return io::trace_text(std::move(events));
}

}  // namespace weft::cli
