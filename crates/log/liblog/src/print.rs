//! The variadic functions under their C names. Each jumps to its body in `print.c`, with all
//! arguments where the caller has put them.

use std::arch::naked_asm;

macro_rules! jumps {
    ($($name:ident => $body:ident),+) => {
        unsafe extern "C" {
            $(fn $body();)+
        }
        $(
            /// See `<android/log.h>`.
            ///
            /// # Safety
            /// As C's function of this name has it.
            #[unsafe(naked)]
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name() {
                #[cfg(target_arch = "x86_64")]
                naked_asm!("jmp {body}", body = sym $body);
                #[cfg(target_arch = "aarch64")]
                naked_asm!("b {body}", body = sym $body);
            }
        )+
    };
}

jumps! {
    __android_log_print => baton_liblog_print,
    __android_log_vprint => baton_liblog_vprint,
    __android_log_buf_print => baton_liblog_buf_print,
    __android_log_assert => baton_liblog_assert
}
