#include "weft/comm/network.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <deque>
#include <fcntl.h>
#include <future>
#include <map>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#ifndef ASIO_STANDALONE
#define ASIO_STANDALONE
#endif
#include <asio.hpp>

#include "weft/base/error.h"
#include "weft/base/logging.h"

namespace weft::comm {
namespace {
using asio::ip::tcp;
using std::chrono::duration;
using std::chrono::duration_cast;
using std::chrono::steady_clock;

// A program that a rank starts must not keep its connections open.
void close_on_exec(int socket) { fcntl(socket, F_SETFD, FD_CLOEXEC); }

// A port is open to every program of its host; strangers beyond this number are turned away.
constexpr size_t most_strangers = 64;
constexpr auto stranger_time = std::chrono::seconds(10);  // to say Hello

steady_clock::duration seconds(double value) {
  return duration_cast<steady_clock::duration>(duration<double>(value));
}
}  // namespace

class Network::Loop {
 public:
  Loop(Events events, double tick_seconds)
      : events_(std::move(events)), tick_(seconds(tick_seconds)) {}
  ~Loop() { stop(); }
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  uint16_t listen(const std::string& host, uint16_t port);
  void listen_on(int socket) {
    acceptor_.assign(tcp::v4(), socket);
    close_on_exec(socket);
  }
  int connect(const std::string& host, uint16_t port);
  void start();
  void stop();
  void post(std::function<void()> work) { asio::post(io_, std::move(work)); }
  void send(int peer, std::string bytes) {
    post([this, peer, bytes = std::move(bytes)]() mutable { write(peer, std::move(bytes)); });
  }
  void close(int peer);
  void trust(int peer);

 private:
  struct Peer {
    explicit Peer(tcp::socket socket) : socket(std::move(socket)) {}
    tcp::socket socket;
    bool is_trusted = false;
    bool is_closing = false;  // after what is to be written
    steady_clock::time_point since = steady_clock::now();
    std::string header = std::string(header_bytes, '\0'), body = {};
    std::deque<std::string> to_write = {};
  };
  using Peers = std::map<int, std::shared_ptr<Peer>>;

  int add(tcp::socket socket);
  void accept();
  void read(int number, const std::shared_ptr<Peer>& peer);
  void read_body(int number, const std::shared_ptr<Peer>& peer);
  void take(int number, const std::shared_ptr<Peer>& peer);
  void write(int number, std::string bytes);
  void write_first(int number, const std::shared_ptr<Peer>& peer);
  void drop(int number);
  void tick();
  void close_when_written(int number);

