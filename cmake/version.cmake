# weft/base/version.h never changes between commits; version.cpp holds the values and is the only
# file that is recompiled when the commit changes.

set(WEFT_GENERATED_DIR "${PROJECT_BINARY_DIR}/generated")
set(WEFT_VERSION_CPP "${WEFT_GENERATED_DIR}/weft/base/version.cpp")
configure_file("${PROJECT_SOURCE_DIR}/cmake/version.h.in" "${WEFT_GENERATED_DIR}/weft/base/version.h"
               COPYONLY)

set(weft_build_kind "${CMAKE_BUILD_TYPE}")
if(WEFT_SANITIZE)
  string(APPEND weft_build_kind ", ${WEFT_SANITIZE}")
endif()

add_custom_target(weft_version
  COMMAND "${CMAKE_COMMAND}"
    "-DSOURCE_DIR=${PROJECT_SOURCE_DIR}" "-DOUTPUT=${WEFT_VERSION_CPP}"
    "-DVERSION=${PROJECT_VERSION}" "-DBUILD_KIND=${weft_build_kind}"
    "-DCOMPILER=${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}"
    -P "${PROJECT_SOURCE_DIR}/cmake/write_version.cmake"
  BYPRODUCTS "${WEFT_VERSION_CPP}"
  COMMENT "Looking up the commit"
  VERBATIM)
