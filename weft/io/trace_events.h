// Makes events of Chrome's "Trace Event Format", which Perfetto shows, too. Times are in seconds.
#pragma once

#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

namespace weft::io {

struct TraceLane {
  int process = 1, thread = 1;
};
struct TraceSpan {
  std::string_view name, category;
  double begin = 0, seconds = 0;
};

// Names the lane's thread, or its process (`what` "thread_name", "process_name").
nlohmann::json trace_name(const TraceLane& lane, std::string_view what, std::string_view name);
// Returns an event of its lane that contains those that lie within it.
nlohmann::json trace_event(const TraceLane& lane, const TraceSpan& span, nlohmann::json args);
// Appends an event that may overlap others of its lane; `id` is its own in the whole trace.
void add_overlapping(nlohmann::json& events, const TraceLane& lane, const TraceSpan& span,
                     std::string_view id, const nlohmann::json& args);
// Returns the text of a file of these events.
std::string trace_text(nlohmann::json events);

}  // namespace weft::io
