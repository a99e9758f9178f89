/* What is refused, with its exact place and with what would be right. */
#include "tests/base/config_harness.h"

/* The refusal of `text` begins with `start` ("line:column: ...") and holds `hint`. */
static void expect_refused(const std::string &text, const std::string &start,
                           const std::string &hint = "") {
    std::string message = refusal(text), wanted = "run.yaml:" + start;
    EXPECT_EQ(message.substr(0, wanted.size()), wanted) << text;
    EXPECT_NE(message.find(hint), std::string::npos) << message;
}

TEST(Refuse, Numbers) {
    const std::string range = "expected an integer from 1 to 1000000";
    expect_refused("model:\n  num_layers: 010\n",
                   "2:15: model.num_layers: '010' has a leading zero", "write 10");
    expect_refused("model: {num_layers: -1}", "1:21: model.num_layers: '-1' is out of range",
                   range);
    expect_refused("model: {num_layers: 0}", "1:21: model.num_layers: '0' is out of range", range);
    expect_refused("model: {num_layers: 1000001}", "1:21: model.num_layers: '1000001' is out",
                   range);
    expect_refused("model: {num_layers: 1.5}", "1:21: model.num_layers: '1.5' is not an integer",
                   range);
    expect_refused("model: {num_layers: 1e30}", "1:21: model.num_layers: '1e30' is beyond", range);
    expect_refused("model: {num_layers: 0x10}", "1:21: model.num_layers: '0x10' is not an integer",
                   range);
    expect_refused("model: {num_layers: twelve}", "1:21: model.num_layers: 'twelve' is no", range);
    expect_refused("model: {num_layers: true}", "1:21: model.num_layers: 'true' is no", range);
    expect_refused("model: {num_layers: \"12\"}", "1:21: model.num_layers: '12' is text",
                   "without quotes; " + range);
    expect_refused("model:\n  num_layers: |\n    12\n", "2:15: model.num_layers: '12 ' is text");
    expect_refused("model: {num_layers: }", "1:21: model.num_layers: the key has no value", range);
    expect_refused("model: {num_layers: auto}",
                   "1:21: model.num_layers: 'auto' is not supported here", range);
    expect_refused("model:\n  num_layers: 12\n   garbage\n",
                   "2:15: model.num_layers: the value continues on the next line");
    expect_refused("train_batch_size: -4\n", "1:19: train_batch_size: '-4' is out of range",
                   "or auto");
    expect_refused("data: {seed: -9223372036854775808}", "1:14: data.seed:", "of at least 0");
    expect_refused("model: {hidden_dropout: 1}", "1:25: model.hidden_dropout: '1' is out of range",
                   "expected a number of at least 0 and below 1");
    expect_refused("model: {init_method_std: 0}",
                   "1:26: model.init_method_std: '0' is out of range",
                   "expected a number above 0 and at most 10");
    expect_refused("gradient_clipping: .inf\n", "1:20: gradient_clipping: '.inf' is not a number");
    expect_refused("gradient_clipping: .nan\n", "1:20: gradient_clipping: '.nan' is not a number");
    expect_refused("gradient_clipping: 1e999\n", "1:20: gradient_clipping: '1e999' is too large");
    expect_refused("gradient_clipping: '1.0'\n", "1:20: gradient_clipping: '1.0' is text");
}

