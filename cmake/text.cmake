# The text that comes with Choir: build/share/choir/choir.txt, gathered from the project's own
# sources and guides. The command finds it where it was built or where it was installed.
set(CHOIR_TEXT ${PROJECT_BINARY_DIR}/share/choir/choir.txt)
file(GLOB_RECURSE text_parts CONFIGURE_DEPENDS include/*.h src/*.c)
file(GLOB text_guides CONFIGURE_DEPENDS docs/*.md README.md)
add_custom_command(OUTPUT ${CHOIR_TEXT}
  COMMAND ${CMAKE_COMMAND} -DROOT=${PROJECT_SOURCE_DIR} -DOUT=${CHOIR_TEXT}
    -P ${PROJECT_SOURCE_DIR}/cmake/gather.cmake
  DEPENDS ${text_parts} ${text_guides} ${PROJECT_SOURCE_DIR}/cmake/gather.cmake
  COMMENT "Gathering share/choir/choir.txt" VERBATIM)
add_custom_target(choir_text ALL DEPENDS ${CHOIR_TEXT})
