//! java.lang.Math, by the system's functions, and StrictMath, by fdlibm's, which are the same
//! everywhere

use crate::stack::Value;
use crate::vm::Native;

macro_rules! unary {
    ($class:literal, $($name:literal => $function:expr),+ $(,)?) => {
        &[$(($class, $name, "(D)D", |_, a| {
            let function: fn(f64) -> f64 = $function;
            Ok(Value::Double(function(a.double(0))))
        })),+]
    };
}

macro_rules! binary {
    ($class:literal, $($name:literal => $function:expr),+ $(,)?) => {
        &[$(($class, $name, "(DD)D", |_, a| {
            let function: fn(f64, f64) -> f64 = $function;
            Ok(Value::Double(function(a.double(0), a.double(2))))
        })),+]
    };
}

pub(super) const TABLES: [&[Native]; 4] = [
    unary!("Ljava/lang/StrictMath;",
        "sin" => libm::sin,
        "cos" => libm::cos,
        "tan" => libm::tan,
        "asin" => libm::asin,
        "acos" => libm::acos,
        "atan" => libm::atan,
        "sinh" => libm::sinh,
        "cosh" => libm::cosh,
        "tanh" => libm::tanh,
        "exp" => libm::exp,
        "expm1" => libm::expm1,
        "log" => libm::log,
        "log10" => libm::log10,
        "log1p" => libm::log1p,
        "cbrt" => libm::cbrt,
        "sqrt" => f64::sqrt,
        "ceil" => f64::ceil,
        "floor" => f64::floor,
        "rint" => f64::round_ties_even,
    ),
    binary!("Ljava/lang/StrictMath;",
        "atan2" => libm::atan2,
        "hypot" => |x, y| hypot(x, y, libm::hypot),
        "pow" => |base, exponent| pow(base, exponent, libm::pow),
        "IEEEremainder" => libm::remainder,
        "nextafter" => libm::nextafter,
    ),
    unary!("Ljava/lang/Math;",
        "sin" => f64::sin,
        "cos" => f64::cos,
        "tan" => f64::tan,
        "asin" => f64::asin,
        "acos" => f64::acos,
        "atan" => f64::atan,
        "sinh" => f64::sinh,
        "cosh" => f64::cosh,
        "tanh" => f64::tanh,
        "exp" => f64::exp,
        "expm1" => f64::exp_m1,
        "log" => f64::ln,
        "log10" => f64::log10,
        "log1p" => f64::ln_1p,
        "cbrt" => f64::cbrt,
        "sqrt" => f64::sqrt,
        "ceil" => f64::ceil,
        "floor" => f64::floor,
        "rint" => f64::round_ties_even,
    ),
    binary!("Ljava/lang/Math;",
        "atan2" => f64::atan2,
        "hypot" => |x, y| hypot(x, y, f64::hypot),
        "pow" => |base, exponent| pow(base, exponent, f64::powf),
        "IEEEremainder" => libm::remainder,
        "nextafter" => libm::nextafter,
    ),
];

/// Methods of Math whose bytecode has an error: half is added before it is rounded down, which is
/// wrong for the number below half and for odd ones above 2^52.
pub(super) const ROUND: &[Native] = &[
    ("Ljava/lang/Math;", "round", "(D)J", |_, a| {
        let (value, floor) = (a.double(0), a.double(0).floor());
        Ok(Value::Long(if value - floor >= 0.5 { floor + 1.0 } else { floor } as i64))
    }),
    ("Ljava/lang/Math;", "round", "(F)I", |_, a| {
        let (value, floor) = (a.float(0), a.float(0).floor());
        Ok(Value::Int(if value - floor >= 0.5 { floor + 1.0 } else { floor } as i32))
    }),
];

/// Java differs from C: one to the power of NaN or infinity, and minus one to infinity, are NaN.
fn pow(base: f64, exponent: f64, of: fn(f64, f64) -> f64) -> f64 {
    if exponent.is_nan() || base.abs() == 1.0 && exponent.is_infinite() {
        return f64::NAN;
    }
    of(base, exponent)
}

fn hypot(x: f64, y: f64, of: fn(f64, f64) -> f64) -> f64 {
    if x.is_infinite() || y.is_infinite() { f64::INFINITY } else { of(x, y) }
}
