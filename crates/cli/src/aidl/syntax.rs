//! The syntax of AIDL: a file's text becomes declarations. `grammar.pest` is the grammar.
//!
//! Names are as they are written: [`interface`](super::interface) finds what they name.
//!
//! The published parsers do not serve: `aidl-parser` knows no unions, nested types, fixed lengths
//! and expressions, and no other crate can name the types of `rsbinder-aidl`'s tree.
//!
//! Source: Android's AIDL language, as its documentation and `aidl_language_y.yy` have it.

use pest::Parser;
use pest::error::{Error, ErrorVariant, LineColLocation};
use pest::iterators::{Pair, Pairs};
use pest::pratt_parser::{Assoc, Op, PrattParser};
use std::fmt::{Display, Formatter};
use std::sync::LazyLock;

#[derive(pest_derive::Parser)]
#[grammar = "aidl/grammar.pest"]
struct Grammar;

/// Brackets within brackets that a file may have. The parser calls itself for each.
const DEEPEST_BRACKETS: usize = 100;
/// Operands and operators of one expression, for each of which the values are nested once more.
const LONGEST_EXPRESSION: usize = 1000;

/// A place where the text is not AIDL.
#[derive(Debug, PartialEq, Eq)]
pub struct SyntaxError {
    pub line: usize,
    pub column: usize,
    pub wrong: String,
}

/// A file.
#[derive(Debug, Default)]
pub struct Document {
    pub package: String,
    /// Full names.
    pub imports: Vec<String>,
    pub declarations: Vec<Declaration>,
}

/// A named type, with what is declared in it.
#[derive(Debug)]
pub struct Declaration {
    pub name: String,
    pub body: Body,
    pub constants: Vec<(String, Value)>,
    pub nested: Vec<Declaration>,
}

/// What a declaration declares.
#[derive(Debug)]
pub enum Body {
    Interface(Vec<Method>),
    Parcelable(Vec<Field>),
    Union(Vec<Field>),
    /// An enumeration: its backing type, and its names with their values.
    Enumeration(String, Vec<(String, Option<Value>)>),
    /// A type whose form AIDL does not tell, or that has parameters: a reason.
    Unknown(&'static str),
}

/// A method of an interface.
#[derive(Debug)]
pub struct Method {
    pub name: String,
    pub oneway: bool,
    pub result: TypeName,
    pub arguments: Vec<Argument>,
    /// The number that the file gives it.
    pub code: Option<u32>,
}

/// A parameter of a method.
#[derive(Debug)]
pub struct Argument {
    pub direction: Direction,
    pub of_type: TypeName,
    pub name: String,
}

/// Which way a parameter's value goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    In,
    Out,
    InOut,
}

/// A field of a parcelable or a member of a union.
#[derive(Debug)]
pub struct Field {
    pub of_type: TypeName,
    pub name: String,
    pub default: Option<Value>,
}

/// A type, as it is written.
#[derive(Debug)]
pub struct TypeName {
    pub nullable: bool,
    pub name: String,
    pub parameters: Vec<TypeName>,
    /// Dimensions of an array, the outermost first; `None` for any length.
    pub dimensions: Vec<Option<Value>>,
}

/// A constant, as it is written.
#[derive(Debug)]
pub enum Value {
    Boolean(bool),
    Integer(i64),
    Float(f64),
    Text(String),
    Name(String),
    List(Vec<Value>),
    Unary(char, Box<Value>),
    Binary(Infix, Box<Value>, Box<Value>),
}

/// An operator between two values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Infix {
    Or,
    And,
    BitOr,
    BitXor,
    BitAnd,
    Equal,
    Unequal,
    Less,
    More,
    AtMost,
    AtLeast,
    Left,
    Right,
    Plus,
    Minus,
    Times,
    Divided,
    Modulo,
}

impl Infix {
    fn of(rule: Rule) -> Infix {
        match rule {
            Rule::or => Infix::Or,
            Rule::and => Infix::And,
            Rule::bit_or => Infix::BitOr,
            Rule::bit_xor => Infix::BitXor,
            Rule::bit_and => Infix::BitAnd,
            Rule::equal => Infix::Equal,
            Rule::unequal => Infix::Unequal,
            Rule::less => Infix::Less,
            Rule::more => Infix::More,
            Rule::at_most => Infix::AtMost,
            Rule::at_least => Infix::AtLeast,
            Rule::left => Infix::Left,
            Rule::right => Infix::Right,
            Rule::plus => Infix::Plus,
            Rule::minus => Infix::Minus,
            Rule::times => Infix::Times,
            Rule::divided => Infix::Divided,
            Rule::modulo => Infix::Modulo,
            rule => unreachable!("{rule:?} is no operator"),
        }
    }
}

