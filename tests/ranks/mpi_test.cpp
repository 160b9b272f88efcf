// Tests the communicator of ranks on several hosts without MPI: by a plugin whose messages are
// files (tests/fake_mpi), and what is said where no plugin, or no fitting one, is there.
#include "weft/comm/mpi.h"

#include <cstdlib>
#include <string>

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "tests/comm/ranks_program.h"
#include "tests/ranks/exchanges.h"
#include "tests/support/rank_processes.h"
#include "tests/support/temporary_folder.h"
#include "weft/base/error.h"

using namespace weft;
using namespace weft::testing;
using test::says;

namespace {
// A Setting is a variable of the environment, set while it lives.
class Setting {
 public:
  Setting(const char* name, const std::string& value) : name_(name) {
    setenv(name, value.c_str(), 1);
  }
  ~Setting() { unsetenv(name_); }
  Setting(const Setting&) = delete;
  Setting& operator=(const Setting&) = delete;

 private:
  const char* name_;
};

std::string fake_plugin() {
  return std::string(std::getenv("BUILD")) + "/tests/fake_mpi/libweft-mpi.so";
}

std::shared_ptr<const Mesh> mpi_mesh() {
  const comm::Peers ranks = peers();
  const Setting place(
      "FAKE_MPI", fmt::format("{} {} {}", ranks.rank, ranks.size, std::getenv("FAKE_MPI_FOLDER")));
  return std::make_shared<Mesh>(
      Mesh{.axes = {mesh_axis(std::string(data_axis), ranks.size, ranks.rank)},
           .communicator = comm::mpi_communicator(ranks, std::make_shared<comm::MpiLibrary>())});
}

// Returns the error, as "CODE: MESSAGE".
template <class Work>
std::string error_of(Work work) {
  try {
    work();
  } catch (const Error& error) {
    return fmt::format("{}: {}", static_cast<int>(error.kind()), error.what());
  }
  return "";
}
}  // namespace

TEST_SUITE("mpi") {
  TEST_CASE("collectives of hosts" * doctest::skip()) { check_collectives(Exchanges(mpi_mesh())); }

  TEST_CASE("collectives by messages have the bits of their definition") {
    const test::TemporaryFolder folder;
    const Setting plugin("WEFT_MPI_PLUGIN", fake_plugin());
    const Setting messages("FAKE_MPI_FOLDER", folder.path());
    CHECK(run_ranks(3, "collectives of hosts") == "");
    CHECK(folder.entries() == 0);  // every message was received
  }
  TEST_CASE("hosts with other versions of MPI" * doctest::skip()) {
    const Setting name("FAKE_MPI_NAME", fmt::format("Fake MPI {}", peers().rank));
    const std::string error = error_of([] { mpi_mesh(); });
    CHECK(says(error, "7: [mpi] rank 1 has Fake MPI 1, rank 0 has Fake MPI 0."));
  }
  TEST_CASE("hosts need one version of MPI") {
    const Setting plugin("WEFT_MPI_PLUGIN", fake_plugin()), messages("FAKE_MPI_FOLDER", "/tmp");
    CHECK(run_ranks(2, "hosts with other versions of MPI") == "");
  }
  TEST_CASE("a plugin that is missing, or of another version, is refused") {
    {
      const Setting plugin("WEFT_MPI_PLUGIN", "/nowhere/libweft-mpi.so");
      const std::string error = error_of([] { comm::MpiLibrary(); });
      CHECK(
          says(error, "7: [mpi] no /nowhere/libweft-mpi.so among the system's libraries. Hint: "));
    }
    const Setting plugin("WEFT_MPI_PLUGIN", fake_plugin());
    {
      const Setting other("FAKE_MPI_INTERFACE", "99");
      const std::string error = error_of([] { comm::MpiLibrary(); });
      CHECK(says(error, "has version 99 of the interface, this weft has 1"));
    }
    comm::MpiLibrary library;
    CHECK(says(error_of([&] { library.start(0, 2); }),
               "7: [mpi] MPI does not start: FAKE_MPI is not set."));
    const Setting alone("FAKE_MPI", "0 1 /tmp");  // as MPI says where mpirun did not start a rank
    CHECK(says(error_of([&] { library.start(1, 2); }),
               "7: [mpi] this is rank 1 of 2, but to MPI (Fake MPI) it is rank 0 of 1. Hint: "));
  }
}
