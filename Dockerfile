# Assay in Debian 13:  docker build -t assay . && docker run --rm -v "$PWD:/work" assay doctor
# It runs on any x86-64 CPU. --build-arg NATIVE=ON is faster, on CPUs with the instructions of the building one.
# tests/tools/test_debian_root.py runs these lines without Docker.
FROM debian:13 AS build
ARG NATIVE=OFF
WORKDIR /assay
COPY tools/setup.sh tools/
RUN bash tools/setup.sh --no-tests
COPY . .
RUN cmake --preset release -DASSAY_NATIVE=$NATIVE -DASSAY_TESTS=OFF && cmake --build build --target assay
RUN cd build && cpack -G DEB

FROM debian:13
COPY --from=build /assay/build/assay_*.deb /tmp/
RUN apt-get update -q && apt-get install -y -q --no-install-recommends /tmp/assay_*.deb openmpi-bin && rm -rf /var/lib/apt/lists/* /tmp/assay_*.deb
WORKDIR /work
ENTRYPOINT ["assay"]
