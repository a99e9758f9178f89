// The shim's threads: one fibre for each, switched where they wait for each other.
#include <sys/mman.h>
#ifndef __x86_64__
#include <ucontext.h>
#endif

#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <vector>

#include "cuda_runtime.h"

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

// Keeps what a function must keep, on the stack that it leaves at *from; goes on at `to`.
extern "C" void cuda_shim_switch(void **from, void *to);
asm(".text\n"
    "cuda_shim_switch:\n"
    "push %rbp\n push %rbx\n push %r12\n push %r13\n push %r14\n push %r15\n"
    "mov %rsp, (%rdi)\n"
    "mov %rsi, %rsp\n"
    "pop %r15\n pop %r14\n pop %r13\n pop %r12\n pop %rbx\n pop %rbp\n"
    "ret\n");

void swap(context *from, context *to) {
    cuda_shim_switch(&from->top, to->top);
}

// As if `enter` had been called, aligned as a call leaves it, and had switched at once.
void make(context *made, char *stack, void (*enter)()) {
    void **top = reinterpret_cast<void **>(stack + STACK) - 2;
    *top = reinterpret_cast<void *>(enter);
    made->top = top - 6; // the registers, 0
}
#else
struct context {
    ucontext_t self;
};

void swap(context *from, context *to) {
    swapcontext(&from->self, &to->self);
}

void make(context *made, char *stack, void (*enter)()) {
    getcontext(&made->self);
    made->self.uc_stack.ss_sp = stack;
    made->self.uc_stack.ss_size = STACK;
    made->self.uc_link = nullptr;
    makecontext(&made->self, enter, 0);
}
#endif

// Lives as long as the program: it runs one thread after the other.
struct fibre {
    uint3 index;
    context here;
    char *stack = nullptr;
    state at = DONE;
    unsigned exchanges = 0;
};

// One block at a time.
struct machine {
    fibre fibres[MOST_THREADS];
    std::vector<unsigned char> slots; // [warps][2][32][CUDA_SHIM_SLOT]
    std::unique_ptr<unsigned char[]> shared;
    unsigned threads = 0;
    fibre *running = nullptr;
    context scheduler;
    const void *scheduler_stack = nullptr;
    size_t scheduler_stack_bytes = 0;
    const std::function<void()> *body = nullptr;
    bool descend = false;
    std::map<const void *, int> asked; // shared memory, by kernel
};

machine *the_machine() {
    static machine self;
    return &self;
}

[[noreturn]] void fail(const char *what) {
    std::fprintf(stderr, "cuda shim: block %u,%u,%u: %s\n", blockIdx.x, blockIdx.y, blockIdx.z,
                 what);
    std::abort();
}

// A sanitizer wants to be told of other stacks.
void switch_begins(void **fake, const void *stack, size_t bytes) {
#ifdef ZERO3D_SANITIZED
    __sanitizer_start_switch_fiber(fake, stack, bytes);
#else
    (void)fake, (void)stack, (void)bytes;
#endif
}

void switch_ends(void *fake, const void **stack, size_t *bytes) {
#ifdef ZERO3D_SANITIZED
    __sanitizer_finish_switch_fiber(fake, stack, bytes);
#else
    (void)fake, (void)stack, (void)bytes;
#endif
}

// From the scheduler to a fibre, and back.
void resume(machine *m, fibre *f) {
    void *fake = nullptr;
    m->running = f;
    threadIdx = f->index;
    switch_begins(&fake, f->stack, STACK);
    swap(&m->scheduler, &f->here);
    switch_ends(fake, nullptr, nullptr);
}

void leave(machine *m, state at) {
    void *fake = nullptr;
    fibre *f = m->running;
    f->at = at;
    switch_begins(&fake, m->scheduler_stack, m->scheduler_stack_bytes);
    swap(&f->here, &m->scheduler);
    switch_ends(fake, nullptr, nullptr);
}

void enter() {
    machine *m = the_machine();
    switch_ends(nullptr, &m->scheduler_stack, &m->scheduler_stack_bytes);
    for (;;) {
        (*m->body)();
        leave(m, DONE);
    }
}

// Until all lanes wait for the block or are done.
void run_warp(machine *m, unsigned first, unsigned lanes) {
    for (;;) {
        unsigned shuffling = 0;
        for (unsigned i = 0; i < lanes; i++) {
            fibre *f = &m->fibres[first + (m->descend ? lanes - 1 - i : i)];
            if (f->at == READY) resume(m, f);
            shuffling += f->at == AT_SHUFFLE;
        }
        if (shuffling == 0) return;
        if (shuffling < WARP) fail("a shuffle that not all lanes of a warp reach");
        for (unsigned i = 0; i < lanes; i++) m->fibres[first + i].at = READY;
    }
}

