// A program of ranks for the tests of weft/comm: steps of a fake collective, a barrier in shared
// memory, during which one rank may do something else.
//
//   ranks FILE STEPS HANG_SECONDS [WHAT RANK]
//
// WHAT: loop, sleep, exit, kill, throw, disagree, pause, slow, unheard, stop, impatient.
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <fstream>
#include <string>
#include <sys/mman.h>
#include <thread>
#include <unistd.h>

#include "weft/comm/join.h"
#include "weft/device/world.h"
#include "weft/weft.h"

using namespace weft;
using namespace std::chrono_literals;

namespace {
constexpr int most_ranks = 64;

// The last collective that each rank has begun.
std::atomic<uint64_t>* shared_counts(const char* path) {
  const int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  constexpr size_t bytes = most_ranks * sizeof(std::atomic<uint64_t>);
  if (file < 0 || ftruncate(file, bytes) != 0) std::abort();
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (memory == MAP_FAILED) std::abort();
  return static_cast<std::atomic<uint64_t>*>(memory);
}

struct Fault {
  std::string what;
  int rank = -1;
  bool is(const char* name) const { return what == name && rank == world().rank(); }
};

void misbehave(const Fault& fault) {
  if (fault.rank == world().rank()) std::ofstream("fault").flush();  // which shows when
  if (fault.is("loop"))
    for (std::atomic<int> forever{0};;) ++forever;
  if (fault.is("sleep")) std::this_thread::sleep_for(1000s);
  if (fault.is("exit")) _exit(1);
  if (fault.is("throw")) throw Error(ErrorKind::data, "row 7 is bad.");
  if (fault.is("slow")) std::this_thread::sleep_for(1500ms);
  if (fault.is("stop")) std::raise(SIGSTOP);
  if (fault.is("pause")) {
    const World::Pause saving(world());
    std::this_thread::sleep_for(3500ms);
  }
}

// A rank that `dies` does so in the barrier, once its beats have said that it is there.
void barrier(std::atomic<uint64_t>* counts, uint64_t sequence, bool is_unheard, bool dies) {
  world().begins(sequence);
  if (!is_unheard) counts[world().rank()] = sequence;
  world().awaits(sequence);
  if (dies) {
    std::this_thread::sleep_for(1200ms);
    std::raise(SIGKILL);
  }
  for (int rank = 0; rank < world().size(); ++rank)
    while (counts[rank] < sequence) {
      world().check();
      std::this_thread::sleep_for(200us);
    }
  world().goes_on();
}

int run(int argc, char** argv) {
  std::atomic<uint64_t>* const counts = shared_counts(argv[1]);
  const int64_t steps = std::atoll(argv[2]);
  const Fault fault{argc > 5 ? argv[4] : "", argc > 5 ? std::atoi(argv[5]) : -1};
  comm::JoinOptions options{.start_seconds = 20};
  if (fault.is("impatient")) options.quiet_seconds = 0;
  options.patience.hang = std::atof(argv[3]);
  comm::join(options);
  world().describe_by(
      {.launch = [](int launch) { return "fused " + std::to_string(launch) + " (blocks.3.mlp)"; },
       .collective =
           [](uint64_t sequence) {
             return "all_gather " + std::to_string(sequence) + " (blocks.3.up.weight)";
           }});
  world().set_fault_folder(".");
  counts[world().rank()] = 0;  // an earlier run had the file
  world().must_equal("train.seed", fault.is("disagree") ? "1" : "0");
  const std::string first = world().broadcast("greeting", "from " + std::to_string(world().rank()));
  for (int64_t step = 0; step < steps; ++step) {
    world().beat(step, 398);
    if (step == steps / 2) misbehave(fault);
    if (step == 10) world().note_saved("step-00000010");
    barrier(counts, static_cast<uint64_t>(step + 1), fault.is("unheard") && step > steps / 2,
            fault.is("kill") && step == steps / 2);
    world().beat(step + 1, -1);
    if (world().stops_after(step + 1)) break;
    std::this_thread::sleep_for(1ms);
  }
  if (const std::string pace = world().pace(); !pace.empty()) std::printf("%s\n", pace.c_str());
  world().leave();
  std::printf("rank %d of %d heard %s\n", world().rank(), world().size(), first.c_str());
  return world().agreed_stop() >= 0 ? 75 : 0;
}
}  // namespace

int main(int argc, char** argv) try {
  std::signal(SIGTERM, [](int) {});
  return run(argc, argv);
} catch (...) {
  return report_failure();
}
