# weft/train/recipe/settings.h and settings.cpp come from keys.toml: written when the build is
# configured, which a change of either file repeats.
find_package(Python3 3.11 REQUIRED COMPONENTS Interpreter)
set(WEFT_SETTINGS "${WEFT_GENERATED_DIR}/weft/train/recipe/settings")
set(weft_keys weft/train/recipe/keys.toml cmake/write_settings.py)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${weft_keys})
execute_process(
  COMMAND "${Python3_EXECUTABLE}" cmake/write_settings.py weft/train/recipe/keys.toml
          "${WEFT_GENERATED_DIR}/weft/train/recipe"
  WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}" COMMAND_ERROR_IS_FATAL ANY)
