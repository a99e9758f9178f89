/* Opens the training data of a configuration and counts one pass over it. */
#include "src/train/data.h"

z3d_dataset_config z3d_dataset_config_of(const z3d_config *config, const z3d_data_list *files) {
    return (z3d_dataset_config){.files = files,
                                .seq_length = config->model_seq_length,
                                .vocab_size = (int32_t)config->model_vocab_size,
                                .seed = (uint64_t)config->data_seed,
                                .documents = config->data_samples == Z3D_SAMPLES_DOCUMENTS,
                                .too_long = (z3d_too_long)config->data_too_long};
}

z3d_status z3d_train_data_open(const z3d_config *config, z3d_dataset **out) {
    z3d_dataset_config data = z3d_dataset_config_of(config, &config->data_train);
    data.whole_windows = true;
    if (config->data_train.count == 0)
        return Z3D_ERROR(Z3D_ERR_CONFIG,
                         "data.train is not set: it needs a token file; `zero3d data "
                         "tokenize` makes one from text");
    z3d_status status = z3d_dataset_open(&data, out);
    return status == Z3D_OK ? status : z3d_error_context(status, "data.train");
}

z3d_status z3d_train_data_count(z3d_config *config) {
    z3d_dataset *dataset;
    if (config->training_epochs == 0) return Z3D_OK;
    if (config->data_train.count > 1)
        return Z3D_ERROR(Z3D_ERR_CONFIG,
                         "training.epochs counts passes over one token file, but data.train has "
                         "%d, and a run takes samples from them by weight; make one file with "
                         "`zero3d data tokenize`, or set training.steps",
                         config->data_train.count);
    z3d_status status = z3d_train_data_open(config, &dataset);
    if (status != Z3D_OK)
        return z3d_error_context(status, "training.epochs needs the data to count its steps");
    z3d_config_set_epoch(config, z3d_dataset_samples(dataset));
    z3d_dataset_close(dataset);
    return Z3D_OK;
}
