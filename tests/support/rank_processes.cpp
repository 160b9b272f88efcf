#include "tests/support/rank_processes.h"

#include <array>
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include <fmt/format.h>

#include "weft/base/error.h"

namespace weft::testing {
namespace {
constexpr unsigned seconds_of_ranks = 300;          // after which a rank that waits is ended
constexpr const char* variable = "WEFT_TEST_RANK";  // "RANK SIZE SOCKET"

// Messages are a length and as many bytes.
bool send(int socket, const std::string& text) {
  const auto length = static_cast<uint32_t>(text.size());
  std::string all(reinterpret_cast<const char*>(&length), sizeof length);
  all += text;
  return ::send(socket, all.data(), all.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(all.size());
}
bool receive(int socket, std::string& text) {
  uint32_t length = 0;
  if (recv(socket, &length, sizeof length, MSG_WAITALL) != sizeof length) return false;
  text.resize(length);
  return length == 0 ||
         recv(socket, text.data(), length, MSG_WAITALL) == static_cast<ssize_t>(length);
}

// Sends to all ranks what all of them have sent, until one is gone.
void connect(const std::vector<int>& sockets) {
  for (std::string text;;) {
    std::vector<std::string> all;
    for (int socket : sockets) {
      if (!receive(socket, text)) return;
      all.push_back(text);
    }
    for (int socket : sockets)
      for (const std::string& each : all)
        if (!send(socket, each)) return;
  }
}

struct Process {
  pid_t pid = -1;
  int socket = -1;
  std::FILE* output = std::tmpfile();
};

void start(Process& process, int rank, int ranks, const std::string& test_case) {
  std::array<int, 2> ends{};
  WEFT_CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()) == 0, "[test] no sockets");
  fcntl(ends[0], F_SETFD, FD_CLOEXEC);
  process.socket = ends[0];
  const std::string filter = "--test-case=" + test_case;
  const std::string place = fmt::format("{} {} {}", rank, ranks, ends[1]);
  const int output = fileno(process.output);
  process.pid = fork();
  if (process.pid == 0) {
    setenv(variable, place.c_str(), 1);
    setenv("WEFT_THREADS", "1", 1);
    alarm(seconds_of_ranks);
    dup2(output, 1);
    dup2(output, 2);
    execl("/proc/self/exe", "ranks", filter.c_str(), "--no-skip", nullptr);
    _exit(127);
  }
  close(ends[1]);
}

std::string text_of(std::FILE* file) {
  std::string text(static_cast<size_t>(lseek(fileno(file), 0, SEEK_END)), '\0');
  text.resize(static_cast<size_t>(pread(fileno(file), text.data(), text.size(), 0)));
  return text;
}

struct Place {
  int rank = 0, size = 1, socket = -1;
};
Place place() {
  Place found;
  const char* const text = std::getenv(variable);
  WEFT_CHECK(text != nullptr &&
                 std::sscanf(text, "%d %d %d", &found.rank, &found.size, &found.socket) == 3,
             "[test] this test case runs in ranks");
  return found;
}
}  // namespace

std::string run_ranks(int ranks, const std::string& test_case) {
  std::vector<Process> processes(static_cast<size_t>(ranks));
  std::vector<int> sockets;
  for (int rank = 0; rank < ranks; ++rank) {
    start(processes[static_cast<size_t>(rank)], rank, ranks, test_case);
    sockets.push_back(processes[static_cast<size_t>(rank)].socket);
  }
  std::string failure;
  {
    const std::jthread hub([&] { connect(sockets); });
    for (int rank = 0; rank < ranks; ++rank) {
      int status = 0;
      waitpid(processes[static_cast<size_t>(rank)].pid, &status, 0);
      if (status != 0 && failure.empty())
        failure = fmt::format("rank {} of {} ended with status {}:\n{}", rank, ranks, status,
                              text_of(processes[static_cast<size_t>(rank)].output));
      shutdown(sockets[static_cast<size_t>(rank)], SHUT_RDWR);
    }
  }
  for (const Process& process : processes) {
    close(process.socket);
    std::fclose(process.output);
  }
  return failure;
}

comm::Peers peers() {
  const Place own = place();
  return {.rank = own.rank,
          .size = own.size,
          .exchange =
              [own](const std::string& mine, Channel) {
                std::vector<std::string> all(static_cast<size_t>(own.size));
                bool works = send(own.socket, mine);
                for (std::string& each : all) works = works && receive(own.socket, each);
                WEFT_CHECK(works, "[test] a rank is gone");
                return all;
              },
          .check =
              [own] {
                std::byte none{};
                WEFT_CHECK(recv(own.socket, &none, 1, MSG_PEEK | MSG_DONTWAIT) != 0,
                           "[test] a rank is gone");
              }};
}

std::shared_ptr<const Mesh> data_mesh() {
  const Place own = place();
  return std::make_shared<Mesh>(
      Mesh{.axes = {mesh_axis(std::string(data_axis), own.size, own.rank)},
           .communicator = comm::shared_communicator(peers())});
}
}  // namespace weft::testing
