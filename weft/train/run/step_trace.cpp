#include "weft/train/run/step_trace.h"

#include <map>
#include <string_view>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "weft/device/link.h"
#include "weft/io/files.h"
#include "weft/io/trace_events.h"

namespace weft::train {
namespace {
using nlohmann::json;
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
  const io::TraceLane kernels{.process = rank, .thread = 1},
      exchanges{.process = rank, .thread = 2};
  json all = json::array({io::trace_name(kernels, "thread_name", "kernels"),
                          io::trace_name(exchanges, "thread_name", "exchanges")});
  struct Begun {
    const Launch* collective;
    double begin;
  };
  std::map<int, Begun> begun;  // by the slot of the result
  size_t exchanged = 0;
  for (const Event& event : events_) {
    const Launch& launch = event.plan->launches[event.launch];
    all.push_back(io::trace_event(kernels,
                                  {launch.kernel, category(launch), event.begin, event.seconds},
                                  {{"module", launch.module}, {"launch", event.launch}}));
    if (launch.kind == Launch::Kind::collective)
      begun[launch.results[0].at.slot] = {&launch, event.begin};
    if (launch.kind != Launch::Kind::await) continue;
    const auto found = begun.find(launch.operands[0].at.slot);
    if (found == begun.end()) continue;  // of a transfer
    const auto& [collective, from] = found->second;
    // Exchanges overlap each other.
    io::add_overlapping(all, exchanges,
                        {collective->kernel, "exchange", from, event.begin + event.seconds - from},
                        fmt::format("{}.{}", rank, exchanged++),
                        {{"module", collective->module}, {"bytes_sent", bytes_sent(*collective)}});
    begun.erase(found);
  }
  return io::trace_text(std::move(all));
}

}  // namespace weft::train
