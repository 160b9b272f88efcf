// Tests ranks as processes on loopback that die, stop, hang, or hear from strangers.
#include <array>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <netinet/in.h>
#include <string>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include <doctest/doctest.h>

#include "tests/comm/ranks_program.h"
#include "tests/support/exit_codes.h"
#include "tests/support/program.h"
#include "weft/comm/message.h"

using namespace weft;
using namespace weft::test;

namespace {
// Runs three ranks, of which one does something in the middle.
Outcome launch(const Workplace& place, const std::string& what, int rank,
               const std::string& hang_seconds = "10", const std::string& steps = "40") {
  return place.weft({"launch", "-n", "3", "--oversubscribe", "--", ranks_program(), "counts", steps,
                     hang_seconds, what, std::to_string(rank)});
}

size_t lines_with(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++count;
  return count;
}

// Checks that a rank is lost: the exit code, one line about it, and where the others were.
void check_lost(const Outcome& outcome, int rank, const std::string& how) {
  CAPTURE(outcome.err);
  CHECK(outcome.code == rank_lost);
  CHECK(says(outcome.err, "rank " + std::to_string(rank) + " (host "));
  CHECK(says(outcome.err, how));
  CHECK(lines_with(outcome.err, "weft: error:") == 1);
}

int free_port() {
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t bytes = sizeof address;
  auto* const at = reinterpret_cast<sockaddr*>(&address);
  REQUIRE(bind(socket, at, bytes) == 0);
  REQUIRE(getsockname(socket, at, &bytes) == 0);
  close(socket);
  return ntohs(address.sin_port);
}

std::string bytes_of(const comm::Message& message) {
  const std::string body = comm::encode(message);
  return comm::header_of(body.size()) + body;
}

// Connects, sends bytes, and returns whether the other side closes the connection.
bool is_turned_away(int port, const std::string& bytes) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(port));
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  auto* const at = reinterpret_cast<sockaddr*>(&address);
  while (connect(socket, at, sizeof address) != 0)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  const ssize_t sent = send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
  CHECK(sent > 0);
  std::array<char, 64> answer{};
  const ssize_t count = recv(socket, answer.data(), answer.size(), 0);
  close(socket);
  return count <= 0;
}

Workplace::Environment rank_of_two(int rank, int port) {
  return {{"WEFT_RANK", std::to_string(rank)},
          {"WEFT_RANKS", "2"},
          {"WEFT_LOCAL_RANK", std::to_string(rank)},
          {"WEFT_LOCAL_RANKS", "2"},
          {"WEFT_ADDRESS", "127.0.0.1:" + std::to_string(port)},
          {"WEFT_TOKEN", "of-this-run"}};
}
}  // namespace

TEST_CASE("ranks that do well end well, and exchange strings") {
  const Workplace place;
  const Outcome outcome = launch(place, "none", 0);
  CAPTURE(outcome.err);
  CHECK(outcome.code == 0);
  CHECK(says(outcome.out, "rank 0 of 3 heard from 0\n"));
  CHECK(says(outcome.out, "[rank 2] rank 2 of 3 heard from 0\n"));
}

TEST_CASE("a rank that exits is dead") {
  const Workplace place;
  for (const int rank : {0, 2}) check_lost(launch(place, "exit", rank), rank, "is dead");
}

TEST_CASE("of a rank that is killed in a collective, rank 0 too, all is said that is known of it") {
  const Workplace place;
  for (const int rank : {0, 1}) {
    const Outcome outcome = launch(place, "kill", rank);
    check_lost(outcome, rank,
               "is dead: its connection closed. At its last beat it had done 20 steps; its last "
               "launch: fused 398 (blocks.3.mlp); it awaited all_gather 21 (blocks.3.up.weight). " +
                   std::string(rank > 0 ? ""
                                        : "Rank 1 had done 21 steps; its last launch: fused 398 "
                                          "(blocks.3.mlp); it awaited all_gather 22 "
                                          "(blocks.3.up.weight). ") +
                   "step-00000010 is whole: --resume continues from there.");
  }
}

TEST_CASE("a rank that loops or sleeps is hung, and writes down where it is") {
  const Workplace place;
  for (const auto& [what, rank] : {std::pair("loop", 1), {"sleep", 0}}) {
    const Outcome outcome = launch(place, what, rank, "2");
    check_lost(outcome, rank, "is hung: it has not begun all_gather 21 (blocks.3.up.weight)");
    CHECK(says(outcome.err, "2 ranks await"));
    const std::string fault = place.read("fault-r" + std::to_string(rank) + ".txt");
    CAPTURE(fault);
    CHECK(says(fault, "last launch: fused 398 (blocks.3.mlp)"));
    CHECK(says(fault, " ranks_program+"));
    CHECK(says(place.read("fault-r2.txt"), "awaits: all_gather 21"));
  }
}

TEST_CASE("a rank that is stopped is named") {
  const Workplace place;
  for (const int rank : {0, 1}) check_lost(launch(place, "stop", rank), rank, "is stopped");
}

TEST_CASE("a collective that all have begun and nobody ends accuses nobody") {
  const Workplace place;
  const Outcome outcome = launch(place, "unheard", 1, "1");
  CAPTURE(outcome.err);
  CHECK(outcome.code == rank_lost);
  CHECK(says(outcome.err, "Nobody knows the culprit"));
}

TEST_CASE("a rank that pauses, and one that is slow, is not accused") {
  const Workplace place;
  CHECK(launch(place, "pause", 1, "2").code == 0);
  const Outcome slow = launch(place, "slow", 1, "10", "1200");
  CHECK(slow.code == 0);
  CHECK(says(slow.out, "slowest 1 (host "));
  CHECK(says(slow.out, "waited most: "));
}

