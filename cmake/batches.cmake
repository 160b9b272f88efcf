# weft_batches(TARGET): with WEFT_UNITY, a target's sources are compiled in batches of twenty.
# Sources of a folder instantiate the same templates of the standard library, JSON and fmt, which is
# half of their compile time: a batch does so once. Names in anonymous namespaces must therefore
# differ within a folder, which a build without batches does not notice.

function(weft_batches target)
  set_target_properties(${target} PROPERTIES
    UNITY_BUILD ${WEFT_UNITY} UNITY_BUILD_BATCH_SIZE 20)
  # GCC takes the sources of a batch for headers, in which this would be a mistake.
  if(WEFT_UNITY AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_compile_options(${target} PRIVATE -Wno-subobject-linkage)
  endif()
endfunction()
