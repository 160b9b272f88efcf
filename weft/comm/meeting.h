// Where the ranks of a run meet: the address of rank 0 and the token, by the launcher's environment
// or in a file of mode 0600 that rank 0 writes to the cache folder, which ranks of several hosts
// share.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "weft/comm/launcher.h"

namespace weft::comm {

struct Meeting {
  std::string host;
  uint16_t port = 0;  // 0: any that is free
  std::string token;
  int listener = -1;  // a socket that is bound already; -1: none
};

std::string make_token();                                    // 32 hexadecimal digits, random
bool is_same_token(std::string_view a, std::string_view b);  // in a time that tells nothing

// What the environment says of the meeting. Throws Error(usage) where ranks are on several hosts
// and nobody says under which address they reach rank 0.
Meeting planned_meeting(const Place& place);
// Whether ranks find the rest in a file: where the environment has no token, or no port.
bool needs_file(const Meeting& meeting);

// The file of a job.
std::string meeting_file(const Place& place);
void write_meeting(const std::string& path, const Meeting& meeting);
// Returns nullopt where the file is not there, or others may read or write it.
std::optional<Meeting> read_meeting(const std::string& path);
// Parses a file's text, "weft HOST PORT TOKEN"; nullopt for another one.
std::optional<Meeting> parse_meeting(std::string_view text);

}  // namespace weft::comm
