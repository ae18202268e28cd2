/* The real calls: the next definition of each wrapped symbol after ours, libc's or that of another preloaded library. */
#include "interpose.h"

#include <dlfcn.h>

struct ps_real_calls ps_real_calls;

/* A libc without the symbol has no caller of it either, unless it was looked up by name. */
static long absent(void) {
    errno = ENOSYS;
    return -1;
}

void ps_resolve_calls(void) {
    void *found;
#define CALL(result, name, parameters)                                   \
    found = dlsym(RTLD_NEXT, #name);                                     \
    ps_real_calls.name = found ? (__typeof__(ps_real_calls.name))found   \
                               : (__typeof__(ps_real_calls.name))(void *)absent;
#include "calls.def"
#undef CALL
}
