# Compiler, linker and the flags of our own code (target weft_flags).

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type" FORCE)
endif()
# Release builds have no debug information. Sanitized builds (Check) use -g1: function names and
# lines in reports, at a fraction of the size of -g.
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -DNDEBUG")
set(CMAKE_CXX_FLAGS_CHECK "-O1 -g1")
set(CMAKE_CXX_FLAGS_DEBUG "-O0 -g")

find_program(WEFT_CCACHE ccache)
if(WEFT_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # ccache must ignore what a precompiled header defines, and the time macros in it, which nothing
  # here uses; otherwise it would cache no file that includes one. It hashes the header (84 MB)
  # once, and takes a file's includes from the compiler instead of preprocessing first. Paths below
  # the base directory are relative, so that objects also serve checkouts in other folders.
  set(CMAKE_CXX_COMPILER_LAUNCHER "${CMAKE_COMMAND}" -E env CCACHE_DEPEND=1 CCACHE_INODECACHE=1
      "CCACHE_BASEDIR=${PROJECT_SOURCE_DIR}" CCACHE_NOHASHDIR=1 CCACHE_PCH_EXTSUM=1
      "CCACHE_SLOPPINESS=pch_defines,time_macros" "${WEFT_CCACHE}")
endif()

find_program(WEFT_MOLD mold)
if(WEFT_MOLD)
  add_link_options(-fuse-ld=mold)
endif()

# Lets ccache preprocess files that include a precompiled header, and makes that header
# reproducible. CMake lets Clang read the header's source, too, by an absolute path that ccache does
# not see as one; the precompiled header alone is enough.
if(WEFT_PCH AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  add_compile_options(-fpch-preprocess)
elseif(WEFT_PCH)
  add_compile_options("SHELL:-Xclang -fno-pch-timestamp")
  set(CMAKE_CXX_COMPILE_OPTIONS_USE_PCH -Xclang -include-pch -Xclang <PCH_FILE>)
endif()
# Traces and reports name source files by their path in this tree instead of the path on the build
# machine, which is absolute, or relative under ccache.
file(RELATIVE_PATH source_from_build "${CMAKE_BINARY_DIR}" "${PROJECT_SOURCE_DIR}/")
add_compile_options(-fmacro-prefix-map=${PROJECT_SOURCE_DIR}/=
  -fmacro-prefix-map=${source_from_build}=)
add_compile_options(-ffunction-sections -fdata-sections)
add_link_options(-Wl,--gc-sections -Wl,--as-needed)

if(WEFT_SANITIZE)
  add_compile_options(-fsanitize=${WEFT_SANITIZE} -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${WEFT_SANITIZE})
  if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")  # GCC defines these; Clang 19 has only __has_feature
    if(WEFT_SANITIZE MATCHES "address")
      add_compile_definitions(__SANITIZE_ADDRESS__=1)
    elseif(WEFT_SANITIZE MATCHES "thread")
      add_compile_definitions(__SANITIZE_THREAD__=1)
    endif()
  endif()
  if(WEFT_SANITIZE MATCHES "undefined")
    add_compile_options(-fno-sanitize-recover=undefined)
    if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")  # reads a prefix that generated and C code lack
      add_compile_options(-fno-sanitize=function)
    endif()
  endif()
endif()

add_library(weft_flags INTERFACE)
target_compile_options(weft_flags INTERFACE
  -ffp-contract=off             # results must not depend on the compiler's contraction
  -fopenmp-simd                 # `#pragma omp simd` without OpenMP's threads
  -fno-semantic-interposition   # a shared library as fast as a static one
  -fvisibility-inlines-hidden
  -Wall -Wextra -Wpedantic -Wnon-virtual-dtor -Woverloaded-virtual -Wunused
  -Wno-psabi                    # how wide vectors cross calls: those of kernels are inlined
  -Wno-missing-field-initializers)  # designated initializers leave fields out on purpose
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # GCC 12 reports false positives of these in inlined standard library code; Clang reports real
  # ones.
  target_compile_options(weft_flags INTERFACE
    -Wno-maybe-uninitialized -Wno-array-bounds -Wno-stringop-overflow -Wno-stringop-overread
    -Wno-restrict -Wno-dangling-pointer)
else()
  # Clang warns of code that libstdc++ 12's stable_sort calls; GCC reports our deprecated calls.
  # Under sanitizers loops stay scalar despite the pragmas.
  target_compile_options(weft_flags INTERFACE -Wno-deprecated-declarations -Wno-pass-failed)
endif()
if(WEFT_WERROR)
  target_compile_options(weft_flags INTERFACE -Werror)
endif()
if(WEFT_DEBUG_BUILD)
  target_compile_definitions(weft_flags INTERFACE WEFT_DEBUG_BUILD=1)
endif()