/// The precedence of C, the weakest first.
static OPERATORS: LazyLock<PrattParser<Rule>> = LazyLock::new(|| {
    let left = |rules: &[Rule]| {
        let op = |rule: &Rule| Op::infix(*rule, Assoc::Left);
        rules.iter().map(op).reduce(|all, op| all | op).expect("there are some")
    };
    PrattParser::new()
        .op(left(&[Rule::or]))
        .op(left(&[Rule::and]))
        .op(left(&[Rule::bit_or]))
        .op(left(&[Rule::bit_xor]))
        .op(left(&[Rule::bit_and]))
        .op(left(&[Rule::equal, Rule::unequal]))
        .op(left(&[Rule::less, Rule::more, Rule::at_most, Rule::at_least]))
        .op(left(&[Rule::left, Rule::right]))
        .op(left(&[Rule::plus, Rule::minus]))
        .op(left(&[Rule::times, Rule::divided, Rule::modulo]))
        .op(Op::prefix(Rule::prefix))
});

/// Parses a file's text.
pub fn parse(text: &str) -> Result<Document, SyntaxError> {
    check_depth(text)?;
    let document = Grammar::parse(Rule::document, text).map_err(|error| explain(&error))?;
    let mut parsed = Document::default();
    for pair in inner_of(document) {
        match pair.as_rule() {
            Rule::package => parsed.package = only(pair).as_str().to_owned(),
            Rule::import => parsed.imports.push(only(pair).as_str().to_owned()),
            Rule::declaration => parsed.declarations.push(declaration(pair)?),
            _ => {}
        }
    }
    Ok(parsed)
}

fn explain(error: &Error<Rule>) -> SyntaxError {
    let (line, column) = match error.line_col {
        LineColLocation::Pos(place) | LineColLocation::Span(place, _) => place,
    };
    let mut expected = match &error.variant {
        ErrorVariant::ParsingError { positives, .. } => {
            positives.iter().map(|rule| spoken(*rule)).collect()
        }
        ErrorVariant::CustomError { message } => vec![message.as_str()],
    };
    expected.sort_unstable();
    expected.dedup();
    SyntaxError { line, column, wrong: format!("expected {}", expected.join(" or ")) }
}

/// A part of the grammar in words.
fn spoken(rule: Rule) -> &'static str {
    match rule {
        Rule::EOI => "the end of the file",
        Rule::path | Rule::name | Rule::enumerator | Rule::parameter => "a name",
        Rule::type_ => "a type",
        Rule::text | Rule::header => "a string",
        Rule::integer | Rule::float => "a number",
        Rule::method => "a method",
        Rule::field => "a field",
        Rule::fields | Rule::begin => "{",
        Rule::argument | Rule::direction => "a parameter",
        Rule::value
        | Rule::expression
        | Rule::list
        | Rule::prefix
        | Rule::boolean
        | Rule::character => "a value",
        Rule::annotation => "an annotation",
        Rule::constant => "a constant",
        Rule::document
        | Rule::declaration
        | Rule::interface
        | Rule::parcelable
        | Rule::union
        | Rule::enumeration
        | Rule::import
        | Rule::package
        | Rule::oneway => "a declaration",
        Rule::semicolon => ";",
        Rule::comma => ",",
        Rule::assign => "=",
        Rule::finish => "}",
        Rule::open => "(",
        Rule::close => ")",
        Rule::dimension => "[",
        Rule::dimension_end => "]",
        Rule::generics => "<",
        Rule::generics_end => ">",
        Rule::keyword => "a keyword",
        _ => "an operator",
    }
}

