#include "weft/train/run/step_trace.h"

#include <map>
#include <string_view>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "weft/device/link.h"
#include "weft/io/files.h"
#include "weft/io/json.h"

namespace weft::train {
namespace {
using nlohmann::json;
constexpr int kernels = 1, exchanges = 2;  // lanes

double microseconds(double seconds) { return 1e6 * seconds; }

json lane(int rank, int number, const char* name) {
  return {{"name", "thread_name"},
          {"ph", "M"},
          {"pid", rank},
          {"tid", number},
          {"args", {{"name", name}}}};
}
// Exchanges overlap each other, as only asynchronous events of a lane may.
json end_of_exchange(const Launch& collective, int rank, const char* phase, size_t id,
                     double seconds) {
  return {{"name", collective.kernel},
          {"cat", "exchange"},
          {"ph", phase},
          {"id", fmt::format("{}.{}", rank, id)},
          {"ts", microseconds(seconds)},
          {"pid", rank},
          {"tid", exchanges},
          {"args", {{"module", collective.module}, {"bytes_sent", bytes_sent(collective)}}}};
}
std::string_view category(const Launch& launch) {
  switch (launch.kind) {
    case Launch::Kind::collective:
      return "begin";
    case Launch::Kind::await:
      return "await";
    case Launch::Kind::transfer:
      return "transfer";
    default:
      return "kernel";
  }
}
}  // namespace

void StepTrace::before_update(int64_t done, int rank, const std::string& path) {
  if (done == skipped) begin();
  if (done != skipped + updates) return;
  end();
  io::write_file_atomically(path, text(rank));
}

void StepTrace::begin() {
  for (const auto& [name, executable] : executables_)
    executable->set_timer(
        [this, plan = &executable->plan()](size_t launch, double begin, double seconds) {
          events_.push_back({plan, launch, begin, seconds});
        });
}

void StepTrace::end() {
  for (const auto& [name, executable] : executables_) executable->set_timer({});
}

std::string StepTrace::text(int rank) const {
  json all = json::array({lane(rank, kernels, "kernels"), lane(rank, exchanges, "exchanges")});
  struct Begun {
    const Launch* collective;
    double begin;
  };
  std::map<int, Begun> begun;  // by the slot of the result
  size_t exchanged = 0;
  for (const Event& event : events_) {
    const Launch& launch = event.plan->launches[event.launch];
    all.push_back({{"name", launch.kernel},
                   {"cat", category(launch)},
                   {"ph", "X"},
                   {"ts", microseconds(event.begin)},
                   {"dur", microseconds(event.seconds)},
                   {"pid", rank},
                   {"tid", kernels},
                   {"args", {{"module", launch.module}, {"launch", event.launch}}}});
    if (launch.kind == Launch::Kind::collective)
      begun[launch.results[0].at.slot] = {&launch, event.begin};
    if (launch.kind != Launch::Kind::await) continue;
    const auto found = begun.find(launch.operands[0].at.slot);
    if (found == begun.end()) continue;  // of a transfer
    const auto& [collective, from] = found->second;
    all.push_back(end_of_exchange(*collective, rank, "b", exchanged, from));
    all.push_back(
        end_of_exchange(*collective, rank, "e", exchanged++, event.begin + event.seconds));
    begun.erase(found);
  }
  return io::json_text(json{{"traceEvents", std::move(all)}, {"displayTimeUnit", "ms"}}) + "\n";
}

}  // namespace weft::train
