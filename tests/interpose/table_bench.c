/* What the calls of the shared table cost, in nanoseconds: written, wait (fast path), obtain, open-write-close. */
#include "../../native/interpose/table_sys.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char rules[4096];

static uint32_t make_rules(void) {
    struct ps_rules_head *head = (struct ps_rules_head *)rules;
    struct ps_rules_app *apps = (struct ps_rules_app *)(head + 1);
    struct ps_rules_entry *entries = (struct ps_rules_entry *)(apps + 2);
    char *strings = (char *)(entries + 3);
    memcpy(strings, "pcout*", 6);
    apps[0] = (struct ps_rules_app){.name_at = 0, .name_bytes = 1, .instances = 1};
    apps[1] = (struct ps_rules_app){.name_at = 1, .name_bytes = 1, .instances = 1, .before = 1};
    entries[0] = (struct ps_rules_entry){.kind = PS_OUTPUT, .app = 0, .pattern_at = 2, .pattern_bytes = 4};
    entries[1] = (struct ps_rules_entry){.kind = PS_FILE_RULE, .commit = PS_ON_CLOSE, .fire = PS_NO_UPDATE, .n = 1, .pattern_at = 2, .pattern_bytes = 4};
    entries[2] = (struct ps_rules_entry){.kind = PS_INPUT, .app = 1, .pattern_at = 2, .pattern_bytes = 4};
    uint32_t total = (uint32_t)(strings + 6 - rules);
    *head = (struct ps_rules_head){PS_RULES_MAGIC, PS_VERSION, total, 2, 3, 6, 0, 0};
    return total;
}

#define MEASURE(what, count, ...)                                                       \
    do {                                                                                \
        uint64_t before = ps_clock();                                                   \
        for (uint64_t i = 0; i < (count); i++) { __VA_ARGS__; }                         \
        printf("%-34s %8.1f ns\n", what, (double)(ps_clock() - before) / (double)(count)); \
    } while (0)

int main(void) {
    char path[64], name[64];
    const char *roots[] = {"/nowhere"};
    struct ps_record records[512];
    bool adopted;
    snprintf(path, sizeof path, "/dev/shm/penstock-bench-%d", (int)getpid());
    int error = ps_create(path, "bench", roots, 1, &(struct ps_capacities){0}, rules, make_rules(), 0);
    unlink(path);
    if (error) {
        fprintf(stderr, "%s: %s\n", path, strerror(error));
        return 1;
    }
    uint32_t process = ps_process_begin(0, -1, &adopted), slot = ps_obtain("out1", 4);
    uint32_t holding = ps_writer_opened(process, slot, 0, PS_OPENED_EMPTY);
    volatile uint64_t total = 0;
    MEASURE("written, in order", 20000000u, ps_written(slot, i * 4096, (i + 1) * 4096));
    MEASURE("wait_range, bytes are there", 20000000u, total += (uint64_t)ps_wait_range(slot, 1, i * 4096, i * 4096 + 4096, -1));
    MEASURE("wait_range of a producer", 20000000u, total += (uint64_t)ps_wait_range(slot, 0, UINT64_C(1) << 40, UINT64_C(1) << 41, -1));
    ps_writer_closed(process, holding);
    MEASURE("wait_range, committed", 20000000u, total += (uint64_t)ps_wait_range(slot, 1, UINT64_C(1) << 40, UINT64_C(1) << 41, -1));
    MEASURE("obtain, known name", 10000000u, total += ps_obtain("out1", 4));
    MEASURE("obtain, new name", 200000u, total += ps_obtain(name, (size_t)sprintf(name, "out/directory/of/files/%08llu.dat", (unsigned long long)i)); if (i % 512 == 0) ps_drain(records, 512));
    while (ps_drain(records, 512)) {}
    MEASURE("obtain, known among 200000", 200000u, total += ps_obtain(name, (size_t)sprintf(name, "out/directory/of/files/%08llu.dat", (unsigned long long)i * 7919 % 200000)));
    MEASURE("sprintf alone", 200000u, total += (uint64_t)sprintf(name, "out/directory/of/files/%08llu.dat", (unsigned long long)i * 7919 % 200000));
    MEASURE("first open, close of a small file", 200000u, slot = (uint32_t)i + 1; ps_writer_closed(process, ps_writer_opened(process, slot, 0, PS_OPENED_EMPTY)); if (i % 64 == 0) ps_drain(records, 512));
    uint32_t sparse = ps_obtain("out-sparse", 10);
    MEASURE("written, backwards", 100000u, ps_written(sparse, (100000 - i) * 8192, (100000 - i) * 8192 + 4096));
    return 0;
}
