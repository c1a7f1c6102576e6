//! What a broker leaves to the next one at its socket: a file beside it that only its user reads.
//!
//! It has what no engine can be believed in: the key under which identity credentials are signed,
//! and who managed which context. It is written when one of these changes, which is seldom, and
//! goes when a broker ends without an engine left. It outlives a broker, not the machine: there is
//! no need to sync it, and it says nothing after another boot.

use crate::peer;
use crate::state::Rule;
use baton_abi::control::{Identity, decode, encode};
use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Changes with what is written.
const FORM: u32 = 1;
const MAX_BYTES: u64 = 1 << 20;
const MAC_BYTES: usize = 32;

/// A process as it was admitted: what a credential says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Credential {
    pub identity: Identity,
    /// Which of all that ever had its pid; see [`peer::started`].
    pub started: Option<u64>,
    pub context: String,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Contents {
    form: u32,
    boot: String,
    era: u32,
    key: [u8; 32],
    contexts: BTreeMap<String, ContextRecord>,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct ContextRecord {
    rule: Rule,
    /// The manager's pid and start.
    alive: Option<(u32, u64)>,
}

/// The file, and what is in it.
pub(crate) struct RestartState {
    path: PathBuf,
    contents: Contents,
}

impl RestartState {
    /// Takes over what the last broker left, or begins anew. The caller serves the socket alone.
    /// `EIO` if the system has no random bytes.
    pub fn take_over(socket: &Path) -> Result<RestartState, Errno> {
        let mut path = socket.as_os_str().to_owned();
        path.push(".restart_state");
        let path = PathBuf::from(path);
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let left = read(&path).filter(|left| left.form == FORM && left.boot == boot);
        let contents = match left {
            Some(mut left) => {
                left.era += 1;
                for context_record in left.contexts.values_mut() {
                    // A successor of a manager that is dead need not wait.
                    let lives = |(pid, started)| peer::started(pid) == Some(started);
                    context_record
                        .rule
                        .manager
                        .take_if(|_| !context_record.alive.is_some_and(lives));
                }
                left
            }
            None => Contents { form: FORM, boot, era: 0, key: key()?, contexts: BTreeMap::new() },
        };
        let restart_state = RestartState { path, contents };
        restart_state.write();
        Ok(restart_state)
    }

    /// Whether there was another broker before.
    pub fn is_inherited(&self) -> bool {
        self.contents.era > 0
    }

    pub fn era(&self) -> u32 {
        self.contents.era
    }

    pub fn rules(&self) -> BTreeMap<String, Rule> {
        self.contents.contexts.iter().map(|(name, it)| (name.clone(), it.rule)).collect()
    }

    /// Writes down new rules. `alive` knows pid and start of a manager that is here.
    pub fn set_rules(
        &mut self,
        rules: BTreeMap<String, Rule>,
        alive: impl Fn(&Rule) -> Option<(u32, u64)>,
    ) {
        let before = std::mem::take(&mut self.contents.contexts);
        let context_record = |(name, rule): (String, Rule)| {
            let same = before.get(&name).filter(|old| old.rule.manager == rule.manager);
            let alive = alive(&rule).or(same.and_then(|old| old.alive));
            (name, ContextRecord { rule, alive })
        };
        self.contents.contexts = rules.into_iter().map(context_record).collect();
        self.write();
    }

    /// Nobody is left who could come back.
    pub fn discard(&self) {
        let _ = std::fs::remove_file(&self.path);
    }

    /// A credential with its MAC behind it.
    pub fn sign(&self, credential: &Credential) -> Vec<u8> {
        let mut signed = encode(credential);
        let mac = blake3::keyed_hash(&self.contents.key, &signed);
        signed.extend_from_slice(mac.as_bytes());
        signed
    }

    /// The credential, if a broker at this socket has signed it.
    pub fn verify(&self, signed: &[u8]) -> Option<Credential> {
        let (credential, mac) = signed.split_at_checked(signed.len().checked_sub(MAC_BYTES)?)?;
        let mac = blake3::Hash::from_slice(mac).ok()?;
        // In constant time: blake3's comparison.
        (blake3::keyed_hash(&self.contents.key, credential) == mac)
            .then(|| decode(credential))
            .flatten()
    }

    /// Without it this broker serves as well, and only the next one cannot take over.
    fn write(&self) {
        if let Err(errno) = write(&self.path, &encode(&self.contents)) {
            tracing::warn!(path = %self.path.display(), %errno, "cannot write what a next broker \
                needs");
        }
    }
}

fn key() -> Result<[u8; 32], Errno> {
    let mut key = [0; 32];
    match rustix::rand::getrandom(&mut key, rustix::rand::GetRandomFlags::empty()) {
        Ok(32) => Ok(key),
        Ok(_) => Err(Errno::IO),
        Err(errno) => Err(errno),
    }
}

/// Nothing unless it is our own file, and ours alone.
fn read(path: &Path) -> Option<Contents> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = rustix::fs::open(path, flags, Mode::empty()).ok()?;
    let file = std::fs::File::from(file);
    let status = file.metadata().ok()?;
    let ours = status.uid() == rustix::process::geteuid().as_raw();
    if !status.is_file() || !ours || status.mode() & 0o077 != 0 || status.nlink() != 1 {
        return None;
    }
    let mut bytes = Vec::new();
    file.take(MAX_BYTES).read_to_end(&mut bytes).ok()?;
    decode(&bytes)
}

