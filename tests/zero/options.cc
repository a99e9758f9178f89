#include "tests/zero/options.h"

extern "C" {
#include "src/base/param_groups.h"
}

namespace harness {

Options::Options() = default;
Options::Options(const Options &) = default;
Options &Options::operator=(const Options &) = default;
Options::~Options() = default;

int Options::ranks() const {
    return tensor * data * pipeline;
}

void Options::resolve(int ranks) {
    if (data == 0) data = ranks / tensor / pipeline;
    if (micro_batch > 0)
        global_batch = micro_batch * data * accumulation;
    else
        micro_batch = global_batch / (data * accumulation);
}

z3d_status Options::make_mesh(int rank, z3d_mesh *out) const {
    Z3D_TRY(z3d_mesh_make(tensor, data, pipeline, rank, out));
    out->size[Z3D_AXIS_DATA_INNER] = data / outer;
    out->size[Z3D_AXIS_DATA_OUTER] = outer;
    return z3d_mesh_check(out);
}

z3d_dtype Options::grad_dtype() const {
    return grad_fp32 ? Z3D_F32 : dtype;
}

z3d_status Options::create_llama(z3d_model **out) const {
    z3d_llama_config llama{};
    llama.num_layers = layers;
    llama.hidden_size = hidden;
    llama.num_heads = heads;
    llama.num_key_value_heads = 2;
    llama.head_dim = 10;
    llama.intermediate_size = 44;
    llama.seq_length = sequence;
    llama.vocab_size = vocabulary;
    llama.vocab_multiple = 8;
    llama.sliding_window = kind == QWEN ? 5 : 0;
    llama.attention_dropout = dropout;
    llama.init_std = 0.08;
    llama.rms_norm_eps = 1e-5;
    llama.rope.theta = 100;
    llama.attention_bias = llama.qk_norm = llama.tie_word_embeddings = kind == QWEN;
    llama.tensor_size = tensor;
    llama.sequence_parallel = sequence_parallel;
    llama.tiling = tiling;
    llama.packed = packed;
    llama.lora = {lora, 2, 0, ~0U};
    return z3d_llama_create(&llama, out);
}

z3d_status Options::create_model(z3d_model **out) const {
    if (config) {
        config->parallel_tensor_model_parallel_size = tensor;
        return z3d_model_from_config(config, out);
    }
    Z3D_TRY(describe_model(out));
    for (int g = 0; g < (*out)->num_groups; g++)
        for (int i = 0; i < (*out)->group[g].num_parameters; i++) {
            z3d_parameter_group &group = (*out)->group[g];
            const std::string name =
                z3d_parameter_home(&group, i) + std::string(".") + group.parameter[i].name;
            if (lora > 0) group.parameter[i].frozen = !group.parameter[i].adapter;
            for (const std::string &pattern : frozen)
                if (z3d_pattern_matches(pattern.c_str(), name.c_str()))
                    group.parameter[i].frozen = true;
        }
    return z3d_model_divide(*out);
}

z3d_status Options::describe_model(z3d_model **out) const {
    if (kind != GPT) return create_llama(out);
    z3d_gpt_config gpt{};
    gpt.num_layers = layers;
    gpt.hidden_size = hidden;
    gpt.num_heads = heads;
    gpt.seq_length = sequence;
    gpt.vocab_size = vocabulary;
    gpt.vocab_multiple = 8;
    gpt.hidden_dropout = gpt.attention_dropout = dropout;
    gpt.init_std = 0.08;
    gpt.tensor_size = tensor;
    gpt.sequence_parallel = sequence_parallel;
    gpt.tiling = tiling;
    gpt.packed = packed;
    gpt.lora = {lora, 2, 0, ~0U};
    Z3D_TRY(z3d_gpt_create(&gpt, out));
    if (!tied) untie(*out);
    return Z3D_OK;
}

void Options::untie(z3d_model *model) {
    const int last = model->num_groups++, room = model->group[0].room;
    const size_t groups = (size_t)model->num_groups, each = (size_t)room + 1;
    model->group = (z3d_parameter_group *)realloc(model->group, groups * sizeof *model->group);
    model->parameter =
        (z3d_parameter *)realloc(model->parameter, groups * each * sizeof *model->parameter);
    model->group[last] = model->group[0];
    for (size_t g = 0; g < groups; g++) model->group[g].parameter = &model->parameter[g * each];
    model->group[last].parameter[0] = model->group[0].parameter[0];
    strcpy(model->group[last].name, "lm_head");
    model->unit[model->num_units - 1].group[0] = last;
}

z3d_program_config Options::program_config() const {
    z3d_program_config c{};
    c.stage = stage;
    c.sharding = sharding;
    c.persistence = persistence;
    c.dtype = dtype;
    c.optimizer = optimizer;
    c.ema = ema;
    c.added_state = added_states.data();
    c.num_added_states = (int)added_states.size();
    c.grad_dtype = grad_dtype();
    c.wire = wire;
    c.micro_batch = micro_batch;
    c.first_sample = first_sample.empty() ? nullptr : first_sample.data();
    c.accumulation = accumulation;
    c.reduce_per_step = reduce_per_step >= 0 ? reduce_per_step == 1 : stage < 2;
    c.recompute = recompute;
    c.replay_full = replay_full;
    c.selective = selective;
    c.keep_activation = keep_activation;
    c.checkpoint_every = checkpoint_every;
    c.partition_activations = partition;
    c.checkpoint_space = checkpoint_space;
    c.overlap = overlap;
    c.reduce_bucket = c.gather_bucket = bucket;
    c.prefetch = prefetch;
    c.gather_ahead = gather_ahead;
    c.reuse_distance = reuse_distance;
    c.max_live = max_live;
    c.generate_batch = generate_batch;
    c.generate_positions = generate_positions;
    c.offload = tiers;
    c.inference = inference;
    c.pipeline.schedule = schedule;
    c.pipeline.chunks_per_stage = chunks;
    c.pipeline.file = file;
    c.pipeline.gather_per_step = gather_per_step;
    return c;
}

std::string name_of(const Options &o) {
    static const char *const kinds[] = {"", "llama ", "qwen "};
    return kinds[o.kind] + std::string("stage") + std::to_string(o.stage) + " tensor" +
           std::to_string(o.tensor) + " data" + std::to_string(o.data) +
           (o.pipeline == 1 ? ""
                            : " pipeline" + std::to_string(o.pipeline) + " chunks" +
                                  std::to_string(o.chunks) + " " + z3d_schedule_name(o.schedule)) +
           (o.tiling > 1 ? " tiling" + std::to_string(o.tiling) : "") +
           (o.gather_per_step ? " gathered_once" : "") + " accumulation" +
           std::to_string(o.accumulation) +
           (o.program_config().reduce_per_step ? " per_step" : " per_microbatch") +
           (o.recompute ? " recompute" : "") + (o.selective ? " selective" : "") +
           (o.keep_activation ? " kept" : "") + (o.replay_full ? " replay" : "") +
           (o.partition ? " P_a" : "") +
           (const char *const[]){"", " cpu", " nvme"}[o.checkpoint_space] +
           (o.wire == Z3D_F32    ? ""
            : o.wire == Z3D_BF16 ? " bf16_wire"
                                 : " fp16_wire") +
           (o.sequence_parallel ? " sequence" : "") + (o.packed ? " packed" : "") +
           (o.frozen.empty() ? "" : " frozen") + (o.lora ? " lora" : "") +
           (const char *const[]){"", " hierarchical", " hpz", " hybrid"}[o.sharding] +
           (o.checkpoint_every > 1 ? " segments" : "") + (o.overlap ? " overlap" : "") + " bucket" +
           std::to_string(o.bucket);
}

} // namespace harness
