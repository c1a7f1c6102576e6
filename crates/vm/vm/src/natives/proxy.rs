//! java.lang.reflect.Proxy: classes whose methods all call an InvocationHandler
//!
//! A proxy class is a dex file of its own, written here, so that the linker treats it as any other.
//! Its methods are native and have one function, which finds in its frame the method that was
//! called.
//!
//! A method that several interfaces declare with equal parameters and result is one method of the
//! proxy class. The handler gets the declaration of the first of these interfaces, or Object's.

use super::annotations;
use super::values::{self, VOID, non_null, rust};
use super::{boxes, members};
use crate::boxing::boxed;
use crate::class::{Body, Class, Loader, Method};
use crate::descriptor::{parameter_descriptors, result_descriptor};
use crate::dex_files;
use crate::exception::OrThrow;
use crate::linker;
use crate::object::{Kind, Ref};
use crate::stack::{Args, Value};
use crate::vm::{Native, Thread, Thrown};
use baton_dex::access;
use rustc_hash::FxHashMap;
use std::collections::BTreeSet;
use std::sync::{LazyLock, RwLock};

const PROXY: &str = "Ljava/lang/reflect/Proxy;";
const HANDLER: &str = "Ljava/lang/reflect/InvocationHandler;";
const CONSTRUCTOR: &str = "(Ljava/lang/reflect/InvocationHandler;)V";

/// Methods of Object that a proxy hands on.
const OF_OBJECT: [(&str, &str); 3] = [
    ("hashCode", "()I"),
    ("equals", "(Ljava/lang/Object;)Z"),
    ("toString", "()Ljava/lang/String;"),
];

pub(super) const TABLE: &[Native] = &[
    (
        PROXY,
        "generateProxy",
        "(Ljava/lang/String;[Ljava/lang/Class;Ljava/lang/ClassLoader;)Ljava/lang/Class;",
        |t, a| {
            let (name, list) = (rust(t, a.reference(0))?, a.reference(1));
            let interfaces: Vec<&'static Class> =
                (0..list.length()).map(|i| Class::mirrored_by(list.get_ref(i))).collect();
            let merged = merged(t, &interfaces)?;
            let image = image(&format!("L{name};"), &interfaces, &merged);
            let loader = Loader::of(a.reference(2));
            let made = dex_files::load(loader, &name, image)
                .expect("a dex file of the VM's own is well formed");
            let definition = made.file.class(0);
            let class = linker::define(t, made, definition).or_throw(t)?;
            let mut all = MERGED.write().expect("no holder panics");
            for method in class.methods {
                let is_of = |it: &&Merged| is_same(it.declaration, method);
                let (function, signature) = match merged.iter().find(is_of) {
                    Some(merged) => {
                        all.insert(std::ptr::from_ref(method).addr(), merged.clone());
                        ("$call", "()V")
                    }
                    None => ("constructorPrototype", CONSTRUCTOR),
                };
                let index = t.vm.natives[&(PROXY, function, signature)];
                method.body.set(Box::leak(Box::new(Body::Native(index))));
            }
            Ok(Value::Ref(class.mirror()))
        },
    ),
    // The constructor of each proxy class.
    (PROXY, "constructorPrototype", CONSTRUCTOR, |_, a| {
        let this = a.reference(0);
        values::field(this, "h", HANDLER).set_ref(this, a.reference(1));
        VOID
    }),
    (PROXY, "$call", "()V", call),
];

/// A method of proxy classes.
#[derive(Clone)]
struct Merged {
    /// The method that the handler gets
    declaration: &'static Method,
    /// The checked exceptions that all interfaces allow
    throws: Vec<&'static Class>,
}

/// The methods of proxy classes, by their addresses.
static MERGED: LazyLock<RwLock<FxHashMap<usize, Merged>>> = LazyLock::new(RwLock::default);

