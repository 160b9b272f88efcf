# The environment of every test (weft_test_environment).

set(weft_test_environment
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
