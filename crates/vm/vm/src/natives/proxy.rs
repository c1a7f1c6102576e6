//! java.lang.reflect.Proxy: classes whose methods all call an InvocationHandler
//!
//! A proxy class is a dex file of its own, written here, so that the linker treats it as any other.
//! Its methods are native and have one function, which finds in its frame the method that was
//! called.

use super::annotations;
use super::values::{self, VOID, non_null, rust};
use super::{boxes, members};
use crate::boxing::boxed;
use crate::class::{Body, Class, Loader, Method};
use crate::dex_files;
use crate::exception::OrThrow;
use crate::linker;
use crate::object::{Kind, Ref};
use crate::stack::{Args, Value};
use crate::vm::{Native, Thread, Thrown};
use baton_dex::access;
use std::collections::BTreeSet;

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
            let image = image(&format!("L{name};"), &interfaces);
            let loader = Loader::of(a.reference(2));
            let made = dex_files::load(loader, &name, image)
                .expect("a dex file of the VM's own is well formed");
            let definition = made.file.class(0);
            let class = linker::define(t, made, definition).or_throw(t)?;
            for method in class.methods {
                let function =
                    if method.is_constructor() { "constructorPrototype" } else { "$call" };
                let signature = if method.is_constructor() { CONSTRUCTOR } else { "()V" };
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

/// All methods of interfaces and of what they extend, one for each name and signature.
fn methods_of(interfaces: &[&'static Class]) -> BTreeSet<(&'static str, &'static str)> {
    let mut all = BTreeSet::new();
    for interface in interfaces {
        let own = interface.methods.iter().filter(|method| !method.is_direct());
        all.extend(own.map(|method| (method.name, method.signature)));
        all.extend(methods_of(&interface.interfaces));
    }
    all
}

/// The declaration of a method that a proxy stands for.
fn declaration(t: &Thread, method: &Method) -> &'static Method {
    fn find(interfaces: &[&'static Class], of: &Method) -> Option<&'static Method> {
        interfaces.iter().find_map(|interface| {
            interface
                .declared_method(of.name, of.signature)
                .or_else(|| find(&interface.interfaces, of))
        })
    }
    let object = t.vm.known().object;
    object
        .declared_method(method.name, method.signature)
        .or_else(|| find(&method.class().interfaces, method))
        .expect("a proxy's method has a declaration")
}

fn call(t: &Thread, a: Args) -> Result<Value, Thrown> {
    let stack = &t.state.stack;
    let method = stack.frame(stack.depth() - 1).method.get().expect("a frame has a method");
    let method = declaration(t, method);
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
        Err(Thrown) => Err(rethrow(t, method)),
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

/// Throws the handler's exception, wrapped if the method does not declare it.
fn rethrow(t: &Thread, method: &'static Method) -> Thrown {
    let exception = t.take_exception();
    let class = Class::of(exception);
    let wrapped = || -> Result<Ref, Thrown> {
        for unchecked in ["java/lang/RuntimeException", "java/lang/Error"] {
            if class.is_subclass_of(values::class(t, unchecked)?) {
                return Ok(exception);
            }
        }
        let declared = annotations::throws(t, method)?;
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

fn result_of(signature: &str) -> &str {
    &signature[signature.rfind(')').expect("a signature") + 1..]
}

fn shorty(signature: &str) -> String {
    let letter = |descriptor: &str| match descriptor.as_bytes()[0] {
        b'[' => 'L',
        letter => char::from(letter),
    };
    let parameters = crate::descriptor::parameter_descriptors(signature);
    std::iter::once(result_of(signature)).chain(parameters).map(letter).collect()
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
fn image(descriptor: &str, interfaces: &[&'static Class]) -> Vec<u8> {
    let mut virtuals = methods_of(interfaces);
    virtuals.extend(OF_OBJECT);
    let methods: Vec<(&str, &str)> =
        std::iter::once(("<init>", CONSTRUCTOR)).chain(virtuals).collect();

    let mut types = BTreeSet::from([descriptor, PROXY]);
    types.extend(interfaces.iter().map(|it| it.descriptor));
    let mut strings = BTreeSet::new();
    for (name, signature) in &methods {
        types.extend(crate::descriptor::parameter_descriptors(signature));
        types.insert(result_of(signature));
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
        let all = crate::descriptor::parameter_descriptors(signature);
        all.into_iter().map(|it| image.type_index(it)).collect()
    };
    protos.sort_by_key(|it| (image.type_index(result_of(it)), parameters(it)));
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
        let types: Vec<u32> = crate::descriptor::parameter_descriptors(signature)
            .into_iter()
            .map(|it| image.type_index(it))
            .collect();
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
        word(&mut ids, image.type_index(result_of(signature)));
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
