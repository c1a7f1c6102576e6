//! Descriptors of types and signatures of methods, and the names that Java shows for them.

/// The package in a class's descriptor, with the first character.
pub(crate) fn package(descriptor: &str) -> &str {
    descriptor.rsplit_once('/').map_or("", |(package, _)| package)
}

/// The name that error messages show for a descriptor: arrays with `[]`.
pub fn pretty_name(descriptor: &str) -> String {
    let component = descriptor.trim_start_matches('[');
    java_name(component) + &"[]".repeat(descriptor.len() - component.len())
}

/// The name that Java shows for a descriptor.
pub fn java_name(descriptor: &str) -> String {
    let primitive = match descriptor {
        "Z" => "boolean",
        "B" => "byte",
        "C" => "char",
        "S" => "short",
        "I" => "int",
        "J" => "long",
        "F" => "float",
        "D" => "double",
        "V" => "void",
        _ if descriptor.starts_with('[') => return descriptor.replace('/', "."),
        _ => return descriptor[1..descriptor.len() - 1].replace('/', "."),
    };
    primitive.to_owned()
}

/// The descriptor of the result of a signature.
pub fn result_descriptor(signature: &str) -> &str {
    signature.rsplit_once(')').map_or("V", |(_, result)| result)
}

/// Descriptors of the parameters of a signature.
pub fn parameter_descriptors(signature: &str) -> Vec<&str> {
    let inner = signature.trim_start_matches('(');
    let mut rest = inner.split(')').next().unwrap_or("");
    let mut found = Vec::new();
    while !rest.is_empty() {
        let dimensions = rest.bytes().take_while(|byte| *byte == b'[').count();
        let n_bytes = match rest.as_bytes().get(dimensions) {
            Some(b'L') => rest[dimensions..].find(';').map_or(rest.len(), |at| dimensions + at + 1),
            _ => (dimensions + 1).min(rest.len()),
        };
        found.push(&rest[..n_bytes]);
        rest = &rest[n_bytes..];
    }
    found
}