/// The declaration of a method of a proxy class; `None` for another method.
fn merged_of(method: &Method) -> Option<Merged> {
    let all = MERGED.read().expect("no holder panics");
    all.get(&std::ptr::from_ref(method).addr()).cloned()
}

/// The classes of a method's `throws` clause, which proxy classes do not write down.
pub(super) fn throws(t: &Thread, method: &'static Method) -> Result<Vec<&'static Class>, Thrown> {
    merged_of(method).map_or_else(|| annotations::throws(t, method), |merged| Ok(merged.throws))
}

fn is_same(one: &Method, other: &Method) -> bool {
    (one.name, one.signature) == (other.name, other.signature)
}

/// The methods of an interface and of what it extends, without those that are overridden.
fn methods_of(interface: &'static Class) -> Vec<&'static Method> {
    let overrides = |it: &Method, other: &Method| {
        is_same(it, other) && it.class().is_assignable_to(other.class())
    };
    let mut found: Vec<&'static Method> =
        interface.methods.iter().filter(|method| !method.is_direct()).collect();
    for method in interface.interfaces.iter().flat_map(|it| methods_of(it)) {
        if !found.iter().any(|it| overrides(it, method)) {
            found.retain(|it| !overrides(method, it));
            found.push(method);
        }
    }
    found
}

/// The methods of a proxy class for some interfaces.
fn merged(t: &Thread, interfaces: &[&'static Class]) -> Result<Vec<Merged>, Thrown> {
    let of_object = OF_OBJECT.iter().map(|(name, signature)| {
        let declaration = t.vm.known().object.declared_method(name, signature);
        Merged { declaration: declaration.expect("a method of Object"), throws: Vec::new() }
    });
    let mut all: Vec<Merged> = of_object.collect();
    for declaration in interfaces.iter().flat_map(|it| methods_of(it)) {
        let throws = annotations::throws(t, declaration)?;
        match all.iter_mut().find(|it| is_same(it.declaration, declaration)) {
            Some(known) => known.throws = allowed_by_both(&throws, &known.throws),
            None => all.push(Merged { declaration, throws }),
        }
    }
    check_results(t, &all)?;
    Ok(all)
}

/// The exceptions that two `throws` clauses allow.
fn allowed_by_both(one: &[&'static Class], other: &[&'static Class]) -> Vec<&'static Class> {
    let within = |of: &[&'static Class], by: &[&'static Class]| -> Vec<&'static Class> {
        let is_allowed = |it: &&'static Class| by.iter().any(|by| it.is_subclass_of(by));
        of.iter().copied().filter(is_allowed).collect()
    };
    let mut both = within(one, other);
    for class in within(other, one) {
        if !both.iter().any(|it| std::ptr::eq(*it, class)) {
            both.push(class);
        }
    }
    both
}

/// Throws IllegalArgumentException if methods of equal names and parameters have results none of
/// which is all of them.
fn check_results(t: &Thread, methods: &[Merged]) -> Result<(), Thrown> {
    let parameters = |method: &Method| method.signature.rsplit_once(')').map(|it| it.0);
    let mut of_names: FxHashMap<_, Vec<&'static Method>> = FxHashMap::default();
    for Merged { declaration, .. } in methods {
        let key = (declaration.name, parameters(declaration));
        of_names.entry(key).or_default().push(declaration);
    }
    for methods in of_names.values().filter(|it| it.len() > 1) {
        let results =
            methods.iter().map(|it| values::find(t, it.class().loader, it.result_descriptor()));
        let results = results.collect::<Result<Vec<_>, Thrown>>()?;
        let is_all = |it: &&'static Class| {
            !it.is_primitive() && results.iter().all(|other| it.is_assignable_to(other))
        };
        if !results.iter().any(is_all) {
            let message = format!("incompatible results of {}", methods[0].pretty());
            return Err(values::throw(t, "java/lang/IllegalArgumentException", &message));
        }
    }
    Ok(())
}

