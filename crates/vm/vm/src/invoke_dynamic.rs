//! Call sites of invoke-custom: lambda expressions, method references and string concatenation.
//!
//! The bootstrap methods of java.lang.invoke.LambdaMetafactory and StringConcatFactory are built
//! in. A call site of the first gets a class of its own, whose instances have the captured values
//! as fields; its methods call the target with these values and the arguments. Between the types of
//! interface and target, values are boxed, unboxed, widened and cast.

use crate::boxing::{boxed, unboxed, widened};
use crate::cards::note_root;
use crate::class::{Body, Class, Field, Lambda, LambdaCall, LoadedDex, Method};
use crate::descriptor::{parameter_descriptors, result_descriptor};
use crate::exception::{self, OrThrow};
use crate::initialize;
use crate::linker;
use crate::object::{Kind, Ref};
use crate::resolution;
use crate::stack::{Args, Registers, Value};
use crate::string;
use crate::vm::{Thread, Thrown};
use baton_dex::{CallSiteId, MethodHandle, Value as Constant};
use std::iter::Peekable;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Flags of LambdaMetafactory.altMetafactory.
const FLAG_MARKERS: i32 = 2;
const FLAG_BRIDGES: i32 = 4;

/// Arguments of a call site.
pub(crate) struct Captured<'a> {
    /// The caller's registers
    pub r: &'a Registers,
    /// The register of an argument
    pub register: &'a dyn Fn(usize) -> usize,
}

impl Captured<'_> {
    /// The values by their types.
    fn values(&self, signature: &str) -> Vec<Value> {
        let mut at = 0;
        let mut take = |kind: Kind| {
            let register = (self.register)(at);
            at += 1 + usize::from(kind.is_wide());
            match kind {
                Kind::Long => Value::Long(self.r.long(register)),
                Kind::Double => Value::Double(self.r.double(register)),
                Kind::Float => Value::Float(self.r.float(register)),
                Kind::Reference => Value::Ref(self.r.reference(register)),
                _ => Value::Int(self.r.int(register)),
            }
        };
        parameter_descriptors(signature).into_iter().map(|it| take(Kind::of(it))).collect()
    }
}

fn bootstrap_error(t: &Thread, message: &str) -> Thrown {
    exception::throw(t, "Ljava/lang/BootstrapMethodError;", message)
}

/// The result of a call site: the object of a lambda expression, or a string.
///
/// # Errors
/// An exception is under way.
pub(crate) fn call_site(
    t: &Thread,
    dex: &'static LoadedDex,
    id: CallSiteId,
    captured: &Captured<'_>,
) -> Result<Ref, Thrown> {
    let file = &dex.file;
    let values: Vec<Constant<'static>> = file.call_site(id).iter().collect();
    let [
        Constant::MethodHandle(bootstrap),
        Constant::String(name),
        Constant::MethodType(proto),
        ..,
    ] = values[..]
    else {
        return Err(bootstrap_error(t, "a call site without bootstrap method, name and type"));
    };
    let MethodHandle::InvokeStatic(bootstrap) = file.method_handle(bootstrap) else {
        return Err(bootstrap_error(t, "a bootstrap method that is not static"));
    };
    let method = file.method(bootstrap);
    let class = file.descriptor(method.class).to_string();
    let factory = (class.as_str(), file.string(method.name).to_string());
    let signature = file.signature(proto);
    let rest = &values[3..];
    match (factory.0, factory.1.as_str()) {
        ("Ljava/lang/invoke/LambdaMetafactory;", "metafactory" | "altMetafactory") => {
            let class = match dex.lambdas[id.index()].get() {
                Some(class) => class,
                None => {
                    let name = file.string(name).to_string().leak();
                    let class = lambda_class(t, dex, name, &signature, rest)?;
                    dex.lambdas[id.index()].set(class);
                    class
                }
            };
            lambda_object(t, class, &captured.values(&signature))
        }
        ("Ljava/lang/invoke/StringConcatFactory;", "makeConcatWithConstants") => {
            let [Constant::String(recipe), constants @ ..] = rest else {
                return Err(bootstrap_error(t, "a concatenation without recipe"));
            };
            let recipe: Vec<u16> = file.string(*recipe).utf16().collect();
            concatenate(t, dex, &recipe, constants, &signature, captured)
        }
        _ => {
            let message = format!("the bootstrap method {}.{} is not known", factory.0, factory.1);
            Err(bootstrap_error(t, &message))
        }
    }
}

/// The next argument of a bootstrap method if it is a number, else 0.
fn number(rest: &mut Peekable<impl Iterator<Item = Constant<'static>>>) -> i32 {
    match rest.next_if(|it| matches!(it, Constant::Int(_))) {
        Some(Constant::Int(number)) => number,
        _ => 0,
    }
}

