/* Plans of causal attention by cuDNN: the graphs that its fused engines support. Scores are scale x
 * Q K^T with minus infinity above the diagonal. Forward keeps log(sum of exp) per row; backward
 * recomputes the probabilities P from it:
 *
 *   dV = P^T dO,  dS = scale x P (dO V^T - rowsum(dO O)),  dK = dS^T Q,  dQ = dS K
 *
 * With grouped heads K and V have fewer heads; dK and dV are sums over the heads of a group. A
 * window is a second mask: minus infinity for keys that are `window` or more before the query.
 *
 * cuDNN sums dQ in fp32 with atomics, or (deterministic) keeps 16-bit dS of all scores in its
 * workspace, 2 x batch x heads x seq^2 bytes; so it gets the work in pieces. */
#if __has_include(<cudnn.h>) && !defined(Z3D_CUDA_SHIM)
#include "src/device/cuda/attention_plan.h"

#include <dlfcn.h>
#include <float.h>
#include <math.h>
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
    /* cuDNN has a category of codes for reasons why a case is not supported. */
    return Z3D_ERROR(CUDNN_STATUS_CATEGORY(code) == CUDNN_STATUS_NOT_SUPPORTED ? Z3D_ERR_UNSUPPORTED
                                                                               : Z3D_ERR_DEVICE,
                     "cuda device: cuDNN: %s: %s%s%s", what, cudnn->cudnnGetErrorString(code),
                     *detail ? ": " : "", detail);
}

/* ---- descriptors ---- */

static void keep(z3d_attention_plan *p, cudnnStatus_t code, const char *what) {
    p->status = z3d_cudnn_check(p->cudnn, code, what);
}

static cudnnBackendDescriptor_t make(z3d_attention_plan *p, cudnnBackendDescriptorType_t type) {
    cudnnBackendDescriptor_t made = NULL;
    if (p->status == Z3D_OK && p->count == Z3D_CUDNN_DESCRIPTORS)
        p->status = Z3D_ERROR(Z3D_ERR_INTERNAL, "a graph of more than %d descriptors",
                              (int)Z3D_CUDNN_DESCRIPTORS);
    if (p->status != Z3D_OK) return NULL;
    keep(p, p->cudnn->cudnnBackendCreateDescriptor(type, &made), "making a descriptor");
    if (p->status == Z3D_OK) p->all[p->count++] = made;
    return made;
}

static void set(z3d_attention_plan *p, cudnnBackendDescriptor_t of,
                cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count,
                const void *values) {
    if (p->status == Z3D_OK)
        keep(p, p->cudnn->cudnnBackendSetAttribute(of, name, type, count, values),
             "setting an attribute");
}

/* Sets a descriptor, unless it is NULL. */
static void set_descriptor(z3d_attention_plan *p, cudnnBackendDescriptor_t of,
                           cudnnBackendAttributeName_t name, cudnnBackendDescriptor_t value) {
    if (value) set(p, of, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value);
}

static void finalize(z3d_attention_plan *p, cudnnBackendDescriptor_t descriptor, const char *what) {
    if (p->status == Z3D_OK) keep(p, p->cudnn->cudnnBackendFinalize(descriptor), what);
}

static bool get(const z3d_attention_plan *p, cudnnBackendDescriptor_t of,
                cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t most,
                int64_t *count, void *values) {
    return p->status == Z3D_OK && p->cudnn->cudnnBackendGetAttribute(
                                      of, name, type, most, count, values) == CUDNN_STATUS_SUCCESS;
}

static void destroy_from(z3d_attention_plan *p, int first) {
    while (p->count > first) p->cudnn->cudnnBackendDestroyDescriptor(p->all[--p->count]);
}