/// In one step: a reader sees the file before or after.
fn write(path: &Path, bytes: &[u8]) -> Result<(), Errno> {
    let mut aside = path.as_os_str().to_owned();
    aside.push(".new");
    let aside = PathBuf::from(aside);
    let _ = rustix::fs::unlinkat(CWD, &aside, AtFlags::empty());
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let file = rustix::fs::open(&aside, flags, Mode::RUSR | Mode::WUSR)?;
    std::fs::File::from(file)
        .write_all(bytes)
        .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    rustix::fs::rename(&aside, path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use baton_abi::control::{NodeId, ProcessId};
    use std::os::unix::fs::PermissionsExt;

    struct Place(PathBuf);

    impl Place {
        fn new(name: &str) -> Place {
            let name = format!("baton-restart_state-{}-{name}", std::process::id());
            let directory = std::env::temp_dir().join(name);
            std::fs::create_dir(&directory).unwrap();
            Place(directory)
        }

        fn take_over(&self) -> RestartState {
            RestartState::take_over(&self.0.join("socket")).unwrap()
        }

        fn file(&self) -> PathBuf {
            self.0.join("socket.restart_state")
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn credential(process: u64) -> Credential {
        let security_context = "label".to_owned();
        let identity = Identity { process: ProcessId(process), pid: 7, uid: 8, security_context };
        Credential { identity, started: Some(9), context: "binder".to_owned() }
    }

    #[test]
    fn a_successor_believes_its_predecessors_cards_and_no_others() {
        let (place, elsewhere) = (Place::new("credentials"), Place::new("elsewhere"));
        let signed = place.take_over().sign(&credential(1));
        let next = place.take_over();
        assert_eq!(next.era(), 1);
        assert_eq!(next.verify(&signed), Some(credential(1)));
        for at in 0..signed.len() {
            let mut forged = signed.clone();
            forged[at] ^= 1;
            assert_eq!(next.verify(&forged), None, "byte {at}");
            assert_eq!(next.verify(&signed[..at]), None, "cut at {at}");
        }
        assert_eq!(elsewhere.take_over().verify(&signed), None);
    }

    #[test]
    fn what_others_could_have_read_or_written_is_not_taken_over() {
        let place = Place::new("others");
        let signed = place.take_over().sign(&credential(1));
        std::fs::set_permissions(place.file(), std::fs::Permissions::from_mode(0o640)).unwrap();
        let next = place.take_over();
        assert_eq!((next.era(), next.verify(&signed)), (0, None));
        let mode = std::fs::metadata(place.file()).unwrap().mode();
        assert_eq!(mode & 0o777, 0o600);
        std::fs::write(place.file(), b"nonsense").unwrap();
        assert!(!place.take_over().is_inherited());
    }

    #[test]
    fn a_manager_is_remembered_while_its_process_lives() {
        let place = Place::new("manager");
        let rule = Rule { manager: Some((ProcessId(1), NodeId(2))), manager_uid: Some(3) };
        let us = std::process::id();
        let started = peer::started(us).unwrap();
        for (alive, expect) in
            [(Some((us, started)), rule.manager), (Some((us, started + 1)), None), (None, None)]
        {
            let mut restart_state = place.take_over();
            restart_state.set_rules(BTreeMap::from([("binder".to_owned(), rule)]), |_| alive);
            let found = place.take_over().rules()["binder"];
            assert_eq!(found, Rule { manager: expect, ..rule });
            restart_state.discard();
        }
    }
}
