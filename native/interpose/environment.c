/* What a child needs to be interposed as well: LD_PRELOAD and our variables, put back where a program left them out
 * (`env -i`, an envp of its own). Nothing here allocates: exec may follow a fork in a threaded program. */
#include "interpose.h"

#include <dlfcn.h>
#include <limits.h>
#include <string.h>

#define PRELOAD "LD_PRELOAD="

static const char *const app_names[] = {"PENSTOCK_STREAM_APP=", "CAPIO_APP_NAME="};
static const char table_name[] = "PENSTOCK_STREAM_TABLE=";
static char table[4200], app[4200], library[4200];
static size_t library_bytes;

static const char *value_of(const char *variable, const char *name) {
    size_t bytes = strlen(name);
    return strncmp(variable, name, bytes) ? NULL : variable + bytes;
}

static const char *app_of(const char *variable) {
    const char *value = value_of(variable, app_names[0]);
    return value ? value : value_of(variable, app_names[1]);
}

static void keep(char *where, size_t room, const char *variable) {
    size_t bytes = strlen(variable) + 1;
    if (bytes <= room) memcpy(where, variable, bytes);
}

void ps_environment_keep(char **environment) {
    for (char **at = environment; *at; at++) {
        if (value_of(*at, table_name)) keep(table, sizeof table, *at);
        if (value_of(*at, app_names[1]) && !app[0]) keep(app, sizeof app, *at);
        if (value_of(*at, app_names[0])) keep(app, sizeof app, *at);
    }
    Dl_info self;
    if (dladdr((void *)ps_environment_keep, &self) && self.dli_fname && self.dli_fname[0] == '/')
        keep(library, sizeof library, self.dli_fname);
    library_bytes = strlen(library);
}

const char *ps_environment_table(void) { return table[0] ? table + sizeof table_name - 1 : NULL; }

const char *ps_environment_app(void) { return app[0] ? app_of(app) : NULL; }

bool ps_environment_beside(const char *name, char *room) {
    const char *slash = strrchr(library, '/');
    size_t folder = slash ? (size_t)(slash + 1 - library) : 0, bytes = strlen(name) + 1;
    if (!slash || folder + bytes > PATH_MAX) return false;
    memcpy(room, library, folder);
    memcpy(room + folder, name, bytes);
    return true;
}

static bool supervised;

void ps_environment_supervised(void) { supervised = true; }

/* Whether the list of LD_PRELOAD, split at colons and spaces, has this library. */
static bool preloads_us(const char *list) {
    for (const char *at = list; (at = strstr(at, library)); at++) {
        char before = at == list ? ':' : at[-1], after = at[library_bytes];
        if ((before == ':' || before == ' ') && (after == ':' || after == ' ' || !after)) return true;
    }
    return false;
}

struct missing {
    size_t count;
    const char *preload; /* the value given, NULL */
    bool table, app, library;
};

static struct missing look(char *const *given) {
    struct missing m = {0, NULL, table[0] != 0, app[0] != 0, library[0] != 0};
    for (; given && given[m.count]; m.count++) {
        const char *preload = value_of(given[m.count], PRELOAD);
        if (preload && !m.preload) m.preload = preload;
        if (value_of(given[m.count], table_name)) m.table = false;
        if (app_of(given[m.count])) m.app = false;
    }
    if (m.preload && preloads_us(m.preload)) m.library = false;
    return m;
}

size_t ps_environment_room(char *const *given) {
    if (ps_state != PS_ACTIVE) return 1;
    struct missing m = look(given);
    size_t preload = sizeof PRELOAD + library_bytes + (m.preload ? strlen(m.preload) : 0) + 2;
    return (m.count + 4) * sizeof(char *) + preload;
}

/* The list of LD_PRELOAD without this library, which a loader of another libc would stumble over. */
static char *preload_of_others(const char *list, char *out) {
    char *text = out;
    for (size_t bytes; *list; list += bytes) {
        while (*list == ':' || *list == ' ') list++;
        bytes = strcspn(list, ": ");
        if (!bytes || (bytes == library_bytes && !memcmp(list, library, bytes))) continue;
        if (text != out) *text++ = ':';
        memcpy(text, list, bytes);
        text += bytes;
    }
    *text = 0;
    return text;
}

/* For a program under a supervisor, which needs no library, nor do those that it starts. */
static char *const *without_library(char *const *given, char **out, size_t count) {
    char *text = (char *)(out + count + 1);
    size_t n = 0;
    for (size_t i = 0; i < count; i++) {
        const char *preload = value_of(given[i], PRELOAD);
        if (preload && text == (char *)(out + count + 1)) { /* the first is what counts */
            char *begin = stpcpy(text, PRELOAD);
            if (preload_of_others(preload, begin) == begin) continue;
            out[n++] = text;
            text += strlen(text) + 1;
        } else {
            out[n++] = given[i];
        }
    }
    out[n] = NULL;
    return out;
}

char *const *ps_environment_for_child(char *const *given, void *room) {
    if (ps_state != PS_ACTIVE) return given;
    if (supervised) return without_library(given, room, look(given).count);
    struct missing m = look(given);
    if (!m.table && !m.app && !m.library) return given;
    char **out = room, *text = (char *)(out + m.count + 4);
    size_t n = 0;
    for (size_t i = 0; i < m.count; i++)
        if (!(m.library && value_of(given[i], PRELOAD))) out[n++] = given[i];
    if (m.table) out[n++] = table;
    if (m.app) out[n++] = app;
    if (m.library) {
        out[n++] = text;
        text = stpcpy(text, PRELOAD);
        if (m.preload && *m.preload) {
            text = stpcpy(text, m.preload);
            *text++ = ':';
        }
        memcpy(text, library, library_bytes + 1);
    }
    out[n] = NULL;
    return out;
}
