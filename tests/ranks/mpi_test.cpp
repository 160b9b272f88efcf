// Tests the communicators of ranks on several hosts without MPI: by a plugin whose messages are
// files (tests/fake_mpi), and what is said where no plugin, or no fitting one, is there.
#include "weft/comm/mpi.h"

#include <cstdlib>
#include <fstream>
#include <string>

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "tests/comm/ranks_program.h"
#include "tests/ranks/exchanges.h"
#include "tests/support/rank_processes.h"
#include "tests/support/temporary_folder.h"
#include "weft/base/error.h"
#include "weft/comm/hosts.h"

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

// `per_host` ranks in a row pretend to be of one host; 0: each is of its own.
std::shared_ptr<const Mesh> mpi_mesh(int per_host = 0) {
  const comm::Peers ranks = peers();
  const Setting place(
      "FAKE_MPI", fmt::format("{} {} {}", ranks.rank, ranks.size, std::getenv("FAKE_MPI_FOLDER")));
  const auto mpi = std::make_shared<comm::MpiLibrary>();
  return std::make_shared<Mesh>(
      Mesh{.axes = {mesh_axis(std::string(data_axis), ranks.size, ranks.rank)},
           .communicator = per_host > 0 ? comm::hosts_communicator(ranks, per_host, mpi)
                                        : comm::mpi_communicator(ranks, mpi)});
}

// The elements of the operands whose crossing between hosts is counted.
constexpr int64_t counted = 1 << 16;
void exchange_counted(const Exchanges& ranks, const std::string& what) {
  const Type type{DType::f32, {counted}};
  ranks.run(type, [&](const Value& x) {
    return what == "gather"    ? all_gather(x, ranks.axis(), 0)
           : what == "scatter" ? reduce_scatter(x, ranks.axis(), 0)
                               : all_reduce(x, ranks.axis());
  });
}
// Returns how many times the operand of a rank crossed between two hosts of two ranks, in one run.
double operands_across(const std::string& test_case, const std::string& what) {
  const test::TemporaryFolder folder, log;
  const std::string sent = log.path() + "/sent";
  const Setting plugin("WEFT_MPI_PLUGIN", fake_plugin());
  const Setting messages("FAKE_MPI_FOLDER", folder.path()), noted("FAKE_MPI_SENT", sent);
  const Setting exchange("TEST_EXCHANGE", what);
  CHECK(run_ranks(4, test_case) == "");
  std::ifstream file(sent);
  double across = 0;
  int from = 0, to = 0;
  for (int64_t bytes = 0; file >> from >> to >> bytes;)
    if (from / 2 != to / 2) across += static_cast<double>(bytes);
  constexpr int runs = 2;
  return across / runs / (counted * sizeof(float));
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
  TEST_CASE("collectives of three hosts with two ranks" * doctest::skip()) {
    const Exchanges ranks(mpi_mesh(2));
    check_collectives(ranks);
    const Type type{DType::bf16, {150'000}};  // which a column sums in two pieces
    for (const Value& got :
         ranks.run(type, [&](const Value& x) { return all_reduce(x, ranks.axis()); }))
      CHECK(bit_difference(got, combined(ranks.operands(type), "add")) == "");
  }
  TEST_CASE("collectives of hosts with several ranks have the bits of their definition") {
    const test::TemporaryFolder folder;
    const Setting plugin("WEFT_MPI_PLUGIN", fake_plugin());
    const Setting messages("FAKE_MPI_FOLDER", folder.path());
    CHECK(run_ranks(6, "collectives of three hosts with two ranks") == "");
    CHECK(folder.entries() == 0);
  }
  TEST_CASE("plain collectives of hosts" * doctest::skip()) {
    check_collectives_plainly(Exchanges(mpi_mesh(std::atoi(std::getenv("TEST_PER_HOST")))));
  }
  TEST_CASE("collectives of 4 hosts, and of 2 with 2 ranks, are those of loops in float64") {
    const Setting plugin("WEFT_MPI_PLUGIN", fake_plugin());
    for (const char* per_host : {"0", "2"}) {
      const test::TemporaryFolder folder;
      const Setting messages("FAKE_MPI_FOLDER", folder.path()), ranks("TEST_PER_HOST", per_host);
      CHECK(run_ranks(4, "plain collectives of hosts") == "");
      CHECK(folder.entries() == 0);
    }
  }
  TEST_CASE("one exchange by messages alone" * doctest::skip()) {
    exchange_counted(Exchanges(mpi_mesh()), std::getenv("TEST_EXCHANGE"));
  }
  TEST_CASE("one exchange of two hosts" * doctest::skip()) {
    exchange_counted(Exchanges(mpi_mesh(2)), std::getenv("TEST_EXCHANGE"));
  }
  TEST_CASE("what crosses between hosts crosses once") {
    // Each rank's part, instead of to each rank of the other host.
    CHECK(operands_across("one exchange by messages alone", "gather") == 8);
    CHECK(operands_across("one exchange of two hosts", "gather") == 4);
    // The sum of one host, instead of the operands of its ranks; and back.
    CHECK(operands_across("one exchange by messages alone", "reduce") == 4);
    CHECK(operands_across("one exchange of two hosts", "reduce") == 2);
    CHECK(operands_across("one exchange by messages alone", "scatter") == 2);
    CHECK(operands_across("one exchange of two hosts", "scatter") == 1.5);
  }
  TEST_CASE("ranks of a host share memory where hosts have equally many in a row") {
    using Machines = std::vector<std::string>;
    CHECK(comm::ranks_per_host(Machines{"a", "a", "b", "b"}) == 2);
    CHECK(comm::ranks_per_host(Machines{"a", "a", "a", "b", "b", "b"}) == 3);
    CHECK(comm::ranks_per_host(Machines{"a", "b", "c"}) == 0);            // nobody to share with
    CHECK(comm::ranks_per_host(Machines{"a", "b", "a", "b"}) == 0);       // not in a row
    CHECK(comm::ranks_per_host(Machines{"a", "a", "b", "b", "b"}) == 0);  // not equally many
    CHECK(comm::ranks_per_host(Machines{"a", "a", "b", "b", "a", "a"}) == 0);
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
