# Finds libraries with pkg-config or, where pkg-config is missing or does not know the library,
# by a header and the library's name (CMAKE_PREFIX_PATH adds folders: script/gpu --carry).
#   choir_library_required(JANSSON jansson jansson.h jansson libjansson-dev)
# Either way defines the target PkgConfig::JANSSON; without the library configuring fails.
function(choir_library_required name module header library package)
  pkg_check_modules(${name} QUIET IMPORTED_TARGET ${module})
  if(TARGET PkgConfig::${name})
    return()
  endif()
  find_path(${name}_HEADER ${header})
  find_library(${name}_LIBRARY ${library})
  mark_as_advanced(${name}_HEADER ${name}_LIBRARY)
  if(${name}_HEADER AND ${name}_LIBRARY)
    add_library(PkgConfig::${name} INTERFACE IMPORTED GLOBAL)
    set_target_properties(PkgConfig::${name} PROPERTIES
      INTERFACE_INCLUDE_DIRECTORIES "${${name}_HEADER}"
      INTERFACE_LINK_LIBRARIES "${${name}_LIBRARY}")
  else()
    message(FATAL_ERROR "There is no ${module} (${header}, lib${library}): install ${package}, or "
      "on a machine that cannot install anything bring it along, as script/gpu --help tells")
  endif()
endfunction()

# For a shared library that is opened when first needed (src/base/plugin/library.h): sets
# CHOIR_<name>_LIBRARY to the name by which the dynamic linker finds it, and lets what is built
# here look in its folder, as for a library that it is linked with.
macro(choir_opened_library name file)
  execute_process(COMMAND ${CMAKE_OBJDUMP} -p ${file} OUTPUT_VARIABLE text ERROR_QUIET)
  if(NOT text MATCHES "SONAME +([^\n]+)")
    message(FATAL_ERROR "${file}: expected a shared library, which Choir opens when it needs it; "
      "-DCHOIR_${name}=OFF builds without it")
  endif()
  set(CHOIR_${name}_LIBRARY ${CMAKE_MATCH_1})
  get_filename_component(folder ${file} DIRECTORY)
  if(NOT folder IN_LIST CMAKE_C_IMPLICIT_LINK_DIRECTORIES)
    list(APPEND CMAKE_BUILD_RPATH ${folder})
  endif()
endmacro()
