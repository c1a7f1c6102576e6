//! Calls from Java to C.
//!
//! A native method's arguments are in registers of its Java frame. They go to the registers and the
//! stack that the processor's calling convention says: integers and pointers in one file of
//! registers, floats in the other, what is left on the stack in words of 8 bytes. No type of JNI
//! takes more than a word, so a list of words is all there is to prepare. Which argument becomes
//! which word is known when the method gets its function.
//!
//! ```text
//! words: | integer registers | float registers | stack . . |
//!        the env and the receiver come first
//! ```
//!
//! Sources: System V ABI for x86-64; Procedure Call Standard for the Arm 64-bit Architecture.

use crate::env::Env;
use crate::handle::{Handle, Kind as HandleKind};
use crate::report;
use baton_vm::class::{Class, Foreign, ForeignArgument, Method};
use baton_vm::exception::OrThrow;
use baton_vm::object::{Kind, Ref};
use baton_vm::stack::{Args, Overflow, Value};
use baton_vm::vm::{Thread, Thrown};
use std::arch::naked_asm;

#[cfg(target_arch = "x86_64")]
const N_INTEGERS: usize = 6;
#[cfg(target_arch = "aarch64")]
const N_INTEGERS: usize = 8;
const N_FLOATS: usize = 8;

const N_REGISTERS: usize = N_INTEGERS + N_FLOATS;
/// Words that need no memory of their own.
const N_USUAL_WORDS: usize = N_REGISTERS + 8;

/// Where a method's arguments go, `this` left out, and how many words go to the stack.
pub fn arguments(method: &Method) -> (Box<[ForeignArgument]>, usize) {
    let mut register = u16::from(!method.is_static());
    let mut integers = 2..N_INTEGERS;
    let mut floats = N_INTEGERS..N_REGISTERS;
    let mut stack = N_REGISTERS..;
    let mut argument = |kind: &Kind| {
        let file =
            if matches!(kind, Kind::Float | Kind::Double) { &mut floats } else { &mut integers };
        let word = file.next().or_else(|| stack.next()).expect("a range without an end") as u16;
        let argument = ForeignArgument { register, word, kind: *kind };
        register += 1 + u16::from(kind.is_wide());
        argument
    };
    let arguments = method.parameters.iter().map(&mut argument).collect();
    (arguments, stack.start - N_REGISTERS)
}

/// Calls the function at an address: (address, words, those of the stack, how many of these). The
/// result is where the function has left it.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
extern "C" fn enter() {
    naked_asm!(
        "push rbp",
        "mov rbp, rsp",
        "mov r11, rdi",
        "mov r10, rsi",
        // The stack is at a multiple of 16 before a call.
        "lea rax, [rcx * 8 + 15]",
        "and rax, -16",
        "sub rsp, rax",
        "xor eax, eax",
        "2:",
        "cmp rax, rcx",
        "je 3f",
        "mov rdi, [rdx + rax * 8]",
        "mov [rsp + rax * 8], rdi",
        "inc rax",
        "jmp 2b",
        "3:",
        "movsd xmm0, [r10 + 48]",
        "movsd xmm1, [r10 + 56]",
        "movsd xmm2, [r10 + 64]",
        "movsd xmm3, [r10 + 72]",
        "movsd xmm4, [r10 + 80]",
        "movsd xmm5, [r10 + 88]",
        "movsd xmm6, [r10 + 96]",
        "movsd xmm7, [r10 + 104]",
        "mov rdi, [r10]",
        "mov rsi, [r10 + 8]",
        "mov rdx, [r10 + 16]",
        "mov rcx, [r10 + 24]",
        "mov r8, [r10 + 32]",
        "mov r9, [r10 + 40]",
        "call r11",
        "mov rsp, rbp",
        "pop rbp",
        "ret",
    )
}

/// As on x86-64.
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
extern "C" fn enter() {
    naked_asm!(
        "stp x29, x30, [sp, #-16]!",
        "mov x29, sp",
        "mov x9, x0",
        "mov x10, x1",
        // The stack is at a multiple of 16.
        "add x11, x3, #1",
        "and x11, x11, #-2",
        "sub sp, sp, x11, lsl #3",
        "mov x12, #0",
        "2:",
        "cmp x12, x3",
        "b.eq 3f",
        "ldr x13, [x2, x12, lsl #3]",
        "str x13, [sp, x12, lsl #3]",
        "add x12, x12, #1",
        "b 2b",
        "3:",
        "ldp d0, d1, [x10, #64]",
        "ldp d2, d3, [x10, #80]",
        "ldp d4, d5, [x10, #96]",
        "ldp d6, d7, [x10, #112]",
        "ldp x0, x1, [x10]",
        "ldp x2, x3, [x10, #16]",
        "ldp x4, x5, [x10, #32]",
        "ldp x6, x7, [x10, #48]",
        "blr x9",
        "mov sp, x29",
        "ldp x29, x30, [sp], #16",
        "ret",
    )
}

