#include "weft/comm/launcher.h"

#include <cstdlib>
#include <map>
#include <string>
#include <sys/stat.h>

#include <doctest/doctest.h>

#include "tests/comm/ranks_program.h"
#include "tests/support/temporary_folder.h"
#include "weft/base/error.h"
#include "weft/comm/meeting.h"

using namespace weft;
using weft::test::says;

namespace {
// Sets variables, and removes them.
class Variables {
 public:
  explicit Variables(std::map<std::string, std::string> values) : values_(std::move(values)) {
    for (const auto& [name, value] : values_) setenv(name.c_str(), value.c_str(), 1);
  }
  ~Variables() {
    for (const auto& [name, value] : values_) unsetenv(name.c_str());
  }

 private:
  std::map<std::string, std::string> values_;
};

std::string refusal(std::map<std::string, std::string> values) {
  const Variables set(std::move(values));
  try {
    comm::find_place();
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::usage);
    return error.what();
  }
  return "";
}

std::string place_text(std::map<std::string, std::string> values) {
  const Variables set(std::move(values));
  const auto place = comm::find_place();
  if (!place) return "alone";
  return place->launcher + " " + std::to_string(place->rank) + "/" + std::to_string(place->size) +
         (place->is_on_one_host ? " here" : "");
}

}  // namespace

TEST_CASE("each launcher says its rank by its own variables") {
  CHECK(place_text({}) == "alone");
  CHECK(place_text({{"WEFT_RANK", "1"}, {"WEFT_RANKS", "2"}, {"WEFT_LOCAL_RANKS", "2"}}) ==
        "weft launch 1/2 here");
  CHECK(place_text({{"OMPI_COMM_WORLD_RANK", "3"},
                    {"OMPI_COMM_WORLD_SIZE", "4"},
                    {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}}) == "Open MPI 3/4");
  CHECK(place_text({{"SLURM_PROCID", "1"},
                    {"SLURM_STEP_NUM_TASKS", "4"},
                    {"SLURM_STEP_TASKS_PER_NODE", "4"},
                    {"SLURM_STEP_ID", "0"}}) == "Slurm 1/4 here");
  CHECK(place_text({{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"LOCAL_WORLD_SIZE", "2"}}) ==
        "torchrun 1/2 here");
}

TEST_CASE("a batch script's shell, a helper of mpirun and a rank without others are no ranks") {
  CHECK(place_text({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}, {"SLURM_JOB_ID", "7"}}) ==
        "alone");
  const std::map<std::string, std::string> orted = {{"SLURM_PROCID", "0"},
                                                    {"SLURM_STEP_NUM_TASKS", "2"},
                                                    {"SLURM_STEP_ID", "0"},
                                                    {"SLURM_STEP_NAME", "orted"}};
  CHECK(place_text(orted) == "alone");
  std::map<std::string, std::string> both = orted;
  both.insert({{"OMPI_COMM_WORLD_RANK", "3"}, {"OMPI_COMM_WORLD_SIZE", "4"}});
  CHECK(place_text(both) == "Open MPI 3/4");
  CHECK(place_text({{"RANK", "0"}, {"WORLD_SIZE", "1"}}) == "alone");
  CHECK(place_text({{"WORLD_SIZE", "1"}}) == "alone");
}

TEST_CASE("variables that contradict each other are refused by name") {
  const std::string stale = refusal({{"RANK", "3"}});
  CHECK(says(stale, "RANK=3"));
  CHECK(says(stale, "WORLD_SIZE"));
  CHECK(says(refusal({{"WORLD_SIZE", "4"}}), "WORLD_SIZE=4"));
  CHECK(says(refusal({{"RANK", "3"}, {"WORLD_SIZE", "1"}}), "RANK=3"));
  CHECK(says(refusal({{"RANK", "x"}, {"WORLD_SIZE", "2"}}), "RANK='x'"));
  const std::string two = refusal({{"WEFT_RANK", "1"},
                                   {"WEFT_RANKS", "2"},
                                   {"OMPI_COMM_WORLD_RANK", "0"},
                                   {"OMPI_COMM_WORLD_SIZE", "4"}});
  CHECK(says(two, "weft launch says rank 1 of 2"));
  CHECK(says(two, "Open MPI says rank 0 of 4"));
  CHECK(says(
      refusal({{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "2"}, {"PMIX_RANK", "0"}}),
      "PMIx says rank 0"));
}

TEST_CASE("ranks of several hosts need an address") {
  comm::Place place{
      .launcher = "torchrun", .rank = 1, .size = 2, .variables = "RANK=1 and WORLD_SIZE=2"};
  CHECK_THROWS_WITH_AS(comm::planned_meeting(place), doctest::Contains("RANK=1 and WORLD_SIZE=2"),
                       Error);
  place.address = "a";
  CHECK(comm::planned_meeting(place).host == "a");
  place.address = "a:port";
  CHECK_THROWS_AS(comm::planned_meeting(place), Error);
  place.is_on_one_host = true;
  place.address = "a:4711";
  CHECK(comm::planned_meeting(place).host == "127.0.0.1");
  CHECK(comm::planned_meeting(place).port == 0);  // a port without a token is the launcher's
  const Variables set(std::map<std::string, std::string>{{"WEFT_TOKEN", "secret"}});
  CHECK(comm::planned_meeting(place).port == 4711);
  CHECK(!comm::needs_file(comm::planned_meeting(place)));
}

TEST_CASE("tokens differ, and compare as a whole") {
  const std::string token = comm::make_token();
  CHECK(token.size() == 32);
  CHECK(token != comm::make_token());
  CHECK(comm::is_same_token(token, token));
  CHECK(!comm::is_same_token(token, token.substr(1)));
  CHECK(!comm::is_same_token("", ""));
}

TEST_CASE("a meeting's file is four words") {
  const auto meeting = comm::parse_meeting("weft a 4711 secret\n");
  REQUIRE(meeting);
  CHECK(meeting->host == "a");
  CHECK(meeting->port == 4711);
  CHECK(meeting->token == "secret");
  for (const char* other :
       {"", "weft a 0 secret", "weft a 70000 secret", "weft a x secret", "weft a 1"})
    CHECK(!comm::parse_meeting(other));
}

TEST_CASE("only this user can read a meeting's file, or it is not read") {
  const test::TemporaryFolder folder;
  const std::string path = folder.path() + "/job";
  const mode_t before = umask(0);
  comm::write_meeting(path, {.host = "a", .port = 4711, .token = "secret"});
  umask(before);
  struct stat status{};
  REQUIRE(stat(path.c_str(), &status) == 0);
  CHECK((status.st_mode & 07777) == 0600);
  CHECK(comm::read_meeting(path)->token == "secret");
  for (const mode_t open_to_others : {0640, 0604, 0620}) {
    REQUIRE(chmod(path.c_str(), open_to_others) == 0);
    CHECK(!comm::read_meeting(path));
  }
}
