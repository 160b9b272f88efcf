// The control plane, as one rank sees it: who is where, who is lost, and when all stop. Data goes
// other ways. join.h makes it the world of this process.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "weft/comm/hub.h"
#include "weft/comm/join.h"
#include "weft/comm/launcher.h"
#include "weft/comm/meeting.h"
#include "weft/comm/mpi_library.h"
#include "weft/comm/network.h"
#include "weft/comm/progress.h"
#include "weft/device/world.h"

namespace weft::comm {

// Tells weft launch --hosts, where it started this rank: "lost", or "ended CODE".
void tell_launcher(std::string_view what);

// The training thread calls the functions of World, and the one that writes a checkpoint beside it
// all_gather() of its channel; the control thread hears the hub, counts time, and on rank 0 is the
// hub.
class Control : public World {
 public:
  Control(const Place& place, const JoinOptions& options);
  ~Control() override { disconnect(); }

  void come();  // waits for all ranks

  void beat(int64_t step, int launch) override { progress_.beat(step, launch); }
  void begins(uint64_t sequence) override { progress_.begins(sequence); }
  void awaits(uint64_t sequence) override { progress_.awaits(sequence); }
  void goes_on() override { progress_.goes_on(); }
  double seconds_awaited() const override { return progress_.seconds_awaited(); }
  void describe_by(const RankDescription& description) override;
  void set_fault_folder(const std::string& folder) override;
  void note_saved(const std::string& checkpoint) override;
  std::string pace() override;

  std::optional<ErrorKind> verdict() const override;
  void check() override;
  bool fails(int code) override;
  void leave() override;

  std::shared_ptr<Communicator> communicator() override;

  void ask_stop() override { ask(Purpose::stop); }
  void ask_save() override { ask(Purpose::save); }
  int64_t agreed_stop() const override;
  bool stops_after(int64_t step) override;
  bool saves_after(int64_t step) override;
  std::vector<std::string> all_gather(std::string_view what, std::string mine,
                                      Channel channel = Channel::training) override;

 private:
  // An Agreement is what ranks do after which steps, for one purpose.
  struct Agreement {
    int64_t proposed = -1;
    bool is_confirmed = false;
    std::set<int64_t> steps;  // confirmed ones; for saves, those that this rank has not reached
  };
  Agreement& agreement(Purpose purpose) { return agreements_[static_cast<size_t>(purpose)]; }
  void ask(Purpose purpose);
  void reach(int64_t step, const Agreement& its);  // waits while ranks are agreeing

  void pause(bool begins) override { progress_.pause(begins); }

  // ---- on the control thread
  void on_message(int peer, const Message& message);
  void on_hello(int peer, const Hello& hello);
  void on_closed(int peer);
  void on_tick();
  void hear(const Message& message);  // of the hub
  void take(const Welcome& welcome);
  void take(const Beat& beat) { hub_beat_ = beat; }
  void take(const Whole& whole);
  void take(const Propose& proposal);
  void take(const Confirm& confirmed);
  void take(const Alike& alike);
  void take(const Verdict& verdict);
  template <class Other>
  void take(const Other& /*message*/) {}  // no message of the hub
  void watch_hub(bool in_time);
  void lose_hub(const std::string& how);
  void conclude(const Verdict& verdict, bool speaks);
  void write_fault(const Verdict& verdict) const;
  RankDescription description() const;
  std::string ending() const;  // of messages about a lost rank

  void to_hub(const Message& message);
  void to_rank(int rank, const Message& message);
  std::unique_ptr<Network> make_network();
  void disconnect();
  bool meet_once(const Meeting& planned, const std::string& file);
  bool is_welcome() const;
  void wait_for_welcome(bool may_retry, double until);
  void say_what_is_awaited();
  void wait_until(const std::function<bool()>& holds);  // or until a verdict

  const Place place_;
  const JoinOptions options_;
  double speaks_at_ = 0;  // when say_what_is_awaited() speaks; infinite: it has
  std::string token_;
  Hello hello_;

  Progress progress_;

  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::atomic<bool> is_lost_{false};
  bool is_welcome_ = false, is_alone_ = false;  // alone: the connection closed before the welcome
  bool has_left_ = false, is_alike_ = false, has_failed_ = false;
  std::optional<Verdict> verdict_;
  std::array<std::optional<Whole>, channels> wholes_;
  std::array<Agreement, purposes> agreements_;
  int64_t done_ = 0;  // steps
  RankDescription description_;
  std::string fault_folder_, saved_;
  std::shared_ptr<Communicator> communicator_;  // only the training thread uses it
  std::shared_ptr<MpiLibrary> mpi_;             // null: MPI was not started

  // Only the control thread uses these.
  double last_tick_ = 0, quiet_hub_ = 0, end_at_ = 0;
  int ticks_ = 0;
  Beat hub_beat_;  // the last one of rank 0, on other ranks
  int hub_ = -1;   // peer
  std::map<int, int> rank_of_, peer_of_;
  std::optional<Hub> hub_of_all_;  // on rank 0

  std::unique_ptr<Network> network_;  // ends first, as its thread uses all else
};

}  // namespace weft::comm