/// The parts of a rule without punctuation.
fn parts_of(pair: Pair<'_, Rule>) -> impl Iterator<Item = Pair<'_, Rule>> {
    pair.into_inner().filter(|part| {
        !matches!(
            part.as_rule(),
            Rule::semicolon
                | Rule::comma
                | Rule::assign
                | Rule::begin
                | Rule::finish
                | Rule::open
                | Rule::close
                | Rule::dimension_end
                | Rule::generics_end
        )
    })
}

fn check_depth(text: &str) -> Result<(), SyntaxError> {
    let (mut round, mut angle) = (0usize, 0usize);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'(' | b'[' | b'{' => round += 1,
            b')' | b']' | b'}' => round = round.saturating_sub(1),
            b'<' => angle += 1,
            b'>' => angle = angle.saturating_sub(1),
            // No type and no expression goes past it.
            b';' => angle = 0,
            _ => {}
        }
        if round.max(angle) > DEEPEST_BRACKETS {
            let (line, column) = pest::Position::new(text, at).expect("a whole letter").line_col();
            let wrong = format!("more than {DEEPEST_BRACKETS} brackets within each other");
            return Err(SyntaxError { line, column, wrong });
        }
    }
    Ok(())
}

fn inner_of(pairs: Pairs<'_, Rule>) -> Pairs<'_, Rule> {
    pairs.peek().map(Pair::into_inner).expect("the grammar has one document")
}

/// The one part of a rule.
fn only(pair: Pair<'_, Rule>) -> Pair<'_, Rule> {
    parts_of(pair).next().expect("the grammar has one part here")
}

/// An error at the beginning of a part that the grammar accepts.
fn wrong_at(pair: &Pair<'_, Rule>, wrong: impl Into<String>) -> SyntaxError {
    let (line, column) = pair.line_col();
    SyntaxError { line, column, wrong: wrong.into() }
}

/// An annotation's name, and its values by their names.
type Annotation = (String, Vec<(String, String)>);

fn annotation(pair: Pair<'_, Rule>) -> Annotation {
    let mut parts = parts_of(pair);
    let name = parts.next().expect("an annotation has a name").as_str().to_owned();
    let parameters = parts.filter(|part| part.as_rule() == Rule::parameter).map(|part| {
        let mut parts = parts_of(part);
        let mut text = || parts.next().expect("a name and a value").as_str().to_owned();
        (text(), text())
    });
    (name, parameters.collect())
}

fn declaration(pair: Pair<'_, Rule>) -> Result<Declaration, SyntaxError> {
    let (mut annotations, mut declared) = (Vec::new(), None);
    for part in parts_of(pair) {
        match part.as_rule() {
            Rule::annotation => annotations.push(annotation(part)),
            _ => declared = Some(part),
        }
    }
    let declared = declared.expect("the grammar has one declaration here");
    let kind = declared.as_rule();
    let mut made = Declaration {
        name: String::new(),
        body: Body::Unknown("it is declared without a body"),
        constants: Vec::new(),
        nested: Vec::new(),
    };
    let (mut oneway, mut generic) = (false, false);
    let (mut methods, mut fields, mut enumerators) = (Vec::new(), Vec::new(), Vec::new());
    let mut members: Vec<Pair<'_, Rule>> = Vec::new();
    let has_body = kind != Rule::parcelable && declared.as_str().ends_with('}');
    let mut has_fields = false;
    for part in parts_of(declared) {
        match part.as_rule() {
            Rule::path => made.name = part.as_str().to_owned(),
            Rule::oneway => oneway = true,
            Rule::generics => generic = true,
            Rule::fields => {
                has_fields = true;
                members.extend(parts_of(part));
            }
            _ => members.push(part),
        }
    }
    for part in members {
        match part.as_rule() {
            Rule::constant => made.constants.push(constant(part)?),
            Rule::declaration => made.nested.push(declaration(part)?),
            Rule::method => methods.push(method(part, oneway)?),
            Rule::field => fields.push(field(part)?),
            Rule::enumerator => enumerators.push(enumerator(part)?),
            _ => {}
        }
    }
    made.body = match kind {
        _ if generic => Body::Unknown("it has type parameters"),
        Rule::interface if has_body => Body::Interface(methods),
        Rule::parcelable if has_fields => Body::Parcelable(fields),
        Rule::union => Body::Union(fields),
        Rule::enumeration => Body::Enumeration(backing(&annotations), enumerators),
        _ => made.body,
    };
    Ok(made)
}

/// The backing type of an enumeration.
fn backing(annotations: &[Annotation]) -> String {
    let backing = annotations.iter().find(|(name, _)| name == "Backing");
    let parameter = backing.and_then(|(_, values)| values.iter().find(|(name, _)| name == "type"));
    parameter.map_or("byte", |(_, value)| value.trim_matches('"')).to_owned()
}

fn constant(pair: Pair<'_, Rule>) -> Result<(String, Value), SyntaxError> {
    let (mut name, mut made) = (String::new(), None);
    for part in parts_of(pair) {
        match part.as_rule() {
            Rule::name => name = part.as_str().to_owned(),
            Rule::value => made = Some(value(part)?),
            _ => {}
        }
    }
    Ok((name, made.expect("a constant has a value")))
}

fn enumerator(pair: Pair<'_, Rule>) -> Result<(String, Option<Value>), SyntaxError> {
    let mut parts = parts_of(pair);
    let name = parts.next().expect("an enumerator has a name").as_str().to_owned();
    Ok((name, parts.next().map(value).transpose()?))
}

fn field(pair: Pair<'_, Rule>) -> Result<Field, SyntaxError> {
    let mut parts = parts_of(pair);
    let mut next = || parts.next().expect("a field has a type and a name");
    let (of_type, name) = (type_name(next())?, next().as_str().to_owned());
    Ok(Field { of_type, name, default: parts.next().map(value).transpose()? })
}

fn method(pair: Pair<'_, Rule>, all_oneway: bool) -> Result<Method, SyntaxError> {
    let (mut annotations, mut made) = (Vec::new(), None);
    let (mut oneway, mut name, mut arguments, mut code) = (all_oneway, None, Vec::new(), None);
    for part in parts_of(pair) {
        match part.as_rule() {
            Rule::annotation => annotations.push(annotation(part)),
            Rule::oneway => oneway = true,
            Rule::type_ => made = Some(type_name(part)?),
            Rule::name => name = Some(part.as_str().to_owned()),
            Rule::argument => arguments.push(argument(part)?),
            Rule::integer => {
                let number = part.as_str().parse().ok().filter(|number| *number <= LAST_METHOD);
                code = Some(number.ok_or_else(|| {
                    wrong_at(&part, format!("a method's number is at most {LAST_METHOD}"))
                })?);
            }
            _ => {}
        }
    }
    let mut result = made.expect("a method has a type");
    result.nullable |= annotations.iter().any(|(name, _)| name == "nullable");
    let name = name.expect("a method has a name");
    Ok(Method { name, oneway, result, arguments, code })
}

/// The last number of a method: those behind it are the interface's own.
const LAST_METHOD: u32 = 0x00ff_ff00;

fn argument(pair: Pair<'_, Rule>) -> Result<Argument, SyntaxError> {
    let mut direction = Direction::In;
    let (mut of_type, mut name) = (None, String::new());
    for part in parts_of(pair) {
        match (part.as_rule(), part.as_str()) {
            (Rule::direction, "out") => direction = Direction::Out,
            (Rule::direction, "inout") => direction = Direction::InOut,
            (Rule::type_, _) => of_type = Some(type_name(part)?),
            (Rule::name, text) => name = text.to_owned(),
            _ => {}
        }
    }
    Ok(Argument { direction, of_type: of_type.expect("a parameter has a type"), name })
}

fn type_name(pair: Pair<'_, Rule>) -> Result<TypeName, SyntaxError> {
    let (mut nullable, mut name) = (false, String::new());
    let (mut parameters, mut dimensions) = (Vec::new(), Vec::new());
    for part in parts_of(pair) {
        match part.as_rule() {
            Rule::annotation => nullable |= annotation(part).0 == "nullable",
            Rule::path => name = part.as_str().to_owned(),
            Rule::generics => {
                let types = parts_of(part).map(type_name);
                parameters = types.collect::<Result<Vec<_>, _>>()?;
            }
            Rule::dimension => {
                dimensions.push(parts_of(part).next().map(value).transpose()?);
            }
            _ => {}
        }
    }
    Ok(TypeName { nullable, name, parameters, dimensions })
}

fn value(pair: Pair<'_, Rule>) -> Result<Value, SyntaxError> {
    let inner = only(pair);
    match inner.as_rule() {
        Rule::list => Ok(Value::List(parts_of(inner).map(value).collect::<Result<Vec<_>, _>>()?)),
        _ => expression(inner),
    }
}

fn expression(pair: Pair<'_, Rule>) -> Result<Value, SyntaxError> {
    if parts_of(pair.clone()).nth(LONGEST_EXPRESSION).is_some() {
        return Err(wrong_at(&pair, "the expression is too long"));
    }
    OPERATORS
        .map_primary(|primary| match primary.as_rule() {
            Rule::expression => expression(primary),
            _ => literal(&primary),
        })
        .map_prefix(|sign, operand| {
            let sign = sign.as_str().chars().next().expect("a sign is a letter");
            Ok(Value::Unary(sign, Box::new(operand?)))
        })
        .map_infix(|left, operator, right| {
            let operator = Infix::of(operator.as_rule());
            Ok(Value::Binary(operator, Box::new(left?), Box::new(right?)))
        })
        .parse(parts_of(pair))
}

fn literal(pair: &Pair<'_, Rule>) -> Result<Value, SyntaxError> {
    let text = pair.as_str();
    Ok(match pair.as_rule() {
        Rule::boolean => Value::Boolean(text == "true"),
        Rule::text | Rule::character => Value::Text(text[1..text.len() - 1].to_owned()),
        Rule::float => {
            let digits = text.trim_end_matches('f').replace('_', "");
            Value::Float(digits.parse().map_err(|error| wrong_at(pair, format!("{error}")))?)
        }
        Rule::integer => {
            let number = integer(text).ok_or_else(|| wrong_at(pair, "the number is too large"));
            Value::Integer(number?)
        }
        _ => Value::Name(text.to_owned()),
    })
}

/// A number without a sign. A hexadecimal one may have the sign's bit.
fn integer(text: &str) -> Option<i64> {
    let digits = text.replace('_', "");
    let is_unsigned = |bits: &str| digits.ends_with(bits);
    let bits = match () {
        () if is_unsigned("u8") => Some(8),
        () if is_unsigned("u32") => Some(32),
        () if is_unsigned("u64") || digits.ends_with(['l', 'L']) => Some(64),
        () => None,
    };
    let plain = digits.trim_end_matches(['l', 'L']);
    let plain = plain.split_once('u').map_or(plain, |(plain, _)| plain);
    let Some(hexadecimal) = plain.strip_prefix("0x").or_else(|| plain.strip_prefix("0X")) else {
        return plain.parse().ok();
    };
    let number = u64::from_str_radix(hexadecimal, 16).ok()?;
    match bits {
        Some(8) => u8::try_from(number).ok().map(|byte| i64::from(byte as i8)),
        Some(64) => Some(number as i64),
        _ => Some(u32::try_from(number).map_or(number as i64, |word| i64::from(word as i32))),
    }
}

impl Display for TypeName {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        let nullable = if self.nullable { "@nullable " } else { "" };
        write!(f, "{nullable}{}", self.name)?;
        for (place, parameter) in self.parameters.iter().enumerate() {
            write!(f, "{}{parameter}", if place == 0 { "<" } else { ", " })?;
        }
        f.write_str(if self.parameters.is_empty() { "" } else { ">" })?;
        self.dimensions.iter().try_for_each(|dimension| match dimension {
            Some(Value::Integer(length)) => write!(f, "[{length}]"),
            Some(Value::Name(name)) => write!(f, "[{name}]"),
            Some(_) => f.write_str("[...]"),
            None => f.write_str("[]"),
        })
    }
}

impl Display for Argument {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        let direction = match self.direction {
            Direction::In => "",
            Direction::Out => "out ",
            Direction::InOut => "inout ",
        };
        write!(f, "{direction}{} {}", self.of_type, self.name)
    }
}

