# Fuzzers (clang): tests/fuzz/NAME.c becomes bin/fuzz_NAME, linked only with what it tests, so it
# builds in seconds. The tested code is compiled with
# ZERO3D_SANITIZE=address,undefined,fuzzer-no-link.
set(ZERO3D_FUZZ_SOURCES_config "")
set(ZERO3D_FUZZ_SOURCES_tokens src/train/data/map_file.c src/train/data/token_file.c src/train/data/megatron_file.c)
set(ZERO3D_FUZZ_SOURCES_schedule parallel/schedule/check.c parallel/schedule/file.c parallel/schedule/schedule.c parallel/schedule/times.c)
set(ZERO3D_FUZZ_SOURCES_gpt2 src/train/text/added_tokens.c src/train/text/bpe_tokenizer.c src/train/text/bpe_vocabulary.c src/train/text/bpe_words.c src/train/text/gpt2_files.c
  src/train/text/gpt2_words.c src/train/text/normalize.c src/train/text/special_tokens.c src/train/text/split.c src/train/text/input.c src/train/text/text_files.c src/train/text/tokenizer.c src/train/text/tokenizer_json.c src/train/text/tokenizer_parts.c)
set(ZERO3D_FUZZ_SOURCES_huggingface ${ZERO3D_FUZZ_SOURCES_gpt2})
set(ZERO3D_FUZZ_SOURCES_prompts src/train/generation/prompts.c src/train/text/json_lines.c ${ZERO3D_FUZZ_SOURCES_gpt2})
set(ZERO3D_FUZZ_SOURCES_instructions src/train/text/chat_encode.c src/train/text/chat_find.c src/train/text/chat_kinds.c src/train/text/instruction.c src/train/text/json_lines.c ${ZERO3D_FUZZ_SOURCES_gpt2})
set(ZERO3D_FUZZ_SOURCES_texts src/train/text/input.c src/train/text/json_lines.c src/train/text/json_look.c src/train/text/text_files.c)
set(ZERO3D_FUZZ_SOURCES_trace src/train/trace/file.c src/train/trace/merge.c src/train/trace/ranks.c src/train/trace/step.c src/plan/timeline_picture.c
  parallel/interface/mesh.c parallel/schedule/schedule.c src/model/unit.c zero/program/layout.c zero/program/opcodes.c zero/program/states.c)
set(ZERO3D_FUZZ_SOURCES_history src/train/history/facts.c src/train/history/page.c src/train/history/read.c)
set(ZERO3D_FUZZ_SOURCES_replay src/train/replay/file.c src/train/replay/tape.c)
set(ZERO3D_FUZZ_SOURCES_checkpoint checkpoint/prefetch.c checkpoint/folder.c checkpoint/format.c checkpoint/io.c checkpoint/manifest.c checkpoint/reader.c)
set(ZERO3D_FUZZ_SOURCES_interop checkpoint/prefetch.c checkpoint/export.c checkpoint/export_safetensors.c checkpoint/export_tensor.c checkpoint/interop.c checkpoint/interop_open.c checkpoint/folder.c checkpoint/format.c checkpoint/huggingface.c checkpoint/io.c
  checkpoint/llmc.c checkpoint/manifest.c checkpoint/reader.c checkpoint/safetensors.c checkpoint/tokenizer_files.c src/model/gpt/flops.c src/model/gpt/gpt.c src/model/gpt/interop.c
  src/model/gpt/limits.c src/model/gpt/type.c src/model/describe.c src/model/limits.c src/model/interop.c src/model/llama/flops.c src/model/llama/interop.c src/model/llama/llama.c src/model/llama/limits.c src/model/llama/type.c src/model/registry.c src/model/unit.c)
file(GLOB fuzzers CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/fuzz/*.c)
foreach(source ${fuzzers})
  get_filename_component(name ${source} NAME_WE)
  add_executable(fuzz_${name} ${source} ${ZERO3D_FUZZ_SOURCES_${name}} $<TARGET_OBJECTS:zero3d_base>
    ${ZERO3D_PROGRAM_OBJECTS})
  target_link_libraries(fuzz_${name} PRIVATE zero3d_flags ${ZERO3D_EXTERNAL})
  target_link_options(fuzz_${name} PRIVATE -fsanitize=fuzzer)
endforeach()
