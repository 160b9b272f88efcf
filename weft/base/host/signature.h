// Hashes bytes so that nobody finds others of the same hash, and signs them with a secret of this
// user, HMAC-SHA256 (RFC 2104) by OpenSSL. The secret is 32 random bytes in
// cache_directory()/signing/key, which nobody but this user may read.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace weft {

// Returns SHA-256 (FIPS 180-4) in 64 hexadecimal digits.
std::string sha256_of(std::string_view bytes);

// Returns the signature in 64 hexadecimal digits; makes the secret when it is first needed. nullopt
// where the secret cannot be kept.
std::optional<std::string> signature_of(std::string_view bytes);
// Returns whether signature_of() gave this signature for these bytes.
bool is_signed(std::string_view bytes, std::string_view signature);

}  // namespace weft
