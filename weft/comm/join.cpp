// The start of the control plane: ranks find rank 0, and wait until all have come.
#include "weft/comm/join.h"

#include <chrono>
#include <cstdlib>
#include <limits>
#include <thread>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>

#include "weft/base/error.h"
#include "weft/base/host/env.h"
#include "weft/base/host/stopwatch.h"
#include "weft/base/logging.h"
#include "weft/comm/control.h"
#include "weft/comm/fault.h"

namespace weft::comm {
using namespace std::chrono_literals;

Control::Control(const Place& place, const JoinOptions& options)
    : place_(place), options_(options) {
  const Member self = members_.front();
  rank_ = place.rank;
  local_rank_ = place.local_rank;
  members_.assign(static_cast<size_t>(place.size), Member{});
  hello_ = {.version = this_version(),
            .host = self.host,
            .pid = self.pid,
            .rank = place.rank,
            .size = place.size};
  if (rank_ == 0)
    hub_of_all_.emplace(
        place.size, options.patience,
        [this](int rank, const Message& message) { to_rank(rank, message); },
        [this] { return description(); }, [this] { return ending(); });
  prepare_stacks();
}

void Control::disconnect() {
  if (network_ == nullptr) return;
  network_->stop();  // until then its thread uses it by this pointer
  network_.reset();
}

std::unique_ptr<Network> Control::make_network() {
  return std::make_unique<Network>(
      Events{.on_message = [this](int peer, const Message& m) { on_message(peer, m); },
             .on_closed = [this](int peer) { on_closed(peer); },
             .on_tick = [this] { on_tick(); }},
      tick_seconds);
}

bool Control::meet_once(const Meeting& planned, const std::string& file) {
  std::optional<Meeting> meeting = planned;
  if (!file.empty()) meeting = read_meeting(file);
  if (!meeting) return false;
  network_ = make_network();
  hub_ = network_->connect(meeting->host, meeting->port);
  if (hub_ < 0) return false;
  network_->trust(hub_);
  hello_.token = meeting->token;
  last_tick_ = now();
  network_->start();
  to_hub(hello_);
  return true;
}

// Variables that are left over from another run would have a process wait in silence. One rank of a
// job speaks for all.
void Control::say_what_is_awaited() {
  if (now() < speaks_at_) return;
  speaks_at_ = std::numeric_limits<double>::infinity();
  if (rank_ != 0 && !place_.job.empty()) return;
  logging::note("rank {} of {} ({}) waits for {}, at most {:.0f} s.", rank_, size(),
                place_.variables, rank_ == 0 ? "the other ranks" : "rank 0",
                options_.start_seconds);
}

bool Control::is_welcome() const {
  const std::lock_guard lock(mutex_);
  return is_welcome_;
}

void Control::wait_for_welcome(bool may_retry, double until) {
  std::unique_lock lock(mutex_);
  while (!is_welcome_ && !is_alone_ && !verdict_ && now() < until) {
    changed_.wait_for(lock, 50ms);
    say_what_is_awaited();
  }
  if (verdict_) {
    lock.unlock();
    check();
  }
  if (is_alone_ && !may_retry)
    throw Error(ErrorKind::rank_lost,
                "[ranks] rank 0 does not take rank {}: it is of another run or version, or has "
                "ended.",
                rank_);
}

void Control::come() {
  const Meeting planned = planned_meeting(place_);
  const bool by_file = needs_file(planned);
  const std::string file = by_file ? meeting_file(place_) : "";
  const double until = now() + options_.start_seconds;
  speaks_at_ = now() + options_.quiet_seconds;
  if (rank_ == 0) {
    network_ = make_network();
    Meeting meeting = planned;
    if (meeting.token.empty()) meeting.token = make_token();
    token_ = meeting.token;
    if (meeting.listener >= 0)
      network_->listen_on(meeting.listener);
    else
      meeting.port = network_->listen(meeting.host, meeting.port);
    if (by_file) write_meeting(file, meeting);
    last_tick_ = now();
    // Rank 0 comes first: a hello that is refused before would end the run for nobody.
    network_->post([this] { hub_of_all_->come(hello_); });
    network_->start();
    wait_for_welcome(/*may_retry=*/false, until);
    if (by_file) unlink(file.c_str());
    if (!is_welcome()) {
      network_->post([this] { hub_of_all_->give_up(place_.variables); });
      wait_until([] { return false; });
    }
    return;
  }
  // An earlier run may have left its file, and rank 0 may come later than this one.
  while (!is_welcome() && now() < until) {
    if (meet_once(planned, file)) wait_for_welcome(by_file, until);
    if (is_welcome()) return;
    disconnect();
    is_alone_ = false;
    std::this_thread::sleep_for(100ms);
    say_what_is_awaited();
  }
  if (!is_welcome())
    throw Error(
        ErrorKind::rank_lost,
        "[ranks] rank {} waited {:.0f} s for rank 0 in vain. Hint: unset {} where these are "
        "left over from another run.",
        rank_, options_.start_seconds, place_.variables);
}

// Launchers that start ranks on other hosts do not learn exit codes for certain: mpirun returns
// that of one rank, or none where a link is cut.
void tell_launcher(std::string_view what) {
  static const std::string mark = env("WEFT_MARK").value_or("");
  if (mark.empty()) return;
  // The line is one write, which other threads do not cut.
  const std::string line = fmt::format("{}{}\n", mark, what);
  if (write(STDERR_FILENO, line.data(), line.size()) < 0) logging::debug(1, "no launcher hears");
}

void join(const JoinOptions& options) {
  const std::optional<Place> place = find_place();
  if (!place) return;
  on_exit([](int code, void*) { tell_launcher(fmt::format("ended {}", code)); }, nullptr);
  auto control = std::make_unique<Control>(*place, options);
  Control& ranks = *control;
  enter_world(std::move(control));  // which knows from now on whether its messages were printed
  ranks.come();
}

}  // namespace weft::comm
