//! Every type of AIDL, there and back.

use std::collections::HashMap;
use std::fmt::Debug;
use std::io::{Read, Write};
use std::sync::{Arc, Mutex};

use baton_rsbinder_programs::suite::IEcho::{BnEcho, IEcho};
use baton_rsbinder_programs::suite::ITypes::{
    BnTypes, Colour::Colour, Everything::Everything, Files::Files, ITypes, Level::Level,
    Point::Point, Value::Value, Wide::Wide, Wrapped::Wrapped,
};
use rsbinder::{
    BinderResult, ExceptionCode, Interface, ParcelFileDescriptor, SIBinder, Status, StatusCode,
    Strong, hub,
};

use crate::check::{Outcome, equal, holds, step};
use crate::child::{self, Child, Loopers};

struct Echo(String);

impl Interface for Echo {}

impl IEcho for Echo {
    fn name(&self) -> BinderResult<String> {
        Ok(self.0.clone())
    }
}

fn echo(name: &str) -> Strong<dyn IEcho> {
    BnEcho::new_binder(Echo(name.to_owned()))
}

#[derive(Default)]
struct Types {
    made: Mutex<HashMap<String, Strong<dyn IEcho>>>,
}

impl Interface for Types {}

/// Methods that give back what they get.
macro_rules! repeat {
    ($($name:ident: $type:ty),* $(,)?) => {$(
        fn $name(&self, v: $type) -> BinderResult<$type> {
            Ok(v)
        }
    )*};
}

/// Methods that give back a clone of what they borrow.
macro_rules! repeat_clone {
    ($($name:ident: $type:ty),* $(,)?) => {$(
        fn $name(&self, v: &$type) -> BinderResult<$type> {
            Ok(v.clone())
        }
    )*};
}

/// Methods that give back a clone of what may be nothing.
macro_rules! repeat_nullable {
    ($($name:ident: $borrowed:ty => $type:ty),* $(,)?) => {$(
        fn $name(&self, v: Option<&$borrowed>) -> BinderResult<Option<$type>> {
            Ok(v.map(ToOwned::to_owned))
        }
    )*};
}

/// Methods that copy an array and give it back from its end.
macro_rules! reverse {
    ($($name:ident: $type:ty),* $(,)?) => {$(
        fn $name(&self, v: &[$type], copy: &mut Vec<$type>) -> BinderResult<Vec<$type>> {
            *copy = v.to_vec();
            Ok(v.iter().rev().cloned().collect())
        }
    )*};
}

impl ITypes for Types {
    repeat! {
        repeatBoolean: bool, repeatByte: i8, repeatChar: u16, repeatInt: i32, repeatLong: i64,
        repeatFloat: f32, repeatDouble: f64, repeatLevel: Level, repeatColour: Colour,
        repeatWide: Wide,
    }
    reverse! {
        reverseBooleans: bool, reverseBytes: u8, reverseChars: u16, reverseInts: i32,
        reverseLongs: i64, reverseFloats: f32, reverseDoubles: f64, reverseStrings: String,
        reverseLevels: Level, reverseColours: Colour, reverseWides: Wide, reverseList: String,
    }
    repeat_clone! {
        repeatTable: [[i32; 3]; 2], repeatValue: Value, repeatEverything: Everything,
        repeatBinder: SIBinder, repeatEcho: Strong<dyn IEcho>,
    }
    repeat_nullable! {
        repeatNullableString: str => String, repeatNullableInts: [i32] => Vec<i32>,
        repeatNullablePoint: Point => Point,
        repeatNullableList: [Option<String>] => Vec<Option<String>>,
        repeatNullableBinder: SIBinder => SIBinder,
        repeatNullableEcho: Strong<dyn IEcho> => Strong<dyn IEcho>,
    }

    fn repeatString(&self, v: &str) -> BinderResult<String> {
        Ok(v.to_owned())
    }

    fn movePoint(&self, v: &Point, dx: i32, dy: i32) -> BinderResult<Point> {
        Ok(Point { x: v.x + dx, y: v.y + dy, label: v.label.clone() })
    }

    fn growList(&self, v: &mut Vec<String>) -> BinderResult<()> {
        v.push(format!("number {}", v.len()));
        Ok(())
    }

