//! State that a broker leaves to the next one: a file beside the socket that only the broker's user
//! can read.
//!
//! The file has what no engine can be trusted to say: the key that signs identity credentials, and
//! each context's manager. The broker writes it when one of these changes, which is rare, and
//! removes it when it ends without engines. The file outlives a broker but not a reboot, so it
//! needs no sync.

use crate::peer;
use crate::private_file;
use crate::process_list::ProcessList;
use crate::state::Rule;
use baton_abi::control::{Identity, decode, encode};
use baton_shm::blocking::random;
use rustix::fs::OFlags;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

/// Version of the file's format.
const FORM: u32 = 2;
/// Most bytes of the file that are read.
const MAX_BYTES: u64 = 1 << 20;
const MAC_BYTES: usize = 32;

/// The content of a credential: an engine's identity at its admission.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Credential {
    pub identity: Identity,
    /// See [`peer::Credentials::incarnation`].
    pub incarnation: Option<u64>,
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
    /// The manager's pid and incarnation.
    alive: Option<(u32, u64)>,
}

/// The file and its contents, and the file of processes.
pub(crate) struct RestartState {
    path: PathBuf,
    contents: Contents,
    /// The processes that the next broker waits for.
    pub processes: ProcessList,
}

impl RestartState {
    /// Reads what the last broker left, or starts with a new key. The caller must hold the lock of
    /// the path. `EIO` if the system has no random bytes.
    pub fn take_over(socket: &Path) -> Result<RestartState, Errno> {
        let beside = |name| {
            let mut path = socket.as_os_str().to_owned();
            path.push(name);
            PathBuf::from(path)
        };
        let path = beside(".restart_state");
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let left = read(&path).filter(|left| left.form == FORM && left.boot == boot);
        let contents = match left {
            Some(mut left) => {
                left.era += 1;
                for context_record in left.contexts.values_mut() {
                    // A context whose manager is dead can get a new one at once.
                    // A manager that /proc does not show has the time that all have to rejoin.
                    let may_live = |(pid, incarnation)| peer::may_live(pid, incarnation);
                    context_record
                        .rule
                        .manager
                        .take_if(|_| !context_record.alive.is_some_and(may_live));
                }
                left
            }
            None => {
                Contents { form: FORM, boot, era: 0, key: random()?, contexts: BTreeMap::new() }
            }
        };
        let processes = ProcessList::take_over(beside(".processes"), contents.era);
        let restart_state = RestartState { path, contents, processes };
        restart_state.write();
        Ok(restart_state)
    }

    /// Whether a previous broker left a file for this one.
    pub fn is_inherited(&self) -> bool {
        self.contents.era > 0
    }

    /// The number of this broker among those at its socket, from 0.
    pub fn era(&self) -> u32 {
        self.contents.era
    }

    /// The contexts and their managers.
    pub fn rules(&self) -> BTreeMap<String, Rule> {
        self.contents.contexts.iter().map(|(name, it)| (name.clone(), it.rule)).collect()
    }

    /// Writes new rules. `alive` returns pid and incarnation of a manager that is connected.
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

    /// Removes both files because no engine is left that could rejoin.
    pub fn discard(&self) {
        let _ = std::fs::remove_file(&self.path);
        self.processes.discard();
    }

    /// A credential followed by its MAC.
    pub fn sign(&self, credential: &Credential) -> Vec<u8> {
        let mut signed = encode(credential);
        let mac = blake3::keyed_hash(&self.contents.key, &signed);
        signed.extend_from_slice(mac.as_bytes());
        signed
    }

    /// Returns the credential if a broker at this socket signed it.
    pub fn verify(&self, signed: &[u8]) -> Option<Credential> {
        let (credential, mac) = signed.split_at_checked(signed.len().checked_sub(MAC_BYTES)?)?;
        let mac = blake3::Hash::from_slice(mac).ok()?;
        // blake3 compares in constant time.
        (blake3::keyed_hash(&self.contents.key, credential) == mac)
            .then(|| decode(credential))
            .flatten()
    }

