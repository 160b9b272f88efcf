// A Session is the context of computing: memory, threads, seed and caches. Programs that never make
// one have the default session. Sessions run at the same time, each in a thread of its own:
//
//   std::jthread answering([&] {
//     const Session session({.threads = 2});
//     const SessionScope scope(session);   // of this thread
//     auto answer = compile(...);          // runs in that session, whichever thread calls it
//     ...
//   });
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "weft/base/host/team.h"

namespace weft {
namespace detail {
struct SessionState;
}

struct SessionOptions {
  // `threads` is how many threads the session's runs compute with on the host, for which its steps
  // are planned; 0: all of the process (WEFT_THREADS). Runs of sessions whose threads together are
  // no more than that compute at the same time; other runs wait for their turn.
  int threads = 0;
  int64_t seed = 0;  // as by manual_seed()
};

// A Session is a handle: copies are the same session, which lives as long as one of them, or a step
// that was compiled in it. It is for one run at a time; a thread that uses it while another one
// runs in it waits.
class Session {
 public:
  // Throws Error(usage) for more threads than the process has.
  explicit Session(const SessionOptions& options = {});

  int threads() const;
  friend bool operator==(const Session&, const Session&) = default;

 private:
  friend struct detail::SessionState;
  explicit Session(std::shared_ptr<detail::SessionState> state) : state_(std::move(state)) {}

  std::shared_ptr<detail::SessionState> state_;
};

// Returns the session of all threads without a SessionScope: it has all threads of the process.
Session default_session();
Session current_session();

// While a SessionScope lives, its thread computes in the session: tensors that it reads, steps that
// it compiles, modules that it initializes, random numbers that it draws. Scopes nest.
class SessionScope {
 public:
  explicit SessionScope(const Session& session);
  ~SessionScope();
  SessionScope(const SessionScope&) = delete;
  SessionScope& operator=(const SessionScope&) = delete;

 private:
  std::shared_ptr<detail::SessionState> state_;
  detail::SessionState* saved_;
  TeamScope team_;
};

}  // namespace weft