z3d_status z3d_cudnn_describe_device(z3d_cudnn *cudnn, const char *json) {
    z3d_attention_plan none = {.cudnn = cudnn};
    cudnn->device = make(&none, CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
    set(&none, cudnn->device, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
        (int64_t)strlen(json), json);
    finalize(&none, cudnn->device, "a described device");
    return none.status;
}

/* ---- graphs ---- */

/* Tensors: operands of both directions; operands of backward; inner tensors. */
enum { Q = 1, K_T, V, O, STATISTICS, SCALE, MINUS_INFINITY, WINDOW };
enum { V_T = WINDOW + 1, D_O, D_Q, D_K, D_V, ONE, ROW_SUMS, D_Q_SUM };
enum { Q_K = D_Q_SUM + 1, SCALED, SHIFTED, ROW, COLUMN, SEEN, MASKED, EXP, MOST, SUM, LOG_SUM, P };
enum { K = P + 1, P_T, O_D_O, O_D_O_SUM, D_P, D_P_SHIFTED, D_SCALED, D_S, D_S_T };
enum { CAUSAL = D_S_T + 1, ROW_AGAIN, COLUMN_AGAIN, LAST_ROW, NEAR, D_K_ALL, D_V_ALL, TENSORS };
_Static_assert((int)TENSORS <= (int)Z3D_CUDNN_TENSORS, "more tensors than a plan has");

/* Shapes: of scores; of Q; of K and V; of O; of dQ alone; one number per row; one number. */
enum { SQUARE, SQUARE_T, QUERIES, KEYS, KEYS_T, PLAIN, DENSE, ROWS, NUMBER };

typedef enum place { INSIDE, GIVEN, ON_HOST } place;
#define FP32 CUDNN_DATA_FLOAT
#define OWN CUDNN_DATA_HALF /* stands for the model's type, also bf16 */

/* Tensors that are not listed have zeros here: inner squares of fp32. */
static const struct description {
    int shape;
    cudnnDataType_t type;
    place place;
} descriptions[TENSORS] = {
    [Q] = {QUERIES, OWN, GIVEN},
    [K] = {KEYS, OWN, INSIDE},
    [K_T] = {KEYS_T, OWN, GIVEN},
    [V] = {KEYS, OWN, GIVEN},
    [V_T] = {KEYS_T, OWN, GIVEN},
    [O] = {PLAIN, OWN, GIVEN},
    [D_O] = {PLAIN, OWN, GIVEN},
    [D_Q] = {QUERIES, OWN, GIVEN},
    [D_K] = {KEYS, OWN, GIVEN},
    [D_V] = {KEYS, OWN, GIVEN},
    [D_Q_SUM] = {DENSE, FP32, GIVEN},
    [STATISTICS] = {ROWS, FP32, GIVEN},
    [ROW_SUMS] = {ROWS, FP32, GIVEN},
    [SCALE] = {NUMBER, FP32, ON_HOST},
    [MINUS_INFINITY] = {NUMBER, FP32, ON_HOST},
    [ONE] = {NUMBER, FP32, ON_HOST},
    [WINDOW] = {NUMBER, FP32, ON_HOST},
    [ROW] = {SQUARE, CUDNN_DATA_INT32, INSIDE},
    [COLUMN] = {SQUARE, CUDNN_DATA_INT32, INSIDE},
    [SEEN] = {SQUARE, CUDNN_DATA_BOOLEAN, INSIDE},
    [MOST] = {ROWS, FP32, INSIDE},
    [SUM] = {ROWS, FP32, INSIDE},
    [LOG_SUM] = {ROWS, FP32, INSIDE},
    [O_D_O] = {PLAIN, FP32, INSIDE},
    [O_D_O_SUM] = {ROWS, FP32, INSIDE},
    [P] = {SQUARE, OWN, INSIDE},
    [P_T] = {SQUARE_T, OWN, INSIDE},
    [D_S_T] = {SQUARE_T, OWN, INSIDE},
    [ROW_AGAIN] = {SQUARE, CUDNN_DATA_INT32, INSIDE},
    [COLUMN_AGAIN] = {SQUARE, CUDNN_DATA_INT32, INSIDE},
    [NEAR] = {SQUARE, CUDNN_DATA_BOOLEAN, INSIDE},
    [D_K_ALL] = {DENSE, OWN, INSIDE},
    [D_V_ALL] = {DENSE, OWN, INSIDE},
};

static cudnnBackendDescriptor_t make_tensor(z3d_attention_plan *p, int64_t id) {
    const z3d_attention_shape *s = &p->shape;
    const struct description *from = &descriptions[id];
    const int64_t b = s->batch, h = s->heads, g = s->kv_heads, t = s->seq, d = s->head_dim;
    const int64_t row = s->row_heads * d, numbers = s->row_heads * t, alignment = 16;
    const int64_t q = s->q_stride, kv = s->kv_stride;
    const struct {
        int64_t size[4], stride[4];
    } shapes[] = {
        [SQUARE] = {{b, h, t, t}, {h * t * t, t * t, t, 1}},
        [SQUARE_T] = {{b, h, t, t}, {h * t * t, t * t, 1, t}},
        [QUERIES] = {{b, h, t, d}, {t * q, d, q, 1}},
        [KEYS] = {{b, g, t, d}, {t * kv, d, kv, 1}},
        [KEYS_T] = {{b, g, d, t}, {t * kv, d, 1, kv}},
        [PLAIN] = {{b, h, t, d}, {t * row, d, row, 1}},
        [DENSE] = {{b, h, t, d}, {h * t * d, t * d, d, 1}},
        [ROWS] = {{b, h, t, 1}, {numbers, t, 1, 1}},
        [NUMBER] = {{1, 1, 1, 1}, {1, 1, 1, 1}},
    };
    const bool inside = from->place == INSIDE, on_host = from->place == ON_HOST;
    const bool bf16 = from->type == OWN && s->dtype == Z3D_BF16;
    const cudnnDataType_t type = bf16 ? CUDNN_DATA_BFLOAT16 : from->type;
    cudnnBackendDescriptor_t made = make(p, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    set(p, made, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &id);
    set(p, made, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
    set(p, made, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, shapes[from->shape].size);
    set(p, made, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, shapes[from->shape].stride);
    set(p, made, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment);
    set(p, made, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &inside);
    set(p, made, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &on_host);
    finalize(p, made, "a tensor");
    return made;
}

typedef enum kind { POINTWISE, MATMUL, REDUCTION, RESHAPE } kind;

/* cuDNN's names for the parts of an operation and of its separate settings. 0: no such part. */
static const struct naming {
    cudnnBackendDescriptorType_t operation, settings;
    cudnnBackendAttributeName_t has_settings, x, b, y, mask, mode, type;
    cudnnBackendAttributeType_t mode_type;
} names[] = {
    [POINTWISE] = {CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, CUDNN_BACKEND_POINTWISE_DESCRIPTOR,
                   CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR,
                   CUDNN_ATTR_OPERATION_POINTWISE_XDESC, CUDNN_ATTR_OPERATION_POINTWISE_BDESC,
                   CUDNN_ATTR_OPERATION_POINTWISE_YDESC, CUDNN_ATTR_OPERATION_POINTWISE_TDESC,
                   CUDNN_ATTR_POINTWISE_MODE, CUDNN_ATTR_POINTWISE_MATH_PREC,
                   CUDNN_TYPE_POINTWISE_MODE},
    [MATMUL] = {CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, CUDNN_BACKEND_MATMUL_DESCRIPTOR,
                CUDNN_ATTR_OPERATION_MATMUL_DESC, CUDNN_ATTR_OPERATION_MATMUL_ADESC,
                CUDNN_ATTR_OPERATION_MATMUL_BDESC, CUDNN_ATTR_OPERATION_MATMUL_CDESC,
                .type = CUDNN_ATTR_MATMUL_COMP_TYPE},
    [REDUCTION] = {CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR, CUDNN_BACKEND_REDUCTION_DESCRIPTOR,
                   CUDNN_ATTR_OPERATION_REDUCTION_DESC, CUDNN_ATTR_OPERATION_REDUCTION_XDESC,
                   .y = CUDNN_ATTR_OPERATION_REDUCTION_YDESC, .mode = CUDNN_ATTR_REDUCTION_OPERATOR,
                   .type = CUDNN_ATTR_REDUCTION_COMP_TYPE,
                   .mode_type = CUDNN_TYPE_REDUCTION_OPERATOR_TYPE},
    [RESHAPE] = {CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR,
                 .x = CUDNN_ATTR_OPERATION_RESHAPE_XDESC, .y = CUDNN_ATTR_OPERATION_RESHAPE_YDESC},
};

/* y = x kind b, computed in fp32; indices and booleans in their own types. */
typedef struct operation {
    kind kind;
    int mode; /* cudnnPointwiseMode_t, cudnnReduceTensorOp_t */
    int x, b, y;
    int mask;     /* true selects x, false b */
    int64_t axis; /* of an index */
} operation;

#define POINTWISE(mode, x, b, y)                                                                   \
    { POINTWISE, CUDNN_POINTWISE_##mode, x, b, y, 0, 0 }
#define INDEX(axis, x, y)                                                                          \
    { POINTWISE, CUDNN_POINTWISE_GEN_INDEX, x, 0, y, 0, axis }
#define SELECT(mask, x, b, y)                                                                      \
    { POINTWISE, CUDNN_POINTWISE_BINARY_SELECT, x, b, y, mask, 0 }
#define REDUCE(mode, x, y)                                                                         \
    { REDUCTION, CUDNN_REDUCE_TENSOR_##mode, x, 0, y, 0, 0 }
#define MATMUL(x, b, y)                                                                            \
    { MATMUL, 0, x, b, y, 0, 0 }
#define RESHAPE(x, y)                                                                              \
    { RESHAPE, 0, x, 0, y, 0, 0 }

/* Each has its operands, then the result. */
static const operation forward[] = {
    MATMUL(Q, K_T, Q_K),
    POINTWISE(MUL, Q_K, SCALE, SCALED),
    INDEX(2, SCALED, ROW),
    INDEX(3, SCALED, COLUMN),
    POINTWISE(CMP_GE, ROW, COLUMN, SEEN),
    SELECT(SEEN, SCALED, MINUS_INFINITY, MASKED),
    REDUCE(MAX, MASKED, MOST),
    POINTWISE(SUB, MASKED, MOST, SHIFTED),
    POINTWISE(EXP, SHIFTED, 0, EXP),
    REDUCE(ADD, EXP, SUM),
    POINTWISE(LOG, SUM, 0, LOG_SUM),
    POINTWISE(ADD, MOST, LOG_SUM, STATISTICS),
    POINTWISE(DIV, EXP, SUM, P),
    MATMUL(P, V, O),
};

/* Transposes have the model's type, because products read them. The engines need rowsum(dO O) in
 * memory. */
static const operation backward[] = {
    POINTWISE(MUL, D_O, O, O_D_O),
    REDUCE(ADD, O_D_O, O_D_O_SUM),
    POINTWISE(MUL, O_D_O_SUM, ONE, ROW_SUMS),
    MATMUL(Q, K_T, Q_K),
    POINTWISE(MUL, Q_K, SCALE, SCALED),
    POINTWISE(SUB, SCALED, STATISTICS, SHIFTED),
    INDEX(2, SHIFTED, ROW),
    INDEX(3, SHIFTED, COLUMN),
    POINTWISE(CMP_GE, ROW, COLUMN, SEEN),
    SELECT(SEEN, SHIFTED, MINUS_INFINITY, MASKED),
    POINTWISE(EXP, MASKED, 0, EXP),
    RESHAPE(EXP, P_T),
    MATMUL(P_T, D_O, D_V),
    MATMUL(D_O, V_T, D_P),
    POINTWISE(SUB, D_P, ROW_SUMS, D_P_SHIFTED),
    POINTWISE(MUL, D_P_SHIFTED, EXP, D_SCALED),
    POINTWISE(MUL, D_SCALED, SCALE, D_S),
    RESHAPE(D_S, D_S_T),
    MATMUL(D_S_T, Q, D_K),
    RESHAPE(K_T, K),
};
/* A window masks the causal scores. */
static const operation window[] = {
    INDEX(2, CAUSAL, ROW_AGAIN),
    INDEX(3, CAUSAL, COLUMN_AGAIN),
    POINTWISE(ADD, COLUMN_AGAIN, WINDOW, LAST_ROW),
    POINTWISE(CMP_GT, LAST_ROW, ROW_AGAIN, NEAR),
    SELECT(NEAR, CAUSAL, MINUS_INFINITY, MASKED),
};
static const operation deterministic_end[] = {MATMUL(D_S, K, D_Q)};
static const operation atomic_end[] = {MATMUL(D_S, K, D_Q_SUM),
                                       POINTWISE(IDENTITY, D_Q_SUM, 0, D_Q)};

static cudnnBackendDescriptor_t make_settings(z3d_attention_plan *p, const operation *o) {
    const struct naming *n = &names[o->kind];
    const cudnnDataType_t result = descriptions[o->y].type;
    const bool exact = result == CUDNN_DATA_INT32 || result == CUDNN_DATA_BOOLEAN;
    const cudnnDataType_t type = exact ? result : FP32;
    if (!n->has_settings) return NULL;
    cudnnBackendDescriptor_t made = make(p, n->settings);
    set(p, made, n->type, CUDNN_TYPE_DATA_TYPE, 1, &type);
    if (n->mode_type) set(p, made, n->mode, n->mode_type, 1, &o->mode);
    if (o->axis) set(p, made, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, 1, &o->axis);
    finalize(p, made, "an operation's settings");
    return made;
}

static void set_tensor(z3d_attention_plan *p, cudnnBackendDescriptor_t of,
                       cudnnBackendAttributeName_t name, int id) {
    if (id && !p->tensor[id]) p->tensor[id] = make_tensor(p, id);
    if (id) set_descriptor(p, of, name, p->tensor[id]);
}

static void add_one(z3d_attention_plan *p, const operation *o) {
    const struct naming *n = &names[o->kind];
    cudnnBackendDescriptor_t settings = make_settings(p, o), made = make(p, n->operation);
    set_descriptor(p, made, n->has_settings, settings);
    set_tensor(p, made, n->x, o->x);
    set_tensor(p, made, n->b, o->b);
    set_tensor(p, made, n->mask, o->mask);
    set_tensor(p, made, n->y, o->y);
    finalize(p, made, "an operation");
    if (p->status == Z3D_OK) p->operation[p->operations++] = made;
}

/* The first tensor that an operation writes, if more operations lead to its result. */
static int result_of(const z3d_attention_shape *s, int y) {
    const bool grouped = s->kv_heads < s->heads;
    return y == MASKED && s->window > 0 ? CAUSAL
           : y == D_K && grouped        ? D_K_ALL
           : y == D_V && grouped        ? D_V_ALL
                                        : y;
}

static void add(z3d_attention_plan *p, const operation *operations, size_t count) {
    for (const operation *o = operations; o < operations + count; o++) {
        operation first = *o;
        first.y = result_of(&p->shape, o->y);
        add_one(p, &first);
        const operation sum = REDUCE(ADD, first.y, o->y);
        if (first.y == CAUSAL)
            for (size_t i = 0; i < sizeof window / sizeof *window; i++) add_one(p, &window[i]);
        else if (first.y != o->y)
            add_one(p, &sum);
    }
}
#define ADD(plan, operations) add(plan, operations, sizeof(operations) / sizeof *(operations))

static cudnnBackendDescriptor_t build_graph(z3d_attention_plan *p) {
    if (!p->shape.backward)
        ADD(p, forward);
    else
        ADD(p, backward);
    if (p->shape.backward && p->shape.deterministic)
        ADD(p, deterministic_end);
    else if (p->shape.backward)
        ADD(p, atomic_end);
    cudnnBackendDescriptor_t all = make(p, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    if (p->cudnn->handle)
        set(p, all, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &p->cudnn->handle);
    set(p, all, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, p->operations,
        p->operation);
    finalize(p, all, "a graph");
    return all;
}

/* ---- plans ---- */

/* Whether a configuration's engine always gives the same bits. */
static bool repeats(z3d_attention_plan *p, cudnnBackendDescriptor_t config) {
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

/* Takes a configuration if its plan can be made. A device that is only described cannot load
 * kernels, so there the first configuration counts. */
static void try_config(z3d_attention_plan *p, cudnnBackendDescriptor_t config) {
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
    p->status = Z3D_OK; /* try the next one */
}

static void try_heuristic(z3d_attention_plan *p, cudnnBackendDescriptor_t graph,
                          cudnnBackendHeurMode_t mode) {
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
        if (!p->shape.deterministic || repeats(p, configs[i])) try_config(p, configs[i]);
}

void z3d_attention_drop_plan(z3d_attention_plan *p) {
    destroy_from(p, 0);
    p->plan = NULL;
}

z3d_status z3d_attention_make_plan(const z3d_cudnn *cudnn, const z3d_attention_shape *shape,
                                   z3d_attention_plan *p) {
    *p = (z3d_attention_plan){.cudnn = cudnn, .shape = *shape};
    cudnnBackendDescriptor_t graph = build_graph(p);
    const z3d_status built = p->status;
    try_heuristic(p, graph, CUDNN_HEUR_MODE_A);
    if (built == Z3D_OK && p->status == Z3D_ERR_UNSUPPORTED) p->status = Z3D_OK; /* try again */
    if (!p->plan) try_heuristic(p, graph, CUDNN_HEUR_MODE_FALLBACK);
    if (p->status == Z3D_OK && !p->plan)
        p->status = Z3D_ERROR(Z3D_ERR_UNSUPPORTED, "cuda device: cuDNN has no engine for it");
    if (p->status == Z3D_OK) return Z3D_OK;
    z3d_attention_drop_plan(p);
    return z3d_error_context(
        p->status,
        "attention %s of %s, batch %lld, %lld tokens, %lld heads of %lld, %lld of keys, window "
        "%lld",
        shape->backward ? "backward" : "forward", z3d_dtype_name((z3d_dtype)shape->dtype),
        (long long)shape->batch, (long long)shape->seq, (long long)shape->heads,
        (long long)shape->head_dim, (long long)shape->kv_heads, (long long)shape->window);
}

/* The largest divisor of n that is at most `most`, or 1. */
static int64_t divisor(int64_t n, int64_t most) {
    int64_t d = most < n ? most : n;
    while (d > 1 && n % d != 0) d--;
    return d > 1 ? d : 1;
}

z3d_attention_shape z3d_attention_piece(const z3d_attention_shape *shape) {
    const int64_t heads = ((int64_t)1 << 30) / (2 * shape->seq * shape->seq); /* in 1 GiB */
    const int64_t group = shape->heads / shape->kv_heads;
    z3d_attention_shape piece = *shape;
    if (!shape->backward || !shape->deterministic || shape->seq % 4 != 0)
        return piece; /* pieces need aligned rows of fp32 */
    piece.batch = divisor(shape->batch, heads / shape->heads);
    piece.kv_heads = divisor(shape->kv_heads, heads / group);
    piece.heads = piece.kv_heads * group;
    return piece;
}

/* ---- running ---- */

z3d_status z3d_attention_run(z3d_attention_plan *p, const z3d_attention *piece,
                             const void *row_sums, const void *dq_sum, void *workspace) {
    /* The value above the diagonal; older engines need a finite number. */
    const float masked = p->cudnn->cudnnGetVersion() < 91000 ? -FLT_MAX : -INFINITY;
    const float scale = 1 / sqrtf((float)p->shape.head_dim), one = 1;
    const float window_size = (float)p->shape.window;
    const void *const at[TENSORS] = {
        [Q] = piece->q,         [K_T] = piece->k,           [V] = piece->v,
        [V_T] = piece->v,       [O] = piece->out,           [STATISTICS] = piece->log_sum_exp,
        [D_O] = piece->dout,    [D_Q] = piece->dq,          [D_K] = piece->dk,
        [D_V] = piece->dv,      [ROW_SUMS] = row_sums,      [D_Q_SUM] = dq_sum,
        [SCALE] = &scale,       [MINUS_INFINITY] = &masked, [ONE] = &one,
        [WINDOW] = &window_size};
    int64_t ids[TENSORS], given = 0;
    const void *pointers[TENSORS];
    for (int id = 1; id < TENSORS; id++) {
        if (!p->tensor[id] || descriptions[id].place == INSIDE) continue;
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
