// Measures what ranks exchange beside MPI, which moves the same bytes in the same run. On several
// hosts weft's ranks use MPI themselves; on one they read each other's memory.
//
//   mpirun -n 2 mpi_exchange [MIB ...]
//   tests/support/two_hosts.sh mpirun -n 2 --host 10.99.0.1,10.99.0.2 -x WEFT_THREADS=1
//     -x WEFT_ADDRESS=10.99.0.1:19999 -x WEFT_TOKEN=any build/release/bench/mpi_exchange
//
// On two hosts: all_gather and reduce_scatter, which adds, beside MPI_Allgather and MPI_Alltoall of
// as many bytes. On one: all_reduce beside MPI_Allreduce.
#include <algorithm>
#include <cstdlib>
#include <functional>
#include <vector>

#include <mpi.h>

#include <weft/base/host/stopwatch.h>
#include <weft/comm/join.h>
#include <weft/device/registry.h>
#include <weft/device/world.h>
#include <weft/ir/graph.h>
#include <weft/ops/collective.h>
#include <weft/ops/ops.h>
#include <weft/runtime/executable.h>
#include <weft/weft.h>

using namespace weft;

namespace {
constexpr int rounds = 15;

// Returns the median over rounds of the time that the slowest rank takes.
double seconds_of(const std::function<double()>& run) {
  std::vector<double> all;
  for (int i = 0; i < rounds; ++i) {
    MPI_Barrier(MPI_COMM_WORLD);
    double mine = run(), slowest = 0;
    MPI_Allreduce(&mine, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    all.push_back(slowest);
  }
  std::ranges::nth_element(all, all.begin() + rounds / 2);
  return all[rounds / 2];
}
double seconds_of_mpi(const std::function<void()>& call) {
  return seconds_of([&] {
    const double begin = now();
    call();
    return now() - begin;
  });
}

// Returns the time of the launches that begin and await the collective `make` makes.
template <class Make>
double seconds_of_weft(const Mesh& mesh, int64_t elements, Make make) {
  const auto workspace = std::make_shared<Workspace>();
  workspace->communicator = mesh.communicator;
  const Value x = input({DType::f32, {elements}}, 0);
  const Graph graph{.inputs = {x}, .outputs = {make(-x)}, .assignments = {}};
  const auto executable = compile_graph(graph, library("cpu"), workspace);
  double seconds = 0;
  executable->set_timer([&](size_t launch, double, double took) {
    const auto kind = executable->plan().launches[launch].kind;
    if (kind == Launch::Kind::collective || kind == Launch::Kind::await) seconds += took;
  });
  const Value ones = tensor(std::vector<float>(static_cast<size_t>(elements), 1), {elements});
  return seconds_of([&] {
    seconds = 0;
    executable->run(std::array{ones});
    return seconds;
  });
}

void show(const char* what, int64_t bytes, double weft, double mpi) {
  if (world().rank() == 0)
    print("{:<15} {:>5} MiB  weft {:8.2f} ms {:6.2f} GB/s   MPI {:8.2f} ms {:6.2f} GB/s   {:.2f}",
          what, bytes >> 20, 1e3 * weft, 1e-9 * static_cast<double>(bytes) / weft, 1e3 * mpi,
          1e-9 * static_cast<double>(bytes) / mpi, mpi / weft);
}

void measure(const Mesh& mesh, int64_t bytes) {
  const MeshAxis& ranks = mesh.axes.front();
  const int64_t elements = bytes / 4 / ranks.size * ranks.size, part = elements / ranks.size;
  const int count = static_cast<int>(part);
  std::vector<float> from(static_cast<size_t>(elements), 1), to(static_cast<size_t>(elements));
  if (world().local_size() == world().size()) {
    show("all_reduce", bytes,
         seconds_of_weft(mesh, elements, [&](const Value& x) { return all_reduce(x, ranks); }),
         seconds_of_mpi([&] {
           MPI_Allreduce(from.data(), to.data(), static_cast<int>(elements), MPI_FLOAT, MPI_SUM,
                         MPI_COMM_WORLD);
         }));
    return;
  }
  show("all_gather", bytes,
       seconds_of_weft(mesh, part, [&](const Value& x) { return all_gather(x, ranks, 0); }),
       seconds_of_mpi([&] {
         MPI_Allgather(from.data(), count, MPI_FLOAT, to.data(), count, MPI_FLOAT, MPI_COMM_WORLD);
       }));
  show("reduce_scatter", bytes,
       seconds_of_weft(mesh, elements, [&](const Value& x) { return reduce_scatter(x, ranks, 0); }),
       seconds_of_mpi([&] {
         MPI_Alltoall(from.data(), count, MPI_FLOAT, to.data(), count, MPI_FLOAT, MPI_COMM_WORLD);
       }));
}
}  // namespace

int main(int argc, char** argv) try {
  int granted = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &granted);
  comm::join();
  const auto mesh = world_mesh();
  if (mesh == nullptr) {
    print("start it as ranks: mpirun -n 2 {}", argv[0]);
    return 2;
  }
  std::vector<int64_t> sizes;
  for (int i = 1; i < argc; ++i) sizes.push_back(std::atoll(argv[i]));
  if (sizes.empty()) sizes = {1, 16, 64, 256};
  for (const int64_t mib : sizes) measure(*mesh, mib << 20);
  world().leave();
  int has_ended = 0;
  MPI_Finalized(&has_ended);
  if (has_ended == 0) MPI_Finalize();
  return 0;
} catch (...) {
  return report_failure();
}