  Events events_;
  steady_clock::duration tick_;
  asio::io_context io_{1};
  tcp::acceptor acceptor_{io_};
  asio::steady_timer timer_{io_};
  Peers peers_;  // of the control thread, once it runs
  int next_ = 0;
  bool accepts_ = true;  // waits for the next connection
  size_t pending_ = 0;   // messages to be written
  std::thread thread_;
};

// The end of the process closes the sockets, and messages from before are to arrive.
void Network::Loop::stop() {
  if (!thread_.joinable()) return;
  const auto until = steady_clock::now() + std::chrono::seconds(1);
  for (bool is_written = false; !is_written && steady_clock::now() < until;) {
    std::promise<bool> answer;
    post([&] { answer.set_value(pending_ == 0); });
    is_written = answer.get_future().get();
    if (!is_written) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  io_.stop();
  thread_.join();
}

uint16_t Network::Loop::listen(const std::string& host, uint16_t port) {
  asio::error_code error;
  const auto found = tcp::resolver(io_).resolve(host, std::to_string(port), error);
  if (error || found.empty())
    throw Error(ErrorKind::usage, "[ranks] no host {}: {}.", host, error.message());
  const tcp::endpoint endpoint = found.begin()->endpoint();
  acceptor_.open(endpoint.protocol());
  close_on_exec(acceptor_.native_handle());
  acceptor_.set_option(tcp::acceptor::reuse_address(true));
  if (acceptor_.bind(endpoint, error) ||
      acceptor_.listen(tcp::acceptor::max_listen_connections, error)) {
    const bool is_taken = error == asio::error::address_in_use;
    throw Error(ErrorKind::usage, "[ranks] rank 0 cannot listen on {}:{}: {}.{}", host, port,
                error.message(),
                is_taken ? " Hint: another port, in WEFT_ADDRESS or MASTER_PORT." : "");
  }
  return acceptor_.local_endpoint().port();
}

int Network::Loop::connect(const std::string& host, uint16_t port) {
  asio::error_code error;
  const auto found = tcp::resolver(io_).resolve(host, std::to_string(port), error);
  if (error) return -1;
  tcp::socket socket(io_);
  asio::connect(socket, found, error);
  return error ? -1 : add(std::move(socket));
}

int Network::Loop::add(tcp::socket socket) {
  close_on_exec(socket.native_handle());
  asio::error_code ignored;
  std::ignore = socket.set_option(tcp::no_delay(true), ignored);
  // A host that loses its power closes nothing: the system asks whether it is there.
  std::ignore = socket.set_option(asio::socket_base::keep_alive(true), ignored);
  auto peer = std::make_shared<Peer>(std::move(socket));
  peers_.emplace(next_, peer);
  read(next_, peer);
  return next_++;
}

void Network::Loop::start() {
  if (acceptor_.is_open()) accept();
  timer_.expires_after(tick_);
  tick();
  sigset_t all{}, before{};
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);  // the new thread inherits the mask
  thread_ = std::thread([this] {
    pthread_setname_np(pthread_self(), control_thread);
    const auto work = asio::make_work_guard(io_);
    io_.run();
  });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void Network::Loop::accept() {
  acceptor_.async_accept([this](asio::error_code error, tcp::socket socket) {
    const auto strangers = static_cast<size_t>(
        std::ranges::count_if(peers_, [](const auto& peer) { return !peer.second->is_trusted; }));
    if (!error && strangers < most_strangers) add(std::move(socket));
    accepts_ = !error;  // else there are too many open files: the next tick tries again
    if (accepts_) accept();
  });
}

void Network::Loop::read(int number, const std::shared_ptr<Peer>& peer) {
  asio::async_read(peer->socket, asio::buffer(peer->header),
                   [this, number, peer](asio::error_code error, size_t) {
                     if (error) return drop(number);
                     read_body(number, peer);
                   });
}

void Network::Loop::read_body(int number, const std::shared_ptr<Peer>& peer) {
  const size_t bytes = bytes_after(peer->header);
  if (bytes > (peer->is_trusted ? message_limit : stranger_limit)) return drop(number);
  peer->body.resize(bytes);
  asio::async_read(peer->socket, asio::buffer(peer->body),
                   [this, number, peer](asio::error_code error, size_t) {
                     if (error) return drop(number);
                     take(number, peer);
                   });
}

void Network::Loop::take(int number, const std::shared_ptr<Peer>& peer) {
  try {
    events_.on_message(number, decode(peer->body));
  } catch (const Error& error) {
    logging::debug(1, "{}", error.what());
    return drop(number);
  }
  if (peers_.contains(number) && !peer->is_closing) read(number, peer);
}

void Network::Loop::write(int number, std::string bytes) {
  const auto found = peers_.find(number);
  if (found == peers_.end() || found->second->is_closing) return;
  const std::shared_ptr<Peer> peer = found->second;
  peer->to_write.push_back(std::move(bytes));
  ++pending_;
  if (peer->to_write.size() == 1) write_first(number, peer);
}

void Network::Loop::write_first(int number, const std::shared_ptr<Peer>& peer) {
  asio::async_write(peer->socket, asio::buffer(peer->to_write.front()),
                    [this, number, peer](asio::error_code error, size_t) {
                      if (!peers_.contains(number)) return;
                      if (error) return drop(number);
                      peer->to_write.pop_front();
                      --pending_;
                      if (!peer->to_write.empty()) return write_first(number, peer);
                      if (peer->is_closing) drop(number);
                    });
}

void Network::Loop::drop(int number) {
  const auto found = peers_.find(number);
  if (found == peers_.end()) return;
  pending_ -= found->second->to_write.size();
  asio::error_code ignored;
  std::ignore = found->second->socket.close(ignored);
  peers_.erase(found);
  events_.on_closed(number);
}

void Network::Loop::close_when_written(int number) {
  const auto found = peers_.find(number);
  if (found == peers_.end()) return;
  found->second->is_closing = true;
  if (found->second->to_write.empty()) drop(number);
}

void Network::Loop::close(int peer) {
  post([this, peer] { close_when_written(peer); });
}

void Network::Loop::trust(int peer) {
  if (const auto found = peers_.find(peer); found != peers_.end()) found->second->is_trusted = true;
}

void Network::Loop::tick() {
  timer_.async_wait([this](asio::error_code error) {
    if (error) return;
    std::vector<int> late;
    for (const auto& [number, peer] : peers_)
      if (!peer->is_trusted && steady_clock::now() - peer->since > stranger_time)
        late.push_back(number);
    for (const int number : late) drop(number);
    if (acceptor_.is_open() && !std::exchange(accepts_, true)) accept();
    events_.on_tick();
    timer_.expires_after(tick_);
    tick();
  });
}

Network::Network(Events events, double tick_seconds)
    : loop_(std::make_unique<Loop>(std::move(events), tick_seconds)) {}
Network::~Network() = default;
uint16_t Network::listen(const std::string& host, uint16_t port) {
  return loop_->listen(host, port);
}
void Network::listen_on(int socket) { loop_->listen_on(socket); }
int Network::connect(const std::string& host, uint16_t port) { return loop_->connect(host, port); }
void Network::start() { loop_->start(); }
void Network::stop() { loop_->stop(); }
void Network::send(int peer, const Message& message) {
  std::string body = encode(message);
  loop_->send(peer, header_of(body.size()) + body);
}
void Network::close(int peer) { loop_->close(peer); }
void Network::trust(int peer) { loop_->trust(peer); }
void Network::post(std::function<void()> work) { loop_->post(std::move(work)); }

}  // namespace weft::comm
