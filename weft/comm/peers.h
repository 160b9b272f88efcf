// Declares what a communicator needs to know of its ranks before they exchange values.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "weft/device/world.h"

namespace weft::comm {

// Peers are the ranks of a communicator, before they can read each other's memory.
struct Peers {
  int rank = 0, size = 1;
  // Returns the strings of all ranks, by rank. All ranks call it together.
  std::function<std::vector<std::string>(const std::string& mine, Channel channel)> exchange;
  // Throws Error where a rank is lost; called many times a second while a rank waits for others.
  std::function<void()> check = [] {};
  // What World has of these names: this rank begins, awaits, or has awaited a collective, of which
  // the function that describe() gets can tell, on any thread, what it is.
  std::function<void(uint64_t sequence)> begins = [](uint64_t) {}, awaits = [](uint64_t) {};
  std::function<void()> goes_on = [] {};
  std::function<void(std::function<std::string(uint64_t sequence)>)> describe = [](const auto&) {};
};

}  // namespace weft::comm
