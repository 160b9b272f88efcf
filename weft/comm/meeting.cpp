#include "weft/comm/meeting.h"

#include <array>
#include <charconv>
#include <cstdio>
#include <fcntl.h>
#include <sstream>
#include <sys/random.h>
#include <unistd.h>

#include <fmt/format.h>

#include "weft/base/error.h"
#include "weft/base/host/env.h"
#include "weft/base/host/private_folder.h"
#include "weft/base/numbers/hash.h"

namespace weft::comm {
namespace {
std::optional<uint16_t> port_of(std::string_view text) {
  unsigned port = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  if (error != std::errc() || end != text.data() + text.size() || port > UINT16_MAX)
    return std::nullopt;
  return static_cast<uint16_t>(port);
}
}  // namespace

std::string make_token() {
  std::array<unsigned char, 16> bytes{};
  if (getentropy(bytes.data(), bytes.size()) != 0)
    throw Error(ErrorKind::failed, "[ranks] the system has no random bytes for a token.");
  std::string token;
  for (const unsigned char byte : bytes) token += fmt::format("{:02x}", byte);
  return token;
}

bool is_same_token(std::string_view a, std::string_view b) {
  if (a.size() != b.size() || a.empty()) return false;
  volatile unsigned char differing = 0;
  for (size_t i = 0; i < a.size(); ++i)
    differing = static_cast<unsigned char>(differing | (a[i] ^ b[i]));
  return differing == 0;
}

Meeting planned_meeting(const Place& place) {
  Meeting meeting{.token = env("WEFT_TOKEN").value_or("")};
  const std::string& address = place.address;
  const size_t colon = address.rfind(':');
  meeting.host = address.substr(0, colon);
  if (colon != address.npos) {
    const auto port = port_of(std::string_view(address).substr(colon + 1));
    if (!port || meeting.host.empty())
      throw Error(ErrorKind::usage, "[ranks] '{}' is not HOST:PORT, the address of rank 0.",
                  address);
    meeting.port = *port;
  }
  if (place.is_on_one_host) meeting.host = "127.0.0.1";
  if (meeting.host.empty())
    throw Error(ErrorKind::usage,
                "[ranks] {} say that this is a rank of several hosts, and nobody says where it "
                "reaches rank 0. Hint: unset them where they are left over from another run, else "
                "set WEFT_ADDRESS=HOST on all ranks.",
                place.variables);
  if (meeting.token.empty()) meeting.port = 0;  // whose port may be that of the launcher itself
  if (const auto listener = env("WEFT_LISTENER"); listener && place.rank == 0)
    meeting.listener = port_of(*listener).value_or(0);
  return meeting;
}

bool needs_file(const Meeting& meeting) { return meeting.token.empty() || meeting.port == 0; }

std::string meeting_file(const Place& place) {
  const std::optional<std::string> folder = private_cache("ranks");
  if (!folder)
    throw Error(ErrorKind::usage,
                "[ranks] ranks meet in a file of the cache folder, and there is no private one. "
                "Hint: WEFT_CACHE_DIR, a folder of mode 0700 that all ranks see.");
  const uint64_t job = hash_text(fmt::format("{} {} {}", place.launcher, place.job, place.address));
  return fmt::format("{}/{}", *folder, to_hex(job));
}

void write_meeting(const std::string& path, const Meeting& meeting) {
  const std::string text =
      fmt::format("weft {} {} {}\n", meeting.host, meeting.port, meeting.token);
  const std::string partial = fmt::format("{}.{}", path, getpid());
  const int file = open(partial.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  const bool written = file >= 0 && write(file, text.data(), text.size()) == std::ssize(text);
  if (file >= 0) close(file);
  if (!written || std::rename(partial.c_str(), path.c_str()) != 0) {
    unlink(partial.c_str());
    throw Error(ErrorKind::failed, "[ranks] cannot write {}.", path);
  }
}

std::optional<Meeting> parse_meeting(std::string_view text) {
  constexpr size_t most = 1024;
  if (text.size() > most) return std::nullopt;
  std::istringstream words{std::string(text)};
  std::string weft, port;
  Meeting meeting;
  if (!(words >> weft >> meeting.host >> port >> meeting.token) || weft != "weft")
    return std::nullopt;
  const auto number = port_of(port);
  if (!number || *number == 0) return std::nullopt;
  meeting.port = *number;
  return meeting;
}

std::optional<Meeting> read_meeting(const std::string& path) {
  const std::optional<std::string> text = read_secret(path);
  return text ? parse_meeting(*text) : std::nullopt;
}

}  // namespace weft::comm