fn call(t: &Thread, a: Args) -> Result<Value, Thrown> {
    let method = t.state.stack.top_frame().method.get().expect("a frame has a method");
    let Merged { declaration: method, throws } = merged_of(method).expect("a proxy's method");
    let this = a.reference(0);
    let mut arguments = Vec::new();
    let mut register = 1;
    for kind in &method.parameters {
        let value = match kind {
            Kind::Reference => Value::Ref(a.reference(register)),
            Kind::Long => Value::Long(a.long(register)),
            Kind::Double => Value::Double(a.double(register)),
            Kind::Float => Value::Float(a.float(register)),
            _ => Value::Int(a.int(register)),
        };
        arguments.push(boxed(t, *kind, value)?);
        register += if kind.is_wide() { 2 } else { 1 };
    }
    let list = match arguments.is_empty() {
        true => Ref::NULL,
        false => values::objects(t, t.vm.known().object, &arguments)?,
    };
    let handler = values::field(this, "h", HANDLER).get_ref(this);
    let args = [Value::Ref(this), Value::Ref(members::method_object(t, method)?), Value::Ref(list)];
    let signature =
        "(Ljava/lang/Object;Ljava/lang/reflect/Method;[Ljava/lang/Object;)Ljava/lang/Object;";
    let result = values::call_on(t, non_null(t, handler, "h")?, "invoke", signature, &args);
    match result {
        Ok(result) => unboxed(t, method, result.reference()),
        Err(Thrown) => Err(rethrow(t, &throws)),
    }
}

/// The handler's result as a value of the method's type.
fn unboxed(t: &Thread, method: &'static Method, result: Ref) -> Result<Value, Thrown> {
    if method.result == Kind::Void {
        return VOID;
    }
    let class = values::find(t, method.class().loader, method.result_descriptor())?;
    if class.is_primitive() && result.is_null() {
        return Err(values::throw(
            t,
            "java/lang/NullPointerException",
            "null for a primitive type",
        ));
    }
    let fits = |_| {
        t.take_exception();
        let names = (Class::of(result).java_name(), class.java_name());
        let message = format!("{} cannot be cast to {}", names.0, names.1);
        values::throw(t, "java/lang/ClassCastException", &message)
    };
    boxes::unboxed(t, class, result, 0).map_err(fits)
}

