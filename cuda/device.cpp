#include "cuda/device.h"

#include "base/check.h"
#include "cuda/cublaslt.h"
#include "cuda/cuda_error.h"
#include "cuda/recent_kernels.h"
#include "cuda/stuck_wait.h"

namespace assay::gpu {

namespace {

int64_t attribute(cudaDeviceAttr which, int number) {
  int value = 0;
  cuda_check(cudaDeviceGetAttribute(&value, which, number), "reading the GPU's properties");
  return value;
}

cudaStream_t stream_of(const Context& on) {
  return static_cast<cudaStream_t>(on.stream);
}

int64_t available() {
  size_t free = 0, total = 0;
  cuda_check(cudaMemGetInfo(&free, &total), "querying the free memory");
  return int64_t(free);
}

// Whether an allocation found too little memory. Clears the error, which is not sticky.
bool out_of_memory(cudaError_t status) {
  if (status != cudaErrorMemoryAllocation) return false;
  cudaGetLastError();
  return true;
}

void* allocate_device(size_t bytes) {
  void* p = nullptr;
  const cudaError_t status = cudaMalloc(&p, bytes > 0 ? bytes : 1);
  if (out_of_memory(status)) throw out_of_gpu_memory(bytes, available());
  cuda_check(status, strprintf("allocating %zu bytes on the GPU", bytes));
  return p;
}

void* allocate_pinned(size_t bytes) {
  void *p = nullptr, *seen = nullptr;
  const cudaError_t status =
      cudaHostAlloc(&p, bytes > 0 ? bytes : 1, cudaHostAllocMapped | cudaHostAllocPortable);
  if (out_of_memory(status)) throw out_of_pinned_memory(bytes);
  cuda_check(status, strprintf("pinning %zu bytes of host memory", bytes));
  cuda_check(cudaHostGetDevicePointer(&seen, p, 0), "mapping host memory for the GPU");
  CHECK(seen == p, "pinned memory at %p is at %p on the GPU: no unified addressing", p, seen);
  return p;
}

// For destructors: an earlier call has reported a failure, or it no longer matters.
void free_device(void* p) {
  static_cast<void>(cudaFree(p));
}
void free_pinned(void* p) {
  static_cast<void>(cudaFreeHost(p));
}

void* allocate_zeroed(size_t bytes, Place place) {
  void* const p = place == Place::kDevice ? allocate_device(bytes) : allocate_pinned(bytes);
  cuda_check(cudaMemset(p, 0, bytes), "clearing memory");
  cuda_check(cudaDeviceSynchronize(), "clearing memory");
  return p;
}
void release(void* p, Place place) {
  place == Place::kDevice ? free_device(p) : free_pinned(p);
}

void wait_for(const Context& on) {
  cuda_check(cudaStreamSynchronize(stream_of(on)), "waiting for the GPU");
}

bool done(const Context& on) {
  const cudaError_t status = cudaStreamQuery(stream_of(on));
  if (status == cudaErrorNotReady) return false;
  cuda_check(status, "waiting for the GPU");
  return true;
}

constexpr Memory kMemory{allocate_zeroed, release, available, copy, wait_for, done};

void* record(const Context& on, CallRef calls) {
  cuda_check(cudaStreamBeginCapture(stream_of(on), cudaStreamCaptureModeThreadLocal),
             "recording a graph");
  cudaGraph_t graph = nullptr;
  try {
    calls();
  } catch (...) {
    static_cast<void>(cudaStreamEndCapture(stream_of(on), &graph));
    if (graph != nullptr) static_cast<void>(cudaGraphDestroy(graph));
    cudaGetLastError();
    throw;
  }
  cuda_check(cudaStreamEndCapture(stream_of(on), &graph), "recording a graph");
  cudaGraphExec_t instance = nullptr;
  const cudaError_t status = cudaGraphInstantiate(&instance, graph, 0);
  static_cast<void>(cudaGraphDestroy(graph));
  cuda_check(status, "instantiating a graph");
  return instance;
}
void replay(const Context& on, void* recording) {
  remember_kernel("a recorded graph");
  cuda_check(cudaGraphLaunch(static_cast<cudaGraphExec_t>(recording), stream_of(on)),
             "starting a graph");
}
void release_recording(void* recording) {
  static_cast<void>(cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(recording)));
}

constexpr Graphs kGraphs{record, replay, release_recording};

void* make_stream() {
  cudaStream_t stream = nullptr;
  cuda_check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "creating a stream");
  return stream;
}

void close_stream(void* stream) {
  static_cast<void>(cudaStreamDestroy(static_cast<cudaStream_t>(stream)));
}

// One event for all edges of a thread: a stream waits for what the event had recorded when the wait
// was queued.
cudaEvent_t edge_event() {
  thread_local const cudaEvent_t event = [] {
    cudaEvent_t made = nullptr;
    cuda_check(cudaEventCreateWithFlags(&made, cudaEventDisableTiming), "creating an event");
    return made;
  }();
  return event;
}
void* open_stream() {
  edge_event();  // now, not while a graph is recorded
  return make_stream();
}
void follow(const Context& later, const Context& earlier) {
  cuda_check(cudaEventRecord(edge_event(), stream_of(earlier)), "recording an event");
  cuda_check(cudaStreamWaitEvent(stream_of(later), edge_event(), 0), "waiting for an event");
}

constexpr Streams kStreams{open_stream, close_stream, follow};

