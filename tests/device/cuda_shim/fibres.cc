// The shim's threads: one fibre for each, switched where they wait for each other.
#ifndef __x86_64__
#include <ucontext.h>
#endif

#include <algorithm>
#include <map>
#include <memory>

#include "cuda_runtime.h"
extern "C" {
#include "shim.h"
}

#ifdef ZERO3D_SANITIZED
#include <sanitizer/common_interface_defs.h>
#endif

namespace {

constexpr size_t STACK = 256 << 10;
constexpr unsigned WARP = 32, MOST_THREADS = 1024;
constexpr size_t UNASKED_SHARED = 48 << 10, MOST_SHARED = 227 << 10; // of an H100

enum state { READY, AT_SHUFFLE, AT_BARRIER, DONE };

// Where a flow of control waits. swapcontext costs a system call each way, so it is used only where
// the processor is another.
#ifdef __x86_64__
struct context {
    void *top; // of its stack
};

// Keeps what a function must keep on the stack that it leaves at *from; goes on at *to.
extern "C" void cuda_shim_swap(context *from, const context *to);
asm(".text\n"
    "cuda_shim_swap:\n"
    "push %rbp\n push %rbx\n push %r12\n push %r13\n push %r14\n push %r15\n"
    "mov %rsp, (%rdi)\n"
    "mov (%rsi), %rsp\n"
    "pop %r15\n pop %r14\n pop %r13\n pop %r12\n pop %rbx\n pop %rbp\n"
    "ret\n");

// As if `enter` had been called, aligned as a call leaves it, and had switched at once.
void make(context *made, char *stack, void (*enter)()) {
    void **top = reinterpret_cast<void **>(stack + STACK) - 2;
    *top = reinterpret_cast<void *>(enter);
    made->top = top - 6; // the registers, 0
}
#else
using context = ucontext_t;

void cuda_shim_swap(context *from, const context *to) {
    swapcontext(from, to);
}

void make(context *made, char *stack, void (*enter)()) {
    getcontext(made);
    made->uc_stack.ss_sp = stack;
    made->uc_stack.ss_size = STACK;
    made->uc_link = nullptr;
    makecontext(made, enter, 0);
}
#endif

// Lives as long as the program: it runs one thread after the other.
struct fibre {
    uint3 index;
    context here;
    std::unique_ptr<char[]> stack;
    state at = DONE;
    unsigned exchanges = 0;
};

// One block at a time.
struct machine {
    fibre fibres[MOST_THREADS];
    unsigned char slots[MOST_THREADS / WARP][2][WARP][CUDA_SHIM_SLOT];
    std::unique_ptr<unsigned char[]> shared;
    unsigned threads = 0;
    fibre *running = nullptr;
    context scheduler;
    const void *scheduler_stack = nullptr;
    size_t scheduler_stack_bytes = 0;
    const std::function<void()> *body = nullptr;
    bool descend = false;
    std::map<const void *, size_t> asked; // shared memory, by kernel
} machine;

// From one flow of control to another, and some time back. A sanitizer wants to be told.
void go(context *from, const context *to, const void *stack, size_t bytes) {
#ifdef ZERO3D_SANITIZED
    void *fake = nullptr;
    __sanitizer_start_switch_fiber(&fake, stack, bytes);
    cuda_shim_swap(from, to);
    __sanitizer_finish_switch_fiber(fake, nullptr, nullptr);
#else
    (void)stack, (void)bytes;
    cuda_shim_swap(from, to);
#endif
}

void leave(state at) {
    machine.running->at = at;
    go(&machine.running->here, &machine.scheduler, machine.scheduler_stack,
       machine.scheduler_stack_bytes);
}

void enter() {
#ifdef ZERO3D_SANITIZED
    __sanitizer_finish_switch_fiber(nullptr, &machine.scheduler_stack,
                                    &machine.scheduler_stack_bytes);
#endif
    for (;;) {
        (*machine.body)();
        leave(DONE);
    }
}

// If any of these fibres, which have run as far as they could, wait at `at`, then `all` must; they
// go on.
bool release(fibre *first, unsigned count, state at, unsigned all, const char *otherwise) {
    unsigned waiting = 0;
    for (unsigned i = 0; i < count; i++) waiting += first[i].at == at;
    if (waiting == 0) return false;
    if (waiting < all) cuda_shim_stop(otherwise);
    for (unsigned i = 0; i < count; i++) first[i].at = READY;
    return true;
}

// Until all lanes wait for the block or are done.
void run_warp(fibre *first, unsigned lanes) {
    do
        for (unsigned i = 0; i < lanes; i++) {
            fibre *f = &first[machine.descend ? lanes - 1 - i : i];
            if (f->at != READY) continue;
            machine.running = f;
            threadIdx = f->index;
            go(&machine.scheduler, &f->here, f->stack.get(), STACK);
        }
    while (release(first, lanes, AT_SHUFFLE, WARP, "a shuffle that not all lanes of a warp reach"));
}

void run_block() {
    const unsigned threads = machine.threads, warps = (threads + WARP - 1) / WARP;
    do
        for (unsigned i = 0; i < warps; i++) {
            const unsigned first = (machine.descend ? warps - 1 - i : i) * WARP;
            run_warp(&machine.fibres[first], std::min(threads - first, WARP));
        }
    while (release(machine.fibres, threads, AT_BARRIER, threads,
                   "a barrier that not all threads reach"));
}

void begin(fibre *f, uint3 index) {
    f->index = index;
    f->at = READY;
    if (f->stack) return;
    f->stack.reset(new char[STACK]);
    make(&f->here, f->stack.get(), enter);
}

// Of more than one dimension only blocks, and these of two.
bool is_possible(const cudaLaunchConfig_t &config, const void *kernel) {
    const dim3 &grid = config.gridDim, &block = config.blockDim;
    const size_t threads = (size_t)block.x * block.y;
    const size_t shared = machine.asked.emplace(kernel, UNASKED_SHARED).first->second;
    return threads > 0 && threads <= MOST_THREADS && block.z == 1 && grid.x > 0 &&
           grid.x <= INT32_MAX && grid.y == 1 && grid.z == 1 && config.dynamicSmemBytes <= shared;
}

void run(const cudaLaunchConfig_t &config, const std::function<void()> &thread) {
    blockDim = config.blockDim;
    gridDim = config.gridDim;
    machine.threads = blockDim.x * blockDim.y;
    machine.body = &thread;
    for (blockIdx.x = 0; blockIdx.x < gridDim.x; blockIdx.x++) {
        machine.shared.reset(new unsigned char[config.dynamicSmemBytes]);
        std::memset(machine.shared.get(), 0xff, config.dynamicSmemBytes); // NaN
        for (unsigned t = 0; t < machine.threads; t++)
            begin(&machine.fibres[t], {t % blockDim.x, t / blockDim.x, 0});
        run_block();
    }
}

} // namespace

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

