/* Linked into every program that is built with sanitizers: their options, and what makes them
 * quick. */

int dlclose(void *library);
const char *__asan_default_options(void);
const char *__ubsan_default_options(void);
const char *__lsan_default_options(void);
const char *__lsan_default_suppressions(void);

/* Open MPI unloads its plugins at the end. Then every frame of a leak in one of them makes the leak
 * checker read the memory map anew, a second for each process: so they stay. */
int dlclose(void *library) {
    (void)library;
    return 0;
}

/* Libraries without frame pointers: only the slow unwinder finds the frames that the suppressions
 * name. Its time is by the frame: sixteen took half of all time of a test. */
const char *__asan_default_options(void) {
    return "detect_stack_use_after_return=1:strict_string_checks=1:fast_unwind_on_malloc=0:use_"
           "sigaltstack=0:"
           "malloc_context_size=6";
}

const char *__ubsan_default_options(void) {
    return "print_stacktrace=1";
}

const char *__lsan_default_options(void) {
    return "print_suppressions=0";
}

/* Memory that libraries take once and keep to the end of the process; everything else is a leak of
 * ours. */
const char *__lsan_default_suppressions(void) {
    return "leak:libopen-pal\nleak:libopen-rte\nleak:libmpi\nleak:libpmix\nleak:libhwloc\nleak:"
           "libevent\n"
           "leak:libdnnl\nleak:libgomp\nleak:mca_\nleak:libcuda\n";
}
