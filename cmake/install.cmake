# cmake --install: the program, the libraries with their headers, the presets of models, and the
# package that find_package(assay) reads, and the scripts that fetch and prepare data.
#
#   bin/assay   lib/assay/libassay_mpi.so   include/assay/<layer>/*.h   lib/libassay_*.a   lib/cmake/assay
#   share/assay/presets   share/assay/tools   share/doc/assay/*.md
#   share/man/man1/assay.1   share/bash-completion/completions/assay   share/zsh/site-functions/_assay
#
# The component `program` is what running needs (cmake --install build --component program); the
# Debian package is made of it (cmake/package.cmake).
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(ASSAY_PACKAGE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/assay)

# What follows has the component `development`, unless it says `program`.
set(CMAKE_INSTALL_DEFAULT_COMPONENT_NAME development)
set(assay_layers base cuda comm ops machine data engine models eval interop lab session)
foreach(layer ${assay_layers})
  install(DIRECTORY ${CMAKE_SOURCE_DIR}/${layer} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/assay
          FILES_MATCHING PATTERN "*.h" PATTERN presets EXCLUDE PATTERN web EXCLUDE
          PATTERN gpu_timer.h EXCLUDE)  # of assay_device_timer, which is this build's own
endforeach()
install(TARGETS assay RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT program)
if(ASSAY_HAS_MPI)  # where comm/launch.cpp looks for it
  install(TARGETS assay_mpi LIBRARY DESTINATION lib/assay COMPONENT program)
endif()
install(FILES ${CMAKE_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DATADIR}/assay COMPONENT program)
install(DIRECTORY ${CMAKE_SOURCE_DIR}/models/presets DESTINATION ${CMAKE_INSTALL_DATADIR}/assay COMPONENT program)
# What hints of the program and comments of the presets name (as_installed() in engine/config/paths.h).
set(assay_scripts get_anchor_log get_core get_debian_text get_fineweb get_gpt2 text_corpus)
list(TRANSFORM assay_scripts REPLACE "(.+)" "${CMAKE_SOURCE_DIR}/tools/\\1.sh")
install(PROGRAMS ${assay_scripts} DESTINATION ${CMAKE_INSTALL_DATADIR}/assay/tools COMPONENT program)
install(FILES ${CMAKE_SOURCE_DIR}/tools/fetch.sh ${CMAKE_SOURCE_DIR}/tools/debian_text.list
        DESTINATION ${CMAKE_INSTALL_DATADIR}/assay/tools COMPONENT program)
install(DIRECTORY ${CMAKE_SOURCE_DIR}/tools/debian_text DESTINATION ${CMAKE_INSTALL_DATADIR}/assay/tools COMPONENT program
        FILES_MATCHING PATTERN "*.py")
# The documents that help, hints and the man page name.
install(DIRECTORY ${CMAKE_SOURCE_DIR}/docs/ DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT program
        FILES_MATCHING PATTERN "*.md" PATTERN "*.json" PATTERN "*.png")
