// Lists what joins the ranks of a run, with the speed that its standard or data sheet promises.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace weft {

struct Launch;
struct Mesh;

// Ranks of one host copy through the caches of several cores: a byte is assumed to take this many
// times as long as one that a kernel reads.
inline constexpr double shared_slowdown = 4;

struct Link {
  std::string_view name;  // "NVLink 4", as in parallel.link
  double bytes_per_s =
      0;               // of one rank in one direction; 0: memory's, `shared_slowdown` times slower
  double seconds = 0;  // for a message to arrive, as assumed
  std::string_view source;
};

std::span<const Link> links();
const Link* find_link(std::string_view name);  // ignoring case; null: not in the list
// Returns what joins the ranks of a mesh: its link, or the one that ranks on devices of this name
// ("": hosts) usually have.
const Link& link_of(const Mesh& mesh, std::string_view device);

// Returns the seconds of a collective over a link, between ranks that pass parts around a ring
// (Patarasuk and Yuan 2009). `memory` is the bandwidth of memory in bytes per second.
double exchange_seconds(const Launch& collective, const Link& link, double memory);
// Returns the bytes that each rank sends meanwhile.
double bytes_sent(const Launch& collective);

}  // namespace weft