void run_block(machine *m) {
    const unsigned warps = (m->threads + WARP - 1) / WARP;
    for (;;) {
        for (unsigned i = 0; i < warps; i++) {
            const unsigned first = (m->descend ? warps - 1 - i : i) * WARP;
            run_warp(m, first, m->threads - first < WARP ? m->threads - first : WARP);
        }
        unsigned waiting = 0;
        for (unsigned t = 0; t < m->threads; t++) waiting += m->fibres[t].at == AT_BARRIER;
        if (waiting == 0) return;
        if (waiting < m->threads) fail("a barrier that not all threads reach");
        for (unsigned t = 0; t < m->threads; t++) m->fibres[t].at = READY;
    }
}

void make_stack(fibre *f) {
    f->stack = static_cast<char *>(
        mmap(nullptr, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    if (f->stack == MAP_FAILED) fail("no memory for stacks");
    make(&f->here, f->stack, enter);
}

void prepare(machine *m, const cudaLaunchConfig_t &config) {
    const dim3 &size = config.blockDim;
    for (unsigned t = 0; t < m->threads; t++) {
        fibre *f = &m->fibres[t];
        f->index = {t % size.x, t / size.x % size.y, t / size.x / size.y};
        f->at = READY;
        f->exchanges = 0;
        if (!f->stack) make_stack(f);
    }
    m->shared.reset(new unsigned char[config.dynamicSmemBytes]);
    std::memset(m->shared.get(), 0xff, config.dynamicSmemBytes); // NaN
}

} // namespace

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

void cuda_shim_descend(bool descend) {
    the_machine()->descend = descend;
}

void *cuda_shim_shared_memory() {
    return the_machine()->shared.get();
}

int cuda_shim_lane() {
    machine *m = the_machine();
    return (int)((m->running - m->fibres) % WARP);
}

void __syncthreads() {
    leave(the_machine(), AT_BARRIER);
}

// Two sets of slots in turn: nobody is a whole exchange ahead of a lane that still reads.
const unsigned char *cuda_shim_exchange(const void *value, size_t bytes) {
    machine *m = the_machine();
    const size_t thread = (size_t)(m->running - m->fibres);
    unsigned char *slots =
        m->slots.data() + (thread / WARP * 2 + m->running->exchanges++ % 2) * WARP * CUDA_SHIM_SLOT;
    std::memcpy(slots + thread % WARP * CUDA_SHIM_SLOT, value, bytes);
    leave(m, AT_SHUFFLE);
    return slots;
}

cudaError_t cudaFuncSetAttribute(const void *kernel, cudaFuncAttribute, int value) {
    if (value < 0 || (size_t)value > MOST_SHARED) return cudaErrorInvalidValue;
    the_machine()->asked[kernel] = value;
    return cudaSuccess;
}

cudaError_t cuda_shim_check(const cudaLaunchConfig_t &config, const void *kernel) {
    const machine *m = the_machine();
    const dim3 &grid = config.gridDim, &block = config.blockDim;
    const size_t threads = (size_t)block.x * block.y * block.z;
    if (threads == 0 || threads > MOST_THREADS || block.z > 64 || grid.x == 0 || grid.y == 0 ||
        grid.z == 0 || grid.x > INT32_MAX || grid.y > 65535 || grid.z > 65535)
        return cudaErrorInvalidValue;
    const auto asked = m->asked.find(kernel);
    return config.dynamicSmemBytes >
                   (asked == m->asked.end() ? UNASKED_SHARED : (size_t)asked->second)
               ? cudaErrorInvalidValue
               : cudaSuccess;
}

void cuda_shim_run(const cudaLaunchConfig_t &config, const std::function<void()> &thread) {
    machine *m = the_machine();
    const dim3 &block = config.blockDim;
    m->threads = block.x * block.y * block.z;
    m->slots.resize((size_t)(m->threads + WARP - 1) / WARP * 2 * WARP * CUDA_SHIM_SLOT);
    m->body = &thread;
    blockDim = block;
    gridDim = config.gridDim;
    for (blockIdx.z = 0; blockIdx.z < gridDim.z; blockIdx.z++)
        for (blockIdx.y = 0; blockIdx.y < gridDim.y; blockIdx.y++)
            for (blockIdx.x = 0; blockIdx.x < gridDim.x; blockIdx.x++) {
                prepare(m, config);
                run_block(m);
            }
}

// plugin/streams.c, where the library as a whole is stood in for; here as C sees it.
extern "C" {
struct cuda_shim_work {
    void (*run)(void *argument);
    void (*drop)(void *argument);
    void *argument;
};
__attribute__((weak)) cudaError_t cuda_shim_enqueue(cudaStream_t stream, cuda_shim_work work);
}

cudaError_t cuda_shim_do(cudaStream_t stream, std::function<void()> what) {
    using function = std::function<void()>;
    if (!stream || !cuda_shim_enqueue) {
        what();
        return cudaSuccess;
    }
    return cuda_shim_enqueue(stream, {[](void *self) { (*static_cast<function *>(self))(); },
                                      [](void *self) { delete static_cast<function *>(self); },
                                      new function(std::move(what))});
}