# In a checkout presets and scripts keep data in its data-cache, and call build/assay. Installed ones belong to nobody: the
# user's cache takes its place. The prefix may be relative.
install(CODE "
  get_filename_component(prefix \"\${CMAKE_INSTALL_PREFIX}\" ABSOLUTE)
  set(share \"\${prefix}/${CMAKE_INSTALL_DATADIR}/assay\")
  set(placed \"\$ENV{DESTDIR}\${share}\")
  file(GLOB_RECURSE files \"\${placed}/presets/*.yaml\" \"\${placed}/tools/*.sh\" \"\${placed}/tools/*.py\")
  foreach(file IN LISTS files)
    file(READ \"\${file}\" text)
    string(REGEX REPLACE \"([.][.]/)+data-cache( +# at the repository's root)?\" \"~/.cache/assay\" installed \"\${text}\")
    string(REPLACE \"data-cache/\" \"~/.cache/assay/\" installed \"\${installed}\")
    string(REPLACE \"bash tools/\" \"bash \${share}/tools/\" installed \"\${installed}\")
    string(REPLACE \"/../build/assay\" \"/../../../${CMAKE_INSTALL_BINDIR}/assay\" installed \"\${installed}\")
    string(REPLACE \"build/assay of this clone\" \"the installed one\" installed \"\${installed}\")
    string(REPLACE \"\\n  build/assay \" \"\\n  assay \" installed \"\${installed}\")
    string(REGEX REPLACE \"(^|[ (])docs/([^ ()]*[.]md)\" \"\\\\1\${prefix}/${CMAKE_INSTALL_DOCDIR}/\\\\2\" installed \"\${installed}\")
    if(NOT text STREQUAL installed)
      file(WRITE \"\${file}\" \"\${installed}\")
    endif()
  endforeach()" COMPONENT program)

# The program prints its man page and its completion scripts, so they are made when it is installed.
function(assay_install_printed arguments folder name)
  set(made ${CMAKE_BINARY_DIR}/printed/${name})
  install(CODE "file(MAKE_DIRECTORY \"${CMAKE_BINARY_DIR}/printed\")
    execute_process(COMMAND \"$<TARGET_FILE:assay>\" ${arguments} OUTPUT_VARIABLE text COMMAND_ERROR_IS_FATAL ANY)
    get_filename_component(prefix \"\${CMAKE_INSTALL_PREFIX}\" ABSOLUTE)
    string(REPLACE \"bash tools/\" \"bash \${prefix}/${CMAKE_INSTALL_DATADIR}/assay/tools/\" text \"\${text}\")
    string(REGEX REPLACE \"(^|[\\n (])docs/([^ ()]*[.]md)\" \"\\\\1\${prefix}/${CMAKE_INSTALL_DOCDIR}/\\\\2\" text \"\${text}\")
    file(WRITE \"${made}\" \"\${text}\")"
    COMPONENT program)
  install(FILES ${made} DESTINATION ${folder} COMPONENT program)
endfunction()
assay_install_printed("man" ${CMAKE_INSTALL_MANDIR}/man1 assay.1)
assay_install_printed("completion bash" ${CMAKE_INSTALL_DATADIR}/bash-completion/completions assay)
assay_install_printed("completion zsh" ${CMAKE_INSTALL_DATADIR}/zsh/site-functions _assay)

# The CUDA bodies are object libraries, as in the build: a program that links assay_ops_gpu has them
# in place of the weak bodies that refuse (ops/gpu/absent.h).
set(assay_libraries assay_options assay_base assay_cuda assay_comm assay_device assay_ops assay_ops_gpu
  assay_wait_policy assay_limits assay_cpu_energy assay_gpu_meter assay_data assay_telemetry assay_engine assay_decoder assay_models assay_eval
  assay_interop assay_anchor_log assay_lab assay_build_info assay_session)
if(ASSAY_HAS_CUDA)
  list(APPEND assay_libraries assay_ops_cuda assay_cuda_launch)
  if(TARGET assay_ops_hopper)
    list(APPEND assay_libraries assay_ops_hopper)
  endif()
endif()
install(TARGETS ${assay_libraries} EXPORT assay_targets
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
        OBJECTS DESTINATION ${CMAKE_INSTALL_LIBDIR}/assay)
install(EXPORT assay_targets DESTINATION ${ASSAY_PACKAGE_DIR})

configure_package_config_file(${CMAKE_SOURCE_DIR}/cmake/assay-config.cmake.in
  ${CMAKE_BINARY_DIR}/assay-config.cmake INSTALL_DESTINATION ${ASSAY_PACKAGE_DIR})
write_basic_package_version_file(${CMAKE_BINARY_DIR}/assay-config-version.cmake
  VERSION ${PROJECT_VERSION} COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/assay-config.cmake ${CMAKE_BINARY_DIR}/assay-config-version.cmake
        DESTINATION ${ASSAY_PACKAGE_DIR})