/// The method's signature.
impl Display for Method {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        let oneway = if self.oneway { "oneway " } else { "" };
        write!(f, "{oneway}{} {}(", self.result, self.name)?;
        for (place, argument) in self.arguments.iter().enumerate() {
            write!(f, "{}{argument}", if place == 0 { "" } else { ", " })?;
        }
        f.write_str(")")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVERYTHING: &str = "// a comment without an end of line is at the end\n\
             package a.b; import a.b.Other; /* here, too */ import c.D;\n\
             @VintfStability @Descriptor(value=\"x\") interface IThing {\n\
               const int FLAG = 1 << 3 | 0xff & ~2; const String NAME = \"a\";\n\
               @Backing(type=\"int\") enum Kind { ONE = 1, TWO, }\n\
               union Either { int[] numbers = {1, 2,}; String text; }\n\
               @nullable List<List<String>> first(in @nullable int[] v, out byte[][4] w) = 10;\n\
               oneway void second(onewayThing t, inout Kind[FLAG] inner) = 11;\n\
             }\n\
             parcelable Flat cpp_header \"a.h\" rust_type \"b\"; parcelable Pair<A, B> { int x; }\n\
             parcelable Floats {\n\
               float a = 1.5f; double b = .5e-3; char c = 'x'; boolean d = !true;\n\
             }\n\
             interface IForward;// end";

