// A World is the ranks of a run: processes that train one model together. Without a launcher it is
// one rank, this process. weft/comm has the worlds of several ranks, which a control plane joins:
// rank 0 hears from every rank, finds the one that is dead or hung, and agrees with all on the step
// at which they stop.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "weft/base/error.h"

namespace weft {

class Communicator;
struct Mesh;

// A RankDescription puts into words what messages name. The control thread calls these functions
// at any time, so they own what they read.
struct RankDescription {
  // "fused 398 (blocks.3.mlp)"
  std::function<std::string(int launch)> launch = {};
  // "all_gather 412 (blocks.3.mlp.up.weight)"
  std::function<std::string(uint64_t sequence)> collective = {};
};

// A Channel carries exchanges of all ranks in one order. The training thread of a rank has one, and
// the thread that writes a checkpoint beside training has another.
enum class Channel : uint8_t { training, saving };
constexpr size_t channels = 2;

// All functions are for the training thread of the rank, unless they say otherwise. Functions that
// wait for other ranks throw Error(rank_lost) when one of them is dead or hung.
class World {
 public:
  World();
  virtual ~World() = default;
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(members_.size()); }
  int local_rank() const { return local_rank_; }  // among the ranks of this host
  int local_size() const;
  const std::string& host(int rank) const { return members_.at(static_cast<size_t>(rank)).host; }
  int64_t pid(int rank) const { return members_.at(static_cast<size_t>(rank)).pid; }
  std::string name(int rank) const;  // "rank 3 (host b, pid 4411)"

  // ---- progress, which the control plane reports. These are relaxed stores, for every launch.

  // `step` updates are done, and of the next one the launches before `launch` have begun.
  virtual void beat(int64_t /*step*/, int /*launch*/) {}
  // Numbers count the collectives of a run from 1, on all ranks in the same order.
  virtual void begins(uint64_t /*sequence*/) {}  // gave this rank's part to the others
  virtual void awaits(uint64_t /*sequence*/) {}  // waits until all ranks have begun it
  virtual void goes_on() {}                      // the last wait has ended
  // A Pause is a time in which a rank need not make progress: it compiles, evaluates or saves.
  class Pause {
   public:
    explicit Pause(World& world) : world_(world) { world_.pause(true); }
    ~Pause() { world_.pause(false); }
    Pause(const Pause&) = delete;
    Pause& operator=(const Pause&) = delete;

   private:
    World& world_;
  };
  virtual double seconds_awaited() const { return 0; }  // between awaits() and goes_on(), so far
  virtual void describe_by(const RankDescription& /*description*/) {}
  // Where a rank writes fault-rN.txt (launch, collective, stacks) when a rank is lost.
  virtual void set_fault_folder(const std::string& /*folder*/) {}
  // Messages about a lost rank end with this checkpoint, from which a run can go on.
  virtual void note_saved(const std::string& /*checkpoint*/) {}
  // Returns "slowest 5 (host b) +4.1 % compute; waited most: 0 (6.0 %)" about the steps since the
  // last call, on rank 0; "" elsewhere, and where too little is known.
  virtual std::string pace() { return ""; }

  // ---- failures

  // With which error all ranks end; nullopt while they go on. For any thread.
  virtual std::optional<ErrorKind> verdict() const { return std::nullopt; }
  // Throws Error(rank_lost) once a rank is lost. A communicator that waits calls it many times a
  // second, on any thread: a rank that awaits a collective and does not is hung in it.
  virtual void check() {}
  // This rank is about to end with an exit code. Returns whether to print its message: of ranks
  // that fail alike only one does, and the message of a lost rank is printed by then.
  virtual bool fails(int /*code*/) { return true; }
  // This rank ends well, with 0 or exit_saved: waits until all ranks do.
  virtual void leave() {}

  // ---- values

  // Returns what exchanges values between the ranks (weft/device/communicator.h); null for one
  // rank. Throws Error(device) where ranks are on several hosts, and have no MPI.
  virtual std::shared_ptr<Communicator> communicator() { return nullptr; }

  // ---- agreement

  // Asks all ranks to stop after one step. Returns at once.
  virtual void ask_stop() {}
  // Returns the step after which all ranks stop; -1 while none is agreed.
  virtual int64_t agreed_stop() const { return -1; }
  // To be called after each step: returns whether all ranks stop after this one. Waits while they
  // are agreeing.
  virtual bool stops_after(int64_t /*step*/) { return false; }
  // Do the same for a save after which the run goes on, as often as ranks ask for one.
  virtual void ask_save() {}
  virtual bool saves_after(int64_t /*step*/) { return false; }
  // Throws Error(usage) where a rank has another value than rank 0: "ranks disagree: rank 3 (host
  // b) has train.seed 1, rank 0 has 0".
  using Facts = std::vector<std::pair<std::string, std::string>>;
  void must_equal(const Facts& facts);
  void must_equal(std::string_view what, std::string_view mine) {
    must_equal(Facts{{std::string(what), std::string(mine)}});
  }

  // Small strings, by way of rank 0: for starts, not for steps. `what` must agree on all ranks, or
  // they throw Error(usage). At most exchange_limit bytes from each rank. Each channel has a
  // thread.
  static constexpr size_t exchange_limit = size_t{64} << 10;
  virtual std::vector<std::string> all_gather(std::string_view what, std::string mine,
                                              Channel channel = Channel::training);
  std::string broadcast(std::string_view what, std::string mine);  // returns that of rank 0

 protected:
  struct Member {
    std::string host;
    int64_t pid = 0;
  };
  virtual void pause(bool /*begins*/) {}

  int rank_ = 0, local_rank_ = 0;
  std::vector<Member> members_;  // by rank
};

// Returns the world of this process. It has one rank until enter_world().
World& world();
// Returns the mesh of data parallelism over its ranks; null for one rank.
std::shared_ptr<const Mesh> world_mesh();
// Makes the ranks that a launcher started the world of this process; does nothing without a
// launcher, or in a program without the library's core. `register_join` says how.
void join_world();
void register_join(std::function<void()> join);
// Makes `ranks` the world of this process; null: one rank again. The earlier world ends.
void enter_world(std::unique_ptr<World> ranks);

}  // namespace weft
