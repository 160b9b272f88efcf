#include "weft/comm/control.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <future>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>

#include "weft/base/error.h"
#include "weft/base/host/stopwatch.h"
#include "weft/base/logging.h"
#include "weft/comm/fault.h"
#include "weft/comm/hosts.h"
#include "weft/comm/mpi.h"
#include "weft/comm/shared.h"

namespace weft::comm {
namespace {
using namespace std::chrono_literals;
constexpr double late_seconds = 1;      // a tick that is so late does not count
constexpr double seconds_to_leave = 2;  // after a verdict, until the control thread ends the rank
constexpr double hub_silent = 10, neighbour_silent = 30;  // until a rank gives up rank 0

// Tells machines apart, and containers of one machine by their names.
std::string machine(const std::string& host) {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string boot;
  std::getline(file, boot);
  return host + " " + boot;
}
}  // namespace

// ---- the training thread

void Control::describe_by(const RankDescription& description) {
  const std::lock_guard lock(mutex_);
  description_ = description;
}

void Control::set_fault_folder(const std::string& folder) {
  const std::lock_guard lock(mutex_);
  fault_folder_ = folder;
  std::error_code none;
  std::filesystem::remove(fmt::format("{}/fault-r{}.txt", folder, rank_), none);
}

void Control::note_saved(const std::string& checkpoint) {
  const std::lock_guard lock(mutex_);
  saved_ = checkpoint;
}

std::string Control::pace() {
  if (rank_ != 0) return "";
  std::promise<std::string> text;
  network_->post([&] { text.set_value(hub_of_all_->pace()); });
  return text.get_future().get();
}

std::optional<ErrorKind> Control::verdict() const {
  const std::lock_guard lock(mutex_);
  return verdict_ ? std::optional(verdict_->kind) : std::nullopt;
}

void Control::check() {
  progress_.looks();
  if (!is_lost_.load()) return;
  const std::lock_guard lock(mutex_);
  throw Error(verdict_->kind, verdict_->text);
}

void Control::wait_until(const std::function<bool()>& holds) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return verdict_ || holds(); });
  if (holds()) return;
  lock.unlock();
  check();
}

bool Control::fails(int code) {
  std::unique_lock lock(mutex_);
  if (verdict_ && !has_failed_) return false;
  if (!is_welcome_) return true;  // no rank waits for this one yet
  if (!std::exchange(has_failed_, true)) {
    lock.unlock();
    to_hub(Failed{code});
    lock.lock();
  }
  // The hub answers within two seconds, if it lives.
  changed_.wait_for(lock, 5s, [&] { return is_alike_ || verdict_; });
  return rank_ == 0 || !is_alike_;
}

void Control::leave() {
  {
    const std::lock_guard lock(mutex_);
    if (has_left_ || has_failed_) return;
  }
  all_gather(leaving, "");
  {
    const std::lock_guard lock(mutex_);
    has_left_ = true;
  }
  if (mpi_ != nullptr) mpi_->stop();
}

std::shared_ptr<Communicator> Control::communicator() {
  if (communicator_ != nullptr) return communicator_;
  const Peers peers = {
      .rank = rank_,
      .size = size(),
      .exchange = [this](const std::string& mine,
                         Channel channel) { return all_gather("the ranks", mine, channel); },
      .check = [this] { check(); },
      .begins = [this](uint64_t sequence) { begins(sequence); },
      .awaits = [this](uint64_t sequence) { awaits(sequence); },
      .goes_on = [this] { goes_on(); },
      .describe =
          [this](auto words) { describe_by({.launch = {}, .collective = std::move(words)}); }};
  // Hosts of one name may be several machines, whose process numbers mean nothing to each other.
  const std::vector<std::string> machines = all_gather("the hosts", machine(hello_.host));
  if (std::ranges::count(machines, machines.front()) == size()) {
    communicator_ = shared_communicator(peers);
  } else {
    mpi_ = std::make_shared<MpiLibrary>();
    const int per_host = ranks_per_host(machines);
    communicator_ =
        per_host > 0 ? hosts_communicator(peers, per_host, mpi_) : mpi_communicator(peers, mpi_);
  }
  return communicator_;
}

void Control::ask(Purpose purpose) {
  {
    const std::lock_guard lock(mutex_);
    // A save that is still to come answers this request, too.
    const int64_t first = purpose == Purpose::save ? std::max<int64_t>(done_, 0) : 0;
    if (agreement(purpose).proposed >= first) return;
  }
  to_hub(Ask{purpose});
}

int64_t Control::agreed_stop() const {
  const std::lock_guard lock(mutex_);
  const std::set<int64_t>& steps = agreements_[static_cast<size_t>(Purpose::stop)].steps;
  return steps.empty() ? -1 : *steps.begin();
}

