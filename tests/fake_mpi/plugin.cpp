// A plugin without MPI, for tests of what weft makes of one: messages are files of a folder, and
// end only when they were asked for several times, as those of a slow network.
//   FAKE_MPI            "RANK SIZE FOLDER"
//   FAKE_MPI_INTERFACE  the version that it says it has
//   FAKE_MPI_NAME       what it describes itself as
//   FAKE_MPI_SENT       a file that gets a line "FROM TO BYTES" for each message
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <tuple>
#include <unistd.h>

#include "weft/comm/mpi_plugin/mpi_plugin.h"

namespace {
constexpr int tests_until_ended = 3;
int own_rank = 0, own_size = 1;
std::string folder;

struct Receiving {
  std::string path;
  void* bytes = nullptr;
  size_t count = 0;
  int tests = 0;
};
std::map<weft_mpi_request, Receiving> receiving;
weft_mpi_request newest = 0;
std::map<std::tuple<int, int, int>, int> messages;  // so far, by sender, receiver and tag

std::string next_path(int from, int to, int tag) {
  const int number = messages[{from, to, tag}]++;
  return folder + "/" + std::to_string(from) + "-" + std::to_string(to) + "-" +
         std::to_string(tag) + "-" + std::to_string(number);
}
void note_sent(int to, size_t bytes) {
  const char* const path = std::getenv("FAKE_MPI_SENT");
  if (path == nullptr) return;
  std::FILE* const file = std::fopen(path, "a");
  if (file == nullptr) return;
  std::fprintf(file, "%d %d %zu\n", own_rank, to, bytes);
  std::fclose(file);
}
int fail(const char* what, char* why, size_t room) {
  std::snprintf(why, room, "%s", what);
  return 1;
}
}  // namespace

int weft_mpi_interface() {
  const char* const version = std::getenv("FAKE_MPI_INTERFACE");
  return version == nullptr ? WEFT_MPI_INTERFACE : std::atoi(version);
}
int weft_mpi_start(char* why, size_t room) {
  const char* const place = std::getenv("FAKE_MPI");
  char path[256] = "";
  if (place == nullptr || std::sscanf(place, "%d %d %255s", &own_rank, &own_size, path) != 3)
    return fail("FAKE_MPI is not set", why, room);
  folder = path;
  return 0;
}
int weft_mpi_rank() { return own_rank; }
int weft_mpi_size() { return own_size; }
void weft_mpi_describe(char* text, size_t room) {
  const char* const name = std::getenv("FAKE_MPI_NAME");
  std::snprintf(text, room, "%s", name == nullptr ? "Fake MPI" : name);
}
int weft_mpi_send(const void* bytes, size_t count, int rank, int tag, weft_mpi_request* request,
                  char* why, size_t room) {
  note_sent(rank, count);
  const std::string path = next_path(own_rank, rank, tag), partial = path + ".partial";
  std::FILE* const file = std::fopen(partial.c_str(), "wb");
  if (file == nullptr || std::fwrite(bytes, 1, count, file) != count)
    return fail("no file for a message", why, room);
  std::fclose(file);
  *request = 0;
  return std::rename(partial.c_str(), path.c_str()) == 0 ? 0 : fail("no message", why, room);
}
int weft_mpi_receive(void* bytes, size_t count, int rank, int tag, weft_mpi_request* request, char*,
                     size_t) {
  *request = ++newest;
  receiving[*request] = {next_path(rank, own_rank, tag), bytes, count};
  return 0;
}
int weft_mpi_test(weft_mpi_request* request, char* why, size_t room) {
  const auto found = receiving.find(*request);
  if (found == receiving.end()) return fail("no such message is under way", why, room);
  Receiving& message = found->second;
  if (++message.tests < tests_until_ended) return 0;
  std::FILE* const file = std::fopen(message.path.c_str(), "rb");
  if (file == nullptr) return 0;
  const size_t got = std::fread(message.bytes, 1, message.count, file);
  const bool is_whole = got == message.count && std::fgetc(file) == EOF;
  std::fclose(file);
  unlink(message.path.c_str());
  receiving.erase(found);
  *request = 0;
  return is_whole ? 0 : fail("a message of another length", why, room);
}
void weft_mpi_stop() {}