void cuda_shim_descend(bool descend) {
    machine.descend = descend;
}

void *cuda_shim_shared_memory() {
    return machine.shared.get();
}

int cuda_shim_lane() {
    return (int)((machine.running - machine.fibres) % WARP);
}

void __syncthreads() {
    leave(AT_BARRIER);
}

// Two sets of slots in turn: nobody is a whole exchange ahead of a lane that still reads.
const unsigned char *cuda_shim_exchange(const void *value, size_t bytes) {
    const size_t warp = (size_t)(machine.running - machine.fibres) / WARP;
    auto &slots = machine.slots[warp][machine.running->exchanges++ % 2];
    std::memcpy(slots[cuda_shim_lane()], value, bytes);
    leave(AT_SHUFFLE);
    return slots[0];
}

cudaError_t cudaFuncSetAttribute(const void *kernel, cudaFuncAttribute, int value) {
    if ((size_t)value > MOST_SHARED) return cudaErrorInvalidValue;
    machine.asked[kernel] = (size_t)value;
    return cudaSuccess;
}

cudaError_t cuda_shim_launch(const cudaLaunchConfig_t &config, const void *kernel,
                             std::function<void()> thread) {
    if (!is_possible(config, kernel)) return cudaErrorInvalidValue;
    return cuda_shim_do(config.stream, [config, thread] { run(config, thread); });
}