/// Makes the class of a lambda expression.
fn lambda_class(
    t: &Thread,
    dex: &'static LoadedDex,
    name: &'static str,
    signature: &str,
    arguments: &[Constant<'static>],
) -> Result<&'static Class, Thrown> {
    let file = &dex.file;
    let [
        Constant::MethodType(erased),
        Constant::MethodHandle(target),
        Constant::MethodType(of),
        rest @ ..,
    ] = arguments
    else {
        return Err(bootstrap_error(t, "a lambda expression without types and target"));
    };
    let (id, call) = match file.method_handle(*target) {
        MethodHandle::InvokeStatic(id) | MethodHandle::InvokeDirect(id) => (id, LambdaCall::Exact),
        MethodHandle::InvokeInstance(id) | MethodHandle::InvokeInterface(id) => {
            (id, LambdaCall::Virtual)
        }
        MethodHandle::InvokeConstructor(id) => (id, LambdaCall::Constructor),
        _ => return Err(bootstrap_error(t, "a lambda expression that is a field")),
    };
    let caller = t.caller().expect("a call site is in a method");
    let target = resolution::resolve_method(t, dex, id, Some(caller.class())).or_throw(t)?;
    let interface = linker::find(t, dex.loader, result_descriptor(signature)).or_throw(t)?;
    let mut interfaces = vec![interface];
    let mut signatures: Vec<&'static str> = vec![file.signature(*erased).leak()];
    let mut rest = rest.iter().copied().peekable();
    let flags = number(&mut rest);
    if flags & FLAG_MARKERS != 0 {
        for _ in 0..number(&mut rest) {
            if let Some(Constant::Type(id)) = rest.next() {
                interfaces.push(linker::resolve_type(t, dex, id).or_throw(t)?);
            }
        }
    }
    if flags & FLAG_BRIDGES != 0 {
        for _ in 0..number(&mut rest) {
            if let Some(Constant::MethodType(id)) = rest.next() {
                signatures.push(file.signature(id).leak());
            }
        }
    }
    let instantiated: &'static str = file.signature(*of).leak();
    let method = |signature: &'static str| {
        let lambda = Lambda { target, call, instantiated, loader: dex.loader };
        Method::synthetic(name, signature, Body::Lambda(lambda))
    };
    let captures = parameter_descriptors(signature).into_iter().enumerate();
    let fields = captures.map(|(index, descriptor)| {
        let name: &'static str = format!("arg${index}").leak();
        Field::synthetic(name, descriptor.to_owned().leak())
    });
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Relaxed);
    let descriptor =
        format!("{}$$Lambda${number};", caller.class().descriptor.trim_end_matches(';')).leak();
    signatures.dedup();
    let methods = signatures.into_iter().map(method).collect();
    linker::synthesize(t, dex.loader, descriptor, interfaces, fields.collect(), methods).or_throw(t)
}

/// The object of a lambda expression with its captured values. Without any it is always one object,
/// which the mirror's class keeps.
fn lambda_object(t: &Thread, class: &'static Class, values: &[Value]) -> Result<Ref, Thrown> {
    initialize::initialize(t, class)?;
    if values.is_empty() {
        let kept = t.lock(&t.vm.lambdas).get(class.descriptor).copied();
        if let Some(object) = kept {
            return Ok(object);
        }
    }
    let object = exception::new_object(t, class)?;
    for (field, value) in class.fields.iter().zip(values) {
        match *value {
            Value::Int(value) => field.set32(object, value as u32),
            Value::Float(value) => field.set32(object, value.to_bits()),
            Value::Long(value) => field.set64(object, value as u64),
            Value::Double(value) => field.set64(object, value.to_bits()),
            Value::Ref(value) => field.set_ref(object, value),
            Value::Void => {}
        }
    }
    if values.is_empty() {
        note_root(object.address());
        return Ok(*t.lock(&t.vm.lambdas).entry(class.descriptor).or_insert(object));
    }
    Ok(object)
}

/// Runs a method of a lambda's class, in its frame.
///
/// # Errors
/// An exception is under way.
pub(crate) fn run(
    t: &Thread,
    method: &'static Method,
    lambda: &Lambda,
    args: Args,
) -> Result<Value, Thrown> {
    let this = args.reference(0);
    let captured = Class::of(this).fields.iter().map(|field| match field.kind {
        Kind::Long => Value::Long(field.get64(this) as i64),
        Kind::Double => Value::Double(f64::from_bits(field.get64(this))),
        Kind::Float => Value::Float(f32::from_bits(field.get32(this))),
        Kind::Reference => Value::Ref(field.get_ref(this)),
        _ => Value::Int(field.get32(this) as i32),
    });
    let mut values: Vec<Value> = captured.collect();
    let n_captured = values.len();
    let mut at = 1;
    for kind in &method.parameters {
        values.push(args.value(at, *kind));
        at += 1 + usize::from(kind.is_wide());
    }
    let target = lambda.target;
    let mut wanted: Vec<&str> = target.parameter_descriptors();
    let has_receiver = !target.is_static() && lambda.call != LambdaCall::Constructor;
    if has_receiver {
        wanted.insert(0, target.class().descriptor);
    }
    let instantiated = parameter_descriptors(lambda.instantiated);
    for (index, value) in values.iter_mut().enumerate().skip(n_captured) {
        let nth = index - n_captured;
        let actual = instantiated.get(nth).copied().unwrap_or("Ljava/lang/Object;");
        let from = method.parameters.get(nth).copied().unwrap_or(Kind::Reference);
        let to = wanted.get(index).copied().unwrap_or("Ljava/lang/Object;");
        *value = adapt(t, lambda, *value, from, actual, to)?;
    }
    let result = match lambda.call {
        LambdaCall::Exact => t.invoke(target, &values)?,
        LambdaCall::Virtual => {
            if values[0] == Value::Ref(Ref::NULL) {
                return Err(exception::throw_plain(t, "Ljava/lang/NullPointerException;"));
            }
            t.invoke_virtual(target, &values)?
        }
        LambdaCall::Constructor => {
            initialize::initialize(t, target.class())?;
            let object = exception::new_object(t, target.class())?;
            values.insert(0, Value::Ref(object));
            t.invoke(target, &values)?;
            Value::Ref(object)
        }
    };
    if method.result == Kind::Void {
        return Ok(Value::Void);
    }
    let from = match lambda.call {
        LambdaCall::Constructor => target.class().descriptor,
        _ => target.result_descriptor(),
    };
    let to = match method.result {
        Kind::Reference => result_descriptor(lambda.instantiated),
        _ => method.result_descriptor(),
    };
    adapt(t, lambda, result, Kind::of(from), from, to)
}

