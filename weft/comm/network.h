// A Network moves messages between processes over TCP, on a thread of its own: the control thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "weft/comm/message.h"

namespace weft::comm {

inline constexpr const char* control_thread = "weft-control";  // its name

// All functions are called on the control thread, which blocks all signals: they reach the threads
// of the program.
struct Events {
  std::function<void(int peer, Message message)> on_message;
  // The connection ended: by the other side, by an error, or by a message that is none.
  std::function<void(int peer)> on_closed;
  std::function<void()> on_tick;  // every tick_seconds, or later where the thread had no time
};

class Network {
 public:
  explicit Network(Events events, double tick_seconds);
  ~Network();
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;

  // Listens on an address of this host: a name or number, and a port; 0: any free one. Returns the
  // port. Throws Error(usage) where the port is taken, or the address is not this host's.
  uint16_t listen(const std::string& host, uint16_t port);
  void listen_on(int socket);  // that is bound already

  // Connects to an address, and returns the peer's number; -1 where nobody listens there. Blocks.
  int connect(const std::string& host, uint16_t port);
  void start();  // the control thread, after which come events
  void stop();   // sends what is pending, for a second at most, and ends the thread

  // From any thread. A peer that is gone gets nothing.
  void send(int peer, const Message& message);
  void close(int peer);
  // Lets a peer, which is a stranger until then, send messages above stranger_limit.
  void trust(int peer);
  void post(std::function<void()> work);  // runs it on the control thread

 private:
  class Loop;
  std::unique_ptr<Loop> loop_;
};

}  // namespace weft::comm
