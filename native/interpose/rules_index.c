/* An index of the rules, so that a workflow with thousands of plain names costs no more than one with few.
 *
 * Entries are *simple* (a name without wildcards, or one followed by "/" and a star) or *general*. General ones are
 * tried one by one. Simple ones lie sorted by their name: those that speak of a name are found at the name itself and
 * at each directory above it, and those that lie below it stand side by side. Made once, by ps_create.
 */
#include "table_sys.h"

#include <stdlib.h>
#include <string.h>

static const struct ps_rules_head *blob; /* of the sort; one server makes one table at a time */

static const struct ps_rules_entry *entry_at(const struct ps_rules_head *head, uint32_t number) {
    const struct ps_rules_app *apps = (const struct ps_rules_app *)(head + 1);
    return (const struct ps_rules_entry *)(apps + head->n_apps) + number;
}

static const char *pattern_of(const struct ps_rules_head *head, const struct ps_rules_entry *entry) {
    return (const char *)entry_at(head, head->n_entries) + entry->pattern_at;
}

/* Whether it is a name and all below it. */
static bool is_tree(const char *pattern, size_t bytes) {
    return bytes > 2 && pattern[bytes - 1] == '*' && pattern[bytes - 2] == '/';
}

static size_t simple_bytes(const char *pattern, size_t bytes) { return is_tree(pattern, bytes) ? bytes - 2 : bytes; }

static bool is_simple(const char *pattern, size_t bytes) {
    size_t name = simple_bytes(pattern, bytes);
    return name && !memchr(pattern, '*', name) && !memchr(pattern, '?', name);
}

static int compare_names(const char *one, size_t one_bytes, const char *other, size_t other_bytes) {
    int order = memcmp(one, other, one_bytes < other_bytes ? one_bytes : other_bytes);
    return order ? order : (one_bytes > other_bytes) - (one_bytes < other_bytes);
}

static int compare_entries(const void *one, const void *other) {
    uint32_t first = *(const uint32_t *)one, second = *(const uint32_t *)other;
    const struct ps_rules_entry *a = entry_at(blob, first), *b = entry_at(blob, second);
    const char *of_a = pattern_of(blob, a), *of_b = pattern_of(blob, b);
    int order = compare_names(of_a, simple_bytes(of_a, a->pattern_bytes), of_b, simple_bytes(of_b, b->pattern_bytes));
    return order ? order : (first > second) - (first < second);
}

uint64_t ps_index_bytes(const void *rules) {
    return sizeof(struct ps_rules_index) + (uint64_t)((const struct ps_rules_head *)rules)->n_entries * 4;
}

void ps_index_rules(const void *rules, struct ps_rules_index *index) {
    const struct ps_rules_head *head = rules;
    uint32_t general = 0, simple = head->n_entries;
    for (uint32_t number = 0; number < head->n_entries; number++) {
        const struct ps_rules_entry *entry = entry_at(head, number);
        if (is_simple(pattern_of(head, entry), entry->pattern_bytes))
            index->entries[--simple] = number;
        else
            index->entries[general++] = number;
    }
    index->general = general;
    index->simple = head->n_entries - general;
    blob = head;
    qsort(index->entries + general, index->simple, sizeof index->entries[0], compare_entries);
}

/* ---- finding ----------------------------------------------------------------------------------------------------- */

struct search {
    const struct ps_rules_head *head;
    const uint32_t *sorted;
    uint32_t count;
    ps_finding finding;
    struct ps_class *out;
};

/* The first place whose name is not before this one. */
static uint32_t place_of(const struct search *s, const char *name, size_t bytes) {
    uint32_t low = 0, high = s->count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        const struct ps_rules_entry *entry = entry_at(s->head, s->sorted[middle]);
        const char *pattern = pattern_of(s->head, entry);
        if (compare_names(pattern, simple_bytes(pattern, entry->pattern_bytes), name, bytes) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Entries of exactly this name: of the one asked for, or of a directory above it. */
static void find_at(const struct search *s, const char *name, size_t bytes, bool itself) {
    for (uint32_t place = place_of(s, name, bytes); place < s->count; place++) {
        const struct ps_rules_entry *entry = entry_at(s->head, s->sorted[place]);
        const char *pattern = pattern_of(s->head, entry);
        size_t length = simple_bytes(pattern, entry->pattern_bytes);
        if (length != bytes || memcmp(pattern, name, bytes) != 0) return;
        bool tree = is_tree(pattern, entry->pattern_bytes);
        s->finding(s->out, s->sorted[place], entry, itself ? !tree : tree, tree);
    }
}

/* Entries of names below this directory. */
static void find_below(const struct search *s, const char *name, size_t bytes) {
    char start[PS_NAME_MAX + 1];
    bool root = bytes == 1 && name[0] == '.';
    size_t length = root ? 0 : bytes + 1;
    memcpy(start, name, bytes);
    start[bytes] = '/';
    for (uint32_t place = place_of(s, start, length); place < s->count; place++) {
        const struct ps_rules_entry *entry = entry_at(s->head, s->sorted[place]);
        const char *pattern = pattern_of(s->head, entry);
        if (simple_bytes(pattern, entry->pattern_bytes) < length || memcmp(pattern, start, length) != 0) return;
        s->finding(s->out, s->sorted[place], entry, false, true);
    }
}

void ps_find_simple(const void *rules, const struct ps_rules_index *index, const char *name, size_t bytes,
                    ps_finding finding, struct ps_class *out) {
    struct search s = {rules, index->entries + index->general, index->simple, finding, out};
    if (!s.count || bytes > PS_NAME_MAX) return;
    find_at(&s, name, bytes, true);
    for (size_t i = 1; i < bytes; i++)
        if (name[i] == '/') find_at(&s, name, i, false);
    find_below(&s, name, bytes);
}
