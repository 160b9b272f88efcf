# `cmake --install`, and the .deb of `make package`. Two components:
#   program      the program, the libraries, recipes and completion for shells (package weft)
#   development  headers, names of the libraries for linkers, find_package(weft) (package weft-dev)

# The program searches for libraries next to itself (in the build folder, where it is installed, in
# the relocatable archive of tools/package.sh), then in the system, then in the archive's fallback
# folder for systems that lack them: a driver loaded later may need a newer libstdc++ than the
# archive's. RPATH, unlike RUNPATH, also applies to the dependencies of libraries.
target_link_options(weft_program PRIVATE -Wl,--disable-new-dtags)
set_target_properties(weft_program PROPERTIES BUILD_WITH_INSTALL_RPATH ON INSTALL_RPATH
  "$ORIGIN;$ORIGIN/../${CMAKE_INSTALL_LIBDIR};$ORIGIN/../lib/weft;/usr/lib/${CMAKE_LIBRARY_ARCHITECTURE};/usr/lib64;$ORIGIN/../lib/weft/fallback")
install(TARGETS weft_program RUNTIME COMPONENT program)
# A library finds the others next to itself.
foreach(library IN LISTS weft_libraries)
  target_link_options(${library} PRIVATE -Wl,--disable-new-dtags)
  set_target_properties(${library} PROPERTIES BUILD_WITH_INSTALL_RPATH ON INSTALL_RPATH "$ORIGIN")
endforeach()
# Completion scripts go where each shell looks by default. The program prints its own scripts;
# sanitized builds, and builds that this machine cannot run, install none.
if(NOT WEFT_SANITIZE AND NOT CMAKE_CROSSCOMPILING)
  set(completions "")
  foreach(place IN ITEMS bash:bash-completion/completions/weft zsh:zsh/site-functions/_weft
                         fish:fish/vendor_completions.d/weft.fish)
    string(REGEX MATCH "^([a-z]+):(.+)/([^/]+)$" matched "${place}")
    set(shell "${CMAKE_MATCH_1}")
    set(folder "${CMAKE_MATCH_2}")
    set(script "${PROJECT_BINARY_DIR}/completion/${CMAKE_MATCH_3}")
    add_custom_command(OUTPUT "${script}"
      COMMAND weft_program completion ${shell} > "${script}"
      DEPENDS weft_program COMMENT "Writing the completion of ${shell}" VERBATIM)
    list(APPEND completions "${script}")
    install(FILES "${script}" DESTINATION "${CMAKE_INSTALL_DATADIR}/${folder}" COMPONENT program)
  endforeach()
  file(MAKE_DIRECTORY "${PROJECT_BINARY_DIR}/completion")
  add_custom_target(weft_completions ALL DEPENDS ${completions})
  if(TARGET weft_tests)  # of the packages
    add_dependencies(weft_tests weft_completions)
  endif()
endif()
# Loaded where present, from beside the libraries.
if(TARGET weft_mpi)
  install(TARGETS weft_mpi LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT cluster
          EXCLUDE_FROM_ALL)
endif()
if(EXISTS "${PROJECT_SOURCE_DIR}/recipes")
  install(DIRECTORY recipes/ DESTINATION "${CMAKE_INSTALL_DATADIR}/weft/recipes" COMPONENT program
          FILES_MATCHING PATTERN "*.yaml" PATTERN "*.yml" PATTERN "*.md")
endif()
install(FILES LICENSE DESTINATION "${CMAKE_INSTALL_DOCDIR}" COMPONENT program)

# find_package(weft) finds the dependencies of weft_dep_public again (weft-config.cmake).
install(TARGETS ${weft_libraries} weft_dep_public EXPORT weft-targets
        LIBRARY COMPONENT program NAMELINK_COMPONENT development)
install(DIRECTORY weft DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}" COMPONENT development
        FILES_MATCHING PATTERN "*.h")
install(FILES "${WEFT_GENERATED_DIR}/weft/base/version.h"
        DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/weft/base" COMPONENT development)
install(FILES "${WEFT_SETTINGS}.h"
        DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/weft/train/recipe" COMPONENT development)

# The file is not in the build folder itself, where find_package would find it without
# weft-targets.cmake.
include(CMakePackageConfigHelpers)
set(weft_config_dir "${PROJECT_BINARY_DIR}/installation")
set(weft_cmake_dir "${CMAKE_INSTALL_LIBDIR}/cmake/weft")
configure_package_config_file(cmake/weft-config.cmake.in "${weft_config_dir}/weft-config.cmake"
  INSTALL_DESTINATION "${weft_cmake_dir}")
write_basic_package_version_file("${weft_config_dir}/weft-config-version.cmake"
  COMPATIBILITY SameMinorVersion)
install(EXPORT weft-targets NAMESPACE weft:: DESTINATION "${weft_cmake_dir}" COMPONENT development)
install(FILES "${weft_config_dir}/weft-config.cmake"
              "${weft_config_dir}/weft-config-version.cmake"
        DESTINATION "${weft_cmake_dir}" COMPONENT development)

# ---- .deb ----------------------------------------------------------------------------------------

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME weft)
set(CPACK_PACKAGE_CONTACT "The weft developers <weft@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "${PROJECT_DESCRIPTION}")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_THREADS 0)  # one per core
set(CPACK_COMPONENTS_ALL program development)
if(TARGET weft_mpi)
  list(APPEND CPACK_COMPONENTS_ALL cluster)
endif()
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_COMPRESSION_TYPE zstd)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_NAME weft)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_RECOMMENDS libclblast1)  # loaded where present
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME weft-dev)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS
    "weft (= ${PROJECT_VERSION}), libfmt-dev, g++ (>= 4:12)")
set(CPACK_COMPONENT_PROGRAM_DESCRIPTION
    "Plans, trains and runs neural networks: the program, its libraries and its recipes.")
set(CPACK_COMPONENT_DEVELOPMENT_DESCRIPTION
    "Plans, trains and runs neural networks: headers for C++ programs with models of their own.")
# A package of its own: weft itself does not need MPI.
set(CPACK_DEBIAN_CLUSTER_PACKAGE_NAME weft-mpi)
set(CPACK_DEBIAN_CLUSTER_PACKAGE_DEPENDS "weft (= ${PROJECT_VERSION})")
set(CPACK_DEBIAN_CLUSTER_PACKAGE_RECOMMENDS openmpi-bin)  # mpirun, which starts the ranks
set(CPACK_COMPONENT_CLUSTER_DESCRIPTION
    "Plans, trains and runs neural networks: runs of several hosts, by Open MPI.")
include(CPack)