/// Throws the handler's exception, wrapped if it is checked and none of those declared.
fn rethrow(t: &Thread, declared: &[&'static Class]) -> Thrown {
    let exception = t.take_exception();
    let class = Class::of(exception);
    let wrapped = || -> Result<Ref, Thrown> {
        for unchecked in ["java/lang/RuntimeException", "java/lang/Error"] {
            if class.is_subclass_of(values::class(t, unchecked)?) {
                return Ok(exception);
            }
        }
        if declared.iter().any(|declared| class.is_subclass_of(declared)) {
            return Ok(exception);
        }
        let wrapper = "java/lang/reflect/UndeclaredThrowableException";
        values::construct(t, wrapper, "(Ljava/lang/Throwable;)V", &[Value::Ref(exception)])
    };
    wrapped().map_or_else(|thrown| thrown, |exception| t.throw_object(exception))
}

/// Parts of a dex file: strings in order, and what refers to them by index.
struct Image {
    strings: Vec<String>,
    types: Vec<String>,
    protos: Vec<String>,
}

impl Image {
    fn string(&self, text: &str) -> u32 {
        self.strings.iter().position(|it| it == text).expect("a string of the image") as u32
    }

    fn type_index(&self, descriptor: &str) -> u32 {
        self.types.iter().position(|it| it == descriptor).expect("a type of the image") as u32
    }

    fn proto(&self, signature: &str) -> u32 {
        self.protos.iter().position(|it| it == signature).expect("a prototype") as u32
    }
}

fn shorty(signature: &str) -> String {
    let letter = |descriptor: &str| match descriptor.as_bytes()[0] {
        b'[' => 'L',
        letter => char::from(letter),
    };
    let parameters = parameter_descriptors(signature);
    std::iter::once(result_descriptor(signature)).chain(parameters).map(letter).collect()
}

fn utf16(text: &str) -> Vec<u16> {
    text.encode_utf16().collect()
}

fn uleb128(to: &mut Vec<u8>, mut value: u32) {
    while value >= 0x80 {
        to.push(value as u8 | 0x80);
        value >>= 7;
    }
    to.push(value as u8);
}

/// A dex file with the proxy class of some interfaces.
fn image(descriptor: &str, interfaces: &[&'static Class], merged: &[Merged]) -> Vec<u8> {
    let virtuals = merged.iter().map(|it| (it.declaration.name, it.declaration.signature));
    let methods: Vec<(&str, &str)> =
        std::iter::once(("<init>", CONSTRUCTOR)).chain(virtuals).collect();

    let mut types = BTreeSet::from([descriptor, PROXY]);
    types.extend(interfaces.iter().map(|it| it.descriptor));
    let mut strings = BTreeSet::new();
    for (name, signature) in &methods {
        types.extend(parameter_descriptors(signature));
        types.insert(result_descriptor(signature));
        strings.insert((*name).to_owned());
        strings.insert(shorty(signature));
    }
    strings.extend(types.iter().map(|it| (*it).to_owned()));
    let sorted = |of: &mut Vec<String>| of.sort_by_key(|text| utf16(text));
    let mut image = Image {
        strings: strings.into_iter().collect(),
        types: types.into_iter().map(str::to_owned).collect(),
        protos: Vec::new(),
    };
    sorted(&mut image.strings);
    sorted(&mut image.types);
    let protos: BTreeSet<&str> = methods.iter().map(|(_, signature)| *signature).collect();
    let mut protos: Vec<&str> = protos.into_iter().collect();
    let parameters = |signature: &str| -> Vec<u32> {
        let all = parameter_descriptors(signature);
        all.into_iter().map(|it| image.type_index(it)).collect()
    };
    protos.sort_by_key(|it| (image.type_index(result_descriptor(it)), parameters(it)));
    let protos = protos.into_iter().map(str::to_owned).collect();
    let image = Image { protos, ..image };
    let mut ids: Vec<(u32, u32, bool)> = methods
        .iter()
        .map(|(name, signature)| (image.string(name), image.proto(signature), *name == "<init>"))
        .collect();
    ids.sort_unstable();
    write(&image, descriptor, interfaces, &ids)
}

fn write(
    image: &Image,
    descriptor: &str,
    interfaces: &[&'static Class],
    methods: &[(u32, u32, bool)],
) -> Vec<u8> {
    const HEADER_BYTES: usize = 0x70;
    let counts = [image.strings.len(), image.types.len(), image.protos.len(), 0, methods.len(), 1];
    let sizes = [4, 4, 12, 8, 8, 32];
    let mut starts = [0; 6];
    let mut data_start = HEADER_BYTES;
    for (index, (count, size)) in counts.iter().zip(sizes).enumerate() {
        starts[index] = data_start;
        data_start += count * size;
    }
    let mut data: Vec<u8> = Vec::new();
    let place = |data: &Vec<u8>| (data_start + data.len()) as u32;
    let list = |data: &mut Vec<u8>, types: &[u32]| {
        if types.is_empty() {
            return 0;
        }
        data.resize(data.len().next_multiple_of(4), 0);
        let at = place(data);
        data.extend((types.len() as u32).to_le_bytes());
        types.iter().for_each(|index| data.extend((*index as u16).to_le_bytes()));
        at
    };
    let mut n_lists = 0u32;
    let mut ids: Vec<u8> = Vec::new();
    let word = |ids: &mut Vec<u8>, value: u32| ids.extend(value.to_le_bytes());

    let mut parameter_lists = Vec::new();
    for signature in &image.protos {
        let types: Vec<u32> =
            parameter_descriptors(signature).into_iter().map(|it| image.type_index(it)).collect();
        n_lists += u32::from(!types.is_empty());
        parameter_lists.push(list(&mut data, &types));
    }
    let of_class: Vec<u32> = interfaces.iter().map(|it| image.type_index(it.descriptor)).collect();
    n_lists += u32::from(!of_class.is_empty());
    let interfaces_at = list(&mut data, &of_class);
    let lists_at = data_start as u32;

    let strings_at = place(&data);
    for text in &image.strings {
        word(&mut ids, place(&data));
        uleb128(&mut data, utf16(text).len() as u32);
        data.extend(baton_dex::encode_mutf8(text.encode_utf16()));
        data.push(0);
    }
    image.types.iter().for_each(|descriptor| word(&mut ids, image.string(descriptor)));
    for (signature, parameters_at) in image.protos.iter().zip(parameter_lists) {
        word(&mut ids, image.string(&shorty(signature)));
        word(&mut ids, image.type_index(result_descriptor(signature)));
        word(&mut ids, parameters_at);
    }
    let own = image.type_index(descriptor);
    for (name, proto, _) in methods {
        ids.extend((own as u16).to_le_bytes());
        ids.extend((*proto as u16).to_le_bytes());
        word(&mut ids, *name);
    }
    let class_data_at = place(&data);
    [0, 0, 1, methods.len() as u32 - 1].iter().for_each(|count| uleb128(&mut data, *count));
    for direct in [true, false] {
        let mut last = 0;
        for (index, _) in methods.iter().enumerate().filter(|(_, it)| it.2 == direct) {
            uleb128(&mut data, index as u32 - last);
            last = index as u32;
            let kind = if direct { access::CONSTRUCTOR } else { access::FINAL };
            uleb128(&mut data, access::PUBLIC | access::NATIVE | kind);
            uleb128(&mut data, 0);
        }
    }
    word(&mut ids, own);
    word(&mut ids, access::PUBLIC | access::FINAL);
    word(&mut ids, image.type_index(PROXY));
    word(&mut ids, interfaces_at);
    // No source file and no annotations; the members; no static values.
    [u32::MAX, 0, class_data_at, 0].iter().for_each(|value| word(&mut ids, *value));

    data.resize(data.len().next_multiple_of(4), 0);
    let map_at = place(&data);
    let id_kinds = [0x0001, 0x0002, 0x0003, 0x0004, 0x0005, 0x0006];
    let mut map: Vec<(u16, u32, u32)> = vec![(0, 1, 0)];
    for ((kind, count), start) in id_kinds.iter().zip(counts).zip(starts) {
        map.push((*kind, count as u32, start as u32));
    }
    map.push((0x1001, n_lists, lists_at));
    map.push((0x2002, image.strings.len() as u32, strings_at));
    map.push((0x2000, 1, class_data_at));
    map.push((0x1000, 1, map_at));
    map.retain(|(_, count, _)| *count > 0);
    data.extend((map.len() as u32).to_le_bytes());
    for (kind, count, at) in map {
        data.extend(u32::from(kind).to_le_bytes());
        data.extend(count.to_le_bytes());
        data.extend(at.to_le_bytes());
    }

    let mut file = b"dex\n035\0".to_vec();
    file.resize(32, 0);
    let end = (data_start + data.len()) as u32;
    for value in [end, HEADER_BYTES as u32, 0x1234_5678, 0, 0, map_at] {
        word(&mut file, value);
    }
    for (count, start) in counts.iter().zip(starts) {
        word(&mut file, *count as u32);
        word(&mut file, if *count > 0 { start as u32 } else { 0 });
    }
    word(&mut file, data.len() as u32);
    word(&mut file, data_start as u32);
    file.extend(ids);
    file.extend(data);
    let sum = adler2::adler32_slice(&file[12..]);
    file[8..12].copy_from_slice(&sum.to_le_bytes());
    file
}