TEST(Refuse, BoolsAndChoices) {
    for (const char *word : {"maybe", "yes", "on", "1", "TRUE"}) {
        expect_refused(std::string("bf16: {enabled: ") + word + "}",
                       "1:17: bf16.enabled: '" + std::string(word) + "' is neither true nor false",
                       "expected true or false");
    }
    expect_refused("bf16: {enabled: 'true'}", "1:17: bf16.enabled: 'true' is text");
    expect_refused("bf16: {enabled: }", "1:17: bf16.enabled: the key has no value");
    expect_refused("scheduler: {type: WarmupCosine}",
                   "1:19: scheduler.type: 'WarmupCosine' is not supported", "use WarmupCosineLR");
    expect_refused("scheduler: {type: inverse}", "1:19: scheduler.type: 'inverse' is not supported",
                   "use inverse_sqrt");
    expect_refused("scheduler: {type: OneCycle}",
                   "1:19: scheduler.type: 'OneCycle' is not supported",
                   "use one of constant, WarmupLR, WarmupDecayLR, WarmupCosineLR, linear, cosine, "
                   "cosine_with_restarts, constant_with_warmup, inverse_sqrt, polynomial, "
                   "warmup_stable_decay");
    for (const char *name : {"Lamb", "adafactor", "Muon", "adamw_8bit", "adamw_bnb_8bit"})
        expect_refused("optimizer: {type: " + std::string(name) + "}",
                       "1:19: optimizer.type: '" + std::string(name) + "' is not built yet",
                       "use one of AdamW, SGD, Lion, Adam, Adagrad");
    expect_refused("optimizer: {type: Sophia}", "1:19: optimizer.type: 'Sophia' is not supported",
                   "use one of AdamW, SGD, Lion, Adam, Adagrad");
    expect_refused("training: {device: abacus}", "1:20: training.device: 'abacus' is not supported",
                   "use one of cpu, cuda");
}

TEST(Refuse, Shapes) {
    expect_refused("- a\n", "1:1: expected 'key: value' lines, found a list");
    expect_refused("text\n", "1:1: expected 'key: value' lines, found text");
    expect_refused("model: 3\n", "1:8: model is a section: expected keys below it, not a value");
    expect_refused("model: [3]\n", "1:8: model is a section: expected keys below it, not a list");
    expect_refused("fp16:\nbf16: {enabled: true}\n", "1:6: fp16 is a section", "not nothing");
    expect_refused("model: {num_layers: [3]}\n",
                   "1:21: model.num_layers: a list; expected an integer");
    expect_refused("model: {num_layers: {a: 3}}\n",
                   "1:21: model.num_layers: a mapping; expected an");
    const std::string betas = "optimizer: {params: {betas: ";
    expect_refused(betas + "0.9}}", "1:29: optimizer.params.betas: '0.9' is one value",
                   "expected a list of two numbers, each of at least 0 and below 1");
    expect_refused(betas + "[0.9]}}", "1:29: optimizer.params.betas: too few values");
    expect_refused(betas + "[0.9, 0.9, 0.9]}}", "1:40: optimizer.params.betas: a third value");
    expect_refused(betas + "[0.9, 1]}}", "1:35: optimizer.params.betas: '1' is out of range");
    expect_refused(betas + "[0.9, x]}}", "1:35: optimizer.params.betas: 'x' is not a number");
    expect_refused(betas + "[0.9, [1]]}}", "1:35: optimizer.params.betas: a list or mapping");
    expect_refused(betas + "{a: 1}}}", "1:29: optimizer.params.betas: a mapping");
    expect_refused("[a]: b\n", "1:1: a list or mapping as a key");
    expect_refused("? {a: b}\n: c\n", "1:3: a list or mapping as a key");
}

TEST(Refuse, DataFiles) {
    const std::string want = "expected a path, or a list of paths or {path: ..., weight: ...}";
    expect_refused("data: {train: {path: a}}", "1:15: data.train: a mapping", want);
    expect_refused("data: {train: [[a]]}", "1:16: data.train: a list in the list", want);
    expect_refused("data: {train: ''}", "1:15: data.train: the path is empty", want);
    expect_refused("data: {train: [a, null]}", "1:19: data.train: the path is empty", want);
    expect_refused("data: {train: [a, {weight: 2}]}", "1:19: data.train: a data file without path");
    expect_refused("data: {train: [{path: a, wieght: 2}]}", "1:26: data.train: unknown 'wieght'");
    expect_refused("data: {train: [{path: a, weight: 0}]}", "1:34: data.train: '0' is out of range",
                   "above 0");
    expect_refused("data: {train: [{path: a, weight: -1}]}", "1:34: data.train: '-1' is out");
    expect_refused("data: {train: [{path: a, path: b}]}", "1:32: data.train: path is given twice");
    expect_refused("data: {train: [{path: a, weight: 1, weight: 1}]}",
                   "1:45: data.train: weight is given twice");
    expect_refused("data: {train: [{path: [a]}]}", "1:23: data.train: path needs one value");
    expect_refused("data: {train: [{path: ''}]}", "1:23: data.train: the path is empty");
}

