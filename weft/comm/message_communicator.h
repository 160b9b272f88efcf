// Declares what the communicators of ranks on several hosts have in common.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "weft/comm/messages.h"
#include "weft/comm/round.h"
#include "weft/device/communicator.h"

namespace weft::comm {

class MessageCommunicator : public Communicator {
 public:
  MessageCommunicator(const Peers& peers, std::shared_ptr<MpiLibrary> mpi)
      : peers_(peers), messages_(peers, std::move(mpi)) {
    peers.describe(names_.words());
  }

  std::vector<std::string> exchange(const std::string& mine, Channel channel) override {
    return peers_.exchange(mine, channel);
  }
  void poll() override { messages_.poll(); }

  const Peers& peers() const { return peers_; }
  Messages& messages() { return messages_; }

  void begins(uint64_t sequence, const std::string& name) {
    names_.note(sequence, name);
    peers_.begins(sequence);
  }
  // A round goes on with poll() from begins() to ends().
  void begins(MessageRound& round) {
    messages_.begins(round);
    is_under_way_ = true;
  }
  void ends(MessageRound& round) {
    messages_.ends(round);
    is_under_way_ = messages_.is_under_way();
  }

 private:
  Peers peers_;
  Messages messages_;
  CollectiveNames names_;
};

}  // namespace weft::comm
