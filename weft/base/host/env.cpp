#include "weft/base/host/env.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <unistd.h>
#include <vector>

#include "weft/base/error.h"
#include "weft/base/host/isa.h"
#include "weft/base/logging.h"
#include "weft/base/text/suggest.h"

namespace weft {
namespace {
constexpr EnvVariable registry[] = {
    {"WEFT_DEBUG",
     "prints 1 passes, 2 plan, 3 graph after each pass, 4 kernels, 5 their loops, 6 every launch"},
    {"WEFT_CACHE_DIR", "folder of compiled kernels (default: $XDG_CACHE_HOME/weft)"},
    {"WEFT_TUNE", "1: autotune: time alternative kernels once, and cache which is fastest"},
    {"WEFT_PATIENCE", "CPU seconds that a refused plan may search for settings that fit (10)"},
    {"WEFT_NO_FLOAT64",
     "1: treat OpenCL devices as having no float64: they refuse steps that need it"},
    {"WEFT_CUDA_PATH", "folder of CUDA's libraries (default: cuda in the cache folder)"},
    {"WEFT_CUDA_OFF", "list of CUDA features to turn off, for debugging",
     "graphs,cudnn-attention,cudnn-conv,epilogues,joins,padding,read-only,side-copies"},
    {"WEFT_CUDA_SYNC", "1: wait for the GPU after every kernel, so that an error names the kernel"},
    {"WEFT_CUDA_ALLOW",
     "list of properties of cuDNN engines to accept that are rejected by default",
     "nondeterministic"},
    {"WEFT_DATA_DIR", "folder of data sets (default: $XDG_DATA_HOME/weft)"},
    {"WEFT_ISA",
     "highest instruction set to use: auto, baseline, avx2, avx512, avx512_bf16 or amx"},
    {"WEFT_THREADS", "number of threads (default: OMP_NUM_THREADS, else all cores)"},
    {"WEFT_RANK", "set by weft launch: the number of this process among the ranks of a run"},
    {"WEFT_RANKS", "set by weft launch: how many ranks the run has"},
    {"WEFT_LOCAL_RANK", "set by weft launch: the rank's number on its host"},
    {"WEFT_LOCAL_RANKS", "set by weft launch: how many ranks the host has"},
    {"WEFT_ADDRESS", "HOST or HOST:PORT under which ranks on other hosts reach rank 0"},
    {"WEFT_TOKEN", "secret of the ranks of a run (default: in a file of the cache folder)"},
    {"WEFT_MPI_PLUGIN", "path of libweft-mpi.so (default: beside weft's libraries)"},
    {"WEFT_MARK", "set by weft launch --hosts: begins the lines that ranks write to it"},
    {"WEFT_LISTENER", "set by weft launch: the open socket on which rank 0 hears the others"},
    {"OMPI_COMM_WORLD_RANK", "set by Open MPI's mpirun, with _SIZE, _LOCAL_RANK and _LOCAL_SIZE"},
    {"OMPI_COMM_WORLD_SIZE", "set by mpirun: how many ranks the run has"},
    {"OMPI_COMM_WORLD_LOCAL_RANK", "set by mpirun: the rank's number on its host"},
    {"OMPI_COMM_WORLD_LOCAL_SIZE", "set by mpirun: how many ranks the host has"},
    {"PMIX_RANK", "set by launchers with PMIx, and compared with their own variables"},
    {"PMIX_NAMESPACE", "set by launchers with PMIx: the job"},
    {"SLURM_PROCID", "set by srun, in a step (SLURM_STEP_ID): the number of a rank"},
    {"SLURM_STEP_NUM_TASKS", "set by srun: how many ranks the run has"},
    {"SLURM_LOCALID", "set by srun: the rank's number on its host"},
    {"SLURM_STEP_TASKS_PER_NODE", "set by srun: how many ranks each host has"},
    {"SLURM_JOB_ID", "set by Slurm: the job"},
    {"SLURM_STEP_ID", "set by srun: the step of the job"},
    {"SLURM_STEP_NAME", "set by srun: tells ranks from the helpers of mpirun"},
    {"RANK", "set by launchers like torchrun: the number of a rank, with WORLD_SIZE"},
    {"WORLD_SIZE", "set by launchers like torchrun: how many ranks the run has"},
    {"LOCAL_RANK", "set by launchers like torchrun: the rank's number on its host"},
    {"LOCAL_WORLD_SIZE", "set by launchers like torchrun: how many ranks the host has"},
    {"MASTER_ADDR", "set by launchers like torchrun: the host of rank 0"},
    {"MASTER_PORT", "set by launchers like torchrun: where rank 0 listens, if WEFT_TOKEN is set"},
    {"TORCHELASTIC_RUN_ID", "set by torchrun: the job"},
    {"OMP_NUM_THREADS", "number of threads where WEFT_THREADS is unset"},
    {"NO_COLOR", "no colours and no progress bar on the terminal"},
    {"COLUMNS", "width of the output (default: the terminal's)"},
    {"XDG_CACHE_HOME", "parent of the cache folder"},
    {"XDG_DATA_HOME", "parent of the folder of data sets"},
    {"NVTX_INJECTION64_PATH", "set by NVIDIA's profilers: kernels are shown by module"},
    {"PATH", "CUDA's libraries are searched in the Python packages beside its folders"},
    {"LD_LIBRARY_PATH", "where the system searches libraries first; weft ignores relative folders"},
    {"HOME", "parent of .cache and .local/share where those are unset"},
};
}  // namespace

std::span<const EnvVariable> env_registry() { return registry; }

namespace {
const EnvVariable& registered(std::string_view name) {
  const auto* const found = std::ranges::find(registry, name, &EnvVariable::name);
  WEFT_ASSERT(found != std::end(registry), "environment variable {} is not registered", name);
  return *found;
}

// Splits a list at its commas.
std::vector<std::string_view> split_list(std::string_view list) {
  std::vector<std::string_view> words;
  while (!list.empty()) {
    const size_t comma = std::min(list.find(','), list.size());
    if (comma > 0) words.push_back(list.substr(0, comma));
    list.remove_prefix(std::min(comma + 1, list.size()));
  }
  return words;
}
}  // namespace

std::optional<std::string> env(std::string_view name) {
  (void)registered(name);
  const char* value = std::getenv(std::string(name).c_str());
  if (value == nullptr || *value == '\0') return std::nullopt;
  return value;
}

std::optional<std::string> env_folder(std::string_view name) {
  auto folder = env(name);
  return folder && folder->starts_with('/') ? folder : std::nullopt;
}

namespace {
// Returns the variable's number, up to the first `end_mark` if there is one.
int env_int(std::string_view name, int otherwise, int low, int high, char end_mark = '\0') {
  auto text = env(name);
  if (!text) return otherwise;
  text = text->substr(0, text->find(end_mark));
  int value = 0;
  auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), value);
  if (error != std::errc() || end != text->data() + text->size())
    throw Error(ErrorKind::usage, "{}='{}' is not a whole number.", name, *text);
  if (value < low || value > high)
    throw Error(ErrorKind::usage, "{} is {} to {}. Got {}.", name, low, high, value);
  return value;
}
}  // namespace

