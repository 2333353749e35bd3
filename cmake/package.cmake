# A Debian package of the program:  cmake --build build-portable --target assay
#                                   (cd build-portable && cpack -G DEB)
# It holds the install component `program`: bin/assay, its man page and completion scripts, the presets,
# scripts that fetch data, the documentation, the licence. dpkg-shlibdeps finds what the program is linked
# with, so the package fits the release of Debian that built it. Without -DASSAY_NATIVE=OFF (preset
# portable) it needs a CPU with the instructions of the building one.
set(CPACK_INSTALL_CMAKE_PROJECTS "${CMAKE_BINARY_DIR};${PROJECT_NAME};program;/")
set(CPACK_PACKAGE_NAME assay)
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGE_VENDOR "The Assay developers")
set(CPACK_PACKAGE_CONTACT "The Assay developers")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "pretrains small dense and mixture-of-experts language models")
set(CPACK_PACKAGE_DESCRIPTION
"An engine in C++20 and CUDA that pretrains small dense and mixture-of-experts
language models from scratch, compares them under contracts that say what is
held fixed, and leaves a receipt of every run. Presets of models are in
/usr/share/assay/presets, the documentation is in /usr/share/doc/assay
(README.md lists its pages); the first thing to run is: assay doctor")
if(ASSAY_NATIVE)
  string(APPEND CPACK_PACKAGE_DESCRIPTION
    "\nThis package needs a CPU with the instructions of the machine that built it.")
endif()
set(CPACK_RESOURCE_FILE_LICENSE ${CMAKE_SOURCE_DIR}/LICENSE)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_GENERATOR DEB)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)  # assay_<version>_<architecture>.deb
set(CPACK_DEBIAN_PACKAGE_MAINTAINER "${CPACK_PACKAGE_CONTACT}")
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SUGGESTS "curl, ca-certificates, python3, python3-lxml")  # the scripts in share/assay/tools
if(ASSAY_HAS_MPI AND "${MPI_C_LIBRARIES};${MPI_C_INCLUDE_DIRS}" MATCHES "openmpi")  # its mpirun, for ranks
  string(APPEND CPACK_DEBIAN_PACKAGE_SUGGESTS ", openmpi-bin")
endif()
install(FILES ${CMAKE_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} RENAME copyright COMPONENT program)
include(CPack)