TEST(Refuse, UnknownKeysWithTheNearest) {
    expect_refused("model:\n  num_layer: 4\n", "2:3: unknown key model.num_layer",
                   "did you mean model.num_layers?");
    expect_refused("zero_optimisation: {stage: 2}\n", "1:1: unknown key zero_optimisation",
                   "did you mean zero_optimization?");
    expect_refused("zero_optimization: {stgae: 2}\n", "1:21: unknown key zero_optimization.stgae",
                   "did you mean zero_optimization.stage?");
    expect_refused("hidden_size: 768\n", "1:1: unknown key hidden_size",
                   "did you mean model.hidden_size?");
    expect_refused("optimizer: {lr: 1}\n", "1:13: unknown key optimizer.lr",
                   "did you mean optimizer.params.lr?");
    expect_refused("lora: {rank: 8}\n", "1:8: unknown key lora.rank", "did you mean lora.r?");
    expect_refused("lora: {alpha: 8}\n", "1:8: unknown key lora.alpha",
                   "did you mean lora.lora_alpha?");
    expect_refused("lora: {dropout: 0}\n", "1:8: unknown key", "did you mean lora.lora_dropout?");
    expect_refused("global_batch_size: 8\n", "1:1: unknown key", "did you mean train_batch_size?");
    expect_refused(
        "scheduler: {params: {warmup_min_lr: 1e-4}}\n", "1:22: scheduler.params.warmup_min_lr:",
        "a warm-up that does not begin at 0: not supported yet; leave it out or write 0");
    expect_refused("scheduler: {params: {warmup_type: log}}\n",
                   "1:22: scheduler.params.warmup_type:",
                   "a warm-up that is not linear: not supported yet; leave it out or write linear");
    expect_refused("clip-grad: 1\n", "1:1: unknown key", "did you mean gradient_clipping?");
    expect_refused("model: {n_layer: 8}\n", "1:9: unknown key", "did you mean model.num_layers?");
    expect_refused("model: {Num_Layers: 8}\n", "1:9: unknown key", "model.num_layers?");
    expect_refused("zero_optimization: {contigous_gradients: true}\n", "1:21: unknown key",
                   "zero_optimization.contiguous_gradients?");
    expect_refused("xyzzy: 1\n", "1:1: unknown key xyzzy; 'zero3d config' lists all keys");
    expect_refused("'': 1\n", "1:1: unknown key ;");
    expect_refused(std::string(500, 'k') + ": 1\n", "1:1: unknown key kkkk");
    expect_refused("model: {num_layers: 1}\nmodle: {}\n", "2:1: unknown key modle",
                   "did you mean model?");
    expect_refused("model.num_layers: 3\n", "1:1: model.num_layers: sections are nested",
                   "write 'model:' and below it 'num_layers: ...'");
}

TEST(Refuse, WhatIsSetTwice) {
    expect_refused("train_batch_size: 8\ntrain_batch_size: 16\n",
                   "2:1: train_batch_size is set twice", "first at run.yaml:1:1");
    expect_refused("model:\n  num_layers: 1\n  num_layers: 1\n",
                   "3:3: model.num_layers is set twice", "first at run.yaml:2:3");
    expect_refused("fp16: {}\nbf16: {}\nfp16: {}\n", "3:1: fp16 is set twice", "run.yaml:1:1");
    expect_refused("steps_per_print: 1\nsteps_per_print: 1\n", "2:1: steps_per_print is set twice");
}

