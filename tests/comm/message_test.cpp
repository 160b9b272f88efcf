#include "weft/comm/message.h"

#include <doctest/doctest.h>

#include "weft/base/error.h"

using namespace weft;
using namespace weft::comm;

TEST_CASE("messages survive encoding") {
  const std::string odd("\0\xff token", 8);
  const Message all[] = {
      Hello{.version = "0.1 (a)", .token = odd, .host = "b", .pid = 4411, .rank = 3, .size = 4},
      Welcome{.hosts = {"a", odd}, .pids = {1, 2}},
      Beat{.step = 7,
           .launch = -1,
           .begun = uint64_t{1} << 63,
           .awaited = 2,
           .is_paused = false,
           .still_seconds = 0.25,
           .blind_seconds = 0.5,
           .step_seconds = 1e-3,
           .busy_seconds = 3,
           .waited_seconds = 4},
      Part{.channel = Channel::saving, .what = "facts", .bytes = odd},
      Whole{.whats = {"a", "b"}, .parts = {"", odd}},
      Ask{.purpose = Purpose::save},
      Propose{.purpose = Purpose::save, .step = 9},
      Answer{.purpose = Purpose::save, .proposed = 9, .at = 10},
      Confirm{.purpose = Purpose::save, .step = 12},
      Failed{.code = 4},
      Alike{},
      Verdict{.rank = -1, .text = "no rank goes on"},
      Verdict{.rank = 1, .text = "other", .kind = ErrorKind::usage}};
  for (const Message& message : all) {
    CAPTURE(message.index());
    CHECK(decode(encode(message)) == message);
  }
}

TEST_CASE("other bytes are refused") {
  const std::string whole = encode(Hello{.token = "t", .rank = 1, .size = 2});
  for (size_t bytes = 0; bytes < whole.size(); ++bytes)
    CHECK_THROWS_AS(decode(whole.substr(0, bytes)), Error);
  CHECK_THROWS_AS(decode(whole + "x"), Error);
  CHECK_THROWS_AS(decode("GET / HTTP/1.1"), Error);
  CHECK_THROWS_AS(decode("\x82\x18\x63\x00"), Error);                      // kind 99
  CHECK_THROWS_AS(decode(encode(Failed{}).replace(2, 1, "\xf5")), Error);  // true is no code
  CHECK_THROWS_AS(decode(encode(Part{}).replace(2, 1, "\x02")), Error);    // channel 2
}

TEST_CASE("a header has the bytes of its message") {
  for (const size_t bytes : {size_t{0}, size_t{1}, size_t{256}, message_limit, size_t{0xffffffff}})
    CHECK(bytes_after(header_of(bytes)) == bytes);
}