    /// Writes the file. A failure does not disturb this broker; the next one cannot take over.
    fn write(&self) {
        if let Err(errno) = write(&self.path, &encode(&self.contents)) {
            tracing::warn!(path = %self.path.display(), %errno, "cannot write the state \
                that a next broker needs");
        }
    }
}

/// Reads the file.
fn read(path: &Path) -> Option<Contents> {
    let file = private_file::open(path, OFlags::RDONLY)?;
    let mut bytes = Vec::new();
    file.take(MAX_BYTES).read_to_end(&mut bytes).ok()?;
    decode(&bytes)
}

/// Replaces the file in one step: a reader sees either the old or the new contents.
fn write(path: &Path, bytes: &[u8]) -> Result<(), Errno> {
    let mut new_path = path.as_os_str().to_owned();
    new_path.push(".new");
    let new_path = PathBuf::from(new_path);
    private_file::create(&new_path)?
        .write_all(bytes)
        .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    rustix::fs::rename(&new_path, path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use baton_abi::control::{NodeId, ProcessId};
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    struct TempDirectory(PathBuf);

    impl TempDirectory {
        fn new(name: &str) -> TempDirectory {
            let name = format!("baton-restart_state-{}-{name}", std::process::id());
            let directory = std::env::temp_dir().join(name);
            std::fs::create_dir(&directory).unwrap();
            TempDirectory(directory)
        }

        fn take_over(&self) -> RestartState {
            RestartState::take_over(&self.0.join("socket")).unwrap()
        }

        fn file(&self) -> PathBuf {
            self.0.join("socket.restart_state")
        }
    }

    impl Drop for TempDirectory {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn credential(process: u64) -> Credential {
        let security_context = "label".to_owned();
        let identity = Identity {
            process: ProcessId(process),
            pid: 7,
            uid: 8,
            security_context,
            is_served_by_root: false,
        };
        Credential { identity, incarnation: Some(9), context: "binder".to_owned() }
    }

    #[test]
    fn a_successor_accepts_only_its_predecessors_credentials() {
        let (directory, elsewhere) =
            (TempDirectory::new("credentials"), TempDirectory::new("elsewhere"));
        let signed = directory.take_over().sign(&credential(1));
        let next = directory.take_over();
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
    fn a_file_that_others_could_access_is_not_taken_over() {
        let directory = TempDirectory::new("others");
        let signed = directory.take_over().sign(&credential(1));
        std::fs::set_permissions(directory.file(), std::fs::Permissions::from_mode(0o640)).unwrap();
        let next = directory.take_over();
        assert_eq!((next.era(), next.verify(&signed)), (0, None));
        let mode = std::fs::metadata(directory.file()).unwrap().mode();
        assert_eq!(mode & 0o777, 0o600);
        std::fs::write(directory.file(), b"nonsense").unwrap();
        assert!(!directory.take_over().is_inherited());
    }

    #[test]
    fn a_manager_is_remembered_while_its_process_lives() {
        let directory = TempDirectory::new("manager");
        let rule = Rule {
            manager: Some((ProcessId(1), NodeId(2))),
            manager_uid: Some(3),
            ..Rule::default()
        };
        let us = std::process::id();
        let started = peer::started(us).unwrap();
        for (alive, expect) in [
            (Some((us, started)), rule.manager),
            (Some((us, started + 1)), None),
            (Some((0, 7)), rule.manager),
            (None, None),
        ] {
            let mut restart_state = directory.take_over();
            restart_state.set_rules(BTreeMap::from([("binder".to_owned(), rule)]), |_| alive);
            let found = directory.take_over().rules()["binder"];
            assert_eq!(found, Rule { manager: expect, ..rule });
            restart_state.discard();
        }
    }
}