TEST_CASE("an error of one rank ends all, an error of all is said once") {
  const Workplace place;
  const Outcome one = launch(place, "throw", 1);
  CAPTURE(one.err);
  CHECK(one.code == rank_lost);
  CHECK(says(one.err, "[rank 1] weft: error: row 7 is bad."));
  CHECK(says(one.err, "failed with exit code 4, and says why itself"));
  const Outcome all = launch(place, "disagree", 2);
  CHECK(all.code == usage);
  CHECK(says(all.err, "has train.seed 1, rank 0 has 0."));
  CHECK(lines_with(all.err, "ranks disagree: rank 2") == 1);
}

TEST_CASE("strangers at the port change nothing") {
  const Workplace first, second;
  const int port = free_port();
  const auto start = [&](const Workplace& place, int rank) {
    return place.start(ranks_program(), {first.path("counts"), "40", "10"},
                       rank_of_two(rank, port));
  };
  Running zero = start(first, 0);
  for (const char* token : {"of-another-run", ""})
    CHECK(is_turned_away(port, bytes_of(comm::Hello{.version = comm::this_version(),
                                                    .token = token,
                                                    .host = "b",
                                                    .pid = 1,
                                                    .rank = 1,
                                                    .size = 2})));
  CHECK(is_turned_away(port, bytes_of(comm::Verdict{.rank = 1, .text = "you are lost"})));
  CHECK(is_turned_away(port, "GET / HTTP/1.1\r\n\r\n"));
  CHECK(is_turned_away(port, comm::header_of(64) + std::string(64, '\xff')));
  CHECK(is_turned_away(port, comm::header_of(size_t{1} << 30)));
  Running one = start(second, 1);
  CHECK(one.wait().code == 0);
  CHECK(zero.wait().code == 0);
}

TEST_CASE("a rank of another version of weft, or of another number of ranks, ends the run") {
  for (const auto& [version, size, why] :
       {std::tuple<std::string, int, std::string>{"0.1 (old)", 2, "has version 0.1 (old), rank 0"},
        {comm::this_version(), 3, "has 3 ranks, rank 0 has 2."}}) {
    const Workplace place;
    const int port = free_port();
    Running zero = place.start(ranks_program(), {"counts", "40", "10"}, rank_of_two(0, port));
    const comm::Hello hello{
        .version = version, .token = "of-this-run", .host = "b", .pid = 1, .rank = 1, .size = size};
    is_turned_away(port, bytes_of(hello));
    const Outcome outcome = zero.wait();
    CHECK(fails_with(outcome, usage, "ranks disagree: rank 1 (host b) " + why) == "");
  }
}

TEST_CASE("a rank of another run is refused, and the run that it came to waits on") {
  const Workplace first, second, third;
  const int port = free_port();
  Running zero = first.start(ranks_program(), {first.path("counts"), "40", "10", "impatient", "0"},
                             rank_of_two(0, port));
  is_turned_away(port, "GET /");  // rank 0 listens by now
  auto other = rank_of_two(1, port);
  other["WEFT_TOKEN"] = "of-another-run";
  CHECK(fails_with(second.run(ranks_program(), {"counts", "40", "10"}, other), rank_lost,
                   "rank 0 does not take rank 1") == "");
  Running one =
      third.start(ranks_program(), {first.path("counts"), "40", "10"}, rank_of_two(1, port));
  CHECK(one.wait().code == 0);
  const Outcome waited = zero.wait();
  CHECK(waited.code == 0);
  CHECK(says(waited.err, "rank 0 of 2 (WEFT_RANK=0 and WEFT_RANKS=2) waits for the other ranks"));
}

TEST_CASE("a port that another program has is named") {
  const Workplace place, other;
  const int port = free_port();
  Running holder = other.start(ranks_program(), {"counts", "40", "10"}, rank_of_two(0, port));
  is_turned_away(port, "GET /");
  CHECK(fails_with(place.run(ranks_program(), {"counts", "40", "10"}, rank_of_two(0, port)), usage,
                   "cannot listen on 127.0.0.1:" + std::to_string(port)) == "");
}

TEST_CASE("ranks without a launcher of weft's meet in a file") {
  const Workplace first, second;
  const auto variables = [](int rank) {
    return Workplace::Environment{{"OMPI_COMM_WORLD_RANK", std::to_string(rank)},
                                  {"OMPI_COMM_WORLD_SIZE", "2"},
                                  {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                                  {"PMIX_NAMESPACE", "job-" + std::to_string(getpid())}};
  };
  Running one = second.start(ranks_program(), {first.path("counts"), "40", "10"}, variables(1));
  Running zero = first.start(ranks_program(), {first.path("counts"), "40", "10"}, variables(0));
  CHECK(one.wait().code == 0);
  CHECK(zero.wait().code == 0);
}

TEST_CASE("ranks of several hosts meet at an address, with a token and without") {
  for (const bool has_token : {true, false}) {
    CAPTURE(has_token);
    const Workplace first, second;
    const std::string port = std::to_string(free_port());
    const auto variables = [&](int rank) {
      Workplace::Environment set = {
          {"RANK", std::to_string(rank)}, {"WORLD_SIZE", "2"},          {"LOCAL_RANK", "0"},
          {"LOCAL_WORLD_SIZE", "1"},      {"MASTER_ADDR", "localhost"}, {"MASTER_PORT", port}};
      if (has_token) set["WEFT_TOKEN"] = "of-this-run";
      return set;
    };
    const std::vector<std::string> words = {first.path("counts"), "40", "10"};
    Running one = second.start(ranks_program(), words, variables(1));
    Running zero = first.start(ranks_program(), words, variables(0));
    CHECK(one.wait().code == 0);
    CHECK(zero.wait().code == 0);
  }
}
