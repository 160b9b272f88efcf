#include "weft/backends/opencl/clblast.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>

#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>

#include "weft/backends/opencl/cl_device.h"
#include "weft/backends/opencl/cl_error.h"
#include "weft/base/error.h"
#include "weft/base/host/shared_library.h"
#include "weft/base/logging.h"
#include "weft/base/numbers/rounding.h"
#include "weft/device/gemm.h"
#include "weft/ir/op_def.h"

namespace weft::opencl {
namespace {

// CLBlast copies operands of large products to tiled layouts in scratch. Products are divided into
// parts of at most this many rows, columns and terms, which bounds scratch while copies remain
// cheap relative to the arithmetic.
constexpr int64_t most_extent = 2048;
constexpr int64_t tile = 128;                // CLBlast's largest tile
constexpr size_t most_base_alignment = 512;  // bytes; of sub-buffers

struct Part {
  int64_t rows, columns, terms;
};
Part largest_part(const Contraction& task) {
  return {std::min(task.n, most_extent), std::min(task.m, most_extent),
          std::min(task.k, most_extent)};
}

// Returns an upper bound, the three matrices in whole tiles, as planning does not query the device.
size_t workspace_bytes(const Contraction& task) {
  const Part part = largest_part(task);
  auto tiled = [](int64_t extent) { return round_up(extent, tile); };
  const int64_t rows = tiled(part.rows), columns = tiled(part.columns), terms = tiled(part.terms);
  const int64_t elements = rows * terms + terms * columns + rows * columns;
  return static_cast<size_t>(elements) * size_of(task.dtype) + most_base_alignment;
}

// The values and functions are those of clblast_c.h.
enum Layout : int { column_major = 102 };
enum Transpose : int { not_transposed = 111, transposed = 112 };

struct Library {
  Library() {
    library.find(multiply, "CLBlastSgemmWithTempBuffer");
    library.find(multiply_batch, "CLBlastSgemmStridedBatched");
    library.find(scratch_bytes, "CLBlastSGemmTempBufferSize");
  }

  SharedLibrary library{"opencl", {"libclblast.so.1"}, "apt install libclblast1."};
  // Each matrix is given by memory, first element, and elements between columns.
  int (*multiply)(Layout, Transpose a, Transpose b, size_t m, size_t n, size_t k, float alpha,
                  cl_mem, size_t, size_t, cl_mem, size_t, size_t, float beta, cl_mem, size_t,
                  size_t, cl_command_queue*, cl_event*, cl_mem scratch);
  // A batch also has the distance between its matrices, in elements.
  int (*multiply_batch)(Layout, Transpose a, Transpose b, size_t m, size_t n, size_t k, float alpha,
                        cl_mem, size_t, size_t, size_t, cl_mem, size_t, size_t, size_t, float beta,
                        cl_mem, size_t, size_t, size_t, size_t batches, cl_command_queue*,
                        cl_event*);
  int (*scratch_bytes)(Layout, Transpose a, Transpose b, size_t m, size_t n, size_t k, size_t,
                       size_t, size_t, size_t, size_t, size_t, cl_command_queue*, size_t* bytes);
};
// Returns null if CLBlast is not installed.
const Library* library() {
  static const std::unique_ptr<Library> loaded = []() -> std::unique_ptr<Library> {
    try {
      return std::make_unique<Library>();
    } catch (const Error& error) {
      logging::debug(1, "loops multiply: {}", error.what());
      return nullptr;
    }
  }();
  return loaded.get();
}

Transpose transpose(const GemmMatrix& matrix) {
  return matrix.transposed ? transposed : not_transposed;
}

class Product : public Kernel {
 public:
  Product(gpu::Device& device, const GemmLaunch& launch, size_t workspace)
      : device_(device),
        queue_(queue_of(device)),
        launch_(launch),
        gemm_(launch_.gemm),
        part_(largest_part(launch_.task)) {
    const size_t needed = scratch_bytes();
    WEFT_CHECK(needed == 0 || needed + most_base_alignment <= workspace,
               "[opencl] CLBlast needs {} bytes of scratch for a product of {} x {} x {} on {}. "
               "The plan has {}.",
               needed, launch_.task.m, launch_.task.n, launch_.task.k, device.name(), workspace);
    scratch_bytes_ = needed;
    WEFT_ASSERT(!launch_.so_far ||
                    (launch_.so_far->strides == row_major_strides(launch_.result.type.shape) &&
                     launch_.result.strides == launch_.so_far->strides),
                "the accumulator and the result have different strides");
  }

  void run(void* const* operands, void* const* results, void* workspace) const override {
    std::byte* to = launch_.result.out(results);
    if (launch_.so_far && launch_.so_far->in(operands) != to)
      device_.copy(to, launch_.so_far->in(operands), launch_.result.type.bytes());
    const Place a = queue_.ranges->place_of(launch_.a.in(operands));
    const Place b = queue_.ranges->place_of(launch_.b.in(operands));
    const Place result = queue_.ranges->place_of(to);
    place_scratch(workspace);
    // Small products need no scratch, and one call computes the whole batch.
    if (scratch_bytes_ == 0 && gemm_.batches > 1) return multiply_batch(a, b, result);
    const Contraction& task = launch_.task;
    for (int64_t batch = 0; batch < gemm_.batches; ++batch)
      for (int64_t row = 0; row < task.n; row += part_.rows)
        for (int64_t column = 0; column < task.m; column += part_.columns)
          for (int64_t term = 0; term < task.k; term += part_.terms)
            multiply_part(a, b, result, batch, row, column, term);
  }

