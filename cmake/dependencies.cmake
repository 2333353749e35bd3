# What the program is linked with. Each missing one ends the configuration with the command that installs it.
function(assay_require found name package)
  if(NOT ${found})
    message(FATAL_ERROR "${name} was not found. Install it (Debian: apt-get install ${package}), "
                        "or run: bash tools/setup.sh")
  endif()
endfunction()

find_package(PkgConfig QUIET)
assay_require(PKG_CONFIG_FOUND pkg-config pkg-config)

# Optional: oneDNN, the peer of bench_matmul. Its own configuration file of Debian's insists on OpenCL.
find_path(ASSAY_DNNL_HEADERS oneapi/dnnl/dnnl.hpp)
find_library(ASSAY_DNNL_LIBRARY dnnl)
pkg_check_modules(ASSAY_PCRE2 QUIET IMPORTED_TARGET libpcre2-8)   # the GPT-2 pre-split: data
assay_require(ASSAY_PCRE2_FOUND PCRE2 libpcre2-dev)
find_package(nlohmann_json QUIET)              # tokenizer files, manifests, receipts: data and above
assay_require(nlohmann_json_FOUND nlohmann-json nlohmann-json3-dev)
find_package(OpenSSL QUIET COMPONENTS Crypto)  # SHA-256: data and above
assay_require(OPENSSL_FOUND OpenSSL libssl-dev)
find_package(yaml-cpp QUIET)                   # configuration: engine
assay_require(yaml-cpp_FOUND yaml-cpp libyaml-cpp-dev)
find_package(spdlog QUIET)                     # the run's log: engine
assay_require(spdlog_FOUND spdlog libspdlog-dev)
find_package(SQLite3 QUIET)                    # telemetry: engine
assay_require(SQLite3_FOUND SQLite libsqlite3-dev)
pkg_check_modules(ASSAY_ZLIB QUIET IMPORTED_TARGET zlib)          # *.gz: data
assay_require(ASSAY_ZLIB_FOUND zlib zlib1g-dev)
pkg_check_modules(ASSAY_ZSTD QUIET IMPORTED_TARGET libzstd)       # *.zst: data; load vectors in telemetry: engine
assay_require(ASSAY_ZSTD_FOUND zstd libzstd-dev)
find_path(BOOST_MATH_INCLUDE boost/math/distributions/students_t.hpp)  # headers only, Student's t: lab
assay_require(BOOST_MATH_INCLUDE Boost.Math libboost-dev)
find_package(CLI11 QUIET)                      # the command line: tools
assay_require(CLI11_FOUND CLI11 libcli11-dev)
pkg_check_modules(ASSAY_HTTPLIB QUIET IMPORTED_TARGET cpp-httplib)  # the server of assay watch: tools
assay_require(ASSAY_HTTPLIB_FOUND cpp-httplib libcpp-httplib-dev)

# Catch2 2 or 3, for the tests alone. A request for either version refuses the other one.
find_package(Catch2 QUIET)
if(NOT Catch2_FOUND OR Catch2_VERSION VERSION_LESS 2)
  set(assay_no_catch "Catch2 (2 or 3) was not found (Debian: apt-get install catch2)")
  if(ASSAY_TESTS STREQUAL "AUTO")
    set(ASSAY_HAS_TESTS OFF)
    message(STATUS "Tests: off, ${assay_no_catch}")
  elseif(ASSAY_TESTS)
    message(FATAL_ERROR "ASSAY_TESTS is ON and ${assay_no_catch}. Install it, or leave the tests out: -DASSAY_TESTS=OFF")
  endif()
endif()