/// Converts a value between the types of an interface's method and of a lambda's target.
fn adapt(
    t: &Thread,
    lambda: &Lambda,
    value: Value,
    from: Kind,
    actual: &str,
    to: &str,
) -> Result<Value, Thrown> {
    match (from, Kind::of(to)) {
        (Kind::Reference, Kind::Reference) => {
            let Value::Ref(object) = value else { return Ok(value) };
            // A value that a type variable let pass may be of another class.
            if !object.is_null()
                && actual != Class::of(object).descriptor
                && actual != "Ljava/lang/Object;"
            {
                let class = linker::find(t, lambda.loader, actual).or_throw(t)?;
                if !Class::of(object).is_assignable_to(class) {
                    return Err(bad_cast(t, object, class));
                }
            }
            Ok(value)
        }
        (Kind::Reference, kind) => {
            let Value::Ref(object) = value else { return Ok(value) };
            if object.is_null() {
                return Err(exception::throw_plain(t, "Ljava/lang/NullPointerException;"));
            }
            let Some((from, value)) = unboxed(object) else {
                let message = format!("{} is no number", Class::of(object).java_name());
                return Err(exception::throw(t, "Ljava/lang/ClassCastException;", &message));
            };
            widen(t, from, value, kind)
        }
        (kind, Kind::Reference) => boxed(t, kind, value).map(Value::Ref),
        (from, kind) => widen(t, from, value, kind),
    }
}

fn bad_cast(t: &Thread, object: Ref, class: &Class) -> Thrown {
    let names = (Class::of(object).pretty_name(), class.pretty_name());
    let message = format!("{} cannot be cast to {}", names.0, names.1);
    exception::throw(t, "Ljava/lang/ClassCastException;", &message)
}

/// A primitive value as one of another kind.
fn widen(t: &Thread, from: Kind, value: Value, to: Kind) -> Result<Value, Thrown> {
    widened(from, value, to).ok_or_else(|| {
        let message = format!("{value:?} is no {to:?}");
        exception::throw(t, "Ljava/lang/ClassCastException;", &message)
    })
}

/// StringConcatFactory: in the recipe, 1 stands for an argument and 2 for a constant.
fn concatenate(
    t: &Thread,
    dex: &'static LoadedDex,
    recipe: &[u16],
    constants: &[Constant<'static>],
    signature: &str,
    captured: &Captured<'_>,
) -> Result<Ref, Thrown> {
    let values = captured.values(signature);
    let mut arguments = values.into_iter().zip(parameter_descriptors(signature));
    let mut constants = constants.iter();
    let mut units = Vec::new();
    for unit in recipe {
        match unit {
            1 => {
                let Some((value, descriptor)) = arguments.next() else {
                    return Err(bootstrap_error(t, "a recipe with more arguments than there are"));
                };
                let text = text_of(t, value, descriptor)?;
                units.extend(string::units(t, text));
            }
            2 => match constants.next() {
                Some(Constant::String(id)) => units.extend(dex.file.string(*id).utf16()),
                _ => return Err(bootstrap_error(t, "a recipe with constants of other types")),
            },
            _ => units.push(*unit),
        }
    }
    string::from_utf16(t, &units).or_throw(t)
}

/// What String.valueOf makes of a value.
fn text_of(t: &Thread, value: Value, descriptor: &str) -> Result<Ref, Thrown> {
    let parameter = match Kind::of(descriptor) {
        Kind::Byte | Kind::Short => "I",
        Kind::Reference | Kind::Void => "Ljava/lang/Object;",
        _ => descriptor,
    };
    let signature = format!("({parameter})Ljava/lang/String;");
    let method = t.vm.known().string.declared_method("valueOf", &signature);
    Ok(t.invoke(method.expect("String.valueOf"), &[value])?.reference())
}
