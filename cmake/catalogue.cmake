# The table of devices that the core has comes from catalogue/*.yaml, by a program of the build that
# reads them as weft reads users' files, and fails where one of them is wrong.
set(WEFT_CATALOGUE "${WEFT_GENERATED_DIR}/weft/device/shipped_devices.cpp")
file(GLOB catalogue_files CONFIGURE_DEPENDS catalogue/*.yaml)
list(REMOVE_ITEM catalogue_files "${PROJECT_SOURCE_DIR}/catalogue/sources.yaml")
file(MAKE_DIRECTORY "${WEFT_GENERATED_DIR}/weft/device")

add_executable(weft_write_catalogue cmake/write_catalogue.cpp
  weft/train/catalogue/device_file.cpp weft/train/catalogue/device_checks.cpp
  weft/train/catalogue/field_reader.cpp
  weft/train/recipe/yaml_text.cpp weft/device/device_fields.cpp weft/base/error.cpp
  weft/base/text/suggest.cpp weft/base/text/pattern.cpp weft/base/text/utf8.cpp)
target_include_directories(weft_write_catalogue PRIVATE "${PROJECT_SOURCE_DIR}")
target_link_libraries(weft_write_catalogue PRIVATE
  weft_dep_public weft_dep_headers weft_dep_recipes weft_flags)
add_custom_command(OUTPUT "${WEFT_CATALOGUE}"
  COMMAND weft_write_catalogue "${WEFT_CATALOGUE}" catalogue/sources.yaml ${catalogue_files}
  WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}"
  DEPENDS weft_write_catalogue catalogue/sources.yaml ${catalogue_files}
  COMMENT "Checking catalogue/*.yaml" VERBATIM)

# So do the constants of estimates.
set(WEFT_CONSTANTS "${WEFT_GENERATED_DIR}/weft/estimate/shipped_constants.cpp")
file(MAKE_DIRECTORY "${WEFT_GENERATED_DIR}/weft/estimate")
add_executable(weft_write_constants cmake/write_constants.cpp)
target_link_libraries(weft_write_constants PRIVATE
  weft_dep_public weft_dep_headers weft_dep_recipes weft_flags)
add_custom_command(OUTPUT "${WEFT_CONSTANTS}"
  COMMAND weft_write_constants "${WEFT_CONSTANTS}" catalogue/costs/fitted.yaml
  WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}"
  DEPENDS weft_write_constants catalogue/costs/fitted.yaml VERBATIM)
