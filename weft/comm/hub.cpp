#include "weft/comm/hub.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <utility>

#include <fmt/format.h>

#include "weft/comm/progress.h"

namespace weft::comm {
namespace {
// Ranks that fail for one reason do so within about this time.
constexpr int ticks_to_fail_alike = static_cast<int>(1.5 / tick_seconds);
}  // namespace

bool is_process_stopped(int64_t pid) {
  // "PID (NAME) STATE ...", where the name may have any character.
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const size_t end = text.rfind(") ");
  return end != text.npos && end + 2 < text.size() &&
         (text[end + 2] == 'T' || text[end + 2] == 't');
}

Hub::Hub(int size, Patience patience, Send send, std::function<RankDescription()> describe,
         std::function<std::string()> ending)
    : send_(std::move(send)),
      describe_(std::move(describe)),
      ending_(std::move(ending)),
      ranks_(static_cast<size_t>(size)),
      judge_(size, patience) {}

void Hub::send_all(const Message& message) {
  // Rank 0 comes last: hearing a verdict, it takes a while to write down its stacks.
  for (int rank = size() - 1; rank >= 0; --rank)
    if (at(rank).hello) send_(rank, message);
}

std::string Hub::name(int rank) const {
  const auto& hello = at(rank).hello;
  return hello ? fmt::format("rank {} (host {}, pid {})", rank, hello->host, hello->pid)
               : fmt::format("rank {}", rank);
}

// ---- the start

void Hub::come(const Hello& hello) {
  const auto refuse = [&](std::string why) {
    end({.rank = hello.rank, .text = std::move(why), .kind = ErrorKind::usage});
  };
  if (hello.version != this_version())
    return refuse(fmt::format("ranks disagree: rank {} (host {}) has version {}, rank 0 has {}.",
                              hello.rank, hello.host, hello.version, this_version()));
  if (hello.size != size())
    return refuse(fmt::format("ranks disagree: rank {} (host {}) has {} ranks, rank 0 has {}.",
                              hello.rank, hello.host, hello.size, size()));
  if (at(hello.rank).hello)
    return refuse(fmt::format(
        "two processes are rank {}: pid {} of host {}, and pid {} of host {}.", hello.rank,
        at(hello.rank).hello->pid, at(hello.rank).hello->host, hello.pid, hello.host));
  at(hello.rank).hello = hello;
  if (!std::ranges::all_of(ranks_, [](const Rank& rank) { return rank.hello.has_value(); })) return;
  is_complete_ = true;
  Welcome welcome;
  for (const Rank& rank : ranks_) {
    welcome.hosts.push_back(rank.hello->host);
    welcome.pids.push_back(rank.hello->pid);
  }
  send_all(welcome);
}

void Hub::give_up(std::string_view variables) {
  if (is_complete_) return;
  std::vector<int> missing;
  for (int rank = 0; rank < size(); ++rank)
    if (!at(rank).hello) missing.push_back(rank);
  end({missing.front(),
       fmt::format("{} of {} ranks have not come: {}. Hint: unset {} where these are left over "
                   "from another run.",
                   missing.size(), size(), fmt::join(missing, ", "), variables)});
}

void Hub::hear(int rank, const Message& message) {
  std::visit([&](const auto& m) { take(rank, m); }, message);
}

// ---- agreement

void Hub::take(int rank, const Part& part) {
  const auto place = static_cast<size_t>(part.channel);
  at(rank).parts[place] = part;
  if (!std::ranges::all_of(ranks_, [&](const Rank& r) { return r.parts[place].has_value(); }))
    return;
  Whole whole{.channel = part.channel};
  for (Rank& r : ranks_) {
    whole.whats.push_back(std::move(r.parts[place]->what));
    whole.parts.push_back(std::move(r.parts[place]->bytes));
    r.parts[place].reset();
  }
  const auto is_leaving = [](const std::string& what) { return what == leaving; };
  if (std::ranges::all_of(whole.whats, is_leaving)) is_over_ = true;
  send_all(whole);
}

// A run stops once, and saves as often as ranks ask: who asks while a step is being agreed on is
// answered by that step.
void Hub::take(int /*rank*/, const Ask& asks) {
  const Agreement& agreement = agreements_[static_cast<size_t>(asks.purpose)];
  const bool may_repeat = asks.purpose == Purpose::save && agreement.is_confirmed;
  if (agreement.proposed >= 0 && !may_repeat) return;
  int64_t newest = 0;
  for (int r = 0; r < size(); ++r) newest = std::max(newest, judge_.last(r).step);
  propose(asks.purpose, newest + ahead_);
}

void Hub::propose(Purpose purpose, int64_t step) {
  const auto place = static_cast<size_t>(purpose);
  agreements_[place] = {.proposed = step};
  for (Rank& rank : ranks_) rank.answers[place].reset();
  send_all(Propose{.purpose = purpose, .step = step});
}

void Hub::take(int rank, const Answer& answer) {
  const auto place = static_cast<size_t>(answer.purpose);
  Agreement& agreement = agreements_[place];
  if (answer.proposed != agreement.proposed || agreement.is_confirmed) return;
  at(rank).answers[place] = answer;
  int64_t farthest = 0;
  for (const Rank& r : ranks_) {
    if (!r.answers[place]) return;
    farthest = std::max(farthest, r.answers[place]->at);
  }
  // A rank that is at the step may have gone on. Fast steps are met by looking further ahead.
  if (farthest >= agreement.proposed) return propose(answer.purpose, farthest + (ahead_ *= 2));
  agreement.is_confirmed = true;
  send_all(Confirm{.purpose = answer.purpose, .step = agreement.proposed});
}

// ---- failures

void Hub::take(int rank, const Failed& failed) {
  if (!at(rank).failed_with) at(rank).failed_with = failed.code;
  judge_.dismiss(rank);
  settle_failures();
}

void Hub::settle_failures() {
  if (is_over_) return;
  const auto first =
      std::ranges::find_if(ranks_, [](const Rank& r) { return bool(r.failed_with); });
  if (first == ranks_.end()) return;
  const bool alike = std::ranges::all_of(
      ranks_, [&](const Rank& r) { return r.failed_with == first->failed_with; });
  if (alike) {
    is_over_ = true;
    return send_all(Alike{});
  }
  if (failing_ticks_ < ticks_to_fail_alike) return;
  const int rank = static_cast<int>(first - ranks_.begin());
  end({rank, fmt::format("{} failed with exit code {}, and says why itself.", name(rank),
                         *first->failed_with)});
}

void Hub::lose(int rank) {
  end({rank, fmt::format("{} is dead: its connection closed. {}", name(rank), whereabouts(rank))});
}

std::string Hub::whereabouts(int rank) const {
  return comm::whereabouts(judge_.last(rank), describe_());
}

std::string Hub::text_of(const Finding& finding) const {
  using Kind = Finding::Kind;
  if (finding.kind == Kind::stopped)
    return fmt::format("{} is stopped, by a signal or a debugger: no word of it for {:.1f} s. {}",
                       name(finding.rank), finding.seconds, whereabouts(finding.rank));
  if (finding.kind == Kind::silent)
    return fmt::format("{} is silent: no word of it for {:.0f} s. {}", name(finding.rank),
                       finding.seconds, whereabouts(finding.rank));
  const RankDescription words = describe_();
  const auto& part = at(finding.first_waiting).parts[static_cast<size_t>(Channel::training)];
  const std::string what = finding.is_exchange ? (part ? part->what : "an exchange")
                           : words.collective  ? words.collective(finding.awaited)
                                               : fmt::format("collective {}", finding.awaited);
  const std::string others =
      finding.waiting == 1 ? "1 rank awaits" : fmt::format("{} ranks await", finding.waiting);
  if (finding.kind == Kind::hung)
    return fmt::format("{} is hung: it has not {} {} of step {}, which {} for {:.0f} s. {}",
                       name(finding.rank), finding.has_begun ? "ended" : "begun", what,
                       judge_.last(finding.rank).step + 1, others, finding.seconds,
                       whereabouts(finding.rank));
  return fmt::format(
      "no rank goes on: {} {} for {:.0f} s, and none is left to begin it. Nobody knows the "
      "culprit: "
      "the link between ranks, or weft.",
      others, what, finding.seconds);
}

std::optional<bool> Hub::is_stopped(int rank) const {
  if (at(rank).hello->host != at(0).hello->host) return std::nullopt;
  return is_process_stopped(at(rank).hello->pid);
}

void Hub::tick(bool in_time) {
  if (is_over_ || !is_complete_) return;
  const auto has_failed = [](const Rank& rank) { return rank.failed_with.has_value(); };
  if (std::ranges::any_of(ranks_, has_failed)) {
    ++failing_ticks_;
    settle_failures();
  }
  if (is_over_) return;
  const auto found = judge_.tick(in_time, [this](int rank) { return is_stopped(rank); });
  if (found) end({found->rank, text_of(*found)});
}

void Hub::end(Verdict verdict) {
  if (std::exchange(is_over_, true)) return;
  if (const std::string more = ending_(); !more.empty()) verdict.text += " " + more;
  send_all(verdict);
}

// ---- who is slow

std::string Hub::pace() {
  int slowest = -1, most_waiting = 0;
  double slowest_seconds = 0, all_seconds = 0, most_waited = 0;
  for (int rank = 0; rank < size(); ++rank) {
    const Beat& now = judge_.last(rank);
    const Beat before = std::exchange(at(rank).paced, now);
    const auto steps = static_cast<double>(now.step - before.step);
    if (steps < 1) return "";
    const double busy = (now.busy_seconds - before.busy_seconds) / steps;
    const double waited = now.waited_seconds - before.waited_seconds;
    const double share = waited / std::max(waited + busy * steps, 1e-9);
    all_seconds += busy;
    if (busy > slowest_seconds) {
      slowest_seconds = busy;
      slowest = rank;
    }
    if (share > most_waited) {
      most_waited = share;
      most_waiting = rank;
    }
  }
  if (slowest < 0) return "";
  const double others = (all_seconds - slowest_seconds) / std::max(1, size() - 1);
  return fmt::format("slowest {} (host {}) +{:.1f} % compute; waited most: {} ({:.1f} %)", slowest,
                     at(slowest).hello->host,
                     others > 0 ? 100 * (slowest_seconds / others - 1) : 0.0, most_waiting,
                     100 * most_waited);
}

}  // namespace weft::comm
