# The text that comes with Choir, build/share/choir/choir.txt: a corpus for a first run, which the
# command finds where it was built or where it was installed. It is a copy of guides, examples,
# headers and sources as they once were, which stays as it is: README.md shows the losses that it
# gives, and a run that an earlier version began on it goes on. It is kept in an archive, so that
# searches of the sources do not find everything twice.
set(CHOIR_TEXT ${PROJECT_BINARY_DIR}/share/choir/choir.txt)
set(text_archive ${PROJECT_SOURCE_DIR}/share/choir.txt.tar.xz)
file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/share/choir)
add_custom_command(OUTPUT ${CHOIR_TEXT}
  COMMAND ${CMAKE_COMMAND} -E tar xf ${text_archive} --touch
  WORKING_DIRECTORY ${PROJECT_BINARY_DIR}/share/choir
  DEPENDS ${text_archive} COMMENT "Unpacking share/choir/choir.txt" VERBATIM)
add_custom_target(choir_text ALL DEPENDS ${CHOIR_TEXT})
