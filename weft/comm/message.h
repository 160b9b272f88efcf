// The messages between rank 0, the hub of the control plane, and the other ranks, and their form in
// bytes: CBOR arrays (RFC 8949), [kind, field...].
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "weft/base/error.h"
#include "weft/device/world.h"

namespace weft::comm {

// The first message of a rank: who it is, and the token, which only ranks of this run know. Its
// fields stay in every version of weft, so that ranks of two versions can name them.
struct Hello {
  std::string version, token, host;
  int64_t pid = 0;
  int rank = 0, size = 0;
  bool operator==(const Hello&) const = default;
};
// The hub's answer once all ranks have come: hosts and pids by rank.
struct Welcome {
  std::vector<std::string> hosts;
  std::vector<int64_t> pids;
  bool operator==(const Welcome&) const = default;
};
// How far a rank is. Hub and ranks send it every beat_interval; that of the hub says that it lives.
struct Beat {
  int64_t step = 0;           // updates that are done
  int64_t launch = -1;        // of the next one; -1: unknown
  uint64_t begun = 0;         // the last collective that the rank began
  uint64_t awaited = 0;       // the collective that it awaits; 0: none
  uint64_t exchanged = 0;     // the last all_gather of the control plane that it began
  uint64_t exchanging = 0;    // the one that it awaits; 0: none
  bool is_paused = true;      // compiles, evaluates or saves, which may take any time
  double still_seconds = 0;   // since the fields above changed, as the rank's control thread counts
  double blind_seconds = 0;   // since they changed, or it looked whether those it awaits have come
  double step_seconds = 0;    // of the longest of the last steps
  double busy_seconds = 0;    // in steps so far, without waiting for others
  double waited_seconds = 0;  // for others so far
  bool operator==(const Beat&) const = default;
};
// A rank's part of an all_gather, and all parts in the order of ranks.
struct Part {
  Channel channel = Channel::training;
  std::string what, bytes;
  bool operator==(const Part&) const = default;
};
// The last all_gather of a run.
inline constexpr std::string_view leaving = "the end of the run";
struct Whole {
  Channel channel = Channel::training;
  std::vector<std::string> whats, parts;
  bool operator==(const Whole&) const = default;
};
// A rank wants all to stop, or to save and go on. The hub proposes a step; each rank that has not
// passed it accepts it, and goes no further until the hub confirms the step or proposes a later
// one.
enum class Purpose : uint8_t { stop, save };
constexpr size_t purposes = 2;
struct Ask {
  Purpose purpose = Purpose::stop;
  bool operator==(const Ask&) const = default;
};
struct Propose {
  Purpose purpose = Purpose::stop;
  int64_t step = 0;
  bool operator==(const Propose&) const = default;
};
struct Answer {
  Purpose purpose = Purpose::stop;
  int64_t proposed = 0, at = 0;  // `at` > proposed: refused
  bool operator==(const Answer&) const = default;
};
struct Confirm {
  Purpose purpose = Purpose::stop;
  int64_t step = 0;
  bool operator==(const Confirm&) const = default;
};
// A rank is about to end with this exit code, and waits for Alike or a Verdict.
struct Failed {
  int code = 0;
  bool operator==(const Failed&) const = default;
};
// All ranks failed with one code: one of them prints why.
struct Alike {
  bool operator==(const Alike&) const = default;
};
// A rank is lost, or does not belong to the others, and all end. -1: nobody knows which one.
struct Verdict {
  int rank = -1;
  std::string text;
  ErrorKind kind = ErrorKind::rank_lost;
  bool operator==(const Verdict&) const = default;
};

using Message = std::variant<Hello, Welcome, Beat, Part, Whole, Ask, Propose, Answer, Confirm,
                             Failed, Alike, Verdict>;

// A message is preceded by its bytes, as 4 bytes, the highest first. Strangers, who have not said
// Hello yet, may send small ones alone.
constexpr size_t header_bytes = 4, message_limit = size_t{64} << 20, stranger_limit = 4096;

std::string this_version();  // "0.2.0 (1a2b3c4d)", of this weft

std::string encode(const Message& message);  // without the header
// Throws Error(failed) for bytes that are no message.
Message decode(std::string_view bytes);

std::string header_of(size_t bytes);
size_t bytes_after(std::string_view header);  // of the message that follows the header

}  // namespace weft::comm
