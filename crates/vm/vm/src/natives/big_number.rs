//! java.math.NativeBN: integers of any size

use super::digest;
use super::handles::Handles;
use super::values::{Outcome, VOID, boolean, byte_range, bytes, non_null, primitives, rust, text};
use crate::object::Kind;
use crate::stack::{Args, Value};
use crate::vm::{Native, Thread, Thrown};
use num_bigint::{BigInt, BigUint, Sign};
use num_integer::Integer;
use num_traits::{One, Signed, ToPrimitive, Zero};
use std::sync::{Arc, Mutex};

const BN: &str = "Ljava/math/NativeBN;";

static NUMBERS: Handles<Mutex<BigInt>> = Handles::new();

pub(super) const TABLE: &[Native] = &[
    (BN, "BN_new", "()J", |_, _| Ok(Value::Long(NUMBERS.add(Arc::default())))),
    (BN, "BN_free", "(J)V", |_, a| {
        NUMBERS.remove(a.long(0));
        VOID
    }),
    (BN, "BN_copy", "(JJ)V", |t, a| put(t, a, get(t, a.long(2))?)),
    (BN, "BN_cmp", "(JJ)I", |t, a| {
        Ok(Value::Int(get(t, a.long(0))?.cmp(&get(t, a.long(2))?) as i32))
    }),
    (BN, "putLongInt", "(JJ)V", |t, a| put(t, a, a.long(2).into())),
    (BN, "putULongInt", "(JJZ)V", |t, a| {
        let value = BigInt::from(a.long(2) as u64);
        put(t, a, if a.boolean(4) { -value } else { value })
    }),
    (BN, "longInt", "(J)J", |t, a| {
        let value = get(t, a.long(0))?;
        // The low bits in two's complement.
        let low = value.magnitude().iter_u64_digits().next().unwrap_or(0) as i64;
        Ok(Value::Long(if value.is_negative() { low.wrapping_neg() } else { low }))
    }),
    (BN, "BN_dec2bn", "(JLjava/lang/String;)I", |t, a| read(t, a, 10)),
    (BN, "BN_hex2bn", "(JLjava/lang/String;)I", |t, a| read(t, a, 16)),
    (BN, "BN_bn2dec", "(J)Ljava/lang/String;", |t, a| {
        Ok(Value::Ref(text(t, &get(t, a.long(0))?.to_str_radix(10))?))
    }),
    (BN, "BN_bn2hex", "(J)Ljava/lang/String;", |t, a| {
        Ok(Value::Ref(text(t, &get(t, a.long(0))?.to_str_radix(16).to_uppercase())?))
    }),
    (BN, "BN_bin2bn", "([BIZJ)V", |t, a| {
        let magnitude = BigUint::from_bytes_be(&byte_range(t, a.reference(0), 0, a.int(1))?);
        store(t, a.long(3), signed(magnitude, a.boolean(2)))
    }),
    (BN, "litEndInts2bn", "([IIZJ)V", |t, a| {
        let (array, count) = (a.reference(0), a.int(1));
        super::values::check_range(t, array, 0, count)?;
        let words = (0..count as u32).map(|index| array.get_i32(index) as u32).collect();
        store(t, a.long(3), signed(BigUint::new(words), a.boolean(2)))
    }),
    (BN, "twosComp2bn", "([BIJ)V", |t, a| {
        let value = byte_range(t, a.reference(0), 0, a.int(1))?;
        store(t, a.long(2), BigInt::from_signed_bytes_be(&value))
    }),
    (BN, "BN_bn2bin", "(J)[B", |t, a| {
        let value = get(t, a.long(0))?;
        let magnitude = if value.is_zero() { Vec::new() } else { value.magnitude().to_bytes_be() };
        Ok(Value::Ref(bytes(t, &magnitude)?))
    }),
    (BN, "bn2litEndInts", "(J)[I", |t, a| {
        let words = get(t, a.long(0))?.magnitude().to_u32_digits();
        let words = if words.is_empty() { vec![0] } else { words };
        let array = primitives(t, Kind::Int, words.len())?;
        for (index, word) in (0..).zip(words) {
            array.set_i32(index, word as i32);
        }
        Ok(Value::Ref(array))
    }),
    (BN, "sign", "(J)I", |t, a| {
        let sign = match get(t, a.long(0))?.sign() {
            Sign::Minus => -1,
            Sign::NoSign => 0,
            Sign::Plus => 1,
        };
        Ok(Value::Int(sign))
    }),
    (BN, "BN_set_negative", "(JI)V", |t, a| {
        let magnitude = get(t, a.long(0))?.magnitude().clone();
        put(t, a, signed(magnitude, a.int(2) != 0))
    }),
    // The length in two's complement without the sign.
    (BN, "bitLength", "(J)I", |t, a| {
        let value = get(t, a.long(0))?;
        let bits = if value.is_negative() { (-value - 1i32).bits() } else { value.bits() };
        Ok(Value::Int(bits as i32))
    }),
    (BN, "BN_is_bit_set", "(JI)Z", |t, a| {
        boolean(get(t, a.long(0))?.magnitude().bit(a.int(2) as u64))
    }),
    (BN, "BN_shift", "(JJI)V", |t, a| {
        // Of the magnitude.
        let (value, by) = (get(t, a.long(2))?, a.int(4));
        let magnitude = value.magnitude();
        let by_bits = u64::from(by.unsigned_abs());
        let shifted = if by >= 0 { magnitude << by_bits } else { magnitude >> by_bits };
        put(t, a, signed(shifted, value.is_negative()))
    }),
    (BN, "BN_add_word", "(JI)V", |t, a| {
        let value = get(t, a.long(0))? + a.int(2) as u32;
        put(t, a, value)
    }),
    (BN, "BN_mul_word", "(JI)V", |t, a| {
        let value = get(t, a.long(0))? * a.int(2) as u32;
        put(t, a, value)
    }),
    (BN, "BN_mod_word", "(JI)I", |t, a| {
        let by = a.int(2) as u32;
        if by == 0 {
            return Err(by_zero(t));
        }
        let rest = get(t, a.long(0))?.magnitude() % by;
        Ok(Value::Int(rest.to_u32().unwrap_or(0) as i32))
    }),
    (BN, "BN_add", "(JJJ)V", |t, a| put(t, a, get(t, a.long(2))? + get(t, a.long(4))?)),
    (BN, "BN_sub", "(JJJ)V", |t, a| put(t, a, get(t, a.long(2))? - get(t, a.long(4))?)),
    (BN, "BN_mul", "(JJJ)V", |t, a| put(t, a, get(t, a.long(2))? * get(t, a.long(4))?)),
    (BN, "BN_gcd", "(JJJ)V", |t, a| put(t, a, get(t, a.long(2))?.gcd(&get(t, a.long(4))?))),
    (BN, "BN_exp", "(JJJ)V", |t, a| {
        let exponent = get(t, a.long(4))?.to_u32().unwrap_or(u32::MAX);
        put(t, a, get(t, a.long(2))?.pow(exponent))
    }),
    // Quotient and rest, either of which may be left out.
    (BN, "BN_div", "(JJJJ)V", |t, a| {
        let (value, by) = (get(t, a.long(4))?, divisor(t, a.long(6))?);
        let (quotient, rest) = (&value / &by, &value % &by);
        if a.long(0) != 0 {
            store(t, a.long(0), quotient)?;
        }
        if a.long(2) != 0 {
            store(t, a.long(2), rest)?;
        }
        VOID
    }),
    (BN, "BN_nnmod", "(JJJ)V", |t, a| {
        let modulus = divisor(t, a.long(4))?;
        put(t, a, get(t, a.long(2))?.mod_floor(&modulus.abs()))
    }),
    (BN, "BN_mod_exp", "(JJJJ)V", |t, a| {
        let modulus = divisor(t, a.long(6))?;
        // The library has inverted the number if the exponent is negative.
        let exponent = get(t, a.long(4))?.abs();
        put(t, a, get(t, a.long(2))?.modpow(&exponent, &modulus))
    }),
    (BN, "BN_mod_inverse", "(JJJ)V", |t, a| {
        let modulus = divisor(t, a.long(4))?;
        match get(t, a.long(2))?.modinv(&modulus) {
            Some(inverse) => put(t, a, inverse),
            None => Err(arithmetic(t, "BigInteger not invertible")),
        }
    }),
    // The library asks for no prime of a special form.
    (BN, "BN_generate_prime_ex", "(JIZJJJ)V", |t, a| {
        let bits = a.int(2);
        if bits < 2 {
            return Err(arithmetic(t, "bitLength < 2"));
        }
        let prime = t.safe(|| random_prime(bits as u64));
        put(t, a, prime.into())
    }),
    (BN, "BN_is_prime_ex", "(JIJ)Z", |t, a| boolean(is_prime(get(t, a.long(0))?.magnitude()))),
];