    fn repeatFiles(&self, v: &Files) -> BinderResult<Files> {
        let files =
            v.files.iter().map(ParcelFileDescriptor::try_clone).collect::<Result<_, _>>()?;
        let no_file = v.noFile.as_ref().map(ParcelFileDescriptor::try_clone).transpose()?;
        Ok(Files { files, noFile: no_file })
    }

    fn repeatFile(&self, v: &ParcelFileDescriptor) -> BinderResult<ParcelFileDescriptor> {
        Ok(v.try_clone()?)
    }

    fn unwrap(&self, v: &mut Wrapped) -> BinderResult<()> {
        let point = v.holder.get_parcelable::<Point>()?.ok_or(StatusCode::BadValue)?;
        v.number = point.x;
        let twice = Point { x: point.x * 2, y: point.y * 2, label: point.label.clone() };
        v.holder.set_parcelable(Arc::new(twice))?;
        Ok(())
    }

    fn reverseBinders(
        &self,
        v: &[SIBinder],
        copy: &mut Vec<Option<SIBinder>>,
    ) -> BinderResult<Vec<SIBinder>> {
        *copy = v.iter().cloned().map(Some).collect();
        Ok(v.iter().rev().cloned().collect())
    }

    fn reverseEchoes(&self, v: &[Strong<dyn IEcho>]) -> BinderResult<Vec<Strong<dyn IEcho>>> {
        Ok(v.iter().rev().cloned().collect())
    }

    fn reverseEchoList(&self, v: &[Strong<dyn IEcho>]) -> BinderResult<Vec<Strong<dyn IEcho>>> {
        self.reverseEchoes(v)
    }

    fn make(&self, name: &str) -> BinderResult<Strong<dyn IEcho>> {
        let mut made = self.made.lock().unwrap();
        Ok(made.entry(name.to_owned()).or_insert_with(|| echo(name)).clone())
    }

    fn fail(&self, code: i32, message: &str) -> BinderResult<()> {
        Err(Status::new_service_specific_error(code, Some(message.to_owned())))
    }

    fn missing(&self) -> BinderResult<()> {
        Err(StatusCode::UnknownTransaction.into())
    }
}

/// Role `types NAME`.
pub fn serve(arguments: &[String]) -> Outcome {
    child::open(Loopers::Pool)?;
    child::serve(&arguments[0], BnTypes::new_binder(Types::default()).as_binder())
}

/// Checks that each of `values` comes back from `repeat`.
fn repeated<T: Clone + PartialEq + Debug>(
    what: &str,
    values: &[T],
    repeat: impl Fn(T) -> BinderResult<T>,
) -> Outcome {
    values.iter().try_for_each(|value| equal(what, &repeat(value.clone())?, value))
}

/// Checks that `values` come back reversed, and none of nothing.
fn reversed<T: Clone + Default + PartialEq + Debug>(
    what: &str,
    values: &[T],
    reverse: impl Fn(&[T], &mut Vec<T>) -> BinderResult<Vec<T>>,
) -> Outcome {
    for values in [values, &[]] {
        let mut copy = vec![T::default(); 3];
        let backwards = reverse(values, &mut copy)?;
        equal(what, copy, values)?;
        equal(what, backwards.into_iter().rev().collect::<Vec<_>>(), values)?;
    }
    Ok(())
}

fn strings() -> Vec<String> {
    let long = "long ".repeat(1000);
    let all = ["", "a", "four", "naïve", "日本語", "\u{1f980}", "with\0nul", &long];
    all.map(String::from).to_vec()
}

fn scalars(service: &dyn ITypes) -> Outcome {
    repeated("boolean", &[true, false], |v| service.repeatBoolean(v))?;
    repeated("byte", &[i8::MIN, 0, i8::MAX], |v| service.repeatByte(v))?;
    repeated("char", &[0, b'A'.into(), u16::MAX], |v| service.repeatChar(v))?;
    repeated("int", &[i32::MIN, 0, i32::MAX], |v| service.repeatInt(v))?;
    repeated("long", &[i64::MIN, 0, i64::MAX], |v| service.repeatLong(v))?;
    repeated("float", &[f32::MIN, 0.1, f32::INFINITY], |v| service.repeatFloat(v))?;
    repeated("double", &[f64::MIN, 0.1, f64::INFINITY], |v| service.repeatDouble(v))?;
    repeated("String", &strings(), |v| service.repeatString(&v))?;
    repeated("byte enum", &[Level::LOW, Level::HIGH], |v| service.repeatLevel(v))?;
    repeated("int enum", &[Colour::RED, Colour::BLUE], |v| service.repeatColour(v))?;
    repeated("long enum", &[Wide::SMALLEST, Wide::LARGEST], |v| service.repeatWide(v))
}

