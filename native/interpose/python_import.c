/* CPython's import system lists and stats the folder of the script. That is no look at data: it must not wait for whoever
 * still writes there. (A file that a step names as its output, without wildcards, is data all the same: gate.c.) Asked
 * only when a call is about to wait; then the frame that makes the call says who it is. */
#include "interpose.h"

#include <dlfcn.h>
#include <string.h>

struct python { /* by name: this library is in programs without Python too */
    int (*is_initialized)(void);
    void *(*thread)(void);
    int (*ensure)(void);
    void (*release)(int);
    void *(*frame)(void);
    void *(*code)(void *);
    void *(*attribute)(void *, const char *);
    const char *(*text)(void *);
    void (*drop)(void *);
    void (*clear)(void);
};

static bool find(struct python *p) {
    void **calls[] = {(void **)&p->is_initialized, (void **)&p->thread, (void **)&p->ensure, (void **)&p->release,
                      (void **)&p->frame,          (void **)&p->code,   (void **)&p->attribute,
                      (void **)&p->text,           (void **)&p->drop,   (void **)&p->clear};
    static const char *const names[] = {"Py_IsInitialized",   "PyGILState_GetThisThreadState",
                                        "PyGILState_Ensure",  "PyGILState_Release",
                                        "PyEval_GetFrame",    "PyFrame_GetCode",
                                        "PyObject_GetAttrString", "PyUnicode_AsUTF8",
                                        "Py_DecRef",          "PyErr_Clear"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!(*calls[i] = dlsym(RTLD_DEFAULT, names[i]))) return false;
    return true;
}

static bool is_importer(const char *file) {
    return file && (!strncmp(file, "<frozen importlib.", 18) || !strcmp(file, "<frozen zipimport>") ||
                    !strcmp(file, "<frozen getpath>"));
}

bool ps_python_imports(void) {
    struct python p;
    if (!dlsym(RTLD_DEFAULT, "Py_IsInitialized") || !find(&p) || !p.is_initialized()) return false;
    if (!p.thread()) return false; /* a thread that Python does not know has no frame, and must not wait for its lock */
    int kept = errno, held = p.ensure();
    void *frame = p.frame(), *code = frame ? p.code(frame) : NULL;
    void *file = code ? p.attribute(code, "co_filename") : NULL;
    bool imports = file && is_importer(p.text(file));
    if (!file) p.clear();
    if (file) p.drop(file);
    if (code) p.drop(code);
    p.release(held);
    errno = kept;
    return imports;
}
