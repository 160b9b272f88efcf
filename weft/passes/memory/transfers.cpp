#include "weft/passes/memory/transfers.h"

#include "weft/ir/op_def.h"

namespace weft {
namespace {
bool in_file(const Plan& plan, const Access& access) {
  return plan.slots[static_cast<size_t>(access.at.slot)].space == Space::file;
}
const Access& memory_side(const Plan& plan, const Launch& transfer) {
  return (is_fetch(plan, transfer) ? transfer.results : transfer.operands)[0];
}
}  // namespace

bool is_fetch(const Plan& plan, const Launch& transfer) {
  return in_file(plan, transfer.operands[0]);
}
int memory_slot(const Plan& plan, const Launch& transfer) {
  return memory_side(plan, transfer).at.slot;
}
int file_slot(const Plan& plan, const Launch& transfer) {
  return (is_fetch(plan, transfer) ? transfer.operands : transfer.results)[0].at.slot;
}

Launch make_transfer(const Plan& plan, const Access& from, const Access& to) {
  return {.kind = Launch::Kind::transfer,
          .kernel = in_file(plan, from) ? "fetch" : "store",
          .operands = {from},
          .results = {to},
          .bytes = static_cast<double>(from.value.type().bytes()),
          .module = from.value->module()};
}

Launch make_await(const Plan& plan, const Launch& transfer) {
  if (transfer.kind == Launch::Kind::collective) {
    Launch await{.kind = Launch::Kind::await,
                 .kernel = "await " + transfer.kernel,
                 .operands = transfer.results,
                 .module = transfer.module};
    if (transfer.operands[0].at.slot != transfer.results[0].at.slot)
      await.operands.push_back(transfer.operands[0]);
    return await;
  }
  return {.kind = Launch::Kind::await,
          .kernel = "await " + transfer.kernel,
          .operands = {memory_side(plan, transfer)},
          .module = transfer.module};
}

}  // namespace weft