TEST(Refuse, YamlThatWeDoNotRead) {
    expect_refused("model: &a {num_layers: 2}\n", "1:8: anchors (&a) are not supported",
                   "write the value itself");
    expect_refused("model: {num_layers: &n 2}\n", "1:21: anchors (&n) are not supported");
    expect_refused("data: {train: &n [a]}\n", "1:15: anchors (&n) are not supported");
    expect_refused("model: *a\n", "1:8: aliases (*a) are not supported");
    expect_refused("model: {num_layers: *n}\n", "1:21: aliases (*n) are not supported");
    expect_refused("steps_per_print: [1, *n]\n", "1:22: aliases (*n) are not supported");
    expect_refused("model:\n  <<: {num_layers: 2}\n", "2:3: merge keys (<<) are not supported");
    expect_refused("<<: {num_layers: 2}\n", "1:1: merge keys (<<) are not supported");
    expect_refused("model: {num_layers: !!int \"3\"}\n", "1:21: tags (tag:yaml.org,2002:int)");
    expect_refused("model: !x {num_layers: 3}\n", "1:8: tags (!x) are not supported");
    expect_refused("---\nmodel: {}\n---\nfp16: {}\n", "3:1: a second document");
    expect_refused("model: {}\n...\nfp16: {}\n", "3:1: ");
}

TEST(Refuse, WhatIsNoYaml) {
    expect_refused("model:\n\tnum_layers: 2\n", "2:1: a tab; indent YAML with spaces");
    expect_refused("model:\n  num_layers: 2\n\thidden_size: 2\n", "3:1: a tab");
    expect_refused("# \u00e9\u20ac\nmodel:\n\tnum_layers: 2\n",
                   "3:1: a tab"); /* marks count characters */
    expect_refused("model: {num_layers: 2\n", "2:1: not valid YAML:");
    expect_refused("model: [\n", "1:8: model is a section");
    expect_refused("model:\n  num_layers: 2\n    hidden_size: 3\n",
                   "2:15: model.num_layers:", "check the indentation");
    expect_refused("run:\n  dir: a\n    tensorboard: true\n", "3:16: 'key: value' is not possible",
                   "check the indentation");
    expect_refused("model:\n  num_layers: 2\n hidden_size: 3\n", "3:2: not valid YAML:");
    expect_refused("run: {dir: \"a\n", "2:1: not valid YAML:");
    expect_refused("run: {dir: \"\\q\"}\n", "1:13: not valid YAML:");
    expect_refused("%FOO\n", "1:5: ");
    expect_refused("run: {dir: @a}\n", "1:12: not valid YAML:");
}

TEST(Refuse, WhatIsNoText) {
    expect_refused(std::string("model:\n  num_l\0yers: 2\n", 22), "2:8: control character 0x00",
                   "is this a text file?");
    expect_refused("model:\n  # caf\xE9\n", "2:8: byte 0xe9 is not UTF-8", "is this a text file?");
    expect_refused("model: \xED\xA0\x80\n", "1:8: byte 0xed is not UTF-8");
    expect_refused("run: {dir: \"\x1b[31m\"}\n", "1:13: control character 0x1b");
    expect_refused("run: {dir: \"\\x1b[31m\"}\n", "1:12: control character 0x1b in a text");
    expect_refused("run: {dir: \"a\\0b\"}\n", "1:12: control character 0x00 in a text");
    expect_refused("run: {dir: a\xC2\x80}\n", "1:13: control characters are not allowed (0x80)");
    expect_refused(std::string("\xFF\xFEm\0o\0", 6), "1:1: byte 0xff is not UTF-8");
    expect_refused(std::string("\x7f"
                               "ELF\x02\x01\x01\0",
                               8),
                   "1:1: control character 0x7f");
    expect_refused(std::string((1 << 20) + 1, '#'), "1:1: 1048577 bytes are too many");
}

