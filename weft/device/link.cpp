#include "weft/device/link.h"

#include <algorithm>
#include <cctype>

#include "weft/base/error.h"
#include "weft/ir/mesh.h"
#include "weft/ir/op_def.h"
#include "weft/ir/plan.h"

namespace weft {
namespace {
constexpr Link all_links[] = {
    {"memory", 0, 2e-6, "ranks of one host: assumed, see shared_slowdown"},
    {"NVLink 3", 300e9, 5e-6, "NVIDIA A100 data sheet (2021): 600 GB/s in both directions"},
    {"NVLink 4", 450e9, 5e-6, "NVIDIA H100 data sheet (2023): 900 GB/s in both directions"},
    {"NVLink 5", 900e9, 5e-6, "NVIDIA Blackwell brief (2024): 1.8 TB/s in both directions"},
    {"PCIe 4", 31.5e9, 5e-6, "PCI Express 4.0 (2017): 16 lanes of 16 GT/s, 128b/130b"},
    {"PCIe 5", 63.0e9, 5e-6, "PCI Express 5.0 (2019): 16 lanes of 32 GT/s, 128b/130b"},
    {"InfiniBand HDR", 25e9, 5e-6, "InfiniBand HDR 4x: 200 Gb/s"},
    {"InfiniBand NDR", 50e9, 5e-6, "InfiniBand NDR 4x: 400 Gb/s"},
    {"Ethernet 10", 1.25e9, 3e-5, "IEEE 802.3ae: 10 Gb/s"},
    {"Ethernet 25", 3.125e9, 3e-5, "IEEE 802.3by: 25 Gb/s"},
    {"Ethernet 100", 12.5e9, 3e-5, "IEEE 802.3ba: 100 Gb/s"},
    {"Ethernet 400", 50e9, 3e-5, "IEEE 802.3bs: 400 Gb/s"},
};

bool same_word(std::string_view a, std::string_view b) {
  return std::ranges::equal(
      a, b, [](unsigned char x, unsigned char y) { return std::tolower(x) == std::tolower(y); });
}
double ranks_of(const Launch& collective) {
  return static_cast<double>(collective.body.front()->attrs.integer("ranks"));
}
// Returns whether every rank gets the whole sum: the only result that is as large as the operand.
bool is_sum_for_all(const Launch& collective) {
  return collective.operands[0].value.type() == collective.results[0].value.type();
}
}  // namespace

std::span<const Link> links() { return all_links; }

const Link* find_link(std::string_view name) {
  const auto* const found =
      std::ranges::find_if(all_links, [&](const Link& link) { return same_word(link.name, name); });
  return found == std::end(all_links) ? nullptr : found;
}

// A GPU of a data center has NVLink to seven others, and InfiniBand to the next host.
const Link& link_of(const Mesh& mesh, std::string_view device) {
  if (mesh.link != nullptr) return *mesh.link;
  constexpr int64_t in_one_host = 8;
  struct Usual {
    std::string_view name, near, far;
  };
  constexpr Usual usual[] = {{"A100", "NVLink 3", "InfiniBand HDR"},
                             {"H100", "NVLink 4", "InfiniBand NDR"},
                             {"H200", "NVLink 4", "InfiniBand NDR"},
                             {"B200", "NVLink 5", "InfiniBand NDR"}};
  std::string_view name = device.empty() ? "memory" : "PCIe 4";
  for (const Usual& each : usual)
    if (device.find(each.name) != device.npos)
      name = mesh.size(data_axis) > in_one_host ? each.far : each.near;
  return *find_link(name);
}

double bytes_sent(const Launch& collective) {
  const double ranks = ranks_of(collective);
  const auto whole = static_cast<double>(std::max(collective.operands[0].value.type().bytes(),
                                                  collective.results[0].value.type().bytes()));
  return (is_sum_for_all(collective) ? 2 : 1) * whole * (ranks - 1) / ranks;
}

double exchange_seconds(const Launch& collective, const Link& link, double memory) {
  const double speed = link.bytes_per_s > 0 ? link.bytes_per_s : memory / shared_slowdown;
  const double messages = (is_sum_for_all(collective) ? 2 : 1) * (ranks_of(collective) - 1);
  return speed > 0 ? bytes_sent(collective) / speed + messages * link.seconds : 0;
}

}  // namespace weft
