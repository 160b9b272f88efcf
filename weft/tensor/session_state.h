// A SessionState is the session behind its handles. This header is internal to tensor/.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "weft/base/error.h"
#include "weft/base/host/team.h"
#include "weft/device/device.h"
#include "weft/runtime/residency.h"
#include "weft/tensor/eager.h"
#include "weft/tensor/session.h"
#include "weft/tensor/tensor.h"

namespace weft::detail {

struct SessionState : std::enable_shared_from_this<SessionState> {
  SessionState(std::shared_ptr<Team> its_team, int64_t its_seed)
      : team(std::move(its_team)), seed(its_seed) {}
  static SessionState& of(const Session& session) { return *session.state_; }
  Session session() { return Session(shared_from_this()); }

  const std::shared_ptr<Team> team;
  std::atomic<int64_t> seed;
  std::atomic<int64_t> draws_outside = 0;  // draws of random numbers outside of steps, so far
  const Variable random_step{"random_step", {DType::i64, {}}, Category::buffer_state};

  // `running` is held by the thread that runs in the session, and again by what it evaluates for
  // that run. It guards all that follows.
  std::recursive_mutex running;
  const std::shared_ptr<EagerCache> eager = make_eager_cache();

  // Returns the arena that all steps of a device, or those of one communicator, share; it is freed
  // with the last of them.
  std::shared_ptr<Workspace> workspace_of(const DeviceMemory& memory,
                                          const std::shared_ptr<Communicator>& communicator);
  // Notes that this thread uses the arenas. Results stay in them after a run, and the thread that
  // ran may read them until it runs again. A run on another thread must not touch them: the first
  // such run leaves the arenas to the results, and from then on every run moves its results out.
  void note_thread();
  // Returns what `work` returns, which it computes on the device. Where the device was lost in such
  // work before, throws Error(device), which says so.
  template <class Work>
  decltype(auto) on(const KernelLibrary& device, Work&& work) {
    check_there(device);
    try {
      return work();
    } catch (const Error& error) {
      if (error.kind() == ErrorKind::device) note_if_lost(device, error);
      throw;
    }
  }

 private:
  void check_there(const KernelLibrary& device) const;
  void note_if_lost(const KernelLibrary& device, const Error& error);

  using Arena = std::pair<const DeviceMemory*, const Communicator*>;
  std::map<Arena, std::weak_ptr<Workspace>> workspaces_;
  std::thread::id user_;    // the last thread that used the arenas; none: nobody has
  bool is_shared_ = false;  // several threads have
  std::map<const KernelLibrary*, std::string> lost_;  // devices, and what each said
};

SessionState& session_state();  // of the current session

// While a SessionUse lives, its thread computes in the session, and no other thread does.
class SessionUse {
 public:
  SessionUse() : SessionUse(current_session()) {}
  explicit SessionUse(const Session& session)
      : scope_(session), lock_(SessionState::of(session).running) {}
  SessionState& state() const { return session_state(); }

 private:
  SessionScope scope_;
  std::unique_lock<std::recursive_mutex> lock_;
};

}  // namespace weft::detail