type Enter<T> = extern "C" fn(usize, *const u64, *const u64, usize) -> T;

/// Calls a function whose result is of a type: an integer or a float.
fn enter_for<T>(function: usize, words: &[u64]) -> T {
    // SAFETY: `enter` leaves the result where a function of this type does. The function has
    // parameters of these words, as whoever has declared the native method answers for.
    let enter: Enter<T> = unsafe { std::mem::transmute(enter as extern "C" fn()) };
    let stack = &words[N_REGISTERS..];
    enter(function, words.as_ptr(), stack.as_ptr(), stack.len())
}

/// Calls C for a native method, whose frame is the top one.
///
/// # Errors
/// C has left an exception pending.
pub fn call(
    t: &Thread,
    method: &'static Method,
    foreign: &Foreign,
    args: Args,
) -> Result<Value, Thrown> {
    let env = Env::of(t);
    if env.is_stack_low() {
        return Err(Overflow).or_throw(t);
    }
    let stack = &t.state.stack;
    let first = stack.base();
    let callers = env.locals.begin(stack);
    let argument = |register: usize| {
        let object = args.reference(register);
        match object.is_null() {
            true => Handle::NULL,
            false => Handle::new(HandleKind::Local, first + register, object.address()),
        }
    };
    let mut usual = [0; N_USUAL_WORDS];
    let mut many = Vec::new();
    let words = match usual.get_mut(..N_REGISTERS + foreign.n_stack_words) {
        Some(words) => words,
        None => {
            many.resize(N_REGISTERS + foreign.n_stack_words, 0);
            &mut many[..]
        }
    };
    words[0] = std::ptr::from_ref(env).expose_provenance() as u64;
    let receiver = if method.is_static() {
        let added = env.locals.add(stack, method.class().mirror());
        added.unwrap_or_else(|_| no_room(t, method))
    } else {
        argument(0)
    };
    words[1] = receiver.bits();
    for ForeignArgument { register, word, kind } in &foreign.arguments {
        let register = usize::from(*register);
        words[usize::from(*word)] = match kind {
            Kind::Double | Kind::Long => args.long(register) as u64,
            Kind::Reference => argument(register).bits(),
            // A float's register has its bits.
            _ => args.int(register) as u64,
        };
    }
    let function = foreign.function;
    t.vm.threads.leave(&t.state);
    let result = match method.result {
        Kind::Float => Value::Float(enter_for(function, words)),
        Kind::Double => Value::Double(enter_for(function, words)),
        // C leaves the upper bits of a small result as they are.
        kind => {
            let bits: u64 = enter_for(function, words);
            match kind {
                Kind::Void => Value::Void,
                Kind::Boolean => Value::Int((bits as u8 != 0).into()),
                Kind::Byte => Value::Int((bits as i8).into()),
                Kind::Char => Value::Int((bits as u16).into()),
                Kind::Short => Value::Int((bits as i16).into()),
                Kind::Int => Value::Int(bits as i32),
                _ => Value::Long(bits as i64),
            }
        }
    };
    t.vm.threads.enter(&t.state);
    let is_thrown = !t.exception().is_null();
    let result = match (method.result, result) {
        (Kind::Reference, _) if is_thrown => Value::Ref(Ref::NULL),
        (Kind::Reference, Value::Long(bits)) => {
            let handle = Handle::from_bits(bits as u64);
            Value::Ref(returned(t, env, method, foreign, handle))
        }
        (_, result) => result,
    };
    env.locals.end(callers);
    if is_thrown { Err(Thrown) } else { Ok(result) }
}

/// The object that a native method returns.
fn returned(
    t: &Thread,
    env: &Env,
    method: &'static Method,
    foreign: &Foreign,
    handle: Handle,
) -> Ref {
    let wrong = |wrong: String| -> ! {
        report::wrong_use(Some(t), &format!("the result of {}", method.pretty()), wrong)
    };
    let object = match handle.is_null() {
        true => Ref::NULL,
        false => match env.object(t, handle) {
            Some(object) => object,
            None => wrong(format!("{:#x} is no reference", handle.bits())),
        },
    };
    if let Some(class) = foreign.result
        && !object.is_null()
        && !Class::of(object).is_assignable_to(class)
    {
        wrong(format!("an object of {}", Class::of(object).pretty_name()));
    }
    object
}

#[cold]
fn no_room(t: &Thread, method: &'static Method) -> ! {
    report::wrong_use(Some(t), &method.pretty(), "there is no room for its class")
}
