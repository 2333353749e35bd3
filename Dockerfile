# The program in Debian 12:  docker build -t assay . && docker run --rm -v "$PWD:/work" assay doctor
# It runs on any x86-64 CPU. NATIVE=ON is faster, on CPUs with the instructions of the building one.
FROM debian:12
ARG NATIVE=OFF
WORKDIR /assay
COPY tools/setup.sh tools/
RUN bash tools/setup.sh && rm -rf /var/lib/apt/lists/*
COPY . .
RUN cmake --preset release -DASSAY_NATIVE=$NATIVE && cmake --build build --target assay
WORKDIR /work
ENTRYPOINT ["/assay/build/assay"]
