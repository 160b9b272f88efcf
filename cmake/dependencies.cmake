# The dependencies of weft.
#   weft_dep_public    for users of weft's headers
#   weft_dep_headers   headers of all dependencies but LLVM's
#   weft_dep_core      xxHash, zlib, PCRE2, utf8proc, simdjson, oneDNN, OpenCL
#   weft_dep_pictures  libjpeg-turbo, libpng, zlib
#   weft_dep_onnx      protobuf, ONNX's message classes
#   weft_dep_recipes   yaml-cpp
#   weft_dep_heap      the program's heap, in place of the C library's
#   weft_dep_llvm      link side of LLVM; its headers: WEFT_LLVM_COMPILE_OPTIONS, per source

set(THREADS_PREFER_PTHREAD_FLAG ON)
find_package(Threads REQUIRED)
find_package(fmt 9 REQUIRED)

add_library(weft_dep_public INTERFACE)
target_link_libraries(weft_dep_public INTERFACE fmt::fmt Threads::Threads)

add_library(weft_dep_headers INTERFACE)

# weft_dependency(NAME "LIBRARY HEADER"...): the target weft_dep_NAME links the libraries; their headers
# are weft_dep_headers'.
function(weft_dependency name)
  add_library(weft_dep_${name} INTERFACE)
  foreach(library_and_header IN LISTS ARGN)
    separate_arguments(library_and_header)
    list(POP_FRONT library_and_header library header)
    find_path(WEFT_${library}_INCLUDE ${header} REQUIRED)
    find_library(WEFT_${library} NAMES ${library} REQUIRED)
    mark_as_advanced(WEFT_${library}_INCLUDE WEFT_${library})
    target_include_directories(weft_dep_headers SYSTEM INTERFACE "${WEFT_${library}_INCLUDE}")
    target_link_libraries(weft_dep_${name} INTERFACE "${WEFT_${library}}")
  endforeach()
endfunction()

# dnnl-config.cmake is not used, as it requires TBB and OpenCL development files.
weft_dependency(core "xxhash xxhash.h" "z zlib.h" "pcre2-8 pcre2.h" "utf8proc utf8proc.h"
  "simdjson simdjson.h" "dnnl dnnl.h" "crypto openssl/hmac.h")
weft_dependency(pictures "jpeg jpeglib.h" "png png.h" "z zlib.h")
weft_dependency(onnx "protobuf google/protobuf/message.h" "onnx_proto onnx/onnx_pb.h")
weft_dependency(recipes "yaml-cpp yaml-cpp/yaml.h")
# Asio is headers alone (weft/comm).
find_path(WEFT_ASIO_INCLUDE asio.hpp REQUIRED)
mark_as_advanced(WEFT_ASIO_INCLUDE)
target_include_directories(weft_dep_headers SYSTEM INTERFACE "${WEFT_ASIO_INCLUDE}")
# oneDNN takes its number of threads from OpenMP's runtime; weft sets it (backends/cpu/onednn/onednn.cpp).
target_link_libraries(weft_dep_core INTERFACE gomp ${CMAKE_DL_LIBS})

# \p{Alphabetic} and \p{sc:Han}, which tokenizers use, are of PCRE2 10.40.
file(STRINGS "${WEFT_pcre2-8_INCLUDE}/pcre2.h" pcre2_minor REGEX "#define PCRE2_MINOR")
string(REGEX MATCH "[0-9]+$" pcre2_minor "${pcre2_minor}")
if(pcre2_minor LESS 40)
  message(FATAL_ERROR "PCRE2 10.${pcre2_minor} is too old: weft needs 10.40")
endif()

# Without OpenCL, weft/backends/opencl has no device.
find_package(OpenCL QUIET)
if(OpenCL_FOUND)
  target_link_libraries(weft_dep_core INTERFACE OpenCL::OpenCL)
  target_include_directories(weft_dep_headers SYSTEM INTERFACE ${OpenCL_INCLUDE_DIRS})
endif()

# Sanitizers have their own heaps. No source calls jemalloc by name: it defines malloc.
add_library(weft_dep_heap INTERFACE)
if(NOT WEFT_SANITIZE)
  find_library(WEFT_JEMALLOC jemalloc REQUIRED)
  mark_as_advanced(WEFT_JEMALLOC)
  target_link_libraries(weft_dep_heap INTERFACE
    -Wl,--push-state,--no-as-needed "${WEFT_JEMALLOC}" -Wl,--pop-state)
endif()

find_package(LLVM 19.1 REQUIRED CONFIG HINTS /usr/lib/llvm-19/lib/cmake/llvm)
llvm_map_components_to_libnames(weft_llvm_libraries
  core support orcjit native passes analysis target mc transformutils ipo)
add_library(weft_dep_llvm INTERFACE)
target_link_libraries(weft_dep_llvm INTERFACE ${weft_llvm_libraries})
set(WEFT_LLVM_COMPILE_OPTIONS "-isystem${LLVM_INCLUDE_DIRS}")
