/* The parameters of adapters, as PEFT has them. In a block's group they follow the block's own
 * parameters. */
#include "src/model/lora.h"
#include "src/model/transformer.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static int find_parameter(const z3d_parameter_group *group, const char *module, const char *end) {
    char name[Z3D_NAME];
    snprintf(name, sizeof name, "%s%s", module, end);
    for (int i = 0; i < group->num_parameters; i++)
        if (strcmp(group->parameter[i].name, name) == 0) return i;
    return -1;
}

/* Adds a parameter of an adapter. If it is replicated, but its weight is split or a rank reads only
 * a part of the weight, its gradient is partial. */
static z3d_parameter *add(z3d_parameter_group *group, const char *module, const char *end,
                          z3d_init init, double bound) {
    char name[Z3D_NAME];
    snprintf(name, sizeof name, "%s%s", module, end);
    z3d_parameter *p = z3d_add_parameter(group, name, -1, init, bound);
    p->weight_decay = p->adapter = p->partial_gradient = true;
    return p;
}

/* A is [rank, in], B [out, rank]; in and out are the weight's dimensions. */
static void add_adapter(z3d_parameter_group *group, const z3d_lora_module *module, int64_t rank) {
    const z3d_parameter w =
        group->parameter[find_parameter(group, module->name, ".weight")]; /* a copy */
    const int outputs = module->outputs, inputs = w.dims - outputs;
    double in = 1;
    for (int d = outputs; d < w.dims; d++) in *= (double)w.shape[d];
    z3d_parameter *a =
        add(group, module->name, Z3D_LORA_A, Z3D_INIT_UNIFORM, 1 / sqrt(in)); /* kaiming's */
    z3d_parameter *b = add(group, module->name, Z3D_LORA_B, Z3D_INIT_ZEROS, 0);
    a->dims = 1 + inputs;
    b->dims = outputs + 1;
    a->shape[0] = b->shape[outputs] = rank;
    memcpy(&a->shape[1], &w.shape[outputs], (size_t)inputs * sizeof *w.shape);
    memcpy(b->shape, w.shape, (size_t)outputs * sizeof *w.shape);
    if (w.split_dim >= outputs) a->split_dim = 1 + w.split_dim - outputs;
    if (w.split_dim < outputs) b->split_dim = w.split_dim;
}

void z3d_add_adapters(z3d_parameter_group *group, const z3d_lora *lora,
                      const z3d_lora_module *modules) {
    for (int i = 0; modules[i].name; i++)
        if (lora->rank > 0 && lora->targets >> i & 1) add_adapter(group, &modules[i], lora->rank);
}

int z3d_count_adapter_parameters(const z3d_lora_module *modules) {
    int count = 0;
    while (modules[count].name) count++;
    return 2 * count;
}

void z3d_find_adapters(const z3d_parameter_group *group, const z3d_lora_module *modules,
                       int place[Z3D_LORA_PLACES]) {
    for (int i = 0; modules[i].name; i++) {
        const int adapter = find_parameter(group, modules[i].name, Z3D_LORA_A);
        if (adapter > 0) place[find_parameter(group, modules[i].name, ".weight")] = adapter;
    }
}
