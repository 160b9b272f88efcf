#include "weft/io/trace_events.h"

#include <utility>

#include <nlohmann/json.hpp>

#include "weft/io/json.h"

namespace weft::io {
using nlohmann::json;
namespace {
double microseconds(double seconds) { return 1e6 * seconds; }

json event(const TraceLane& lane, std::string_view name, const char* phase, json args) {
  return {{"name", name},
          {"ph", phase},
          {"pid", lane.process},
          {"tid", lane.thread},
          {"args", std::move(args)}};
}
}  // namespace

json trace_name(const TraceLane& lane, std::string_view what, std::string_view name) {
  return event(lane, what, "M", {{"name", name}});
}

json trace_event(const TraceLane& lane, const TraceSpan& span, json args) {
  json made = event(lane, span.name, "X", std::move(args));
  made["cat"] = span.category;
  made["ts"] = microseconds(span.begin);
  made["dur"] = microseconds(span.seconds);
  return made;
}

void add_overlapping(json& events, const TraceLane& lane, const TraceSpan& span,
                     std::string_view id, const json& args) {
  for (const auto& [phase, seconds] :
       {std::pair("b", span.begin), std::pair("e", span.begin + span.seconds)}) {
    json made = event(lane, span.name, phase, args);
    made["cat"] = span.category;
    made["id"] = id;
    made["ts"] = microseconds(seconds);
    events.push_back(std::move(made));
  }
}

std::string trace_text(json events) {
  return json_text(json{{"traceEvents", std::move(events)}, {"displayTimeUnit", "ms"}}) + "\n";
}

}  // namespace weft::io
