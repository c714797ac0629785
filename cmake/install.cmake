# Files that `cmake --install` puts under the prefix: headers, the library with the files by
# which pkg-config and CMake find it, the command with its text, man pages and completion.
include(CMakePackageConfigHelpers)

install(DIRECTORY include/choir DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT development
  FILES_MATCHING PATTERN *.h)
install(TARGETS choir EXPORT choir
  LIBRARY COMPONENT library NAMELINK_COMPONENT development)
# Programs load the library that the dynamic linker finds first, which may be another one.
get_target_property(soversion choir SOVERSION)
install(CODE "set(lib \"\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_LIBDIR}\")
  set(name \"libchoir.so.${soversion}\")" COMPONENT library)
install(CODE [[
  execute_process(COMMAND sh -c "PATH=$PATH:/usr/sbin:/sbin ldconfig -p" OUTPUT_VARIABLE known
    ERROR_QUIET)
  set(first "")
  if("${known}" MATCHES "${name} [^\n]*=> ([^\n]*)")
    set(first "${CMAKE_MATCH_1}")
  endif()
  if("$ENV{DESTDIR}" STREQUAL "" AND EXISTS "${lib}/${name}" AND EXISTS "${first}")
    file(REAL_PATH "${first}" found)
    file(REAL_PATH "${lib}/${name}" installed)
    if(NOT found STREQUAL installed)
      message("choir: programs load another installation, ${first}, until ldconfig has run for "
        "${lib} or LD_LIBRARY_PATH names it; or remove the other one")
    endif()
  endif()]] COMPONENT library)
install(TARGETS choir_internal # libchoir.a, for pkg-config --static
  ARCHIVE COMPONENT development)
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT license)
install(FILES README.md CONTRIBUTING.md DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT command)
install(DIRECTORY docs examples DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT command
  PATTERN man EXCLUDE)
# docs/architecture.md is the map of the rooms' pages.
file(GLOB_RECURSE rooms CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR} src/README.md
  tests/README.md)
foreach(page IN LISTS rooms)
  get_filename_component(room ${page} DIRECTORY)
  install(FILES ${page} DESTINATION ${CMAKE_INSTALL_DOCDIR}/${room} COMPONENT command)
endforeach()

if(TARGET choir_command)
  install(TARGETS choir_command RUNTIME COMPONENT command)
  install(FILES completions/choir.bash RENAME choir COMPONENT command
    DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
  # Another installation that shells find first would be taken for this one.
  install(CODE "set(bin \"\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_BINDIR}\")" COMPONENT command)
  install(CODE [[
    execute_process(COMMAND sh -c "command -v choir" OUTPUT_VARIABLE first ERROR_QUIET
      OUTPUT_STRIP_TRAILING_WHITESPACE)
    if(first AND "$ENV{DESTDIR}" STREQUAL "" AND EXISTS "${bin}/choir")
      file(REAL_PATH "${first}" found)
      file(REAL_PATH "${bin}/choir" installed)
      if(NOT found STREQUAL installed)
        message("choir: shells find another installation, ${first}: put ${bin} before it in PATH, "
          "or remove the other one")
      endif()
    endif()]] COMPONENT command)
  file(GLOB man_pages CONFIGURE_DEPENDS docs/man/*.1)
  install(FILES ${man_pages} DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT command)
endif()
install(FILES ${CHOIR_TEXT} DESTINATION ${CMAKE_INSTALL_DATADIR}/choir COMPONENT command)

install(FILES cmake/tsan.supp DESTINATION ${CMAKE_INSTALL_DATADIR}/choir COMPONENT development)

# The reference of the C interface, if script/reference has made it.
set(reference ${PROJECT_BINARY_DIR}/reference)
install(DIRECTORY ${reference}/man/man3 DESTINATION ${CMAKE_INSTALL_MANDIR} COMPONENT development
  OPTIONAL)
install(DIRECTORY ${reference}/html/ DESTINATION ${CMAKE_INSTALL_DOCDIR}/reference
  COMPONENT development OPTIONAL)

# find_package(choir) defines the target choir::choir.
set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/choir)
install(EXPORT choir NAMESPACE choir:: FILE choirConfig.cmake DESTINATION ${package_folder}
  COMPONENT development)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/choirConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/choirConfigVersion.cmake DESTINATION ${package_folder}
  COMPONENT development)

# What a program that is linked with libchoir.a needs beside it.
set(CHOIR_STATIC_LIBS -ljansson -lsodium -lz -lm -lpthread -ldl)
foreach(needed IN ITEMS JPEG PNG PROTOBUF)
  if(CHOIR_${needed} AND TARGET PkgConfig::${needed})
    list(TRANSFORM ${needed}_LIBRARIES PREPEND -l OUTPUT_VARIABLE flags)
    list(APPEND CHOIR_STATIC_LIBS ${flags})
  endif()
endforeach()
list(JOIN CHOIR_STATIC_LIBS " " CHOIR_STATIC_LIBS)

# choir.pc computes its prefix from its own path, so that an installed tree can be moved.
set(pc_folder ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig)
file(RELATIVE_PATH pc_to_prefix ${pc_folder} ${CMAKE_INSTALL_PREFIX})
string(REGEX REPLACE "/$" "" pc_to_prefix ${pc_to_prefix})
configure_file(cmake/choir.pc.in choir.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/choir.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig
  COMPONENT development)

add_custom_target(uninstall VERBATIM COMMAND ${CMAKE_COMMAND}
  -DMANIFEST=${PROJECT_BINARY_DIR}/install_manifest.txt
  -P ${PROJECT_SOURCE_DIR}/cmake/uninstall.cmake)

# What an installation without tests and benchmarks is made of (script/package).
add_custom_target(packaged DEPENDS choir choir_internal)
foreach(target IN ITEMS command ucx mpi mpi_openmpi mpi_mpich etcd raft parquet cuda nccl)
  if(TARGET choir_${target})
    add_dependencies(packaged choir_${target})
  endif()
endforeach()
