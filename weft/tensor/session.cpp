#include "weft/tensor/session.h"

#include "weft/base/error.h"
#include "weft/tensor/session_state.h"

namespace weft {
using detail::SessionState;
namespace {
thread_local SessionState* scope_session = nullptr;  // of the innermost SessionScope

std::shared_ptr<Team> checked_team(int threads) {
  const int most = thread_limit();
  WEFT_CHECK(threads >= 0 && threads <= most,
             "[session] threads must be from 1 to {}, those of the process, or 0 for all of them. "
             "Got {}. Hint: WEFT_THREADS sets how many the process has.",
             most, threads);
  return make_team(threads == 0 ? most : threads);
}

// The default session is never destroyed: at the end of the process, compilers and devices are
// destroyed before it would be.
SessionState& default_state() {
  static std::shared_ptr<SessionState>& state = *new std::shared_ptr(std::make_shared<SessionState>(
      std::shared_ptr<Team>(&whole_team(), [](Team*) {}), SessionOptions().seed));
  return *state;
}
}  // namespace

SessionState& detail::session_state() {
  return scope_session != nullptr ? *scope_session : default_state();
}

std::shared_ptr<Workspace> SessionState::workspace_of(
    const DeviceMemory& memory, const std::shared_ptr<Communicator>& communicator) {
  std::weak_ptr<Workspace>& known = workspaces_[{&memory, communicator.get()}];
  std::shared_ptr<Workspace> workspace = known.lock();
  if (workspace == nullptr) {
    known = workspace = std::make_shared<Workspace>();
    workspace->communicator = communicator;
    workspace->moves_results = is_shared_;
  }
  return workspace;
}

void SessionState::note_thread() {
  const std::thread::id here = std::this_thread::get_id();
  if (user_ != std::thread::id() && user_ != here && !is_shared_) {
    is_shared_ = true;
    for (const auto& [memory, known] : workspaces_)
      if (const std::shared_ptr<Workspace> workspace = known.lock()) {
        workspace->leave_to_results();
        workspace->moves_results = true;
      }
  }
  user_ = here;
}

void SessionState::check_there(const KernelLibrary& device) const {
  const auto lost = lost_.find(&device);
  if (lost == lost_.end()) return;
  throw Error(
      ErrorKind::device,
      "[session] {} was lost in an earlier run, and this session cannot use it any more. It "
      "said: {} Hint: end the process, and start again; weft devices shows whether the "
      "device is there.",
      device.name(), lost->second);
}

// A lost device answers every call with its error; one that refused a kernel goes on.
void SessionState::note_if_lost(const KernelLibrary& device, const Error& error) {
  const std::string said = error.what();
  DeviceMemory& memory = device.memory();
  try {
    const auto lock = memory.enter();
    memory.finish();
  } catch (const Error&) {
    lost_.try_emplace(&device, said.substr(0, said.find(" Hint: ")));
  }
}

Session::Session(const SessionOptions& options)
    : state_(std::make_shared<SessionState>(checked_team(options.threads), options.seed)) {}
int Session::threads() const { return state_->team->threads(); }

Session default_session() { return default_state().session(); }
Session current_session() { return detail::session_state().session(); }

SessionScope::SessionScope(const Session& session)
    : state_(SessionState::of(session).shared_from_this()),
      saved_(std::exchange(scope_session, state_.get())),
      team_(*state_->team) {}
SessionScope::~SessionScope() { scope_session = saved_; }

}  // namespace weft
