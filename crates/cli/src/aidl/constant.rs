//! The values of constants: expressions of numbers, truth values, texts and names.

use super::syntax::{Infix, Value};
use serde_json::Value as Json;

/// Why a constant has no value.
pub type NoValue = &'static str;

const OVERFLOW: NoValue = "it does not fit 64 bits";
const MIXED: NoValue = "an operator does not take such operands";

/// The value of a constant. `named` tells that of a name.
pub fn evaluate<E: From<NoValue>>(
    value: &Value,
    named: &dyn Fn(&str) -> Result<Json, E>,
) -> Result<Json, E> {
    Ok(match value {
        Value::Boolean(truth) => Json::from(*truth),
        Value::Integer(number) => Json::from(*number),
        Value::Float(number) => Json::from(*number),
        Value::Text(text) => Json::from(text.as_str()),
        Value::Name(name) => named(name)?,
        Value::List(values) => {
            values.iter().map(|value| evaluate(value, named)).collect::<Result<_, _>>()?
        }
        Value::Unary(sign, operand) => unary(*sign, &evaluate(operand, named)?)?,
        Value::Binary(operator, left, right) => {
            let (left, right) = (evaluate(left, named)?, evaluate(right, named)?);
            binary(*operator, &left, &right)?
        }
    })
}

/// A number or a truth value as a number.
fn number(value: &Json) -> Option<i64> {
    value.as_i64().or_else(|| value.as_bool().map(i64::from))
}

fn unary(sign: char, operand: &Json) -> Result<Json, NoValue> {
    if let ('-' | '+', Json::Number(float)) = (sign, operand)
        && let (true, Some(float)) = (float.is_f64(), float.as_f64())
    {
        return Ok(Json::from(if sign == '-' { -float } else { float }));
    }
    let operand = number(operand).ok_or(MIXED)?;
    Ok(match sign {
        '-' => Json::from(operand.checked_neg().ok_or(OVERFLOW)?),
        '!' => Json::from(operand == 0),
        '~' => Json::from(!operand),
        _ => Json::from(operand),
    })
}

fn binary(operator: Infix, left: &Json, right: &Json) -> Result<Json, NoValue> {
    if let (Infix::Plus, Json::String(left), Json::String(right)) = (operator, left, right) {
        return Ok(Json::from(format!("{left}{right}")));
    }
    let (left, right) = (number(left).ok_or(MIXED)?, number(right).ok_or(MIXED)?);
    let shift = u32::try_from(right).ok().filter(|shift| *shift < 64);
    let result = match operator {
        Infix::Or => return Ok(Json::from(left != 0 || right != 0)),
        Infix::And => return Ok(Json::from(left != 0 && right != 0)),
        Infix::Equal => return Ok(Json::from(left == right)),
        Infix::Unequal => return Ok(Json::from(left != right)),
        Infix::Less => return Ok(Json::from(left < right)),
        Infix::More => return Ok(Json::from(left > right)),
        Infix::AtMost => return Ok(Json::from(left <= right)),
        Infix::AtLeast => return Ok(Json::from(left >= right)),
        Infix::BitOr => Some(left | right),
        Infix::BitXor => Some(left ^ right),
        Infix::BitAnd => Some(left & right),
        Infix::Left => shift.and_then(|shift| left.checked_shl(shift)),
        Infix::Right => shift.and_then(|shift| left.checked_shr(shift)),
        Infix::Plus => left.checked_add(right),
        Infix::Minus => left.checked_sub(right),
        Infix::Times => left.checked_mul(right),
        Infix::Divided => left.checked_div(right),
        Infix::Modulo => left.checked_rem(right),
    };
    result.map(Json::from).ok_or(OVERFLOW)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::aidl::syntax::parse;
    use serde_json::json;

    #[test]
    fn expressions_have_the_precedence_of_c() {
        for (text, value) in [
            ("1 + 2 * 3", json!(7)),
            ("(1 + 2) * 3", json!(9)),
            ("1 << 3 | 1", json!(9)),
            ("7 & 3 == 3", json!(1)),
            ("-2 - -1", json!(-1)),
            ("~0 ^ 1", json!(-2)),
            ("!(1 < 2) || 2 >= 2 && 3 != 4", json!(true)),
            ("9 / 2 % 3", json!(1)),
            ("-1.5", json!(-1.5)),
            ("\"a\" + \"b\"", json!("ab")),
            ("{1, TWO, 'x'}", json!([1, 2, "x"])),
        ] {
            assert_eq!(of(text), Ok(value), "{text}");
        }
        for text in ["1 / 0", "1 << 64", "-0x8000000000000000", "0x7fffffffffffffff + 1"] {
            assert_eq!(of(text), Err(OVERFLOW), "{text}");
        }
        assert_eq!(of("1 + \"a\""), Err(MIXED));
        assert_eq!(of("THREE"), Err("unknown"));
    }

    fn of(text: &str) -> Result<Json, NoValue> {
        let document = parse(&format!("interface I {{ const int X = {text}; }}")).unwrap();
        let named = |name: &str| (name == "TWO").then(|| json!(2)).ok_or("unknown");
        evaluate(&document.declarations[0].constants[0].1, &named)
    }
}
