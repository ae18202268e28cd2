/* dlopen: a library that another step makes is awaited before the loader opens it, and so are those that it needs. */
#include "interpose.h"

#include <dlfcn.h>
#include <stdlib.h>

/* The name to load; another one, which does not exist, if it never will be whole: then dlerror() tells of that. */
static __attribute__((noinline)) const char *awaited(const char *path, int flags, void *caller) {
    static const char hopeless[] = "/a library that is not complete and never will be";
    if (!ps_active() || !path || !*path || flags & RTLD_NOLOAD) return path;
    const char *list = getenv("LD_LIBRARY_PATH");
    int kept = errno, error;
    while ((error = ps_await_library(path, list ? list : "", caller)) == EINTR) {}
    errno = kept;
    return error ? hopeless : path;
}

/* The last call is a jump, without a frame of ours: the loader looks in the RUNPATH of whoever called. */
PS_WRAPS void *dlopen(const char *path, int flags) {
    path = awaited(path, flags, __builtin_return_address(0));
    return REAL(dlopen)(path, flags);
}

PS_WRAPS void *dlmopen(Lmid_t namespace, const char *path, int flags) {
    path = awaited(path, flags, __builtin_return_address(0));
    return REAL(dlmopen)(namespace, path, flags);
}
