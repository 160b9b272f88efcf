#include "weft/comm/round.h"

#include <fmt/format.h>

#include "weft/base/error.h"
#include "weft/ir/origin.h"

namespace weft::comm {
namespace {
constexpr int64_t line = 64;                 // elements, so that parts begin on cache lines
constexpr int64_t least_streamed = 1 << 20;  // bytes of results that no cache need hold
// The prefetcher of the hardware begins anew with each row, so that short ones wait for memory.
constexpr int64_t short_row = 16 << 10;  // bytes
constexpr int64_t rows_ahead = 2;

void prefetch(const std::byte* from, int64_t bytes) {
  constexpr int64_t cache_line = 64;
  for (int64_t at = 0; at < bytes; at += cache_line) __builtin_prefetch(from + at, 0, 2);
}
}  // namespace

std::function<std::string(uint64_t)> CollectiveNames::words() const {
  return [names = names_](uint64_t sequence) {
    const std::string* const name = (*names)[sequence % most_under_way].load();
    return name == nullptr ? "" : fmt::format("{} of the run, {}", sequence, *name);
  };
}

CollectiveWork::CollectiveWork(const Launch& launch, int own_rank, int all_ranks)
    : rank(own_rank),
      ranks(all_ranks),
      what(collective_of(*launch.body.front().node())),
      dtype(launch.operands[0].value.dtype()),
      operand_at(bytes(launch.operands[0].at.offset)),
      result_at(bytes(launch.results[0].at.offset)),
      operand_bytes(launch.operands[0].value.type().bytes()),
      elements(launch.results[0].value.elements()),
      name(interned(launch.module.empty() ? launch.kernel
                                          : fmt::format("{} ({})", launch.kernel, launch.module))) {
  WEFT_ASSERT(what.ranks == ranks, "{} of {} ranks among {}", launch.kernel, what.ranks, ranks);
  for (int i = 0; i < what.axis; ++i) outer *= launch.results[0].value.shape()[i];
}

Stores CollectiveWork::stores() const {
  return bytes(elements) > least_streamed ? Stores::streamed : Stores::cached;
}

int64_t CollectiveWork::part(int64_t number, int64_t parts) const {
  const int64_t lines = (elements + line - 1) / line;
  return std::min(elements, lines * number / parts * line);
}

void CollectiveWork::gather_part(std::byte* result, const std::byte* operand, int from_rank) const {
  const int64_t part = elements / outer / ranks;
  for_rows(0, outer * part, part, [&](int64_t i, int64_t from, int64_t to) {
    copy(result + bytes((i * ranks + from_rank) * part + from), operand + bytes(i * part + from),
         static_cast<size_t>(bytes(to - from)), stores());
  });
}

void CollectiveWork::sum(std::span<const std::byte* const> operands, std::byte* result,
                         int64_t from, int64_t to) const {
  for_rows(from, to, to, [&](int64_t, int64_t begin, int64_t end) {
    combine(operands, result, begin, end, dtype, what.combine, stores());
  });
}

void CollectiveWork::sum_own_part(std::span<const std::byte* const> operands,
                                  std::byte* result) const {
  const int64_t part = elements / outer;
  for_rows(0, outer * part, part, [&](int64_t i, int64_t from, int64_t to) {
    const int64_t begin = (i * ranks + rank) * part, ahead = rows_ahead * ranks * part;
    if (bytes(part) <= short_row && i + rows_ahead < outer)
      for (const std::byte* operand : operands)
        prefetch(operand + bytes(begin + ahead + from), bytes(to - from));
    combine(operands, result + bytes(i * part - begin), begin + from, begin + to, dtype,
            what.combine, stores());
  });
}

void CollectiveWork::copy_elements(std::byte* result, const std::byte* from, int64_t first,
                                   int64_t end) const {
  for_rows(first, end, end, [&](int64_t, int64_t begin, int64_t to) {
    copy(result + bytes(begin), from + bytes(begin), static_cast<size_t>(bytes(to - begin)),
         stores());
  });
}

void check_collectives(const Plan& plan) {
  const auto collectives =
      std::ranges::count(plan.launches, Launch::Kind::collective, &Launch::kind);
  WEFT_CHECK(collectives <= static_cast<std::ptrdiff_t>(most_under_way),
             "[ranks] a step has at most {} collectives. Got {}.", most_under_way, collectives);
}

bool is_used_under_way(const Plan& plan, const Launch& collective) {
  const int slot = collective.results[0].at.slot;
  const auto uses = [slot](const Launch& launch) {
    return std::ranges::any_of(launch.operands,
                               [slot](const Access& each) { return each.at.slot == slot; });
  };
  for (const Launch* next = &collective + 1; next <= &plan.launches.back(); ++next)
    if (uses(*next)) return next->kind != Launch::Kind::await;
  return true;
}

}  // namespace weft::comm