fn arithmetic(t: &Thread, message: &str) -> Thrown {
    super::values::throw(t, "java/lang/ArithmeticException", message)
}

fn by_zero(t: &Thread) -> Thrown {
    arithmetic(t, "BigInteger divide by zero")
}

fn signed(magnitude: BigUint, negative: bool) -> BigInt {
    BigInt::from_biguint(if negative { Sign::Minus } else { Sign::Plus }, magnitude)
}

fn get(t: &Thread, number: i64) -> Result<BigInt, Thrown> {
    let value = NUMBERS.get(number);
    let value = value.ok_or_else(|| super::values::null_pointer(t, "bignum"))?;
    let value = value.lock().expect("no holder panics");
    Ok(value.clone())
}

fn divisor(t: &Thread, number: i64) -> Result<BigInt, Thrown> {
    let value = get(t, number)?;
    if value.is_zero() { Err(by_zero(t)) } else { Ok(value) }
}

fn store(t: &Thread, number: i64, value: BigInt) -> Outcome {
    let place = NUMBERS.get(number).ok_or_else(|| super::values::null_pointer(t, "bignum"))?;
    *place.lock().expect("no holder panics") = value;
    VOID
}

/// Stores a result in the first argument.
fn put(t: &Thread, a: Args, value: BigInt) -> Outcome {
    store(t, a.long(0), value)
}