TEST(Refuse, BombsAtOnce) {
    expect_refused(std::string(1 << 20, '['), "1:1: expected 'key: value' lines, found a list");
    std::string braces;
    for (int i = 0; i < 100000; i++) braces += "{model: ";
    expect_refused(braces, "1:10: unknown key model.model");
    expect_refused("steps_per_print: " + std::string(1 << 19, '['), "1:82: nested deeper than 64");
    std::string flow = "steps_per_print: ";
    for (int i = 0; i < 100000; i++) flow += "{a: ";
    expect_refused(flow, "1:274: nested deeper than 64");
    std::string dashes = "steps_per_print:\n ";
    for (int i = 0; i < 100000; i++) dashes += "- ";
    expect_refused(dashes, "2:130: nested deeper than 64");
    std::string keys;
    for (int i = 0; i < 50000; i++) keys += "? ";
    expect_refused(keys, "1:3: a list or mapping as a key");
    std::string names;
    for (int i = 0; i < 1 << 18; i++) names += ",a";
    names[0] = '{';
    expect_refused(names, "1:2: unknown key a");
    names[0] = '[';
    expect_refused("steps_per_print: " + names, "1:262159: too many keys and values",
                   "at most 131072");
}

/* The mapping, its key and the list are nodes, too. */
TEST(Refuse, OneKeyOrValueTooMany) {
    std::string items = "steps_per_print: [0";
    for (int i = 1; i < (1 << 17) - 3; i++) items += ",0";
    Config most(items + "]");
    expect_refused(items + ",0]", "1:262159: too many keys and values");
}

TEST(Refuse, KeysOfLaterVersionsUnlessTheyAskForNothing) {
    expect_refused("zero_optimization: {zenflow: {topk_ratio: 0.1}}\n",
                   "1:21: zero_optimization.zenflow:", "not supported yet");
    Config unsaid("nebula: {persistent_storage_path: a}\n"); // enabled: false
    expect_refused("zero_optimization: {zero_quantized_weights: true}\n",
                   "1:21: zero_optimization.zero_quantized_weights:",
                   "not supported yet; leave it out or write false");
    Config off("activation_checkpointing: {partition_activations: false, cpu_checkpointing: false, "
               "number_checkpoints: auto, contiguous_memory_optimization: true}\n"
               "compile: {enabled: false, kwargs: [1, {a: b}]}\n");
}

TEST(Refuse, Overrides) {
    const struct {
        const char *assignment, *message;
    } cases[] = {
        {"", "'' is not an override; expected key.path=value"},
        {"model.num_layers", "'model.num_layers' is not an override; expected key.path=value"},
        {"=3", "'=3' is not an override; expected key.path=value"},
        {"model.num_layer=3", "override model.num_layer=3: unknown key model.num_layer; did you "
                              "mean model.num_layers?"},
        {"model.num_layers=", "override model.num_layers=: the key has no value; expected "
                              "an integer from 1 to 1000000"},
        {"model.num_layers=-1", "override model.num_layers=-1: '-1' is out of "
                                "range; expected an integer from 1 to 1000000"},
        {"model=3", "override model=3: model is a section: expected keys below it, not a value; "
                    "write model.num_layers=12"},
        {"model={num_layers: 1, num_layers: 2}",
         "override model={num_layers: 1, num_layers: 2}: model.num_layers is set twice; first at "
         "override model={num_layers: 1, num_layers: 2}"},
        {"checkpoint.keeps=2", "override checkpoint.keeps=2: unknown key checkpoint.keeps; did you "
                               "mean checkpoint.keep?"},
        {"fp16.enabled=[", nullptr},
        {"run.dir=a\x1b", nullptr},
        {"run.dir=a\xff", nullptr},
        {"data.train=[a, b", nullptr},
    };
    for (const auto &test : cases) {
        Config c;
        EXPECT_EQ(c.set(test.assignment), Z3D_ERR_CONFIG) << test.assignment;
        if (test.message) {
            EXPECT_STREQ(z3d_error_message(), test.message);
        } else {
            EXPECT_EQ(std::string(z3d_error_message()).find("override "), 0u);
        }
    }
}

int main(int argc, char **argv) {
    testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
}
