//! The service in the background: one per state folder, known by a locked file.
//!
//! The process file holds process id and address; the service keeps a lock on it as long as it lives. A
//! lock, unlike a process id, can neither be left behind nor be somebody else's.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{Read, Seek, SeekFrom, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};

use crate::error::{Failure, Kind, Outcome};

const PROCESS_FILE: &str = "cortex.json";
const LOG_FILE: &str = "cortex.log";
/// Largest process file that is read.
const LARGEST: u64 = 4_096;
/// How much of the log a failed start shows, in bytes.
const SHOWN_LOG: u64 = 2_000;
/// The longest wait for the service's answer to one health request.
const HEALTH: Duration = Duration::from_secs(5);

/// A running service.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Running {
    /// Its process id.
    pub pid: i32,
    /// Where it listens.
    pub address: SocketAddr,
}

/// The claim of this process to be the service of a state folder. Ends with it.
pub struct Claim {
    _file: File,
}

/// Makes this process the service of `folder`.
///
/// # Errors
/// Another is already, or the folder cannot be written.
pub fn claim(folder: &Path, address: SocketAddr) -> Outcome<Claim> {
    make(folder)?;
    let path = folder.join(PROCESS_FILE);
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(&path)
        .map_err(|error| unusable(&path, &error))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            return Err(Failure::new(
                Kind::System,
                "already_running",
                format!("another cortex serves from {}", folder.display()),
            )
            .hint("`cortex down` stops it; or set another state.dir"));
        }
        Err(TryLockError::Error(error)) => return Err(unusable(&path, &error)),
    }
    let pid = i32::try_from(std::process::id())
        .map_err(|_| Failure::internal("a process id beyond i32"))?;
    let record = serde_json::to_vec(&Running { pid, address }).map_err(|error| {
        Failure::internal(format!("the process file cannot be written: {error}"))
    })?;
    file.set_len(0)
        .and_then(|()| file.write_all(&record))
        .map_err(|error| unusable(&path, &error))?;
    Ok(Claim { _file: file })
}

/// The service of `folder`, if one runs.
///
/// # Errors
/// A process file that cannot be read.
pub fn running(folder: &Path) -> Outcome<Option<Running>> {
    let path = folder.join(PROCESS_FILE);
    let file = match File::open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(unusable(&path, &error)),
    };
    // A shared lock, so that two who look at once do not take each other for the service.
    match file.try_lock_shared() {
        Ok(()) => return Ok(None),
        Err(TryLockError::WouldBlock) => {}
        Err(TryLockError::Error(error)) => return Err(unusable(&path, &error)),
    }
    let mut text = String::new();
    (&file)
        .take(LARGEST)
        .read_to_string(&mut text)
        .map_err(|error| unusable(&path, &error))?;
    // Empty for the moment between the lock and the write.
    Ok(serde_json::from_str(&text).ok())
}

/// Asks the service to stop.
///
/// # Errors
/// A process that may not be signalled.
pub fn terminate(running: &Running) -> Outcome<()> {
    let pid = Pid::from_raw(running.pid)
        .ok_or_else(|| Failure::system(format!("{} is no process id", running.pid)))?;
    kill_process(pid, Signal::TERM).map_err(|error| {
        Failure::system(format!(
            "process {} cannot be told to stop: {error}",
            running.pid
        ))
        .hint("it may belong to another user")
    })
}

/// A service that was started and the log it writes.
pub struct Started {
    /// The log.
    pub path: PathBuf,
    from: u64,
    child: Mutex<Child>,
}

/// Starts `cortex serve` on its own, with its output in the log of `folder`.
///
/// # Errors
/// A folder or program that cannot be used.
pub fn spawn(folder: &Path, config: Option<&Path>) -> Outcome<Started> {
    make(folder)?;
    let path = folder.join(LOG_FILE);
    let log = OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o600)
        .open(&path)
        .map_err(|error| unusable(&path, &error))?;
    let from = log
        .metadata()
        .map_err(|error| unusable(&path, &error))?
        .len();
    let program = std::env::current_exe()
        .map_err(|error| Failure::system(format!("this program's own file is unknown: {error}")))?;
    let copy = log.try_clone().map_err(|error| unusable(&path, &error))?;
    let mut command = Command::new(program);
    command
        .arg("serve")
        .stdin(Stdio::null())
        .stdout(copy)
        .stderr(log);
    if let Some(config) = config {
        command.arg("--config").arg(config);
    }
    // A group of its own, so that Ctrl-C here does not reach it.
    let child = command
        .process_group(0)
        .spawn()
        .map_err(|error| Failure::system(format!("the service cannot be started: {error}")))?;
    Ok(Started {
        path,
        from,
        child: Mutex::new(child),
    })
}

impl Started {
    /// Whether the process has ended.
    pub fn has_ended(&self) -> bool {
        self.child
            .lock()
            .is_ok_and(|mut child| matches!(child.try_wait(), Ok(Some(_))))
    }

    /// A failure that shows what the service last said.
    pub fn failure(&self, what: &str) -> Failure {
        let said = tail(&self.path, self.from).unwrap_or_default();
        let said = said.trim();
        let message = if said.is_empty() {
            what.to_owned()
        } else {
            format!("{what}. It said:\n{said}")
        };
        Failure::system(message).hint(format!("its log is {}", self.path.display()))
    }
}

/// Whether the service answers its health check with 200. One small request of HTTP/1.1, for which a client
/// library would be the largest part of this program.
pub fn is_healthy(running: &Running, key: &str) -> bool {
    let ask = || -> std::io::Result<bool> {
        let mut stream = TcpStream::connect_timeout(&running.address, HEALTH)?;
        stream.set_read_timeout(Some(HEALTH))?;
        let authorization = if key.is_empty() {
            String::new()
        } else {
            format!("Authorization: Bearer {key}\r\n")
        };
        write!(
            stream,
            "GET /api/v1/health HTTP/1.1\r\nHost: localhost\r\n{authorization}Connection: close\r\n\r\n"
        )?;
        let mut status = [0; 12];
        stream.read_exact(&mut status)?;
        Ok(status == *b"HTTP/1.1 200")
    };
    ask().unwrap_or(false)
}

fn make(folder: &Path) -> Outcome<()> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)
        .map_err(|error| unusable(folder, &error))
}

fn unusable(path: &Path, error: &std::io::Error) -> Failure {
    Failure::system(format!("{} cannot be used: {error}", path.display()))
        .hint("state.dir must be a folder that this user can write")
}

fn tail(path: &Path, from: u64) -> std::io::Result<String> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(from.max(length.saturating_sub(SHOWN_LOG))))?;
    let mut bytes = Vec::new();
    file.take(SHOWN_LOG).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
