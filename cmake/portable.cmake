# The target choir_portable: build/portable/, a tree whose command runs on any Linux with glibc
# 2.28 or later, as everything else is inside it (cmake/portable/link.sh). The plug-in over UCX
# uses the UCX of the machine. script/package makes a tarball of the tree.
if(CHOIR_SANITIZE OR NOT TARGET choir_command)
  return()
endif()
set(portable ${PROJECT_BINARY_DIR}/portable)
set(link ${CMAKE_COMMAND} -E env CC=${CMAKE_C_COMPILER}
  ${PROJECT_SOURCE_DIR}/cmake/portable/link.sh)

# What the command is linked with, and what it opens. libpq, libcurl and libmicrohttpd, which
# stand on many others, are the machine's, as is Oniguruma, of which Debian has no static library.
set(inside jansson sodium z)
foreach(part IN ITEMS "JPEG jpeg" "PNG png16" "PROTOBUF protobuf-c")
  separate_arguments(part)
  list(POP_FRONT part name library)
  if(CHOIR_${name} AND TARGET PkgConfig::${name})
    list(APPEND inside ${library})
  endif()
endforeach()
set(opened)
if(CHOIR_SQLITE_LIBRARY)
  list(APPEND opened "${CHOIR_SQLITE_LIBRARY}=sqlite3:sqlite3_*")
endif()
if(CHOIR_CRYPTO_LIBRARY)
  list(APPEND opened
    "${CHOIR_CRYPTO_LIBRARY}=crypto:SHA256_Init,SHA256_Update,SHA256_Final")
endif()
list(JOIN opened " " opened)

add_custom_command(OUTPUT ${portable}/bin/choir
  COMMAND ${CMAKE_COMMAND} -E env "OPENED=${opened}" ${link} program ${portable}/bin/choir
    ${inside} -- $<TARGET_OBJECTS:choir_command> $<TARGET_FILE:choir_internal>
  DEPENDS choir_command choir_internal cmake/portable/link.sh cmake/portable/stubs.sh
    cmake/portable/glibc.c
  COMMAND_EXPAND_LISTS VERBATIM)
set(portable_files ${portable}/bin/choir)
if(TARGET choir_ucx)
  set(file ${portable}/${CMAKE_INSTALL_LIBDIR}/choir/choir_ucx.so)
  add_custom_command(OUTPUT ${file}
    COMMAND ${link} plugin ${file} ${UCX_LINK_LIBRARIES} -- $<TARGET_OBJECTS:choir_ucx>
    DEPENDS choir_ucx cmake/portable/link.sh cmake/portable/stubs.sh cmake/portable/glibc.c
    COMMAND_EXPAND_LISTS VERBATIM)
  list(APPEND portable_files ${file})
endif()
add_custom_target(choir_portable DEPENDS ${portable_files})
