#include "weft/device/world.h"

#include <algorithm>
#include <array>
#include <unistd.h>

#include <fmt/format.h>

#include "weft/base/error.h"
#include "weft/device/communicator.h"
#include "weft/ir/mesh.h"

namespace weft {
namespace {
// The world of this process, as there is one process for each rank.
std::unique_ptr<World>& current() {
  static std::unique_ptr<World> ranks = std::make_unique<World>();  // changed at the start alone
  return ranks;
}

std::string host_name() {
  std::array<char, 256> name{};
  if (gethostname(name.data(), name.size() - 1) != 0) return "localhost";
  return name.data();
}

// Facts travel as "NAME\0VALUE\0...". Names and values are texts of recipes, which have no zeros.
std::string packed(const World::Facts& facts) {
  std::string bytes;
  for (const auto& [name, value] : facts)
    bytes.append(name).append(1, '\0').append(value).append(1, '\0');
  return bytes;
}
World::Facts unpacked(std::string_view bytes) {
  std::vector<std::string> words;
  for (size_t end = bytes.find('\0'); end != bytes.npos; end = bytes.find('\0')) {
    words.emplace_back(bytes.substr(0, end));
    bytes.remove_prefix(end + 1);
  }
  World::Facts facts;
  for (size_t i = 0; i + 1 < words.size(); i += 2) facts.emplace_back(words[i], words[i + 1]);
  return facts;
}
}  // namespace

World::World() : members_{{host_name(), getpid()}} {}

int World::local_size() const {
  const std::string& here = host(rank_);
  return static_cast<int>(std::ranges::count(members_, here, &Member::host));
}

std::string World::name(int rank) const {
  return fmt::format("rank {} (host {}, pid {})", rank, host(rank), pid(rank));
}

std::vector<std::string> World::all_gather(std::string_view /*what*/, std::string mine,
                                           Channel /*channel*/) {
  std::vector<std::string> all;
  all.push_back(std::move(mine));
  return all;
}

std::string World::broadcast(std::string_view what, std::string mine) {
  return all_gather(what, rank_ == 0 ? std::move(mine) : "").front();
}

void World::must_equal(const Facts& facts) {
  if (size() == 1) return;
  const std::vector<std::string> all = all_gather("facts", packed(facts));
  const Facts first = unpacked(all.front());
  for (size_t rank = 1; rank < all.size(); ++rank) {
    if (all[rank] == all.front()) continue;
    const Facts other = unpacked(all[rank]);
    for (size_t i = 0; i < std::min(first.size(), other.size()); ++i)
      if (first[i] != other[i])
        throw Error(ErrorKind::usage, "ranks disagree: rank {} (host {}) has {} {}, rank 0 has {}.",
                    rank, host(static_cast<int>(rank)), other[i].first, other[i].second,
                    first[i].second);
    throw Error(ErrorKind::usage, "ranks disagree: rank {} (host {}) compares {} facts, rank 0 {}.",
                rank, host(static_cast<int>(rank)), other.size(), first.size());
  }
}

World& world() { return *current(); }

std::shared_ptr<const Mesh> world_mesh() {
  if (world().size() == 1) return nullptr;
  return std::make_shared<Mesh>(
      Mesh{.axes = {mesh_axis(std::string(data_axis), world().size(), world().rank())},
           .communicator = world().communicator()});
}

namespace {
std::function<void()>& joining() {
  static std::function<void()> join;  // set once, when the backends are registered
  return join;
}
}  // namespace
void register_join(std::function<void()> join) { joining() = std::move(join); }
void join_world() {
  if (world().size() == 1 && joining()) joining()();
}

void enter_world(std::unique_ptr<World> ranks) {
  current() = nullptr;  // ends before the next one begins
  current() = ranks != nullptr ? std::move(ranks) : std::make_unique<World>();
}

}  // namespace weft