void Control::reach(int64_t step, const Agreement& its) {
  std::unique_lock lock(mutex_);
  done_ = step;
  const auto is_agreeing = [&] {
    return its.proposed >= 0 && !its.is_confirmed && step >= its.proposed;
  };
  changed_.wait(lock, [&] { return verdict_ || !is_agreeing(); });
  if (!verdict_) return;
  lock.unlock();
  check();
}

bool Control::stops_after(int64_t step) {
  reach(step, agreement(Purpose::stop));
  const int64_t agreed = agreed_stop();
  return agreed >= 0 && step >= agreed;
}

// A run that resumes may have agreed on a step before its first one.
bool Control::saves_after(int64_t step) {
  reach(step, agreement(Purpose::save));
  const std::lock_guard lock(mutex_);
  std::set<int64_t>& steps = agreement(Purpose::save).steps;
  const size_t before = steps.size();
  steps.erase(steps.begin(), steps.upper_bound(step));
  return steps.size() < before;
}

// Nobody is accused because a checkpoint that is written beside training takes long.
std::vector<std::string> Control::all_gather(std::string_view what, std::string mine,
                                             Channel channel) {
  WEFT_CHECK(mine.size() <= exchange_limit, "[ranks] {}: {} bytes are too many to exchange.", what,
             mine.size());
  const bool is_judged = channel == Channel::training;
  std::optional<Whole>& arrived = wholes_[static_cast<size_t>(channel)];
  if (is_judged) progress_.exchange(/*begins=*/true);
  to_hub(Part{channel, std::string(what), std::move(mine)});
  Whole whole;
  wait_until([&] { return arrived.has_value(); });
  if (is_judged) progress_.exchange(/*begins=*/false);
  {
    const std::lock_guard lock(mutex_);
    whole = std::move(*arrived);
    arrived.reset();
  }
  for (int rank = 0; rank < size(); ++rank)
    if (const std::string& other = whole.whats[static_cast<size_t>(rank)]; other != whole.whats[0])
      throw Error(ErrorKind::usage, "ranks disagree: rank {} (host {}) is at '{}', rank 0 at '{}'.",
                  rank, host(rank), other, whole.whats[0]);
  return std::move(whole.parts);
}

// ---- the control thread

void Control::to_hub(const Message& message) {
  if (rank_ == 0)
    network_->post([this, message] { hub_of_all_->hear(0, message); });
  else
    network_->send(hub_, message);
}

void Control::to_rank(int rank, const Message& message) {
  if (rank == 0) return network_->post([this, message] { hear(message); });
  if (const auto peer = peer_of_.find(rank); peer != peer_of_.end())
    network_->send(peer->second, message);
}

void Control::on_message(int peer, const Message& message) {
  if (rank_ != 0) {
    quiet_hub_ = 0;
    return hear(message);
  }
  if (const auto found = rank_of_.find(peer); found != rank_of_.end())
    hub_of_all_->hear(found->second, message);
  else if (const auto* hello = std::get_if<Hello>(&message))
    on_hello(peer, *hello);
  else
    network_->close(peer);
}

void Control::on_hello(int peer, const Hello& hello) {
  const bool is_rank = hello.rank > 0 && hello.rank < size();
  if (!is_same_token(hello.token, token_) || !is_rank) return network_->close(peer);
  network_->trust(peer);
  if (!peer_of_.contains(hello.rank)) {
    rank_of_[peer] = hello.rank;
    peer_of_[hello.rank] = peer;
  }
  hub_of_all_->come(hello);
}

void Control::on_closed(int peer) {
  if (rank_ != 0) {
    {
      const std::lock_guard lock(mutex_);
      if (!is_welcome_) {
        is_alone_ = true;
        changed_.notify_all();
        return;
      }
    }
    return lose_hub("is dead: its connection closed");
  }
  const auto found = rank_of_.find(peer);
  if (found == rank_of_.end()) return;
  const int rank = found->second;
  rank_of_.erase(found);
  peer_of_.erase(rank);
  hub_of_all_->lose(rank);
}

void Control::hear(const Message& message) {
  std::visit([this](const auto& m) { take(m); }, message);
}

void Control::take(const Welcome& welcome) {
  const std::lock_guard lock(mutex_);
  if (std::ssize(welcome.hosts) != size() || std::ssize(welcome.pids) != size()) return;
  for (size_t i = 0; i < members_.size(); ++i) members_[i] = {welcome.hosts[i], welcome.pids[i]};
  is_welcome_ = true;
  changed_.notify_all();
}

