/* cuDNN's backend API: loading, descriptors, plans. */
#if __has_include(<cudnn.h>) && !defined(Z3D_CUDA_SHIM)
#include "src/device/cuda/cudnn_graph.h"

#include <dlfcn.h>
#include <string.h>

#define LIBRARY "libcudnn.so.9"

z3d_status z3d_cudnn_load(z3d_cudnn *out) {
    *out = (z3d_cudnn){.library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL)};
    bool whole = out->library != NULL;
#define X(name)                                                                                    \
    if (whole) {                                                                                   \
        void *symbol = dlsym(out->library, #name);                                                 \
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
    if (out->library) dlclose(out->library);
    *out = (z3d_cudnn){0};
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

static cudnnBackendDescriptor_t make(z3d_cudnn_graph *g, cudnnBackendDescriptorType_t type) {
    cudnnBackendDescriptor_t made = NULL;
    if (g->status != Z3D_OK) return NULL;
    if (g->count == Z3D_CUDNN_DESCRIPTORS) {
        g->status = Z3D_ERROR(Z3D_ERR_INTERNAL, "a graph of more than %d descriptors",
                              (int)Z3D_CUDNN_DESCRIPTORS);
        return NULL;
    }
    g->status = z3d_cudnn_check(g->cudnn, g->cudnn->cudnnBackendCreateDescriptor(type, &made),
                                "making a descriptor");
    if (g->status == Z3D_OK) g->all[g->count++] = made;
    return made;
}

static void set(z3d_cudnn_graph *g, cudnnBackendDescriptor_t of, cudnnBackendAttributeName_t name,
                cudnnBackendAttributeType_t type, int64_t count, const void *values) {
    if (g->status == Z3D_OK)
        g->status = z3d_cudnn_check(
            g->cudnn, g->cudnn->cudnnBackendSetAttribute(of, name, type, count, values),
            "setting an attribute");
}

static void set_descriptor(z3d_cudnn_graph *g, cudnnBackendDescriptor_t of,
                           cudnnBackendAttributeName_t name, cudnnBackendDescriptor_t value) {
    if (value) set(g, of, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value);
}

static void finalize(z3d_cudnn_graph *g, cudnnBackendDescriptor_t descriptor, const char *what) {
    if (g->status == Z3D_OK)
        g->status = z3d_cudnn_check(g->cudnn, g->cudnn->cudnnBackendFinalize(descriptor), what);
}

static void destroy_from(z3d_cudnn_graph *g, int first) {
    while (g->count > first) g->cudnn->cudnnBackendDestroyDescriptor(g->all[--g->count]);
}

z3d_status z3d_cudnn_describe_device(z3d_cudnn *cudnn, const char *json) {
    z3d_cudnn_graph g = {.cudnn = cudnn};
    cudnnBackendDescriptor_t device = make(&g, CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
    set(&g, device, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
        (int64_t)strlen(json), json);
    finalize(&g, device, "a described device");
    if (g.status != Z3D_OK)
        destroy_from(&g, 0);
    else
        cudnn->device = device;
    return g.status;
}

/* ---- tensors ---- */

static cudnnBackendDescriptor_t tensor(z3d_cudnn_graph *g, int64_t id, cudnnDataType_t type,
                                       const z3d_cudnn_shape *shape, bool is_virtual,
                                       bool by_value) {
    int64_t alignment = 16;
    cudnnBackendDescriptor_t t = make(g, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    set(g, t, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &id);
    set(g, t, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
    set(g, t, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, shape->size);
    set(g, t, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, shape->stride);
    set(g, t, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment);
    set(g, t, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &is_virtual);
    set(g, t, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &by_value);
    finalize(g, t, "a tensor");
    return t;
}

cudnnBackendDescriptor_t z3d_cudnn_tensor(z3d_cudnn_graph *graph, int64_t id, cudnnDataType_t type,
                                          const z3d_cudnn_shape *shape, bool by_value) {
    return tensor(graph, id, type, shape, false, by_value);
}

cudnnBackendDescriptor_t z3d_cudnn_virtual(z3d_cudnn_graph *graph, cudnnDataType_t type,
                                           const z3d_cudnn_shape *shape) {
    return tensor(graph, 100 + graph->next_virtual++, type, shape, true, false);
}

/* ---- operations ---- */

typedef struct attribute {
    cudnnBackendAttributeName_t name;
    cudnnBackendDescriptor_t to; /* NULL: left out */
} attribute;

static void operation(z3d_cudnn_graph *g, cudnnBackendDescriptorType_t type,
                      const attribute *attributes, int count) {
    cudnnBackendDescriptor_t made = make(g, type);
    if (g->status == Z3D_OK && g->operations == Z3D_CUDNN_OPERATIONS)
        g->status = Z3D_ERROR(Z3D_ERR_INTERNAL, "a graph of more than %d operations",
                              (int)Z3D_CUDNN_OPERATIONS);
    for (int i = 0; i < count; i++) set_descriptor(g, made, attributes[i].name, attributes[i].to);
    finalize(g, made, "an operation");
    if (g->status == Z3D_OK) g->operation[g->operations++] = made;
}
#define OPERATION(g, name, ...)                                                                    \
    operation((g), CUDNN_BACKEND_OPERATION_##name##_DESCRIPTOR, (const attribute[]){__VA_ARGS__},  \
              (int)(sizeof((const attribute[]){__VA_ARGS__}) / sizeof(attribute)))

void z3d_cudnn_pointwise(z3d_cudnn_graph *g, cudnnPointwiseMode_t mode, cudnnDataType_t compute,
                         int64_t axis, cudnnBackendDescriptor_t x, cudnnBackendDescriptor_t b,
                         cudnnBackendDescriptor_t mask, cudnnBackendDescriptor_t y) {
    cudnnBackendDescriptor_t what = make(g, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    set(g, what, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
    set(g, what, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &compute);
    if (axis >= 0) set(g, what, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, 1, &axis);
    finalize(g, what, "a pointwise operation");
    OPERATION(g, POINTWISE, {CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, what},
              {CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x}, {CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b},
              {CUDNN_ATTR_OPERATION_POINTWISE_TDESC, mask},
              {CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y});
}

void z3d_cudnn_matmul(z3d_cudnn_graph *g, cudnnBackendDescriptor_t a, cudnnBackendDescriptor_t b,
                      cudnnBackendDescriptor_t c) {
    cudnnDataType_t compute = CUDNN_DATA_FLOAT;
    cudnnBackendDescriptor_t what = make(g, CUDNN_BACKEND_MATMUL_DESCRIPTOR);
    set(g, what, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &compute);
    finalize(g, what, "a product");
    OPERATION(g, MATMUL, {CUDNN_ATTR_OPERATION_MATMUL_DESC, what},
              {CUDNN_ATTR_OPERATION_MATMUL_ADESC, a}, {CUDNN_ATTR_OPERATION_MATMUL_BDESC, b},
              {CUDNN_ATTR_OPERATION_MATMUL_CDESC, c});
}

void z3d_cudnn_reduce(z3d_cudnn_graph *g, cudnnReduceTensorOp_t op, cudnnBackendDescriptor_t x,
                      cudnnBackendDescriptor_t y) {
    cudnnDataType_t compute = CUDNN_DATA_FLOAT;
    cudnnBackendDescriptor_t what = make(g, CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
    set(g, what, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &op);
    set(g, what, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &compute);
    finalize(g, what, "a reduction");
    OPERATION(g, REDUCTION, {CUDNN_ATTR_OPERATION_REDUCTION_DESC, what},
              {CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x}, {CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y});
}

void z3d_cudnn_reshape(z3d_cudnn_graph *g, cudnnBackendDescriptor_t x, cudnnBackendDescriptor_t y) {
    OPERATION(g, RESHAPE, {CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x},
              {CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y});
}

/* ---- plans ---- */

static cudnnBackendDescriptor_t whole_graph(z3d_cudnn_graph *g) {
    cudnnBackendDescriptor_t all = make(g, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    if (g->cudnn->handle)
        set(g, all, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &g->cudnn->handle);
    set(g, all, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, g->operations,
        g->operation);
    finalize(g, all, "a graph");
    return all;
}

/* Whether the engine of a configuration gives other bits each time. */
static bool repeats(z3d_cudnn_graph *g, cudnnBackendDescriptor_t config) {
    cudnnBackendNumericalNote_t notes[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
    int64_t count = 0;
    int before = g->count;
    cudnnBackendDescriptor_t engine = make(g, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    bool known = g->status == Z3D_OK &&
                 g->cudnn->cudnnBackendGetAttribute(config, CUDNN_ATTR_ENGINECFG_ENGINE,
                                                    CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count,
                                                    &engine) == CUDNN_STATUS_SUCCESS &&
                 g->cudnn->cudnnBackendGetAttribute(
                     engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                     CUDNN_NUMERICAL_NOTE_TYPE_COUNT, &count, notes) == CUDNN_STATUS_SUCCESS;
    for (int64_t i = 0; i < count && known; i++)
        known = notes[i] != CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC;
    destroy_from(g, before);
    return known;
}

/* Tries one engine configuration. For a device that is only described the choice of an engine is
 * all: its kernel cannot be loaded. */
static bool try_config(z3d_cudnn_plan *p, cudnnBackendDescriptor_t config) {
    z3d_cudnn_graph *g = &p->graph;
    int64_t count;
    int before = g->count;
    if (!g->cudnn->handle) {
        p->plan = config;
        return true;
    }
    cudnnBackendDescriptor_t plan = make(g, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    set(g, plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &g->cudnn->handle);
    set_descriptor(g, plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
    finalize(g, plan, "a plan");
    bool made = g->status == Z3D_OK &&
                g->cudnn->cudnnBackendGetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                                   CUDNN_TYPE_INT64, 1, &count,
                                                   &p->workspace_bytes) == CUDNN_STATUS_SUCCESS;
    if (made) {
        p->plan = plan;
        return true;
    }
    destroy_from(g, before);
    g->status = Z3D_OK; /* the next one may do */
    return false;
}

static void try_heuristic(z3d_cudnn_plan *p, cudnnBackendDescriptor_t all,
                          cudnnBackendHeurMode_t mode, bool deterministic) {
    enum { MOST = 16 };
    z3d_cudnn_graph *g = &p->graph;
    cudnnBackendDescriptor_t configs[MOST];
    int64_t count = 0;
    cudnnBackendDescriptor_t heuristic = make(g, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    set_descriptor(g, heuristic, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, all);
    set(g, heuristic, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    if (!g->cudnn->handle)
        set_descriptor(g, heuristic, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, g->cudnn->device);
    finalize(g, heuristic, "asking for engines");
    for (int i = 0; i < MOST; i++) configs[i] = make(g, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    if (g->status == Z3D_OK)
        g->status = z3d_cudnn_check(g->cudnn,
                                    g->cudnn->cudnnBackendGetAttribute(
                                        heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                        CUDNN_TYPE_BACKEND_DESCRIPTOR, MOST, &count, configs),
                                    "asking for engines");
    for (int64_t i = 0; i < count && i < MOST && g->status == Z3D_OK && !p->plan; i++)
        if (!deterministic || repeats(g, configs[i])) try_config(p, configs[i]);
}

z3d_status z3d_cudnn_make_plan(z3d_cudnn_plan *p, bool deterministic) {
    static const cudnnBackendHeurMode_t modes[] = {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK};
    z3d_cudnn_graph *g = &p->graph;
    cudnnBackendDescriptor_t all = whole_graph(g);
    for (size_t i = 0; i < 2 && g->status == Z3D_OK && !p->plan; i++)
        try_heuristic(p, all, modes[i], deterministic);
    if (g->status == Z3D_OK && !p->plan)
        g->status = Z3D_ERROR(Z3D_ERR_UNSUPPORTED, "cuda device: cuDNN has no engine for it");
    return g->status;
}

void z3d_cudnn_drop_plan(z3d_cudnn_plan *p) {
    destroy_from(&p->graph, 0);
    p->plan = NULL;
}

z3d_status z3d_cudnn_run(z3d_cudnn_plan *p, int count, const int64_t *ids, void *const *pointers,
                         void *workspace) {
    z3d_cudnn_graph *g = &p->graph;
    int before = g->count;
    cudnnBackendDescriptor_t pack = make(g, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    set(g, pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, count, ids);
    set(g, pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, count, pointers);
    set(g, pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace);
    finalize(g, pack, "a plan's arguments");
    if (g->status == Z3D_OK)
        g->status = z3d_cudnn_check(
            g->cudnn, g->cudnn->cudnnBackendExecute(g->cudnn->handle, p->plan, pack), "running");
    destroy_from(g, before);
    return g->status;
}

#endif