 private:
  static cl_mem memory_of(const Place& place) { return static_cast<cl_mem>(place.memory.get()); }
  static size_t first_of(const Place& place) { return place.offset / sizeof(float); }
  static size_t at(const GemmMatrix& matrix, int64_t batch, int64_t row, int64_t column) {
    const int64_t across = matrix.transposed ? row : column,
                  along = matrix.transposed ? column : row;
    return static_cast<size_t>(batch * matrix.batch_stride + across * matrix.stride + along);
  }
  static size_t size(int64_t count) { return static_cast<size_t>(count); }
  cl_command_queue* queue() const { return &cl_queue_; }

  // Returns the scratch that CLBlast needs on this device for the largest part.
  size_t scratch_bytes() const {
    size_t bytes = 0;
    // The offsets are nonzero, as CLBlast always copies matrices that begin within a buffer.
    check(clblast_.scratch_bytes(column_major, transpose(gemm_.b), transpose(gemm_.a),
                                 size(part_.rows), size(part_.columns), size(part_.terms), 1,
                                 size(gemm_.b.stride), 1, size(gemm_.a.stride), 1,
                                 size(gemm_.result.stride), queue(), &bytes),
          "CLBlast's GemmTempBufferSize");
    return bytes;
  }

  void place_scratch(void* workspace) const {
    if (scratch_bytes_ == 0 ||
        (workspace == scratch_at_ && queue_.ranges->changes() == scratch_changes_))
      return;
    const Place place = queue_.ranges->place_of(workspace);
    const size_t step = queue_.base_alignment;
    const cl_buffer_region region{round_up(place.offset, step), scratch_bytes_};
    cl_int status = CL_SUCCESS;
    cl_mem part = clCreateSubBuffer(memory_of(place), CL_MEM_READ_WRITE,
                                    CL_BUFFER_CREATE_TYPE_REGION, &region, &status);
    check(status, "clCreateSubBuffer");
    scratch_ = {part, [](void* memory) { clReleaseMemObject(static_cast<cl_mem>(memory)); }};
    scratch_at_ = workspace;
    scratch_changes_ = queue_.ranges->changes();
  }

  void multiply_batch(const Place& a, const Place& b, const Place& result) const {
    const Contraction& task = launch_.task;
    check(clblast_.multiply_batch(
              column_major, transpose(gemm_.b), transpose(gemm_.a), size(task.n), size(task.m),
              size(task.k), 1.0f, memory_of(b), first_of(b), size(gemm_.b.stride),
              size(gemm_.b.batch_stride), memory_of(a), first_of(a), size(gemm_.a.stride),
              size(gemm_.a.batch_stride), launch_.so_far ? 1.0f : 0.0f, memory_of(result),
              first_of(result), size(gemm_.result.stride), size(gemm_.result.batch_stride),
              size(gemm_.batches), queue(), nullptr),
          "CLBlast's GemmStridedBatched");
  }

  void multiply_part(const Place& a, const Place& b, const Place& result, int64_t batch,
                     int64_t row, int64_t column, int64_t term) const {
    const Contraction& task = launch_.task;
    const bool adds = launch_.so_far || term > 0;
    check(clblast_.multiply(column_major, transpose(gemm_.b), transpose(gemm_.a),
                            size(std::min(part_.rows, task.n - row)),
                            size(std::min(part_.columns, task.m - column)),
                            size(std::min(part_.terms, task.k - term)), 1.0f, memory_of(b),
                            first_of(b) + at(gemm_.b, batch, row, term), size(gemm_.b.stride),
                            memory_of(a), first_of(a) + at(gemm_.a, batch, term, column),
                            size(gemm_.a.stride), adds ? 1.0f : 0.0f, memory_of(result),
                            first_of(result) + at(gemm_.result, batch, row, column),
                            size(gemm_.result.stride), queue(), nullptr,
                            static_cast<cl_mem>(scratch_.get())),
          "CLBlast's Gemm");
  }

  const Library& clblast_ = *library();
  gpu::Device& device_;
  Queue queue_;
  mutable cl_command_queue cl_queue_ = static_cast<cl_command_queue>(queue_.queue);
  GemmLaunch launch_;
  const Gemm& gemm_;
  Part part_;
  size_t scratch_bytes_ = 0;
  // These are the scratch, and its address, of the last run.
  mutable std::shared_ptr<void> scratch_;
  mutable void* scratch_at_ = nullptr;
  mutable uint64_t scratch_changes_ = 0;
};

class ClBlast : public gpu::Provider {
 public:
  std::string name() const override { return "clblast"; }

  std::optional<KernelChoice> choose(const Node& node,
                                     std::span<const Placement> operands) const override {
    if (node.type.dtype != DType::f32) return std::nullopt;
    std::optional<GemmChoice> known = choose_gemm(node, operands);
    if (!known || known->task.dtype != known->task.a_dtype) return std::nullopt;
    known->choice.kernel = "clblast:" + std::string(node.op->name);
    known->choice.workspace = workspace_bytes(known->task);
    return known->choice;
  }

  std::unique_ptr<Kernel> compile(gpu::Device& device, const Launch& launch) const override {
    return std::make_unique<Product>(device, GemmLaunch(launch), launch.workspace);
  }
};
}  // namespace

std::unique_ptr<gpu::Provider> clblast_provider() {
  return library() == nullptr ? nullptr : std::make_unique<ClBlast>();
}

}  // namespace weft::opencl