int env_threads(int cores) {
  cores = std::min(cores, most_threads);
  if (env("WEFT_THREADS")) return env_int("WEFT_THREADS", cores, 1, most_threads);
  // OMP_NUM_THREADS lists a number for each level of nested parallelism; weft has one level. Other
  // programs read the variable too, so a value that weft cannot use is not an error.
  try {
    return env_int("OMP_NUM_THREADS", cores, 1, most_threads, ',');
  } catch (const Error& error) {
    logging::warn("{} It is ignored. Hint: WEFT_THREADS.", error.what());
    return cores;
  }
}

bool env_lists(std::string_view name, std::string_view word) {
  const std::vector<std::string_view> known = split_list(registered(name).words);
  WEFT_ASSERT(std::ranges::find(known, word) != known.end(), "{} has no word {}", name, word);
  const std::string list = env(name).value_or("");
  bool found = false;
  for (std::string_view listed : split_list(list)) {
    if (std::ranges::find(known, listed) == known.end())
      throw Error(ErrorKind::usage, "{} is a list of some of {}. Got '{}'.", name,
                  registered(name).words, listed);
    found |= listed == word;
  }
  return found;
}

bool env_flag(std::string_view name) { return env_int(name, 0, 0, 1) != 0; }

int debug_level() {
  static const int level = env_int("WEFT_DEBUG", 0, 0, 6);
  return level;
}

int env_patience() { return env_int("WEFT_PATIENCE", 10, 0, 3600); }

void check_environment() {
  debug_level();
  env_patience();
  isa();
  for (std::string_view name : {"WEFT_TUNE", "WEFT_NO_FLOAT64", "WEFT_CUDA_SYNC"}) env_flag(name);
  for (const EnvVariable& variable : registry)
    if (!variable.words.empty()) env_lists(variable.name, split_list(variable.words).front());
  env_int("WEFT_THREADS", 1, 1, most_threads);
  for (std::string_view name : {"WEFT_CUDA_PATH", "HOME"})
    if (env(name) && !env_folder(name))
      logging::warn("{}={} is ignored: it is not an absolute path.", name, *env(name));
  std::vector<std::string_view> known;
  for (const EnvVariable& variable : registry) known.push_back(variable.name);
  for (char** entry = environ; *entry != nullptr; ++entry) {
    std::string_view text = *entry, name = text.substr(0, text.find('='));
    if (!name.starts_with("WEFT_") || name.starts_with("WEFT__")) continue;  // recipe keys
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    std::string_view similar = nearest(name, known);
    logging::warn("{} is not a variable of weft. {}", name,
                  similar.empty() ? "Hint: weft doctor --env lists them."
                                  : fmt::format("Did you mean {}?", similar));
  }
}

namespace {
// Returns the user's directory for weft by the XDG Base Directory Specification: $`variable`/weft,
// else $HOME/`otherwise`/weft, else "". The specification says to ignore a variable with a relative
// path.
std::string user_directory(std::string_view variable, std::string_view otherwise) {
  if (auto parent = env_folder(variable)) return *parent + "/weft";
  if (auto home = env_folder("HOME")) return fmt::format("{}/{}/weft", *home, otherwise);
  return "";
}
}  // namespace

std::string cache_directory() {
  return env("WEFT_CACHE_DIR").value_or(user_directory("XDG_CACHE_HOME", ".cache"));
}

std::string data_directory() {
  return env("WEFT_DATA_DIR").value_or(user_directory("XDG_DATA_HOME", ".local/share"));
}
}  // namespace weft
