#include "weft/comm/launcher.h"

#include <charconv>

#include <fmt/format.h>

#include "weft/base/error.h"
#include "weft/base/host/env.h"

namespace weft::comm {
namespace {
// A Launcher is the names of a launcher's variables; "": it has none.
struct Launcher {
  std::string_view name;
  std::string_view rank, size, local_rank;
  std::string_view local_size;    // the number of ranks on this host
  std::string_view job = "";      // names the job
  std::string_view address = "";  // with rank 0's host, or host and port
  std::string_view port = "";
  std::string_view only_with = "";  // counts where this one is set, too
};

constexpr Launcher launchers[] = {
    {.name = "weft launch",
     .rank = "WEFT_RANK",
     .size = "WEFT_RANKS",
     .local_rank = "WEFT_LOCAL_RANK",
     .local_size = "WEFT_LOCAL_RANKS"},
    {.name = "Open MPI",
     .rank = "OMPI_COMM_WORLD_RANK",
     .size = "OMPI_COMM_WORLD_SIZE",
     .local_rank = "OMPI_COMM_WORLD_LOCAL_RANK",
     .local_size = "OMPI_COMM_WORLD_LOCAL_SIZE",
     .job = "PMIX_NAMESPACE"},
    // A batch script's shell has SLURM_PROCID and SLURM_NTASKS, and is no rank: it is in no step.
    {.name = "Slurm",
     .rank = "SLURM_PROCID",
     .size = "SLURM_STEP_NUM_TASKS",
     .local_rank = "SLURM_LOCALID",
     .local_size = "SLURM_STEP_TASKS_PER_NODE",
     .job = "SLURM_JOB_ID",
     .only_with = "SLURM_STEP_ID"},
    {.name = "torchrun",
     .rank = "RANK",
     .size = "WORLD_SIZE",
     .local_rank = "LOCAL_RANK",
     .local_size = "LOCAL_WORLD_SIZE",
     .job = "TORCHELASTIC_RUN_ID",
     .address = "MASTER_ADDR",
     .port = "MASTER_PORT"},
};

// PMIx says who a rank is, not of how many; launchers that have it set variables of their own.
constexpr std::string_view pmix_rank = "PMIX_RANK";

std::optional<int> number_of(std::string_view variable) {
  const auto text = variable.empty() ? std::nullopt : env(variable);
  if (!text) return std::nullopt;
  int value = 0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), value);
  if (error != std::errc() || end != text->data() + text->size() || value < 0)
    throw Error(ErrorKind::usage, "{}='{}' is not the number of a rank. Hint: unset {}.", variable,
                *text, variable);
  return value;
}

std::string text_of(std::string_view variable) {
  return variable.empty() ? "" : env(variable).value_or("");
}

// mpirun starts its helpers by srun on clusters with Slurm: what these start has Slurm's variables
// of a helper.
bool is_helper_of_mpirun(const Launcher& launcher) {
  const std::string step = launcher.name == "Slurm" ? text_of("SLURM_STEP_NAME") : "";
  return step == "orted" || step == "prted" || step.starts_with("hydra_");
}

std::optional<Place> place_by(const Launcher& launcher) {
  if (!launcher.only_with.empty() && !env(launcher.only_with)) return std::nullopt;
  if (is_helper_of_mpirun(launcher)) return std::nullopt;
  const std::optional<int> rank = number_of(launcher.rank), size = number_of(launcher.size);
  if (!rank && (!size || *size == 1)) return std::nullopt;
  const auto stale = [&](std::string_view variable, std::string_view other) {
    throw Error(ErrorKind::usage,
                "{}={} is set, but {} is not, so this is no rank that {} started. Hint: unset {}.",
                variable, text_of(variable), other, launcher.name, variable);
  };
  if (!size) stale(launcher.rank, launcher.size);
  if (!rank) stale(launcher.size, launcher.rank);
  if (*rank >= *size)
    throw Error(ErrorKind::usage,
                "{}={} is no rank of {}={}: ranks count from 0. Hint: unset {} where it is left "
                "over from another run.",
                launcher.rank, *rank, launcher.size, *size, launcher.rank);
  if (*size == 1) return std::nullopt;
  Place place{
      .launcher = std::string(launcher.name),
      .rank = *rank,
      .size = *size,
      .local_rank = number_of(launcher.local_rank).value_or(*rank),
      // Slurm lists the numbers of all hosts: "4" on one host, "2(x2)" on two.
      .is_on_one_host = text_of(launcher.local_size) == text_of(launcher.size),
      .job = text_of(launcher.job),
      .variables = fmt::format("{}={} and {}={}", launcher.rank, *rank, launcher.size, *size),
      .address = text_of(launcher.address)};
  if (launcher.name == "Slurm") place.job += "." + text_of(launcher.only_with);
  if (!launcher.port.empty() && !place.address.empty())
    place.address += ":" + text_of(launcher.port);
  if (const auto address = env("WEFT_ADDRESS")) place.address = *address;
  return place;
}
}  // namespace

std::optional<Place> find_place() {
  std::optional<Place> found;
  const Launcher* by = nullptr;
  for (const Launcher& launcher : launchers) {
    const std::optional<Place> place = place_by(launcher);
    if (!place) continue;
    if (found && (found->rank != place->rank || found->size != place->size))
      throw Error(ErrorKind::usage,
                  "two launchers disagree: {} says rank {} of {} ({}), {} says rank {} of {} ({}). "
                  "Hint: start ranks by one of them, or unset the other's variables.",
                  found->launcher, found->rank, found->size, by->rank, place->launcher, place->rank,
                  place->size, launcher.rank);
    if (!found) {
      found = place;
      by = &launcher;
    }
  }
  const std::optional<int> pmix = found ? number_of(pmix_rank) : std::nullopt;
  if (pmix && *pmix != found->rank)
    throw Error(ErrorKind::usage,
                "two launchers disagree: {} says rank {} ({}), PMIx says rank {} ({}). Hint: start "
                "ranks by one of them, or unset the other's variables.",
                found->launcher, found->rank, by->rank, *pmix, pmix_rank);
  return found;
}

std::vector<std::string_view> rank_variables() {
  std::vector<std::string_view> names{pmix_rank};
  for (const Launcher& launcher : launchers) {
    names.push_back(launcher.rank);
    names.push_back(launcher.size);
  }
  return names;
}

}  // namespace weft::comm
