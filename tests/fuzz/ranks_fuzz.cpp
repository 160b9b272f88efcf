// Fuzzes the messages between ranks, and the file in which they meet.
#include "tests/fuzz/fuzz.h"
#include "weft/comm/meeting.h"
#include "weft/comm/message.h"

using namespace weft;

namespace {
std::span<const std::string> valid() {
  static const std::string all[] = {
      comm::encode(comm::Hello{.token = "t", .host = "a", .rank = 1, .size = 2}),
      comm::encode(comm::Welcome{.hosts = {"a", "b"}, .pids = {1, 2}}),
      comm::encode(comm::Beat{.step = 7, .begun = 3, .still_seconds = 0.5}),
      comm::encode(comm::Whole{.whats = {"x", "x"}, .parts = {"", "1"}}),
      comm::encode(comm::Answer{.proposed = 3, .at = 4}),
      comm::encode(comm::Verdict{.rank = 1, .text = "rank 1 is dead"}),
      "weft 127.0.0.1 4711 0123456789abcdef\n"};
  return all;
}
}  // namespace

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                          unsigned seed) {
  return fuzz::mutate(valid(), data, size, max_size, seed);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto copy = fuzz::exact_copy(data, size);
  const std::string_view bytes(reinterpret_cast<const char*>(copy->data), size);
  if (size >= comm::header_bytes) comm::bytes_after(bytes);
  comm::parse_meeting(bytes);
  fuzz::expect_value_or_error(ErrorKind::failed, [&] {
    const comm::Message message = comm::decode(bytes);
    if (!(comm::decode(comm::encode(message)) == message)) std::abort();
  });
  return 0;
}
