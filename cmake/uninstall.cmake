# The target `uninstall`: takes away the files that `cmake --install` has written into MANIFEST, and
# folders of ours that are empty then. By `cmake -P cmake/uninstall.cmake` it needs no build folder
# that can be configured: CMake configures one again before it makes a target, if a file has
# changed, and that fails where a library is gone.
if(NOT DEFINED MANIFEST)
  set(MANIFEST ${CMAKE_CURRENT_LIST_DIR}/../build/install_manifest.txt)
endif()
if(NOT EXISTS ${MANIFEST})
  message(FATAL_ERROR "expected ${MANIFEST}, which cmake --install writes, found none")
endif()
file(STRINGS ${MANIFEST} files)
set(folders)
foreach(file IN LISTS files)
  set(file "$ENV{DESTDIR}${file}")
  file(REMOVE "${file}")
  if(EXISTS "${file}" OR IS_SYMLINK "${file}")
    message(FATAL_ERROR "cannot remove ${file}: it needs the rights of the installation (sudo)")
  endif()
  cmake_path(GET file PARENT_PATH folder)
  while(folder MATCHES "/choir")
    list(APPEND folders ${folder})
    cmake_path(GET folder PARENT_PATH folder)
  endwhile()
endforeach()
list(REMOVE_DUPLICATES folders)
list(SORT folders ORDER DESCENDING) # the inner ones first
foreach(folder IN LISTS folders) # rmdir removes an empty one, whatever characters its name has
  execute_process(COMMAND rmdir "${folder}" OUTPUT_QUIET ERROR_QUIET)
endforeach()
list(LENGTH files count)
message(STATUS "removed ${count} files")