    #[test]
    fn every_construct_is_accepted() {
        let document = parse(EVERYTHING).unwrap();
        assert_eq!((document.package.as_str(), document.imports.len()), ("a.b", 2));
        let names = document.declarations.iter().map(|it| it.name.as_str());
        assert!(names.eq(["IThing", "Flat", "Pair", "Floats", "IForward"]));
        let thing = &document.declarations[0];
        let Body::Interface(methods) = &thing.body else { panic!("an interface") };
        assert_eq!(
            methods.iter().map(|method| format!("{method}")).collect::<Vec<_>>(),
            [
                "@nullable List<List<String>> first(@nullable int[] v, out byte[][4] w)",
                "oneway void second(onewayThing t, inout Kind[FLAG] inner)",
            ]
        );
        assert_eq!(methods[1].code, Some(11));
        let nested = thing.nested.iter().map(|it| it.name.as_str());
        assert!(nested.eq(["Kind", "Either"]));
        for unknown in [1, 2, 4] {
            let body = &document.declarations[unknown].body;
            assert!(matches!(body, Body::Unknown(_)), "{body:?}");
        }
    }

    #[test]
    fn a_file_that_is_cut_short_is_an_error() {
        let interface = EVERYTHING.find("IThing").unwrap()..EVERYTHING.find("Flat").unwrap() - 12;
        for (at, _) in EVERYTHING.char_indices() {
            let parsed = parse(&EVERYTHING[..at]);
            assert!(parsed.is_err() || !interface.contains(&at), "{at}");
        }
    }

