# Makes a C file of text files: for page.css the array choir__watch_page_css, which ends with a
# zero, and its size without that.
#
#   cmake -DOUT=<file> -DHEADER=<its header> -DPREFIX=choir__watch_ -DFILES="<file>;..."
#     -P embed.cmake
set(code "/* Made by cmake/embed.cmake. */\n#include \"${HEADER}\"\n")
foreach(path IN LISTS FILES)
  get_filename_component(name ${path} NAME)
  string(REPLACE "." "_" name ${PREFIX}${name})
  file(READ ${path} bytes HEX)
  string(REGEX REPLACE "(................................)" "\\1\n" bytes "${bytes}")
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
  string(APPEND code "\nconst unsigned char ${name}[] = {\n${bytes}0};\n"
    "const size_t ${name}_bytes = sizeof ${name} - 1;\n")
endforeach()
file(WRITE ${OUT} "${code}")
