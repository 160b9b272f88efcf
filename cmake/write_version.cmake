# A script (cmake -P) that writes OUTPUT only when its content changes.

execute_process(
  COMMAND git -C "${SOURCE_DIR}" describe --always --dirty --abbrev=12 --exclude=*
  OUTPUT_VARIABLE COMMIT OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
if(NOT COMMIT)
  set(COMMIT unknown)
endif()
configure_file("${SOURCE_DIR}/cmake/version.cpp.in" "${OUTPUT}" @ONLY)
