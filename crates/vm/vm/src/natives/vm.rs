//! org.robovm.rt.VM: what the class library asks its VM, and dalvik.system.VMRuntime

use super::members::mirrors;
use super::values::{NULL, VOID, check_range, non_null, strings, text};
use crate::class::Class;
use crate::exception;
use crate::object::ELEMENTS;
use crate::stack::Value;
use crate::vm::{Native, Thread, Vm};
use std::path::{Path, PathBuf};

const VM: &str = "Lorg/robovm/rt/VM;";

pub(super) const TABLE: &[Native] = &[
    (VM, "bootClassPath", "()Ljava/lang/String;", |t, _| {
        // The library finds its resources here, and its classes elsewhere.
        let mut paths = t.vm.options.boot_class_path.clone();
        paths.extend(home(t.vm).map(|home| home.join("resources.jar")).filter(|it| it.exists()));
        Ok(Value::Ref(text(t, &joined(&paths))?))
    }),
    (VM, "classPath", "()Ljava/lang/String;", |t, _| {
        Ok(Value::Ref(text(t, &joined(&t.vm.program().class_path))?))
    }),
    // The directory of java.home.
    (VM, "resourcesPath", "()Ljava/lang/String;", |t, _| {
        let home = home(t.vm).map(|path| path.display().to_string()).unwrap_or_default();
        Ok(Value::Ref(text(t, &home)?))
    }),
    (VM, "imagePath", "()Ljava/lang/String;", |t, _| {
        let path = std::env::current_exe().unwrap_or_default();
        Ok(Value::Ref(text(t, &path.display().to_string())?))
    }),
    // Their methods are in the VM's own table.
    (VM, "staticLibs", "()[Ljava/lang/String;", |t, _| {
        Ok(Value::Ref(strings(t, &["javacrypto"])?))
    }),
    (VM, "getRuntimeData0", "()[B", |_, _| NULL),
    (VM, "getStackClasses", "(II)[Ljava/lang/Class;", |t, a| {
        let most = usize::try_from(a.int(1)).unwrap_or(usize::MAX);
        let classes = stack_classes(t, a.int(0) as usize, most);
        Ok(Value::Ref(mirrors(t, &classes)?))
    }),
    (VM, "allocateObject", "(Ljava/lang/Class;)Ljava/lang/Object;", |t, a| {
        let class = Class::mirrored_by(non_null(t, a.reference(0), "cls")?);
        super::members::check_instantiable(t, class)?;
        crate::initialize::initialize(t, class)?;
        Ok(Value::Ref(exception::new_object(t, class)?))
    }),
    (VM, "newStringNoCopy", "([CII)Ljava/lang/String;", |t, a| {
        check_range(t, a.reference(0), a.int(1), a.int(2))?;
        let args = [Value::Int(a.int(1)), Value::Int(a.int(2)), Value::Ref(a.reference(0))];
        Ok(Value::Ref(super::values::construct(t, "java/lang/String", "(II[C)V", &args)?))
    }),
    // Nothing moves, so that an array's elements have an address.
    (VM, "getArrayValuesAddress", "(Ljava/lang/Object;)J", |t, a| {
        let array = non_null(t, a.reference(0), "array")?;
        Ok(Value::Long(i64::from(array.address() + ELEMENTS)))
    }),
    // The heap has the size that it was started with, and no other limit.
    ("Ldalvik/system/VMRuntime;", "clearGrowthLimit", "()V", |_, _| VOID),
    ("Ljava/nio/ByteOrder;", "isLittleEndian", "()Z", |_, _| {
        super::values::boolean(cfg!(target_endian = "little"))
    }),
    ("Ljava/util/concurrent/atomic/AtomicLong;", "VMSupportsCS8", "()Z", |_, _| {
        super::values::boolean(true)
    }),
    ("Ljava/lang/ref/Reference;", "get", "()Ljava/lang/Object;", |_, a| {
        Ok(Value::Ref(crate::reference::get(a.reference(0))))
    }),
    // The collector registers what it finds; there is nothing to prepare.
    ("Ljava/lang/ref/Reference;", "register", "(Ljava/lang/Object;)V", |_, _| VOID),
    ("Ljava/lang/Daemons$ReferenceQueueDaemon;", "run", "()V", |t, a| {
        while super::values::call_on(t, a.reference(0), "isRunning", "()Z", &[])?.int() != 0 {
            t.safe(|| t.vm.pending.wait(&t.state.parker));
            t.state.parker.take_interrupt();
            while let Some(reference) = t.vm.pending.first() {
                t.scope(|| {
                    t.keep(reference);
                    super::values::call_on(t, reference, "enqueueInternal", "()Z", &[])
                })?;
                t.vm.pending.remove_first();
            }
        }
        VOID
    }),
];

/// The directory of the class library.
fn home(vm: &Vm) -> Option<&Path> {
    vm.options.boot_class_path.first()?.parent()
}

fn joined(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(":")
}

/// The classes of the methods on the stack from the caller of the native method's caller on, the
/// first `skipped` of them left out. Reflection's own frames do not count.
fn stack_classes(t: &Thread, skipped: usize, most: usize) -> Vec<&'static Class> {
    let frames = exception::trace(&t.state.stack);
    let methods = frames.iter().map(|entry| entry.method);
    // The native method itself, and the method that called it, come first.
    let seen = methods.skip(2).filter(|method| {
        let is_reflection = method.class().descriptor == "Ljava/lang/reflect/Method;";
        !(is_reflection && matches!(method.name, "invoke" | "internalInvoke"))
    });
    seen.skip(skipped).take(most).map(|method| method.class()).collect()
}
