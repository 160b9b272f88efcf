# The environment of every test (weft_test_environment).

# Every new core compiles its kernels from scratch: cached ones of an earlier core would hide
# miscompilation. NVIDIA's libraries, in another folder of the cache, are kept.
set(weft_test_cache "${PROJECT_BINARY_DIR}/cache")
add_custom_command(TARGET weft_core POST_BUILD
  COMMAND ${CMAKE_COMMAND} -E rm -rf "${weft_test_cache}/kernels")
set(cuda_path "$ENV{HOME}/.cache/weft/cuda")
if(DEFINED ENV{WEFT_CUDA_PATH})
  set(cuda_path "$ENV{WEFT_CUDA_PATH}")
elseif(DEFINED ENV{WEFT_CACHE_DIR})
  set(cuda_path "$ENV{WEFT_CACHE_DIR}/cuda")
elseif(DEFINED ENV{XDG_CACHE_HOME})
  set(cuda_path "$ENV{XDG_CACHE_HOME}/weft/cuda")
endif()
set(weft_test_environment
  "WEFT_CACHE_DIR=${weft_test_cache}" "WEFT_CUDA_PATH=${cuda_path}"
  "WEFT=$<$<TARGET_EXISTS:weft_program>:$<TARGET_FILE:weft_program>>"
  "SRC=${PROJECT_SOURCE_DIR}" "BUILD=${PROJECT_BINARY_DIR}")
set(suppressions "${PROJECT_SOURCE_DIR}/tools/sanitizers")
if(WEFT_SANITIZE MATCHES "address")
  list(APPEND weft_test_environment
    "ASAN_OPTIONS=detect_stack_use_after_return=1:strict_string_checks=1"
    "LSAN_OPTIONS=suppressions=${suppressions}/lsan.supp:print_suppressions=0"
    "UBSAN_OPTIONS=print_stacktrace=1")
elseif(WEFT_SANITIZE MATCHES "thread")
  list(APPEND weft_test_environment
    "TSAN_OPTIONS=suppressions=${suppressions}/tsan.supp:history_size=4")
endif()
