// Declares the interface by which the runtime exchanges values with the other ranks of a mesh.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "weft/base/memory/buffer.h"
#include "weft/device/compiler.h"
#include "weft/device/world.h"

namespace weft {

// All ranks run the same collectives in the same order.
class Communicator {
 public:
  virtual ~Communicator() = default;

  // Returns the strings of all ranks, by rank, outside of steps: small ones, which all ranks
  // exchange at the same place of the program: of the thread that the channel has.
  virtual std::vector<std::string> exchange(const std::string& mine, Channel channel) = 0;
  // Returns zeroed memory that the other ranks can read, aligned to buffer_alignment. Operands of
  // collectives are in it.
  virtual std::shared_ptr<Buffer> allocate(size_t bytes) = 0;
  // Returns memory that is the same bytes for all ranks, for variables of which every rank has the
  // same elements; null where ranks have none. All ranks call it at the same place of the program.
  virtual std::shared_ptr<Buffer> allocate_common(size_t bytes) = 0;
  virtual bool is_common(const void* address) const = 0;
  // Returns the bytes that the system counts as this process' memory and that are other ranks', or
  // that it counts twice.
  virtual size_t resident_beside_own() const { return 0; }
  // Returns the kernels of a launch of Launch::Kind::collective and of the launch that awaits it,
  // which throws Error where a rank is lost. `settle` waits until no other rank reads the operand
  // or the result any more, and all parts of a result in common memory are there: before a launch
  // writes over the former or reads the latter, and before the run ends. Null: the await does.
  struct Exchange {
    std::unique_ptr<Kernel> begin, await, settle;
  };
  virtual Exchange compile(const Plan& plan, const Launch& launch) = 0;

  // Whether collectives have begun that only go on while poll() is called, as the runtime does
  // between launches.
  bool is_under_way() const { return is_under_way_; }
  virtual void poll() {}

 protected:
  bool is_under_way_ = false;
};

}  // namespace weft