void* make_event() {
  cudaEvent_t event = nullptr;
  cuda_check(cudaEventCreate(&event), "creating an event");
  return event;
}
void release_event(void* event) {
  static_cast<void>(cudaEventDestroy(static_cast<cudaEvent_t>(event)));
}
void record_event(const Context& on, void* event) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  cuda_check(cudaStreamIsCapturing(stream_of(on), &status), "querying whether a graph is recorded");
  // Without this flag a recording takes the event for an edge; outside of one the flag is refused.
  const unsigned flags =
      status == cudaStreamCaptureStatusNone ? cudaEventRecordDefault : cudaEventRecordExternal;
  cuda_check(cudaEventRecordWithFlags(static_cast<cudaEvent_t>(event), stream_of(on), flags),
             "recording an event");
}
double seconds_between(void* begin, void* end) {
  float ms = 0;
  cuda_check(
      cudaEventElapsedTime(&ms, static_cast<cudaEvent_t>(begin), static_cast<cudaEvent_t>(end)),
      "reading the time between two events");
  return 1e-3 * double(ms);
}

constexpr Events kEvents{make_event, release_event, record_event, seconds_between};

}  // namespace

DeviceFacts device_facts(int number) {
  DeviceFacts facts;
  facts.toolkit = CUDART_VERSION;
  if (cudaDriverGetVersion(&facts.driver) != cudaSuccess) facts.driver = 0;
  if (facts.driver == 0) return facts;
  const cudaError_t counted = cudaGetDeviceCount(&facts.devices);
  if (counted != cudaSuccess) {
    cudaGetLastError();
    facts.devices = 0;
    if (counted != cudaErrorNoDevice) facts.driver_problem = cudaGetErrorString(counted);
  }
  if (number >= facts.devices) return facts;
  cudaDeviceProp properties;
  cuda_check(cudaGetDeviceProperties(&properties, number), "reading the GPU's properties");
  facts.name = properties.name;
  facts.capability = 10 * properties.major + properties.minor;
  facts.multiprocessors = properties.multiProcessorCount;
  facts.memory_bytes = int64_t(properties.totalGlobalMem);
  facts.l2_bytes = properties.l2CacheSize;
  facts.shared_bytes_limit = attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin, number);
  char bus[16] = {};
  cuda_check(cudaDeviceGetPCIBusId(bus, int(sizeof bus), number), "reading the GPU's properties");
  facts.bus = bus;
  for (const char byte : properties.uuid.bytes) facts.uuid += strprintf("%02x", uint8_t(byte));
  facts.products_problem = cublaslt_problem();
  return facts;
}

Stream::Stream() : handle_(make_stream(), close_stream) {}

void Stream::wait() const {
  cuda_check(cudaStreamSynchronize(static_cast<cudaStream_t>(get())), "waiting for the GPU");
}

Event::Event() : handle_(make_event(), release_event) {}

void Event::record(const Context& on) {
  cuda_check(cudaEventRecord(static_cast<cudaEvent_t>(handle_.get()), stream_of(on)),
             "recording an event");
}

void Event::wait() const {
  cuda_check(cudaEventSynchronize(static_cast<cudaEvent_t>(handle_.get())), "waiting for the GPU");
}

double Event::microseconds_since(const Event& earlier) const {
  return 1e6 * seconds_between(earlier.handle_.get(), handle_.get());
}

DeviceBuffer::DeviceBuffer(size_t bytes)
    : handle_(allocate_device(bytes), free_device), bytes_(bytes) {}

PinnedBuffer::PinnedBuffer(size_t bytes)
    : handle_(allocate_pinned(bytes), free_pinned), bytes_(bytes) {}

void copy(const Context& on, void* to, const void* from, size_t bytes) {
  cuda_check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream_of(on)), "copying memory");
}

void fill(const Context& on, void* p, int byte, size_t bytes) {
  cuda_check(cudaMemsetAsync(p, byte, bytes, stream_of(on)), "filling memory");
}

Device::Device(DeviceFacts facts) : facts_(std::move(facts)) {
  context_.stream = stream_.get();
  context_.multiprocessors = facts_.multiprocessors;
  context_.kind = gpu_kind_by_environment(facts_.capability);
  context_.kind.shared_bytes = facts_.shared_bytes_limit;
  context_.predecessors = predecessors_by_environment();
  context_.memory = &kMemory;
  context_.graphs = &kGraphs;
  context_.streams = &kStreams;
  context_.events = &kEvents;
  context_.products = &products_;
  context_.launches = launches_by_environment();
}

bool Device::broken() const {
  cudaGetLastError();
  return cudaDeviceSynchronize() != cudaSuccess;
}

namespace {

void require_opened(cudaError_t status) {
  if (status == cudaErrorDevicesUnavailable) throw gpu_in_use();
  cuda_check(status, "opening the GPU");
}

}  // namespace

std::unique_ptr<Device> open_device(int number) {
  DeviceFacts facts = device_facts(number);
  if (facts.devices > 0 && number >= facts.devices) {
    throw UserError(strprintf("there is no GPU %d: %d are visible", number, facts.devices),
                    "one process a GPU; CUDA_VISIBLE_DEVICES chooses which are visible");
  }
  require_usable(facts);
  require_opened(cudaSetDevice(number));
  require_opened(cudaFree(nullptr));  // creates the context now, not in a step
  open_stuck_waits();
  facts.free_bytes = available();
  return std::unique_ptr<Device>(new Device(std::move(facts)));
}

}  // namespace assay::gpu
