//! The methods of `baton.app.IProcessManager` and `baton.app.IApplication`, as requests carry them:
//! see the files in `aidl`.

use super::class::Adjustment;
use super::run::Report;
use super::table::State;
use baton::Parcel;
use baton::android::{Reader, Write};

/// The service's name.
pub const NAME: &str = "activity";
/// The service's interface.
pub const MANAGER: &str = "baton.app.IProcessManager";
/// The processes' interface.
pub const APPLICATION: &str = "baton.app.IApplication";
/// The AIDL files: their names and texts.
pub const INTERFACES: [(&str, &str); 3] = [
    ("baton/app/IProcessManager.aidl", include_str!("../../aidl/baton/app/IProcessManager.aidl")),
    ("baton/app/IApplication.aidl", include_str!("../../aidl/baton/app/IApplication.aidl")),
    ("baton/app/ProcessInfo.aidl", include_str!("../../aidl/baton/app/ProcessInfo.aidl")),
];
/// `IApplication.enter`.
pub const ENTER: u32 = 1;
/// `IApplication.trim`.
pub const TRIM: u32 = 2;

/// A request. The object of `attach` stands in the transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// `start`
    Start(String),
    /// `stop`
    Stop(String),
    /// `bind`
    Bind(String),
    /// `unbind`
    Unbind(String),
    /// `processes`
    Processes,
    /// `stack`
    Stack,
    /// `setAdjustment`
    SetAdjustment(u32, i32),
    /// `clearAdjustment`
    ClearAdjustment(u32),
    /// `trim`
    Trim(u32, i32),
    /// `kill`
    Kill(String),
    /// `forceStop`
    ForceStop(String),
    /// `setBackup`
    SetBackup(String, bool),
    /// `attach`
    Attach,
}

/// Why a request cannot be read: its writer's fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestError {
    /// It is one of another interface.
    Interface,
    /// The interface has no such method.
    Method,
    /// An argument is missing, or has another form.
    Argument,
}

impl Request {
    /// Reads a request.
    pub fn decode(code: u32, data: &[u8]) -> Result<Request, RequestError> {
        let mut reader = Reader::new(data);
        if reader.token().as_deref() != Some(MANAGER) {
            return Err(RequestError::Interface);
        }
        if !(1..=13).contains(&code) {
            return Err(RequestError::Method);
        }
        Request::arguments(code, &mut reader).ok_or(RequestError::Argument)
    }

    fn arguments(code: u32, reader: &mut Reader<'_>) -> Option<Request> {
        let pid = |reader: &mut Reader<'_>| u32::try_from(reader.i32()?).ok();
        Some(match code {
            1 => Request::Start(reader.string()?),
            2 => Request::Stop(reader.string()?),
            3 => Request::Bind(reader.string()?),
            4 => Request::Unbind(reader.string()?),
            5 => Request::Processes,
            6 => Request::Stack,
            7 => Request::SetAdjustment(pid(reader)?, reader.i32()?),
            8 => Request::ClearAdjustment(pid(reader)?),
            9 => Request::Trim(pid(reader)?, reader.i32()?),
            10 => Request::Kill(reader.string()?),
            11 => Request::ForceStop(reader.string()?),
            12 => Request::SetBackup(reader.string()?, reader.i32()? != 0),
            13 => Request::Attach,
            _ => return None,
        })
    }

    /// Writes a request: its method's number, and the parcel, in which the object of `attach` is
    /// still missing.
    pub fn encode(&self) -> (u32, Parcel) {
        let mut parcel = Parcel::new();
        parcel.write_token(MANAGER);
        let code = match self {
            Request::Start(component) => text(&mut parcel, 1, component),
            Request::Stop(component) => text(&mut parcel, 2, component),
            Request::Bind(component) => text(&mut parcel, 3, component),
            Request::Unbind(component) => text(&mut parcel, 4, component),
            Request::Processes => 5,
            Request::Stack => 6,
            Request::SetAdjustment(pid, adjustment) => {
                numbers(&mut parcel, 7, &[*pid as i32, *adjustment])
            }
            Request::ClearAdjustment(pid) => numbers(&mut parcel, 8, &[*pid as i32]),
            Request::Trim(pid, level) => numbers(&mut parcel, 9, &[*pid as i32, *level]),
            Request::Kill(package) => text(&mut parcel, 10, package),
            Request::ForceStop(package) => text(&mut parcel, 11, package),
            Request::SetBackup(package, running) => {
                text(&mut parcel, 12, package);
                numbers(&mut parcel, 12, &[i32::from(*running)])
            }
            Request::Attach => 13,
        };
        (code, parcel)
    }
}

fn text(parcel: &mut Parcel, code: u32, text: &str) -> u32 {
    parcel.write_string(text);
    code
}

fn numbers(parcel: &mut Parcel, code: u32, numbers: &[i32]) -> u32 {
    numbers.iter().for_each(|number| parcel.write_i32(*number));
    code
}

fn write_strings<'a>(parcel: &mut Parcel, texts: impl ExactSizeIterator<Item = &'a str>) {
    parcel.write_i32(texts.len() as i32);
    texts.for_each(|text| parcel.write_string(text));
}

/// A process as the service tells it.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct ProcessInfo {
    /// The pid, 0 while it is being started.
    pub pid: u32,
    /// The user.
    pub uid: u32,
    /// The package.
    pub package: String,
    /// The process's name.
    pub name: String,
    /// The adjustment.
    pub adjustment: Adjustment,
    /// The resident set.
    pub rss_bytes: u64,
    /// Its components, and the state of each.
    pub components: Vec<(String, String)>,
}