void Control::take(const Whole& whole) {
  const std::lock_guard lock(mutex_);
  if (std::ssize(whole.parts) != size() || std::ssize(whole.whats) != size()) return;
  wholes_[static_cast<size_t>(whole.channel)] = whole;
  // Once all leave, the first that ends closes its connections before the others have read this.
  has_left_ = has_left_ || std::ranges::count(whole.whats, leaving) == size();
  changed_.notify_all();
}

void Control::take(const Propose& proposal) {
  int64_t done = 0;
  {
    const std::lock_guard lock(mutex_);
    done = done_;
    if (done < proposal.step) {  // else it may have gone on
      Agreement& accepted = agreement(proposal.purpose);
      accepted.proposed = proposal.step;
      accepted.is_confirmed = false;
    }
    changed_.notify_all();
  }
  to_hub(Answer{.purpose = proposal.purpose, .proposed = proposal.step, .at = done});
}

void Control::take(const Confirm& confirmed) {
  const std::lock_guard lock(mutex_);
  Agreement& agreed = agreement(confirmed.purpose);
  agreed.proposed = confirmed.step;
  agreed.is_confirmed = true;
  agreed.steps.insert(confirmed.step);
  changed_.notify_all();
}

void Control::take(const Alike& /*alike*/) {
  const std::lock_guard lock(mutex_);
  is_alike_ = has_left_ = true;
  changed_.notify_all();
}

void Control::take(const Verdict& verdict) {
  bool has_said_why = false;
  {
    const std::lock_guard lock(mutex_);
    has_said_why = has_failed_;  // by a message of its own
  }
  conclude(verdict, /*speaks=*/rank_ == 0 && !has_said_why);
}

void Control::conclude(const Verdict& verdict, bool speaks) {
  {
    const std::lock_guard lock(mutex_);
    if (verdict_ || has_left_) return;
  }
  if (speaks) logging::write("error", verdict.text);
  if (verdict.kind == ErrorKind::rank_lost) tell_launcher("lost");
  write_fault(verdict);
  const std::lock_guard lock(mutex_);
  verdict_ = verdict;
  is_lost_ = true;
  end_at_ = now() + seconds_to_leave;
  changed_.notify_all();
}

void Control::write_fault(const Verdict& verdict) const {
  std::string folder;
  {
    const std::lock_guard lock(mutex_);
    folder = fault_folder_;
  }
  if (!folder.empty())
    comm::write_fault(fmt::format("{}/fault-r{}.txt", folder, rank_),
                      fmt::format("{}\n\n{}", verdict.text, name(rank_)), progress_.last(),
                      description());
}

RankDescription Control::description() const {
  const std::lock_guard lock(mutex_);
  return description_;
}

std::string Control::ending() const {
  const std::lock_guard lock(mutex_);
  return saved_.empty() ? "" : saved_ + " is whole: --resume continues from there.";
}

void Control::lose_hub(const std::string& how) {
  std::string text = fmt::format("{} {}. {}", name(0), how, whereabouts(hub_beat_, description()));
  text += " " + whereabouts(progress_.at_present(), description(), fmt::format("Rank {}", rank_));
  if (const std::string more = ending(); !more.empty()) text += " " + more;
  conclude({.rank = 0, .text = std::move(text)}, /*speaks=*/rank_ == 1);
}

void Control::on_tick() {
  const double time = now();
  const bool in_time = time - std::exchange(last_tick_, time) < tick_seconds + late_seconds;
  if (end_at_ > 0 && time > end_at_)
    _exit(static_cast<int>(*verdict()));  // the training thread does not leave
  if (!is_welcome()) return;
  const Beat& beat = progress_.tick(in_time);
  const bool is_due = ++ticks_ % 2 == 0;
  if (rank_ != 0) {
    if (is_due) to_hub(beat);
    return watch_hub(in_time);
  }
  hub_of_all_->hear(0, beat);
  if (is_due)
    for (const auto& [rank, peer] : peer_of_) network_->send(peer, beat);
  hub_of_all_->tick(in_time);
}

void Control::watch_hub(bool in_time) {
  quiet_hub_ = in_time ? quiet_hub_ + tick_seconds : 0;
  if (quiet_hub_ < options_.patience.stopped) return;
  const bool is_neighbour = host(0) == host(rank_);
  if (is_neighbour && is_process_stopped(pid(0)))
    return lose_hub(fmt::format("is stopped, by a signal or a debugger: no word of it for {:.1f} s",
                                quiet_hub_));
  if (quiet_hub_ > (is_neighbour ? neighbour_silent : hub_silent))
    lose_hub(fmt::format("is silent: no word of it for {:.0f} s", quiet_hub_));
}

}  // namespace weft::comm