fn arrays(service: &dyn ITypes) -> Outcome {
    reversed("boolean[]", &[true, false, false], |v, copy| service.reverseBooleans(v, copy))?;
    reversed("byte[]", &[1, 2, 255], |v, copy| service.reverseBytes(v, copy))?;
    reversed("char[]", &[1, 2, u16::MAX], |v, copy| service.reverseChars(v, copy))?;
    reversed("int[]", &[1, 2, i32::MIN], |v, copy| service.reverseInts(v, copy))?;
    reversed("long[]", &[1, 2, i64::MIN], |v, copy| service.reverseLongs(v, copy))?;
    reversed("float[]", &[1.5, 2.5, f32::MAX], |v, copy| service.reverseFloats(v, copy))?;
    reversed("double[]", &[1.5, 2.5, f64::MAX], |v, copy| service.reverseDoubles(v, copy))?;
    reversed("String[]", &strings(), |v, copy| service.reverseStrings(v, copy))?;
    reversed("byte enum[]", &[Level::LOW, Level::HIGH], |v, copy| service.reverseLevels(v, copy))?;
    reversed("int enum[]", &[Colour::RED, Colour::BLUE], |v, copy| {
        service.reverseColours(v, copy)
    })?;
    reversed("long enum[]", &[Wide::LARGEST, Wide::SMALLEST], |v, copy| {
        service.reverseWides(v, copy)
    })?;
    reversed("List<String>", &strings(), |v, copy| service.reverseList(v, copy))?;
    repeated("int[2][3]", &[[[1, 2, 3], [4, 5, 6]]], |v| service.repeatTable(&v))?;
    let mut list = vec!["first".to_owned()];
    service.growList(&mut list)?;
    equal("inout List<String>", list, ["first", "number 1"])
}

fn nullable(service: &dyn ITypes) -> Outcome {
    let echo = echo("nullable");
    let binder = echo.as_binder();
    let point = Point { x: 1, y: 2, label: "here".into() };
    let list = vec![Some("one".to_owned()), None, Some(String::new())];
    repeated("@nullable String", &[None, Some("some".to_owned())], |v| {
        service.repeatNullableString(v.as_deref())
    })?;
    repeated("@nullable int[]", &[None, Some(vec![]), Some(vec![1, 2])], |v| {
        service.repeatNullableInts(v.as_deref())
    })?;
    repeated("@nullable Point", &[None, Some(point)], |v| service.repeatNullablePoint(v.as_ref()))?;
    repeated("@nullable List<String>", &[None, Some(vec![]), Some(list)], |v| {
        service.repeatNullableList(v.as_deref())
    })?;
    repeated("@nullable IBinder", &[None, Some(binder)], |v| {
        service.repeatNullableBinder(v.as_ref())
    })?;
    holds("no object comes back as none", service.repeatNullableEcho(None)?.is_none())?;
    let back = service.repeatNullableEcho(Some(&echo))?.ok_or("an object became none")?;
    holds("an object comes back", back.as_binder() == echo.as_binder())
}

fn parcelables(service: &dyn ITypes) -> Outcome {
    let point = Point { x: 3, y: -4, label: "there".into() };
    let moved = service.movePoint(&point, 10, 20)?;
    equal("parcelable", &moved, &Point { x: 13, y: 16, label: "there".into() })?;
    equal("default of a field", Point::default().label.as_str(), "origin")?;

    let values = [
        Value::default(),
        Value::Number(7),
        Value::Text("seven".into()),
        Value::List(vec![7, 77]),
        Value::Point(point.clone()),
        Value::Level(Level::HIGH),
    ];
    repeated("union", &values, |v| service.repeatValue(&v))?;

    let everything = Everything {
        flag: true,
        octet: -8,
        letter: b'z'.into(),
        number: -32,
        large: 1 << 40,
        single: 0.5,
        twice: 0.25,
        text: "text".into(),
        absent: None,
        octets: vec![1, 2, 3],
        numbers: vec![-1, 0, 1],
        texts: strings(),
        list: strings(),
        table: [[1, 2, 3], [4, 5, 6]],
        level: Level::LOW,
        colours: vec![Colour::GREEN, Colour::BLUE],
        wide: Wide::LARGEST,
        point: moved,
        noPoint: None,
        points: vec![point.clone(), Point::default()],
        value: Value::Point(point.clone()),
        binder: Some(echo("in a parcelable").as_binder()),
    };
    repeated("parcelable of everything", &[everything], |v| service.repeatEverything(&v))?;

    let mut wrapped = Wrapped::default();
    wrapped.holder.set_parcelable(Arc::new(point))?;
    service.unwrap(&mut wrapped)?;
    let twice = wrapped.holder.get_parcelable::<Point>()?.ok_or("the holder came back empty")?;
    equal("ParcelableHolder", (wrapped.number, twice.x, twice.y), (3, 6, -8))
}