/// Writes the reply of `processes`, behind the status.
pub fn write_processes(parcel: &mut Parcel, reports: &[Report]) {
    const THERE: i32 = 1;
    parcel.write_i32(reports.len() as i32);
    for report in reports {
        parcel.write_i32(THERE);
        let Ok(()) = parcel.write_sized(|parcel| {
            parcel.write_i32(report.pid.unwrap_or_default() as i32);
            parcel.write_i32(report.uid as i32);
            parcel.write_string(&report.package);
            parcel.write_string(&report.name);
            parcel.write_i32(report.adjustment.get());
            parcel.write(&report.rss_bytes.to_le_bytes());
            let (components, states): (Vec<&str>, Vec<&str>) = report
                .components
                .iter()
                .map(|(name, state)| (name.as_str(), State::name(*state)))
                .unzip();
            write_strings(parcel, components.into_iter());
            write_strings(parcel, states.into_iter());
            Ok::<(), std::convert::Infallible>(())
        });
    }
}

/// Reads what [`write_processes`] writes.
pub fn read_processes(reader: &mut Reader<'_>) -> Option<Vec<ProcessInfo>> {
    let count = reader.i32()?;
    (0..count)
        .map(|_| {
            reader.i32().filter(|there| *there == 1)?;
            let mut fields = reader.sized()?;
            Some(ProcessInfo {
                pid: u32::try_from(fields.i32()?).ok()?,
                uid: fields.i32()? as u32,
                package: fields.string()?,
                name: fields.string()?,
                adjustment: Adjustment::new(fields.i32()?)?,
                rss_bytes: fields.array().map(u64::from_le_bytes)?,
                components: fields.strings()?.into_iter().zip(fields.strings()?).collect(),
            })
        })
        .collect()
}

/// Writes the reply of `stack`, behind the status.
pub fn write_stack(parcel: &mut Parcel, components: &[String]) {
    write_strings(parcel, components.iter().map(String::as_str));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::table::ProcessId;

    fn all() -> Vec<Request> {
        let name = || "org.app/.A".to_owned();
        vec![
            Request::Start(name()),
            Request::Stop(name()),
            Request::Bind(name()),
            Request::Unbind(name()),
            Request::Processes,
            Request::Stack,
            Request::SetAdjustment(7, -1),
            Request::ClearAdjustment(7),
            Request::Trim(7, 80),
            Request::Kill(name()),
            Request::ForceStop(name()),
            Request::SetBackup(name(), true),
            Request::Attach,
        ]
    }

    #[test]
    fn requests_are_read_as_they_were_written_and_no_shorter() {
        for (number, request) in (1..).zip(all()) {
            let (code, parcel) = request.encode();
            assert_eq!(code, number, "{request:?}");
            assert_eq!(Request::decode(code, parcel.data()), Ok(request.clone()));
            let mut header = Parcel::new();
            header.write_token(MANAGER);
            for length in 0..parcel.data().len() {
                let cut = Request::decode(code, &parcel.data()[..length]).unwrap_err();
                match length < header.data().len() {
                    true => assert_eq!(cut, RequestError::Interface, "{request:?} {length}"),
                    false => assert_eq!(cut, RequestError::Argument, "{request:?} {length}"),
                }
            }
        }
    }

    #[test]
    fn requests_of_others_are_refused() {
        let (_, parcel) = Request::Stack.encode();
        for code in [0, 14, u32::MAX] {
            assert_eq!(Request::decode(code, parcel.data()), Err(RequestError::Method));
        }
        let mut other = Parcel::new();
        other.write_token(APPLICATION);
        assert_eq!(Request::decode(6, other.data()), Err(RequestError::Interface));
        let (_, mut parcel) = Request::Processes.encode();
        parcel.write_i32(-1);
        assert_eq!(Request::decode(8, parcel.data()), Err(RequestError::Argument), "a pid of -1");
    }

    /// The methods stand in the file in the order of their numbers.
    #[test]
    fn the_numbers_are_those_of_the_aidl_file() {
        let methods: Vec<&str> = INTERFACES[0]
            .1
            .lines()
            .filter(|line| line.ends_with(");") && line.starts_with("    "))
            .filter_map(|line| line.split('(').next()?.split(' ').next_back())
            .collect();
        let expected = [
            "start",
            "stop",
            "bind",
            "unbind",
            "processes",
            "stack",
            "setAdjustment",
            "clearAdjustment",
            "trim",
            "kill",
            "forceStop",
            "setBackup",
            "attach",
        ];
        assert_eq!(methods, expected);
    }

    #[test]
    fn processes_are_read_as_they_were_written() {
        let report = Report {
            id: ProcessId(1),
            pid: Some(7),
            uid: u32::MAX,
            package: "org.app".to_owned(),
            name: "org.app:w".to_owned(),
            adjustment: Adjustment::BEST,
            class: Adjustment::BEST.class(),
            rss_bytes: 1 << 40,
            components: vec![("org.app.W".to_owned(), State::Started)],
        };
        let starting = Report { pid: None, components: Vec::new(), ..report.clone() };
        let mut parcel = Parcel::new();
        write_processes(&mut parcel, &[report, starting]);
        let read = read_processes(&mut Reader::new(parcel.data())).unwrap();
        assert_eq!((read[0].pid, read[1].pid, read[0].rss_bytes), (7, 0, 1 << 40));
        assert_eq!(read[0].components, [("org.app.W".to_owned(), "started".to_owned())]);
        for length in 0..parcel.data().len() {
            assert_eq!(read_processes(&mut Reader::new(&parcel.data()[..length])), None);
        }
    }
}
