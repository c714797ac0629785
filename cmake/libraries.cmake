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
