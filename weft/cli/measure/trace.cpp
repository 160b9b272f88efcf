// Writes a profile in Chrome's "Trace Event Format": complete events, "ph": "X", and metadata,
// "ph": "M"; times in microseconds.
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "weft/cli/measure/profile.h"
#include "weft/io/json.h"

namespace weft::cli {
namespace {
using nlohmann::json;
constexpr int process = 1, thread = 1;

// Returns "gpt.cpp:42", the location of the last node that has one.
std::string source_of(const Launch& launch) {
  for (auto value = launch.body.rbegin(); value != launch.body.rend(); ++value)
    if (const UserLocation& where = (*value)->origin.where; where.file != nullptr)
      return fmt::format("{}:{}", where.file, where.line);
  return "";
}

json complete_event(const std::string& name, std::string_view category, double begin,
                    double seconds, json args) {
  return {{"name", name},         {"cat", category}, {"ph", "X"},     {"ts", 1e6 * begin},
          {"dur", 1e6 * seconds}, {"pid", process},  {"tid", thread}, {"args", std::move(args)}};
}

json metadata(const char* what, const std::string& name) {
  return {
      {"name", what}, {"ph", "M"}, {"pid", process}, {"tid", thread}, {"args", {{"name", name}}}};
}

json kernel_event(const Profile& profile, const KernelEvent& event) {
  const Launch& launch = profile.launch(event);
  return complete_event(launch.kernel, name(profile.family(event)), event.begin, event.seconds,
                        {{"module", launch.module},
                         {"source", source_of(launch)},
                         {"flops", launch.flops},
                         {"bytes", launch.bytes},
                         {"plan", profile.plans[event.plan].name},
                         {"step", event.launch}});
}
}  // namespace

std::string to_trace(const Profile& profile) {
  json events = json::array({metadata("process_name", "weft"), metadata("thread_name", "kernels")});
  size_t next = 0;
  for (size_t i = 0; i < profile.updates.size(); ++i) {
    const Profile::Update& update = profile.updates[i];
    events.push_back(complete_event(fmt::format("update {}", i), "step", update.begin,
                                    update.seconds, json::object()));
    for (; next < profile.events.size() && profile.events[next].update == static_cast<int>(i);
         ++next)
      events.push_back(kernel_event(profile, profile.events[next]));
  }
  return io::json_text(json{{"traceEvents", std::move(events)}, {"displayTimeUnit", "ms"}}) + "\n";
}

}  // namespace weft::cli
