/* What a process that is about to execute a program without the library, and the supervisor of that program, share.
 *
 *     preloaded process                       penstock_supervisor
 *     ───────────────────────────────────────┬──────────────────────────────────────────────
 *     starts it, detached ───────────────────▶ maps the table
 *     ◀──────────────────────────── its pid ── says that it is there
 *     installs the filter on itself           │
 *     its listener ──────────────────────────▶ takes over what the process holds in the table
 *     ◀─────────────────────────────── ready ──
 *     execve ────────────────────────────────▶ every call of the filter, from now on
 */
#ifndef PENSTOCK_SUPERVISE_H
#define PENSTOCK_SUPERVISE_H

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdbool.h>

#ifndef SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV /* Linux 5.19 */
#define SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV (1UL << 5)
#endif

#define PS_SUPERVISOR "penstock_supervisor" /* beside the library */

/* prctl(PS_ASK_SUPERVISED) fails with EALREADY under a supervisor, told by the filter itself, and with EINVAL elsewhere. */
#define PS_ASK_SUPERVISED 0x50535450

extern const struct sock_fprog ps_filter __attribute__((visibility("hidden")));

/* The filter on this thread, and on what it executes: its listener, or -errno. Not revocable. */
int ps_filter_install(void) __attribute__((visibility("hidden")));

bool ps_hand_over(int socket, int listener) __attribute__((visibility("hidden"))); /* true: the other side has it */

#endif
