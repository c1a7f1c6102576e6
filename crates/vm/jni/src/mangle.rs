//! Names of functions of native methods, as the JNI specification makes them of Java's names.

use std::fmt::Write as _;

/// `Java_`, the class and the method: a function's short name.
pub fn short_name(class_descriptor: &str, method: &str) -> String {
    let class = class_descriptor.trim_start_matches('L').trim_end_matches(';');
    format!("Java_{}_{}", mangled(class), mangled(method))
}

/// The short name and the parameters: for a method that has namesakes.
pub fn long_name(short_name: &str, signature: &str) -> String {
    let parameters = signature.trim_start_matches('(').split(')').next().unwrap_or("");
    format!("{short_name}__{}", mangled(parameters))
}

fn mangled(name: &str) -> String {
    let mut to = String::new();
    for unit in name.encode_utf16() {
        match u8::try_from(unit).map(char::from) {
            Ok(plain) if plain.is_ascii_alphanumeric() => to.push(plain),
            Ok('/') => to.push('_'),
            Ok('_') => to.push_str("_1"),
            Ok(';') => to.push_str("_2"),
            Ok('[') => to.push_str("_3"),
            _ => write!(to, "_0{unit:04x}").expect("a string takes all"),
        }
    }
    to
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_mangled_as_javac_does() {
        for (class, method, signature, short, long) in [
            ("LA;", "f", "()V", "Java_A_f", "Java_A_f__"),
            ("Lp/q/A;", "g_h", "(I)V", "Java_p_q_A_g_1h", "Java_p_q_A_g_1h__I"),
            (
                "LA$B;",
                "f",
                "(J[Ljava/lang/String;Z)I",
                "Java_A_00024B_f",
                "Java_A_00024B_f__J_3Ljava_lang_String_2Z",
            ),
            (
                "LA;",
                "\u{e9}\u{1f600}",
                "()V",
                "Java_A__000e9_0d83d_0de00",
                "Java_A__000e9_0d83d_0de00__",
            ),
        ] {
            assert_eq!(short_name(class, method), short);
            assert_eq!(long_name(short, signature), long);
        }
    }
}
