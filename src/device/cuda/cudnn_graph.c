/* cuDNN's backend API: loading, descriptors, plans. */
#if __has_include(<cudnn.h>) && !defined(Z3D_CUDA_SHIM)
#include "src/device/cuda/cudnn_graph.h"

#include <dlfcn.h>
#include <string.h>

#define LIBRARY "libcudnn.so.9"

z3d_status z3d_cudnn_load(z3d_cudnn *out) {
    void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
    bool whole = library != NULL;
    *out = (z3d_cudnn){0};
#define X(name)                                                                                    \
    if (whole) {                                                                                   \
        void *symbol = dlsym(library, #name);                                                      \
        memcpy(&out->name, &symbol, sizeof symbol);                                                \
        whole = symbol != NULL;                                                                    \
    }
    Z3D_CUDNN_FUNCTIONS(X)
#undef X
    if (whole) return Z3D_OK;
    z3d_status status = Z3D_ERROR(Z3D_ERR_UNSUPPORTED,
                                  "training.attention cudnn: %s; install cuDNN 9 "
                                  "(LD_LIBRARY_PATH), or leave training.attention at auto",
                                  dlerror());
    if (library) dlclose(library);
    return status;
}

z3d_status z3d_cudnn_check(const z3d_cudnn *cudnn, cudnnStatus_t code, const char *what) {
    char detail[512] = "";
    if (code == CUDNN_STATUS_SUCCESS) return Z3D_OK;
    cudnn->cudnnGetLastErrorString(detail, sizeof detail);
    return Z3D_ERROR(code == CUDNN_STATUS_NOT_SUPPORTED ? Z3D_ERR_UNSUPPORTED : Z3D_ERR_DEVICE,
                     "cuda device: cuDNN: %s: %s%s%s", what, cudnn->cudnnGetErrorString(code),
                     *detail ? ": " : "", detail);
}

/* ---- descriptors ---- */

static void keep(z3d_cudnn_plan *p, cudnnStatus_t code, const char *what) {
    p->status = z3d_cudnn_check(p->cudnn, code, what);
}

static cudnnBackendDescriptor_t make(z3d_cudnn_plan *p, cudnnBackendDescriptorType_t type) {
    cudnnBackendDescriptor_t made = NULL;
    if (p->status == Z3D_OK && p->count == Z3D_CUDNN_DESCRIPTORS)
        p->status = Z3D_ERROR(Z3D_ERR_INTERNAL, "a graph of more than %d descriptors",
                              (int)Z3D_CUDNN_DESCRIPTORS);
    if (p->status != Z3D_OK) return NULL;
    keep(p, p->cudnn->cudnnBackendCreateDescriptor(type, &made), "making a descriptor");
    if (p->status == Z3D_OK) p->all[p->count++] = made;
    return made;
}

static void set(z3d_cudnn_plan *p, cudnnBackendDescriptor_t of, cudnnBackendAttributeName_t name,
                cudnnBackendAttributeType_t type, int64_t count, const void *values) {
    if (p->status == Z3D_OK)
        keep(p, p->cudnn->cudnnBackendSetAttribute(of, name, type, count, values),
             "setting an attribute");
}

/* NULL is left out. */
static void set_descriptor(z3d_cudnn_plan *p, cudnnBackendDescriptor_t of,
                           cudnnBackendAttributeName_t name, cudnnBackendDescriptor_t value) {
    if (value) set(p, of, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value);
}

static void finalize(z3d_cudnn_plan *p, cudnnBackendDescriptor_t descriptor, const char *what) {
    if (p->status == Z3D_OK) keep(p, p->cudnn->cudnnBackendFinalize(descriptor), what);
}

static bool get(const z3d_cudnn_plan *p, cudnnBackendDescriptor_t of,
                cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t most,
                int64_t *count, void *values) {
    return p->status == Z3D_OK && p->cudnn->cudnnBackendGetAttribute(
                                      of, name, type, most, count, values) == CUDNN_STATUS_SUCCESS;
}

static void destroy_from(z3d_cudnn_plan *p, int first) {
    while (p->count > first) p->cudnn->cudnnBackendDestroyDescriptor(p->all[--p->count]);
}

z3d_status z3d_cudnn_describe_device(z3d_cudnn *cudnn, const char *json) {
    z3d_cudnn_plan none = {.cudnn = cudnn};
    cudnn->device = make(&none, CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
    set(&none, cudnn->device, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
        (int64_t)strlen(json), json);
    finalize(&none, cudnn->device, "a described device");
    return none.status;
}

/* ---- the graph ---- */

static cudnnBackendDescriptor_t make_tensor(z3d_cudnn_plan *p, const z3d_cudnn_tensor *from,
                                            int64_t id) {
    const int64_t alignment = 16;
    const bool inside = from->place == Z3D_CUDNN_INSIDE, number = from->place == Z3D_CUDNN_NUMBER;
    cudnnBackendDescriptor_t t = make(p, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    set(p, t, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &id);
    set(p, t, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &from->type);
    set(p, t, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, from->size);
    set(p, t, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, from->stride);
    set(p, t, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment);
    set(p, t, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &inside);
    set(p, t, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &number);
    finalize(p, t, "a tensor");
    p->given[id] = !inside;
    return t;
}

/* What cuDNN calls the parts of an operation, and of the settings that it has apart. 0: has none.
 */
static const struct naming {
    cudnnBackendDescriptorType_t operation, settings;
    cudnnBackendAttributeName_t has_settings, x, b, y, mask, mode, type;
    cudnnBackendAttributeType_t mode_type;
} names[] = {
    [Z3D_CUDNN_POINTWISE] = {CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR,
                             CUDNN_BACKEND_POINTWISE_DESCRIPTOR,
                             CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR,
                             CUDNN_ATTR_OPERATION_POINTWISE_XDESC,
                             CUDNN_ATTR_OPERATION_POINTWISE_BDESC,
                             CUDNN_ATTR_OPERATION_POINTWISE_YDESC,
                             CUDNN_ATTR_OPERATION_POINTWISE_TDESC, CUDNN_ATTR_POINTWISE_MODE,
                             CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_POINTWISE_MODE},
    [Z3D_CUDNN_MATMUL] = {CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR,
                          CUDNN_BACKEND_MATMUL_DESCRIPTOR, CUDNN_ATTR_OPERATION_MATMUL_DESC,
                          CUDNN_ATTR_OPERATION_MATMUL_ADESC, CUDNN_ATTR_OPERATION_MATMUL_BDESC,
                          CUDNN_ATTR_OPERATION_MATMUL_CDESC, .type = CUDNN_ATTR_MATMUL_COMP_TYPE},
    [Z3D_CUDNN_REDUCTION] =
        {CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR, CUDNN_BACKEND_REDUCTION_DESCRIPTOR,
         CUDNN_ATTR_OPERATION_REDUCTION_DESC, CUDNN_ATTR_OPERATION_REDUCTION_XDESC,
         .y = CUDNN_ATTR_OPERATION_REDUCTION_YDESC, .mode = CUDNN_ATTR_REDUCTION_OPERATOR,
         .type = CUDNN_ATTR_REDUCTION_COMP_TYPE, .mode_type = CUDNN_TYPE_REDUCTION_OPERATOR_TYPE},
    [Z3D_CUDNN_RESHAPE] = {CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR,
                           .x = CUDNN_ATTR_OPERATION_RESHAPE_XDESC,
                           .y = CUDNN_ATTR_OPERATION_RESHAPE_YDESC},
};

static cudnnBackendDescriptor_t make_settings(z3d_cudnn_plan *p, const z3d_cudnn_operation *o,
                                              cudnnDataType_t result) {
    const struct naming *n = &names[o->kind];
    const bool exact = result == CUDNN_DATA_INT32 || result == CUDNN_DATA_BOOLEAN;
    const cudnnDataType_t type = exact ? result : CUDNN_DATA_FLOAT;
    if (!n->has_settings) return NULL;
    cudnnBackendDescriptor_t made = make(p, n->settings);
    set(p, made, n->type, CUDNN_TYPE_DATA_TYPE, 1, &type);
    if (n->mode_type) set(p, made, n->mode, n->mode_type, 1, &o->mode);
    if (o->axis) set(p, made, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, 1, &o->axis);
    finalize(p, made, "an operation's settings");
    return made;
}

static void add_operation(z3d_cudnn_plan *p, const z3d_cudnn_operation *o, cudnnDataType_t result) {
    const struct naming *n = &names[o->kind];
    cudnnBackendDescriptor_t settings = make_settings(p, o, result), made = make(p, n->operation);
    set_descriptor(p, made, n->has_settings, settings);
    set_descriptor(p, made, n->x, p->tensor[o->x]);
    set_descriptor(p, made, n->b, p->tensor[o->b]);
    set_descriptor(p, made, n->mask, p->tensor[o->mask]);
    set_descriptor(p, made, n->y, p->tensor[o->y]);
    finalize(p, made, "an operation");
    if (p->status == Z3D_OK) p->operation[p->operations++] = made;
}

void z3d_cudnn_add(z3d_cudnn_plan *p, const z3d_cudnn_tensor *tensors,
                   const z3d_cudnn_operation *operations, size_t count) {
    for (const z3d_cudnn_operation *o = operations; o < operations + count; o++) {
        const int used[] = {o->x, o->b, o->mask, o->y};
        for (int i = 0; i < 4; i++)
            if (used[i] && !p->tensor[used[i]])
                p->tensor[used[i]] = make_tensor(p, &tensors[used[i]], used[i]);
        add_operation(p, o, tensors[o->y].type);
    }
}

/* ---- plans ---- */

static cudnnBackendDescriptor_t whole_graph(z3d_cudnn_plan *p) {
    cudnnBackendDescriptor_t all = make(p, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    if (p->cudnn->handle)
        set(p, all, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &p->cudnn->handle);
    set(p, all, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, p->operations,
        p->operation);
    finalize(p, all, "a graph");
    return all;
}

/* Whether the engine of a configuration gives the same bits each time. */
static bool repeats(z3d_cudnn_plan *p, cudnnBackendDescriptor_t config) {
    cudnnBackendNumericalNote_t notes[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
    int64_t count = 0;
    const int before = p->count;
    cudnnBackendDescriptor_t engine = make(p, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    bool same = get(p, config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                    &count, &engine) &&
                get(p, engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                    CUDNN_NUMERICAL_NOTE_TYPE_COUNT, &count, notes);
    for (int64_t i = 0; i < count && same; i++)
        same = notes[i] != CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC;
    destroy_from(p, before);
    return same;
}

/* For a device that is only described the choice of an engine is all: its kernel cannot be loaded.
 */
static void try_config(z3d_cudnn_plan *p, cudnnBackendDescriptor_t config) {
    int64_t count;
    const int before = p->count;
    if (!p->cudnn->handle) {
        p->plan = config;
        return;
    }
    cudnnBackendDescriptor_t plan = make(p, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    set(p, plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &p->cudnn->handle);
    set_descriptor(p, plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
    finalize(p, plan, "a plan");
    if (get(p, plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &count,
            &p->workspace_bytes)) {
        p->plan = plan;
        return;
    }
    destroy_from(p, before);
    p->status = Z3D_OK; /* the next one may do */
}

static void try_heuristic(z3d_cudnn_plan *p, cudnnBackendDescriptor_t graph,
                          cudnnBackendHeurMode_t mode, bool deterministic) {
    enum { MOST = 16 };
    cudnnBackendDescriptor_t configs[MOST];
    int64_t count = 0;
    cudnnBackendDescriptor_t heuristic = make(p, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    set_descriptor(p, heuristic, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
    set(p, heuristic, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    set_descriptor(p, heuristic, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, p->cudnn->device);
    finalize(p, heuristic, "asking for engines");
    for (int i = 0; i < MOST; i++) configs[i] = make(p, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    if (p->status == Z3D_OK)
        keep(p,
             p->cudnn->cudnnBackendGetAttribute(heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                                CUDNN_TYPE_BACKEND_DESCRIPTOR, MOST, &count,
                                                configs),
             "asking for engines");
    for (int64_t i = 0; i < count && i < MOST && p->status == Z3D_OK && !p->plan; i++)
        if (!deterministic || repeats(p, configs[i])) try_config(p, configs[i]);
}

z3d_status z3d_cudnn_make_plan(z3d_cudnn_plan *p, bool deterministic) {
    cudnnBackendDescriptor_t graph = whole_graph(p);
    try_heuristic(p, graph, CUDNN_HEUR_MODE_A, deterministic);
    if (!p->plan) try_heuristic(p, graph, CUDNN_HEUR_MODE_FALLBACK, deterministic);
    if (p->status == Z3D_OK && !p->plan)
        p->status = Z3D_ERROR(Z3D_ERR_UNSUPPORTED, "cuda device: cuDNN has no engine for it");
    if (p->status != Z3D_OK) z3d_cudnn_drop_plan(p);
    return p->status;
}

void z3d_cudnn_drop_plan(z3d_cudnn_plan *p) {
    destroy_from(p, 0);
    p->plan = NULL;
}

z3d_status z3d_cudnn_run(z3d_cudnn_plan *p, const void *const *at, void *workspace) {
    int64_t ids[Z3D_CUDNN_TENSORS], given = 0;
    const void *pointers[Z3D_CUDNN_TENSORS];
    for (int id = 0; id < Z3D_CUDNN_TENSORS; id++) {
        if (!p->given[id]) continue;
        ids[given] = id;
        pointers[given++] = at[id];
    }
    const int before = p->count;
    cudnnBackendDescriptor_t pack = make(p, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    set(p, pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, given, ids);
    set(p, pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, given, pointers);
    set(p, pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace);
    finalize(p, pack, "a plan's arguments");
    if (p->status == Z3D_OK)
        keep(p, p->cudnn->cudnnBackendExecute(p->cudnn->handle, p->plan, pack), "running");
    destroy_from(p, before);
    return p->status;
}

#endif