/// Reads as many digits as there are; returns their number.
fn read(t: &Thread, a: Args, radix: u32) -> Outcome {
    let string = rust(t, non_null(t, a.reference(2), "string")?)?;
    let digits = string.strip_prefix('-').unwrap_or(&string);
    let valid = digits.find(|c: char| !c.is_digit(radix)).unwrap_or(digits.len());
    let magnitude = BigUint::parse_bytes(&digits.as_bytes()[..valid], radix);
    let length = valid + string.len() - digits.len();
    store(t, a.long(0), signed(magnitude.unwrap_or_default(), string.starts_with('-')))?;
    Ok(Value::Int(length as i32))
}

/// A random prime of this many bits, at least 2, of which the highest two are set: so the product
/// of two primes has as many bits as both together.
fn random_prime(bits: u64) -> BigUint {
    loop {
        let bytes = digest::random(bits.div_ceil(8) as usize);
        let mut candidate = BigUint::from_bytes_be(&bytes) >> (bits.next_multiple_of(8) - bits);
        for bit in [0, bits - 2, bits - 1] {
            candidate.set_bit(bit, true);
        }
        if is_prime(&candidate) {
            return candidate;
        }
    }
}

/// Miller and Rabin's test with the first 40 primes as witnesses.
fn is_prime(n: &BigUint) -> bool {
    const WITNESSES: [u32; 40] = [
        2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61, 67, 71, 73, 79, 83, 89,
        97, 101, 103, 107, 109, 113, 127, 131, 137, 139, 149, 151, 157, 163, 167, 173,
    ];
    if *n < BigUint::from(2u32) {
        return false;
    }
    let less = n - 1u32;
    let twos = less.trailing_zeros().unwrap_or(0);
    let odd = &less >> twos;
    WITNESSES.iter().all(|&witness| {
        let witness = BigUint::from(witness);
        if (n % &witness).is_zero() {
            return *n == witness;
        }
        let mut power = witness.modpow(&odd, n);
        if power.is_one() || power == less {
            return true;
        }
        (1..twos).any(|_| {
            power = power.modpow(&BigUint::from(2u32), n);
            power == less
        })
    })
}
