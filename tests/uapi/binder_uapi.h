// The Binder uapi: the system's header, and what later kernels have added to it.
#ifndef BINDER_UAPI_H
#define BINDER_UAPI_H

#include <linux/android/binder.h>

#ifndef FLAT_BINDER_FLAG_INHERIT_RT
#define FLAT_BINDER_FLAG_INHERIT_RT 0x800
#endif

// The header defines these as enumerators, which #ifdef cannot see. Macros of the same value are
// harmless once the header has been read.
struct frozen_state_info {
	__u64 cookie;
	__u32 is_frozen;
	__u32 reserved;
};

#define BR_TRANSACTION_PENDING_FROZEN _IO('r', 20)
#define BR_FROZEN_BINDER _IOR('r', 21, struct frozen_state_info)
#define BR_CLEAR_FREEZE_NOTIFICATION_DONE _IOR('r', 22, binder_uintptr_t)

#define BC_REQUEST_FREEZE_NOTIFICATION _IOW('c', 19, struct binder_handle_cookie)
#define BC_CLEAR_FREEZE_NOTIFICATION _IOW('c', 20, struct binder_handle_cookie)
#define BC_FREEZE_NOTIFICATION_DONE _IOW('c', 21, binder_uintptr_t)

#endif
