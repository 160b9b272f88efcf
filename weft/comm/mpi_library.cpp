#include "weft/comm/mpi_library.h"

#include <array>

#include "weft/base/error.h"
#include "weft/base/host/env.h"

namespace weft::comm {
namespace {
constexpr const char* plugin = "libweft-mpi.so";

// What MPI writes into: why it refuses, or its name.
struct Text {
  std::array<char, 512> bytes{};
  const char* text() const { return bytes.data(); }
};

[[noreturn]] void lose(const Text& why) {
  throw Error(ErrorKind::rank_lost, "[mpi] MPI cannot go on: {}.", why.text());
}
}  // namespace

MpiLibrary::MpiLibrary()
    : library_("mpi", {env("WEFT_MPI_PLUGIN").value_or(plugin)},
               "ranks of several hosts exchange values by MPI; the plugin is built where MPI's "
               "headers are (tools/setup.sh --cluster), and needs the MPI it was built with.") {
  decltype(&weft_mpi_interface) interface = nullptr;
  library_.find(interface, "weft_mpi_interface");
  if (const int its = interface(); its != WEFT_MPI_INTERFACE)
    throw Error(ErrorKind::device,
                "[mpi] {} has version {} of the interface, this weft has {}. Hint: build both from "
                "one source.",
                library_.path(), its, WEFT_MPI_INTERFACE);
  library_.find(start_, "weft_mpi_start");
  library_.find(rank_, "weft_mpi_rank");
  library_.find(size_, "weft_mpi_size");
  library_.find(describe_, "weft_mpi_describe");
  library_.find(send_, "weft_mpi_send");
  library_.find(receive_, "weft_mpi_receive");
  library_.find(test_, "weft_mpi_test");
  library_.find(stop_, "weft_mpi_stop");
}

void MpiLibrary::start(int rank, int size) {
  Text why;
  if (start_(why.bytes.data(), why.bytes.size()) != 0)
    throw Error(ErrorKind::device, "[mpi] MPI does not start: {}.", why.text());
  if (rank_() != rank || size_() != size)
    throw Error(ErrorKind::device,
                "[mpi] this is rank {} of {}, but to MPI ({}) it is rank {} of {}. Hint: ranks of "
                "several hosts are started by mpirun or srun --mpi=pmix.",
                rank, size, description(), rank_(), size_());
}

std::string MpiLibrary::description() const {
  Text name;
  describe_(name.bytes.data(), name.bytes.size());
  return name.text();
}

void MpiLibrary::send(const std::byte* bytes, size_t count, int rank, int tag,
                      weft_mpi_request& request) {
  Text why;
  if (send_(bytes, count, rank, tag, &request, why.bytes.data(), why.bytes.size()) != 0) lose(why);
}
void MpiLibrary::receive(std::byte* bytes, size_t count, int rank, int tag,
                         weft_mpi_request& request) {
  Text why;
  if (receive_(bytes, count, rank, tag, &request, why.bytes.data(), why.bytes.size()) != 0)
    lose(why);
}
bool MpiLibrary::has_ended(weft_mpi_request& request) {
  if (request == 0) return true;
  Text why;
  if (test_(&request, why.bytes.data(), why.bytes.size()) != 0) lose(why);
  return request == 0;
}

}  // namespace weft::comm
