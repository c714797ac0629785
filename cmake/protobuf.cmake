# Messages of other programs' files: protoc-c makes C of src/record/proto/NAME.proto, in
# build/proto/NAME.pb-c.h and .c.
if(CHOIR_PROTOBUF AND TARGET PkgConfig::PROTOBUF)
  find_program(CHOIR_PROTOC protoc-c)
  if(NOT CHOIR_PROTOC AND NOT CHOIR_PROTOBUF STREQUAL AUTO)
    message(FATAL_ERROR "CHOIR_PROTOBUF is ${CHOIR_PROTOBUF}, and protoc-c is missing: install "
      "protobuf-c-compiler")
  endif()
endif()
if(CHOIR_PROTOC AND CHOIR_PROTOBUF AND TARGET PkgConfig::PROTOBUF)
  set(proto_folder ${PROJECT_BINARY_DIR}/proto)
  file(MAKE_DIRECTORY ${proto_folder})
  foreach(name IN ITEMS tensorboard wandb)
    set(proto ${PROJECT_SOURCE_DIR}/src/record/proto/${name}.proto)
    set(made ${proto_folder}/${name}.pb-c)
    add_custom_command(OUTPUT ${made}.c ${made}.h
      COMMAND ${CHOIR_PROTOC} --c_out=${proto_folder}
        --proto_path=${PROJECT_SOURCE_DIR}/src/record/proto ${proto}
      DEPENDS ${proto} VERBATIM)
    set_source_files_properties(${made}.c PROPERTIES COMPILE_OPTIONS -w)
    target_sources(choir_objects PRIVATE ${made}.c ${made}.h)
  endforeach()
  target_include_directories(choir_objects SYSTEM PUBLIC ${proto_folder})
  target_compile_definitions(choir_objects PUBLIC CHOIR_HAVE_PROTOBUF)
  target_link_libraries(choir_objects PUBLIC PkgConfig::PROTOBUF)
else() # what speaks these messages is left out; a recorder without them says what is missing
  set_source_files_properties(src/record/tensorboard/events.c PROPERTIES HEADER_FILE_ONLY ON)
endif()