    #[test]
    fn errors_have_their_places() {
        for (text, line, column, expected) in [
            ("interface IThing {\n  void first(;\n}", 2, 14, ") or a parameter"),
            ("interface IThing {\n  int x", 2, 8, "("),
            ("package a\ninterface I {}", 2, 1, ";"),
            ("interface I { int f(int); }", 1, 24, "< or [ or a name"),
            ("parcelable P { int x = ; }", 1, 24, "a value"),
            ("interface I { void f() = 16777000; }", 1, 26, "at most 16776960"),
            ("interface I { const int X = 99999999999999999999; }", 1, 29, "too large"),
            ("enum E { }", 1, 10, "a name"),
            ("what is this", 1, 1, "a declaration"),
        ] {
            let SyntaxError { line: at_line, column: at_column, wrong } = parse(text).unwrap_err();
            assert_eq!((at_line, at_column), (line, column), "{text}: {wrong}");
            assert!(wrong.contains(expected), "{text}: {wrong}");
        }
        let deep = format!("interface I {{ const int X = {}1; }}", "(".repeat(100_000));
        assert_eq!(parse(&deep).unwrap_err().line, 1);
        let deep = format!("interface I {{ {}", "A<".repeat(100_000));
        assert_eq!(parse(&deep).unwrap_err().line, 1);
        let long = format!("interface I {{ const int X = {}1; }}", "-".repeat(100_000));
        assert_eq!(parse(&long).unwrap_err().wrong, "the expression is too long");
    }

    #[test]
    fn numbers_in_hexadecimal_may_be_negative() {
        for (text, number) in [
            ("1_000", 1000),
            ("0xff", 255),
            ("0xffu8", -1),
            ("0xffffffff", -1),
            ("0xffffffffL", 0xffff_ffff),
            ("0xffff_ffff_ffff_ffff", -1),
            ("9223372036854775807L", i64::MAX),
        ] {
            assert_eq!(integer(text), Some(number), "{text}");
        }
        assert_eq!(integer("9223372036854775808"), None);
    }
}
