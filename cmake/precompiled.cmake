# Precompiled headers: those that nearly every file includes (the standard library and fmt, none of
# weft's own, which change), and JSON, which some include and which takes 2 s, are parsed once for
# the library and once for the tests. Files still include what they use: builds with WEFT_PCH=OFF
# must compile, and clang-tidy reads files without it. A file with its own machine flags (-mavx2)
# needs the property SKIP_PRECOMPILE_HEADERS.

set(weft_common_headers
  <algorithm> <array> <chrono> <cmath> <concepts> <cstddef> <cstdint> <cstring> <functional>
  <initializer_list> <iterator> <limits> <map> <memory> <mutex> <numeric> <optional> <set>
  <source_location> <span> <stdexcept> <string> <string_view> <type_traits> <unordered_map>
  <unordered_set> <utility> <variant> <vector> <fmt/format.h> <nlohmann/json.hpp>)

# weft_precompile(TARGET [HEADER...]) precompiles the common headers and those named. Clang's
# precompiled headers hold the path of the build folder, so that no two checkouts have equal ones;
# ccache hashes the .sum file in their place. It is constant: what was precompiled is among the
# dependencies that Clang lists for each object, and ccache compares those.
function(weft_precompile target)
  if(WEFT_PCH)
    target_precompile_headers(${target} PRIVATE ${weft_common_headers} ${ARGN})
    if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
      file(WRITE "${CMAKE_CURRENT_BINARY_DIR}/CMakeFiles/${target}.dir/cmake_pch.hxx.pch.sum"
        "${CMAKE_CXX_COMPILER_VERSION}")
    endif()
  endif()
endfunction()

# weft_reuse_precompiled(TARGET OTHER) reuses the header of OTHER, which has the same flags.
function(weft_reuse_precompiled target other)
  if(WEFT_PCH)
    target_precompile_headers(${target} REUSE_FROM ${other})
  endif()
endfunction()