fn objects(service: &dyn ITypes) -> Outcome {
    let own = echo("own");
    let theirs = service.make("theirs")?;
    equal("call to theirs", theirs.name()?.as_str(), "theirs")?;
    holds(
        "the same name, the same object",
        service.make("theirs")?.as_binder() == theirs.as_binder(),
    )?;
    holds(
        "another name, another object",
        service.make("other")?.as_binder() != theirs.as_binder(),
    )?;
    holds("own comes home as itself", !service.repeatEcho(&own)?.as_binder().is_remote())?;
    holds("theirs comes back as it was", service.repeatEcho(&theirs)? == theirs)?;
    holds("IBinder", service.repeatBinder(&own.as_binder())? == own.as_binder())?;

    let binders: Vec<_> = (0..50).map(|n| echo(&n.to_string()).as_binder()).collect();
    let mut copy = Vec::new();
    let backwards = service.reverseBinders(&binders, &mut copy)?;
    holds("IBinder[]", backwards.iter().rev().eq(&binders))?;
    holds("out IBinder[]", copy.iter().flatten().eq(&binders))?;

    let echoes = [own, theirs, service.make("third")?];
    for backwards in [service.reverseEchoes(&echoes)?, service.reverseEchoList(&echoes)?] {
        let names: Result<Vec<_>, _> = backwards.iter().map(|echo| echo.name()).collect();
        equal("names", names?, ["third", "theirs", "own"])?;
    }
    Ok(())
}

fn files(service: &dyn ITypes) -> Outcome {
    let (reader, mut writer) = ParcelFileDescriptor::pipe()?;
    let mut reader = service.repeatFile(&reader)?;
    writer.write_all(b"one")?;
    let mut text = [0; 3];
    reader.read_exact(&mut text)?;
    equal("ParcelFileDescriptor", &text, b"one")?;

    let (readers, mut writers): (Vec<_>, Vec<_>) = (0..10)
        .map(|_| ParcelFileDescriptor::pipe())
        .collect::<Result<Vec<_>, _>>()?
        .into_iter()
        .unzip();
    let answer = service.repeatFiles(&Files { files: readers, noFile: None })?;
    holds("no file comes back as none", answer.noFile.is_none())?;
    for (n, (mut reader, writer)) in answer.files.iter().zip(&mut writers).enumerate() {
        writer.write_all(&[n as u8])?;
        let mut byte = [0];
        reader.read_exact(&mut byte)?;
        equal("ParcelFileDescriptor[]", byte[0] as usize, n)?;
    }
    Ok(())
}

fn errors(service: &dyn ITypes) -> Outcome {
    let error = service.fail(42, "on purpose").expect_err("it fails");
    equal("exception", error.exception_code(), ExceptionCode::ServiceSpecific)?;
    equal("code", error.service_specific_error(), 42)?;
    equal(
        "an unknown method",
        service.missing().map_err(StatusCode::from),
        Err(StatusCode::UnknownTransaction),
    )
}

type Part = fn(&dyn ITypes) -> Outcome;

pub fn scenario() -> Outcome {
    child::open(Loopers::Pool)?;
    let child = Child::start("types", &["suite.types.service"])?;
    let service: Strong<dyn ITypes> = hub::check_interface("suite.types.service")?;
    let parts: [(_, Part); 7] = [
        ("scalars", scalars),
        ("arrays", arrays),
        ("nullable", nullable),
        ("parcelables", parcelables),
        ("objects", objects),
        ("file descriptors", files),
        ("errors", errors),
    ];
    for (name, part) in parts {
        step(name);
        part(&*service)?;
    }
    child.end()
}
